"""Budgets of a live join that kernels cannot count by themselves: CPU seconds per tuple, a share of a core, a deadline.

Design.  One meter, whatever the time is of.  It buys a fraction of the exact answer over what each push brings: what is
left of the time, at what work has taken so far.  So an operator does what it does under a fraction, and finds what is
best for it in its order.  Promising regions that wait go on with what later pushes leave.  What a deadline leaves is
gone, handing out included; CPU time that is left, or was taken too much, is made good by later pushes, and taking a
push in and handing rows out are not of it.  Such a run is not reproducible.
A sample.  The levels of keys go by what a push may take, and by what work usually takes, which no coin decides; what is
left before each step moves the coins of tuples and the rates of outputs, by what is in hand: as those lean on what is
past alone, weights are right on average whatever the clock says (`nile.preferences.follow_kernels`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.common.contract import Asked, LiveOperator, Out
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["Deadline", "Meter", "PerTuple", "Purse", "Share", "meter_of"]

Array = np.ndarray[Any, Any]
_SECOND = 1e9
_UNITS_A_NS = 0.05
_BELIEVED_FOR, _REACH = 1e6, 1e9
"""Units of the cost table that a nanosecond is believed to take before any was measured; for how many ns of CPU time,
and over how many what it takes is a mean."""
_SAFE = 0.95
"""Of a deadline, how much is planned."""
_DEARER, _CHEAPER = 0.5, 0.1
"""How fast a step that was dearer, or cheaper, than those before is believed: being late is worse than early."""
_LEAST_STEP, _MOST_STEP = 128, 2_048
"""Arrivals between two looks at the clock."""
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


class Purse(Protocol):
    """The time that a budget gives, by the clock that it is of."""

    @property
    def looks(self) -> int:
        """At the clock in a push, where it is neither short nor long: each costs time."""

    @property
    def spent(self) -> float:
        """Used so far, in the unit of the budget."""

    def begin(self, came: int, began: int | None) -> None:
        """A push of so many tuples begins, or began at `began` ns by the wall clock."""

    def resume(self) -> None:
        """From here on time is the operator's, in this thread."""

    def pause(self) -> None:
        """What follows is somebody else's."""

    def used(self) -> int:
        """ns of the clock used, since any time that does not move within a push."""

    def left(self, used: int) -> float:
        """ns that are left; below 0: too many were used."""

    def planned(self, left: float) -> float:
        """ns of this push, of no coin's making.  left: ns, before any of its coins."""

    def learnt(self, rate: float, units: float, used: int, took: int) -> float:
        """Units that a ns takes.  rate: as known before the last `took` of the ns used took so many units."""

    def capture(self) -> State:
        """What has been used."""

    def restore(self, held: Held) -> None:
        """Go on from there.  Raises EnvelopeError."""


def meter_of(plan: Asked) -> Meter | None:
    """The meter of a plan's budget; None for a fraction, which kernels count.  Raises NotYet for other units."""
    if plan.budget is None or plan.budget.unit == "fraction":
        return None
    unit, amount = plan.budget.unit, plan.budget.amount
    if unit == "deadline":
        return Meter(Deadline(amount))
    if unit == "seconds_per_tuple":
        return Meter(PerTuple(amount))
    if unit == "share":
        return Meter(Share(amount))
    raise NotYet(
        "standing query: needed a budget that goes on for as long as tuples come (a fraction, seconds_per_tuple, a "
        f"share, a deadline of each push); got {unit}; say budget=0.1"
    )


class Deadline:
    """seconds: from the call of a push to the last row of it that is handed out.  wall: ns, as `time.monotonic_ns`."""

    looks = 16

    def __init__(self, seconds: float, wall: Callable[[], int] = time.monotonic_ns) -> None:
        self._seconds = seconds
        self._wall = wall
        self._began = self._longest = 0

    @property
    def spent(self) -> float:
        """Seconds that the slowest push so far took."""
        return self._longest / _SECOND

    def begin(self, came: int, began: int | None) -> None:  # noqa: ARG002
        """A push begins."""
        self._began = self._wall() if began is None else began

    def resume(self) -> None:
        """Time passes whoever takes it."""

    def pause(self) -> None:
        """Time passes whoever takes it."""
        self._longest = max(self._longest, self.used())

    def used(self) -> int:
        """ns since the push was called."""
        return self._wall() - self._began

    def left(self, used: int) -> float:
        """ns."""
        return _SAFE * _SECOND * self._seconds - used

    def planned(self, left: float) -> float:
        """All that is left when the push has been taken in."""
        return left

    def learnt(self, rate: float, units: float, used: int, took: int) -> float:
        """Steps that were dear are believed at once; what is late does but little work, and tells nothing."""
        if units <= 0.0 or self.left(used - took) <= 0.0:
            return rate
        now = units / max(1, took)
        return rate + (now - rate) * (_DEARER if now < rate else _CHEAPER)

    def capture(self) -> State:
        """ns of the slowest push."""
        return {"longest": self._longest}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._longest = held.integer("longest", 0, MOST)
        held.end()


class _Cpu:
    """CPU time of whichever thread works, which later pushes make good.  cpu: ns, as `time.thread_time_ns`."""

    looks = 1

    def __init__(self, cpu: Callable[[], int]) -> None:
        self._cpu = cpu
        self._used = 0
        self._since: int | None = None

    def resume(self) -> None:
        """From here on time is the operator's."""
        self._since = self._cpu()

    def pause(self) -> None:
        """What follows is somebody else's."""
        self._used, self._since = self.used(), None

    def used(self) -> int:
        """ns in all."""
        return self._used if self._since is None else self._used + max(0, self._cpu() - self._since)

    def learnt(self, rate: float, units: float, used: int, took: int) -> float:
        """The mean, what is no unit's included."""
        return rate + (units - rate * took) / (_BELIEVED_FOR + min(used, _REACH))


class PerTuple(_Cpu):
    """seconds: of CPU time per arrival; what one leaves is kept for the next."""

    def __init__(self, seconds: float, cpu: Callable[[], int] = time.thread_time_ns) -> None:
        super().__init__(cpu)
        self._amount = _SECOND * seconds
        self._arrivals = self._came = 0

    @property
    def spent(self) -> float:
        """CPU seconds per arrival."""
        return self._used / _SECOND / max(1, self._arrivals)

    def begin(self, came: int, began: int | None) -> None:  # noqa: ARG002
        """A push begins."""
        self._came = came
        self._arrivals += came

    def left(self, used: int) -> float:
        """ns."""
        return self._amount * self._arrivals - used

    def planned(self, left: float) -> float:  # noqa: ARG002
        """What its own tuples give."""
        return self._amount * self._came

    def capture(self) -> State:
        """Arrivals and ns."""
        return {"arrivals": self._arrivals, "used": self._used}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._arrivals, self._used = held.integer("arrivals", 0, MOST), held.integer("used", 0, MOST)
        held.end()


class Share(_Cpu):
    """share: of a core, of the time that passes while the query stands.  wall: ns, as `time.monotonic_ns`."""

    def __init__(
        self,
        share: float,
        cpu: Callable[[], int] = time.thread_time_ns,
        wall: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(cpu)
        self._share = share
        self._wall = wall
        self._elapsed = self._came = self._pushes = 0
        self._last = wall()
        self._usual = 0.0

    @property
    def spent(self) -> float:
        """CPU time over time."""
        return self._used / self._elapsed if self._elapsed else 0.0

    def begin(self, came: int, began: int | None) -> None:  # noqa: ARG002
        """A push begins: how fast tuples come is a slow mean, since work that coins decide may hold them up."""
        before = self._elapsed
        self._pass()
        self._came = came
        if came:
            self._pushes += 1
            self._usual += ((self._elapsed - before) / came - self._usual) / min(self._pushes, _MEMORY)

    def _pass(self) -> None:
        now = self._wall()
        self._elapsed += now - self._last
        self._last = now

    def left(self, used: int) -> float:
        """ns."""
        self._pass()
        return self._share * self._elapsed - used

    def planned(self, left: float) -> float:  # noqa: ARG002
        """What usually passes while so many tuples come."""
        return self._share * self._usual * self._came

    def capture(self) -> State:
        """Time elapsed and used, ns."""
        return {"clock": np.array([self._elapsed, self._used], np.int64)}

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._elapsed, self._used = map(int, held.counts("clock", 2))
        held.end()


class Meter:
    """What there is time for."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._rate = self._usual = _UNITS_A_NS
        self._pushes = self._used = 0
        self._spent = self._in_hand = 0.0

    @property
    def spent(self) -> float:
        """Used so far, in the unit of the budget."""
        return self._purse.spent

    def take(
        self, operator: LiveOperator[Out], ts: tuple[Array, ...], keys: tuple[pa.Array, ...], began: int | None
    ) -> Iterator[Out]:
        """A push, or where none of its tuples is due what waits: as `nile.operators.drive.live` takes it."""
        came = sum(each.shape[0] for each in ts)
        self._purse.begin(came, began)
        if came:
            operator.push(ts, keys)
            yield from self._through(operator)
            operator.let_go()
        else:
            units = self._rate * max(0.0, self._look(operator))
            if operator.sampled:
                units = min(units, self._in_hand)
            yield from self._handed(operator, operator.fed, max(0.0, units - operator.credit))
        self._purse.pause()

    def _through(self, operator: LiveOperator[Out]) -> Iterator[Out]:
        """All arrivals, in steps."""
        left, to_come = self._look(operator), max(1e-9, operator.to_come)
        came = operator.arrivals - operator.fed
        most = max(_LEAST_STEP, min(_MOST_STEP, came // self._purse.looks))
        planned = _share(self._purse.planned(left) * self._usual, to_come)
        self._in_hand = planned * to_come * (_PLENTY if planned >= _AMPLE else min(1.0, _IN_HAND / came))
        operator.take_back(operator.credit - (self._in_hand if operator.sampled else 0.0))
        while True:
            units = self._rate * max(0.0, left)
            share = _share(units - operator.credit, to_come)
            if operator.sampled:
                operator.take_back(max(0.0, operator.credit - self._in_hand))
                share = max(_share(units, to_come), _LEAST_LEFT * planned)
            end = min(operator.arrivals, operator.fed + most)
            operator.afford(end, share, planned)
            yield from self._handed(operator, end, None)
            if end == operator.arrivals:
                break
            left, to_come = self._purse.left(self._used), max(1e-9, operator.to_come)
        self._pushes += 1
        self._usual += (self._rate - self._usual) / min(_BELIEVED + self._pushes, _MEMORY)

    def _handed(self, operator: LiveOperator[Out], end: int, credit: float | None) -> Iterator[Out]:
        """What is found up to arrival `end`, in time; learns what it took."""
        self._purse.resume()
        for found in operator.advance(end, credit=credit):
            self._purse.pause()
            yield found
            self._purse.resume()
            if not operator.sampled and self._purse.left(self._purse.used()) < 0.0:
                operator.take_back(max(0.0, operator.credit))
        self._purse.pause()
        before, spent = self._used, self._spent
        self._look(operator)
        self._rate = self._purse.learnt(self._rate, self._spent - spent, self._used, self._used - before)

    def _look(self, operator: LiveOperator[Any]) -> float:
        """At the clock: ns that are left."""
        self._used, self._spent = self._purse.used(), operator.spent
        return self._purse.left(self._used)

    def capture(self) -> State:
        """What has been used."""
        return self._purse.capture()

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        self._purse.restore(held)


def _share(units: float, to_come: float) -> float:
    """That of the exact cost of what is to come which so many units are."""
    return min(_MOST_SHARE, max(_LEAST_SHARE, units / to_come))
