"""Who is ahead, figure by figure and budget by budget, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nile.report.runs import FIGURES, Figure, Point, Runs, Series

__all__ = ["LEVEL_WITHIN", "QUESTIONS", "Comparison", "Duel", "Outcome", "duels"]

LEVEL_WITHIN = 0.02
"""Two figures that differ by at most this much of the larger are level."""

ROUNDING = 1e-12
"""No two figures are told apart below this: a full answer may be this far from exact by rounding alone."""

QUESTIONS = (
    ("desc", "recall"),
    ("weighted", "hist_mse_key"),
    ("weighted", "hist_mse_age"),
    ("asc", "outlier_recall"),
    ("asc", "outlier_precision"),
)
"""What each preference is asked to be good at."""


class Outcome(Enum):
    """How the first of two stands against the second."""

    AHEAD = "ahead"
    LEVEL = "level"
    BEHIND = "behind"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two points at one budget.  ratio: how many times better the first is, None where no ratio exists."""

    budget: float
    outcome: Outcome
    ratio: float | None
    mine: Point | None
    theirs: Point | None


@dataclass(frozen=True, slots=True)
class Duel:
    """One figure under one preference: `mine` against `theirs` at every budget."""

    preference: str
    figure: Figure
    mine: Series
    theirs: Series
    comparisons: tuple[Comparison, ...]

    def budgets(self, *outcomes: Outcome) -> list[float]:
        """Where it came out so."""
        return [one.budget for one in self.comparisons if one.outcome in outcomes]

    def ratios(self, outcome: Outcome) -> list[float]:
        """By how much it came out so, where a ratio exists."""
        return [one.ratio for one in self.comparisons if one.outcome is outcome and one.ratio is not None]


def duels(runs: Runs, theirs: Series) -> list[Duel]:
    """The champion of these runs against `theirs`, on every question that was run."""
    champion = runs.champion
    if champion is None:
        return []
    return [
        duel(runs, preference, FIGURES[key], champion, theirs)
        for preference, key in QUESTIONS
        if preference in runs.preferences
    ]


def duel(runs: Runs, preference: str, figure: Figure, mine: Series, theirs: Series) -> Duel:
    """One figure of two series at every budget."""
    my_curve = runs.curve(mine, preference, figure.key)
    their_curve = runs.curve(theirs, preference, figure.key)
    compared = (compare(figure, b, my_curve.at(b), their_curve.at(b)) for b in runs.budgets)
    return Duel(preference, figure, mine, theirs, tuple(compared))


def compare(figure: Figure, budget: float, mine: Point | None, theirs: Point | None) -> Comparison:
    """Level: within LEVEL_WITHIN of each other, or the ranges over several seeds overlap.

    A figure that only one of them has counts for that one: an answer with nothing in it is no faithful sample.
    """
    outcome, ratio = Outcome.ABSENT, None
    if mine and theirs:
        better, worse = (mine.mean, theirs.mean) if figure.better > 0 else (theirs.mean, mine.mean)
        ratio = better / worse if worse else None
        apart = abs(mine.mean - theirs.mean)
        overlap = min(mine.seeds, theirs.seeds) > 1 and mine.low <= theirs.high and theirs.low <= mine.high
        if apart <= max(LEVEL_WITHIN * max(mine.mean, theirs.mean), ROUNDING) or overlap:
            outcome = Outcome.LEVEL
        else:
            outcome = Outcome.AHEAD if better > worse else Outcome.BEHIND
    elif mine or theirs:
        outcome = Outcome.AHEAD if mine else Outcome.BEHIND
    return Comparison(budget, outcome, ratio, mine, theirs)
