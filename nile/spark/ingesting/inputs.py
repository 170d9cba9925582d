"""Batch inputs of an ingest: Parquet, CSV and JSON-lines files, tables and DataFrames of Spark.

Each gives its columns, a digest of its content, and its rows as cells in the order they came.  Files follow
the direct path's rules (`nile.streams`): the same rows are rejected, for the same reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.base.machine import core_count
from nile.base.plain import decoded_schema
from nile.expressions.spark_text import quoted
from nile.spark.ingesting.folder_cells import stored_columns, with_folder_cells
from nile.spark.ingesting.rows import Rows, csv_rows, name_sql, parquet_rows
from nile.spark.paths import plain_links
from nile.spark.sqltypes import read_type
from nile.streams.files.csv import CsvSource, type_alike
from nile.streams.files.folders import FolderColumns, files_below
from nile.streams.files.json_lines import infer_json
from nile.streams.files.many import files_of, is_glob, ordered_as
from nile.streams.files.parquet import ParquetSource
from nile.streams.files.paths import existing_path
from nile.streams.frames import frame_schema
from nile.summaries.errors import SourceError, SourceMissing
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Input", "open_input"]

Started = Callable[[], "SparkSession"]
"""Gives the session, which is started when it is first asked for."""
_JSON = (".json", ".jsonl", ".ndjson")
_SUFFIXES = (".parquet", ".pq", ".csv", *_JSON)
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Input:
    """An input, opened; only what tells the columns has been read.

    name: for messages.  schema: its columns and types as found.  text: cells are text, to be typed by the
    stream's types.  files: what it reads, empty for a table or DataFrame.  digest: of its content, hex.
    rows: given columns and a directory to write in, a context that holds its Rows.
    """

    name: str
    schema: pa.Schema
    text: bool
    files: tuple[Path, ...]
    digest: Callable[[], str]
    rows: Callable[[Sequence[str], Path], Any]


def open_input(spark: Started, source: Any) -> Input:
    """`source` as an input: a path or glob of .parquet, .csv or .json (lines) files, a directory that Spark
    wrote, a table's name, or a DataFrame.

    spark: gives the session; of files not before their rows are read.
    Raises SourceMissing, SourceError (no such kind, broken, files of different columns).
    """
    if not isinstance(source, (str, Path)):
        if hasattr(source, "sparkSession") and hasattr(source, "selectExpr"):
            return _frame_input(source, "the DataFrame")
        raise SourceError(
            f"ingest: needed a path, a glob, a table's name or a Spark DataFrame; got {type(source).__name__}; "
            "write it to a Parquet file first"
        )
    text = str(source)
    if is_glob(text):
        files = [Path(file) for file in files_of(text, name="ingest")]
    else:
        try:
            found = existing_path(text, "Parquet, CSV or JSON file, or a table")
        except SourceMissing:
            if isinstance(source, str) and _is_table(spark(), source):
                return _frame_input(spark().table(source), f"table {source}")
            raise
        files = list(map(Path, files_below(found, "ingest"))) if found.is_dir() else [found]
        if not files:
            return _parquet_input(spark, text, [ParquetSource(found)], sorted(found.glob("part-*.parquet")))
    kinds = {file.suffix.lower() for file in files}
    if kinds <= {".parquet", ".pq"}:
        return _parquet_input(spark, text, [ParquetSource(file) for file in files], files)
    if kinds == {".csv"}:
        return _csv_input(spark, text, [CsvSource(file) for file in files])
    if kinds <= set(_JSON):
        return _json_input(spark, text, files)
    raise SourceError(f"{text}: needed .parquet, .csv or .json files, of one kind; got {', '.join(sorted(kinds))}")


def check_there(source: Any, *, tables: bool = True) -> None:
    """Raises SourceMissing for a path where nothing is, before a session is started to look for a table.

    tables: whether there may be any.
    """
    text, is_path = str(source), isinstance(source, Path)
    if is_path or (isinstance(source, str) and (not tables or "/" in text or Path(text).suffix in _SUFFIXES)):
        files_of(text, name="ingest") if is_glob(text) else existing_path(text, "Parquet, CSV or JSON file, or a table")


def _is_table(spark: SparkSession, name: str) -> bool:
    try:
        return bool(spark.catalog.tableExists(name))
    except Exception:  # a path is often no name that Spark can parse
        return False


def _alike(text: str, files: Sequence[Path], schemas: Sequence[pa.Schema]) -> None:
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        if ordered_as(schemas[0], schema) != schemas[0]:
            raise SourceError(
                f"{text}: needed the same columns in all files; those of {file} ({_listed(schema)}) differ from "
                f"those of {files[0]} ({_listed(schemas[0])}); ingest them one by one, with rules for drift"
            )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# --- Parquet ----------------------------------------------------------------------------------------------


def _parquet_input(spark: Started, text: str, sources: Sequence[ParquetSource], files: list[Path]) -> Input:
    if len(sources) > 1:
        _alike(text, files, [decoded_schema(source.schema) for source in sources])
    folders = FolderColumns.of(files)

    @contextmanager
    def rows(columns: Sequence[str], _scratch: Path) -> Iterator[Rows]:
        stored = stored_columns(folders, sources[0].schema, columns)
        for column in stored:
            if column in sources[0].rewritten:
                raise SourceError(
                    f"{text}: needed columns of types that Spark reads; got '{column}', which only Arrow does (half "
                    "floats, uuid, and what holds them); cast it, and write the file again"
                )
        with plain_links(files) as links:
            read = parquet_rows(spark(), sources[0], files, links, stored)
            yield with_folder_cells(read, folders, stored, columns)

    schema = folders.beside(sources[0].schema)
    return Input(text, schema, False, tuple(files), lambda: _digest_of(files, folders), rows)


# --- CSV --------------------------------------------------------------------------------------------------


def _csv_input(spark: Started, text: str, sources: Sequence[CsvSource]) -> Input:
    files = [source.path for source in sources]
    _alike(text, files, [pa.schema([(name, pa.string()) for name in source.schema.names]) for source in sources])
    type_alike(sources)
    folders = FolderColumns.of(files)

    @contextmanager
    def rows(columns: Sequence[str], scratch: Path) -> Iterator[Rows]:
        stored = stored_columns(folders, sources[0].schema, columns)
        with plain_links(files) as links:
            each = []
            for number, (source, link) in enumerate(zip(sources, links, strict=True)):
                place = scratch / str(number)
                place.mkdir()
                each.append(_in_split(csv_rows(spark(), source, link, stored, place)))
            read = each[0] if len(each) == 1 else _one_after_another(each)
            yield with_folder_cells(read, folders, stored, columns)

    schema = folders.beside(sources[0].schema)
    return Input(text, schema, True, tuple(files), lambda: _digest_of(files, folders), rows)


def _in_split(rows: Rows) -> Rows:
    """The same rows with (split, place) for their arrival, whichever way the file was cut."""
    if rows.arrival == ("split", "place"):
        return rows
    frame = rows.frame.selectExpr("* EXCEPT (row)", "0L AS split", "row AS place")
    return Rows(frame, ("split", "place"), True, rows.most, lambda some: some.selectExpr("*", "place AS row"))


def _one_after_another(each: Sequence[Rows]) -> Rows:
    frame = each[0].frame.selectExpr("*", "0 AS file")
    for number, rows in enumerate(each[1:], 1):
        frame = frame.unionByName(rows.frame.selectExpr("*", f"{number} AS file"))

    def numbered(some: DataFrame) -> DataFrame:
        named = [name_sql(column) for column in (*some.columns, "row")]
        parts = [rows.numbered(some.where(f"file = {at}")).selectExpr(*named) for at, rows in enumerate(each)]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionAll(part)
        return whole

    return Rows(frame, ("file", "split", "place"), True, sum(rows.most for rows in each), numbered)


# --- JSON lines -------------------------------------------------------------------------------------------


def _json_input(spark: Started, text: str, files: Sequence[Path]) -> Input:
    schema = infer_json(files[0])
    folders = FolderColumns.of(files)

    @contextmanager
    def rows(columns: Sequence[str], _scratch: Path) -> Iterator[Rows]:
        stored = stored_columns(folders, schema, columns)
        with plain_links(files) as links:
            read = _json_rows(spark(), links, stored, sum(file.stat().st_size for file in files) // 3)
            yield with_folder_cells(read, folders, stored, columns)

    return Input(text, folders.beside(schema), True, tuple(files), lambda: _digest_of(files, folders), rows)


def _json_rows(spark: SparkSession, links: Sequence[Path], columns: Sequence[str], most: int) -> Rows:
    lines = (
        spark.read.text([str(link) for link in links])
        .selectExpr(
            "make_valid_utf8(value) AS line",
            "CAST(left(_metadata.file_name, 6) AS INT) AS file",
            "_metadata.file_block_start AS split",
        )
        .where("trim(line) <> ''")
        .selectExpr("*", "monotonically_increasing_id() AS place")
    )
    bad = "nile" + "_" * max(map(len, columns))
    wanted = ", ".join(f"{name_sql(column)} STRING" for column in (*columns, bad))
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', {quoted(bad)})"
    parsed = lines.selectExpr("*", f"from_json(line, {quoted(wanted)}, {options}) AS given")
    # What is an array at the top, or no JSON at all, has no columns.
    whole = f"(given IS NOT NULL AND given.{name_sql(bad)} IS NULL AND startswith(ltrim(line), '{{'))"
    cells = [f"IF({whole}, coalesce(given.{name_sql(name)}, ''), '') AS cell{at}" for at, name in enumerate(columns)]
    frame = parsed.selectExpr(*cells, f"IF({whole}, NULL, line) AS broken", "file", "split", "place")

    def numbered(rows: DataFrame) -> DataFrame:
        starts = (
            lines.groupBy("file", "split")
            .agg({"place": "min", "*": "count"})
            .selectExpr(
                "file",
                "split",
                "`min(place)` AS first",
                "sum(`count(1)`) OVER (PARTITION BY file ORDER BY split) - `count(1)` + 1L AS start",
            )
        )
        return rows.join(starts, ["file", "split"]).selectExpr("*", "place - first + start AS row")

    return Rows(frame, ("file", "split", "place"), True, most, numbered)


# --- tables and DataFrames --------------------------------------------------------------------------------


def _frame_input(frame: DataFrame, name: str) -> Input:
    schema = frame_schema(frame, name)

    @contextmanager
    def rows(columns: Sequence[str], _scratch: Path) -> Iterator[Rows]:
        cells = [f"{_ticks(name_sql(one), schema.field(one).type)} AS cell{at}" for at, one in enumerate(columns)]
        cut = frame.selectExpr(*cells, "CAST(NULL AS STRING) AS broken", "monotonically_increasing_id() AS place")
        yield Rows(cut, ("place",), False, 0, lambda some: some.selectExpr("*", "CAST(NULL AS BIGINT) AS row"))

    def digest() -> str:
        columns = ", ".join(name_sql(one) for one in schema.names)
        hashed = frame.selectExpr(f"CAST(xxhash64({columns}) AS DECIMAL(38, 0)) AS h")
        total, count = hashed.selectExpr("sum(h)", "count(*)").collect()[0]
        return hashlib.blake2b(f"{_listed(schema)} {total} {count}".encode(), digest_size=16).hexdigest()

    return Input(name, schema, False, (), digest, rows)


def _ticks(column: str, kind: pa.DataType) -> str:
    """A column of a DataFrame in its raw form; the session's time zone is UTC."""
    if pa.types.is_timestamp(kind):
        return f"unix_micros({column})" if kind.tz else f"unix_micros(CAST({column} AS TIMESTAMP))"
    read = read_type(kind)
    return column if read is None else f"CAST({column} AS {read})"


def _digest_of(files: Sequence[Path], folders: FolderColumns) -> str:
    """Of the content of files in their order, whatever their names but for folders' columns; about 1 GB/s a core."""
    with ThreadPoolExecutor(core_count()) as pool:
        whole = "".join(pool.map(_file_digest, files)) + (repr(sorted(folders.texts.items())) if folders.texts else "")
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def _file_digest(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as data:
        while block := data.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
