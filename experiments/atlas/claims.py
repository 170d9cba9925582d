"""The closed set of statements that a claim can make about curves, and how each is judged.

At each place the figures of both, seed by seed, say whether the claim is kept, broken, or whether their spread leaves
it undecided.  A subject without a figure breaks a claim: an answer with nothing in it shows nothing (unless the claim
is about figures `where_any` are); an opponent without one is behind there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from nile.experiments.run.fields import Table, Text, Texts, Value, Values, one_of, one_of_names
from nile.summaries.intervals import student_quantile

__all__ = ["NEEDS", "PREDICATES", "Claim", "Curve", "Trial", "compared", "judged"]

Curve = Mapping[Any, Sequence[float | None]]
"""x -> figures, one a seed, None where it does not exist; without the x where the method cannot run."""

Seeds = Sequence[float]
Rows = Sequence[tuple[Any, Seeds, Seeds]]
"""(x, subject, opponent), a figure a seed; alone, the opponent is 0."""

_CONFIDENCE = 0.95
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Trial:
    """One subject against one opponent (None: alone).

    kept, broken, undecided: places (of `grows` and `falls`, steps).  x: the first place that breaks it, else the first
    undecided one, with the means of the two figures there.
    """

    subject: str
    opponent: str | None
    kept: int
    broken: int
    undecided: int
    x: Any = None
    figure: float | None = None
    other: float | None = None

    @property
    def holds(self) -> bool:
        return self.broken == self.undecided == 0


def judged(claim: Claim, curves: Mapping[str, Curve], xs: Sequence[Any]) -> list[Trial]:
    """Every subject of a claim against every opponent, on the figures of one panel.

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
    rows: list[tuple[Any, Seeds, Seeds]] = []
    places: list[_Place] = []
    anywhere = any(value is not None for x in at for value in mine[x])
    for x in at:
        others = [0.0] * len(mine[x]) if theirs is None else theirs[x]
        pairs = [(one, other) for one, other in zip(mine[x], others, strict=True) if one is not None]
        if not pairs and claim.where_any and anywhere:
            continue
        both = any(other is not None for other in others)
        if not pairs:
            places.append(_Place(x, -1, None, _mean([other for other in others if other is not None])))
        elif both:
            rows.append((x, [_number(one) for one in mine[x]], [_number(other) for other in others]))
        else:
            places.append(_Place(x, 1, _mean([one for one, _ in pairs]), None))
    some = [row for row in rows if _any(row[1]) or _any(row[2])]
    if theirs is not None and claim.margin < 0 and claim.predicate in _MORE and some:
        rows = some  # nothing against nothing shows nothing
    places += PREDICATES[claim.predicate](claim, rows) if rows else []
    order = {x: number for number, x in enumerate(at)}
    worst = min((one for one in places if one.sign < 1), key=lambda one: (one.sign, order[one.x]), default=None)
    counts = [sum(one.sign == sign for one in places) for sign in (1, -1, 0)]
    return Trial(subject, opponent, *counts, *((worst.x, worst.figure, worst.other) if worst else ()))


@dataclass(frozen=True, slots=True)
class _Place:
    """One place: 1 where the claim is kept, -1 where it is broken, 0 where the seeds do not decide."""

    x: Any
    sign: int
    figure: float | None
    other: float | None


def _exactly(slack: float, one: float, other: float) -> float:
    """0 where rounding alone made it another number."""
    return 0.0 if abs(slack) <= _ROUNDING * max(abs(one), abs(other)) else slack


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _any(values: Sequence[float]) -> bool:
    """Whether there is a figure that is not 0."""
    return any(one != 0.0 and not math.isnan(one) for one in values)


def _mean(values: Sequence[float]) -> float | None:
    there = [one for one in values if not math.isnan(one)]
    return math.fsum(there) / len(there) if there else None


def _place(x: Any, mine: Seeds, theirs: Seeds, *needs: Callable[[float, float], float], tie: int) -> _Place:
    """needs: what must be above 0, of the figures of one seed.  tie: the sign of exactly 0 at every seed.

    Decided where Student's interval of the mean over the seeds leaves out 0; by one seed alone, by its sign.
    """
    pairs = [(one, other) for one, other in zip(mine, theirs, strict=True) if not math.isnan(one + other)]
    count, signs = len(pairs), [] if pairs else [0]
    for need in needs if pairs else ():
        slacks = [_exactly(need(one, other), one, other) for one, other in pairs]
        mean = math.fsum(slacks) / count
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in slacks) / (count - 1)) if count > 1 else 0.0
        half = student_quantile(_CONFIDENCE, count - 1) * spread / math.sqrt(count) if spread else 0.0
        if abs(mean) > half:
            signs.append(1 if mean > 0.0 else -1)
        else:
            signs.append(0 if half else tie)
    return _Place(x, min(signs), _mean(mine), _mean(theirs))


# --- the predicates: every place of the rows, kept, broken or undecided ----------------------------------------


def _above(claim: Claim, rows: Rows) -> list[_Place]:
    """At every x the subject has more than (1 + margin) times the opponent's; with a negative margin, no less."""
    tie = -1 if claim.margin >= 0 or not any(_any(row[1]) for row in rows) else 1
    return [_place(*row, lambda one, other: one - other * (1.0 + claim.margin), tie=tie) for row in rows]


def _below(claim: Claim, rows: Rows) -> list[_Place]:
    """At every x the opponent has more than (1 + margin) times the subject's; with a negative margin, no less."""
    tie = -1 if claim.margin >= 0 else 1
    return [_place(*row, lambda one, other: other - one * (1.0 + claim.margin), tie=tie) for row in rows]


def _grows(claim: Claim, rows: Rows) -> list[_Place]:
    """From each x to the next, and from the first to the last, the subject's figure is (1 + margin) times as large."""
    nothing = not _any(rows[-1][1])
    return [
        _place(x, after, before, lambda one, other: one - other * (1.0 + claim.margin), tie=-1 if nothing else 1)
        for x, after, before in _steps(rows)
    ]


def _falls(claim: Claim, rows: Rows) -> list[_Place]:
    """From each x to the next, and from the first to the last, the subject's figure is (1 + margin) times as small."""
    return [
        _place(x, after, before, lambda one, other: other - one * (1.0 + claim.margin), tie=1)
        for x, after, before in _steps(rows)
    ]


def _steps(rows: Rows) -> list[tuple[Any, Seeds, Seeds]]:
    """(x, figures there, figures before), from each place to the next and from the first to the last."""
    return [(x, after, before) for (_, before, _), (x, after, _) in [*pairwise(rows), (rows[0], rows[-1])]]


def _ratio(claim: Claim, rows: Rows) -> list[_Place]:
    """At every x the subject has between low and high times the opponent's figure."""
    low, high = claim.low or 0.0, claim.high
    needs: list[Callable[[float, float], float]] = [lambda one, other: one - other * low]
    needs += [] if high is None else [lambda one, other: other * high - one]
    tie = 1 if any(_any(row[1]) or _any(row[2]) for row in rows) else -1
    return [_place(*row, *needs, tie=tie) for row in rows]


def _within(claim: Claim, rows: Rows) -> list[_Place]:
    """At every x the subject's figure is between low and high."""
    low, high = claim.low, claim.high
    needs: list[Callable[[float, float], float]] = [] if low is None else [lambda one, _: one - low]
    needs += [] if high is None else [lambda one, _: high - one]
    return [_place(*row, *needs, tie=1) for row in rows]


def _crosses(claim: Claim, rows: Rows) -> list[_Place]:
    """At the first x the subject has no more than the opponent, at the last one more, each by the margin."""
    first, last = rows[0], rows[-1]
    some = any(_any(row[1]) or _any(row[2]) for row in rows)
    return [
        _place(*first, lambda one, other: other - one * (1.0 + claim.margin), tie=1 if some else -1),
        _place(*last, lambda one, other: one - other * (1.0 + claim.margin), tie=-1),
    ]


PREDICATES: dict[str, Callable[[Claim, Rows], list[_Place]]] = {
    "above": _above,
    "below": _below,
    "order": _above,
    "grows": _grows,
    "falls": _falls,
    "ratio": _ratio,
    "within": _within,
    "crosses": _crosses,
}
"""`order`: at every x each subject has more than (1 + margin) times the figure of the one named before it."""

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
    by_construction: why it cannot fail, of a claim that our design makes a tautology; empty for all others.
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
    by_construction: str = Field("", description="why the claim cannot fail, in words")


_ALONG = ("grows", "falls", "crosses")
_MORE = ("above", "order", "ratio", "crosses")
