"""Standing joins WITH PREFERENCE inside a budget: as they come, what `sql` finds over the same tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile

SECOND = 10**9
KINDS = ("desc", "asc", "weighted")
GUIDES = ("countsketch", "directory")


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


def text(kind: str, window: int = 60, where: str = "") -> str:
    return (
        f"SELECT a.seq AS l, b.seq AS r, a.item, b.price FROM a, b WHERE a.item = b.item {where} "
        f"WITH PREFERENCE {kind} a.item WINDOW '{window} s'"
    )


def opened(*tables: pa.Table) -> nile.Database:
    db = nile.connect()
    for name, table in zip("ab", tables, strict=True):
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
    query: str, a: pa.Table, b: pa.Table, *, seed: int = 0, most: int = 200, **options: Any
) -> tuple[pa.Table, nile.ApproximateSubscription, nile.Result]:
    """(rows found live, the standing query once closed, the answer over what is kept)."""
    db = opened(a, b)
    standing = db.subscribe(query, **options)
    assert isinstance(standing, nile.ApproximateSubscription)
    push_all(db, {"a": a, "b": b}, seed, most)
    standing.close()
    return pa.Table.from_batches(standing.poll(), standing.schema), standing, db.sql(query, **options)


def check_alike(found: pa.Table, standing: nile.ApproximateSubscription, answer: nile.Result) -> None:
    """The same rows, weights, figures and accounts."""
    assert found.combine_chunks() == answer.to_arrow().combine_chunks()
    assert standing.figures == answer.answer.figures
    assert standing.budget == answer.budget
    assert standing.accounting == answer.accounting
    assert standing.coverage == answer.coverage
    assert standing.outputs == found.num_rows


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_standing_join_finds_bit_for_bit_what_sql_finds(kind: str, guide: str, output: str) -> None:
    a, b = sales(1, 1_500), sales(2, 1_500)
    for budget in (0.05, 0.3):
        found, standing, answer = as_it_comes(text(kind), a, b, budget=budget, guide=guide, output=output)
        assert found.num_rows or kind == "asc"
        check_alike(found, standing, answer)
        for told in standing.accounting.values():
            told.check()


@settings(max_examples=20)
@given(
    seed=some.integers(0, 2**32),
    sizes=some.tuples(some.integers(0, 900), some.integers(0, 900)),
    keys=some.sampled_from((1, 5, 60, 3_000)),
    window=some.sampled_from((1, 30, 500)),
    budget=some.sampled_from((0.02, 0.1, 0.5, 1.0, 2.0)),
    kind=some.sampled_from(KINDS),
    guide=some.sampled_from(("countsketch", "directory", "auto")),
    output=some.sampled_from(("pairs", "ranges")),
    most=some.sampled_from((1, 40, 2_000)),
)
def test_whatever_the_streams_and_the_pushes(
    seed: int, sizes: tuple[int, int], keys: int, window: int, budget: float, kind: str, guide: str, output: str,
    most: int,
) -> None:  # fmt: skip
    sizes = (min(sizes[0], 60), min(sizes[1], 60)) if most == 1 else sizes
    a, b = sales(seed, sizes[0], keys=keys), sales(seed + 1, sizes[1], keys=keys)
    found, standing, answer = as_it_comes(
        text(kind, window), a, b, seed=seed, most=most, budget=budget, guide=guide, output=output
    )
    check_alike(found, standing, answer)


def test_memory_follows_the_window_and_not_the_stream() -> None:
    """Every tuple has a key of its own, so keys must be let go of as tuples are."""
    held = []
    for n in (8_000, 32_000):
        fresh = pa.array([f"{k:020d}" for k in range(n)])
        a = sales(3, n, nulls=0.0).set_column(1, "item", fresh)
        db = opened(a, a)
        standing = db.subscribe(text("desc", 600), budget=0.5, guide="directory")
        most = 0
        for at in range(0, n, 500):
            db.push("a", a.slice(at, 500))
            db.push("b", a.slice(at, 500))
            most = max(most, standing.memory)
        held.append(most)
        standing.close()
        assert standing.outputs > n // 10
    assert held[1] <= 1.2 * held[0]
