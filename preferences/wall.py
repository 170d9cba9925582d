"""The wall clock: a share of one core's time, turned into credit for kernels that cannot look at a clock.

A kernel counts operations and stops when its credit is spent, so it is run in quanta: before each the clock
says how much credit the time that has passed is worth, after each it looks at the CPU time that was really
used, learns how much an operation costs here, and lets the next quantum make good what this one took too
much or too little.  A run under it is not reproducible; the cost clock is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from nile.summaries.errors import BudgetError

__all__ = ["WallBudget", "WallClock"]

_FIRST_RATE = 1e-3
_UP, _DOWN = 0.5, 0.01
_MOST_CARRIED = 10


@dataclass(frozen=True, slots=True)
class WallBudget:
    """CPU time a query may use.  share: of one core, in (0, 1]; quantum: seconds between looks at the clock.

    Raises BudgetError for a share or a quantum outside its range.
    """

    share: float
    quantum: float = 0.02

    def __post_init__(self) -> None:
        if not (isinstance(self.share, (int, float)) and math.isfinite(self.share) and 0.0 < self.share <= 1.0):
            raise BudgetError(f"wall budget: needed a share of a core in (0, 1]; got {self.share!r}; try 0.2")
        if not (isinstance(self.quantum, (int, float)) and math.isfinite(self.quantum) and 1e-4 <= self.quantum <= 10):
            raise BudgetError(
                f"wall budget: needed a quantum of 0.0001 to 10 seconds; got {self.quantum!r}; 0.02 is the default"
            )


class WallClock:
    """Credit for the time that passes, corrected by the CPU time that was used.

    cpu: CPU time of this thread, ns.  `credit(elapsed)` begins a quantum, `settle(spent, held)` ends it;
    between them the caller works.  All CPU time from one `settle` to the next counts as used, but what lies
    before a `resume`.  While there is work enough, what is used over what has elapsed tends to
    the share: where a quantum took more time, or less, than its spent credit was given for, the next ones
    make it good.  Credit that the caller holds back keeps its worth; credit that found no work is not saved up.
    What a unit costs is learned fast from a quantum that was cheap and slowly from one that was dear: small
    quanta are mostly overhead, and believing them would make the next ones smaller still.
    """

    def __init__(self, budget: WallBudget, *, cpu: Callable[[], int] = time.thread_time_ns) -> None:
        self.budget = budget
        self.elapsed = 0
        self.used = 0
        self._cpu = cpu
        self._rate = _FIRST_RATE  # units a nanosecond
        self._carried = 0.0  # nanoseconds to make good
        self._available = 0.0
        self._began = cpu()

    @property
    def share(self) -> float:
        """CPU time used so far over time elapsed."""
        return self.used / self.elapsed if self.elapsed else 0.0

    def credit(self, elapsed: int) -> float:
        """Begin a quantum: the credit, in units of the cost table, that `elapsed` ns since the last are worth."""
        self.elapsed += elapsed
        allowed = self.budget.share * elapsed + self._carried
        self._carried = min(0.0, allowed)
        fresh = max(0.0, allowed) * self._rate
        self._available += fresh
        return fresh

    def resume(self) -> None:
        """Leave out the CPU time since `settle`: it was someone else's, such as a consumer's."""
        self._began = self._cpu()

    def settle(self, spent: float, held: float) -> None:
        """End the quantum: `spent` units were used in it, `held` are still in the caller's hand."""
        here = self._cpu()
        used = here - self._began
        self._began = here
        self.used += used
        expired = max(0.0, self._available - spent - held)
        self._available = held
        most = _MOST_CARRIED * 1e9 * self.budget.quantum * self.budget.share
        self._carried = min(most, self._carried + spent / self._rate - used)
        if self._carried < 0.0:
            self._carried = min(0.0, self._carried + expired / self._rate)
        if spent > 0.0 and used > 0:
            off = spent / used - self._rate
            self._rate += (_UP if off > 0.0 else _DOWN) * off
