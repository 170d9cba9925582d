"""What experienced users of other engines try first: the same input in two places, odd types, names and times."""

from __future__ import annotations

from collections import Counter

import pytest

import nile


@pytest.fixture
def db() -> nile.Database:
    made = nile.connect()
    made.register("s", {"ts": [0.0, 1.0, 2.0, 3.0], "k": [1, 2, 3, 4]}, time="ts")
    made.register("r", {"k": [1, 2, 3], "w": [7, 8, 9]})
    return made


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT k FROM s WHERE k < 3 UNION SELECT k FROM s WHERE k > 3", [(1,), (2,), (4,)]),
        ("SELECT k FROM s EXCEPT ALL SELECT k FROM s WHERE k > 2", [(1,), (2,)]),
        ("SELECT k FROM r WHERE k = 1 UNION ALL SELECT k FROM r WHERE k > 2", [(1,), (3,)]),
        ("SELECT a.k, b.k AS o FROM (SELECT k FROM s WHERE k < 2) a, (SELECT k FROM s WHERE k > 3) b", [(1, 4)]),
        ("SELECT x.k, s.k AS o FROM (SELECT k FROM s WHERE k < 2) x, s WHERE s.k > 3", [(1, 4)]),
        ("SELECT s.k, w, s_1.k AS o FROM (SELECT k FROM s) s, r, s s_1 WHERE s.k = r.k AND r.k = s_1.k AND w > 8",
         [(3, 9, 3)]),
    ],
)  # fmt: skip
def test_an_input_that_several_blocks_call_alike_is_each_blocks_own(
    db: nile.Database, text: str, wanted: list[tuple[int, ...]]
) -> None:
    assert Counter(db.sql(text).fetchall()) == Counter(wanted)


def test_branches_of_one_stream_change_in_their_own_windows(db: nile.Database) -> None:
    text = "SELECT k FROM s [RANGE 1] WHERE k < 3 UNION ALL SELECT k FROM s [RANGE 2] WHERE k > 2"
    found = db.sql(text, emit="changes").to_arrow()
    kept: Counter[int] = Counter()
    for sign, k in zip(found["_sign"].to_pylist(), found["k"].to_pylist(), strict=True):
        kept[k] += sign
    assert +kept == {3: 1, 4: 1}
