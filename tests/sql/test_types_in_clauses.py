"""Types of Arrow: every one in every clause, conversions at the source, and the table of docs/sql.md."""

from __future__ import annotations

import gzip
import uuid
from pathlib import Path
from typing import Any

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
