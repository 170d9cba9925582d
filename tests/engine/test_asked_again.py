"""A query that is asked again is not read again, and never means what it meant among other names."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import nile
from nile.execution.registry import Registry
from nile.sql.reading.asked_again import AskedAgain
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select
from nile.summaries.errors import SqlError

ROWS = {"ts": [0.0, 1.0, 2.0], "item": ["tea", "cup", "tea"], "n": [1, 2, 3]}


def names(rows: dict[str, list[Any]] | None = None) -> Registry:
    """A database that knows one stream."""
    made = Registry()
    made.register("sales", pa.table(ROWS if rows is None else rows), time="ts", where=None, lateness=None)
    return made


def test_the_same_text_among_the_same_names_is_read_once() -> None:
    known = names()
    text = "SELECT item FROM sales WHERE n > ? AND ts < 100"
    first = read_statement(text, known, params=[1])
    assert read_statement(text, known, params=[1]) is first
    assert read_statement(text, known, params=(1,)) is first
    assert read_statement(text, names(), params=[1]) is first  # other names of the same content
    assert read_statement(text, known, params=[2]) != first


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), (Decimal("1.0"), Decimal("1.00")), ("1", 1), (None, "None"),
     (dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
      dt.datetime(2020, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
     (dt.date(2020, 1, 1), dt.datetime(2020, 1, 1))],
)  # fmt: skip
def test_parameters_that_are_equal_and_not_the_same_are_apart(one: Any, other: Any) -> None:
    known, again = names(), AskedAgain()
    read = read_statement("SELECT item FROM sales", known)
    assert isinstance(read, Select)
    again.keep("text", [one], known, read)
    assert again.find("text", [one], known) is read
    assert again.find("text", [other], known) is None
    assert again.find("text", {"a": one}, known) is None
    assert again.find("text", None, known) is None


def test_what_may_change_or_is_long_is_read_every_time() -> None:
    class Zone(dt.tzinfo):
        def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(0)

        def dst(self, _: dt.datetime | None) -> None:
            return None

    known, again = names(), AskedAgain()
    read = read_statement("SELECT item FROM sales", known)
    assert isinstance(read, Select)
    for params in ([[1]], [object()], [dt.datetime(2020, 1, 1, tzinfo=Zone())], ["x" * 5_000], range(1)):
        again.keep("text", params, known, read)
        assert again.find("text", params, known) is None
    again.keep("x" * 5_000, None, known, read)
    assert again.find("x" * 5_000, None, known) is None


def test_only_the_latest_are_kept() -> None:
    known, again = names(), AskedAgain()
    read = read_statement("SELECT item FROM sales", known)
    assert isinstance(read, Select)
    for n in range(65):
        again.keep(f"text {n}", None, known, read)
        assert again.find("text 0", None, known) is read  # asked all the time
    assert again.find("text 1", None, known) is None
    assert again.find("text 64", None, known) is read


def test_a_name_that_stands_for_something_else_is_bound_anew() -> None:
    db = nile.connect()
    db.register("sales", ROWS, time="ts")
    text = "SELECT max(n) AS m FROM sales"
    assert db.sql(text).fetchall() == db.sql(text).fetchall() == [(3,)]
    db.register("sales", {"ts": [0.0], "n": ["text"]}, time="ts", replace=True)
    assert db.sql(text).fetchall() == [("text",)]
    db.register("sales", {"ts": [0.0], "m": [1]}, time="ts", replace=True)
    with pytest.raises(SqlError, match="n"):
        db.sql(text)
    db.register("sales", ROWS, time="ts", replace=True)
    assert db.sql(text).fetchall() == [(3,)]


def test_a_view_that_changed_and_a_summary_that_came_are_seen() -> None:
    db = nile.connect()
    db.register("sales", ROWS, time="ts")
    db.sql("CREATE VIEW some AS SELECT item, n FROM sales WHERE n > 1")
    assert sorted(db.sql("SELECT n FROM some").fetchall()) == [(2,), (3,)]
    db.sql("DROP VIEW some")
    db.sql("CREATE VIEW some AS SELECT item, n FROM sales WHERE n > 2")
    assert db.sql("SELECT n FROM some").fetchall() == [(3,)]
    text = "SELECT count(*) AS c FROM sales"
    before = db.sql(text).fetchall()
    db.sql("CREATE SUMMARY held ON sales (item) WITH GRANULARITY '1 s' AND COLLAPSE (4, 3)")
    assert db.sql(text).fetchall() == before


def test_what_was_wrong_is_wrong_again_and_is_told_anew() -> None:
    known = names()
    for _ in range(2):
        with pytest.raises(SqlError, match="line 1"):
            read_statement("SELECT nothing FROM sales", known)
    for text in (None, 7, b"SELECT 1"):
        with pytest.raises(SqlError):
            read_statement(text, known)  # type: ignore[arg-type]
