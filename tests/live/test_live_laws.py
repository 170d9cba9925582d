"""Laws of standing joins WITH PREFERENCE inside a budget, of two and of three streams, by every guide.

As they come they find what `sql` finds over the same tuples; stopped and restored they go on as if never stopped.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from thinning import thinned
from workload_live import (
    GUIDES,
    KINDS,
    as_it_comes,
    by_duckdb,
    by_levels,
    check_alike,
    gone_on,
    members,
    opened,
    push_all,
    sales,
    tables_of,
    text,
)

import nile
from nile.execution.envelopes import flat, of, packed
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query

STREAMS = (2, 3)


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_standing_join_finds_bit_for_bit_what_sql_finds(streams: int, kind: str, guide: str, output: str) -> None:
    tables = tables_of(1, (1_500, 1_500)) if streams == 2 else tables_of(1, (900, 900, 900), keys=120)
    for budget in (0.05, 0.3) if streams == 2 else (0.1, 0.4):
        found, standing, answer = as_it_comes(text(kind, streams), tables, budget=budget, guide=guide, output=output)
        assert found.num_rows or kind == "asc"
        check_alike(found, standing, answer)
        for told in standing.accounting.values():
            told.check()


@settings(max_examples=30)
@given(
    seed=some.integers(0, 2**32),
    sizes=some.lists(some.integers(0, 900), min_size=2, max_size=4),
    keys=some.sampled_from((1, 5, 60, 3_000)),
    window=some.sampled_from((1, 30, 200, 500)),
    budget=some.sampled_from((0.02, 0.1, 0.5, 1.0, 2.0)),
    kind=some.sampled_from(KINDS),
    guide=some.sampled_from(("countsketch", "directory", "auto")),
    output=some.sampled_from(("pairs", "ranges")),
    most=some.sampled_from((1, 40, 2_000)),
)
def test_whatever_the_streams_and_the_pushes(
    seed: int, sizes: list[int], keys: int, window: int, budget: float, kind: str, guide: str, output: str, most: int
) -> None:
    """Few tuples where they come one by one, and where most combinations meet."""
    few = {1: 30, 5: 100}.get(keys, 300) // max(1, len(sizes) - 2)
    limit = 3 * few if len(sizes) == 2 else few
    limit = min(limit, 120 // len(sizes)) if most == 1 else limit
    tables = tables_of(seed, tuple(min(n, limit) for n in sizes), keys=keys)
    query, options = text(kind, len(sizes), window), {"guide": guide, "output": output, "outlier_cap": 6}
    found, standing, answer = as_it_comes(query, tables, seed=seed, most=most, budget=budget, **options)
    check_alike(found, standing, answer)
    for told in standing.accounting.values():
        told.check()
    truth = by_duckdb(tables, window)
    got = members(found, len(sizes))
    assert len(got) == len(set(got))
    assert set(got) <= set(truth)
    if budget >= 1.0 and kind != "asc":
        assert sorted(got) == truth
        assert standing.estimate.value == len(truth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("streams", STREAMS)
def test_keys_that_come_and_go_are_let_go_of_and_known_again(streams: int, kind: str, guide: str) -> None:
    """More keys than are ever held at once, so that codes are given anew, at times that depend on the pushes."""
    rng = np.random.default_rng(9)
    n, early, tables = {2: 7_000, 3: 6_000}[streams], {2: 5_000, 3: 4_000}[streams], {}
    query = text(kind, streams, {2: 200, 3: 120}[streams])
    for seed, name in enumerate("abc"[:streams]):
        item = np.arange(n) // 2 + (300 * rng.random(n) ** 2).astype(int)
        item[rng.random(n) < 0.1] %= 50  # some stay
        tables[name] = sales(seed, n).set_column(1, "item", pa.array([f"i{k}" for k in item]))
    found, standing, answer = as_it_comes(query, tables, most=900, budget=0.3, guide=guide)
    check_alike(found, standing, answer)
    join: Any = standing._join
    assert (join.known if streams == 2 else join.table.known) < 5_000
    fine, coarse = opened(tables), opened(tables)
    again, other = (db.subscribe(query, budget=0.3, guide=guide) for db in (fine, coarse))
    first = {name: table.slice(0, early) for name, table in tables.items()}
    push_all(fine, first, 4, 300)
    push_all(coarse, first, 5, 5_000)
    assert packed("x", again.capture()["join"]) == packed("x", other.capture()["join"])
    again = gone_on(fine, again, query, budget=0.3, guide=guide)
    push_all(fine, {name: table.slice(early) for name, table in tables.items()}, 6, 300)
    again.close()
    assert pa.Table.from_batches(again.poll()).combine_chunks() == found.combine_chunks()


@pytest.mark.parametrize("streams", STREAMS)
def test_memory_follows_the_window_and_not_the_stream(streams: int) -> None:
    """Every tuple has a key of its own, so keys must be let go of as tuples are."""
    held = []
    for n in {2: (8_000, 32_000), 3: (6_000, 24_000)}[streams]:
        one = sales(3, n, nulls=0.0).set_column(1, "item", pa.array([f"{k:020d}" for k in range(n)]))
        names = "abc"[:streams]
        db = opened(dict.fromkeys(names, one))
        standing = db.subscribe(text("desc", streams, 600), budget=0.5, guide="directory")
        most = 0
        for at in range(0, n, 500):
            for name in names:
                db.push(name, one.slice(at, 500))
            most = max(most, standing.memory)
        held.append(most)
        standing.close()
        assert standing.outputs > n // 10
    assert held[1] <= 1.2 * held[0]


@pytest.mark.parametrize(
    ("streams", "kind", "guide", "output"), thinned(itertools.product(STREAMS, KINDS, GUIDES, ["pairs", "ranges"]), 3)
)
def test_stopped_at_random_points_it_does_as_if_it_never_had(streams: int, kind: str, guide: str, output: str) -> None:
    """10 stops of each kind, guide and output: the same bytes as of one that never stopped, cut differently."""
    seed = 100 * KINDS.index(kind) + 10 * GUIDES.index(guide) + len(output)
    rng = np.random.default_rng(seed)
    n = {2: 400, 3: 300}[streams]
    query = text(kind, streams, int(rng.choice([20, 60, {2: 400, 3: 200}[streams]])))
    tables = tables_of(seed, (n,) * streams, keys=60)
    options: dict[str, Any] = {"budget": float(rng.choice([0.1, 0.4])), "guide": guide, "output": output}
    whole, cut = opened(tables), opened(tables)
    never, stopped = whole.subscribe(query, **options), cut.subscribe(query, **options)
    for turn in range(10):
        for name in tables:
            part = tables[name].slice(turn * n // 10, n // 10)
            middle = int(rng.integers(0, len(part)))
            whole.push(name, part)
            cut.push(name, part.slice(0, middle))
            cut.push(name, part.slice(middle))
        assert packed("x", never.capture()) == packed("x", stopped.capture())
        stopped = gone_on(cut, stopped, query, **options)
    stopped.close()
    answer = by_levels(cut, query, **options)
    check_alike(pa.Table.from_batches(stopped.poll(), stopped.schema), stopped, answer)
    wanted, told = answer.answer.estimate, stopped.estimate
    assert np.isclose(told.value, wanted.value, rtol=1e-9)
    # A live one does not keep who shares a coin with whom, so that it may claim less.
    assert told.low <= wanted.low * (1.0 + 1e-9)
    assert told.high >= wanted.high * (1.0 - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_store_keeps_a_named_one_and_what_nobody_has_read(streams: int, kind: str, tmp_path: Path) -> None:
    n = {2: 600, 3: 450}[streams]
    tables = tables_of(21, (n,) * streams)
    options: dict[str, Any] = {"budget": 0.15, "guide": "directory", "outlier_cap": 6, "granularity": "20 s"}
    query, whole = text(kind, streams), opened(tables)
    never = whole.subscribe(query, **options)
    numbered = []
    for turn in range(3):
        with nile.connect(tmp_path) as db:
            for name, table in tables.items():
                db.stream(name, table.schema, time="at")
            standing = db.subscribe(query, name="best", **options)
            assert standing is db.subscription("best")
            for name, table in tables.items():
                part = table.slice(n // 3 * turn, n // 3)
                db.push(name, part)
                whole.push(name, part)
            if turn != 1:
                numbered += standing.poll_numbered()
            assert packed("x", standing.capture()["join"]) == packed("x", never.capture()["join"])
            with pytest.raises(nile.ConfigError, match="or other options"):
                db.subscribe(query, name="best", **{**options, "budget": 0.16})
    found = pa.Table.from_batches([batch for _, batch in numbered], never.schema)
    assert found.combine_chunks() == pa.Table.from_batches(never.poll(), never.schema).combine_chunks()
    assert [first for first, _ in numbered] == np.cumsum([0, *(len(batch) for _, batch in numbered)])[:-1].tolist()


@pytest.mark.parametrize(("streams", "kind", "guide"), thinned(itertools.product(STREAMS, KINDS, GUIDES), 3))
def test_a_state_that_was_altered_is_refused_or_harmless(streams: int, kind: str, guide: str) -> None:
    """Whatever stands in the arrays: an EnvelopeError, or a query that goes on without reaching outside of them."""
    rng = np.random.default_rng(7)
    tables, query = tables_of(11, (300,) * streams), text(kind, streams)
    options: dict[str, Any] = {"budget": 0.2, "guide": guide}
    db = opened(tables)
    standing = db.subscribe(query, **options)
    push_all(db, {name: table.slice(0, 250) for name, table in tables.items()}, 3, 60)
    params, arrays = flat(standing.capture())
    names = sorted(name for name, array in arrays.items() if array.size)
    refused = 0
    for trial in range(60):
        name = names[trial % len(names)]
        altered = {**arrays, name: arrays[name].copy()}
        at = int(rng.integers(altered[name].size))
        altered[name].reshape(-1)[at] = rng.choice([-1, 1 << 40, 7]) if altered[name].itemsize == 8 else 77
        fresh = opened(tables)
        try:
            made = ApproximateSubscription(
                fresh._names, read_query(query, fresh._names), Options.of(options), fresh._live.streams(),
                fresh._live.commits, None, of(params, altered),
            )  # fmt: skip
        except nile.EnvelopeError:
            refused += 1
            continue
        push_all(fresh, {name: table.slice(250) for name, table in tables.items()}, 3, 60)
        made.close()
        made.poll()
    assert refused > 20
