"""Decimals as doubles: the nearest one, wherever one is made of the other."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.base.nearest import nearest

KINDS = [
    pa.decimal128(9, 2), pa.decimal128(15, 0), pa.decimal128(15, 15), pa.decimal128(16, 3), pa.decimal128(38, 20),
    pa.decimal256(60, 25),
]  # fmt: skip
VALUES = [Decimal(k) / 100 for k in range(-700, 10_000, 7)]


def some(kind: Any) -> list[Decimal | None]:
    draw = np.random.default_rng(kind.precision).integers(0, 10, (300, kind.precision))
    whole = [int("".join(map(str, digits))) * (-1) ** k for k, digits in enumerate(draw)]
    return [None if k % 7 == 3 else Decimal(each).scaleb(-kind.scale) for k, each in enumerate(whole)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_decimal_becomes_the_double_nearest_to_it(kind: Any) -> None:
    values = some(kind)
    column = pa.array(values, kind)
    wanted = [None if each is None else float(each) for each in values]
    assert nearest(column, pa.float64()).to_pylist() == wanted
    assert nearest(column.slice(5, 50), pa.float64()).to_pylist() == wanted[5:55]
    parts = pa.chunked_array([column.slice(0, 9), column.slice(9, 0), column.slice(9)])
    assert nearest(parts, pa.float64()).to_pylist() == wanted
    assert nearest(column.slice(0, 0), pa.float64()) == pa.array([], pa.float64())
    assert nearest(column, pa.string()) == column.cast(pa.string())


@pytest.fixture(scope="module")
def db() -> nile.Database:
    made = nile.connect()
    table = pa.table({"t": np.arange(float(len(VALUES))), "d": pa.array(VALUES, pa.decimal128(9, 2))})
    made.register("s", table.append_column("f", pa.array([float(each) for each in VALUES])), time="t")
    return made


@pytest.mark.parametrize("function", ["sum", "avg", "median"])
def test_an_aggregate_of_one_decimal_is_that_number(db: nile.Database, function: str) -> None:
    wanted = [float(each) for each in VALUES]
    plain = db.sql(f"SELECT t, {function}(d) AS x FROM s GROUP BY t ORDER BY t").to_arrow()
    assert plain["x"].to_pylist() == wanted
    over = db.sql(f"SELECT t, {function}(d) OVER (PARTITION BY t) AS x FROM s ORDER BY t").to_arrow()
    assert over["x"].to_pylist() == wanted
    windowed = db.sql(f"SELECT t, {function}(d) AS x FROM s GROUP BY t WINDOW 100000", emit="snapshot").to_arrow()
    assert windowed.sort_by("t")["x"].to_pylist() == wanted


def test_sets_tell_decimals_from_doubles_as_their_numbers_are(db: nile.Database) -> None:
    assert len(db.sql("SELECT d AS x FROM s INTERSECT SELECT f FROM s")) == len(VALUES)
    assert len(db.sql("SELECT f FROM s EXCEPT SELECT d FROM s")) == 0
    assert len(db.sql("SELECT d AS x FROM s UNION SELECT f FROM s")) == len(VALUES)


def test_decimals_that_are_pushed_and_inserted_are_the_nearest_doubles(db: nile.Database) -> None:
    wanted = [float(each) for each in VALUES]
    with nile.connect() as live:
        live.register("s", db.sql("SELECT t, d FROM s").to_arrow(), time="t")
        for name in ("pushed", "filled"):
            live.stream(name, [("t", "double"), ("x", "double")], time="t")
        live.push("pushed", db.sql("SELECT t, d AS x FROM s").to_arrow())
        live.sql("INSERT INTO filled SELECT t, d FROM s")
        for name in ("pushed", "filled"):
            assert live.sql(f"SELECT x FROM {name}").to_arrow()["x"].to_pylist() == wanted


def test_a_standing_query_adds_decimals() -> None:
    with nile.connect() as live:
        live.stream("paid", [("t", "double"), ("k", "int64"), ("d", pa.decimal128(9, 2))], time="t")
        sums = live.subscribe("SELECT k, sum(d) AS x, max(d) AS most FROM paid GROUP BY k WINDOW 10", emit="changes")
        d = pa.array([Decimal("99.99"), None, Decimal("0.07"), Decimal("-1.10")], pa.decimal128(9, 2))
        live.push("paid", pa.table({"t": [0.0, 1.0, 2.0, 3.0], "k": [1, 1, 2, 2], "d": d}))
        live.advance(4.0)
        told = [(row["_sign"], row["k"], row["x"], row["most"]) for batch in sums.poll() for row in nile.rows(batch)]
    most = Decimal("0.07")
    assert told == [(1, 1, 99.99, Decimal("99.99")), (1, 2, 0.07, most), (-1, 2, 0.07, most), (1, 2, -1.03, most)]
