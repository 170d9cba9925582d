"""From kept results to curves, and from curves to verdicts: nothing here is written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nile.experiments.atlas.claims import Claim, Curve, Trial, judged
from nile.experiments.atlas.form import Experiment, Panel
from nile.experiments.atlas.points import Point, Record

__all__ = ["FAILS", "HOLDS", "PART", "UNDECIDED", "PanelResult", "Spread", "Verdict", "results_of", "verdict_of"]

HOLDS, PART, UNDECIDED, FAILS = "holds", "holds in part", "undecided", "does not hold"


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

    verdict: HOLDS (at every place, against every opponent), PART (at some), UNDECIDED (nowhere beyond the spread of the
    seeds) or FAILS.  kept: at how many places of how many.  trials: against each opponent.
    """

    claim: Claim
    subject: str
    verdict: str
    kept: tuple[int, int]
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
    found: dict[Panel, dict[tuple[str, Any], dict[int, Record]]] = {}
    for point in points:
        if point.experiment == experiment.name:
            found.setdefault(point.panel, {}).setdefault((point.method, point.x), {})[point.seed] = records[point.key]
    results = []
    for panel, cells in found.items():
        curves = {
            metric: {
                name: {
                    x: [seeds[one].get(metric) for one in sorted(seeds)]
                    for (own, x), seeds in cells.items()
                    if own == name
                }
                for name in experiment.methods
            }
            for metric in experiment.metrics
        }
        spreads = {
            metric: {
                name: {
                    x: Spread.of([v for v in values if v is not None], by_clock=experiment.kind.by_clock)
                    for x, values in curve.items()
                }
                for name, curve in methods.items()
            }
            for metric, methods in curves.items()
        }
        results.append(PanelResult(panel, spreads, tuple(_verdicts(experiment, panel, curves, quick))))
    return results


def _verdicts(
    experiment: Experiment, panel: Panel, curves: Mapping[str, Mapping[str, Curve]], quick: bool
) -> Iterable[Verdict]:
    for claim in experiment.claims:
        if any(dict(panel).get(option) != value for option, value in claim.only.items()):
            continue
        trials = judged(claim, curves[claim.metric], experiment.xs(quick))
        if claim.predicate == "order":
            subjects = {", ".join(claim.subjects): trials}
        else:
            subjects = {name: [one for one in trials if one.subject == name] for name in claim.subjects}
        for subject, mine in subjects.items():
            if mine:
                kept, broken, undecided = (
                    sum(getattr(one, name) for one in mine) for name in ("kept", "broken", "undecided")
                )
                yield Verdict(
                    claim, subject, verdict_of(kept, broken, undecided), (kept, kept + broken + undecided), tuple(mine)
                )


def verdict_of(kept: int, broken: int, undecided: int) -> str:
    """Of the numbers of places, over all opponents."""
    if kept:
        return PART if broken or undecided else HOLDS
    return FAILS if broken else UNDECIDED
