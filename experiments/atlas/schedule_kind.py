"""What queues between operators hold, and how late answers are, under policies that pick which operator runs next.

plan: the two operators and the burst of section 4.2 of the CIDR paper, whose queues are told at an instant; or random
plans, small enough to try every order of work: what is held beyond the least that any order holds at that instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Annotated

import numpy as np
from pydantic import Field

from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.run.fields import one_of
from nile.runtime.charts import Step
from nile.runtime.clairvoyant import least_sizes
from nile.runtime.scheduling import SCHEDULERS, Arrival, Chain, Scheduler, simulate

__all__ = ["PAPER", "SCHEDULE", "ScheduleOptions"]

PAPER = ((Step(1, 0.2), Step(1, 0.0)),)
"""O1 leaves a fifth of a batch, O2 hands on the answer; each takes one unit of time."""
_BURST = tuple(Arrival(at) for at in range(1, 8))
_BATCHES, _COSTS, _SPAN = 4, 4, 6
METHODS = (*SCHEDULERS, "chain-latency")


class ScheduleOptions(Options):
    """instant: of the paper's plan; paths, operators: of each random plan, at most; plans: a seed."""

    plan: Annotated[str, one_of(("paper", "random"))] = Field("random", description="paper or random")
    method: Annotated[str, one_of(METHODS)] = Field("chain", description=f"one of {', '.join(METHODS)}")
    instant: Annotated[int, Field(ge=1, le=15)] = Field(7, description="a whole number from 1 to 15")
    paths: Annotated[int, Field(ge=1, le=3)] = Field(2, description="a whole number from 1 to 3")
    operators: Annotated[int, Field(ge=1, le=3)] = Field(3, description="a whole number from 1 to 3")
    plans: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="a whole number from 1 on")


@dataclass(frozen=True, slots=True)
class _Plan:
    """least: of each instant what any order holds at least; late: the longest wait for an answer under FIFO."""

    paths: tuple[tuple[Step, ...], ...]
    arrivals: tuple[Arrival, ...]
    least: tuple[float, ...]
    late: int


def _prepare(options: ScheduleOptions, seed: int, _data: Data | None) -> list[_Plan]:
    if options.plan == "paper":
        return [_judged(PAPER, _BURST)]
    rng = np.random.Generator(np.random.PCG64([seed, 41]))
    found = []
    for _ in range(options.plans):
        paths = tuple(
            tuple(
                Step(int(rng.integers(1, _COSTS)), float(rng.random()))
                for _ in range(int(rng.integers(1, options.operators + 1)))
            )
            for _ in range(options.paths)
        )
        at = np.sort(rng.integers(0, _SPAN, _BATCHES)).tolist()
        arrivals = tuple(Arrival(int(when), int(rng.integers(0, options.paths))) for when in at)
        found.append(_judged(paths, arrivals))
    return found


def _judged(paths: tuple[tuple[Step, ...], ...], arrivals: tuple[Arrival, ...]) -> _Plan:
    run = simulate(paths, arrivals, SCHEDULERS["fifo"](paths))
    return _Plan(paths, arrivals, tuple(least_sizes(paths, arrivals, len(run.sizes) - 1)), max(run.latencies))


def _measure(given: list[_Plan], options: ScheduleOptions, _seed: int) -> Mapping[str, float | None]:
    held, beyond, peaks, late = [], [], [], []
    for plan in given:
        scheduler: Scheduler = (
            Chain(plan.paths, latency=plan.late)
            if options.method == "chain-latency"
            else SCHEDULERS[options.method](plan.paths)
        )
        run = simulate(plan.paths, plan.arrivals, scheduler)
        held.append(run.sizes[options.instant] if options.instant < len(run.sizes) else 0.0)
        beyond.append(max(mine - least for mine, least in zip(run.sizes, plan.least, strict=True)))
        peaks.append(max(run.sizes) / max(plan.least))
        late.append(max(run.latencies) / plan.late)
    alone = options.plan == "paper"
    return {
        "size": held[0] if alone else None,
        "beyond": max(beyond),
        "beyond_mean": mean(beyond),
        "peak": mean(peaks),
        "late": mean(late),
    }


SCHEDULE = register(
    Kind(
        name="schedule",
        about="queues between operators, under policies that pick which one runs next",
        options=ScheduleOptions,
        metrics={
            "size": Metric("What the queues hold", "held", "batches", "number", -1),
            "beyond": Metric("Held beyond the best order, at worst", "most beyond the best", "batches", "number", -1),
            "beyond_mean": Metric("Held beyond the best order", "beyond the best", "batches, mean", "number", -1),
            "peak": Metric("Most that is held", "peak", "times the best order's", "number", -1),
            "late": Metric("Longest wait for an answer", "wait", "times FIFO's", "number", -1),
        },
        prepares=("plan", "paths", "operators", "plans"),
        prepare=_prepare,
        measure=_measure,
        operator=lambda options: options.method,
    )
)
