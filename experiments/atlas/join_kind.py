"""Joins of two streams under a budget: the promising-tuple join, as printed and as it is here, and its opponents.

The paper's axis is the mean time between two arrivals, on one machine.  `capacity` says how fast that machine is:
the share of the exact join that it can do when a tuple arrives every 100 ms.  Tuples that come twice as fast leave
half the time for each, and a window of the same length holds twice as many, so the same machine can do about a
quarter of that share.  Without `interarrival` the budget is a fraction of the exact cost, without pacing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

import nile
from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.benchmarks.accuracy.joins import run
from nile.experiments.benchmarks.streams import streams
from nile.experiments.run.fields import one_of
from nile.operators.common.plan import GUIDES, METHODS, PREFERRING, QUEUES, JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable, Loaded, retimed
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.preferences.preference import PREFERENCES
from nile.pyramid.grid.spec import STRUCTURES
from nile.report.metrics import ExactPairs, Obtained, score
from nile.report.runs import FIGURES
from nile.report.truth import exact_pairs
from nile.summaries.costs import cost_table
from nile.summaries.errors import ConfigError

__all__ = ["JOIN", "JoinOptions", "Streams"]

_MS, _S = 1_000_000, 1_000_000_000
_REFERENCE = 100.0  # ms between arrivals: the slowest stream of the paper's figures

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class JoinOptions(Options):
    """window: seconds on the times that are played; 0 is the whole stream."""

    data: Annotated[str, one_of(("synthetic", "real"))] = Field("synthetic", description="synthetic or real")
    costs: Annotated[str, one_of(("engine", "memory"))] = Field("engine", description="engine or memory")
    tuples: Annotated[int, Field(ge=100, le=10_000_000)] = Field(12_000, description="a whole number from 100 on")
    selectivity: Annotated[float, Field(gt=0, lt=1)] = Field(0.067, description="a share in (0, 1)")
    window: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(60.0, description="seconds, 0 for no window")
    interarrival: Positive | None = Field(None, description="milliseconds above 0")
    capacity: Positive | None = Field(None, description="a number above 0")
    budget: Positive | None = Field(None, description="a number above 0")
    method: Annotated[str, one_of(METHODS)] = Field("nile", description=f"one of {', '.join(METHODS)}")
    guide: Annotated[str, one_of(GUIDES)] = Field("countsketch", description=f"one of {', '.join(GUIDES)}")
    structure: Annotated[str, one_of(STRUCTURES)] = Field("T4", description=f"one of {', '.join(STRUCTURES)}")
    preference: Annotated[str, one_of(PREFERENCES)] = Field("desc", description=f"one of {', '.join(PREFERENCES)}")
    fade: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="a number in (0, 1]")
    queue: Annotated[str, one_of(QUEUES)] = Field("one", description=f"one of {', '.join(QUEUES)}")
    buckets: Annotated[int, Field(ge=1, le=4096)] | None = Field(None, description="a power of two from 1 to 4096")
    columns: Annotated[int, Field(ge=1, le=1 << 20)] | None = Field(None, description="a power of two from 1 on")
    rows: Annotated[int, Field(ge=1, le=15)] | None = Field(None, description="a whole number from 1 to 15")
    max_length: Positive | None = Field(None, description="seconds above 0")
    granularity: Positive | None = Field(None, description="seconds above 0")
    depth: Annotated[int, Field(ge=1, le=32)] = Field(2, description="a whole number from 1 to 32")
    outlier_cap: Annotated[int, Field(ge=2)] = Field(4, description="a whole number of 2 or more")
    scored: bool = Field(False, description="true or false")

    @model_validator(mode="after")
    def _paced(self) -> JoinOptions:
        if (self.interarrival is None) != (self.capacity is None) or (self.interarrival is None) == (
            self.budget is None
        ):
            raise ConfigError(
                "needed either a budget, or interarrival together with capacity; got "
                f"budget {self.budget}, interarrival {self.interarrival}, capacity {self.capacity}"
            )
        if self.method == "nile" and self.guide == "countsketch" and self.structure == "T1":
            raise ConfigError(
                "needed a structure with summaries for method 'nile' guided by 'countsketch'; got 'T1'; add T1 to its "
                "not_at, or choose guide 'directory'"
            )
        return self


class Streams:
    """Two streams as they are played, and what scores an answer.  slow: matches per arrival at the reference pace."""

    def __init__(self, joined: Joinable, slow: float | None) -> None:
        self.joined = joined
        self.slow = slow

    @cached_property
    def exact(self) -> ExactPairs:
        """The exact answer, worked out when the first point asks."""
        return exact_pairs(self.joined)


def _prepare(options: JoinOptions, seed: int, data: Data | None) -> Streams:
    window = round(options.window * _S) or None
    read = _synthetic(options, seed) if data is None else _real(options, data)
    if options.interarrival is None:
        return Streams(Joinable(read[0], read[1], window), None)
    slow, played = (
        Joinable(left, right, window)
        for left, right in (
            retimed(read, Pace("exponential", round(ms * _MS)), seed) for ms in (_REFERENCE, options.interarrival)
        )
    )
    return Streams(played, float(slow.matches.mean()))


def _synthetic(options: JoinOptions, seed: int) -> tuple[Loaded, ...]:
    return streams(options.selectivity, seed, tuples=options.tuples)


def _real(options: JoinOptions, data: Data) -> tuple[Loaded, ...]:
    """The first tuples of a file, as many of both streams together as two synthetic ones have."""
    db = nile.connect()
    db.register("left", data.path, time=data.time, where=data.left)
    db.register("right", data.path, time=data.time, where=data.right)
    read = (db.load("left", data.key), db.load("right", data.key))
    times = np.sort(np.concatenate([one.ts for one in read]), kind="stable")
    if times.shape[0] <= 2 * options.tuples:
        return read
    end = times[2 * options.tuples]
    kept = [int(np.searchsorted(one.ts, end)) for one in read]
    return tuple(replace(one, ts=one.ts[:n], key=one.key.slice(0, n)) for one, n in zip(read, kept, strict=True))


def _plan(options: JoinOptions, seed: int, given: Streams | None = None) -> JoinPlan:
    window = round(options.window * _S) or None
    costs = cost_table(options.costs)
    fraction = options.budget
    pace = Pace()
    if options.interarrival is not None and options.capacity is not None:
        pace = Pace("exponential", round(options.interarrival * _MS))
        fraction = options.capacity * options.interarrival / _REFERENCE
        if given is not None and given.slow is not None:
            taking = costs.insert + costs.lookup
            here = taking + costs.emit * float(given.joined.matches.mean())
            fraction *= (taking + costs.emit * given.slow) / here
    assert fraction is not None
    ranking = options.method == "nile" and options.preference != "asc"
    granularity = None if options.granularity is None else round(options.granularity * _S)
    return JoinPlan(
        window=window,
        budget=Budget(fraction),
        method=options.method,
        preference=options.preference,
        guide=options.guide,
        fade=Fade(options.fade),
        costs=costs,
        pace=pace,
        queue=options.queue,
        outlier_cap=options.outlier_cap,
        spec=default_spec(
            window,
            ranking=ranking,
            granularity=granularity,
            depth=options.depth,
            structure=options.structure,
            seed=seed,
            **_sized(options),
        ),
        seed=seed,
    )


def _sized(options: JoinOptions) -> dict[str, object]:
    """What an experiment says of the size of sketches, and of zones."""
    given = {"buckets": options.buckets, "columns": options.columns, "rows": options.rows}
    sizes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if options.max_length is not None:
        sizes["max_length"] = round(options.max_length * _S)
    return sizes


def _operator(options: JoinOptions) -> str:
    if options.method not in PREFERRING:
        return options.method if options.preference == "desc" else f"{options.method}, {options.preference}"
    if _plan(options, 0).is_exact:
        return "plain probe"
    by = f" by {options.guide}" if options.method == "nile" else ""
    over = "" if by == " by directory" else f" over {options.structure}"
    return f"{options.method}{by}{over}, {options.preference}, fade {options.fade:g}"


def _measure(given: Streams, options: JoinOptions, seed: int) -> Mapping[str, float | None]:
    plan = _plan(options, seed, given)
    joined = given.joined
    join, out = run(plan, joined)
    figures = join.figures
    ages = np.abs(joined.left.ts[out.left] - joined.right.ts[out.right])
    told: dict[str, float | None] = {
        "t_ins": figures.t_ins,
        "t_hit": figures.t_hit,
        "outputs_per_input": figures.outputs_per_input,
        "recall": figures.outputs / joined.pairs if joined.pairs else None,
        "mean_age_s": float(ages.mean()) / _S if ages.size else None,
        "budget_spent": figures.budget_spent,
    }
    if options.scored:
        obtained = Obtained(out.left, out.right, out.weight)
        record = score(given.exact, obtained, window=plan.window, outlier_cap=plan.outlier_cap).record()
        told |= {name: record[name] for name in FIGURES if name not in told}
    return told


def _figure(key: str) -> Metric:
    """A metric that reports of `nile run` have too."""
    one = FIGURES[key]
    return Metric(one.title, one.short, one.axis, one.unit, one.better)


JOIN = register(
    Kind(
        name="join",
        about="two streams joined under a budget",
        options=JoinOptions,
        metrics={
            "t_ins": Metric("What taking a tuple in costs", "t_ins", "units of the cost table, a tuple", "number", -1),
            "t_hit": Metric(
                "What finding an output costs", "t_hit", "units of the cost table, an output", "number", -1
            ),
            "outputs_per_input": Metric("Outputs an input", "outputs an input", "outputs an input tuple", "number", 1),
            **{key: _figure(key) for key in FIGURES},
            "budget_spent": Metric("Work done", "work done", "of what the exact join costs", "share", 0),
        },
        prepares=("data", "tuples", "selectivity", "window", "interarrival"),
        prepare=_prepare,
        measure=_measure,
        operator=_operator,
    )
)
