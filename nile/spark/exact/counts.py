"""What a report needs of an exact join of two streams, without its pairs: counts, histograms, outliers.

The same buckets as `nile.spark.exact.join`, but pairs are counted where they are found: what leaves a task is a
100 x 100 table of key bins and age bins, so a join of a billion pairs costs time, not memory.  Key ranks,
rarity and the largest age come from one pass over the tuples before any pair exists.  Outliers are found
apart, from the tuples that complete them, which are few by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.spark.exact.input import INT64, Opened, Stream, footers, opened
from nile.spark.exact.join import mark, pair, ranked, sides
from nile.spark.failure import spark_failures
from nile.spark.paths import check_output
from nile.spark.progress import Listener, job
from nile.spark.slices import cut_sql
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BINS", "JoinTruth", "bin_sql", "exact_truth"]

BINS = 100
"""Bins of a histogram (promising tuples, section 5.2: k = 100)."""
_RARE = 20  # the paper's outliers are the keys in the least 1 / 20 of whole-run frequencies
_LOW = (1 << 32) - 1
OUTLIER_COLUMNS = ("left_ordinal", "right_ordinal", "key_rank", "age", "window_count", "frequency")


@dataclass(frozen=True, slots=True, eq=False)
class JoinTruth:
    """An exact join, counted.

    pairs; keys: distinct keys among them.  table int64[100, 100]: pairs by key bin and age bin, where
    key bin = floor(100 rank / keys) and age bin = min(99, floor(100 age / width)), width = the window, or the
    largest age without one.  width: ns.  outliers: pairs completed with at most `cap` tuples of their key in
    the window; outliers_paper: pairs of keys in the least 5 % of whole-run frequencies.  age_sum: ns, over all
    pairs.  outlier_path: a directory of Parquet with the outlier pairs (OUTLIER_COLUMNS), None when not asked for.
    """

    pairs: int
    keys: int
    table: np.ndarray[Any, Any]
    width: int
    cap: int
    outliers: int
    outliers_paper: int
    age_sum: int
    outlier_path: Path | None

    @property
    def key_histogram(self) -> np.ndarray[Any, Any]:
        """Pairs by key bin, int64[100]."""
        counts: np.ndarray[Any, Any] = self.table.sum(axis=1)
        return counts

    @property
    def age_histogram(self) -> np.ndarray[Any, Any]:
        """Pairs by age bin, int64[100]."""
        counts: np.ndarray[Any, Any] = self.table.sum(axis=0)
        return counts

    @property
    def mean_age_s(self) -> float | None:
        """Mean age of the pairs, seconds; None without pairs."""
        return self.age_sum / (self.pairs * 10**9) if self.pairs else None


def exact_truth(
    spark: SparkSession,
    left: Stream,
    right: Stream,
    window: int | None,
    *,
    outlier_cap: int = 4,
    outliers: Path | None = None,
    on_progress: Listener | None = None,
) -> JoinTruth:
    """Counts the exact join of equal keys with |left.ts - right.ts| <= window (ns; None: no limit).

    outliers: a directory to write the outlier pairs to, replaced when it exists.  Definitions are those of
    `exact_join`, and of `nile.report.metrics`.  Cost: n log n, and each pair once, in tasks.
    Raises SourceMissing, SourceError, KeyTypeError, ConfigError (window, cap, or `outliers` holds other
    things), SparkFailed.
    """
    if window is not None and window <= 0:
        raise ConfigError(f"exact truth: window must be more than 0 ns, or None for no window, not {window}")
    if outlier_cap < 1:
        raise ConfigError(f"exact truth: outlier_cap must be at least 1, not {outlier_cap}")
    if outliers is not None:
        check_output(outliers, "exact truth", [one for one in (left, right) if isinstance(one, Path)])
    names = " and ".join(stream.name for stream in (left, right))
    with (
        spark_failures(f"exact truth of {names}"),
        opened(spark, (left, right), "exact truth", timed=window is not None) as both,
    ):
        limited = both.limited(window)
        marked = mark(both.tuples.repartition(both.parts, "key"), limited, both.kind).persist()
        try:
            with job(spark, "exact: counting keys", on_progress, sum(both.rows)):
                keys, threshold, oldest = _keys(marked)
            width = oldest if window is None else window
            ranks = _binned(ranked(marked), keys, threshold).persist()
            try:
                with job(spark, "exact: counting pairs", on_progress, sum(both.rows)):
                    table, rare, rare_paper, ages = _counted(both, marked, limited, ranks, keys, width, outlier_cap)
                if outliers is not None:
                    with job(spark, "exact: writing outliers", on_progress, sum(both.rows)):
                        found = _outliers(both, marked, limited, ranks, outlier_cap)
                        found.write.mode("overwrite").parquet(str(outliers.absolute()))
                    assert sum(footer.num_rows for footer in footers(outliers)) == rare
            finally:
                ranks.unpersist()
        finally:
            marked.unpersist()
    return JoinTruth(int(table.sum()), keys, table, width, outlier_cap, rare, rare_paper, ages, outliers)


def bin_sql(value: str, width: int) -> str:
    """The bin of a value from 0 to `width`: min(99, floor(100 value / width)), in integers; 0 where width is 0."""
    if width == 0:
        return "0"
    if width < INT64 // BINS:
        return f"CAST(least({BINS - 1}L, {value} * {BINS}L DIV {width}L) AS INT)"
    edges = [-(-at * width // BINS) for at in range(1, BINS)]  # 100 value may pass 64 bits
    return cut_sql(edges, value)


def _keys(marked: DataFrame) -> tuple[int, int, int]:
    """Distinct keys of the answer, the frequency up to which a key is rare, and the largest possible age of a pair."""
    by_key = marked.groupBy("key").agg({"frequency": "max", "meets": "max"})
    counts = (
        by_key.where("`max(meets)`")
        .selectExpr("`max(frequency)` AS frequency", "row_number() OVER (ORDER BY `max(frequency)`) AS place")
        .selectExpr("*", "count(*) OVER () AS keys")
    )
    found = counts.where(f"place = (keys + {_RARE - 1}) DIV {_RARE}").collect()  # nearest rank, from above
    spans = marked.groupBy("key").agg(
        *_expressions(
            *(f"{how}(IF(stream = {stream}, ts, NULL)) AS {how}{stream}" for how in ("min", "max") for stream in (0, 1))
        )
    )
    oldest = spans.selectExpr("max(greatest(max0 - min1, max1 - min0)) AS oldest").collect()[0]["oldest"]
    if not found:
        return 0, 0, 0
    return int(found[-1]["keys"]), int(found[-1]["frequency"]), int(oldest or 0)


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


def _binned(ranks: DataFrame, keys: int, threshold: int) -> DataFrame:
    return ranks.selectExpr(
        "*",
        f"CAST(CAST(key_rank AS BIGINT) * {BINS} DIV {max(keys, 1)} AS INT) AS key_bin",
        f"frequency <= {threshold} AS rare",
    )


def _counted(
    both: Opened, marked: DataFrame, window: int | None, ranks: DataFrame, keys: int, width: int, cap: int
) -> tuple[np.ndarray[Any, Any], int, int, int]:
    """The table, outliers, the paper's outliers, the sum of ages."""
    table = np.zeros((BINS, BINS), np.int64)
    rare = paper = ages = 0
    if not keys:
        return table, rare, paper, ages
    explode = 0 if both.rows[0] <= both.rows[1] else 1
    pairs = pair(sides(marked), window, explode, both.parts, ranks, ("key_bin", "rare"))
    binned = pairs.selectExpr(
        "key_bin",
        f"{bin_sql('age', width)} AS age_bin",
        "age",
        f"window_count <= {cap} AS outlier",
        "rare",
    )
    # A sum of ns may pass 64 bits; the two halves of an age do not.
    sums = _expressions(
        "count(*) AS n",
        "sum(CAST(outlier AS BIGINT)) AS outliers",
        "sum(CAST(rare AS BIGINT)) AS paper",
        "sum(shiftright(age, 32)) AS high",
        f"sum(age & {_LOW}L) AS low",
    )
    for row in binned.groupBy("key_bin", "age_bin").agg(*sums).collect():
        table[row["key_bin"], row["age_bin"]] = row["n"]
        rare, paper = rare + row["outliers"], paper + row["paper"]
        ages += (row["high"] << 32) + row["low"]
    return table, rare, paper, ages


def _outliers(both: Opened, marked: DataFrame, window: int | None, ranks: DataFrame, cap: int) -> DataFrame:
    """The pairs whose later tuple has at most `cap` of its key in the window; once for each side it can be on."""
    one, two = sides(marked)
    few = f"window_count <= {cap}"
    halves: Sequence[tuple[tuple[DataFrame, DataFrame], int, str]] = (
        ((one.where(few), two), 0, "left_later"),
        ((one, two.where(few)), 1, "NOT left_later"),
    )
    found = [pair(some, window, at, both.parts, ranks).where(later) for some, at, later in halves]
    return found[0].unionAll(found[1]).select(*OUTLIER_COLUMNS)
