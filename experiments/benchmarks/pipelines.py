"""How fast pipelined continuous queries are on one core, and what a tuple costs as streams grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import Aggregate, Group, Join, Plan, Range, Scan, Select, Unbounded, Window
from nile.experiments.benchmarks.harness import Contestant, Measure, Result, benchmark, race
from nile.summaries.lazy import lazy

__all__ = ["PipelineStreams", "pipelines_curve", "pipelines_join", "pipelines_sum", "ran"]

Array = np.ndarray[Any, Any]
PipelineStreams = dict[str, tuple[Array, Any]]
pa = lazy("pyarrow")
pc = lazy("pyarrow.compute")

TUPLES = 1_000_000  # of all streams of a query
BATCH = 65_536
GAP = 1_000.0  # mean ns between tuples of a stream, exponential
IN_WINDOW = 60_000  # tuples of a stream
KEYS = 10_000
LENGTHS = (100_000, 1_000_000, 10_000_000)
ROUNDS = 5
SUM_AIM, JOIN_AIM = 1_000_000, 500_000


def schema(side: str) -> Any:
    """item, price and quantity of one stream, under its name."""
    return pa.schema([(f"{side}.item", pa.int64()), (f"{side}.price", pa.float64()), (f"{side}.quantity", pa.int64())])


def sales(side: str, tuples: int, seed: int) -> tuple[Array, Any]:
    """(times, rows) of a stream of sales: prices of two decimals up to 100, items uniform over KEYS."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.exponential(GAP, tuples)).astype(np.int64)
    columns = [rng.integers(0, KEYS, tuples), np.round(rng.random(tuples) * 100, 2), rng.integers(1, 9, tuples)]
    return ts, pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=schema(side))


def select_sum(window: Window, column: str = "s.price") -> Plan:
    """The paper's first query: the total of sales above a price (three in four) in a window."""
    dear = Select(Scan("s", schema("s"), window, 0), lambda rows: pc.greater(rows["s.price"], 25.0))
    return Group(dear, (), (Aggregate("total", "sum", column),))


def join_group(window: Window) -> Plan:
    """Sales of an item in both streams: how many pairs, and their quantity, for each item."""
    both = Join(Scan("a", schema("a"), window, 0), Scan("b", schema("b"), window, 1), (("a.item", "b.item"),))
    return Group(both, ("a.item",), (Aggregate("pairs", "count"), Aggregate("total", "sum", "a.quantity")))


def batches(ts: Array, rows: Any) -> Iterator[tuple[Array, Any]]:
    """A stream cut into batches."""
    for at in range(0, ts.shape[0], BATCH):
        yield ts[at : at + BATCH], rows.slice(at, BATCH)


def ran(plan: Plan, streams: PipelineStreams, scheduling: Any = "nta", emit: Any = "changes") -> Pipeline:
    """The pipeline after all streams."""
    pipeline = Pipeline(plan, scheduling, emit)
    for _ in pipeline.run({name: batches(*stream) for name, stream in streams.items()}):
        pass
    return pipeline


def contestants(plan: Plan, streams: PipelineStreams, title: str) -> list[Contestant]:
    """The same query under each scheduling."""

    def under(scheduling: str) -> Callable[[], object]:
        return lambda: ran(plan, streams, scheduling)

    names = {"nta": "negative tuples", "tpa": "time probing", "ita": "input triggered (late)"}
    return [Contestant(f"{title}, {name}", under(each)) for each, name in names.items()]


def told(result: Result, aim: int, pipeline: Pipeline) -> Result:
    """The result with what was aimed at, what was emitted and what is kept."""
    rate = Measure("under negative tuples", result.timings[0].per_second, "tuples per second", aim)
    figures = {
        **{name: f"{n:,}" for name, n in pipeline.costs.items()},
        "state and waiting tuples at the end": f"{pipeline.memory:,} bytes",
    }
    return replace(result, figures=figures, measures=(*result.measures, rate))


@benchmark("pipelines-sum", "Select and window sum, every change told, by scheduling")
def pipelines_sum() -> Result:
    """One stream in one window; each arrival and each expiry that passes the selection changes the sum."""
    plan, streams = select_sum(Range(int(IN_WINDOW * GAP))), {"s": sales("s", TUPLES, 1)}
    title = "select and sum of doubles, exact"
    result = race(
        "pipelines-sum", title, contestants(plan, streams, "sum"), work=TUPLES, unit="tuples", rounds=ROUNDS,
        notes=[f"a window of {IN_WINDOW:,} tuples, 75 % pass; CPU time of all threads, mostly one"],
    )  # fmt: skip
    return told(result, SUM_AIM, ran(plan, streams))


@benchmark("pipelines-join", "Window join and group-by, every change told, by scheduling")
def pipelines_join() -> Result:
    """Two streams in windows of as many tuples as there are keys: about one pair a tuple, as many groups change."""
    streams = {side: sales(side, TUPLES // 2, seed) for seed, side in enumerate("ab", 1)}
    plan = join_group(Range(int(KEYS * GAP)))
    title = "window join and group-by with count and sum"
    result = race(
        "pipelines-join", title, contestants(plan, streams, "join"), work=TUPLES, unit="tuples", rounds=ROUNDS,
        notes=[f"windows of {KEYS:,} tuples, {KEYS:,} keys, so about one pair a tuple, and it goes again"],
    )  # fmt: skip
    return told(result, JOIN_AIM, ran(plan, streams))


@benchmark("pipelines-curve", "Cost a tuple and state of pipelines as streams grow")
def pipelines_curve() -> Result:
    """CPU time a tuple must follow what windows hold, not how long the stream is; sums keep groups, not tuples."""
    figures: dict[str, object] = {}
    ts, rows = sales("s", LENGTHS[-1], 3)
    halves = [(name, *sales(name, LENGTHS[-1] // 2, seed)) for seed, name in enumerate("ab", 4)]
    windows: dict[str, Window] = {f"{IN_WINDOW:,} tuples": Range(int(IN_WINDOW * GAP)), "no end": Unbounded()}
    for length in LENGTHS:
        for name, window in windows.items():
            figures[f"select and sum, window of {name}, {length:,} tuples"] = _spent(
                select_sum(window), {"s": (ts[:length], rows.slice(0, length))}, length
            )
        two = {name: (t[: length // 2], r.slice(0, length // 2)) for name, t, r in halves}
        figures[f"join and group-by, {length:,} tuples"] = _spent(join_group(Range(int(KEYS * GAP))), two, length)
    return Result("pipelines-curve", "cost per tuple as streams grow", "tuples", LENGTHS[-1], (), (), figures=figures)


def _spent(plan: Plan, streams: PipelineStreams, tuples: int) -> str:
    """Median CPU nanoseconds a tuple, and bytes of state at the end."""
    ran(plan, {name: (ts[:BATCH], rows.slice(0, BATCH)) for name, (ts, rows) in streams.items()})  # compiled
    nanoseconds = []
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        pipeline = ran(plan, streams)
        nanoseconds.append((time.process_time_ns() - begin) / tuples)
    return f"{median(nanoseconds):,.0f} ns per tuple, {pipeline.memory:,} bytes"
