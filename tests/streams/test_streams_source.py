"""Everything a stream can be read from."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import nile
from nile.streams.source import Source, open_source
from nile.summaries.errors import NileError, SourceError, SourceMissing, UnknownColumn

TABLE = pa.table({"ts": [1, 2, 3, 4], "key": ["a", "b", None, "d"]})


def rows(source: Source, size: int = 3) -> list[dict[str, Any]]:
    batches = list(source.batches(["ts", "key"], size))
    assert all(0 < len(raw.batch) <= size for raw in batches)
    assert [n for raw in batches for n in raw.rows.tolist()] == list(range(1, 5))
    return [row for raw in batches for row in raw.batch.to_pylist()]


def generator() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=1)


class Batches:
    """An iterable that is no iterator."""

    def __iter__(self) -> Iterator[Any]:
        yield TABLE.slice(0, 1)
        yield TABLE.slice(1, 0)
        yield {"key": ["b", None, "d"], "ts": np.array([2, 3, 4], np.int32)}


REPLAYABLE: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "record batch": lambda: TABLE.to_batches()[0],
    "dict of columns": lambda: {"ts": [1, 2, 3, 4], "key": ["a", "b", None, "d"]},
    "pandas": lambda: TABLE.to_pandas(),
    "polars": lambda: pl.from_arrow(TABLE),
    "polars, not computed yet": lambda: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "dataset": lambda: ds.dataset(TABLE),
    "duckdb": lambda: duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'd')) AS t(ts, key)"),
    "list of batches": lambda: TABLE.to_batches(max_chunksize=1),
    "list of DataFrames": lambda: [TABLE.slice(0, 2).to_pandas(), pl.from_arrow(TABLE.slice(2, 2))],
    "iterable": Batches,
    "function giving a generator": lambda: generator,
    "function giving a table": lambda: lambda: TABLE,
    "function giving a reader": lambda: lambda: TABLE.to_reader(),
    "dictionary of views": lambda: pa.table({"ts": [1, 2, 3, 4], "key": TABLE["key"].cast(pa.string_view())}),
}  # fmt: skip
ONCE: dict[str, Callable[[], Any]] = {"reader": lambda: TABLE.to_reader(max_chunksize=2), "generator": generator}


@pytest.mark.parametrize("make", [*REPLAYABLE.values(), *ONCE.values()], ids=[*REPLAYABLE, *ONCE])
def test_a_source_can_be_many_things(make: Callable[[], Any]) -> None:
    source = open_source(make(), name="stream 's'")
    assert isinstance(source, Source)
    assert rows(source) == TABLE.to_pylist()


@pytest.mark.parametrize("make", REPLAYABLE.values(), ids=REPLAYABLE)
def test_what_can_be_read_again_gives_the_same_rows(make: Callable[[], Any]) -> None:
    source = open_source(make(), name="stream 's'")
    assert [rows(source) for _ in range(3)] == [TABLE.to_pylist()] * 3


@pytest.mark.parametrize("make", ONCE.values(), ids=ONCE)
def test_what_can_be_read_once_says_so_the_second_time(make: Callable[[], Any]) -> None:
    source = open_source(make(), name="stream 's'")
    rows(source)
    with pytest.raises(SourceError, match=r"^stream 's': .* can be read once, and has been; register"):
        rows(source)


def test_files_are_told_by_their_names(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.PARQUET")
    (tmp_path / "t.csv").write_text("key,ts\na,1\nb,2\n,3\nd,4\n")
    for name in ("t.PARQUET", "t.csv"):
        assert rows(open_source(str(tmp_path / name), name="s")) == TABLE.to_pylist()
        assert rows(open_source(tmp_path / name, name="s")) == TABLE.to_pylist()


def test_a_source_is_taken_as_it_is() -> None:
    source = open_source(TABLE, name="s")
    assert open_source(source, name="other") is source


def test_opening_a_generator_takes_only_its_first_batch() -> None:
    taken = []

    def endless() -> Iterator[pa.Table]:
        while True:
            taken.append(1)
            yield TABLE

    source = open_source(endless(), name="s")
    assert source.schema == TABLE.schema
    assert len(taken) == 1
    next(iter(source.batches(["ts"], 2)))
    assert len(taken) == 1


def test_pandas_gives_its_missing_values_as_nulls() -> None:
    source = open_source(pd.DataFrame({"ts": [1.0, np.nan], "key": ["a", None]}), name="s")
    (raw,) = source.batches(["ts", "key"], 5)
    assert raw.batch.to_pydict() == {"ts": [1.0, None], "key": ["a", None]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "got int"),
        (None, "got NoneType"),
        (b"ts,key", "got bytes"),
        ([], "the iterable is empty"),
        (iter(()), "the iterable is empty"),
        ([5], "item 1: needed a record batch, a table, a DataFrame or a dict of columns; got int"),
        (["data.csv"], "item 1: needed .* got str"),
        ({"ts": [1], "key": [1, 2]}, "the columns do not make a table"),
        ({"ts": 5, "key": object()}, "the columns do not make a table"),
        ({"ts": [1], "key": [1 << 70]}, "at most 64 bits; got one beyond in column 'key'"),
        (pd.DataFrame({"ts": [1, "x", object()]}), "Arrow cannot read column 'ts' of this DataFrame"),
        (lambda: 5, "got int"),
        (lambda: lambda: TABLE, "the function returned another function"),
        ("s3://bucket/data.parquet", "needed a local file"),
    ],
)
def test_what_cannot_be_a_stream_is_refused(data: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        open_source(data, name="stream 's'")
    assert str(error.value).startswith("stream 's'")


def test_files_that_cannot_be_a_stream_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SourceError, match=r"needed a \.parquet, \.csv or \.ndjson file .*; got '.*notes.txt'"):
        open_source(tmp_path / "notes.txt", name="s")
    with pytest.raises(SourceMissing, match=r"did you mean 'notes\.txt'"):
        open_source(tmp_path / "note.txt", name="s")
    with pytest.raises(SourceError, match="got a directory"):
        open_source(tmp_path, name="s")


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"ts": [1.5], "key": ["a"]}, "batch 2: column 'ts' was int64 in the first batch and is double here"),
        ({"ts": ["x"], "key": ["a"]}, "batch 2: column 'ts' was int64 in the first batch and is string here"),
    ],
)
def test_a_later_batch_of_other_types_is_refused(later: dict[str, Any], message: str) -> None:
    source = open_source([TABLE, later], name="stream 's'")
    with pytest.raises(SourceError, match=message):
        list(source.batches(["ts", "key"], 10))


def test_a_later_batch_without_a_column_is_refused() -> None:
    source = open_source([TABLE, {"ts": [1]}], name="stream 's'")
    with pytest.raises(UnknownColumn, match="stream 's': batch 2: there is no column 'key'"):
        list(source.batches(["ts", "key"], 10))


def test_a_later_batch_that_converts_is_converted() -> None:
    later = pa.table({"ts": pa.array([5], pa.uint8()), "key": pa.array(["e"]).dictionary_encode()})
    source = open_source([TABLE, later, {"ts": [None], "key": [None]}], name="s")
    batches = [raw.batch for raw in source.batches(["ts", "key"], 10)]
    assert {batch.schema for batch in batches} == {TABLE.schema}
    assert pa.Table.from_batches(batches)["ts"].to_pylist() == [1, 2, 3, 4, 5, None]


def test_a_fault_in_the_users_generator_comes_through_unchanged() -> None:
    def failing() -> Iterator[pa.Table]:
        yield TABLE
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(open_source(failing(), name="s").batches(["ts"], 10))


@pytest.mark.parametrize(
    "columns",
    [
        {"ts": [1, 2], "x": [1.0, 2.0]},
        {"x": range(2), "ts": (1.0, 2.0)},
        {"ts": np.array([1, 2], "f4"), "x": np.array([1, 2], "u8")},
        {"ts": np.array([1, 2], "f2"), "x": [None, None]},
        {"ts": np.ma.array([1.0, 2.0], mask=[0, 1]), "x": [1, 2]},
        {"ts": [1.0, math.nan], "x": [True, None]},
        {"ts": ["1", "2"], "x": ["3", "4"]},
        {"ts": [1], "x": [1.5]},
        {"ts": [1 << 60], "x": [1]},
        {"ts": [1.0], "x": [1, 2]},
        {"ts": [], "x": []},
        {"ts": np.array([[1.0]]), "x": [1]},
        {"ts": [2.0, 1.0], "x": [1, 2]},
        {"ts": [1.0], "x": [1], "y": [1]},
        {"ts": [1.0]},
    ],
    ids=str,
)
def test_a_dict_that_is_pushed_comes_as_from_an_iterator(columns: dict[str, Any]) -> None:
    """Of a dict with just a stream's columns arrays are made at once, of other things through a table."""

    def pushed(data: Any) -> tuple[Any, ...]:
        db = nile.connect()
        db.stream("s", [("ts", "float64"), ("x", "int64")], time="ts")
        try:
            told: Any = db.push("s", data)
        except NileError as error:
            told = type(error), str(error).replace("item 1: ", "")
        return told, db.sql("SELECT ts, x FROM s").fetchall(), db.accounting("s")

    assert pushed(columns) == pushed(iter([columns]))
