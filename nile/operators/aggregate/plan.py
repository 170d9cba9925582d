"""Aggregates as they were asked for: checked, complete, and without any running state."""

from __future__ import annotations

from dataclasses import dataclass

from nile.preferences.budget import Budget
from nile.preferences.error_target import ErrorTarget
from nile.preferences.finite import is_finite_number
from nile.pyramid.grid.spec import SLICE
from nile.summaries.costs import ENGINE, CostTable
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["AGGREGATE_METHODS", "BORDERS", "AggregatePlan"]

AGGREGATE_METHODS = ("auto", "grid", "sample", "countsketch", "naive")
BORDERS = ("auto", "learned", "predicates")


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """Everything that decides how aggregates are answered.

    budget: a fraction of what `naive` needs; None or 1 and more: exact.  target: an error instead, then budget
    is the most it may cost.  limit: seconds of CPU or a deadline instead of both: a sample as large as they allow.
    method, borders: one of AGGREGATE_METHODS, BORDERS (of the grid).  confidence: of the intervals.  buckets, zone: of
    a grid with learned borders, how many value buckets, how many tuples per zone.
    Raises BudgetError, ConfigError.
    """

    budget: float | None = None
    target: ErrorTarget | None = None
    method: str = "auto"
    borders: str = "auto"
    costs: CostTable = ENGINE
    confidence: float = 0.95
    buckets: int = 256
    zone: int = 4 * SLICE
    seed: int = 0
    limit: Budget | None = None

    def __post_init__(self) -> None:
        given = self.budget
        if given is not None and not (is_finite_number(given) and given > 0):
            raise BudgetError(
                f"budget: needed a fraction above 0, such as 0.1 for a tenth of the exact work; got {given!r}; "
                "leave it out for the exact answer"
            )
        if self.limit is not None and (given is not None or self.target is not None):
            raise BudgetError(
                f"aggregates: needed one budget or an error; got {self.limit} beside another; name one of them"
            )
        if self.limit is not None and self.method not in ("auto", "sample"):
            raise BudgetError(
                f"aggregates: needed method 'sample' under {self.limit}; got {self.method!r}, which cannot stop "
                "halfway; leave method out, or name a fraction"
            )
        for name, value, known in (("method", self.method, AGGREGATE_METHODS), ("borders", self.borders, BORDERS)):
            if value not in known:
                raise ConfigError(
                    f"aggregate {name}: needed one of {', '.join(known)}; got {value!r}; name one of these"
                )
        if not (isinstance(self.confidence, float) and 0.5 <= self.confidence < 1.0):
            raise ConfigError(
                f"confidence: needed a probability of 0.5 or more and below 1; got {self.confidence!r}; 0.95 is usual"
            )
        for name, size, most in (("buckets", self.buckets, 4096), ("zone", self.zone, 1 << 30)):
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= most:
                raise ConfigError(
                    f"aggregate {name}: needed a whole number, 1 to {most}; got {size!r}; leave it out for the default"
                )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"seed: needed a whole number from 0; got {self.seed!r}; 0 is the default")

    @property
    def is_exact(self) -> bool:
        """Whether nothing less than the exact answer was asked for."""
        return self.target is None and self.limit is None and (self.budget is None or self.budget >= 1.0)
