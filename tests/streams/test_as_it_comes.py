"""What a slow source gives is answered before it gives more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned

import nile

ITEMS, ROWS = 6, 50


def slow(given: list[int]) -> Iterator[pa.Table]:
    """Tables of 50 rows, 60 ms apart; given: the number of each that was asked for."""
    for item in range(ITEMS):
        time.sleep(0.06)
        given.append(item)
        at = [10.0 * item + row / ROWS for row in range(ROWS)]
        yield pa.table({"ts": at, "k": [row % 3 for row in range(ROWS)], "item": [item] * ROWS})


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("SELECT item, k FROM s WHERE k > 0 WINDOW 5", 1),
        ("SELECT max(item) AS item, count(*) AS n FROM s WHERE k > 0 GROUP BY k WINDOW 5", 1),
        ("SELECT max(item) AS item FROM s WINDOW 5", 1),
    ],
)
def test_rows_come_at_the_latest_when_the_source_has_given_one_more_item(text: str, behind: int) -> None:
    given: list[int] = []
    db = nile.connect()
    db.register("s", slow(given), time="ts")
    seen: dict[int, int] = {}
    for batch in db.sql(text).batches():
        for item in batch.column("item").to_pylist():
            if item is not None:
                seen.setdefault(item, given[-1])
    assert sorted(seen) == list(range(ITEMS))
    assert all(at <= item + behind for item, at in seen.items())


@pytest.mark.parametrize("text", [
    "SELECT s.item, t.item AS other FROM s, t WHERE s.k = t.k AND s.item >= 0 WINDOW 5",
    "SELECT s.item, t.item AS other FROM s, t WHERE s.k < t.k WINDOW 1",
    "SELECT s.item, t.item AS other FROM s, t, s AS u WHERE s.k = t.k AND u.k = t.k AND u.item = s.item WINDOW 0.5",
    "SELECT s.item, r.name FROM r, s WHERE s.k = r.k WINDOW 5",
    "SELECT max(s.item) AS item, count(*) AS n FROM s, t WHERE s.k = t.k GROUP BY s.k WINDOW 5",
])  # fmt: skip
@pytest.mark.parametrize("both", [False, True])
def test_pairs_come_at_the_latest_when_each_source_has_given_two_more_items(text: str, both: bool) -> None:
    given: list[int] = []
    db = nile.connect()
    db.register("s", slow(given), time="ts")
    db.register("t", slow([]) if both else pa.concat_tables(list(slow([]))), time="ts")
    db.register("r", {"k": [0, 1, 2, 2], "name": list("uvwx")})
    seen: dict[int, int] = {}
    for batch in db.sql(text).batches():
        for item in batch.column("item").to_pylist():
            if item is not None:
                seen.setdefault(item, given[-1])
    assert sorted(seen) == list(range(ITEMS))
    assert all(at <= item + 2 for item, at in seen.items())


WINDOWED = {
    "two": "SELECT a.item, b.item AS j, a.k FROM a, b WHERE a.k = b.k AND a.item > 2 WINDOW 20",
    "itself": "SELECT a.item, b.item AS j FROM a, a AS b WHERE a.k = b.k AND a.item <> b.item WINDOW 20",
    "three": "SELECT a.item, b.item AS j, c.item AS l FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW 8",
    "no key": "SELECT a.item, b.item AS j FROM a, b WHERE a.k < b.k WINDOW 1",
    "windows of pairs": "SELECT a.item, c.item AS l FROM a, b, c WHERE a.k = b.k AND b.k = c.k "
    "AND a.ts - b.ts BETWEEN -3 AND 3 AND b.ts - c.ts BETWEEN -5 AND 5",
    "windows of each": "SELECT a.item, b.item AS j FROM a [RANGE 5], b [RANGE 20] WHERE a.k = b.k",
    "nothing": "SELECT a.item, b.item AS j FROM a, b WHERE a.k = b.k AND a.item > 1000 WINDOW 20",
    "groups": "SELECT count(*) AS n, max(b.item) AS m, a.k FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW 20",
    "stored": "SELECT r.name, a.item FROM r, a WHERE a.k = r.k AND a.item > 2 WINDOW 20",
    "twice stored": "SELECT r.name, a.item, q.name AS other FROM a, r, r AS q WHERE a.k = r.k AND q.k < r.k WINDOW 20",
    "outer": "SELECT a.item, b.item AS j FROM a LEFT JOIN b ON a.k = b.k WINDOW 4",
}


def apart(table: pa.Table, gap: float) -> Iterator[pa.Table]:
    """A table by 80 rows, with a pause before each."""
    for begin in range(0, table.num_rows, 80):
        time.sleep(gap)
        yield table.slice(begin, 80)


@pytest.mark.parametrize("emit", [None, "append", "changes"])
@pytest.mark.parametrize("text", thinned(WINDOWED.values(), 2), ids=list(WINDOWED))
def test_sources_that_are_waited_for_are_answered_as_tables_are(text: str, emit: Any) -> None:
    """The same rows in the same order, and the same accounts, whether or when somebody had to wait."""
    rng = np.random.default_rng(3)
    tables = {
        name: pa.table({"ts": np.sort(rng.integers(0, 300, 240)) / 1.0, "k": rng.integers(0, 9, 240),
                        "item": np.arange(240)})
        for name in "abc"
    }  # fmt: skip

    def asked(waiting: float | None) -> Any:
        db = nile.connect()
        for name, table in tables.items():
            pause = waiting if name == "b" or "r.k" in text else 0.0
            db.register(name, table if waiting is None else apart(table, pause or 0.0), time="ts")
        db.register("r", pa.table({"k": [1, 3, 3, 5, None], "name": list("uvwxy")}))
        return db.sql(text, **({} if emit is None else {"emit": emit}))

    expected = asked(None)
    for waiting in (0.0, 0.055):
        found = asked(waiting)
        assert found.to_arrow().equals(expected.to_arrow())
        assert found.accounting == expected.accounting


def test_stored_rows_that_every_piece_is_joined_with_count_once() -> None:
    told = []
    for make in (lambda: pa.concat_tables(list(slow([]))), lambda: slow([])):
        db = nile.connect()
        db.register("s", make(), time="ts")
        db.register("r", {"k": [0, 1, 2, 2], "name": list("uvwx")})
        tree = db.sql("SELECT s.item FROM s, r WHERE s.k = r.k AND r.k > 0 WINDOW 5").explain(analyze=True)
        told.append([each for each in tree.replace("]", ";").split(";") if "actual" in each])
    assert [each.split("actual")[1] for each in told[0]] == [each.split("actual")[1] for each in told[1]]


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
    for name in "st":
        db.register(name, endless(name), time="ts")
    batches = db.sql("SELECT s.item FROM s, t WHERE s.k = t.k WINDOW 5").batches()
    next(iter(batches))
    batches.close()
    assert sorted(closed) == ["s", "t"]


@pytest.mark.parametrize("text", ["SELECT count(*) AS n, max(item) AS m FROM s WHERE k = 1 WINDOW 5",
                                  "SELECT DISTINCT item FROM s WINDOW 5"])  # fmt: skip
def test_a_slow_source_is_answered_as_a_table_is(text: str) -> None:
    whole = nile.connect()
    whole.register("s", pa.concat_tables(list(slow([]))), time="ts")
    coming = nile.connect()
    coming.register("s", slow([]), time="ts")
    expected = whole.sql(text)
    found = coming.sql(text)
    assert found.to_arrow().to_pylist() == expected.to_arrow().to_pylist()
    assert found.accounting == expected.accounting
