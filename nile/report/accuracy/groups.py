"""How far estimated aggregates are off, number by number: the worst, the missing, and curves over the budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nile.report.pages.curves import curve_figure
from nile.report.pages.markup import Markup, element
from nile.report.pages.tables import folded, table
from nile.report.records import finite
from nile.report.runs import Figure, Runs, Series
from nile.report.wording import asked, grouped_digits, percent, plain_number

__all__ = ["ERRORS", "GroupErrors", "NumberError"]

CLOSE = 0.05
"""The error that a budget is named for."""

LISTED = 50
"""Numbers that are listed."""

ERRORS = (
    Figure("error_median", "Median error of the numbers", "median error", "|estimate − exact| / |exact|", "share", -1),
    Figure(
        "error_greatest", "Greatest error of a number", "greatest error", "|estimate − exact| / |exact|", "share", -1
    ),
    Figure("numbers_missing", "Numbers that are missing", "missing numbers", "of the exact numbers", "share", -1),
)


@dataclass(frozen=True, slots=True)
class NumberError:
    """One number of one group.  estimated, low, high: None where the group was not seen or nothing is claimed."""

    group: str
    name: str
    exact: float
    estimated: float | None
    low: float | None
    high: float | None

    @property
    def error(self) -> float | None:
        """|estimated - exact| / |exact|; None where it is missing, infinite where an exact 0 is estimated as more."""
        if self.estimated is None:
            return None
        off = abs(self.estimated - self.exact)
        return off / abs(self.exact) if self.exact else (math.inf if off else 0.0)

    def words(self) -> str:
        """The number in a line."""
        where = f"{self.name} of {self.group}" if self.group else self.name
        if self.estimated is None:
            return f"{where}: missing, {plain_number(self.exact)} exact"
        return f"{where}: {plain_number(self.estimated)} estimated, {plain_number(self.exact)} exact"


@dataclass(frozen=True, slots=True)
class GroupErrors:
    """All numbers of the run looked at.  worst: missing ones first, the greatest first, then by error; LISTED at
    most.

    median, greatest: errors of those that are there, None without any.
    """

    numbers: int
    missing: int
    median: float | None
    greatest: float | None
    worst: tuple[NumberError, ...]

    @classmethod
    def of(cls, numbers: Sequence[NumberError]) -> GroupErrors:
        """From every number of the exact answer."""
        errors = sorted(one.error for one in numbers if one.error is not None)
        ranked = sorted(numbers, key=_wrongness)
        wrong = [one for one in ranked if one.error is None or one.error > 0.0]
        middle = None if not errors else (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
        return cls(
            len(numbers), len(numbers) - len(errors), middle, errors[-1] if errors else None, tuple(wrong[:LISTED])
        )

    def figures(self) -> dict[str, float | None]:
        """As a record of a run has them."""
        missing = self.missing / self.numbers if self.numbers else None
        return {"error_median": self.median, "error_greatest": self.greatest, "numbers_missing": missing}

    def reading(self) -> str:
        """How far off the numbers are, in a sentence."""
        if self.median is None or self.greatest is None:
            return f"None of the {grouped_digits(self.numbers)} exact numbers is in the answer."
        total, missing = grouped_digits(self.numbers), grouped_digits(self.missing)
        told = (
            f"Of {total} numbers {missing} are missing; of the others half"
            if self.missing
            else f"Of {total} numbers half"
        )
        most = (
            "one of an exact 0 by any measure"
            if math.isinf(self.greatest)
            else f"the worst by {percent(self.greatest)}"
        )
        return f"{told} are off by {percent(self.median)} or less, {most}."

    def advice(self, runs: Runs, champion: Series) -> Iterator[str]:
        """Which budget is enough, and that groups are missing."""
        preference = runs.preferences[0]
        points = runs.curve(champion, preference, "error_median").points
        close = [point for point in points if all(p.mean <= CLOSE for p in points if p.budget >= point.budget)]
        if close:
            yield f"Half of the numbers are within {percent(CLOSE)} of the exact ones from {asked(close[0].budget)} on."
        elif points:
            last = points[-1]
            yield (
                f"Half of the numbers are off by {percent(last.mean)} or more even at {asked(last.budget)}: allow more "
                "budget, or ask for an ERROR instead."
            )
        if self.missing:
            yield (
                f"{grouped_digits(self.missing)} of {grouped_digits(self.numbers)} numbers are of groups of which "
                "nothing was read: group more coarsely, or allow more budget."
            )

    def section(self, runs: Runs) -> Markup:
        """The curves and the worst numbers, for a page."""
        preference = runs.preferences[0]
        names = ("group", "number", "estimated", "exact", "error")
        rows = [
            (one.group or "all", one.name, "missing" if one.estimated is None else plain_number(one.estimated),
             plain_number(one.exact), "–" if one.error is None or math.isinf(one.error) else percent(one.error))
            for one in self.worst
        ]  # fmt: skip
        return element(
            "section",
            element("h2", "How far the numbers are off"),
            element("p", self.reading(), class_="prose"),
            element("div", *(curve_figure(runs, preference, figure) for figure in ERRORS), class_="charts"),
            folded("The worst numbers", table(names, rows), is_open=True) if rows else Markup(),
        )

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        return finite({
            "numbers": self.numbers, "missing": self.missing, "median": self.median, "greatest": self.greatest,
            "worst": [finite(asdict(one)) for one in self.worst],
        })  # fmt: skip


def _wrongness(one: NumberError) -> tuple[bool, float, str, str]:
    error = one.error
    return error is not None, -abs(one.exact) if error is None else -error, one.group, one.name
