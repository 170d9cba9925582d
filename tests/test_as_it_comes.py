"""What a slow source gives is answered before it gives more."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

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
