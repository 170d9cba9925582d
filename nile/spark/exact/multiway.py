"""The exact window join of n streams on equal keys, each pair of streams with a window of its own, on Spark.

Streams join one after another, each along a window to one that is in already, in buckets of 2w (see
`nile.spark.exact.join`); the other windows to those that are in filter at once, so no combination that cannot be in
the answer goes on.  Combinations are counted where they are found; they are written only on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.spark.exact.counts import BINS, bin_sql
from nile.spark.exact.input import Opened, Stream, footers, opened
from nile.spark.failure import spark_failures
from nile.spark.paths import check_output
from nile.spark.progress import Listener, job
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ManyTruth", "exact_many"]

Windows = int | None | Mapping[tuple[int, int], int]


@dataclass(frozen=True, slots=True, eq=False)
class ManyTruth:
    """An exact join of n streams, counted.

    combinations; keys: distinct keys among them.  key_histogram, age_histogram int64[100]: by rank of the key
    and by age, the time from a combination's first tuple to its last, over [0, width].  width: ns, the largest
    age.  path: a directory of Parquet with ordinal0, ordinal1, ..., None when not asked for.
    """

    combinations: int
    keys: int
    key_histogram: np.ndarray[Any, Any]
    age_histogram: np.ndarray[Any, Any]
    width: int
    path: Path | None


def exact_many(
    spark: SparkSession,
    streams: Sequence[Stream],
    windows: Windows,
    *,
    out: Path | None = None,
    on_progress: Listener | None = None,
) -> ManyTruth:
    """Counts the combinations of one tuple of each stream with equal keys and every window kept.

    windows: ns for every two streams; or {(i, j): ns}, which must connect all streams; or None: no limit.
    out: a directory to write the combinations' ordinals to, replaced when it exists.
    Raises ConfigError, SourceMissing, SourceError, KeyTypeError, SparkFailed.
    """
    graph = _graph(len(streams), windows)
    if out is not None:
        check_output(out, "exact join of many", [one for one in streams if isinstance(one, Path)])
    where = f"exact join of {', '.join(stream.name for stream in streams)}"
    with spark_failures(where), opened(spark, streams, "exact join", timed=graph is not None) as all_of:
        joined = _joined(all_of, len(streams), graph).persist()
        try:
            with job(spark, "exact: joining", on_progress, sum(all_of.rows)):
                total, width = joined.selectExpr("count(*)", "coalesce(max(age), 0)").collect()[0]
            with job(spark, "exact: counting", on_progress, total):
                keys, by_key, by_age = _histograms(joined, int(width))
            if out is not None:
                with job(spark, "exact: writing", on_progress, total):
                    names = [f"ordinal{at}" for at in range(len(streams))]
                    joined.select(*names).write.mode("overwrite").parquet(str(out.absolute()))
                assert sum(footer.num_rows for footer in footers(out)) == total
        finally:
            joined.unpersist()
    return ManyTruth(int(total), keys, by_key, by_age, int(width), out)


def _graph(streams: int, windows: Windows) -> dict[tuple[int, int], int] | None:
    """Windows by pair, the smaller number first.  Raises ConfigError."""
    if streams < 2:
        raise ConfigError(f"exact join: needed 2 streams or more; got {streams}")
    if windows is None:
        return None
    if not isinstance(windows, Mapping):
        windows = {(i, j): windows for i in range(streams) for j in range(i + 1, streams)}
    graph: dict[tuple[int, int], int] = {}
    for (i, j), window in windows.items():
        if not (0 <= i < streams and 0 <= j < streams) or i == j:
            raise ConfigError(f"exact join: needed two of the streams 0 to {streams - 1}; got a window of ({i}, {j})")
        if window <= 0:
            raise ConfigError(f"exact join: window of ({i}, {j}) must be more than 0 ns, not {window}")
        pair = (min(i, j), max(i, j))
        graph[pair] = min(window, graph.get(pair, window))
    lacking = sorted(set(range(streams)) - set(_order(graph)))
    if lacking:
        raise ConfigError(f"exact join: needed windows that connect all streams; stream {lacking[0]} has none to "
                          "those before; add one")  # fmt: skip
    return graph


def _order(graph: Mapping[tuple[int, int], int]) -> list[int]:
    """The streams in the order they join: each has a window to one before, the narrowest first."""
    order = [0]
    while True:
        leading = [(window, i, j) for (i, j), window in graph.items() if (i in order) != (j in order)]
        if not leading:
            return order
        _, i, j = min(leading)
        order.append(j if i in order else i)


def _joined(all_of: Opened, streams: int, graph: dict[tuple[int, int], int] | None) -> DataFrame:
    """ordinal0, ordinal1, ..., key, age: every combination once."""
    order = list(range(streams)) if graph is None else _order(graph)
    tuples = all_of.tuples
    first = order[0]
    joined = tuples.where(f"stream = {first}").selectExpr(f"ordinal AS ordinal{first}", f"ts AS ts{first}", "key")
    for place, stream in enumerate(order[1:], 1):
        side = tuples.where(f"stream = {stream}")
        columns = [f"ordinal AS ordinal{stream}", f"ts AS ts{stream}", "key"]
        kept = []
        if graph is not None:
            near = {
                old: graph[edge] for old in order[:place] if (edge := (min(old, stream), max(old, stream))) in graph
            }
            narrow = min(near, key=lambda old: (near[old], old))
            window = min(near[narrow], max(all_of.span, 1))
            # Buckets of 2w counted from 1, by whole windows; the new stream stands in the two it touches.
            at = f"shiftright(ts DIV {window} + 1, 1)"
            columns.append(f"explode(array({at}, {at} + 1)) AS bucket")
            joined = joined.selectExpr("*", f"shiftright(ts{narrow} DIV {window} + 2, 1) AS bucket")
            kept = [f"abs(ts{old} - ts{stream}) <= {limit}" for old, limit in near.items()]
        keys = ["key"] if graph is None else ["key", "bucket"]
        one = joined.repartition(all_of.parts, *keys)
        joined = one.join(side.selectExpr(*columns).repartition(all_of.parts, *keys).hint("SHUFFLE_HASH"), keys)
        for condition in kept:
            joined = joined.where(condition)
        joined = joined.drop("bucket")
    times = [f"ts{stream}" for stream in range(streams)]
    age = f"CAST(greatest({', '.join(times)}) - least({', '.join(times)}) AS BIGINT) AS age"
    return joined.selectExpr(*(f"ordinal{stream}" for stream in range(streams)), "key", age)


def _histograms(joined: DataFrame, width: int) -> tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    by_key = joined.groupBy("key").count()
    ranks = by_key.selectExpr("count AS n", "row_number() OVER (ORDER BY key) - 1 AS rank", "count(*) OVER () AS keys")
    keys, key_bins, age_bins = 0, np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    binned = ranks.selectExpr("n", "keys", f"CAST(rank AS BIGINT) * {BINS} DIV keys AS bin")
    for row in binned.groupBy("bin", "keys").agg({"n": "sum"}).collect():
        keys, key_bins[row["bin"]] = row["keys"], row["sum(n)"]
    ages = joined.selectExpr(f"{bin_sql('age', width)} AS bin").groupBy("bin").count()
    for row in ages.collect():
        age_bins[row["bin"]] = row["count"]
    return keys, key_bins, age_bins
