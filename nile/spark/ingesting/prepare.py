"""Preparing a stream on Spark: read, type, validate, quarantine, filter, order, number, write.

The rules are the direct path's (see `nile.streams.manager`), so a stream is the same tuples in the same
order whichever way it came.  Rows are sorted by (ts, arrival) whatever their disorder: Spark sees the whole
input, so no lateness needs to be declared and no tuple is late.

Cost.  One reading of the input, kept typed in memory (on disk where memory ends); one pass over it to count;
one to sort and write.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.base.cells import misfit_reason
from nile.base.plain import decoded_type
from nile.base.times import UNPARSABLE_TIME
from nile.expressions.conditions import Condition
from nile.expressions.spark_text import quoted
from nile.spark.failure import spark_failures
from nile.spark.ingesting.folder_cells import stored_columns, with_folder_cells
from nile.spark.ingesting.rows import Rows, csv_rows, name_sql, parquet_rows
from nile.spark.paths import check_output, plain_links
from nile.spark.sqltypes import cell_sql, key_sql, read_type, shown_sql, time_sql, value_sql
from nile.streams.files.csv import WRONG_FIELDS, CsvSource
from nile.streams.files.folders import FolderColumns, FolderSource
from nile.streams.files.parquet import ParquetSource
from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import KeyTypeError
from nile.summaries.heavy import pa, pq
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_A_PART = 4_000_000  # tuples that one task sorts, and one part file holds
_PLACE = (1 << 33) - 1  # the bits of monotonically_increasing_id that count within a partition


@dataclass(frozen=True, slots=True)
class PrepareSpec:
    """A stream to prepare: what messages call it, its file, its time and key columns, its rows."""

    name: str
    path: Path
    time: str
    key: str
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared stream and where every tuple of its source went.

    path: a directory of part-*.parquet with ordinal int64 (from 0), ts int64 (ns), key, in order.
    rows: tuples written.  tuples_in: rows plus rejected.  rejected: by reason.  quarantine_path: a directory
    of Parquet with the rejected rows: reason, row (from 1 in the source), raw.  first_ts, last_ts: ns, None
    for a stream without tuples.
    """

    path: Path
    rows: int
    tuples_in: int
    rejected: dict[str, int]
    quarantine_path: Path
    first_ts: int | None
    last_ts: int | None


def prepare(
    spark: SparkSession,
    spec: PrepareSpec,
    out: Path,
    on_progress: Callable[[str], None] | None = None,
    *,
    rows_a_part: int = _ROWS_A_PART,
) -> Prepared:
    """Writes the stream that `spec` describes to the directory `out`, replacing it.

    rows_a_part: how many tuples a part file holds, about; what is written does not depend on it.
    spark: the session of `spark_session()`, whose settings the rules need.
    Raises what a StreamManager of the same specification raises (SourceMissing, SourceError, UnknownColumn,
    KeyTypeError, ExpressionError), ConfigError (`out` holds other things) and SparkFailed.
    """
    say = on_progress or (lambda _: None)
    where = f"stream '{spec.name}'"
    manager = StreamManager(StreamSpec(spec.name, str(spec.path), spec.time, spec.key, spec.where))
    _check_key(manager, spec)
    check_output(out, where, (spec.path,))
    with (
        tempfile.TemporaryDirectory(prefix="nile-prepare-") as scratch,
        spark_failures(where, source=spec.path),
    ):
        say(f"{spec.name}: reading {spec.path.name}")
        with _rows(spark, manager.source, spec, Path(scratch)) as rows:
            tuples = _tuples(rows, manager.source.schema, spec).persist()
            try:
                return _write(tuples, rows, spec, out, rows_a_part, say)
            finally:
                tuples.unpersist()


def _check_key(manager: StreamManager, spec: PrepareSpec) -> None:
    kind = manager.key_type
    times = pa.types.is_timestamp(kind) and kind.unit == "ns"
    if times or pa.types.is_duration(kind) or read_type(kind) is None:
        raise KeyTypeError(
            f"stream '{spec.name}': key column '{spec.key}': Spark cannot carry {kind}; cast it to another type "
            "(timestamp[us], int64), or register the file directly, without Spark"
        )
    source, folders = _file_of(manager.source)
    if isinstance(source, ParquetSource):
        for column in stored_columns(folders, source.schema, _columns(spec)):
            if column in source.rewritten:
                raise KeyTypeError(
                    f"stream '{spec.name}': {'key ' * (column == spec.key)}column '{column}': Spark cannot carry its "
                    "type in the file, which only Arrow reads; cast it to another type (float, text), or register the "
                    "file directly, without Spark"
                )


def _columns(spec: PrepareSpec) -> list[str]:
    condition = spec.where.columns if spec.where else ()
    return list(dict.fromkeys((spec.time, spec.key, *condition)))


def _file_of(source: Any) -> tuple[Any, FolderColumns]:
    """(the source of what files hold, what the names of folders say)."""
    return (source.file, source.folders) if isinstance(source, FolderSource) else (source, FolderColumns.of([]))


@contextmanager
def _rows(spark: SparkSession, source: Any, spec: PrepareSpec, scratch: Path) -> Iterator[Rows]:
    path, columns = spec.path.expanduser(), _columns(spec)
    files = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
    file, folders = _file_of(source)
    stored = stored_columns(folders, file.schema, columns)
    with plain_links(files) as links:
        if isinstance(file, CsvSource):
            read = csv_rows(spark, file, links[0], stored, scratch)
        else:
            read = parquet_rows(spark, file, files, links, stored)
        yield with_folder_cells(read, folders, stored, columns)


def _tuples(rows: Rows, schema: pa.Schema, spec: PrepareSpec) -> DataFrame:
    """The rows that count as in: `ts`, `key`, `why` (a reason, or null), `raw` (text where a reason), arrival."""
    columns = _columns(spec)
    kinds = [decoded_type(schema.field(column).type) for column in columns]
    time, key = columns.index(spec.time), columns.index(spec.key)
    condition = [columns.index(column) for column in (spec.where.columns if spec.where else ())]

    def misfits(wanted: list[int]) -> str:
        """Why a row is rejected for a cell of these columns: for the first that does not fit its type."""
        reasons = [UNPARSABLE_TIME if at == time else misfit_reason(columns[at], kinds[at]) for at in wanted]
        return " ".join(f"WHEN misfit{at} THEN {quoted(why)}" for at, why in zip(wanted, reasons, strict=True))

    frame = _typed(rows, kinds)
    broken = f"WHEN broken IS NOT NULL THEN {quoted(WRONG_FIELDS)}"
    frame = frame.selectExpr("*", f"CASE {broken} {misfits(condition)} END AS early")
    if spec.where:
        # The condition names columns as the source does; ours stand aside in one whose name it cannot use.
        box = "nile" + "_" * max(map(len, columns))
        named = [f"{value_sql(f'raw{at}', kinds[at])} AS {name_sql(columns[at])}" for at in condition]
        frame = frame.selectExpr(f"struct(*) AS {box}", *named)
        # A null condition does not select; neither does null OR one.
        frame = frame.where(f"{box}.early IS NOT NULL OR {spec.where.spark(schema)}").selectExpr(f"{box}.*")
    told = time_sql(f"raw{time}", kinds[time])
    late = f"CASE {misfits(list(dict.fromkeys((time, key))))} ELSE {told.reason} END"
    keys = key_sql(f"raw{key}", kinds[key])
    frame = frame.selectExpr("*", f"coalesce(early, {late}) AS why", f"{told.ns} AS ts", f"{keys} AS key")
    cells = ", ', ', ".join(f"{quoted(column + '=')}, coalesce(text{at}, 'null')" for at, column in enumerate(columns))
    raw = f"IF(why IS NULL, NULL, coalesce(broken, concat({cells})))"
    return frame.selectExpr("ts", "key", "why", f"{raw} AS raw", *rows.arrival)


def _typed(rows: Rows, kinds: list[pa.DataType]) -> DataFrame:
    """For each cell its text, its raw typed form, and whether it does not fit its type."""
    typed = []
    for at, kind in enumerate(kinds):
        if rows.text:
            cell = cell_sql(f"cell{at}", kind)
            typed += [f"cell{at} AS text{at}", f"{cell.raw} AS raw{at}", f"{cell.misfit} AS misfit{at}"]
        else:
            shown = f"CAST({shown_sql(f'cell{at}', kind)} AS STRING)"
            typed += [f"{shown} AS text{at}", f"cell{at} AS raw{at}", f"FALSE AS misfit{at}"]
    return rows.frame.selectExpr(*typed, "broken", *rows.arrival)


def _write(
    tuples: DataFrame, rows: Rows, spec: PrepareSpec, out: Path, rows_a_part: int, say: Callable[[str], None]
) -> Prepared:
    """Counts the tuples, then writes those without a reason in order and the others to the quarantine."""
    parts = -(-rows.most // rows_a_part)
    counts = [functions.expr(text) for text in ("count(*) AS n", "min(ts) AS first", "max(ts) AS last")]
    if parts > 1:
        shares = ", ".join(f"{part / parts!r}D" for part in range(1, parts))
        counts.append(functions.expr(f"percentile_approx(ts, array({shares})) AS cuts"))
    by_reason = {row["why"]: row for row in tuples.groupBy("why").agg(*counts).collect()}
    good = by_reason.pop(None, None)
    rejected = {reason: row["n"] for reason, row in sorted(by_reason.items())}
    count = good["n"] if good else 0
    say(f"{spec.name}: ordering {count:,} tuples, {sum(rejected.values()):,} rejected")
    cuts: list[int] = []
    wanted = -(-count // rows_a_part)
    if wanted > 1:
        cuts = sorted({good["cuts"][part * parts // wanted - 1] for part in range(1, wanted)})
    _in_order(tuples.where("why IS NULL"), rows.arrival, cuts).write.mode("overwrite").parquet(str(out))
    quarantine = out / "_quarantine"
    if rejected:
        bad = rows.numbered(tuples.where("why IS NOT NULL")).selectExpr("why AS reason", "row", "raw")
        bad.coalesce(1).sortWithinPartitions("row").write.parquet(str(quarantine))
    else:
        quarantine.mkdir()
        empty = pa.schema([("reason", pa.string()), ("row", pa.int64()), ("raw", pa.string())])
        pq.write_table(empty.empty_table(), quarantine / "part-00000.parquet")
    return Prepared(
        out,
        count,
        count + sum(rejected.values()),
        rejected,
        quarantine,
        good["first"] if good else None,
        good["last"] if good else None,
    )


def _in_order(tuples: DataFrame, arrival: tuple[str, ...], cuts: list[int]) -> DataFrame:
    """ordinal, ts, key in order of (ts, arrival): one partition, or one more than there are `cuts` of ts."""
    place = "monotonically_increasing_id()"  # partition << 33, plus the place in it
    if not cuts:
        sized, ordinal = tuples.coalesce(1), place
    else:
        part = f"size(filter(array({', '.join(f'{cut}L' for cut in cuts)}), cut -> cut <= ts))"
        sizes = dict(tuples.groupBy(functions.expr(part)).count().collect())
        before = list(accumulate((sizes.get(at, 0) for at in range(len(cuts))), initial=0))
        sized = tuples.repartitionById(len(before), functions.expr(part))
        starts = ", ".join(f"{start}L" for start in before)
        ordinal = f"element_at(array({starts}), CAST(shiftright({place}, 33) AS INT) + 1) + ({place} & {_PLACE}L)"
    return sized.sortWithinPartitions("ts", *arrival).selectExpr(f"{ordinal} AS ordinal", "ts", "key")
