"""The workload of the exact benchmarks, and how DuckDB and Spark join it in their best formulations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.lazy import lazy

__all__ = ["SECOND", "Streams", "best_of", "duckdb_queries", "duckdb_session", "spark_join", "streams", "window_joins"]

Array = np.ndarray[Any, Any]
SECOND = 1_000_000_000
KEYS = 100_000
EXPONENT = 0.8
RATE = 45.0  # tuples per second: 2,700 a window of a minute
SPREAD = 1 << 20  # buckets a key may have where key and bucket share one integer

duckdb = lazy("duckdb")
pa = lazy("pyarrow")
spark_sql = lazy("pyspark.sql.functions")


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams with int64 ns times and int64 keys, and their window."""

    ts: tuple[Array, ...]
    codes: tuple[Array, ...]
    window: int

    @property
    def tuples(self) -> int:
        """Tuples of all streams."""
        return sum(each.shape[0] for each in self.ts)


def streams(
    tuples: int, seed: int, *, count: int = 2, window: int = 60 * SECOND, keys: int = KEYS,
    exponent: float = EXPONENT, rates: tuple[float, ...] = (),
) -> Streams:  # fmt: skip
    """Streams of exponential gaps whose items follow Zipf's law; the same items are common in all of them.

    tuples: of each stream; rates: tuples per second of each, RATE when not given.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    below = np.cumsum(weights / weights.sum())
    name = rng.permutation(keys)
    ts, codes = [], []
    for k in range(count):
        rate = rates[k] if rates else RATE
        ts.append(np.cumsum(rng.exponential(SECOND / rate, tuples).astype(np.int64)))
        rank = np.minimum(np.searchsorted(below, rng.random(tuples)), keys - 1)
        codes.append(name[rank].astype(np.int64))
    return Streams(tuple(ts), tuple(codes), window)


def best_of(ways: dict[str, Callable[[], object]], turns: int = 3) -> str:
    """The name of the way that was fastest by wall time in the best of `turns` turns."""
    seconds: dict[str, float] = {name: float("inf") for name in ways}
    for _ in range(turns):
        for name, run in ways.items():
            begin = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return min(seconds, key=lambda name: seconds[name])


def duckdb_session(work: Streams) -> Any:
    """A DuckDB connection with the two streams as Arrow tables (arrow_l, arrow_r) and as its own (own_l, own_r)."""
    connection = duckdb.connect()
    for k, name in enumerate("lr"):
        ordinal = np.arange(work.ts[k].shape[0])
        connection.register(f"arrow_{name}", pa.table({"k": work.codes[k], "ts": work.ts[k], "o": ordinal}))
        connection.execute(f"CREATE TABLE own_{name} AS SELECT * FROM arrow_{name}")
    return connection


def duckdb_queries(select: str, w: int) -> dict[str, str]:
    """Formulations of the window join of `select`: by time bucket, all of them giving each pair once.

    Buckets of 2w or 4w; the right stream stands in each bucket that [ts - w, ts + w] touches, by unnest or union; key
    and bucket as two columns, or as one integer by division or by shifts.
    """
    near = f"L.ts - R.ts BETWEEN -{w} AND {w}"
    power = (2 * w).bit_length()
    found = {}
    for kept in ("arrow", "own"):
        left, right = f"{kept}_l", f"{kept}_r"
        for width in (2, 4):
            b = width * w
            touched = f"unnest([(ts - {w}) // {b}, (ts - {w}) // {b} + 1])"
            if width == 2:
                found[f"{kept}, buckets of 2w, unnest"] = (
                    f"SELECT {select} FROM (SELECT *, ts // {b} AS b FROM {left}) L JOIN "
                    f"(SELECT k, ts, o, {touched} AS b FROM {right}) R ON L.k = R.k AND L.b = R.b AND {near}"
                )
            found[f"{kept}, buckets of {width}w, union, one key"] = (
                f"SELECT {select} FROM (SELECT k * {SPREAD} + ts // {b} AS b, ts, o FROM {left}) L JOIN "
                f"(SELECT ts, o, k * {SPREAD} + (ts + {w}) // {b} AS b FROM {right} UNION ALL "
                f"SELECT ts, o, k * {SPREAD} + (ts - {w}) // {b} AS b FROM {right} "
                f"WHERE (ts - {w}) // {b} <> (ts + {w}) // {b}) R ON L.b = R.b AND {near}"
            )
        found[f"{kept}, buckets of 2**{power} ns, union, one key by shifts"] = (
            f"SELECT {select} FROM (SELECT (k << 32) | (ts >> {power}) AS b, ts, o FROM {left}) L JOIN "
            f"(SELECT ts, o, (k << 32) | ((ts + {w}) >> {power}) AS b FROM {right} UNION ALL "
            f"SELECT ts, o, (k << 32) | ((ts - {w}) >> {power}) AS b FROM {right} "
            f"WHERE (ts - {w}) >> {power} <> (ts + {w}) >> {power}) R ON L.b = R.b AND {near}"
        )
    return found


def window_joins(select: str, reads: Sequence[str], w: int) -> dict[str, str]:
    """DuckDB's ways to the window join of two queries, a and b, with a key k and int64 nanoseconds t, by name.

    One is plain, the others go by time buckets; each gives every pair once.
    """
    left, right = reads
    near = f"a.t - b.t BETWEEN -{w} AND {w}"
    found = {"plain": f"SELECT {select} FROM ({left}) a JOIN ({right}) b ON a.k = b.k AND {near}"}
    for times in (2, 4):
        size = times * w
        if times == 2:
            found["buckets of 2 windows, unnest"] = (
                f"SELECT {select} FROM (SELECT *, t // {size} AS g FROM ({left})) a JOIN "
                f"(SELECT *, unnest([(t - {w}) // {size}, (t - {w}) // {size} + 1]) AS g FROM ({right})) b "
                f"ON a.k = b.k AND a.g = b.g AND {near}"
            )
        found[f"buckets of {times} windows, union"] = (
            f"SELECT {select} FROM (SELECT *, t // {size} AS g FROM ({left})) a JOIN "
            f"(SELECT *, (t + {w}) // {size} AS g FROM ({right}) UNION ALL "
            f"SELECT *, (t - {w}) // {size} AS g FROM ({right}) "
            f"WHERE (t - {w}) // {size} <> (t + {w}) // {size}) b "
            f"ON a.k = b.k AND a.g = b.g AND {near}"
        )
    return found


def _dropped(pairs: Any) -> None:
    """Compute every pair and keep none: the sink costs Spark nothing."""
    pairs.write.format("noop").mode("overwrite").save()


def spark_join(spark: Any, work: Streams, sink: Callable[[Any], object] = _dropped) -> Callable[[], object]:
    """The bucketed shuffle hash join on cached frames of a warm session; a run hands its pairs (l, r) to `sink`."""
    w = work.window
    frames = []
    for k in range(2):
        table = pa.table({"k": work.codes[k], "ts": work.ts[k], "o": np.arange(work.ts[k].shape[0])})
        frame = spark.createDataFrame(table).repartition(spark.sparkContext.defaultParallelism).cache()
        frame.count()
        frames.append(frame)
    left = frames[0].selectExpr("k", "ts", "o", f"shiftright(ts DIV {w}, 1) AS b").alias("l")
    first = f"shiftright(ts DIV {w} - 1, 1)"
    right = frames[1].selectExpr("k", "ts", "o", f"explode(array({first}, {first} + 1)) AS b").hint("SHUFFLE_HASH")
    near = f"greatest(l.ts, r.ts) - least(l.ts, r.ts) <= {w}"
    pairs = left.join(right.alias("r"), ["k", "b"]).where(near).selectExpr("l.o AS l", "r.o AS r")
    return lambda: sink(pairs)
