"""Budgets of a live join that kernels cannot count by themselves: CPU seconds per tuple, or a share of a core.

As over finite streams (`nile.operators.drive.metered`, `nile.operators.drive.wall_clock`): before each quantum of
tuples the budget is turned into credit at the rate that work has cost so far, after it the meter is read, and the
next ones make good what this one took too much or too little.  Such a run is not reproducible.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.common.contract import Asked
from nile.preferences.wall import WallBudget, WallClock
from nile.summaries.errors import NotYet

__all__ = ["QUANTUM", "Meter", "meter_of"]

QUANTUM = 2_048
"""Arrivals between two looks at the meter."""
_SECOND = 1e9
# Units of the cost table that a nanosecond is believed to take before any was measured, and for how many of them.
_UNITS_A_NS = 0.05
_BELIEVED = 1e6


class Metered(Protocol):
    """What a meter asks of a join."""

    @property
    def spent(self) -> float:
        """Units of the cost table spent so far."""

    @property
    def credit(self) -> float:
        """Units granted and not yet spent."""


class Meter(Protocol):
    """Turns a budget into credit.  Times are of this thread, which may be another at each step."""

    @property
    def spent(self) -> float:
        """Used so far, in the unit of the budget."""

    def begin(self, join: Metered, arrivals: int) -> float:
        """A step with so many arrivals begins: the credit for it, in units of the cost table."""

    def end(self, join: Metered) -> None:
        """The step is over."""

    def capture(self) -> State:
        """What has been used."""

    def restore(self, held: Held) -> None:
        """Go on from there.  Raises EnvelopeError."""


def meter_of(plan: Asked, *, cpu: Callable[[], int] = time.thread_time_ns) -> Meter | None:
    """The meter of a plan's budget; None for a fraction, which kernels count.  Raises NotYet for other units."""
    if plan.budget is None or plan.budget.unit == "fraction":
        return None
    unit = plan.budget.unit
    if unit == "seconds_per_tuple":
        return _SecondsPerTuple(_SECOND * plan.budget.amount, cpu)
    if unit == "share":
        return _Share(plan.budget.amount, cpu)
    raise NotYet(
        "standing query: needed a budget that goes on for as long as tuples come (a fraction, seconds_per_tuple, a "
        f"share); got {unit}; say budget=0.1"
    )


class _SecondsPerTuple:
    """amount: ns per arrival; what one leaves is kept for the next."""

    def __init__(self, amount: float, cpu: Callable[[], int]) -> None:
        self._amount = amount
        self._cpu = cpu
        self._arrivals = 0
        self._used = 0
        self._began = 0

    @property
    def spent(self) -> float:
        """CPU seconds per arrival."""
        return self._used / _SECOND / max(1, self._arrivals)

    def begin(self, join: Metered, arrivals: int) -> float:
        """Credit for what is left of the budget."""
        self._began = self._cpu()
        self._arrivals += arrivals
        rate = (_BELIEVED * _UNITS_A_NS + join.spent) / (_BELIEVED + self._used)
        return max(0.0, (self._amount * self._arrivals - self._used) * rate - join.credit)

    def end(self, join: Metered) -> None:  # noqa: ARG002
        """Read the meter."""
        self._used += max(0, self._cpu() - self._began)

    def capture(self) -> State:
        """Arrivals and ns."""
        return {"arrivals": self._arrivals, "used": self._used}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._arrivals, self._used = held.integer("arrivals", 0, MOST), held.integer("used", 0, MOST)
        held.end()


class _Share:
    """share: of a core, of the time that passes while the query stands."""

    def __init__(self, share: float, cpu: Callable[[], int]) -> None:
        self._clock = WallClock(WallBudget(share), cpu=cpu)
        self._last = time.monotonic_ns()
        self._before = 0.0

    @property
    def spent(self) -> float:
        """CPU time over time."""
        return self._clock.share

    def begin(self, join: Metered, arrivals: int) -> float:  # noqa: ARG002
        """Credit for the time that has passed."""
        now = time.monotonic_ns()
        self._clock.resume()
        self._before = join.spent
        credit = self._clock.credit(now - self._last)
        self._last = now
        return credit

    def end(self, join: Metered) -> None:
        """Read the meter."""
        self._clock.settle(join.spent - self._before, join.credit)

    def capture(self) -> State:
        """Time elapsed and used, ns."""
        return {"clock": np.array([self._clock.elapsed, self._clock.used], np.int64)}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._clock.elapsed, self._clock.used = map(int, held.counts("clock", 2))
        held.end()
