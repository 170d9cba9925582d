"""Pipelined continuous queries under the three schedulings: how late answers come, and what travels between operators.

An answer's response time has two parts.  How long an operator does not know that a tuple has expired is time of the
streams, the same on every machine: `delay`.  What is left is work: the kind by the clock adds the CPU time of a tuple;
the other one counts tuples that operators hand each other.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import Plan, Scan, inputs_of, walk
from nile.experiments.atlas.due_changes import Event, due
from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.atlas.pipeline_queries import QUERIES, Sales, made, query, read
from nile.experiments.run.fields import one_of

__all__ = ["PIPELINE", "PIPELINE_CLOCK", "Asked", "PipelineOptions", "delays"]

Array = np.ndarray[Any, Any]
_S = 1_000_000_000
BATCH = 4_096
LEAST = _S // 20  # ns of CPU that a time is taken over
SCHEDULINGS = ("nta", "tpa", "ita")
_DECIMALS = 6  # of prices and their totals

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


class PipelineOptions(Options):
    """window, second: seconds, of the first stream's window and, in Q5, of the second's.  outputs: stop after so many,
    by the clock.

    tuples, rate: of each stream.  passes, matches: see `pipeline_queries.made`; left out, matches is as in the paper,
    0.6 in Q4 and else 0.1.
    """

    data: Annotated[str, one_of(("synthetic", "real"))] = Field("synthetic", description="synthetic or real")
    query: Annotated[str, one_of(QUERIES)] = Field("Q1", description=f"one of {', '.join(QUERIES)}")
    tuples: Annotated[int, Field(ge=100, le=100_000_000)] = Field(10_000, description="a whole number from 100 on")
    rate: Positive = Field(20.0, description="tuples per second, above 0")
    window: Positive = Field(60.0, description="seconds above 0")
    second: Positive = Field(30.0, description="seconds above 0")
    passes: Share = Field(0.25, description="a share in (0, 1]")
    matches: Share | None = Field(None, description="a share in (0, 1]")
    scheduling: Annotated[str, one_of(SCHEDULINGS)] = Field("nta", description=f"one of {', '.join(SCHEDULINGS)}")
    outputs: Annotated[int, Field(ge=1)] | None = Field(None, description="a whole number of 1 or more")


class Asked:
    """A query over its sales."""

    def __init__(self, options: PipelineOptions, sales: Sales) -> None:
        self.sales = sales
        self._query = options.query
        self._lengths = {"s": round(options.window * _S), "r": round(options.window * _S)}
        if options.query == "Q5":
            self._lengths["r"] = round(options.second * _S)
        self.plan: Plan = query(options.query, sales, options.window, options.second)

    @cached_property
    def due(self) -> list[Event]:
        """Every change when it is so, worked out when the first point asks, by no scheduling that is measured."""
        return list(due(self._query, self.sales, {name: self._lengths[name] for name in self.streams}))

    def run(self, pipeline: Pipeline) -> Iterator[Changes]:
        """What a pipeline tells of the streams that its plan reads, to their end."""
        yield from pipeline.run({name: _batches(*self.sales.streams[name]) for name in self.streams})

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads."""
        return tuple(each.name for each in walk(self.plan) if isinstance(each, Scan))


def _batches(ts: Array, rows: Any) -> Iterator[tuple[Array, Any]]:
    for at in range(0, ts.shape[0], BATCH):
        yield ts[at : at + BATCH], rows.slice(at, BATCH)


def _prepare(options: PipelineOptions, seed: int, data: Data | None) -> Asked:
    matches = options.matches or (0.6 if options.query == "Q4" else 0.1)
    if data is not None:
        sales = read(seed, data, tuples=options.tuples, passes=options.passes, matches=matches)
    else:
        sales = made(
            seed, options.query, tuples=options.tuples, rate=options.rate, window=options.window,
            second=options.second, passes=options.passes, matches=matches,
        )  # fmt: skip
    return Asked(options, sales)


def delays(exact: Iterable[Event], told: Iterable[Changes], end: int) -> Array:
    """How many ns after it was so each change was told: int64, a change each; below 0 where it was told too early.

    The first telling of a row that comes or goes is that of its first coming or going.  What was not told by `end`
    counts as told then.
    """
    owed: dict[Any, deque[int]] = defaultdict(deque)
    for sign, row, ts in exact:
        owed[(sign, *_rounded(row))].append(ts)
    late = []
    for sign, row, ts in _events(told):
        waiting = owed[(sign, *_rounded(row))]
        if waiting:
            late.append(ts - waiting.popleft())
    late += [max(end - ts, 0) for waiting in owed.values() for ts in waiting]
    return np.array(late, np.int64)


def _rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Totals may be added up in another order."""
    return tuple(round(value, _DECIMALS) if isinstance(value, float) else value for value in row)


def _events(changes: Iterable[Changes]) -> Iterator[Event]:
    """What was told but rows that go and come again in one breath."""
    last: Event | None = None
    for each in changes:
        columns = [column.to_pylist() for column in each.rows.columns]
        for sign, ts, *values in zip(each.sign.tolist(), each.ts.tolist(), *columns, strict=True):
            event = sign, tuple(values), ts
            if last is not None and sign > 0 and last == (-1, *event[1:]):
                last = None
                continue
            if last is not None:
                yield last
            last = event
    if last is not None:
        yield last


def _late(asked: Asked, told: Iterable[Changes]) -> Array:
    """How many seconds late each change was told: float64, a change each."""
    end = max(int(asked.sales.streams[name][0][-1]) for name in asked.streams)
    late: Array = delays(asked.due, told, end) / _S
    return late


def _measure(asked: Asked, options: PipelineOptions, _seed: int) -> Mapping[str, float | None]:
    pipeline = _pipeline(asked, options)
    late = _late(asked, list(asked.run(pipeline)))
    tuples = pipeline.costs["tuples"]
    return {
        "delay": float(late.mean()) if late.size else None,
        "delay_most": float(late.max()) if late.size else None,
        "sent": _sent(pipeline) / tuples,
        "memory": float(pipeline.memory),
    }


def _pipeline(asked: Asked, options: PipelineOptions) -> Pipeline:
    return Pipeline(asked.plan, options.scheduling)  # type: ignore[arg-type]


def _sent(pipeline: Pipeline) -> int:
    """Signed tuples that operators of the plan got from others."""
    return sum(each.tuples for each in pipeline.operators if each.node is not None and inputs_of(each.node))


@cache
def _compiled(name: str, scheduling: str) -> None:
    """Run a query over a few tuples once, so that no time is that of a compiler."""
    few = {"query": name, "scheduling": scheduling, "tuples": 1_000, "window": 5.0, "second": 3.0}
    options = PipelineOptions.model_validate(few)
    asked = _prepare(options, 0, None)
    for _ in asked.run(_pipeline(asked, options)):
        pass


def _timed(asked: Asked, options: PipelineOptions, _seed: int) -> Mapping[str, float | None]:
    _compiled(options.query, options.scheduling)
    runs = came = tuples = 0
    told: list[Changes] = []
    begin = time.process_time_ns()
    while (spent := time.process_time_ns() - begin) < LEAST or not runs:
        pipeline = _pipeline(asked, options)
        came, told = 0, []
        for each in asked.run(pipeline):
            told.append(each)
            came += int(np.count_nonzero(each.sign > 0))
            if options.outputs is not None and came >= options.outputs:
                break
        tuples = pipeline.costs["tuples"]
        runs += 1
    seconds = spent / runs / _S
    if options.outputs is not None:
        return {"seconds": seconds if came >= options.outputs else None}
    late = _late(asked, told)
    delay = float(late.mean()) if late.size else None
    return {"seconds": seconds, "delay": delay, "response": None if delay is None else delay + seconds / tuples}


DELAY = Metric("How late answers come, on average", "mean delay", "seconds late", "seconds", -1)
PREPARES = tuple(name for name in PipelineOptions.model_fields if name not in ("scheduling", "outputs"))


def _operator(options: PipelineOptions) -> str:
    return options.scheduling


PIPELINE = register(
    Kind(
        name="pipeline",
        about="continuous queries in pipelines of operators",
        options=PipelineOptions,
        metrics={
            "delay": DELAY,
            "delay_most": Metric("How late the latest answer comes", "longest delay", "seconds late", "seconds", -1),
            "sent": Metric(
                "Tuples between operators",
                "tuples sent",
                "signed tuples sent, an input tuple",
                "number",
                -1,
            ),
            "memory": Metric("State at the end", "state", "bytes", "number", -1),
        },
        prepares=PREPARES,
        prepare=_prepare,
        measure=_measure,
        operator=_operator,
    )
)

PIPELINE_CLOCK = register(
    Kind(
        name="pipeline-clock",
        about="continuous queries in pipelines of operators, timed",
        options=PipelineOptions,
        metrics={
            "seconds": Metric("CPU time", "CPU time", "seconds of CPU", "seconds", -1),
            "response": Metric(
                "Response time: the mean delay and the CPU time of a tuple", "response time", "seconds", "seconds", -1
            ),
            "delay": DELAY,
        },
        prepares=PREPARES,
        prepare=_prepare,
        measure=_timed,
        operator=_operator,
        by_clock=True,
    )
)
