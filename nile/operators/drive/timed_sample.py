"""A sample inside a budget by a clock: how much work there is time for, and what of it is left as the time goes by.

A sample has to be drawn to its end: tuples that the clock cuts off stand in no weight, and an estimate is too low by
what they would have found.  So the clock moves rates and nothing else.  Before the first tuple the time there is, as
units of work, is what rates are planned for; before each quantum what is left of it moves the coins of tuples and the
rates of outputs, at least to a quarter of what was planned, which may end a little late.  Levels of key hashes are
planned from the input alone, coins and rates lean on earlier ones, as under any budget: so weights stay exact whatever
the clock says.  What a unit of work takes is believed at first and corrected by what it has taken: `Pace`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nile.operators.common.start import UNIT
from nile.operators.join.follower import is_timed
from nile.operators.join.join import PromisingJoin
from nile.operators.join.sampler import Sampler
from nile.operators.multiway.multiway import MultiwayJoin
from nile.preferences import state as st

__all__ = ["Pace", "TimedSample", "timed_sample"]

_NS_TUPLE, _NS_OUTPUT = 100.0, 15.0
"""ns that taking a tuple in, and an output, are believed to take at first."""
_NS_ARRIVAL, _NS_QUANTUM = 30.0, 60_000.0
"""ns that passing over an arrival, and looking at the clock, take besides."""
_BELIEVED = 1.0 / 16.0
"""What is believed counts as much as so much of the time there is."""
_QUANTA, _LEAST_QUANTUM, _OVERHEAD = 128, 256, 0.05
_PLANNED, _SPARE = 0.95, 64.0
"""Of what there is time for, how much is planned; tuples whose cost is planned where there is time for less."""
_LEAST_LEFT, _CUSHION, _PLENTY = 0.25, 0.08, 4.0
"""Of what was planned from here on, and in all, the least that a sample goes on with; of the exact answer's cost, what
pays for anything."""
_DRAINS = 64
_KEPT_TUPLES, _KEPT_ARRIVALS = 8.0, 64.0
"""Tuples taken in, and arrivals, whose cost is kept in hand when what is left turns out to be less than was granted."""
_FIRST = 8
"""The first quantum's part of one, where what work takes has to be known early; each next one is twice as long."""


class Pace:
    """What is left to spend under a clock.

    arrivals: of the input; exact: what its exact answer costs, units; outputs: in it; most: ns there are.
    """

    def __init__(self, arrivals: int, exact: float, outputs: float, most: float) -> None:
        looks = int(max(4.0, min(float(_QUANTA), _OVERHEAD * most / _NS_QUANTUM)))
        self.size = max(_LEAST_QUANTUM, -(-arrivals // looks))
        """Arrivals between two looks at the clock, which take but a small part of the time there is."""
        self._arrivals = arrivals
        self._unit = max(1e-9, (_NS_TUPLE * arrivals + _NS_OUTPUT * outputs) / max(1.0, exact))
        self._most = most
        self._passing = _NS_ARRIVAL + _NS_QUANTUM / self.size
        self._least = _SPARE * exact / max(1, arrivals)

    def ends(self, *, early: bool) -> Iterator[int]:
        """Where quanta end.  early: whether the first ones are short."""
        end, size = 0, max(_LEAST_QUANTUM // 2, self.size // _FIRST) if early else self.size
        while end < self._arrivals:
            end = min(self._arrivals, end + min(size, self.size))
            size *= 2
            yield end

    @property
    def planned(self) -> float:
        """Units to plan for, before the first tuple."""
        return max(self._least, _PLANNED * self.left(0, 0.0, 0.0))

    def left(self, fed: int, spent: float, used: float) -> float:
        """Units that there is time for still.  fed: arrivals, spent: units, used: ns so far."""
        prior = _BELIEVED * max(0.0, self._most)
        pace = (prior + used) / max(1.0, prior + self._passing * fed + self._unit * spent)
        to_come = (self._most - used) / max(1e-9, pace) - self._passing * (self._arrivals - fed)
        return max(0.0, to_come / self._unit)


class TimedSample:
    """The sample that one run draws under a clock.  most: ns there are from here on."""

    def __init__(self, join: PromisingJoin | MultiwayJoin, most: float) -> None:
        plan = join.plan
        streams = join.data.streams if isinstance(join, MultiwayJoin) else 2
        exact = float(join.costs.sum()) / UNIT
        taking = plan.costs.insert + (streams - 1) * plan.costs.lookup
        outputs = max(0.0, exact - taking * join.arrivals) / plan.costs.emit
        self.pace = Pace(join.arrivals, exact, outputs, most)
        self._planned = min(exact, self.pace.planned)
        self._join = join
        self._sampler: Sampler | None = None
        if isinstance(join, MultiwayJoin):
            if join.followed:
                join.draw(UNIT * self._planned)
        else:
            granted = join.costs * (self._planned / max(1.0, exact))
            self._sampler = Sampler(plan, join.data, join.state, granted, join.lent)
            join.draw(self._sampler)
        self._to_come = np.concatenate([np.cumsum(join.costs[::-1])[::-1], np.zeros(1)])

    def ends(self) -> Iterator[int]:
        """Where quanta end: where credit is dealt out, what work takes has to be known before much of it is."""
        return self.pace.ends(early=isinstance(self._join, MultiwayJoin) and self._join.followed)

    def advance(self, end: int, used: float) -> Iterator[Any]:
        """Go on to arrival `end`.  used: ns so far."""
        join, fed = self._join, self._join.fed
        left = self.pace.left(fed, join.spent, used)
        if self._sampler is not None:
            yield from self._afford(self._sampler, end, left)
            return
        share = 1.0 - float(self._to_come[end]) / max(1.0, float(self._to_come[fed]))
        least = _LEAST_LEFT * self._planned * float(self._to_come[fed]) / max(1.0, float(self._to_come[0]))
        credit = max(0.0, max(left, least) - join.credit) * share
        if isinstance(join, MultiwayJoin) and join.followed:
            wanted = max(left, least) * share
            _take_back(join, wanted, end - fed)
            credit = max(0.0, wanted - join.credit)
        yield from join.advance(end, credit=credit)
        if end == join.arrivals:
            yield from self._drained()

    def _afford(self, sampler: Sampler, end: int, left: float) -> Iterator[Any]:
        """Credit pays for anything, so that nobody waits; rates keep to what is left."""
        real, join = self._join.state.real, self._join
        # Were what is left used up before the end, what is drawn then would stand for nearly all that it stands for.
        cushion = _CUSHION * sampler.to_come(0, join.arrivals)
        kept = max(UNIT * left, _LEAST_LEFT * sampler.to_come(join.fed, join.arrivals)) + cushion
        real[st.CREDIT] = _PLENTY * float(join.costs.sum()) + kept
        real[st.GRANTED] = real[st.SPENT] + kept
        sampler.afford(kept, float(real[st.CREDIT]), float(real[st.GRANTED]))
        yield from join.advance(end)
        real[st.GRANTED] = max(real[st.GRANTED], real[st.SPENT])
        real[st.CREDIT] = real[st.GRANTED] - real[st.SPENT]

    def _drained(self) -> Iterator[Any]:
        """What waits when the input ends: rates are low by then, for little is in hand, and what is due is paid."""
        join, state = self._join, self._join.state
        credit = 2.0 * float(state.real[st.ENTRANCE]) / UNIT
        for _ in range(_DRAINS):
            queued = join.queue is not None and bool(join.queue.control[0])
            if not queued and not state.whole[st.ACTIVE] and state.whole[st.APPLIED] == state.whole[st.ARRIVED]:
                return
            yield from join.advance(join.arrivals, credit=credit)
            credit *= 1.5


def _take_back(join: MultiwayJoin, wanted: float, arrivals: int) -> None:
    """Take back credit beyond what rates are led by, where more was granted than there is time for: it would be spent
    at once, and those who come after would find nothing.  wanted: units for so many coming arrivals."""
    real = join.state.real
    led = max(_KEPT_TUPLES * float(real[st.ENTRANCE]), _KEPT_ARRIVALS * UNIT * wanted / max(1, arrivals))
    more = max(0.0, float(real[st.CREDIT]) - led)
    real[st.CREDIT] -= more
    real[st.GRANTED] -= more


def timed_sample(join: Any, most: float) -> TimedSample | None:
    """The sample that a join draws under its budget by a clock; None for other joins, and for no input."""
    if not isinstance(join, (PromisingJoin, MultiwayJoin)) or not join.arrivals or not is_timed(join.plan):
        return None
    if isinstance(join, PromisingJoin) and join.is_shared:
        return None
    return TimedSample(join, most)
