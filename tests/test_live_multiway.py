"""Standing joins of n live streams WITH PREFERENCE inside a budget: as they come, what `sql` finds over the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from test_live_approximate import GUIDES, KINDS, check_alike, gone_on, push_all, sales

import nile
from nile.execution.held import flat, of, packed
from nile.execution.live.approximate import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.operators.drive import live_kernels
from nile.operators.drive.live_state import queue_of
from nile.preferences import queue_kernels

SECOND = 10**9
NAMES = "abcd"
Tables = dict[str, pa.Table]


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


def as_it_comes(
    query: str, tables: Tables, *, seed: int = 0, most: int = 200, **options: Any
) -> tuple[pa.Table, nile.ApproximateSubscription, nile.Result]:
    """(rows found live, the standing query once closed, the answer over what is kept)."""
    db = opened(tables)
    standing = db.subscribe(query, **options)
    assert isinstance(standing, nile.ApproximateSubscription)
    push_all(db, tables, seed, most)
    standing.close()
    return pa.Table.from_batches(standing.poll(), standing.schema), standing, db.sql(query, **options)


def by_duckdb(tables: Tables, window: int, where: str = "") -> list[tuple[int, ...]]:
    """The exact answer by DuckDB: every two members within the window of each other."""
    import duckdb

    names = list(tables)
    pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
    close = " AND ".join(f"abs(epoch_ns({x}.at) - epoch_ns({y}.at)) <= {window * SECOND}" for x, y in pairs)
    equal = " AND ".join(f"a.item = {name}.item" for name in names[1:])
    with duckdb.connect() as duck:
        for name, table in tables.items():
            duck.register(name, table)
        columns = ", ".join(f"{name}.seq" for name in names)
        return sorted(
            duck.sql(f"SELECT {columns} FROM {', '.join(names)} WHERE {equal} AND {close} {where}").fetchall()
        )


def members(found: pa.Table, streams: int) -> list[tuple[int, ...]]:
    return list(zip(*(found.column(name).to_pylist() for name in NAMES[:streams]), strict=True))


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_standing_join_of_three_finds_bit_for_bit_what_sql_finds(kind: str, guide: str, output: str) -> None:
    tables = tables_of(1, (900, 900, 900), keys=120)
    for budget in (0.1, 0.4):
        found, standing, answer = as_it_comes(text(kind), tables, budget=budget, guide=guide, output=output)
        assert found.num_rows or kind == "asc"
        check_alike(found, standing, answer)


@settings(max_examples=20)
@given(
    seed=some.integers(0, 2**32),
    sizes=some.lists(some.integers(0, 300), min_size=3, max_size=4),
    keys=some.sampled_from((5, 60, 3_000)),
    window=some.sampled_from((1, 30, 200)),
    budget=some.sampled_from((0.02, 0.1, 0.5, 1.0, 2.0)),
    kind=some.sampled_from(KINDS),
    guide=some.sampled_from(("countsketch", "directory", "auto")),
    output=some.sampled_from(("pairs", "ranges")),
    most=some.sampled_from((1, 40, 2_000)),
)
def test_whatever_the_streams_and_the_pushes(
    seed: int, sizes: list[int], keys: int, window: int, budget: float, kind: str, guide: str, output: str, most: int
) -> None:
    limit = 30 if most == 1 else 100 if keys == 5 else 300
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


@pytest.mark.parametrize("streams", [2, 3])
def test_under_a_condition_on_the_combination_the_whole_budget_gives_what_duckdb_gives(streams: int) -> None:
    tables = tables_of(5, (400,) * streams, keys=30)
    where = f"AND a.price < {NAMES[streams - 1]}.price AND b.price > 2"
    for most in (1, 90, 1_000):
        query = text("desc", streams, 100, where)
        found, standing, answer = as_it_comes(query, tables, most=most, budget=1.0)
        check_alike(found, standing, answer)
        assert sorted(members(found, streams)) == by_duckdb(tables, 100, where)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guide", GUIDES)
def test_keys_that_come_and_go_are_let_go_of_and_known_again(kind: str, guide: str) -> None:
    rng = np.random.default_rng(9)
    n, tables = 6_000, {}
    for seed, name in enumerate("abc"):
        item = np.arange(n) // 2 + (300 * rng.random(n) ** 2).astype(int)
        item[rng.random(n) < 0.1] %= 50  # some stay
        tables[name] = sales(seed, n).set_column(1, "item", pa.array([f"i{k}" for k in item]))
    found, standing, answer = as_it_comes(text(kind, 3, 120), tables, most=900, budget=0.3, guide=guide)
    check_alike(found, standing, answer)
    assert standing._join.table.known < 5_000
    fine, coarse = opened(tables), opened(tables)
    again, other = (db.subscribe(text(kind, 3, 120), budget=0.3, guide=guide) for db in (fine, coarse))
    first = {name: table.slice(0, 4_000) for name, table in tables.items()}
    push_all(fine, first, 4, 300)
    push_all(coarse, first, 5, 5_000)
    assert packed("x", again.capture()["join"]) == packed("x", other.capture()["join"])
    again = gone_on(fine, again, text(kind, 3, 120), budget=0.3, guide=guide)
    push_all(fine, {name: table.slice(4_000) for name, table in tables.items()}, 6, 300)
    again.close()
    assert pa.Table.from_batches(again.poll()).combine_chunks() == found.combine_chunks()


def test_memory_follows_the_window_and_not_the_stream() -> None:
    held = []
    for n in (6_000, 24_000):
        one = sales(3, n, nulls=0.0).set_column(1, "item", pa.array([f"{k:020d}" for k in range(n)]))
        db = opened(dict.fromkeys("abc", one))
        standing = db.subscribe(text("desc", 3, 600), budget=0.5, guide="directory")
        most = 0
        for at in range(0, n, 500):
            for name in "abc":
                db.push(name, one.slice(at, 500))
            most = max(most, standing.memory)
        held.append(most)
        standing.close()
        assert standing.outputs > n // 10
    assert held[1] <= 1.2 * held[0]


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_at_random_points_it_does_as_if_it_never_had(kind: str, guide: str, output: str) -> None:
    seed = 100 * KINDS.index(kind) + 10 * GUIDES.index(guide) + len(output)
    rng = np.random.default_rng(seed)
    n, query = 300, text(kind, 3, int(rng.choice([20, 60, 200])))
    tables = tables_of(seed, (n, n, n), keys=60)
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
    answer = cut.sql(query, **options)
    check_alike(pa.Table.from_batches(stopped.poll(), stopped.schema), stopped, answer)
    wanted, told = answer.answer.estimate, stopped.estimate
    assert np.allclose((told.value, told.low, told.high), (wanted.value, wanted.low, wanted.high), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_keeps_a_named_one_and_what_nobody_has_read(kind: str, tmp_path: Path) -> None:
    tables = tables_of(21, (450, 450, 450))
    options: dict[str, Any] = {"budget": 0.15, "guide": "directory", "outlier_cap": 6, "granularity": "20 s"}
    whole = opened(tables)
    never = whole.subscribe(text(kind), **options)
    numbered = []
    for turn in range(3):
        with nile.connect(tmp_path) as db:
            for name, table in tables.items():
                db.stream(name, table.schema, time="at")
            standing = db.subscribe(text(kind), name="best", **options)
            for name, table in tables.items():
                part = table.slice(150 * turn, 150)
                db.push(name, part)
                whole.push(name, part)
            if turn != 1:
                numbered += standing.poll_numbered()
            assert packed("x", standing.capture()["join"]) == packed("x", never.capture()["join"])
    found = pa.Table.from_batches([batch for _, batch in numbered], never.schema)
    assert found.combine_chunks() == pa.Table.from_batches(never.poll(), never.schema).combine_chunks()


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_altered_is_refused_or_harmless(kind: str, guide: str) -> None:
    rng = np.random.default_rng(7)
    tables = tables_of(11, (300, 300, 300))
    options: dict[str, Any] = {"budget": 0.2, "guide": guide}
    db = opened(tables)
    standing = db.subscribe(text(kind), **options)
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
                fresh._names, read_query(text(kind), fresh._names), Options.of(options), fresh._live.streams(),
                fresh._live._commits, None, of(params, altered),
            )  # fmt: skip
        except nile.EnvelopeError:
            refused += 1
            continue
        push_all(fresh, {name: table.slice(250) for name, table in tables.items()}, 3, 60)
        made.close()
        made.poll()
    assert refused > 20


@pytest.mark.parametrize("where", ["", "AND a.price < c.price"])
def test_budgets_by_the_clock_buy_combinations_of_the_exact_answer(where: str) -> None:
    tables = tables_of(31, (1_200, 1_200, 1_200), keys=300)
    query, truth = text("desc", 3, 100, where), set(by_duckdb(tables, 100, where))
    for budget in (nile.Budget(seconds_per_tuple=1e-9), nile.Budget(seconds_per_tuple=1.0), nile.Budget(share=0.9)):
        db = opened(tables)
        standing = db.subscribe(query, budget=budget)
        push_all(db, {name: table.slice(0, 600) for name, table in tables.items()}, 1, 500)
        standing = gone_on(db, standing, query, budget=budget)
        push_all(db, {name: table.slice(600) for name, table in tables.items()}, 1, 500)
        standing.close()
        got = members(pa.Table.from_batches(standing.poll(), standing.schema), 3)
        assert len(set(got)) == len(got)
        assert set(got) <= truth
        assert standing.budget.unit == budget.unit
        assert standing.budget.spent > 0.0
        for told in standing.accounting.values():
            told.check()
        if budget.amount == 1.0:
            assert set(got) == truth


@pytest.mark.parametrize("entries", [0, 1, 4_096, 4_097, 20_000])
def test_a_queue_that_is_put_back_has_every_entry_in_its_place(entries: int) -> None:
    entry = np.zeros((entries, queue_kernels.ENTRY_FIELDS), np.int64)
    entry[:, queue_kernels.CLASS] = np.sort(np.arange(entries) % queue_kernels.CLASSES)
    entry[:, queue_kernels.TIME] = np.arange(entries)
    queue, place = queue_of(entry, np.ones((entries, queue_kernels.REAL_FIELDS)))
    again = np.empty(entries, np.int64)
    live_kernels.places(queue, again)
    assert queue.control[queue_kernels.SIZE] == entries
    assert np.array_equal(again, place)
    assert np.array_equal(queue.entry[place, queue_kernels.TIME], np.arange(entries))


def test_a_stream_joined_with_itself_and_another() -> None:
    tables = tables_of(41, (500, 500))
    query = (
        "SELECT x.seq AS l, y.seq AS r, b.seq AS m FROM a x, a y, b WHERE x.item = y.item AND y.item = b.item "
        "AND x.price > 3 WITH PREFERENCE weighted x.item WINDOW '1 min'"
    )
    check_alike(*as_it_comes(query, tables, budget=0.3))


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (text("desc", where="AND a.price < b.price"), {"budget": 0.2}, "only a look at every candidate tells"),
        (text("desc"), {"budget": 0.2, "method": "hash-drop"}, "needed method 'nile'"),
        (text("desc"), {"budget": nile.Budget(outputs=5)}, "for as long as tuples come"),
    ],
)
def test_what_has_no_live_form_is_refused(query: str, options: dict[str, Any], message: str) -> None:
    with opened(tables_of(1, (2, 2, 2))) as db, pytest.raises(nile.NotYet, match=message):
        db.subscribe(query, **options)
