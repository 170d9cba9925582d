"""What the exact jobs read: streams as Parquet files that say each tuple's place, time and key.

Nothing of Nile's lower floors is imported but the errors, so that a bug there cannot reach the truth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.spark.masters import task_slots
from nile.spark.paths import plain_links
from nile.summaries.errors import KeyTypeError, SourceError, SourceMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["INT64", "Opened", "Stream", "TupleFiles", "footers", "opened"]

INT64 = 1 << 63
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_ROWS_A_PART = 500_000  # of all streams; what one task sorts and hashes in memory
_BACK = re.compile("`")


@dataclass(frozen=True, slots=True)
class TupleFiles:
    """A stream in any Parquet files: those of a lake's stream, say.

    name: for messages.  ordinal, ts (int64 ns) and key: its columns.
    """

    name: str
    files: tuple[Path, ...]
    key: str = "key"
    ordinal: str = "_ordinal"
    ts: str = "_ts"


Stream = Path | TupleFiles
"""A directory that `prepare` wrote, or files."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Streams as one frame: stream INT, ordinal, ts (from the earliest tuple on), key (one type, no nulls).

    kind: the type of ts, BIGINT or DECIMAL where the streams span more than 64 bits of ns.  rows: by stream.
    span: ns from the first tuple to the last.  parts: tasks to cut the tuples into.
    """

    tuples: DataFrame
    kind: str
    rows: tuple[int, ...]
    span: int
    parts: int

    def limited(self, window: int | None) -> int | None:
        """The window, or None where all tuples lie within it."""
        return None if window is None or window >= self.span else window


@contextmanager
def opened(spark: SparkSession, streams: Sequence[Stream], where: str, *, timed: bool) -> Iterator[Opened]:
    """The streams, for as long as inside.  timed: a window is asked for, so ages need not fit 64 bits.

    Raises SourceMissing, SourceError (not such streams), KeyTypeError (keys that never compare equal).
    """
    described = [_described(stream, where) for stream in streams]
    with plain_links([file for one in described for file in one.files]) as links:
        frames, at = [], 0
        for one in described:
            mine, at = links[at : at + len(one.files)], at + len(one.files)
            frames.append(_frame(spark, one.given, mine) if mine else None)
        times = [time for one in described for time in one.times]
        first, last = min(times, default=0), max(times, default=0)
        if last - first >= INT64 and not timed:
            raise SourceError(
                f"{where}: the streams span {(last - first) // (365 * 86_400 * 10**9)} years and an age in "
                "nanoseconds must fit into 64 bits (292 years); give a window, or filter the strays with `where`"
            )
        # Times from the first one on, so that no sum or difference of them leaves its type.
        kind = "BIGINT" if last - first < INT64 else "DECIMAL(20, 0)"
        tuples = _one_stream(spark, frames, f"CAST(CAST(ts AS {kind}) - ({first}) AS {kind})", where)
        rows = tuple(one.rows for one in described)
        parts = max(task_slots(spark), sum(rows) // _ROWS_A_PART)
        yield Opened(tuples, kind, rows, last - first, parts)


def footers(path: Path) -> list[Any]:
    """What the Parquet files of a directory say of themselves; reads no data."""
    from pyarrow.parquet import read_metadata

    return [read_metadata(part) for part in sorted(path.glob("part-*.parquet"))]


@dataclass(frozen=True, slots=True)
class _Described:
    """A stream as its footers describe it; `times` has its first and last ts among others."""

    given: TupleFiles
    files: tuple[Path, ...]
    rows: int
    times: list[int]


def _described(stream: Stream, where: str) -> _Described:
    if isinstance(stream, TupleFiles):
        return _read_footers(stream, f"{where}: {stream.name} is no stream (Parquet with its ordinal, ts and key)")
    if not stream.is_dir():
        raise SourceMissing(f"{where}: no prepared stream at {stream}; prepare() writes one")
    files = tuple(sorted(stream.glob("part-*.parquet")))
    broken = f"{where}: {stream} is no prepared stream (part-*.parquet with ordinal, ts, key)"
    if not files or not (stream / "_SUCCESS").exists():
        raise SourceError(f"{broken}: it has no part-*.parquet, or no _SUCCESS beside them")
    return _read_footers(TupleFiles(str(stream), files, "key", "ordinal", "ts"), broken)


def _read_footers(given: TupleFiles, broken: str) -> _Described:
    from pyarrow.parquet import read_metadata

    rows = 0
    times: list[int] = []
    try:
        for file in given.files:
            footer = read_metadata(file)
            names = list(footer.schema.names)
            if not {given.ordinal, given.ts, given.key} <= set(names):
                raise ValueError(f"its columns are {', '.join(names)}")
            rows += footer.num_rows
            column = names.index(given.ts)
            for at in range(footer.num_row_groups):
                group = footer.row_group(at).column(column)
                if group.num_values:
                    times += [group.statistics.min, group.statistics.max]
    except (ValueError, OSError, AttributeError) as error:
        raise SourceError(f"{broken}: {error}") from None
    return _Described(given, given.files, rows, times)


def _frame(spark: SparkSession, given: TupleFiles, links: Sequence[Path]) -> DataFrame:
    named = ((given.ordinal, "ordinal"), (given.ts, "ts"), (given.key, "key"))
    columns = [f"`{_BACK.sub('``', column)}` AS {name}" for column, name in named]
    return spark.read.parquet(*map(str, links)).selectExpr(*columns)


def _one_stream(spark: SparkSession, frames: Sequence[DataFrame | None], time: str, where: str) -> DataFrame:
    """All streams as one, (stream, ordinal, ts, key), keys of one type, one NaN and one zero, no nulls."""
    there = [frame for frame in frames if frame is not None]
    common = there[0].schema["key"].dataType.simpleString() if there else "bigint"
    for frame in there[1:]:
        common = _common_type(common, frame.schema["key"].dataType.simpleString(), where)
    key = f"CAST(key AS {common})"
    if common in _FLOATS:
        key = f"CASE WHEN isnan(key) THEN CAST('NaN' AS {common}) ELSE {key} + CAST(0 AS {common}) END"
    whole = None
    for number, frame in enumerate(frames):
        if frame is None:
            frame = spark.range(0).selectExpr("id AS ordinal", "id AS ts", f"CAST(NULL AS {common}) AS key")
        side = frame.selectExpr(f"{number} AS stream", "ordinal", f"{time} AS ts", f"{key} AS key")
        whole = side if whole is None else whole.unionAll(side)
    assert whole is not None  # there is at least one stream
    return whole.where("key IS NOT NULL")


def _common_type(left: str, right: str, where: str) -> str:
    """The Spark type in which keys of two types meet.  Raises KeyTypeError when they never compare equal."""
    if left == right:
        return left
    for family in (_INTEGERS, _FLOATS):
        if left in family and right in family:
            return max(left, right, key=family.index)
    scales = [re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (left, right)]
    if scales[0] and scales[1] and scales[0][2] == scales[1][2]:
        return max(left, right, key=lambda kind: int(kind[8:].split(",")[0]))
    raise KeyTypeError(
        f"{where}: the keys have types {left} and {right}, which never compare equal; choose key columns of one type"
    )
