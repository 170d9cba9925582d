"""Intervals against the truth: how often they covered it, over seeds and budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nile.report.records import finite
from nile.report.wording import asked, grouped_digits, listing, percent
from nile.summaries.estimate import Estimate

__all__ = ["Coverage", "Interval", "coverages", "tail"]

SURPRISING = 0.01
"""Fewer intervals that hold the truth than chance would give this often are too few."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One told interval.  of: what was estimated; confidence: nominal; truth: the exact number.  Infinite ends are
    None in records."""

    of: str
    budget: float
    seed: int
    value: float
    low: float
    high: float
    confidence: float
    certified: bool
    truth: float

    @classmethod
    def told(cls, of: str, budget: float, seed: int, estimate: Estimate, truth: float) -> Interval:
        """Of a single number."""
        value, low, high = (float(part) for part in (estimate.value, estimate.low, estimate.high))
        return cls(of, budget, seed, value, low, high, estimate.confidence, estimate.certified, truth)

    @property
    def held(self) -> bool:
        """Whether the truth lies in it; sums of floats are compared with room for their rounding."""
        room = 1e-9 * abs(self.truth)
        return self.low - room <= self.truth <= self.high + room

    @property
    def is_claim(self) -> bool:
        """Whether anything is claimed that could be wrong: not of a number that is known, nor of a mere guess."""
        return self.confidence > 0.0 and self.low != self.high

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        return finite({**asdict(self), "held": self.held})


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of `count` intervals at a budget held the truth.  width: mean (high - low) / truth, None if infinite."""

    budget: float
    count: int
    held: int
    nominal: float
    width: float | None

    @property
    def share(self) -> float:
        """Those that held, of all."""
        return self.held / self.count

    @property
    def is_low(self) -> bool:
        """Whether so few would surprise if each held with its nominal probability."""
        return tail(self.held, self.count, self.nominal) < SURPRISING

    def words(self) -> str:
        """`8 of 10 at 5 %`."""
        return f"{grouped_digits(self.held)} of {grouped_digits(self.count)} at {asked(self.budget)}"


def coverages(intervals: Sequence[Interval]) -> tuple[Coverage, ...]:
    """By budget, least first, over the intervals that claim something."""
    claims = [one for one in intervals if one.is_claim]
    found = []
    for budget in sorted({one.budget for one in claims}):
        mine = [one for one in claims if one.budget == budget]
        widths = [(one.high - one.low) / abs(one.truth) for one in mine if one.truth]
        width = math.fsum(widths) / len(widths) if widths and all(map(math.isfinite, widths)) else None
        nominal = round(math.fsum(one.confidence for one in mine) / len(mine), 12)
        found.append(Coverage(budget, len(mine), sum(one.held for one in mine), nominal, width))
    return tuple(found)


def reading(found: Sequence[Coverage]) -> str:
    """What the intervals were worth, in a sentence."""
    if not found:
        return "No run told an interval that could be wrong."
    held, count = sum(one.held for one in found), sum(one.count for one in found)
    nominal = found[0].nominal
    kind = "certain bounds" if nominal == 1.0 else f"intervals at a nominal {percent(nominal)}"
    at = listing([one.words() for one in found])
    return f"Of {grouped_digits(count)} {kind}, {grouped_digits(held)} held the truth ({percent(held / count)}): {at}."


def tail(held: int, count: int, probability: float) -> float:
    """The probability of `held` or fewer of `count`, each with `probability` in (0, 1]."""
    if held >= count:
        return 1.0
    if probability >= 1.0:
        return 0.0
    yes, no = math.log(probability), math.log1p(-probability)
    ways = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(held + 1))
    return min(1.0, math.fsum(math.exp(way + k * yes + (count - k) * no) for k, way in enumerate(ways)))
