"""Standing joins of n live streams WITH PREFERENCE inside a budget: as they come, what `sql` finds over the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from workload_live import (
    NAMES,
    as_it_comes,
    by_duckdb,
    check_alike,
    gone_on,
    members,
    opened,
    push_all,
    tables_of,
    text,
)

import nile
from nile.operators.drive import live_kernels
from nile.operators.drive.live_state import queue_of
from nile.preferences import queue_kernels

SECOND = 10**9


@pytest.mark.parametrize("streams", [2, 3])
def test_under_a_condition_on_the_combination_the_whole_budget_gives_what_duckdb_gives(streams: int) -> None:
    tables = tables_of(5, (400,) * streams, keys=30)
    where = f"AND a.price < {NAMES[streams - 1]}.price AND b.price > 2"
    for most in (1, 90, 1_000):
        query = text("desc", streams, 100, where)
        found, standing, answer = as_it_comes(query, tables, most=most, budget=1.0)
        check_alike(found, standing, answer)
        assert sorted(members(found, streams)) == by_duckdb(tables, 100, where)


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


@pytest.mark.parametrize("streams", [2, 3])
def test_with_time_to_spare_asc_misses_no_outlier_of_keys_that_were_frequent(streams: int) -> None:
    tables = tables_of(61, (3_000,) * streams, keys=100)
    query = text("asc", streams, 20, "AND a.price < b.price")
    found = {}
    for budget in (1.0, nile.Budget(seconds_per_tuple=1.0)):
        db = opened(tables)
        standing = db.subscribe(query, budget=budget)
        push_all(db, tables, 3, 500)
        standing.close()
        found[budget] = sorted(members(pa.Table.from_batches(standing.poll(), standing.schema), streams))
    assert len(found[1.0]) > 100
    assert found[nile.Budget(seconds_per_tuple=1.0)] == found[1.0]


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
        (text("desc"), {"budget": 0.2, "method": "hash-drop"}, "needed method 'nile'"),
        (text("desc"), {"budget": nile.Budget(outputs=5)}, "for as long as tuples come"),
    ],
)
def test_what_has_no_live_form_is_refused(query: str, options: dict[str, Any], message: str) -> None:
    with opened(tables_of(1, (2, 2, 2))) as db, pytest.raises(nile.NotYet, match=message):
        db.subscribe(query, **options)
