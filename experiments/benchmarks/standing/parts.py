"""Standing joins on Spark, part by part and without a Spark: what parts find within one budget, and how work divides.

Two streams of `TUPLES` tuples each are dealt out by key as tasks deal them, micro-batch by micro-batch, and each part
takes its own, as `transformWithState` would have it do.  Beside it one database takes all of them.

    found     the pairs of a `desc` join that 2 and 4 parts find together over those that one finds, of one budget
    Hist-MSE  by key and by age, of the pairs of a `weighted` join of 2 and 4 parts over that of one
    divided   the CPU time of one part that takes all over that of the busier of two: of the join alone, states read
              and written included, without what Spark takes itself
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.durations import parse_duration
from nile.execution.statement.builder import read_query
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.report.histograms import BINS, Histogram
from nile.spark.standing.carrying import Dealer, batches_of
from nile.spark.standing.keys import dealt_by
from nile.spark.standing.partition import Asked, Fed, Partition, Told, Worth, told_of
from nile.spark.standing.placing import places_of
from nile.spark.standing.processor import Last
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["standing_parts"]

TITLE = "standing joins in parts: what parts find of one budget, how their work divides"
FOUND_BAR, MSE_BAR, DIVIDED_BAR = 0.98, 1.02, 1.6
TUPLES, BATCH, RATE = 30_000, 1_500, 50
LARGER = 10
"""Times as many tuples, as often and at once, where the work of parts is timed: each begins with its state."""
FRACTIONS, PARTS = (0.1, 0.3, 0.5), (2, 4)
ROUNDS = 3
SEEDS, BRIEFLY = 16, 3
"""Of one pair of streams a tenth of the budget finds 1,300 pairs over even keys, more or less by 3 % by chance."""
_TEXT = "SELECT a.k, a.t AS x, b.t AS y FROM a, b WHERE a.k = b.k {} WINDOW '{}'"
_KEYS = {"2,000 even keys": (2_000, 0.0, "6 s"), "1,000 keys by Zipf": (1_000, 1.0, "10 s")}
"""How many, the exponent, and the window."""

Tables = dict[str, Any]
Array = np.ndarray[Any, Any]


def streams(keys: int, exponent: float, times: int = 1, seed: int = 0) -> Tables:
    """Two streams in order of time, `RATE` tuples a second each, and `times` as many."""
    made = {}
    for stream, name in enumerate("ab", 1):
        chance = np.random.default_rng([seed, stream])
        weight = np.arange(1, keys + 1) ** -exponent
        drawn = chance.choice(keys, TUPLES * times, p=weight / weight.sum())
        at = np.sort(chance.random(TUPLES * times)) * TUPLES / RATE
        made[name] = pa.table({"t": at, "k": pa.array([f"key {key}" for key in drawn])})
    return made


def _database(tables: Tables) -> Any:
    db = nile.connect()
    for name, table in tables.items():
        db.stream(name, table.schema, time="t")
    return db


def one(text: str, tables: Tables, fraction: float | None) -> pa.Table:
    """The pairs that one database finds.  fraction: None of an exact join."""
    db = _database(tables)
    standing = db.subscribe(text, **({} if fraction is None else {"budget": nile.Budget(fraction=fraction)}))
    for begin in range(0, TUPLES, BATCH):
        for name, table in tables.items():
            db.push(name, table.slice(begin, BATCH))
    db.advance(1e6)
    return pa.Table.from_batches(list(standing.poll()), standing.schema)


def asked(text: str, tables: Tables, options: dict[str, Any], parts: int) -> Asked:
    """The query as tasks are handed it."""
    keys = dealt_by(read_query(text, _database(tables)._names, None))
    fed = tuple(Fed(name, tables[name].schema, "t", None, keys[name]) for name in sorted(keys))
    return Asked.from_json(Asked(text, options, fed, parts).as_json())


Heard = tuple[Tables, dict[str, int], list[tuple[int, Told]]]


def dealt(query: Asked, tables: Tables, batch: int = BATCH) -> Iterator[list[Heard]]:
    """Of each micro-batch what every part is told: tuples by stream, how far streams have come, and counts."""
    places, salt = places_of(query.parts), Partition(query).salt
    for begin in range(0, next(iter(tables.values())).num_rows, batch):
        told: list[Heard] = [({}, {}, []) for _ in range(query.parts)]
        for number, fed in enumerate(query.streams):
            piece = tables[fed.name].slice(begin, batch).combine_chunks()
            for out in Dealer(number, places, "t", fed.key, True, salt).run(iter(piece.to_batches())):
                for row in out.to_pylist():
                    mine, reached, counts = told[row["part"]]
                    batches = list(batches_of(row["rows"]))
                    if row["stream"] == number:
                        mine[fed.name] = pa.Table.from_batches(batches)
                    else:
                        reached[fed.name] = row["reached"]
                        counts.append((number, told_of(batches[0])))
        yield told


def in_parts(text: str, tables: Tables, fraction: float, parts: int) -> tuple[pa.Table, float]:
    """(the pairs that parts find together, the share of the exact cost that they spent)."""
    query = asked(text, tables, {"budget": nile.Budget(fraction=fraction)}, parts)
    made = [Partition(query, None, number) for number in range(parts)]
    found: list[pa.RecordBatch] = []
    for told in dealt(query, tables):
        for part, heard in zip(made, told, strict=True):
            found += part.take(*heard)
    for part in made:
        found += part.take({}, dict.fromkeys(tables, 10**16))
    worth = Worth.of_all([part.worth(0) for part in made])
    return pa.Table.from_batches(found, made[0].schema), worth.fraction


def binned(pairs: pa.Table, keys: int, window: str) -> tuple[Array, Array, Array]:
    """(bins by key, bins by age, weights) of pairs."""
    key = np.array([int(each[4:]) for each in pairs["k"].to_pylist()], np.int64) * BINS // keys
    age = np.abs(pairs["x"].to_numpy() - pairs["y"].to_numpy()) * 1e9 / parse_duration(window, where="bench")
    bins = np.minimum(age * BINS, BINS - 1).astype(np.int64)
    weight = pairs["_weight"].to_numpy() if "_weight" in pairs.column_names else np.ones(pairs.num_rows)
    return key, bins, weight


def histogram_errors(exact: pa.Table, pairs: pa.Table, keys: int, window: str) -> tuple[float, float]:
    """Hist-MSE by key and by age."""
    *true, _ = binned(exact, keys, window)
    *got, weight = binned(pairs, keys, window)
    found = [
        Histogram.weighed(np.bincount(one, minlength=BINS), other, weight).mse
        for one, other in zip(true, got, strict=True)
    ]
    return found[0] or 0.0, found[1] or 0.0


def busiest(text: str, tables: Tables, parts: int) -> float:
    """CPU seconds of the part that takes most, from state to state in each micro-batch, by a worker of its own."""
    query = asked(text, tables, {}, parts)
    states: list[bytes | None] = [None] * parts
    workers, spent = [Last() for _ in range(parts)], [0.0] * parts
    for told in dealt(query, tables, LARGER * BATCH):
        for number, heard in enumerate(told):
            began = time.process_time()
            part = workers[number].take(text, query, number, states[number])
            for _ in part.take(*heard):
                pass
            states[number] = state = part.capture()
            workers[number].leave(text, number, state, part)
            spent[number] += time.process_time() - began
    return max(spent)


def compared(keys: int, exponent: float, window: str, seeds: int) -> list[dict[str, Any]]:
    """Of every budget and number of parts, sums over seeds: pairs of `desc`, Hist-MSE of `weighted`, budget spent."""
    rows: dict[tuple[float, int], dict[str, Any]] = {
        (fraction, parts): {"budget": fraction, "parts": parts, "one": 0, "found": 0, "spent": 0.0,
                            "one_mse": np.zeros(2), "mse": np.zeros(2)}
        for fraction in FRACTIONS for parts in PARTS
    }  # fmt: skip
    desc, weighted = (_TEXT.format(f"WITH PREFERENCE {each} a.k", window) for each in ("desc", "weighted"))
    for seed in range(seeds):
        tables = streams(keys, exponent, seed=seed)
        exact = one(_TEXT.format("", window), tables, None)
        for fraction in FRACTIONS:
            alone, drawn = one(desc, tables, fraction), one(weighted, tables, fraction)
            for parts in PARTS:
                row = rows[fraction, parts]
                found, spent = in_parts(desc, tables, fraction, parts)
                sampled, _ = in_parts(weighted, tables, fraction, parts)
                row["one"] += alone.num_rows
                row["found"] += found.num_rows
                row["spent"] += spent / seeds
                row["one_mse"] += histogram_errors(exact, drawn, keys, window)
                row["mse"] += histogram_errors(exact, sampled, keys, window)
    return list(rows.values())


@benchmark("standing-parts", TITLE, brief=lambda: replace(measure(BRIEFLY), brief=True))
def standing_parts() -> Result:
    """Every kind of keys, budget and number of parts, over several pairs of streams: about five minutes."""
    return measure(SEEDS)


def measure(seeds: int) -> Result:
    """Over so many pairs of streams."""
    measures, notes, rows = [], [], []
    for kind, (keys, exponent, window) in _KEYS.items():
        told = compared(keys, exponent, window, seeds)
        ratios = [row["found"] / row["one"] for row in told]
        for row in told:
            key, age = row["mse"] / row["one_mse"]
            notes.append(
                f"{kind}, budget {row['budget']:g}, {row['parts']} parts: {row['found']:,} of {row['one']:,} pairs, "
                f"{row['spent']:.3f} spent; Hist-MSE of weighted {key:.3f} by key, {age:.3f} by age"
            )
            rows.append({"keys": kind, **row, "one_mse": row["one_mse"].tolist(), "mse": row["mse"].tolist()})
        least, most = min(ratios), max(ratios)
        measures.append(
            Measure(
                f"{kind}: pairs that parts find over those of one, the least",
                least,
                "",
                FOUND_BAR,
                low=least,
                high=most,
            )
        )
        for at, by in enumerate(("key", "age")):
            errors = [float(row["mse"][at] / row["one_mse"][at]) for row in told]
            measures.append(
                Measure.of(f"{kind}: Hist-MSE by {by} of parts over that of one", errors, "", MSE_BAR, most=True)
            )
        exact, many = _TEXT.format("", window), streams(keys, exponent, LARGER)
        busiest(exact, many, 2)  # compiles
        shared = [busiest(exact, many, 1) / busiest(exact, many, 2) for _ in range(ROUNDS)]
        bar = None if exponent else DIVIDED_BAR  # of a key that most pairs have, one part must do most
        measures.append(Measure.of(f"{kind}: CPU of one part over the busier of two, exact join", shared, "", bar))
    return Result("standing-parts", TITLE, "tuples", 2 * TUPLES, (), tuple(measures), tuple(notes), {}, tuple(rows))
