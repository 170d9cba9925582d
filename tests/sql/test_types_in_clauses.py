"""Types of Arrow: every one in every clause, conversions at the source, and the table of docs/sql.md."""

from __future__ import annotations

import decimal
import gzip
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.base.plain import plain_array, plain_schema, plain_type
from nile.experiments.faults.surface import types
from nile.experiments.faults.surface.arrow_types import arrow_types
from nile.experiments.faults.surface.clauses import CLAUSES
from nile.experiments.faults.surface.type_table import BEGIN, END, type_table, with_table

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.mark.filterwarnings("ignore")
def test_every_type_in_every_clause_is_right_or_refused_by_name_as_the_table_of_the_page_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert with_table(page, type_table()) == page


def test_the_row_of_the_scoreboard_tries_every_pair() -> None:
    assert len(arrow_types()) * len(CLAUSES) == types.FAULT.full


@pytest.mark.parametrize("case", arrow_types(), ids=lambda case: case.name)
def test_a_slice_converts_to_the_values_of_the_whole(case: Any) -> None:
    whole = plain_array(case.column)
    assert whole.type == plain_type(case.type)
    assert plain_type(whole.type) == whole.type
    assert plain_array(case.column.slice(2, 5)).to_pylist() == whole.to_pylist()[2:7]
    assert len(plain_array(case.column.slice(3, 0))) == 0


def test_identifiers_are_read_as_they_are_written_and_keep_their_order() -> None:
    known = [uuid.UUID(int=k) for k in (0, 1, 2**64, 2**127, 2**128 - 1)]
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([each.bytes for each in known], pa.binary(16)))
    told = plain_array(column).to_pylist()
    assert told == [str(each) for each in known]
    assert told == sorted(told)


def test_a_plain_schema_is_left_as_it_is() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.dictionary(pa.int32(), pa.string())), ("c", pa.list_(pa.int8()))])
    assert plain_schema(schema) is schema


def test_parquet_files_are_converted_where_they_are_opened(tmp_path: Path) -> None:
    table = pa.table({"t": [1, 2], "v": pa.array([1.5, -2.0]).cast(pa.float16())})
    pq.write_table(table, tmp_path / "half.parquet")
    db = nile.connect().register("s", str(tmp_path / "half.parquet"), time="t")
    assert db.sql("SELECT max(v) AS x FROM s").fetchall() == [(1.5,)]


def test_categories_of_polars_are_text_used_or_not() -> None:
    frame = pl.DataFrame(
        {
            "t": [1, 2],
            "c": pl.Series(["a", "b"], dtype=pl.Categorical),
            "e": pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"])),
        }
    )
    for source in (frame, frame.lazy()):
        db = nile.connect().register("s", source, time="t")
        assert db.sql("SELECT t FROM s").fetchall() == [(1,), (2,)]
        assert db.sql("SELECT c, e FROM s WHERE e = 'y'").fetchall() == [("b", "y")]


def test_a_time_column_named_twice_is_refused_by_name() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["t", "t"])
    with pytest.raises(nile.UnknownColumn, match="needed one column 't', found 2; rename the others"):
        nile.connect().register("s", twice, time="t")


def test_columns_of_one_name_are_not_dropped_from_a_star_in_silence() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "x", "t"])
    db = nile.connect().register("s", twice, time="t")
    for text, told in (("*", "for \\*; got x more than once in s"), ("x", "needed one column 'x' of s; got several")):
        with pytest.raises(nile.SqlError, match=told):
            db.sql(f"SELECT {text} FROM s")
    assert db.sql("SELECT t FROM s").fetchall() == [(3,)]


def test_a_table_without_columns_is_refused() -> None:
    for empty in (pa.table({}), {}):
        with pytest.raises(nile.SourceError, match="e: needed a source with at least one column; got none"):
            nile.connect().register("e", empty)


def test_packed_csv_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv.gz"
    path.write_bytes(gzip.compress(b"t,v\n1,2.5\n2,3.5\n"))
    assert nile.connect().register("s", path, time="t").sql("SELECT sum(v) FROM s").fetchall() == [(6.0,)]
    whole = path.read_bytes()
    for torn in (whole[:-9], b"t,v\n1,2\n", b""):
        path.write_bytes(torn)
        with pytest.raises(nile.SourceError, match=r"sales\.csv\.gz"):
            nile.connect().register("s", path, time="t")


SCALES = [pa.decimal128(9, 2), pa.decimal128(20, 4), pa.decimal128(38, 0), pa.decimal256(60, 10)]
TELL = [
    "SELECT a.n, b.n AS m FROM a JOIN b ON a.d = b.d",
    "SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.d = b.d",
    "SELECT n FROM a WHERE d IN (SELECT d FROM b)",
    "SELECT n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.d = a.d)",
    "SELECT a.d, count(*) AS n FROM a JOIN b ON a.d = b.d GROUP BY a.d",
]


@pytest.mark.parametrize("text", TELL)
@pytest.mark.parametrize("other", SCALES, ids=str)
def test_decimals_are_equal_whatever_digits_they_are_kept_with(text: str, other: pa.DataType) -> None:
    """By brute force: DuckDB has no decimals of more than 38 digits."""
    values = {"a": ["1.25", "3", None, "0", "-7", "3"], "b": ["3", "-7", "0", "12", None, "0"]}
    db = nile.connect()
    for name, kind in (("a", pa.decimal128(12, 2)), ("b", other)):
        d = pa.array([None if each is None else decimal.Decimal(each) for each in values[name]]).cast(kind)
        db.register(name, pa.table({"t": np.arange(6.0), "d": d, "n": np.arange(6)}), time="t")
    keys = {name: [None if each is None else decimal.Decimal(each) for each in own] for name, own in values.items()}
    pairs = [(i, j) for i, x in enumerate(keys["a"]) for j, y in enumerate(keys["b"]) if x is not None and x == y]
    partners = {i for i, _ in pairs}
    alone = [i for i in range(6) if i not in partners]
    wanted: dict[str, list[tuple[Any, ...]]] = {
        TELL[0]: list(pairs),
        TELL[1]: [*pairs, *((i, None) for i in alone)],
        TELL[2]: [(i,) for i in sorted(partners)],
        TELL[3]: [(i,) for i in alone],
        TELL[4]: list(Counter(keys["a"][i] for i, _ in pairs).items()),
    }
    assert sorted(db.sql(text).fetchall(), key=str) == sorted(wanted[text], key=str)
    if "JOIN" in text and "GROUP" not in text:
        windowed = db.sql(f"{text} WINDOW 100", emit="snapshot").fetchall()
        assert sorted(windowed, key=str) == sorted(wanted[text], key=str)
