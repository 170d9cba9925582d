"""Standing selections as they were asked for: checked, complete, and without any running state."""

from __future__ import annotations

from dataclasses import dataclass

from preferences.budget import Budget
from preferences.preference import PREFERENCES, preference_number
from pyramid.spec import SLICE
from summaries.costs import ENGINE, CostTable
from summaries.errors import BudgetError, ConfigError

__all__ = ["PROMISES", "SELECTION_METHODS", "SelectionPlan"]

SELECTION_METHODS = ("paper", "naive", "predicate-index")
"""paper: Figure 8; naive: each query fed for itself; predicate-index: one index over all predicates, no summary."""

PROMISES = ("share", "value")
"""share: the estimated share of satisfying tuples of a region; value: the sum of |value| x frequency over them."""


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Everything that decides what standing selections over one stream answer.

    window: ns that a selected tuple stays valid, or None (a filter).  budget: a fraction of what `naive`
    needs for everything; None: no limit.  preference: which regions first (desc, asc), or of all the same
    share (weighted).  promise: what regions are ordered by.  buckets: value buckets; zone: tuples of a zone;
    every: arrivals between dispatches; sample: first tuples, which the borders of the buckets are learned from.
    The opponents have no preference, no summary, and ignore what is about them.
    Raises ConfigError for a setting outside its range, BudgetError for a budget that is no fraction.
    """

    window: int | None = None
    budget: Budget | None = None
    method: str = "paper"
    preference: str = "desc"
    promise: str = "share"
    costs: CostTable = ENGINE
    buckets: int = 64
    zone: int = 16 * SLICE
    every: int = SLICE
    sample: int = 4 * SLICE

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, SELECTION_METHODS),
            ("preference", self.preference, PREFERENCES),
            ("promise", self.promise, PROMISES),
        ):
            if value not in known:
                raise ConfigError(
                    f"selection {name}: needed one of {', '.join(known)}; got {value!r}; name one of these"
                )
        for name, size, most in (
            ("buckets", self.buckets, 4096),
            ("zone", self.zone, 1 << 30),
            ("every", self.every, 1 << 30),
            ("sample", self.sample, 1 << 30),
        ):
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= most:
                raise ConfigError(
                    f"selection {name}: needed a whole number, 1 to {most}; got {size!r}; leave it out for the default"
                )
        if self.budget is not None and self.budget.unit != "fraction":
            raise BudgetError(
                f"budget: needed a fraction for standing selections; got {self.budget.unit}; Budget(fraction=0.1) is a "
                "tenth of what feeding every tuple to every selection costs"
            )
        if self.window is not None and (self.window < 0 or self.window >= 1 << 62):
            raise ConfigError(
                f"window: needed a duration of 0 to 146 years; got {self.window} ns; leave it out for a filter"
            )

    @property
    def fraction(self) -> float:
        """The budget's fraction; 1 where there is no limit."""
        return 1.0 if self.budget is None or self.budget.fraction is None else self.budget.fraction

    @property
    def preference_number(self) -> int:
        """The number kernels know the preference by."""
        return preference_number(self.preference)
