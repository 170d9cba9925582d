"""Joins inside a budget over sources that have to be waited for: as they come, what they would be over tables."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nile
from nile.streams import abreast
from nile.streams.abreast import Abreast, Ahead

TEXT = "SELECT a.item, b.item AS j, a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE {} a.k WINDOW 20 BUDGET {} %"


def table(seed: int, rows: int = 240) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"ts": np.sort(rng.integers(0, 300, rows)) / 1.0, "k": rng.integers(0, 9, rows),
                     "item": np.arange(rows)})  # fmt: skip


def apart(table: pa.Table, gap: float = 0.055, rows: int = 80) -> Iterator[pa.Table]:
    for begin in range(0, table.num_rows, rows):
        time.sleep(gap)
        yield table.slice(begin, rows)


def database(*waiting: str) -> Any:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        db.register(name, apart(table(seed)) if name in waiting else table(seed), time="ts")
    return db


@pytest.fixture
def counts_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """desc over tables goes as over streams that come, of which no key can be counted before the first tuple."""
    monkeypatch.setattr("nile.operators.join.join.is_planned", lambda plan, data: False)


@pytest.mark.usefixtures("counts_nothing_ahead")
@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("waiting", ["a", "b", "ab"])
def test_what_is_found_is_what_the_same_operator_finds_over_tables(preference: str, waiting: str) -> None:
    text = TEXT.format(preference, 30)
    expected = database().sql(text, costs="engine", outlier_cap=8)
    found = database(*waiting).sql(text, costs="engine", outlier_cap=8)
    assert found.to_arrow().equals(expected.to_arrow())
    assert found.to_arrow().num_rows > 0
    assert found.accounting == expected.accounting
    assert found.budget.spent == pytest.approx(expected.budget.spent)


@pytest.mark.usefixtures("counts_nothing_ahead")
@pytest.mark.parametrize("where", ["a.item > 20", "a.item % 2 = 0 AND b.item % 3 > 0"])
def test_conditions_on_one_stream_select_as_they_come(where: str) -> None:
    text = f"SELECT a.item, b.item AS j FROM a, b WHERE a.k = b.k AND {where} WITH PREFERENCE desc a.k WINDOW 20"
    expected, found = (db.sql(text, budget=0.4, costs="engine") for db in (database(), database("a", "b")))
    assert found.to_arrow().equals(expected.to_arrow())
    assert found.accounting == expected.accounting


@pytest.mark.usefixtures("counts_nothing_ahead")
def test_a_stream_that_is_named_twice_is_read_once() -> None:
    text = "SELECT x.item, y.item AS j FROM a AS x, a AS y WHERE x.k = y.k WITH PREFERENCE desc x.k WINDOW 20"
    expected, found = (db.sql(text, budget=0.4, costs="engine") for db in (database(), database("a")))
    assert found.to_arrow().equals(expected.to_arrow())


def test_a_sample_is_drawn_as_standing_queries_draw_it() -> None:
    found = database("a", "b").sql(TEXT.format("weighted", 30))
    live = nile.connect()
    for name in "ab":
        live.stream(name, table(0).schema, time="ts")
    standing = live.subscribe(TEXT.format("weighted", 30))
    for seed, name in enumerate("ab"):
        live.push(name, table(seed))
    live.advance(1_000.0)
    assert found.to_arrow().equals(pa.Table.from_batches(standing.poll()))
    assert found.estimate == standing.estimate


@pytest.mark.usefixtures("counts_nothing_ahead")
@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_answers_of_python_have_the_same_rows_and_tell_the_same(preference: str, budget: float) -> None:
    def asked(db: Any) -> Any:
        return db.join("a", "b", on="k", window=20).prefer(preference).using(costs="engine").run(budget)

    def rows(found: pa.Table) -> pa.Table:
        if budget < 1.0:
            return found
        # All are found by the exact join, which gives the pairs of an arrival from its newest partner back.
        arrival = pc.max_element_wise(found["left_ts"], found["right_ts"])
        assert arrival.equals(pc.take(arrival, pc.sort_indices(arrival)))
        return found.sort_by([("left_ordinal", "ascending"), ("right_ordinal", "ascending")])

    expected, found = asked(database()), asked(database("a", "b"))
    assert rows(pa.Table.from_batches(found.batches())).equals(rows(expected.to_arrow()))
    assert rows(found.to_arrow()).equals(rows(expected.to_arrow()))
    assert (found.estimate.value, found.estimate.low) == (expected.estimate.value, expected.estimate.low)
    assert found.estimate.high == expected.estimate.high or preference == "asc"  # what is whole is not known to be
    assert found.members().weight.sum() == expected.members().weight.sum()
    assert found.accounting == expected.accounting
    totals = {"n": "count(*)"}
    assert found.aggregate(totals).to_arrow().equals(expected.aggregate(totals).to_arrow())
    assert found.again(0.5).to_arrow().equals(expected.again(0.5).to_arrow())


def test_a_sample_that_came_as_it_was_read_carries_intervals() -> None:
    answer = database("a", "b").join("a", "b", on="k", window=20).prefer("weighted").run(0.5)
    exact = database().join("a", "b", on="k", window=20).run().estimate.value
    for told in (answer.estimate, answer.aggregate({"n": "count(*)"}).estimate("n")):
        assert told.low <= exact <= told.high


def test_all_tuples_can_be_asked_for_while_they_come() -> None:
    answer = database("a", "b").join("a", "b", on="k", window=20).prefer("desc").run(0.4)
    rows = [next(batches := answer.batches())]
    assert [len(one) for one in answer.streams] == [240, 240]
    rows += batches
    assert pa.Table.from_batches(rows).equals(answer.to_arrow())


def test_pairs_come_before_their_sources_give_more() -> None:
    """Both sources give an item only when the pairs of the one before have been read, which a join that reads on waits
    for in vain."""
    asked = [threading.Semaphore(2), threading.Semaphore(2)]
    found: queue.Queue[int | None] = queue.Queue()

    def given(which: int) -> Iterator[pa.Table]:
        for item in range(6):
            assert asked[which].acquire(timeout=60)
            time.sleep(0.06)
            at = [10.0 * item + row / 50 for row in range(50)]
            yield pa.table({"ts": at, "k": [row % 3 for row in range(50)], "item": [item] * 50})

    db = nile.connect()
    for which, name in enumerate("ab"):
        db.register(name, given(which), time="ts")

    def read() -> None:
        for batch in db.sql(TEXT.format("desc", 90).replace("WINDOW 20", "WINDOW 5")).batches():
            for item in batch.column("item").to_pylist():
                found.put(item)
        found.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for item in range(5):
        while found.get(timeout=60) != item:
            pass
        for each in asked:
            each.release()
    while found.get(timeout=60) is not None:
        pass
    reader.join()


def test_whoever_reads_no_further_closes_the_sources() -> None:
    closed = []

    def endless(name: str) -> Iterator[pa.Table]:
        try:
            for item in range(10_000):
                time.sleep(0.06)
                yield pa.table({"ts": [float(item)], "k": [1], "item": [item]})
        finally:
            closed.append(name)

    db = nile.connect()
    for name in "ab":
        db.register(name, endless(name), time="ts")
    batches = db.sql(TEXT.format("desc", 90)).batches()
    next(iter(batches))
    batches.close()
    assert sorted(closed) == ["a", "b"]


def test_an_error_of_a_source_is_raised_by_whoever_reads() -> None:
    def broken() -> Iterator[pa.Table]:
        yield from apart(table(0))
        raise RuntimeError("the line went dead")

    db = nile.connect()
    db.register("a", broken(), time="ts")
    db.register("b", apart(table(1)), time="ts")
    with pytest.raises(Exception, match="the line went dead"):
        db.sql(TEXT.format("desc", 30)).to_arrow()


def numbered(*ts: int) -> Generator[tuple[Any, int]]:
    for at in ts:
        yield np.array([at], np.int64), at


def test_the_stream_that_lies_furthest_back_is_read_next() -> None:
    read = [(each.name, each.item and each.item[1], each.sure) for each in
            Abreast({"a": numbered(1, 5, 9), "b": numbered(2, 3, 4)}, ["a"])]  # fmt: skip
    assert read == [
        ("a", 1, None), ("b", 2, 0), ("a", 5, 1), ("b", 3, 2), ("b", 4, 3), ("b", None, 4), ("a", 9, 8),
        ("a", None, None),
    ]  # fmt: skip


def test_nobody_is_put_on_a_thread_that_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abreast, "_SLOW", 3600.0)  # whatever a busy machine takes
    threads = set()

    def here(*ts: int) -> Generator[tuple[Any, int]]:
        for each in numbered(*ts):
            threads.add(threading.get_ident())
            yield each

    assert len(list(Abreast({"a": here(1, 5, 9), "b": here(2, 3, 4)}, ["a", "b"]))) == 8
    assert threads == {threading.get_ident()}


def test_reading_ahead_has_an_end_and_closes_what_it_reads() -> None:
    given, closed = [], threading.Event()

    def many() -> Generator[int]:
        try:
            for item in range(1_000):
                given.append(item)
                yield item
        finally:
            closed.set()

    ahead = Ahead(many(), most=3)
    assert [next(ahead), next(ahead)] == [0, 1]
    ahead.close()
    assert closed.is_set()
    assert len(given) <= 6
    with pytest.raises(StopIteration):
        next(ahead)
