"""The exact window join of two prepared streams on Spark: the ground truth of every report.

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

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nile.spark.exact.input import Stream, footers, opened
from nile.spark.failure import spark_failures
from nile.spark.paths import check_output
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "ExactAnswer", "exact_join", "mark", "pair", "ranked", "sides"]

COLUMNS = ("left_ordinal", "right_ordinal", "key_rank", "age", "window_count", "frequency")


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """Where the exact answer is and how many pairs it has.

    path: a directory of part-*.parquet with left_ordinal int64, right_ordinal int64, key_rank int32,
    age int64 (ns), window_count int32, frequency int64; one row per pair, in no particular order.
    """

    path: Path
    pairs: int


def exact_join(
    spark: SparkSession,
    left: Stream,
    right: Stream,
    window: int | None,
    out: Path,
    on_progress: Callable[[str], None] | None = None,
) -> ExactAnswer:
    """Every pair of equal keys with |left.ts - right.ts| <= window, written to `out`.

    left, right: directories of prepared Parquet (ordinal int64, ts int64 ns, key), or files of a lake.
    window: ns, closed; None: no limit on time.  out: is replaced when it exists.
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
    inputs = [stream for stream in (left, right) if isinstance(stream, Path)]
    check_output(out, "exact join", inputs)
    say = on_progress or (lambda _: None)
    names = " and ".join(stream.name for stream in (left, right))
    with spark_failures(f"exact join of {names}"):
        say("exact: reading the prepared streams")
        with opened(spark, (left, right), "exact join", timed=window is not None) as both:
            window = both.limited(window)
            marked = mark(both.tuples.repartition(both.parts, "key"), window, both.kind)
            say("exact: joining")
            ranks = ranked(marked)
            pairs = pair(sides(marked), window, 0 if both.rows[0] <= both.rows[1] else 1, both.parts, ranks)
            pairs.select(*COLUMNS).write.mode("overwrite").parquet(str(out.absolute()))
    return ExactAnswer(out, sum(footer.num_rows for footer in footers(out)))


def mark(tuples: DataFrame, window: int | None, kind: str) -> DataFrame:
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


def ranked(marked: DataFrame) -> DataFrame:
    """The keys of the answer: key, key_rank (from 0, in their order), and how many tuples each has in the run."""
    return (
        marked.where("meets")
        .select("key", "frequency")
        .distinct()
        .selectExpr("key", "CAST(row_number() OVER (ORDER BY key) - 1 AS INT) AS key_rank", "frequency")
    )


def sides(marked: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The two streams apart."""
    return marked.where("stream = 0"), marked.where("stream = 1")


def pair(
    both: tuple[DataFrame, DataFrame],
    window: int | None,
    explode: int,
    parts: int,
    ranks: DataFrame,
    extra: tuple[str, ...] = (),
) -> DataFrame:
    """The pairs of the answer, each once: COLUMNS, and `left_later`: the left tuple is the later one.

    explode: which stream stands in two buckets, and brings what `ranks` knows of its keys, and `extra` of it.
    """
    ready = []
    for stream, tuples in enumerate(both):
        side, columns = tuples, ["key", "ordinal", "ts", "window_count"]
        if window is not None:
            # Buckets of 2w counted from 1, by whole windows, which keeps 2w from leaving 64 bits.
            bucket = f"shiftright(ts DIV {window} + 2, 1)"
            if stream == explode:
                first = f"shiftright(ts DIV {window} + 1, 1)"
                bucket = f"explode(array({first}, {first} + 1))"
            columns.append(f"{bucket} AS bucket")
        if stream == explode:
            side = side.drop("frequency").join(ranks, "key")
            columns += ["key_rank", "frequency", *extra]
        ready.append(side.selectExpr(*columns))
    joined = ["key"] if window is None else ["key", "bucket"]
    one, two = (side.repartition(parts, *joined) for side in ready)
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
        "l.ts > r.ts AS left_later",
        *extra,
    )
