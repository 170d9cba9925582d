"""Rows that are pushed with a sign, as standing queries emit them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import nile


def live(*further: tuple[str, pa.DataType]) -> nile.Database:
    db = nile.connect()
    db.stream("s", [("ts", pa.float64()), ("item", pa.int64()), *further], time="ts")
    return db


@pytest.mark.parametrize("sign", [0, 2, None, True, "1", 1.5])
def test_a_row_that_does_not_come_is_refused_with_its_push(sign: Any) -> None:
    db = live()
    db.push("s", pa.table({"ts": [0.0], "item": [1]}))
    signs = [sign, sign] if isinstance(sign, bool | str) else [1, sign]
    with pytest.raises(
        nile.SourceError, match=r"needed rows that come, _sign 1, or .* go, -1; got _sign .* in row [23]; fix"
    ):
        db.push("s", pa.table({"ts": [1.0, 2.0], "item": [1, 1], "_sign": signs}))
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(1,)]


def test_rows_of_an_iterator_do_not_go() -> None:
    db = live()
    db.push("s", pa.table({"ts": [0.0], "item": [1]}))
    table = pa.table({"ts": [0.0], "item": [1], "_sign": [-1]})
    with pytest.raises(nile.SourceError, match="or of a whole table go, -1"):
        db.push("s", iter(table.to_batches()))
    with pytest.raises(nile.SourceError, match="or of a whole table go, -1"):
        db.push("s", table.to_reader())


def test_rows_that_come_may_say_so() -> None:
    db = live()
    db.push("s", pa.table({"_sign": [1, 1], "ts": [1.0, 2.0], "item": [1, 1]}))
    assert db.sql("SELECT item FROM s").fetchall() == [(1,), (1,)]


def test_a_stream_may_have_a_column_of_signs() -> None:
    db = live(("_sign", pa.int64()))
    db.push("s", pa.table({"ts": [1.0, 2.0], "item": [1, 1], "_sign": [1, -1]}))
    assert db.sql("SELECT sum(_sign) FROM s").fetchall() == [(0,)]
