"""Budgets of a live join that kernels cannot count by themselves: CPU seconds per tuple, a share of a core, a deadline.

As over finite streams (`nile.operators.drive.metered`, `nile.operators.drive.wall_clock`): before each quantum of
tuples the budget is turned into credit at the rate that work has cost so far, after it the meter is read, and the
next ones make good what this one took too much or too little.  Such a run is not reproducible.

Design.  A deadline buys a fraction of the exact answer over what each push brings: what is left of the time, at what
work has taken so far, handing out included.  So an operator does what it does under a fraction, and finds what is best
for it in its order.  Promising regions that wait go on with what later pushes leave.
A sample.  The levels of keys go by what there is time for as the push begins, which no coin of its tuples has decided;
what is left before each step moves the coins of tuples and the rates of outputs, by what is in hand: as those lean on
what is past alone, weights are right on average whatever the clock says (`nile.preferences.follow_kernels`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.common.contract import Asked, LiveOperator, Out
from nile.preferences.wall import WallBudget, WallClock
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["QUANTUM", "Deadline", "Meter", "meter_of"]

Array = np.ndarray[Any, Any]
QUANTUM = 2_048
"""Arrivals between two looks at the meter."""
_SECOND = 1e9
# Units of the cost table that a nanosecond is believed to take before any was measured, and for how many of them.
_UNITS_A_NS = 0.05
_BELIEVED_FOR = 1e6
# Of a deadline.
_SAFE = 0.95
"""Of the time, how much is planned."""
_DEARER, _CHEAPER = 0.5, 0.1
"""How fast a step that was dearer, or cheaper, than those before is believed: being late is worse than early."""
_STEPS, _LEAST_STEP, _MOST_STEP = 16, 128, 2_048
"""Looks at the clock in a push, and arrivals between two of them."""
_LEAST_SHARE, _MOST_SHARE = 1e-6, 16.0
"""Of its exact cost, what an arrival grants.  Where there is time for more, all is found."""
_LEAST_LEFT = 0.25
"""Of what was planned, what a sample goes on with however late it is: were what comes last nearly left out, it would
stand for nearly all that it stands for."""
_BELIEVED, _MEMORY = 64, 256
"""Pushes that what is believed at first counts for, and that what work usually takes is a mean of."""
_IN_HAND, _AMPLE, _PLENTY = 64.0, 2.0, 1e6
"""Arrivals whose grants a sample has in hand from the first on; the share from which on it has what pays for anything,
and what does."""


class Metered(Protocol):
    """What a meter asks of a join."""

    @property
    def spent(self) -> float:
        """Units of the cost table spent so far."""

    @property
    def credit(self) -> float:
        """Units granted and not yet spent."""


class Meter(Protocol):
    """Turns a budget into credit.  CPU times are of this thread, which may be another at each step."""

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
        f"share, a deadline of each push); got {unit}; say budget=0.1"
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
        rate = (_BELIEVED_FOR * _UNITS_A_NS + join.spent) / (_BELIEVED_FOR + self._used)
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


class Deadline:
    """What there is time for.  seconds: from the call of a push to the last row of it that is handed out.

    wall: ns, as `time.monotonic_ns`.
    """

    def __init__(self, seconds: float, wall: Callable[[], int] = time.monotonic_ns) -> None:
        self._planned = _SAFE * _SECOND * seconds
        self._wall = wall
        self._rate = self._usual = _UNITS_A_NS
        self._pushes = 0
        self._longest = self._began = self._looked = 0
        self._spent = self._in_hand = 0.0

    @property
    def spent(self) -> float:
        """Seconds that the slowest push so far took."""
        return self._longest / _SECOND

    def take(
        self, operator: LiveOperator[Out], ts: tuple[Array, ...], keys: tuple[pa.Array, ...], began: int | None
    ) -> Iterator[Out]:
        """A push, or where none of its tuples is due what waits: as `nile.operators.drive.live` takes it."""
        came = sum(each.shape[0] for each in ts)
        self._looked, self._spent = self._wall(), operator.spent
        self._began = self._looked if began is None else began
        if came:
            operator.push(ts, keys)
            yield from self._through(operator)
            operator.let_go()
        else:
            units = self._left(operator)
            if operator.sampled:
                units = min(units, self._in_hand)
            yield from operator.advance(operator.fed, credit=max(0.0, units - operator.credit))
        self._left(operator)
        self._longest = max(self._longest, self._looked - self._began)

    def _through(self, operator: LiveOperator[Out]) -> Iterator[Out]:
        """All arrivals, in steps."""
        came = operator.arrivals - operator.fed
        most = max(_LEAST_STEP, min(_MOST_STEP, came // _STEPS))
        planned = 0.0
        while operator.fed < operator.arrivals:
            left, to_come = self._left(operator), max(1e-9, operator.to_come)
            if not planned:
                planned = _share(left * self._usual / self._rate, to_come)
                self._in_hand = planned * to_come * (_PLENTY if planned >= _AMPLE else min(1.0, _IN_HAND / came))
                operator.take_back(operator.credit - (self._in_hand if operator.sampled else 0.0))
            share = _share(left - operator.credit, to_come)
            if operator.sampled:
                operator.take_back(max(0.0, operator.credit - self._in_hand))
                share = max(_share(left, to_come), _LEAST_LEFT * planned)
            end = min(operator.arrivals, operator.fed + most)
            operator.afford(end, share, planned)
            for found in operator.advance(end):
                yield found
                if not operator.sampled and self._wall() - self._began > self._planned:
                    operator.take_back(max(0.0, operator.credit))
        self._pushes += 1
        self._usual += (self._rate - self._usual) / min(_BELIEVED + self._pushes, _MEMORY)

    def _left(self, operator: LiveOperator[Any]) -> float:
        """Look at the clock: units that there is time for still."""
        now, spent = self._wall(), operator.spent
        if spent > self._spent and self._looked - self._began < self._planned:  # what is late does but little work
            rate = (spent - self._spent) / max(1, now - self._looked)
            self._rate += (rate - self._rate) * (_DEARER if rate < self._rate else _CHEAPER)
        self._looked, self._spent = now, spent
        return max(0.0, self._planned - (now - self._began)) * self._rate

    def capture(self) -> State:
        """ns of the slowest push."""
        return {"longest": self._longest}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._longest = held.integer("longest", 0, MOST)
        held.end()


def _share(units: float, to_come: float) -> float:
    """That of the exact cost of what is to come which so many units are."""
    return min(_MOST_SHARE, max(_LEAST_SHARE, units / to_come))
