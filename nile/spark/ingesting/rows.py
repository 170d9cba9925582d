"""A source's rows in Spark: every one with its place of arrival, cells not yet typed.

Parquet gives columns as they are stored.  CSV gives text cells, by one of two ways.  A file without a double
quote is plain lines, which Spark reads in parallel, wherever it cuts the file.  Quoted cells may hold line
ends, so such a file can only be read from its start: the direct path's reader cuts it into cells, once, and
Spark goes on from there.  Both ways cut exactly as the direct path does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nile.base.plain import decoded_type
from nile.spark.sqltypes import read_type
from nile.streams.files.csv import CsvSource
from nile.streams.files.parquet import ParquetSource
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = 1 << 22  # bytes looked at in one go for a quote
_ROWS = 65_536  # rows cut into cells in one go
_SHORTEST = 2  # bytes of the shortest line that is not blank


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source.

    frame: a column `cell0`, `cell1`, ... for each asked column, `broken` (the text of a row that has no
    columns, else null), and those named in `arrival`, which put rows in the order they came; of several files
    `file`, the number of each, from 0.
    text: cells are text (CSV).  most: an upper bound on the number of rows.
    numbered: `frame`'s rows with `row`, their number in the source from 1; may read the source again.
    """

    frame: DataFrame
    arrival: tuple[str, ...]
    text: bool
    most: int
    numbered: Callable[[DataFrame], DataFrame]


def name_sql(column: str) -> str:
    """A column's name in Spark SQL."""
    return "`" + column.replace("`", "``") + "`"


def parquet_rows(
    spark: SparkSession, source: ParquetSource, files: Sequence[Path], links: Sequence[Path], columns: Sequence[str]
) -> Rows:
    """The rows of Parquet `files`, read through `links` of the same order.  Raises SourceError."""
    before, most = [], 0
    for file in files:
        before.append(f"{most}L")
        most += pq.read_metadata(file).num_rows
    stored, cells = [], []
    for at, column in enumerate(columns):
        kind = decoded_type(source.schema.field(column).type)
        read = read_type(kind)
        if read is None:
            raise SourceError(
                f"{source.name}: Spark cannot read column '{column}' of type {kind}; convert the column, "
                "or register the file directly, without Spark"
            )
        # A column of nulls alone is stored as integers that are not there.
        stored.append(f"{name_sql(column)} {read}")
        cells.append(f"{name_sql(column)} AS cell{at}")
    # Links are numbered, so the file's name says how many rows came before.
    part = "CAST(left(_metadata.file_name, 6) AS INT)"
    row = "_metadata.row_index + 1L" + (
        f" + element_at(array({', '.join(before)}), {part} + 1)" if len(files) > 1 else ""
    )
    frame = (
        spark.read.schema(", ".join(stored))
        .parquet(*map(str, links))
        .selectExpr(*cells, "CAST(NULL AS STRING) AS broken", f"{row} AS row", f"{part} AS file")
    )
    return Rows(frame, ("row",), False, most, lambda rows: rows)


def csv_rows(spark: SparkSession, source: CsvSource, link: Path, columns: Sequence[str], scratch: Path) -> Rows:
    """The rows of a CSV file, read through `link`; `scratch` is a directory to write in.  Raises SourceError."""
    if _has_quotes(source.path):
        return _cut_rows(spark, source, columns, scratch)
    return _line_rows(spark, source, link, columns)


def _line_rows(spark: SparkSession, source: CsvSource, link: Path, columns: Sequence[str]) -> Rows:
    """Lines that Spark reads itself: those of one split come in order, and splits by where they start."""
    lines = (
        spark.read.text(str(link))
        .selectExpr("make_valid_utf8(value) AS line", "_metadata.file_block_start AS split")
        .where("line <> ''")
        .selectExpr("*", "monotonically_increasing_id() AS place")
        # The first split is the first that Spark hands out, so its first line, the header, is place 0.
        .where("NOT (split = 0 AND place = 0)")
        .selectExpr("*", "split(line, ',', -1) AS fields")
    )
    names = source.schema.names
    whole = f"size(fields) = {len(names)}"
    cells = [f"IF({whole}, fields[{names.index(column)}], '') AS cell{at}" for at, column in enumerate(columns)]
    frame = lines.selectExpr(*cells, f"IF({whole}, NULL, line) AS broken", "split", "place")

    def numbered(rows: DataFrame) -> DataFrame:
        splits = (
            lines.groupBy("split")
            .agg({"place": "min", "*": "count"})
            .selectExpr(
                "split",
                "`min(place)` AS first",
                "sum(`count(1)`) OVER (ORDER BY split) - `count(1)` + 1L AS start",
            )
        )
        return rows.join(splits, "split").selectExpr("*", "place - first + start AS row")

    return Rows(frame, ("split", "place"), True, source.path.stat().st_size // _SHORTEST, numbered)


def _cut_rows(spark: SparkSession, source: CsvSource, columns: Sequence[str], scratch: Path) -> Rows:
    """Rows that the direct path's reader cuts into cells, put down for Spark as a Parquet file of text."""
    names = [f"cell{at}" for at in range(len(columns))]
    text = pa.string()
    schema = pa.schema([*((name, text) for name in names), ("broken", text), ("row", pa.int64())])
    file, most = scratch / "cells.parquet", 0
    with pq.ParquetWriter(file, schema) as writer:
        for raw in source.batches(columns, _ROWS):
            most += len(raw.rows) + len(raw.malformed)
            assert raw.text is not None  # a CSV source always tells it
            cells = [raw.text.column(raw.text.schema.get_field_index(column)) for column in columns]
            nothing = pa.nulls(len(raw.rows), text)
            if len(raw.rows):
                writer.write_batch(pa.record_batch([*cells, nothing, pa.array(raw.rows)], schema=schema))
            if raw.malformed:
                broken = [{"broken": bad.raw, "row": bad.row} | dict.fromkeys(names, "") for bad in raw.malformed]
                writer.write_batch(pa.RecordBatch.from_pylist(broken, schema=schema))
    return Rows(spark.read.parquet(str(file)), ("row",), True, most, lambda rows: rows)


def _has_quotes(path: Path) -> bool:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if b'"' in block:
                return True
    return False
