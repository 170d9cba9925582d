"""The exact window join of two prepared streams on Spark: the truth every report is scored against.

Design.  One pass over both streams together, grouped by key and sorted by (ts, stream, ordinal), gives each
tuple what depends on its neighbours in that order: how many tuples of its key lie in the window that ends
with it, how many its key has in the whole run, and whether it meets the tuple before it.  A key has a pair
within the window exactly when two neighbours of different streams lie within it, so this pass also tells
the keys of the answer, before a single pair exists, and only their tuples go on to the join.
The join itself is on (key, time bucket).  Buckets are 2w long; a tuple of one side stands in the bucket of
its own ts, one of the other side in every bucket that [ts - w, ts + w] touches, which are always two.  So a
pair within w meets exactly once, and no range condition has to be searched.

Cost.  n log n for the pass, then the pairs within about 2w, each once.

Nothing of Nile's lower floors is imported but the errors, so that a bug there cannot reach this answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.spark.failure import spark_failures
from nile.spark.paths import check_output, plain_links
from summaries.errors import ConfigError, KeyTypeError, SourceError, SourceMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INT64 = 1 << 63
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ROWS_A_PART = 500_000  # of both streams; what one task sorts and hashes in memory
_FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """Where the exact answer is and how many pairs it has.

    path: a directory of part-*.parquet with left_ordinal int64, right_ordinal int64, key_rank int32,
    age int64 (ns), window_count int32, frequency int64; one row a pair, in no particular order.
    """

    path: Path
    pairs: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A prepared stream as its file footers describe it; `times` has its first and last ts among others."""

    frame: DataFrame
    rows: int
    times: list[int]


def exact_join(
    spark: SparkSession,
    left: Path,
    right: Path,
    window: int | None,
    out: Path,
    on_progress: Callable[[str], None] | None = None,
) -> ExactAnswer:
    """Every pair of equal keys with |left.ts - right.ts| <= window, written to `out`.

    left, right: directories of prepared Parquet (ordinal int64, ts int64 ns, key).  window: ns, closed;
    None: no limit on time.  out: is replaced when it exists.
    Columns of the answer, for a pair whose later tuple in the order (ts, stream, ordinal) is t:
    key_rank, from 0, among the sorted distinct keys of this answer (text and bytes by bytes, NaN last);
    age = |left.ts - right.ts| ns; window_count = tuples of both streams with that key, of order <= t, with
    ts in [t.ts - window, t.ts] (all of order <= t without a window); frequency = tuples of both streams
    with that key in the whole run.
    Null keys never join; NaN equals NaN and -0.0 equals 0.0; integers compare across widths.
    Raises SourceMissing or SourceError (not a prepared stream), KeyTypeError (keys of different type),
    ConfigError (window <= 0, or `out` holds other things), SparkFailed.
    """
    if window is not None and window <= 0:
        raise ConfigError(f"exact join: window must be more than 0 ns, or None for no window, not {window}")
    check_output(out, "exact join", (left, right))
    say = on_progress or (lambda _: None)
    with spark_failures(f"exact join of {left.name} and {right.name}"), plain_links([left, right]) as links:
        say("exact: reading the prepared streams")
        one, two = (_open(spark, path, link) for path, link in zip((left, right), links, strict=True))
        times = one.times + two.times
        first, last = min(times, default=0), max(times, default=0)
        if window is not None and window >= last - first:
            window = None  # every pair of tuples lies within it
        if last - first >= _INT64 and window is None:
            raise SourceError(
                f"exact join: the streams span {(last - first) // (365 * 86_400 * 10**9)} years and an age in "
                "nanoseconds must fit into 64 bits (292 years); give a window, or filter the strays with `where`"
            )
        # Times from the first one on, so that no sum or difference of them leaves its type.
        kind = "BIGINT" if last - first < _INT64 else "DECIMAL(20, 0)"
        tuples = _one_stream(one.frame, two.frame, f"CAST(CAST(ts AS {kind}) - ({first}) AS {kind})")
        parts = max(spark.sparkContext.defaultParallelism, (one.rows + two.rows) // _ROWS_A_PART)
        marked = _mark(tuples.repartition(parts, "key"), window, kind)
        say("exact: joining")
        pairs = _pair(marked, window, 0 if one.rows <= two.rows else 1, parts)
        pairs.write.mode("overwrite").parquet(str(out))
    return ExactAnswer(out, sum(footer.num_rows for footer in _footers(out)))


def _open(spark: SparkSession, path: Path, link: Path) -> _Prepared:
    if not path.is_dir():
        raise SourceMissing(f"exact join: no prepared stream at {path}; prepare() writes one")
    rows = 0
    times: list[int] = []
    try:
        footers = _footers(path)
        if not footers or not (path / "_SUCCESS").exists():
            raise ValueError("it has no part-*.parquet, or no _SUCCESS beside them")
        for footer in footers:
            rows += footer.num_rows
            column = footer.schema.names.index("ts")
            groups = (footer.row_group(i).column(column) for i in range(footer.num_row_groups))
            for group in groups:
                if group.num_values:
                    times += [group.statistics.min, group.statistics.max]
            if not {"ordinal", "key"} <= set(footer.schema.names):
                raise ValueError(f"its columns are {', '.join(footer.schema.names)}")
    except (ValueError, OSError, AttributeError) as error:
        raise SourceError(
            f"exact join: {path} is no prepared stream (part-*.parquet with ordinal, ts, key): {error}"
        ) from None
    return _Prepared(spark.read.parquet(str(link)).select("ordinal", "ts", "key"), rows, times)


def _footers(path: Path) -> list[Any]:
    """What the Parquet files of a directory say of themselves; reads no data."""
    from pyarrow.parquet import read_metadata

    return [read_metadata(part) for part in sorted(path.glob("part-*.parquet"))]


def _one_stream(left: DataFrame, right: DataFrame, time: str) -> DataFrame:
    """Both streams as one, (stream, ordinal, ts, key), keys of one type, one NaN and one zero, no nulls."""
    common = _common_type(*(frame.schema["key"].dataType.simpleString() for frame in (left, right)))
    key = f"CAST(key AS {common})"
    if common in _FLOATS:
        key = f"CASE WHEN isnan(key) THEN CAST('NaN' AS {common}) ELSE {key} + CAST(0 AS {common}) END"
    sides = (
        frame.selectExpr(f"{number} AS stream", "ordinal", f"{time} AS ts", f"{key} AS key")
        for number, frame in enumerate((left, right))
    )
    return next(sides).unionAll(next(sides)).where("key IS NOT NULL")


def _common_type(left: str, right: str) -> str:
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
        f"exact join: the keys have types {left} and {right}, which never compare equal; choose key columns of one type"
    )


def _mark(tuples: DataFrame, window: int | None, kind: str) -> DataFrame:
    """Each tuple with `window_count` (of a pair it completes), `frequency` and `meets`.

    meets: the tuple before it in its key is of the other stream and within the window.
    """
    order = "(PARTITION BY key ORDER BY ts, stream, ordinal)"
    upto = f"row_number() OVER {order}"
    meets = f"stream <> lag(stream) OVER {order}"
    if window is not None:
        # A frame that only grows is linear; one that slides Spark counts anew for every tuple.
        upto += (
            " - count(*) OVER (PARTITION BY key ORDER BY ts"
            f" RANGE BETWEEN UNBOUNDED PRECEDING AND CAST({window + 1} AS {kind}) PRECEDING)"
        )
        meets += f" AND ts - lag(ts) OVER {order} <= {window}"
    return tuples.selectExpr(
        "*",
        f"CAST({upto} AS INT) AS window_count",
        "count(*) OVER (PARTITION BY key) AS frequency",
        f"{meets} AS meets",
    )


def _pair(marked: DataFrame, window: int | None, explode: int, parts: int) -> DataFrame:
    """The pairs of the answer, each once; `explode` says which stream stands in two buckets."""
    ranks = (
        marked.where("meets")
        .select("key")
        .distinct()
        .selectExpr("key", "CAST(row_number() OVER (ORDER BY key) - 1 AS INT) AS key_rank")
    )
    sides = []
    for stream in (0, 1):
        side, columns = marked.where(f"stream = {stream}"), ["key", "ordinal", "ts", "window_count"]
        if window is not None:
            # Buckets of 2w counted from 1, by whole windows, which keeps 2w from leaving 64 bits.
            bucket = f"shiftright(ts DIV {window} + 2, 1)"
            if stream == explode:
                first = f"shiftright(ts DIV {window} + 1, 1)"
                bucket = f"explode(array({first}, {first} + 1))"
            columns.append(f"{bucket} AS bucket")
        if stream == explode:
            side = side.join(ranks, "key")
            columns += ["key_rank", "frequency"]
        sides.append(side.selectExpr(*columns))
    joined = ["key"] if window is None else ["key", "bucket"]
    one, two = (side.repartition(parts, *joined) for side in sides)
    one, two = (one.hint("SHUFFLE_HASH"), two) if explode == 0 else (one, two.hint("SHUFFLE_HASH"))
    pairs = one.alias("l").join(two.alias("r"), joined)
    if window is not None:
        pairs = pairs.where(f"greatest(l.ts, r.ts) - least(l.ts, r.ts) <= {window}")
    return pairs.selectExpr(
        "l.ordinal AS left_ordinal",
        "r.ordinal AS right_ordinal",
        "key_rank",
        "CAST(greatest(l.ts, r.ts) - least(l.ts, r.ts) AS BIGINT) AS age",
        "IF(l.ts > r.ts, l.window_count, r.window_count) AS window_count",
        "frequency",
    )
