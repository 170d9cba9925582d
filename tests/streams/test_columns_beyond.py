"""Columns that are pushed and that the stream does not have: refused, or dropped and counted, never silently lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nile

SCHEMA = [("at", pa.float64()), ("page", pa.string())]


def test_a_row_with_a_column_that_the_stream_does_not_have_is_refused_and_nothing_is_taken() -> None:
    with nile.connect() as db:
        db.stream("clicks", SCHEMA, time="at")
        with pytest.raises(nile.UnknownColumn, match=r"needed columns of the stream \(at, page\); got 'user' too"):
            db.push("clicks", {"at": 1.0, "page": "home", "user": 7})
        assert db.accounting("clicks") == nile.Accounting()


def test_a_misspelt_column_is_named_with_the_one_that_is_meant() -> None:
    with nile.connect() as db:
        db.stream("clicks", SCHEMA, time="at")
        with pytest.raises(nile.UnknownColumn, match="got 'pages' too; did you mean 'page'"):
            db.push("clicks", [{"at": 1.0, "pages": "home"}])


def test_columns_that_are_to_be_dropped_are_counted_by_the_rows_that_brought_them() -> None:
    with nile.connect() as db:
        db.stream("clicks", SCHEMA, time="at", extra="drop")
        db.push("clicks", [{"at": 1.0, "page": "a", "user": 7}, {"at": 2.0, "page": "b", "user": 8}])
        db.push("clicks", {"at": 3.0, "page": "c"})
        db.push("clicks", pa.table({"agent": ["x"], "page": ["d"], "user": [9], "at": [4.0]}))
        assert db.sql("SELECT page FROM clicks").fetchall() == [("a",), ("b",), ("c",), ("d",)]
        told = db.accounting("clicks")
        assert (told.tuples_in, told.dropped) == (4, {"user": 3, "agent": 1})


def test_a_store_remembers_what_is_dropped_and_how_often_it_was(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("clicks", SCHEMA, time="at", extra="drop")
        db.push("clicks", {"at": 1.0, "page": "a", "user": 7})
    with nile.connect(tmp_path / "store") as db:
        db.push("clicks", {"at": 2.0, "page": "b", "user": 8})
        assert db.accounting("clicks").dropped == {"user": 2}


def test_what_becomes_of_them_is_one_of_two_words() -> None:
    with nile.connect() as db, pytest.raises(nile.ConfigError, match="extra: needed 'refuse' or 'drop'; got 'ignore'"):
        db.stream("clicks", SCHEMA, time="at", extra="ignore")  # type: ignore[arg-type]
