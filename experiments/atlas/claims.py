"""The closed set of statements that a claim can make about curves, and how each is judged.

Curves are means over seeds (of times, medians over runs).  A subject without a
figure breaks a claim: an answer with nothing in it shows nothing (unless the claim is about figures `where_any` are);
an opponent without one is behind there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from nile.experiments.run.fields import Table, Text, Texts, Value, Values, one_of, one_of_names

__all__ = ["NEEDS", "PREDICATES", "Claim", "Curve", "Trial", "compared", "judged"]

Curve = Mapping[Any, float | None]
"""x -> figure, None where the figure does not exist; without the x where the method cannot run."""

Rows = Sequence[tuple[Any, float, float]]
"""(x, subject, opponent); alone, the opponent is 0."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One subject against one opponent (None: alone).  Where it breaks: the first x, and the two figures there."""

    subject: str
    opponent: str | None
    holds: bool
    x: Any = None
    figure: float | None = None
    other: float | None = None


def judged(claim: Claim, curves: Mapping[str, Curve], xs: Sequence[Any]) -> list[Trial]:
    """Every subject of a claim against every opponent, on the means of one panel.

    xs: where the run measured.  A pair that the run has too few points of is left out.
    """
    trials = []
    for subject, opponent in compared(claim):
        mine, theirs = curves[subject], curves[opponent] if opponent else None
        at = [x for x in xs if (not claim.at or x in claim.at) and x in mine and (theirs is None or x in theirs)]
        if len(at) >= (2 if claim.predicate in _ALONG else 1):
            trials.append(_trial(claim, subject, opponent, mine, theirs, at))
    return trials


def compared(claim: Claim) -> list[tuple[str, str | None]]:
    """Each subject with each opponent, None where it stands alone; in an order, each with the one before it."""
    if claim.predicate == "order":
        return [(more, less) for less, more in pairwise(claim.subjects)]
    return [(subject, opponent) for subject in claim.subjects for opponent in claim.against or (None,)]


def _trial(
    claim: Claim, subject: str, opponent: str | None, mine: Curve, theirs: Curve | None, at: Sequence[Any]
) -> Trial:
    rows = []
    for x in at:
        figure, other = mine[x], None if theirs is None else theirs[x]
        if figure is None and claim.where_any and any(mine[each] is not None for each in at):
            continue
        if figure is None:
            return Trial(subject, opponent, False, x, None, other)
        if theirs is None or other is not None:
            rows.append((x, figure, other or 0.0))
    if rows and theirs is not None and claim.predicate in _MORE and not any(row[1] or row[2] for row in rows):
        return Trial(subject, opponent, False, *rows[0])  # nothing against nothing shows nothing
    broken = PREDICATES[claim.predicate](claim, rows) if rows else None
    return Trial(subject, opponent, True) if broken is None else Trial(subject, opponent, False, *broken)


# --- the predicates: None where the claim holds, else the first row that breaks it -----------------------------

Broken = tuple[Any, float, float] | None


def _above(claim: Claim, rows: Rows) -> Broken:
    """At every x the subject has at least (1 + margin) times the opponent's figure."""
    return next((row for row in rows if row[1] < row[2] * (1.0 + claim.margin)), None)


def _below(claim: Claim, rows: Rows) -> Broken:
    """At every x the opponent has at least (1 + margin) times the subject's figure."""
    return next((row for row in rows if row[2] < row[1] * (1.0 + claim.margin)), None)


def _grows(claim: Claim, rows: Rows) -> Broken:
    """From each x to the next, and from the first to the last, the subject's figure is (1 + margin) times as large."""
    steps = [*pairwise(rows), (rows[0], rows[-1])]
    for (_, before, _), (x, after, _) in steps:
        if after < before * (1.0 + claim.margin):
            return x, after, before
    return (*rows[-1][:2], rows[0][1]) if rows[-1][1] == 0.0 else None  # nothing grew


def _falls(claim: Claim, rows: Rows) -> Broken:
    """From each x to the next, and from the first to the last, the subject's figure is (1 + margin) times as small."""
    steps = [*pairwise(rows), (rows[0], rows[-1])]
    for (_, before, _), (x, after, _) in steps:
        if before < after * (1.0 + claim.margin):
            return x, after, before
    return None


def _ratio(claim: Claim, rows: Rows) -> Broken:
    """At every x the subject has between low and high times the opponent's figure."""
    for row in rows:
        low = row[2] * (claim.low or 0.0)
        if row[1] < low or (claim.high is not None and row[1] > row[2] * claim.high):
            return row
    return None


def _within(claim: Claim, rows: Rows) -> Broken:
    """At every x the subject's figure is between low and high."""
    for row in rows:
        if (claim.low is not None and row[1] < claim.low) or (claim.high is not None and row[1] > claim.high):
            return row
    return None


def _crosses(claim: Claim, rows: Rows) -> Broken:
    """At the first x the subject has no more than the opponent, at the last one more, each by the margin."""
    if rows[0][2] < rows[0][1] * (1.0 + claim.margin):
        return rows[0]
    return rows[-1] if rows[-1][1] <= rows[-1][2] * (1.0 + claim.margin) else None


PREDICATES: dict[str, Callable[[Claim, Rows], Broken]] = {
    "above": _above,
    "below": _below,
    "order": _above,
    "grows": _grows,
    "falls": _falls,
    "ratio": _ratio,
    "within": _within,
    "crosses": _crosses,
}
"""`order`: at every x each subject has at least (1 + margin) times the figure of the one named before it."""

NEEDS = {
    "above": ("against",),
    "below": ("against",),
    "order": (),
    "grows": (),
    "falls": (),
    "ratio": ("against", "low"),
    "within": (),
    "crosses": ("against",),
}
"""Fields of a claim that a predicate cannot do without."""

AUTHORS = ("paper", "nile")
Number = Annotated[float, Field(allow_inf_nan=False)]


class Claim(Table):
    """A statement that can be checked: one of PREDICATES about one metric.

    by: whose it is.  says: the same in words.  subjects: methods it is about, each judged for itself;
    against: the opponents that each is compared with.  at: where on the axis, empty for everywhere.
    only: panels it is claimed for, by option; empty for all.  metric: empty for the experiment's first.
    margin: relative, how much further than the bound it must be (negative: may fall short).
    low, high: bounds of `within` and `ratio`.  where_any: passed over where the subject has no figure, broken only
    if it has none at all.
    """

    by: Annotated[str, one_of(AUTHORS)] = Field(description=one_of_names(AUTHORS))
    says: Text = Field(description="the claim in words")
    predicate: Annotated[str, one_of(tuple(PREDICATES))] = Field(description=one_of_names(tuple(PREDICATES)))
    metric: str = Field("", description="one of the experiment's metrics")
    subjects: Annotated[Texts, Field(min_length=1)] = Field(description="a list of methods")
    against: Texts = Field((), description="a list of methods")
    at: Values = Field((), description="some of the axis' values")
    only: dict[str, Value] = Field({}, description="a table of panel options")
    margin: Annotated[Number, Field(gt=-1)] = Field(0.0, description="a number above -1, such as 0.05 for 5 %")
    low: Number | None = Field(None, description="a finite number")
    high: Number | None = Field(None, description="a finite number")
    where_any: bool = Field(False, description="true or false")


_ALONG = ("grows", "falls", "crosses")
_MORE = ("above", "order", "ratio", "crosses")
