"""Window joins over independent queues, on a machine of so many operations a second: who waits, and for whom.

Tuples of different streams have no order: each comes when it comes, and the join takes from the queues what it can.  A
stream may be behind the others (`delay`), and each of its tuples on its way for a while of its own (`jitter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from nile.exact.selfscheduling.operators import Nothing
from nile.exact.selfscheduling.pulling import PULLED, SelfScheduledPlan
from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.atlas.windows.window_streams import PATTERNS, Played, made
from nile.experiments.run.fields import one_of
from nile.summaries.errors import ConfigError

__all__ = ["SELF_SCHEDULED", "Run", "SelfScheduledOptions", "played"]

Array = np.ndarray[Any, Any]
_S = 1_000_000_000
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Never = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SelfScheduledOptions(Options):
    """delay: seconds by which the last stream comes later than its times; jitter: mean of an exponential delay that
    each tuple has, behind which the later ones of its stream wait.  speed: operations a second, or none for a machine
    that takes no time, where only other streams are waited for.
    """

    streams: Annotated[int, Field(ge=2, le=16)] = Field(4, description="a whole number from 2 to 16")
    tuples: Annotated[int, Field(ge=100, le=10_000_000)] = Field(20_000, description="a whole number from 100 on")
    rate: Positive = Field(100.0, description="tuples per second, above 0")
    least: Positive = Field(10.0, description="tuples per second, above 0")
    pattern: Annotated[str, one_of(PATTERNS)] = Field("even", description=f"one of {', '.join(PATTERNS)}")
    items: Annotated[int, Field(ge=1)] = Field(400, description="a whole number of 1 or more")
    window: Positive = Field(6.0, description="seconds above 0")
    delay: Never = Field(0.0, description="seconds of 0 or more")
    jitter: Never = Field(0.0, description="seconds of 0 or more")
    algorithm: Annotated[str, one_of(PULLED)] = Field("bew-hash", description=f"one of {', '.join(PULLED)}")
    speed: Positive | None = Field(None, description="operations a second, above 0")

    @model_validator(mode="after")
    def _rates(self) -> SelfScheduledOptions:
        if self.pattern != "even" and self.least > self.rate:
            raise ConfigError(f"needed least at most rate; got {self.least:g} and {self.rate:g}")
        return self


@dataclass(frozen=True, slots=True)
class Coming:
    """Tuples of several streams in the order in which they come: when, int64 ns [n], and what they are."""

    came: Array
    tuples: Played


@dataclass(frozen=True, slots=True)
class Run:
    """done: seconds at which each tuple had been joined or let go, [n] in the order of coming, nan for those that still
    wait at the end; kept, waiting: tuples in all buffers and all queues when each came; costs; outputs."""

    done: Array
    kept: Array
    waiting: Array
    costs: dict[str, int]
    outputs: int


def _prepare(options: SelfScheduledOptions, seed: int, _data: Data | None) -> Coming:
    tuples = made(
        options.streams, seed, tuples=options.tuples, rate=options.rate, least=options.least, pattern=options.pattern,
        items=options.items,
    )  # fmt: skip
    rng = np.random.Generator(np.random.PCG64([seed, 43]))
    late = rng.exponential(options.jitter, len(tuples)) if options.jitter else np.zeros(len(tuples))
    late[tuples.which == options.streams - 1] += options.delay
    came = tuples.ts + np.round(late * _S).astype(np.int64)
    for j in range(options.streams):
        own = tuples.which == j
        came[own] = np.maximum.accumulate(came[own])  # a stream keeps its order
    order = np.argsort(came, kind="stable")
    return Coming(came[order], Played(tuples.streams, tuples.which[order], tuples.ts[order], tuples.code[order]))


def played(coming: Coming, plan: SelfScheduledPlan, speed: float | None) -> Run:
    """Let tuples come in, and the join take its turns: each takes its operations; after NULL it waits for the next."""
    join, tuples = plan.start(), coming.tuples
    n, total = plan.streams, len(tuples)
    places = [np.flatnonzero(tuples.which == j) for j in range(n)]
    came, which = (coming.came / _S).tolist(), tuples.which.tolist()
    done = np.full(total, np.nan)
    kept, waiting = np.zeros(total, np.int64), np.zeros(total, np.int64)
    outputs = spent = at = 0
    now, left = 0.0, [0] * n
    while True:
        while at < total and came[at] <= now:
            one = slice(at, at + 1)
            join.push(which[at], tuples.ts[one], tuples.code[one])
            kept[at], waiting[at] = join.kept.sum(), join.waiting.sum()
            at += 1
        nothing = join.turn()
        outputs += sum(block.shape[0] for block in join.outputs())
        if speed is not None:
            operations = sum(join.costs.values())
            now += (operations - spent) / speed
            spent = operations
        for j, through in enumerate(join.admitted.tolist()):
            if through > left[j]:
                done[places[j][left[j] : through]] = now
                left[j] = through
        if nothing is not None:
            if at == total or nothing is Nothing.END:
                return Run(done, kept, waiting, join.costs, outputs)
            now = max(now, came[at])


def _measure(coming: Coming, options: SelfScheduledOptions, _seed: int) -> Mapping[str, float | None]:
    plan = SelfScheduledPlan(options.streams, round(options.window * _S), options.algorithm)
    run = played(coming, plan, options.speed)
    came, total = coming.came / _S, len(coming.tuples)
    # Buffers fill in the first window; what lies in the last of any stream might wait for tuples that were not made.
    until = min(int(coming.tuples.ts[coming.tuples.which == j].max()) for j in range(options.streams)) - plan.window
    steady = (came > came[0] + options.window + options.delay) & (coming.tuples.ts < until)
    waits = (run.done - came)[steady]
    if not waits.shape[0]:
        raise ConfigError(
            f"response times: needed more than two windows of {options.window:g} s beside the delay, in which all "
            f"streams come; got {came[-1] - came[0]:g} s; name more tuples"
        )
    return {
        "response": float(waits.mean()),
        "comparisons": run.costs["comparisons"] / total,
        "operations": sum(run.costs.values()) / total,
        "kept": float(run.kept[steady].mean()),
        "waiting": float(run.waiting[steady].mean()),
        "unjoined": run.costs["unjoined"] / total,
        "outputs": run.outputs / total,
    }


SELF_SCHEDULED = register(
    Kind(
        name="self-scheduled-join",
        about="several streams joined in windows, each with a queue of its own and no order between them",
        options=SelfScheduledOptions,
        metrics={
            "response": Metric("Response time", "response time", "seconds from coming to done", "seconds", -1),
            "comparisons": Metric(
                "Candidates looked at", "candidates a tuple", "candidates looked at, an input tuple", "number", -1
            ),
            "operations": Metric("Operations", "operations a tuple", "operations, an input tuple", "number", -1),
            "kept": Metric("Tuples kept", "tuples kept", "tuples kept to be joined, on average", "number", -1),
            "waiting": Metric("Tuples waiting", "tuples waiting", "tuples in the queues, on average", "number", -1),
            "unjoined": Metric("Let go by Mode 1", "let go unjoined", "share never kept", "share", 0),
            "outputs": Metric("Outputs an input", "outputs an input", "outputs an input tuple", "number", 0),
        },
        prepares=("streams", "tuples", "rate", "least", "pattern", "items", "delay", "jitter"),
        prepare=_prepare,
        measure=_measure,
        operator=lambda options: f"self-scheduled {options.algorithm}",
    )
)
