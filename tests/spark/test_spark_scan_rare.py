"""Scans by Spark of what is rare: selections under asc, and how many different values were found."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from spark_stand_in import StandIn
from workload_lake import SECOND, write_lake

import nile
import nile.spark.scan.scan as scan_module


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nile.Database:
    """A stream whose item 3 is more frequent the later; prices with null, NaN, 0.0 and -0.0."""
    stand_in = StandIn(random.Random(0))
    monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)
    draw, n = np.random.default_rng(1), 2_000
    item = np.where(draw.random(n) < np.arange(n) / n, 3, draw.integers(10, 400, n))
    price = [[None, math.nan, 0.0, -0.0][k % 4] if k % 9 == 0 else float(k % 37) for k in range(n)]
    write_lake(
        tmp_path, "s", np.arange(n) * SECOND, {"item": pa.array(item), "price": pa.array(price)}, range_s=200,
        group_rows=50,
    )  # fmt: skip
    made = nile.connect()
    made.register("s", tmp_path / "s")
    return made


def rows(result: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(map(str, row.values())) for row in result.to_arrow().to_pylist())


def test_asc_reads_where_it_is_rarest_first_and_finds_all_in_the_end(db: nile.Database) -> None:
    text = "SELECT at, item FROM s WHERE item = 3"
    whole = db.sql(f"{text} WITH PREFERENCE asc item", engine="spark")
    exact = rows(db.sql(text, emit="append"))
    assert rows(whole) == exact
    expected = [each.expected for each in whole.answer.ranking.order]
    assert expected == sorted(expected)
    assert len(expected) > 5
    assert "fewest expected outputs first" in whole.explain()
    few = db.sql(f"{text} WITH PREFERENCE asc item BUDGET 30 %", engine="spark")
    many = db.sql(f"{text} WITH PREFERENCE desc item BUDGET 30 %", engine="spark")
    assert set(rows(few)) <= set(exact)
    assert 0 < len(rows(few)) < 0.5 * len(rows(many))
    assert few.estimate.low <= len(exact) <= few.estimate.high


@pytest.mark.parametrize("by", ["", "item"])
def test_different_values_are_counted_across_partitions(db: nile.Database, by: str) -> None:
    columns = "count(DISTINCT price) AS d, count(*) AS n, count(DISTINCT item) AS i"
    text = f"SELECT {by + ', ' if by else ''}{columns} FROM s WHERE item < 20{f' GROUP BY {by}' if by else ''}"
    assert rows(db.sql(text, engine="spark")) == rows(db.sql(text))
    half = db.sql(f"{text} WITH PREFERENCE desc item BUDGET 40 %", engine="spark").to_arrow()
    if not by:
        (found,), (exact,) = half.to_pylist(), db.sql(text).to_arrow().to_pylist()
        assert 0 < found["d"] <= exact["d"]
        assert 0 < found["n"] < exact["n"]
