"""Standing joins WITH PREFERENCE over live streams: statements, pushes, and what they must equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from judge import fresh_duckdb

import nile
from nile.execution.envelopes import content, packed
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.join.follower import Follower, expect, is_followed
from nile.preferences.state import Clocked, State
from nile.summaries.envelope import unpack

SECOND = 10**9
KINDS = ("desc", "asc", "weighted")
GUIDES = ("countsketch", "directory")
NAMES = "abcd"
Tables = dict[str, pa.Table]


def sales(seed: int, n: int, *, keys: int = 40, gap: int = 2, nulls: float = 0.05) -> pa.Table:
    """Skewed items, some null; gaps of 0 to `gap` seconds, so that tuples share instants."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.integers(0, gap + 1, n)) * SECOND
    item = (keys * rng.random(n) ** 2).astype(int)
    missing = rng.random(n) < nulls
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("ns")),
            "item": pa.array([None if gone else f"i{k}" for k, gone in zip(item, missing, strict=True)], pa.string()),
            "seq": pa.array(np.arange(n)),
            "price": pa.array(rng.integers(1, 9, n)),
        }
    )


def tables_of(seed: int, sizes: tuple[int, ...], **options: Any) -> Tables:
    return {name: sales(seed + k, n, **options) for k, (name, n) in enumerate(zip(NAMES, sizes, strict=False))}


def text(kind: str, streams: int = 3, window: int = 60, where: str = "") -> str:
    names = NAMES[:streams]
    columns = ", ".join(f"{name}.seq AS {name}" for name in names)
    equal = " AND ".join(f"a.item = {name}.item" for name in names[1:])
    return f"SELECT {columns}, a.item FROM {', '.join(names)} WHERE {equal} {where} " + preferred(kind, window)


def preferred(kind: str, window: int) -> str:
    return f"WITH PREFERENCE {kind} a.item WINDOW '{window} s'"


def opened(tables: Tables) -> nile.Database:
    db = nile.connect()
    for name, table in tables.items():
        db.stream(name, table.schema, time="at")
    return db


def push_all(db: nile.Database, tables: dict[str, pa.Table], seed: int, most: int) -> None:
    """Push all rows, the streams in turn, in pieces of random length: each stream at its own pace."""
    rng = np.random.default_rng(seed)
    at = dict.fromkeys(tables, 0)
    while left := [name for name, table in tables.items() if at[name] < len(table)]:
        name = left[int(rng.integers(len(left)))]
        n = int(rng.integers(1, most + 1))
        db.push(name, tables[name].slice(at[name], n))
        at[name] += n


def as_it_comes(
    query: str, tables: Tables, *, seed: int = 0, most: int = 200, **options: Any
) -> tuple[pa.Table, nile.ApproximateSubscription, nile.Result]:
    """(rows found live, the standing query once closed, the answer over what is kept)."""
    db = opened(tables)
    standing = db.subscribe(query, **options)
    assert isinstance(standing, nile.ApproximateSubscription)
    push_all(db, tables, seed, most)
    standing.close()
    return pa.Table.from_batches(standing.poll(), standing.schema), standing, by_levels(db, query, **options)


@contextmanager
def as_tuples_come() -> Iterator[None]:
    """Joins run by the method of those that run as tuples come, though their input is there whole.

    Keys of whole streams are counted before the first tuple (desc, asc), which a live join cannot do.  Weighted pairs
    over whole streams are sampled at rates planned from all of the input, which a live join has not; of n streams, at
    rates that begin with the mean of all of it, or that stay as planned (ranges).  A budget of everything buys the
    exact join there, which tells the pairs of one arrival from its newest partner back.
    """

    def made(plan: JoinPlan, data: JoinInput, state: State, *_: object) -> Follower:
        follower = Follower(plan)
        expect(state, 1, None)
        for side, ts in enumerate((data.left_ts, data.right_ts)):
            follower.put_thinned(side, np.zeros(ts.shape[0]))
        return follower

    def unaware(state: Clocked, others: int, _: float | None) -> None:
        expect(state, others, None)

    where = "nile.operators.join.join"
    with (
        patch(f"{where}.is_sampled", is_followed), patch(f"{where}.Sampler", made),
        patch(f"{where}.is_planned", lambda *_: False),
        patch("nile.answers.join_answer.is_chain_join", lambda _: False),
        patch("nile.answers.join_answer.is_outlier_join", lambda _: False),
        patch("nile.answers.multiway_answer.is_chain_join", lambda _: False),
        patch("nile.operators.multiway.multiway.expect", unaware),
        patch("nile.operators.multiway.multiway.draws_ranges", lambda _: False),
        patch("nile.operators.multiway.multiway.plan_rates", lambda state, *_, **__: state),
    ):  # fmt: skip
        yield


def by_levels(db: nile.Database, query: str, **options: Any) -> nile.Result:
    """The answer over what is kept, by the method of joins that run as tuples come."""
    with as_tuples_come():
        answer = db.sql(query, **options)
        answer.to_arrow()
    return answer


def check_alike(found: pa.Table, standing: nile.ApproximateSubscription, answer: nile.Result) -> None:
    """The same rows, weights, figures and accounts."""
    assert found.combine_chunks() == answer.to_arrow().combine_chunks()
    assert standing.figures == answer.answer.figures
    assert standing.budget == answer.budget
    assert standing.accounting == answer.accounting
    assert standing.coverage == answer.coverage
    assert standing.outputs == found.num_rows


def gone_on(db: nile.Database, standing: Any, query: str, **options: Any) -> Any:
    """The standing query taken out as bytes and made anew from them; again the same bytes."""
    raw = packed("standing query", standing.capture())
    standing.detach()
    state = content(unpack(raw))
    names, live = db._names, db._live
    made = ApproximateSubscription(
        names, read_query(query, names), Options.of(options), live.streams(), live.commits, None, state
    )
    live.standing.add(made)
    assert packed("standing query", made.capture()) == raw
    return made


def by_duckdb(tables: Tables, window: int, where: str = "") -> list[tuple[int, ...]]:
    """The exact answer by DuckDB: every two members within the window of each other."""
    names = list(tables)
    pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
    close = " AND ".join(f"abs(epoch_ns({x}.at) - epoch_ns({y}.at)) <= {window * SECOND}" for x, y in pairs)
    equal = " AND ".join(f"a.item = {name}.item" for name in names[1:])
    with fresh_duckdb() as duck:
        for name, table in tables.items():
            duck.register(name, table)
        columns = ", ".join(f"{name}.seq" for name in names)
        return sorted(
            duck.sql(f"SELECT {columns} FROM {', '.join(names)} WHERE {equal} AND {close} {where}").fetchall()
        )


def members(found: pa.Table, streams: int) -> list[tuple[int, ...]]:
    return list(zip(*(found.column(name).to_pylist() for name in NAMES[:streams]), strict=True))
