"""Spark types cells and tells times exactly as the direct path does: the same hostile values through both."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.base.cells import parse_cells
from nile.base.plain import decoded_type
from nile.base.times import TIME_LIMIT, TIME_REASONS, event_times
from nile.spark.ingesting.rows import name_sql
from nile.spark.sqltypes import cell_sql, read_type, time_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CELL_TYPES = [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.timestamp("ns")]
FIXED = [
    *("", " ", "\t7\n", "7", "+7", "-7", "007", "7.", ".5", "1e5", "1E-5", "1e400", "-1e400", "1e-400", "5e-324"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "0" * 30 + "5"),
    *("inf", "-Infinity", "+INF", "nan", "-nan", "infinit", "0x10", "1_000", "1d", "1f", "1,5", "--1", "+-1", "e1"),
    *("true", "TRUE", " False\t", "t", "yes", "f12f", "\x0c12", "1\x0b", "\u00a012", "²", "٣", "12\u2028", "12\x85"),
    *("a\ufffdb", "é", "😀", ".", "+", "-.5e+3", "2011-12-09", "2011-12-09Z", "20111209", "2011-12-09 8:01"),
    *("2011-02-29", "2012-02-29", "2011-02-30 10:00", "2011-13-01", "0000-01-01", "0001-01-01", "2011-12-09 24:00"),
    *("2011-12-09T08:01:59", "2011-12-09 08:01:60", "2011-12-09  08:01", "2011-12-09 08:01:59\u2029"),
    *("2011-12-09 08:01:59.123456", "2011-12-09 08:01:59.1234567", "2011-12-09 08:01:59.123456789"),
    *("1677-09-21", "1677-09-22", "2262-04-11", "2262-04-12", "9999-12-31 23:59:59.999999", "1750-01-01", "2189-12-01"),
    *("6917529027.5", "6917529028", "-6917529028", "1323417719.123456789", "0.0000000005", "-0.0000000005", "1.5e-9"),
]


def made_up(source: random.Random) -> str:
    """Text that is nearly, and often really, a time."""
    years = (1, 1600, 1677, 1750, 1969, 1970, 2011, 2189, 2262, 9999)
    text = f"{source.choice(years):04}-{source.randrange(14):02}-{source.randrange(33):02}"
    if source.random() < 0.8:
        text += f"{source.choice(' T')}{source.randrange(25):02}:{source.randrange(61):02}"
        if source.random() < 0.6:
            text += f":{source.randrange(61):02}"
            if source.random() < 0.5:
                text += f".{source.randrange(10 ** source.randrange(1, 10))}"
        if source.random() < 0.5:
            text += source.choice(("Z", "+01", "-05:30", "+0545", "-00", "+14:59", "+15:00"))
    return text


def hostile_cells() -> list[str]:
    source = random.Random(11)
    noise = ["".join(source.choices("0123456789-+:.TZ eE", k=source.randrange(1, 12))) for _ in range(1_000)]
    return [*FIXED, *noise, *(made_up(source) for _ in range(2_000))]


def same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)  # NaN


def test_every_cell_is_typed_as_on_the_direct_path(spark: SparkSession, tmp_path: Path) -> None:
    cells = hostile_cells()
    pq.write_table(pa.table({"cell": cells, "place": range(len(cells))}), tmp_path / "cells.parquet")
    wanted = []
    for at, kind in enumerate(CELL_TYPES):
        sql = cell_sql("cell", kind)
        wanted += [f"{sql.raw} AS raw{at}", f"{sql.misfit} AS misfit{at}"]
    told = time_sql("nullif(cell, '')", pa.string())
    frame = spark.read.parquet(str(tmp_path / "cells.parquet"))
    found = (
        frame.selectExpr("place", *wanted, f"{told.ns} AS ns", f"{told.reason} AS reason").toArrow().sort_by("place")
    )

    text = pa.array(cells, pa.string())
    for at, kind in enumerate(CELL_TYPES):
        values, misfit = parse_cells(text, kind)
        if pa.types.is_timestamp(kind):
            values = values.cast(pa.int64())
        expected = zip(values.to_pylist(), [False] * len(cells) if misfit is None else misfit.tolist(), strict=True)
        came = zip(found[f"raw{at}"].to_pylist(), found[f"misfit{at}"].to_pylist(), strict=True)
        wrong = [
            (cell, spark_says, direct_says)
            for cell, spark_says, direct_says in zip(cells, came, expected, strict=True)
            if not (same(spark_says[0], direct_says[0]) and spark_says[1] == direct_says[1])
        ]
        assert wrong == [], kind
    assert_same_times(found, "ns", "reason", pa.array([cell or None for cell in cells], pa.string()))


def assert_same_times(found: pa.Table, ns: str, reason: str, column: pa.Array) -> None:
    times = event_times(column)
    codes = np.zeros(len(column), np.uint8) if times.reason is None else times.reason
    direct = [TIME_REASONS[code] or int(t) for code, t in zip(codes, times.ns, strict=True)]
    came = [why or t for why, t in zip(found[reason].to_pylist(), found[ns].to_pylist(), strict=True)]
    wrong = [(v.as_py(), s, d) for v, s, d in zip(column.cast(pa.string()), came, direct, strict=True) if s != d]
    assert wrong == [], column.type


def time_columns() -> dict[str, pa.Array]:
    """Columns of every type that can say when, with values at the ends of the range."""
    most, edge = 2**63 - 1, TIME_LIMIT // 10**9
    whole = [0, 1, -1, None, 5, edge, edge + 1, -edge, -edge - 1, most, -most]
    floats = [
        0.0,
        -0.0,
        1.5,
        None,
        float("nan"),
        float("inf"),
        -float("inf"),
        edge + 0.99,
        edge + 1.5,
        1323417719.1234567,
        -0.1,
    ]
    columns: dict[str, Any] = {
        "int64": pa.array(whole, pa.int64()),
        "uint64": pa.array([0, 1, 2, None, 5, edge, edge + 1, 2**63, 2**64 - 1, 7, 8], pa.uint64()),
        "float64": pa.array(floats, pa.float64()),
        "float32": pa.array(floats, pa.float32()),
        "date32": pa.array([0, 1, -1, None, 5, 80_063, 80_064, -80_063, -80_064, 2**31 - 1, -(2**31)], pa.date32()),
        "null": pa.nulls(len(whole)),
        "text": pa.array(["2011-12-09", None, "", "x", "1e3", "nan", "inf", "9999-01-01", "2011-02-30", "-5.5", " 7 "]),
    }
    columns["dictionary"] = columns["text"].dictionary_encode()
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32()):
        bits = [0, 1, 2, None, 5, 6, 7, 8, 9, 10, 127]
        columns[str(kind)] = pa.array(bits, kind)
    for unit, size in (("ms", 10**6), ("us", 10**3), ("ns", 1)):
        ends = [0, 1, -1, None, 5, TIME_LIMIT // size, TIME_LIMIT // size + 1, most, -most, -TIME_LIMIT // size, 7]
        for zone in (None, "UTC", "Europe/Berlin"):
            kind = pa.timestamp(unit, zone)
            columns[str(kind)] = pa.array(ends, kind)
    return columns


def test_every_type_of_time_column_says_the_same_time_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    pq.write_table(pa.table(time_columns()), path)
    stored = pq.read_table(path)
    read, wanted = [], []
    for field in stored.schema:
        kind = decoded_type(field.type)
        read.append(f"{name_sql(field.name)} {read_type(kind)}")
        told = time_sql(name_sql(field.name), kind)
        wanted += [f"{told.ns} AS {name_sql(field.name + ' ns')}", f"{told.reason} AS {name_sql(field.name + ' why')}"]
    found = spark.read.schema(", ".join(read)).parquet(str(path)).selectExpr(*wanted).toArrow()
    for name in stored.schema.names:
        assert_same_times(found, f"{name} ns", f"{name} why", stored[name].combine_chunks())
