"""What answers are worth under a budget: the bars of joins, selections and aggregates, with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nile.experiments.benchmarks.accuracy import aggregates as accuracy_aggregates
from nile.experiments.benchmarks.accuracy import joins as accuracy_joins
from nile.experiments.benchmarks.accuracy import selections as accuracy_selections
from nile.experiments.benchmarks.harness import Measure, Result, benchmark

__all__ = ["aggregates", "joins", "selections"]

_SEEDS = (0, 1, 2, 3, 4)
_BRIEF = (0,)
_JOINS = "What joins find under a budget, against their opponents and bars"
_SELECTIONS = "What standing selections find under a budget, against their opponents and bars"
_AGGREGATES = "How far aggregates are off under a budget, and how often intervals cover"


def _result(name: str, title: str, seeds: Sequence[int], measures: list[Measure]) -> Result:
    asked = [measure for measure in measures if measure.met is not None]
    missed = [measure.name for measure in asked if not measure.met]
    return Result(
        name=name,
        title=f"{title[0].lower()}{title[1:]}; seeds: {len(seeds)}",
        unit="bars",
        work=len(asked),
        timings=(),
        measures=tuple(measures),
        notes=(
            f"{len(asked) - len(missed)} of {len(asked)} bars reached",
            *(f"NOT reached: {each}" for each in missed),
        ),
    )


def _joins(seeds: Sequence[int], unbiased: int) -> Result:
    return _result("accuracy-joins", _JOINS, seeds, accuracy_joins.rows(seeds, unbiased=unbiased))


def _selections(seeds: Sequence[int]) -> Result:
    return _result("accuracy-selections", _SELECTIONS, seeds, accuracy_selections.rows(seeds))


def _aggregates(seeds: Sequence[int], **least: int) -> Result:
    return _result("accuracy-aggregates", _AGGREGATES, seeds, accuracy_aggregates.rows(seeds, **least))


@benchmark("accuracy-joins", _JOINS, brief=partial(_joins, _BRIEF, 100))
def joins() -> Result:
    """desc, weighted, asc, fade and real data; five seeds under the cost clock."""
    return _joins(_SEEDS, 500)


@benchmark("accuracy-selections", _SELECTIONS, brief=partial(_selections, _BRIEF))
def selections() -> Result:
    """100 range predicates and more; five seeds under the cost clock."""
    return _selections(_SEEDS)


@benchmark("accuracy-aggregates", _AGGREGATES, brief=partial(_aggregates, _BRIEF, trials=90, joins=60))
def aggregates() -> Result:
    """Sums and averages of 100 predicates, coverage, Horvitz-Thompson over joins; five seeds."""
    return _aggregates(_SEEDS)
