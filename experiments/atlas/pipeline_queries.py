"""The five workload queries of pipelined execution, and the sales they run over.

The figure that shows the workload is a picture; the queries here follow what the text says of them: which operators
they have, whose selectivity is named, and which window each stream has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import nile
from nile.exact.join.chain import encode_all
from nile.exact.plan.algebra import Aggregate, Distinct, Group, Join, Plan, Project, Range, Scan, Select, Stored
from nile.experiments.atlas.kinds import Data
from nile.summaries.lazy import lazy

__all__ = ["QUERIES", "Sales", "Streams", "made", "query", "read"]

Array = np.ndarray[Any, Any]
pa = lazy("pyarrow")
pc = lazy("pyarrow.compute")

QUERIES = ("Q1", "Q2", "Q3", "Q4", "Q5")
Streams = dict[str, tuple[Array, Any]]
_S = 1_000_000_000
_ITEMS = 1_000  # of the queries that join a stored relation


@dataclass(frozen=True, slots=True)
class Sales:
    """streams: "s" and "r", (ts int64 [n] ns, RecordBatch of item and price); bar: a price; favourites: item codes."""

    streams: Streams
    bar: float
    favourites: Array


def made(
    seed: int, name: str, *, tuples: int, rate: float, window: float, second: float, passes: float, matches: float
) -> Sales:
    """Two streams with exponential gaps, uniform items and prices.  tuples, rate: of each stream, rate a second.

    passes: the share of tuples that a selection passes; matches: the share of items that are favourites (Q2, Q3), or
    pairs that a tuple meets in the window of the other stream (Q4, Q5).
    """
    rng = np.random.Generator(np.random.PCG64([seed, QUERIES.index(name)]))
    items = _ITEMS
    if name in ("Q4", "Q5"):
        met = rate * (window * passes if name == "Q4" else (window + second) / 2)
        items = max(1, round(met / matches))
    streams = {}
    for side in "sr":
        ts = np.cumsum(rng.exponential(_S / rate, tuples)).astype(np.int64)
        streams[side] = (ts, _rows(side, rng.integers(0, items, tuples), np.round(rng.random(tuples) * 100, 2)))
    return Sales(streams, 100.0 * (1.0 - passes), rng.permutation(items)[: math.ceil(matches * items)])


def read(seed: int, data: Data, *, tuples: int, passes: float, matches: float) -> Sales:
    """The first tuples of each of two real streams.  matches: the share of items that are favourites.

    Raises what reading raises.
    """
    database = nile.connect()
    columns = []
    for side, where in (("s", data.left), ("r", data.right)):
        database.register(side, data.path, time=data.time, where=where)
        columns.append(database.load_columns(side, (data.key, data.value)))
    codes, items = encode_all([each.batch[data.key].slice(0, tuples) for each in columns])
    prices = [each.batch[data.value].slice(0, tuples).cast(pa.float64()) for each in columns]
    streams = {
        side: (each.ts[:tuples], _rows(side, code, price))
        for side, each, code, price in zip("sr", columns, codes, prices, strict=True)
    }
    rising = np.sort(np.concatenate([price.drop_null().to_numpy() for price in prices]))
    bar = rising[max(0, round((1.0 - passes) * rising.shape[0]) - 1)] if passes < 1.0 else -math.inf
    rng = np.random.Generator(np.random.PCG64(seed))
    return Sales(streams, float(bar), rng.permutation(items)[: math.ceil(matches * items)])


def _rows(side: str, items: Array, prices: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(items, pa.int64()), pa.array(prices)], schema=_schema(side))


def _schema(side: str) -> Any:
    return pa.schema([(f"{side}.item", pa.int64()), (f"{side}.price", pa.float64())])


def query(name: str, sales: Sales, window: float, second: float) -> Plan:
    """One of QUERIES as a plan.  window: seconds; second: seconds of the second stream's window in Q5.

    Q1: the total of sales above a price.  Q2: the favourite items that were sold.  Q3: the total of each favourite
    item.  Q4: sales of an item in both streams, above a price in each.  Q5: the highest price of an item sold in both
    streams, each in its own window.
    """
    s = Scan("s", _schema("s"), Range(round(window * _S)), 0)
    r = Scan("r", _schema("r"), Range(round((second if name == "Q5" else window) * _S)), 1)
    match name:
        case "Q1":
            return Group(_above(s, "s.price", sales.bar), (), (Aggregate("total", "sum", "s.price"),))
        case "Q2":
            sold = Project(
                _favourite(s, sales), lambda rows: rows.select(["s.item"]), pa.schema([_schema("s").field(0)])
            )
            return Distinct(sold)
        case "Q3":
            return Group(_favourite(s, sales), ("s.item",), (Aggregate("total", "sum", "s.price"),))
        case "Q4":
            left, right = _above(s, "s.price", sales.bar), _above(r, "r.price", sales.bar)
            return Join(left, right, (("s.item", "r.item"),))
        case _:
            both = Join(s, r, (("s.item", "r.item"),))
            return Group(both, (), (Aggregate("most", "max", "s.price"),))


def _above(plan: Plan, column: str, bar: float) -> Plan:
    return Select(plan, lambda rows: pc.greater(rows[column], bar))


def _favourite(plan: Plan, sales: Sales) -> Plan:
    relation = Stored("favourites", pa.table({"f.item": pa.array(np.sort(sales.favourites))}))
    return Join(plan, relation, (("s.item", "f.item"),))
