"""What experienced users of other engines try first: the same input in two places, odd types, names and times."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.aggregate.scope import instant


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


CLICKS = pa.schema([("at", pa.float64()), ("page", pa.string())])


def test_a_callback_that_raises_keeps_nothing_from_other_queries() -> None:
    db = nile.connect()
    db.stream("clicks", CLICKS, time="at")
    seen: list[int] = []

    def callback(batch: pa.RecordBatch) -> None:
        seen.append(batch.num_rows)
        raise RuntimeError("full")

    db.subscribe("SELECT page FROM clicks", callback)
    other = db.subscribe("SELECT page FROM clicks")
    batches = [{"at": [0.0, 1.0], "page": ["a", "b"]}, {"at": [2.0], "page": ["c"]}]
    with pytest.raises(RuntimeError, match="full"):
        db.push("clicks", batches)
    with pytest.raises(RuntimeError, match="full"):
        db.close()
    assert sum(seen) == 3
    assert sum(batch.num_rows for batch in other) == 3
    assert other.closed
    assert other.accounting["clicks"].applied == 3
    db.close()


def test_nothing_to_push_is_pushed() -> None:
    db = nile.connect()
    db.stream("clicks", CLICKS, time="at")
    assert db.push("clicks", []) == db.push("clicks", {"at": [], "page": []}) == 0


@pytest.mark.parametrize("moment", [1e300, -1e300, 10**400, 1e10, float("nan"), "soon", None, True])
def test_a_moment_that_is_none_is_refused(moment: object) -> None:
    with pytest.raises(nile.ConfigError, match="advance: needed a moment"):
        nile.connect().advance(moment)


def test_moments_keep_their_nanoseconds() -> None:
    wanted = 1_323_417_662_123_456_789
    assert instant(np.datetime64("2011-12-09T08:01:02.123456789"), where="t") == wanted
    assert instant(np.int64(7), where="t") == instant(np.datetime64("1970-01-01T00:00:07"), where="t") == 7_000_000_000
    assert instant(np.datetime64("1971"), where="t") == 365 * 86_400 * 1_000_000_000


def test_a_column_of_nothing_but_nulls_groups_like_any_other(db: nile.Database) -> None:
    db.register("n", pa.table({"ts": [0.0, 1.0], "k": pa.nulls(2)}), time="ts")
    text = "SELECT k, count(*) AS n, max(k) AS m FROM n GROUP BY k ORDER BY k"
    assert db.sql(text).fetchall() == [(None, 2, None)]
    changes = db.sql("SELECT k, count(*) AS n FROM n GROUP BY k WINDOW 5").to_arrow()
    assert changes["n"].to_pylist() == [1, 1, 2]


def test_a_parameter_that_is_no_unicode_text_is_refused(db: nile.Database) -> None:
    with pytest.raises(nile.SqlError, match="needed Unicode text as the parameter"):
        db.sql("SELECT k FROM r WHERE CAST(k AS VARCHAR) = ?", ["\ud800"])


def test_explain_calls_aggregates_and_odd_columns_as_the_statement_does(db: nile.Database) -> None:
    db.register("odd", {"a.b": [1.5], "c": [1]})
    told = db.sql('SELECT c, sum("a.b") AS t FROM odd GROUP BY c HAVING sum("a.b") > 0').explain()
    assert "project odd.c, sum(odd.a.b) as t" in told
    assert 'group by odd.c: sum(odd."a.b")' in told
