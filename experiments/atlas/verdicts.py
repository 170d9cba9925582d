"""From kept results to curves, and from curves to verdicts: nothing here is written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nile.experiments.atlas.claims import Claim, Trial, judged
from nile.experiments.atlas.form import Experiment, Panel
from nile.experiments.atlas.points import Point, Record

__all__ = ["FAILS", "HOLDS", "ONLY", "PanelResult", "Spread", "Verdict", "results_of"]

HOLDS, ONLY, FAILS = "holds", "holds against this opponent only", "does not hold"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the seeds that have it: its middle, least, greatest, how many.

    middle: the mean over seeds; of times, whose runs the seeds are, the median.
    """

    middle: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float], *, by_clock: bool) -> Spread | None:
        """None of no values.  The mean is summed exactly, so it does not depend on the order of seeds."""
        if not values:
            return None
        middle = median(values) if by_clock else math.fsum(values) / len(values)
        return cls(middle, min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim about one subject on one panel.

    verdict: HOLDS, ONLY (against some of the opponents) or FAILS.  trials: against each opponent.
    """

    claim: Claim
    subject: str
    verdict: str
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class PanelResult:
    """One panel: metric -> method -> x -> Spread or None, and the verdicts on it."""

    panel: Panel
    curves: Mapping[str, Mapping[str, Mapping[Any, Spread | None]]]
    verdicts: tuple[Verdict, ...]


def results_of(
    experiment: Experiment, points: Iterable[Point], records: Mapping[str, Record], *, quick: bool
) -> list[PanelResult]:
    """The panels that were measured, in the file's order."""
    found: dict[Panel, dict[tuple[str, Any], list[Record]]] = {}
    for point in points:
        if point.experiment == experiment.name:
            found.setdefault(point.panel, {}).setdefault((point.method, point.x), []).append(records[point.key])
    results = []
    for panel, cells in found.items():
        curves: dict[str, dict[str, dict[Any, Spread | None]]] = {
            metric: {name: {} for name in experiment.methods} for metric in experiment.metrics
        }
        for metric, methods in curves.items():
            for (method, x), seeds in cells.items():
                values = [value for one in seeds if (value := one.get(metric)) is not None]
                methods[method][x] = Spread.of(values, by_clock=experiment.kind.by_clock)
        results.append(PanelResult(panel, curves, tuple(_verdicts(experiment, panel, curves, quick))))
    return results


def _verdicts(
    experiment: Experiment,
    panel: Panel,
    curves: Mapping[str, Mapping[str, Mapping[Any, Spread | None]]],
    quick: bool,
) -> Iterable[Verdict]:
    for claim in experiment.claims:
        if any(dict(panel).get(option) != value for option, value in claim.only.items()):
            continue
        means = {
            method: {x: None if spread is None else spread.middle for x, spread in curve.items()}
            for method, curve in curves[claim.metric].items()
        }
        trials = judged(claim, means, experiment.xs(quick))
        if claim.predicate == "order":
            subjects = {", ".join(claim.subjects): trials}
        else:
            subjects = {name: [one for one in trials if one.subject == name] for name in claim.subjects}
        for subject, mine in subjects.items():
            if mine:
                yield Verdict(claim, subject, _verdict(claim, mine), tuple(mine))


def _verdict(claim: Claim, trials: Sequence[Trial]) -> str:
    if all(one.holds for one in trials):
        return HOLDS
    return ONLY if claim.predicate != "order" and any(one.holds for one in trials) else FAILS
