"""How fast the exact window join is, beside DuckDB and Spark in their best formulations, and beside its own family."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from nile.exact.join.count import count_whole
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import ALGORITHMS, WindowJoin, window_join
from nile.experiments.benchmarks.exact.streams import (
    SECOND,
    Streams,
    best_of,
    duckdb_queries,
    duckdb_session,
    spark_join,
    streams,
)
from nile.experiments.benchmarks.harness import Bar, Contestant, Measure, Result, benchmark, race
from nile.spark.session import spark_session
from nile.summaries.errors import ConfigError, JavaMissing, SparkFailed
from nile.summaries.lazy import lazy

__all__ = ["exact_batch", "exact_count", "exact_curve", "exact_family", "exact_pairs", "joined_table"]

Array = np.ndarray[Any, Any]
pa = lazy("pyarrow")

TUPLES = 1_000_000  # of each stream
SEED = 1
DUCKDB_PAIRS, DUCKDB_COUNT, DUCKDB_BATCH = 2.0, 3.0, 5.0
SPARK_PAIRS = 15.0
MOST_BYTES = 5_000_000
LENGTHS = (100_000, 1_000_000, 10_000_000)
BATCH = 4_096

PAIRS_TITLE = "2-way window join, streaming, the whole output as an Arrow table"
COUNT_TITLE = "2-way window join, the count alone, streaming"
BATCH_TITLE = "2-way window join, the count alone, over whole arrays"
CURVE_TITLE = "2-way window join: cost per tuple and memory as streams grow"
FAMILY_TITLE = "the W-join family: comparisons and cost per tuple"


def _running(work: Streams, **options: Any) -> WindowJoin:
    return window_join(WindowGraph.uniform(len(work.ts), work.window), "equal", **options)


def joined_table(join: WindowJoin, work: Streams) -> Any:
    """The whole join as an Arrow table of ordinals; columns of blocks become chunks without a copy."""
    blocks = list(join.run(work.ts, work.codes))
    names = [f"ordinal_{k}" for k in range(len(work.ts))]
    chunks = [[pa.array(block[:, k]) for block in blocks] for k in range(len(names))]
    return pa.table({name: pa.chunked_array(each, pa.int64()) for name, each in zip(names, chunks, strict=True)})


def _pushed(join: WindowJoin, work: Streams) -> int:
    """Push all tuples in batches in total order; returns how many combinations they completed."""
    which = np.repeat(np.arange(len(work.ts), dtype=np.int8), [each.shape[0] for each in work.ts])
    ts, codes = np.concatenate(work.ts), np.concatenate(work.codes)
    order = np.argsort(ts, kind="stable")
    for begin in range(0, order.shape[0], BATCH):
        some = order[begin : begin + BATCH]
        join.push(which[some], ts[some], codes[some])
        for _ in join.outputs():
            pass
    return join.completed


def _same(name: str, ours: int, theirs: int) -> None:
    if ours != theirs:
        raise ConfigError(
            f"bench {name}: needed the same number of pairs from all; got {ours} and {theirs}; report this as a bug"
        )


def _note(work: Streams, pairs: int, form: str) -> list[str]:
    return [
        f"{work.ts[0].shape[0]:,} tuples per stream, {work.window // SECOND} s window, {pairs:,} pairs "
        f"({pairs / work.tuples:.2f} a tuple); wall time; medians of rounds that alternate",
        f"DuckDB with all threads, the fastest of its formulations here: {form}",
    ]


@benchmark("exact-pairs", PAIRS_TITLE)
def exact_pairs() -> Result:
    """Our operator and DuckDB hand over int64 ordinals as Arrow; Spark writes its pairs to a sink that drops them."""
    work = streams(TUPLES, SEED)
    connection = duckdb_session(work)
    queries = duckdb_queries("L.o AS l, R.o AS r", work.window)
    ways = {name: _fetch(connection, query) for name, query in queries.items()}
    form = best_of(ways)
    join = _running(work)
    pairs = joined_table(join, work).num_rows
    _same("exact-pairs", pairs, ways[form]().num_rows)
    theirs = "DuckDB, to an Arrow table"
    contestants = [
        Contestant("nile: chain, to an Arrow table", lambda: joined_table(_running(work), work)),
        Contestant(theirs, ways[form]),
    ]
    bars = [Bar(theirs, DUCKDB_PAIRS)]
    notes = _note(work, pairs, form)
    try:
        run = spark_join(spark_session("nile bench"), work)
    except (JavaMissing, SparkFailed) as error:
        notes.append(f"Spark does not run here, so no ratio to it: {error}")
    else:
        name = "Spark, bucketed shuffle hash join, warm, cached input, output dropped"
        contestants.append(Contestant(name, run))
        bars.append(Bar(name, SPARK_PAIRS))
    result = race(
        "exact-pairs", PAIRS_TITLE, contestants, work=work.tuples, unit="tuples", bars=bars, notes=notes, rounds=5,
        clock=time.perf_counter_ns,
    )  # fmt: skip
    streaming = _running(work)
    _same("exact-pairs", pairs, _pushed(streaming, work))
    figures = {"state where the whole input comes at once, by lists": f"{join.most_memory / 1e6:.2f} MB"}
    return replace(result, measures=(*result.measures, _state(streaming.most_memory)), figures=figures)


def _state(held: int) -> Measure:
    return Measure("operator state, all cores", held / 1e6, "MB at most", MOST_BYTES / 1e6, most=True)


def _fetch(connection: Any, query: str) -> Callable[[], Any]:
    return lambda: connection.sql(query).to_arrow_table()


def _count(connection: Any, query: str) -> Callable[[], int]:
    return lambda: int(connection.execute(query).fetchone()[0])


def _race_counts(name: str, title: str, label: str, ours: Callable[[Streams], int], bar: float) -> Result:
    work = streams(TUPLES, SEED)
    connection = duckdb_session(work)
    ways = {each: _count(connection, query) for each, query in duckdb_queries("count(*)", work.window).items()}
    form = best_of(dict(ways))
    pairs = ours(work)
    _same(name, pairs, ways[form]())
    theirs = "DuckDB, count(*)"
    contestants = [Contestant(label, lambda: ours(work)), Contestant(theirs, ways[form])]
    return race(
        name, title, contestants, work=work.tuples, unit="tuples", bars=[Bar(theirs, bar)],
        notes=_note(work, pairs, form), clock=time.perf_counter_ns,
    )  # fmt: skip


@benchmark("exact-count", COUNT_TITLE)
def exact_count() -> Result:
    """The operator counts as tuples arrive and keeps the window's content; DuckDB counts the same pairs."""

    memory = 0

    def ours(work: Streams) -> int:
        nonlocal memory
        join = _running(work, output="count")
        for _ in join.run(work.ts, work.codes):
            pass
        memory = join.most_memory
        return join.completed

    result = _race_counts("exact-count", COUNT_TITLE, "nile: chain, streaming count", ours, DUCKDB_COUNT)
    return replace(result, measures=(*result.measures, _state(memory)))


@benchmark("exact-batch", BATCH_TITLE)
def exact_batch() -> Result:
    """One pass over whole arrays that need not complete pairs in their order."""

    def ours(work: Streams) -> int:
        return count_whole((work.ts[0], work.ts[1]), (work.codes[0], work.codes[1]), work.window)

    return _race_counts("exact-batch", BATCH_TITLE, "nile: count over whole arrays", ours, DUCKDB_BATCH)


def _medians(ways: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """CPU nanoseconds each way took, the median of rounds in which all take turns, after one turn unmeasured."""
    spent: dict[str, list[int]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            begin = time.process_time_ns()
            run()
            if turn:
                spent[name].append(time.process_time_ns() - begin)
    return {name: float(median(each)) for name, each in spent.items()}


def _finished(work: Streams, **options: Any) -> WindowJoin:
    """A join that has run over whole streams; outputs are dropped."""
    join = _running(work, **options)
    for _ in join.run(work.ts, work.codes):
        pass
    return join


@benchmark("exact-curve", CURVE_TITLE)
def exact_curve() -> Result:
    """The same rates for longer: cost per tuple follows the window's content, and so does memory."""
    kinds: dict[str, dict[str, Any]] = {"pairs": {}, "count": {"output": "count"}}
    works = {2 * (length // 2): streams(length // 2, SEED) for length in LENGTHS}
    ways = {
        (kind, length): partial(_finished, work, **options)
        for kind, options in kinds.items()
        for length, work in works.items()
    }
    spent = _medians({f"{kind} {length}": way for (kind, length), way in ways.items()})
    rows: list[dict[str, Any]] = []
    figures: dict[str, object] = {}
    for kind, length in ways:
        join = _finished(works[length], **kinds[kind])
        row = {
            "output": kind,
            "tuples": length,
            "ns_a_tuple": spent[f"{kind} {length}"] / length,
            "state_bytes": join.most_memory,
            "pairs_a_tuple": join.completed / length,
        }
        rows.append(row)
        figures[f"{kind}, {length:,} tuples"] = (
            f"{row['ns_a_tuple']:.1f} ns and {row['pairs_a_tuple']:.2f} pairs per tuple, {row['state_bytes']:,} bytes"
        )
    return Result("exact-curve", CURVE_TITLE, "tuples", LENGTHS[-1], (), (), figures=figures, rows=tuple(rows))


FAMILY: dict[str, dict[str, Any]] = {
    "2-way, equal rates": {"count": 2, "rates": (100.0, 100.0)},
    "3-way, equal rates": {"count": 3, "rates": (30.0, 30.0, 30.0)},
    "3-way, rates 100 : 100 : 0.05": {"count": 3, "rates": (100.0, 100.0, 0.05)},
}


def _family_streams(options: dict[str, Any]) -> Streams:
    """20,000 tuples of the fast streams, a window of 10 s, 1,000 items; all end when the first does."""
    work = streams(20_000, SEED, window=10 * SECOND, keys=1_000, **options)
    cut = [int(np.searchsorted(each, work.ts[0][-1], "right")) for each in work.ts]
    ts = tuple(each[:n] for each, n in zip(work.ts, cut, strict=True))
    return Streams(ts, tuple(each[:n] for each, n in zip(work.codes, cut, strict=True)), work.window)


def _run_of_family(algorithm: str, work: Streams, joins: dict[str, WindowJoin]) -> None:
    joins[algorithm] = _running(work, algorithm=algorithm)
    _pushed(joins[algorithm], work)


@benchmark("exact-family", FAMILY_TITLE)
def exact_family() -> Result:
    """Every algorithm on the same streams, pushed in batches of 4,096 in total order."""
    rows: list[dict[str, Any]] = []
    figures: dict[str, object] = {}
    for case, options in FAMILY.items():
        work = _family_streams(options)
        joins: dict[str, WindowJoin] = {}

        spent = _medians({each: partial(_run_of_family, each, work, joins) for each in ALGORITHMS})
        for algorithm in ALGORITHMS:
            join = joins[algorithm]
            row = {
                "case": case,
                "algorithm": algorithm,
                "ns_a_tuple": spent[algorithm] / work.tuples,
                "comparisons_a_tuple": join.costs["comparisons"] / work.tuples,
                "state_bytes": join.most_memory,
                "completed": join.completed,
            }
            rows.append(row)
            figures[f"{case}, {algorithm}"] = (
                f"{row['ns_a_tuple']:.0f} ns and {row['comparisons_a_tuple']:.1f} comparisons a tuple, "
                f"{row['state_bytes']:,} bytes, {row['completed']:,} outputs"
            )
    return Result("exact-family", FAMILY_TITLE, "tuples", 60_000, (), (), figures=figures, rows=tuple(rows))
