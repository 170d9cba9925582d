"""Cells of every column type on Spark: what fits keeps its value, what does not is told, nothing is rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nile.spark.celltypes import check_carried, misfit_why, text_cell, typed_cell
from nile.spark.ingesting.drift import parse_type
from nile.spark.sqltypes import read_type
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISFIT = object()

TEXT: dict[str, dict[str, Any]] = {
    "int8": {"127": 127, " -128 ": -128, "128": MISFIT, "1.0": MISFIT, "": None},
    "uint8": {"255": 255, "0": 0, "-1": MISFIT, "256": MISFIT},
    "int32": {"2147483647": 2**31 - 1, "2147483648": MISFIT},
    "uint32": {"4294967295": 2**32 - 1, "4294967296": MISFIT, "-5": MISFIT},
    "uint64": {"18446744073709551615": 2**64 - 1, "18446744073709551616": MISFIT, "-1": MISFIT, "1.5": MISFIT},
    "float": {"1.5": 1.5, "x": MISFIT, "inf": float("inf")},
    "double": {"1e3": 1000.0, "one": MISFIT},
    "decimal(5, 2)": {
        "123.45": "123.45",
        "1.5": "1.50",
        "1.005": MISFIT,
        "1000.00": MISFIT,
        "nan": MISFIT,
        "1e30": MISFIT,
        "-1e1": "-10.00",
    },
    "decimal(38, 2)": {"1.005": MISFIT, "123456789012345678901234567890.5": "123456789012345678901234567890.50"},
    "date": {"2011-12-09": "2011-12-09", "2011-12-09 01:00": MISFIT, "2011-02-30": MISFIT, "1969-12-31": "1969-12-31"},
    "timestamp[s]": {"1970-01-01 00:00:02": 2, "1969-12-31 23:59:59": -1, "1970-01-01 00:00:02.5": MISFIT},
    "timestamp[ms]": {"1970-01-01 00:00:02.5": 2_500, "1970-01-01 00:00:02.0005": MISFIT},
    "timestamp[us]": {"1970-01-01 00:00:00.000001": 1, "1970-01-01 00:00:00.0000001": MISFIT},
    "timestamp[ns]": {"1970-01-01 00:00:00.000000001": 1, "soon": MISFIT},
    "bool": {"TRUE": True, "no": MISFIT},
    "string": {"00123": "00123", "": None},
}

TYPED: list[tuple[str, str, str, Any]] = [  # from, to, SQL of the raw cell, what becomes of it
    ("int64", "int8", "127L", 127), ("int64", "int8", "128L", MISFIT), ("int64", "uint8", "-1L", MISFIT),
    ("int64", "uint8", "200L", 200), ("double", "int64", "2.0D", 2), ("double", "int64", "2.5D", MISFIT),
    ("double", "float", "0.5D", 0.5), ("double", "float", "0.1D", MISFIT), ("int64", "double", "3L", 3.0),
    ("int64", "double", "9007199254740993L", MISFIT), ("int64", "string", "7L", "7"), ("string", "int64", "'7'", 7),
    ("string", "int64", "'x'", MISFIT), ("string", "date", "'2011-12-09'", "2011-12-09"),
    ("timestamp[s]", "timestamp[us]", "3L", 3_000_000), ("timestamp[s]", "timestamp[ns]", "9223372037L", MISFIT),
    ("timestamp[us]", "timestamp[s]", "3000000L", 3), ("timestamp[us]", "timestamp[s]", "3000001L", MISFIT),
    ("timestamp[us]", "string", "1000000L", "1970-01-01 00:00:01"), ("timestamp[us]", "int64", "1L", MISFIT),
    ("date", "timestamp[us]", "DATE'1970-01-02'", 86_400_000_000), ("bool", "int64", "true", 1),
    ("int64", "bool", "1L", True), ("int64", "bool", "2L", MISFIT), ("int64", "int8", "CAST(NULL AS BIGINT)", None),
    ("decimal(5, 2)", "int64", "CAST(2.00 AS DECIMAL(5, 2))", 2),
    ("decimal(5, 2)", "int64", "CAST(2.50 AS DECIMAL(5, 2))", MISFIT),
]  # fmt: skip


def plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


@pytest.mark.spark
def test_text_cells_become_values_of_every_type_or_are_told(spark: SparkSession) -> None:
    cells = sorted({cell for cases in TEXT.values() for cell in cases})
    frame = spark.createDataFrame([(cell,) for cell in cells], "cell STRING")
    columns = []
    for at, name in enumerate(TEXT):
        one = text_cell("cell", parse_type(name, where="here"))
        columns += [
            f"CAST({one.raw} AS {read_type(parse_type(name, where='here'))}) AS v{at}",
            f"{one.misfit} AS m{at}",
        ]
    found = {row["cell"]: row for row in frame.selectExpr("cell", *columns).collect()}
    for at, (name, cases) in enumerate(TEXT.items()):
        for cell, value in cases.items():
            row = found[cell]
            came = MISFIT if row[f"m{at}"] else plain(row[f"v{at}"])
            wanted = value if not name.startswith("uint64") or value is MISFIT else str(value)
            assert came == wanted, (name, cell, row[f"v{at}"], row[f"m{at}"])
            assert value is not MISFIT or row[f"v{at}"] is None, (name, cell)


@pytest.mark.spark
def test_typed_cells_become_values_of_another_type_only_where_nothing_is_lost(spark: SparkSession) -> None:
    columns = []
    for at, (narrow, wide, raw, _) in enumerate(TYPED):
        one = typed_cell(raw, parse_type(narrow, where="here"), parse_type(wide, where="here"))
        columns += [f"{one.raw} AS v{at}", f"{one.misfit} AS m{at}"]
    row = spark.range(1).selectExpr(*columns).collect()[0]
    for at, (narrow, wide, raw, value) in enumerate(TYPED):
        came = MISFIT if row[f"m{at}"] else plain(row[f"v{at}"])
        assert came == value, (narrow, wide, raw, row[f"v{at}"], row[f"m{at}"])


def test_types_that_cannot_travel_are_refused_and_reasons_name_what_was_needed() -> None:
    for kind in (pa.list_(pa.int8()), pa.float16(), pa.duration("s"), pa.time64("us")):
        with pytest.raises(ConfigError, match="here: needed numbers"):
            check_carried(kind, where="here")
    check_carried(pa.timestamp("ns", "UTC"), where="here")
    with pytest.raises(ConfigError, match="cannot become binary"):
        text_cell("cell", pa.binary())
    assert misfit_why("a", pa.decimal128(5, 2)) == "cell of 'a' is no number"
    assert misfit_why("a", pa.date32()) == "cell of 'a' is no date"
