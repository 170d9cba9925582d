"""UNION, INTERSECT and EXCEPT of columns of unlike types: the result holds the values of both sides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import nile

COLUMNS: dict[str, pa.Array] = {
    "small": pa.array([1, -5], pa.int8()),
    "byte": pa.array([200], pa.uint8()),
    "int": pa.array([2**31 - 1], pa.int32()),
    "long": pa.array([2**53 + 1, -(2**63)], pa.int64()),
    "unsigned": pa.array([2**53 + 1, 2**64 - 1], pa.uint64()),
    "float": pa.array([0.5], pa.float32()),
    "double": pa.array([0.1, 1e308]),
    "cents": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
    "tenths": pa.array([Decimal("123456.5")], pa.decimal128(7, 1)),
    "second": pa.array([1], pa.timestamp("s")),
    "micro": pa.array([1], pa.timestamp("us")),
}
WANTED = [
    ("small", "long", pa.int64()), ("small", "byte", pa.int16()), ("int", "long", pa.int64()),
    ("byte", "int", pa.int32()), ("float", "double", pa.float64()), ("int", "double", pa.float64()),
    ("long", "unsigned", pa.decimal128(20, 0)), ("small", "unsigned", pa.decimal128(20, 0)),
    ("unsigned", "double", pa.float64()), ("cents", "tenths", pa.decimal128(8, 2)), ("cents", "double", pa.float64()),
    ("second", "micro", pa.timestamp("us")),
]  # fmt: skip


def database() -> nile.Database:
    db = nile.connect()
    for name, column in COLUMNS.items():
        db.register(name, pa.table({"k": column}))
    return db


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("one", "other", "wanted"), WANTED)
def test_a_union_holds_the_values_of_both_sides(one: str, other: str, wanted: pa.DataType, turned: bool) -> None:
    """The right side was squeezed into the left one's type: a float lost digits, a long was Arrow's error."""
    names = (other, one) if turned else (one, other)
    with database() as db:
        got = db.sql(f"SELECT k FROM {names[0]} UNION ALL SELECT k FROM {names[1]}").to_arrow()["k"]
    assert got.type == wanted
    assert got.to_pylist() == [value for name in names for value in COLUMNS[name].cast(wanted, safe=False).to_pylist()]


def test_whole_numbers_beyond_doubles_are_told_apart() -> None:
    with database() as db:
        both = "SELECT k FROM long {} SELECT k FROM unsigned"
        assert db.sql(both.format("INTERSECT")).fetchall() == [(2**53 + 1,)]
        assert db.sql(both.format("EXCEPT")).fetchall() == [(-(2**63),)]


def test_a_standing_union_has_the_same_types() -> None:
    with nile.connect() as live:
        live.stream("a", [("at", "double"), ("k", "int32")], time="at")
        live.stream("b", [("at", "double"), ("k", "int64")], time="at")
        found = live.subscribe("SELECT k FROM a UNION SELECT k FROM b WINDOW 10", emit="changes")
        live.push("a", {"at": [1.0], "k": [7]})
        live.push("b", {"at": [1.0], "k": [2**40]})
        live.advance(5.0)
        rows: list[Any] = [row["k"] for batch in found.poll() for row in batch.to_pylist()]
        assert sorted(rows) == [7, 2**40]


def test_a_value_beyond_the_left_type_is_told() -> None:
    with database() as db:
        db.register("nano", pa.table({"k": pa.array([1], pa.timestamp("ns"))}))
        with pytest.raises(nile.NileError, match="UNION: needed values that the left side's types hold"):
            db.sql("SELECT k FROM micro UNION SELECT k FROM nano").fetchall()
