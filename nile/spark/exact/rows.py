"""Exact selections and aggregates of a stream on Spark: counts and histograms, and sums by time and key.

Rows stay where they are: what comes back is a bin or a group a row.  Conditions mean what they mean
everywhere in Nile (`nile.expressions.conditions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.plain import decoded_type
from nile.expressions.conditions import Condition
from nile.spark.exact.counts import BINS, bin_sql
from nile.spark.exact.input import TupleFiles
from nile.spark.failure import spark_failures
from nile.spark.paths import check_output, plain_links
from nile.spark.progress import Listener, job
from nile.spark.sqltypes import read_type, value_sql
from nile.summaries.errors import ConfigError, SourceError, SparkFailed, SumOverflow, UnknownColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SelectionTruth", "exact_aggregates", "exact_selection"]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionTruth:
    """An exact selection, counted.

    rows: of the stream; selected; keys: distinct keys selected (null is none).  key_histogram int64[100]: by
    rank of the key among these; time_histogram int64[100]: by event time over [first, last], ns, of the rows
    selected.  path: a directory of Parquet with the ordinals selected, None when not asked for.
    """

    rows: int
    selected: int
    keys: int
    key_histogram: np.ndarray[Any, Any]
    time_histogram: np.ndarray[Any, Any]
    first: int | None
    last: int | None
    path: Path | None


def exact_selection(
    spark: SparkSession,
    stream: TupleFiles,
    condition: Condition | None,
    *,
    out: Path | None = None,
    on_progress: Listener | None = None,
) -> SelectionTruth:
    """Counts the tuples of a stream that a condition selects.

    out: a directory to write their ordinals to, replaced when it exists.  Cost: one reading of the columns
    needed.  Raises UnknownColumn, ExpressionError, SourceError, ConfigError, SparkFailed.
    """
    if out is not None:
        check_output(out, "exact selection", [])
    with (
        spark_failures(f"exact selection of {stream.name}", files=stream.files),
        _rows(spark, stream, condition) as (
            rows,
            selected,
        ),
    ):
        with job(spark, "exact: selecting", on_progress, rows):
            chosen = selected(["_nile_ordinal", "_nile_ts", "_nile_key"]).persist()
            total, first, last = chosen.selectExpr("count(*)", "min(_nile_ts)", "max(_nile_ts)").collect()[0]
        try:
            by_key, by_time = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
            keys = 0
            with job(spark, "exact: counting", on_progress, total):
                groups = chosen.where("_nile_key IS NOT NULL").groupBy("_nile_key").count()
                ranks = groups.selectExpr(
                    "count AS n", "row_number() OVER (ORDER BY _nile_key) - 1 AS rank", "count(*) OVER () AS keys"
                ).selectExpr("n", "keys", f"CAST(rank AS BIGINT) * {BINS} DIV keys AS bin")
                for row in ranks.groupBy("bin", "keys").agg({"n": "sum"}).collect():
                    keys, by_key[row["bin"]] = row["keys"], row["sum(n)"]
                if total:
                    since = f"(_nile_ts - ({first}))"
                    bins = chosen.selectExpr(f"{bin_sql(since, last - first)} AS bin").groupBy("bin")
                    for row in bins.count().collect():
                        by_time[row["bin"]] = row["count"]
            if out is not None:
                with job(spark, "exact: writing", on_progress, total):
                    chosen.selectExpr("_nile_ordinal AS ordinal").write.mode("overwrite").parquet(str(out.absolute()))
        finally:
            chosen.unpersist()
    return SelectionTruth(rows, total, keys, by_key, by_time, first, last, out)


def exact_aggregates(
    spark: SparkSession,
    stream: TupleFiles,
    value: str,
    *,
    every: int | None = None,
    by_key: bool = False,
    condition: Condition | None = None,
    on_progress: Listener | None = None,
) -> pa.Table:
    """count, sum, sum of squares, min and max of a column of numbers, by time bucket and key if asked.

    every: ns; a bucket holds the tuples with ts in [k every, (k + 1) every); None: one bucket, of all.
    Columns: begin (int64 ns, with `every`), key (with `by_key`), rows, count (values not null), sum, squares
    (double), min, max; ordered by (begin, key).  A sum of whole numbers is exact, one of floats is not.
    Raises UnknownColumn, ConfigError, SumOverflow, SourceError, SparkFailed.
    """
    if every is not None and every <= 0:
        raise ConfigError(f"exact aggregates: every must be more than 0 ns, or None, not {every}")
    groups = (["begin"] if every is not None else []) + (["key"] if by_key else [])
    try:
        with (
            spark_failures(f"exact aggregates of {stream.name}", files=stream.files),
            _rows(spark, stream, condition, value) as (rows, selected),
            job(spark, "exact: aggregating", on_progress, rows),
        ):
            begin = "0L" if every is None else f"_nile_ts - pmod(_nile_ts, {every}L)"
            number = "CAST(_nile_value AS DOUBLE)"
            frame = selected([f"{begin} AS begin", "_nile_key AS key", "_nile_value"])
            aggregated = frame.groupBy(*groups).agg(
                *_expressions(
                    "count(*) AS rows",
                    "count(_nile_value) AS count",
                    "sum(_nile_value) AS sum",
                    f"sum({number} * {number}) AS squares",
                    "min(_nile_value) AS min",
                    "max(_nile_value) AS max",
                )
            )
            return aggregated.orderBy(*groups).toArrow() if groups else aggregated.toArrow()
    except SparkFailed as error:
        if "overflow" not in str(error).lower():
            raise
        raise SumOverflow(
            f"exact aggregates of {stream.name}: the sum of '{value}' passes 64 bits; use smaller buckets (every=)"
        ) from None


@contextmanager
def _rows(
    spark: SparkSession, stream: TupleFiles, condition: Condition | None, value: str | None = None
) -> Iterator[tuple[int, Callable[[list[str]], DataFrame]]]:
    """How many tuples there are, and a frame of those selected with `_nile_ordinal`, `_nile_ts`, `_nile_key` and,
    if asked for, `_nile_value`."""
    if not stream.files:
        raise SourceError(f"{stream.name}: needed a stream with tuples; the lake has none of it yet; ingest some")
    from pyarrow.parquet import read_metadata, read_schema

    schema = read_schema(stream.files[0])
    asked = dict.fromkeys((stream.ordinal, stream.ts, stream.key, *(condition.columns if condition else ())))
    named = list(asked if value is None else asked | {value: None})
    for name in named:
        if name not in schema.names:
            raise UnknownColumn(f"{stream.name}: there is no column '{name}'; it has {', '.join(schema.names)}")
    kinds = {name: decoded_type(schema.field(name).type) for name in named}
    if value is not None and not _is_number(kinds[value]):
        raise ConfigError(f"{stream.name}: needed a column of numbers to aggregate; '{value}' is {kinds[value]}")
    stored = ", ".join(f"{_quoted(name)} {read_type(kind)}" for name, kind in kinds.items())
    rows = sum(read_metadata(file).num_rows for file in stream.files)
    with plain_links(stream.files) as links:
        raw = spark.read.schema(stored).parquet(*map(str, links))
        own = {"_nile_ordinal": stream.ordinal, "_nile_ts": stream.ts, "_nile_key": stream.key}
        given = [f"{_quoted(name)} AS {alias}" for alias, name in own.items()]
        if value is not None:
            given.append(f"{_quoted(value)} AS _nile_value")
        wanted = [f"{value_sql(_quoted(name), kinds[name])} AS {_quoted(name)}" for name in
                  (condition.columns if condition else ())]  # fmt: skip
        frame = raw.selectExpr(*given, *wanted)
        if condition is not None:
            frame = frame.where(condition.spark(schema))
        yield rows, lambda columns: frame.selectExpr(*columns)


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _is_number(kind: pa.DataType) -> bool:
    return str(kind).startswith(("int", "uint", "float", "double", "decimal"))
