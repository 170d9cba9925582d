"""Exact window joins of several streams: what each algorithm of the family looks at, keeps and takes.

What work costs is counted in operations, which are the same on every machine; the kind by the clock measures the
same points in CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import ALGORITHMS, STRATEGIES, WindowJoin, WindowJoinPlan
from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.atlas.windows.window_streams import PATTERNS, Played, made, split
from nile.experiments.run.fields import one_of
from nile.summaries.errors import ConfigError

__all__ = ["WINDOW", "WINDOW_CLOCK", "WindowOptions"]

Array = np.ndarray[Any, Any]
_S = 1_000_000_000
BATCH = 1_000  # arrivals; the report averages over as many
LEAST = _S // 20  # ns of CPU that a time is taken over
FORMS = ("clique", "path")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class WindowOptions(Options):
    """window: seconds between every two streams; wide: between the first two, if not the same.

    form: "path" joins along the streams, in their order or back.  outputs: stop when so many have come out.
    speed: operations a second of the machine that response times are worked out for.
    """

    data: Annotated[str, one_of(("synthetic", "real"))] = Field("synthetic", description="synthetic or real")
    streams: Annotated[int, Field(ge=2, le=16)] = Field(2, description="a whole number from 2 to 16")
    tuples: Annotated[int, Field(ge=100, le=100_000_000)] = Field(20_000, description="a whole number from 100 on")
    rate: Positive = Field(1000.0, description="tuples per second, above 0")
    least: Positive = Field(100.0, description="tuples per second, above 0")
    pattern: Annotated[str, one_of(PATTERNS)] = Field("even", description=f"one of {', '.join(PATTERNS)}")
    items: Annotated[int, Field(ge=1)] = Field(500, description="a whole number of 1 or more")
    window: Positive = Field(1.0, description="seconds above 0")
    wide: Positive | None = Field(None, description="seconds above 0")
    form: Annotated[str, one_of(FORMS)] = Field("clique", description=f"one of {', '.join(FORMS)}")
    algorithm: Annotated[str, one_of(ALGORITHMS)] = Field("chain", description=f"one of {', '.join(ALGORITHMS)}")
    strategy: Annotated[str, one_of(STRATEGIES)] | None = Field(None, description=f"one of {', '.join(STRATEGIES)}")
    cleanup: Annotated[int, Field(ge=1)] = Field(10_000, description="a whole number of arrivals above 0")
    outputs: Annotated[int, Field(ge=1)] | None = Field(None, description="a whole number of 1 or more")
    speed: Positive | None = Field(None, description="operations a second, above 0")

    @model_validator(mode="after")
    def _joinable(self) -> WindowOptions:
        if self.pattern != "even" and self.least > self.rate:
            raise ConfigError(f"needed least at most rate; got {self.least:g} and {self.rate:g}")
        _plan(self)
        return self


def _plan(options: WindowOptions) -> WindowJoinPlan:
    n, window = options.streams, round(options.window * _S)
    wide = window if options.wide is None else round(options.wide * _S)
    if options.form == "path":
        graph = WindowGraph.directed(n, [(k, k + 1, window if k else wide) for k in range(n - 1)])
    elif wide == window:
        graph = WindowGraph.uniform(n, window)
    else:
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        graph = WindowGraph.of(n, {pair: wide if pair == (0, 1) else window for pair in pairs})
    return WindowJoinPlan(graph, algorithm=options.algorithm, strategy=options.strategy or "", cleanup=options.cleanup)


def _operator(options: WindowOptions) -> str:
    plan = _plan(options)
    algorithm, strategy = plan.chosen
    return algorithm if plan.graph.is_uniform else f"{algorithm} by {strategy}"


def _prepare(options: WindowOptions, seed: int, data: Data | None) -> Played:
    if data is not None:
        return split(options.streams, data, tuples=options.tuples)
    return made(
        options.streams, seed, tuples=options.tuples, rate=options.rate, least=options.least, pattern=options.pattern,
        items=options.items,
    )  # fmt: skip


def _played(join: WindowJoin, arrivals: Played, outputs: int | None, held: list[int] | None = None) -> int:
    """Push the arrivals, and take what comes out, until so many have come; how many arrivals are in.

    held: gets how many tuples are kept, after each batch.
    """
    for begin in range(0, len(arrivals), BATCH):
        part = slice(begin, begin + BATCH)
        join.push(arrivals.which[part], arrivals.ts[part], arrivals.code[part])
        for _ in join.outputs():
            pass
        if held is not None:
            held.append(join.held)
        if outputs is not None and join.completed >= outputs:
            return min(begin + BATCH, len(arrivals))
    return len(arrivals)


def _measure(arrivals: Played, options: WindowOptions, _seed: int) -> Mapping[str, float | None]:
    join = _plan(options).start()
    held: list[int] = []
    came = _played(join, arrivals, options.outputs, held)
    return {
        "comparisons": join.costs["comparisons"] / came,
        "operations": _operations(join) / came,
        "held": float(np.mean(held)),
        "outputs": join.completed / came,
        "total": _short(join, options, join.costs["comparisons"]),
        "response": None if options.speed is None else _response(options, arrivals, options.speed),
    }


def _operations(join: WindowJoin) -> int:
    """Candidates looked at, probes begun, changes of hash tables, tuples removed and moved."""
    return sum(join.costs.values())


def _short(join: WindowJoin, options: WindowOptions, figure: float) -> float | None:
    """A figure of all that was asked for: none where the streams ended before."""
    return None if options.outputs is not None and join.completed < options.outputs else figure


def _response(options: WindowOptions, arrivals: Played, speed: float) -> float:
    """Mean seconds from a tuple's arrival until it is done: it waits for those before it, then takes its operations.

    Tuples that arrive in the first window are left out: buffers are filling.
    """
    join = _plan(options).start()
    spent = np.zeros(arrivals.ts.shape[0] + 1, np.int64)
    for at in range(arrivals.ts.shape[0]):
        one = slice(at, at + 1)
        join.push(arrivals.which[one], arrivals.ts[one], arrivals.code[one])
        for _ in join.outputs():
            pass
        spent[at + 1] = _operations(join)
    came = arrivals.ts / _S
    takes = np.diff(spent) / speed
    # Done when all before are: done[i] = max(done[i - 1], came[i]) + takes[i].
    through = np.cumsum(takes)
    done = np.maximum.accumulate(came - (through - takes)) + through
    steady = arrivals.ts > arrivals.ts[0] + round(options.window * _S)
    if not steady.any():
        raise ConfigError(
            f"response times: needed more than a window of {options.window:g} s; got {came[-1] - came[0]:g} s; name "
            "more tuples"
        )
    return float((done - came)[steady].mean())


@cache
def _compiled(options: WindowOptions) -> None:
    """Join a few tuples once, so that no time is that of a compiler."""
    few = made(options.streams, 0, tuples=2 * BATCH, rate=100.0, least=100.0, pattern="even", items=100)
    _played(_plan(options).start(), few, None)


def _timed(arrivals: Played, options: WindowOptions, _seed: int) -> Mapping[str, float | None]:
    _compiled(options)
    join = _plan(options).start()
    runs, came = 0, 0
    begin = time.process_time_ns()
    while (spent := time.process_time_ns() - begin) < LEAST or not runs:
        join = _plan(options).start()
        came = _played(join, arrivals, options.outputs)
        runs += 1
    seconds = spent / runs / _S
    return {
        "seconds": _short(join, options, seconds),
        "throughput": came / seconds,
        "comparisons": join.costs["comparisons"] / came,
    }


COMPARISONS = Metric("Candidates looked at", "candidates a tuple", "candidates looked at, an input tuple", "number", -1)
PREPARES = ("data", "streams", "tuples", "rate", "least", "pattern", "items")

WINDOW = register(
    Kind(
        name="window-join",
        about="several streams joined exactly in windows",
        options=WindowOptions,
        metrics={
            "comparisons": COMPARISONS,
            "operations": Metric("Operations", "operations a tuple", "operations, an input tuple", "number", -1),
            "held": Metric("Tuples kept", "tuples kept", "tuples kept, on average", "number", -1),
            "outputs": Metric("Outputs an input", "outputs an input", "outputs an input tuple", "number", 0),
            "total": Metric("All candidates looked at", "candidates", "candidates looked at", "number", -1),
            "response": Metric("Response time", "response time", "seconds until a tuple is done", "seconds", -1),
        },
        prepares=PREPARES,
        prepare=_prepare,
        measure=_measure,
        operator=_operator,
    )
)

WINDOW_CLOCK = register(
    Kind(
        name="window-join-clock",
        about="several streams joined exactly in windows, timed",
        options=WindowOptions,
        metrics={
            "seconds": Metric("CPU time", "CPU time", "seconds of CPU", "seconds", -1),
            "throughput": Metric("Throughput", "tuples per second", "input tuples per second of CPU", "number", 1),
            "comparisons": COMPARISONS,
        },
        prepares=PREPARES,
        prepare=_prepare,
        measure=_timed,
        operator=_operator,
        by_clock=True,
    )
)
