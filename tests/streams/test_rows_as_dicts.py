"""Rows as people have them: dicts, one or many, pushed and registered."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import nile

SCHEMA = pa.schema([("at", pa.float64()), ("k", pa.string()), ("n", pa.int64())])


def test_a_row_and_a_list_of_rows_are_pushed_as_columns_are() -> None:
    with nile.connect() as db:
        db.stream("s", SCHEMA, time="at")
        standing = db.subscribe("SELECT k, n FROM s")
        db.push("s", {"at": 1.0, "k": "a", "n": 1})
        db.push("s", [{"at": 2.0, "k": "b", "n": None}, {"at": 3.0, "k": None, "n": 3}])
        db.push("s", {"at": [4.0, 5.0], "k": ["c", "d"], "n": [4, 5]})
        db.push("s", iter([{"at": 6.0, "k": "e", "n": 6}, [{"at": 7.0, "k": "f", "n": 7}]]))
        db.advance(10.0)
        found = [tuple(row.values()) for batch in standing.poll() for row in batch.to_pylist()]
        assert db.accounting("s").tuples_in == 7
    assert found == [("a", 1), ("b", None), (None, 3), ("c", 4), ("d", 5), ("e", 6), ("f", 7)]


def test_rows_are_registered_and_what_one_has_not_is_null() -> None:
    moment = datetime.datetime(2026, 1, 1)
    with nile.connect() as db:
        db.register("s", [{"t": moment, "k": "a"}, {"t": moment, "k": "b", "tags": ["x", "y"]}], time="t")
        assert db.sql("SELECT k, tags FROM s").fetchall() == [("a", None), ("b", ["x", "y"])]


def test_what_is_neither_is_told_in_one_sentence() -> None:
    with nile.connect() as db:
        db.stream("s", SCHEMA, time="at")
        with pytest.raises(nile.NileError, match="there is no column 'k'"):
            db.push("s", [{"at": 1.0}, 7])
        with pytest.raises(nile.NileError):
            db.push("s", {"at": [1.0], "k": "a", "n": 1})
        assert db.accounting("s").tuples_in == 0
