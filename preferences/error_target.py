"""An error instead of a budget: how close an answer must come, and what to do when that cannot be had."""

from __future__ import annotations

from dataclasses import dataclass

from nile.preferences.finite import is_finite_number
from nile.summaries.errors import BudgetError, ConfigError
from nile.summaries.estimate import Estimate

__all__ = ["OTHERWISE", "ErrorTarget"]

OTHERWISE = ("flag", "refuse", "exact")
"""flag: give the best answer there is and say so; refuse: raise; exact: run the plain exact way after all."""


@dataclass(frozen=True, slots=True)
class ErrorTarget:
    """Spend as little as an answer needs whose certified interval is at most `error` to either side.

    error: half the interval's width over |value|, in (0, 1).  confidence: of that interval, in [0.5, 1).
    otherwise: what to do when the target is missed by the time the sample has cost as much as the budget, or
    as the plain exact way: one of OTHERWISE.  Raises BudgetError for an error outside its range, ConfigError
    for the rest.
    """

    error: float
    confidence: float = 0.95
    otherwise: str = "flag"

    def __post_init__(self) -> None:
        if not is_finite_number(self.error) or not 0.0 < self.error < 1.0:
            raise BudgetError(
                f"error: needed a share above 0 and below 1, such as 0.01 for one per cent; got {self.error!r}; "
                "leave it out and ask for budget=1 for the exact answer"
            )
        if not is_finite_number(self.confidence) or not 0.5 <= self.confidence < 1.0:
            raise ConfigError(
                f"confidence: needed a probability of 0.5 or more and below 1; got {self.confidence!r}; 0.95 is usual"
            )
        if self.otherwise not in OTHERWISE:
            raise ConfigError(
                f"otherwise: needed one of {', '.join(OTHERWISE)}; got {self.otherwise!r}; it says what to do "
                "when the error cannot be met"
            )

    def met_by(self, estimate: Estimate) -> bool:
        """Whether a single number is known closely enough: certified, confident and narrow."""
        return estimate.certified and estimate.confidence >= self.confidence and estimate.relative_error <= self.error

    def look(self, number: int) -> float:
        """The confidence that the intervals of look `number` (from 1) at a growing sample have to have.

        Whoever looks often and stops when he likes what he sees is wrong more often than each look alone.
        The looks share the allowed 1 - confidence as 1/2, 1/4, 1/8, ...: however many there are, the chance
        that any misses stays within it (union bound).
        """
        return 1.0 - (1.0 - self.confidence) / 2.0**number
