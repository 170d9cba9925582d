"""Ingest: any batch input of Spark into a stream of the lake, typed, checked, in order, every row accounted for.

    open -> drift? -> type and validate -> duplicates, late ones -> cut by time -> order -> tasks write -> commit

One reading of the input, kept typed in memory (on disk where memory ends); a pass to count, one to sort and
write.  Tasks sort their stretch of time and write its files themselves; only their descriptions come back, so
the driver's memory does not grow with rows.  Nothing is visible before the manifest names it, and an input
that is there already (by its content) changes nothing, so a run after a crash finishes what the first began.
Tuples older than the last one of an earlier batch are late: counted, and set aside with those rejected.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.base.plain import decoded_type
from nile.base.times import UNPARSABLE_TIME
from nile.expressions.spark_text import quoted
from nile.pyramid.lake.lake import LakeStream
from nile.spark.celltypes import misfit_why, text_cell, typed_cell
from nile.spark.failure import needed_packages, spark_failures
from nile.spark.ingesting.drift import check_rules
from nile.spark.ingesting.inputs import Input, check_there, open_input
from nile.spark.ingesting.lake_tasks import ASIDE_ROWS, PART_ROWS, AsideJob, PartJob, part_of
from nile.spark.ingesting.opening import Asked, checked_stream, open_stream
from nile.spark.ingesting.rows import Rows, name_sql
from nile.spark.masters import task_slots
from nile.spark.paths import plain_links
from nile.spark.progress import Listener, job
from nile.spark.session import query_settings, spark_session, would_be_empty
from nile.spark.slices import Stretch, cut_sql, cuts_of, stretches
from nile.spark.sqltypes import read_type, shown_sql, time_sql
from nile.streams.event_ids import DUPLICATE
from nile.streams.files.csv import WRONG_FIELDS
from nile.summaries.errors import SparkFailed
from nile.summaries.heavy import pa
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LATE", "Ingested", "ingest"]

LATE = "late: before the last tuple of an earlier batch"
_ROWS_A_PART = 2_000_000  # tuples that one task sorts, and that one file holds at most, but for equal times
_ROWS_A_TASK = 100_000  # fewer are not worth a task
_ASIDE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Ingested:
    """The outcome of an ingest.  stream: its current state.  batch: the id of the batch, a digest of its content.

    tuples_in = applied + late + duplicate + sum of rejected (by reason); files: written.  repeated: the batch
    had been ingested already and nothing changed; the numbers are then those of the first time.
    """

    stream: LakeStream
    batch: str
    tuples_in: int
    applied: int
    late: int
    duplicate: int
    rejected: Mapping[str, int]
    files: int
    repeated: bool = False

    def __str__(self) -> str:
        """The account, in one line."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())
        rejected = f"{sum(self.rejected.values()):,} rejected" + (f" ({reasons})" if reasons else "")
        again = "; it was there already, nothing changed" if self.repeated else ""
        return (
            f"{self.stream.layout.stream}: {self.tuples_in:,} in = {self.applied:,} applied + {self.late:,} late + "
            f"{self.duplicate:,} duplicate + {rejected}{again}"
        )


def ingest(
    source: Any,
    lake: str | Path,
    *,
    stream: str,
    time: str | None = None,
    key: str | None = None,
    schema: Mapping[str, str] | pa.Schema | None = None,
    event_id: str | None = None,
    drift: Mapping[str, str] | None = None,
    ranges: str | float | None = None,
    bits: int | None = None,
    batch: str | None = None,
    spark: SparkSession | None = None,
    on_progress: Listener | None = None,
    rows_a_part: int = _ROWS_A_PART,
) -> Ingested:
    """Add a batch of rows to a stream of the lake at `lake`; both are created if missing.

    source: as for `open_input`.  time, key: the columns of event time and clustering; required the first
    time.  schema: the stream's columns and types ({"price": "double"}); default: those of the first input.
    event_id: of rows with the same value (nulls are never the same) only the first in order is applied.
    drift: rules for columns that differ (see `nile.spark.ingesting.drift`).  ranges: length of a time range (default:
    a day).  bits: 2 ** bits value buckets (default: 12).  time, key, schema, event_id, ranges and bits are
    fixed when the stream is created; drift is remembered, and can be changed.
    batch: an id for this batch; default: a digest of its content (one more reading, 1 GB/s a core for files).
    Raises SourceMissing, SourceError, SchemaDrift, UnknownColumn, KeyTypeError, ConfigError, StoreLocked,
    StoreWriteError, StoreCorrupt, JavaMissing, SparkFailed.
    """
    where = f"stream '{stream}'"
    needed_packages("ingest")
    check_there(source, tables=spark is not None or not would_be_empty())
    rules = None if drift is None else check_rules(drift, where=where)
    started = cache(lambda: getattr(source, "sparkSession", None) or spark or spark_session())
    given = open_input(started, source)
    asked = Asked(time, key, schema, event_id, ranges, bits)
    checked_stream(lake, stream, given, asked, rules)  # what is wrong is told before Spark has started
    session = started()
    with query_settings(session), open_stream(lake, stream, given, asked, rules).writing() as now:
        with spark_failures(where, files=given.files), job(session, "reading", on_progress):
            number = batch or given.digest()
        known = next((one for one in now.batches if one["id"] == number), None)
        if known is not None:
            return _told(now, known, repeated=True)
        run = _Run(session, given, now, on_progress, rows_a_part)
        with (
            tempfile.TemporaryDirectory(prefix="nile-ingest-") as scratch,
            spark_failures(where, files=given.files),
            given.rows(run.columns, Path(scratch)) as rows,
            plain_links(run.known) as there,
        ):
            return run.finish(rows, there, number)


@dataclass(frozen=True, slots=True)
class _Run:
    """One batch on its way into a stream that nobody else writes."""

    spark: SparkSession
    given: Input
    stream: LakeStream
    listener: Listener | None
    rows_a_part: int

    @property
    def columns(self) -> list[str]:
        """The stream's columns that the input has."""
        return [name for name in self.stream.layout.schema.names if name in self.given.schema.names]

    @property
    def known(self) -> list[Path]:
        """The files whose event ids this batch may repeat."""
        there = self.stream.parts if self.stream.layout.rules["event_id"] is not None else ()
        return [self.stream.path / part.name for part in there]

    def finish(self, rows: Rows, known: Sequence[Path], number: str) -> Ingested:
        """Everything after opening: returns when the batch is in the manifest."""
        layout = self.stream.layout
        tuples = self._classified(self._typed(rows), rows, known).persist()
        try:
            counted, by_reason = self._count(tuples)
            total = sum(counted.values())
            staged = self._write_parts(tuples, rows, counted) if total else []
            aside = self._write_aside(tuples, rows, sum(by_reason.values())) if by_reason else []
        finally:
            tuples.unpersist()
        written, set_aside = sum(part.rows for _, part in staged), sum(count for _, count in aside)
        if (written, set_aside) != (total, sum(by_reason.values())):
            raise SparkFailed(
                f"stream '{layout.stream}': needed {total:,} tuples and {sum(by_reason.values()):,} rows aside; tasks "
                f"wrote {written:,} and {set_aside:,}: the input changed while it was read; run it again"
            )
        late, duplicate = by_reason.pop(LATE, 0), by_reason.pop(DUPLICATE, 0)
        account = {
            "id": number,
            "source": self.given.name,
            "in": total + late + duplicate + sum(by_reason.values()),
            "applied": total,
            "late": late,
            "duplicate": duplicate,
            "rejected": by_reason,
            "files": len(staged),
        }
        return _told(self.stream.commit(staged, account, aside), account)

    def _typed(self, rows: Rows) -> DataFrame:
        """ts, v0, v1, ... (raw cells of the stream's types), why (a reason or null), raw (text, where a reason)."""
        layout, found, read = self.stream.layout, self.given.schema, self.columns
        typed, misfits, shown = [], [], []
        for at, field in enumerate(layout.schema):
            if field.name not in read:
                typed.append(f"CAST(NULL AS {read_type(field.type)}) AS v{at}")
                continue
            cell = f"cell{read.index(field.name)}"
            kind = pa.string() if rows.text else decoded_type(found.field(field.name).type)
            one = text_cell(cell, field.type) if rows.text else typed_cell(cell, kind, field.type)
            typed += [f"{one.raw} AS v{at}", f"{one.misfit} AS misfit{at}"]
            why = UNPARSABLE_TIME if field.name == layout.time else misfit_why(field.name, field.type)
            misfits.append(f"WHEN misfit{at} THEN {quoted(why)}")
            text = cell if rows.text else f"CAST({shown_sql(cell, kind)} AS STRING)"
            shown.append(f"{quoted(field.name + '=')}, coalesce({text}, 'null')")
        cells = ", ', ', ".join(shown)
        frame = rows.frame.selectExpr(*typed, f"concat({cells}) AS shown", "broken", *rows.arrival)
        time = layout.schema.get_field_index(layout.time)
        told = time_sql(f"v{time}", layout.schema.field(time).type)
        broken = f"WHEN broken IS NOT NULL THEN {quoted(WRONG_FIELDS)}"
        values = [f"v{at}" for at in range(len(layout.schema))]
        return frame.selectExpr(
            *values,
            "shown",
            "broken",
            *rows.arrival,
            f"{told.ns} AS ts",
            f"CASE {broken} {' '.join(misfits)} ELSE {told.reason} END AS why",
        )

    def _classified(self, frame: DataFrame, rows: Rows, known: Sequence[Path]) -> DataFrame:
        """The same with duplicates and late tuples told, and text only where there is a reason."""
        layout = self.stream.layout
        if (name := layout.rules["event_id"]) is not None:
            frame = self._first_of(frame, f"v{layout.schema.get_field_index(name)}", name, rows.arrival, known)
        if self.stream.until is not None:
            late = f"IF(ts < {self.stream.until}L, {quoted(LATE)}, NULL)"
            frame = frame.selectExpr("* EXCEPT (why)", f"IF(why IS NULL, {late}, why) AS why")
        text = "IF(why IS NULL, NULL, coalesce(broken, shown)) AS raw"
        return frame.selectExpr("* EXCEPT (shown, broken)", text)

    def _first_of(
        self, frame: DataFrame, value: str, name: str, arrival: Sequence[str], known: Sequence[Path]
    ) -> DataFrame:
        """Marks all but the first tuple of each event id, and those whose id the lake has."""
        counts = f"(why IS NULL AND {value} IS NOT NULL)"
        # Rows that cannot be duplicates stand alone, or all of them would meet in one task.
        alone = ", ".join(f"IF({counts}, NULL, {column})" for column in arrival)
        order = f"ORDER BY ts, {', '.join(arrival)}"
        nth = f"row_number() OVER (PARTITION BY {value}, {counts}, {alone} {order})"
        frame = frame.selectExpr("*", f"({counts} AND {nth} > 1) AS again")
        if known:
            kind = read_type(self.stream.layout.schema.field(name).type)
            reader = self.spark.read.schema(f"{name_sql(name)} {kind}")
            files = [str(link) for link in known]  # whose names say nothing: day=... would be a column to Spark
            there = reader.parquet(*files).selectExpr(f"{name_sql(name)} AS known").where("known IS NOT NULL")
            frame = frame.join(there.distinct(), functions.expr(f"{value} = known"), "left")
            frame = frame.selectExpr("* EXCEPT (again, known)", f"(again OR ({counts} AND known IS NOT NULL)) AS again")
        return frame.selectExpr("* EXCEPT (why, again)", f"IF(again, {quoted(DUPLICATE)}, why) AS why")

    def _count(self, tuples: DataFrame) -> tuple[dict[int, int], dict[str, int]]:
        """Tuples by time range (in order), and rows set aside by reason."""
        length = self.stream.layout.range_ns
        place = f"IF(why IS NULL, (ts - pmod(ts, {length}L)) DIV {length}L, NULL)"
        grouped = tuples.groupBy(functions.expr("why"), functions.expr(f"{place} AS place")).count()
        with job(self.spark, "typing and counting", self.listener):
            found = grouped.collect()
        counted = {row["place"]: row["count"] for row in found if row["why"] is None}
        by_reason = {row["why"]: row["count"] for row in found if row["why"] is not None}
        return dict(sorted(counted.items())), dict(sorted(by_reason.items()))

    def _write_parts(self, tuples: DataFrame, rows: Rows, counted: Mapping[int, int]) -> list[Any]:
        layout, total = self.stream.layout, sum(counted.values())
        good = tuples.where("why IS NULL")
        a_task = min(self.rows_a_part, max(_ROWS_A_TASK, -(-total // task_slots(self.spark))))
        cuts: dict[int, list[int]] = {}
        large = {place: count for place, count in counted.items() if count > self.rows_a_part}
        if large:
            with job(self.spark, "cutting large time ranges", self.listener, sum(large.values())):
                cuts = cuts_of(good, large, layout.range_ns, self.rows_a_part)
        tasks: list[Stretch] = stretches(counted, cuts, layout.range_ns, a_task)
        with job(self.spark, "counting by task", self.listener, total):
            starts = self._starts(good, tasks)
        columns = ["ts", *(f"v{at}" for at in range(len(layout.schema)))]
        ordered = good.repartitionById(len(tasks), functions.expr(cut_sql([one.begin for one in tasks[1:]])))
        ordered = ordered.sortWithinPartitions("ts", *rows.arrival).selectExpr(*columns)
        work = PartJob(
            str(self.stream.staging().absolute()), tuple(starts), layout.schema, layout.key, layout.range_ns,
            layout.bits, layout.group_rows,
        )  # fmt: skip
        with job(self.spark, "ordering and writing", self.listener, total):
            return [part_of(row) for row in ordered.mapInArrow(work.write, PART_ROWS).collect()]

    def _starts(self, good: DataFrame, tasks: Sequence[Stretch]) -> list[int]:
        """The first ordinal of every task."""
        sizes = [one.rows for one in tasks]
        if None in sizes:
            task = functions.expr(f"{cut_sql([one.begin for one in tasks[1:]])} AS task")
            found = {row["task"]: row["count"] for row in good.groupBy(task).count().collect()}
            sizes = [found.get(at, 0) for at in range(len(tasks))]
        starts, following = [], self.stream.tuples
        for size in sizes:
            starts.append(following)
            following += size or 0
        return starts

    def _write_aside(self, tuples: DataFrame, rows: Rows, count: int) -> list[tuple[Path, int]]:
        bad = rows.numbered(tuples.where("why IS NOT NULL")).selectExpr("why AS reason", "row", "raw")
        ordered = bad.repartition(-(-count // _ASIDE_ROWS)).sortWithinPartitions("row")
        with job(self.spark, "setting rows aside", self.listener, count):
            found = ordered.mapInArrow(AsideJob(str(self.stream.staging().absolute())).write, ASIDE_ROWS).collect()
        return [(Path(row["file"]), row["rows"]) for row in found]


def _told(stream: LakeStream, account: Mapping[str, Any], *, repeated: bool = False) -> Ingested:
    return Ingested(
        stream,
        account["id"],
        account["in"],
        account["applied"],
        account["late"],
        account["duplicate"],
        account["rejected"],
        account["files"],
        repeated,
    )
