"""How often the intervals around an average of a sample hold the exact average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.benchmarks.accuracy.aggregates import coverage_of_prices
from nile.experiments.run.fields import one_of

__all__ = ["COVERAGE", "CoverageOptions"]

WHATS = ("price", "price * quantity")


class CoverageOptions(Options):
    """drawn: tuples in a sample; trials: samples a seed; what: the expression that is averaged."""

    drawn: Annotated[int, Field(ge=2, le=10_000)] = Field(300, description="a whole number from 2 to 10000")
    trials: Annotated[int, Field(ge=1, le=100_000)] = Field(400, description="a whole number from 1 on")
    tuples: Annotated[int, Field(ge=10_000, le=1_000_000)] = Field(20_000, description="a whole number from 10000 on")
    what: Annotated[str, one_of(WHATS)] = Field("price", description=f"one of {', '.join(WHATS)}")


def _measure(_given: bool, options: CoverageOptions, seed: int) -> Mapping[str, float | None]:
    certified, of_certified, of_all = coverage_of_prices(
        options.trials, options.drawn, options.what, tuples=options.tuples, first=seed * options.trials
    )
    return {
        "coverage_certified": of_certified if certified else None,
        "coverage_all": of_all,
        "certified": certified / options.trials,
    }


def _prepare(_options: CoverageOptions, _seed: int, _data: Data | None) -> bool:
    return True


COVERAGE = register(
    Kind(
        name="coverage",
        about="95 % intervals of averages over samples of a synthetic stream",
        options=CoverageOptions,
        metrics={
            "coverage_certified": Metric(
                "Certified intervals that hold the exact value", "coverage", "of the certified intervals", "share", 1
            ),
            "coverage_all": Metric(
                "Intervals that hold it, certified or not", "coverage of all", "of the intervals", "share", 1
            ),
            "certified": Metric("Intervals that are certified", "certified", "of the samples", "share", 1),
        },
        prepares=("drawn", "trials", "tuples", "what"),
        prepare=_prepare,
        measure=_measure,
        operator=lambda _: "sample",
    )
)
