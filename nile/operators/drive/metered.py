"""A join under a budget that kernels cannot count by themselves: outputs, CPU seconds, or a share of a core.

A kernel counts operations and stops when its credit is spent.  So the input is taken in quanta: before each, what
is left of the budget is turned into credit at the rate that work has cost so far, after each the meter is read.
Too much in one quantum is taken off the next ones.  When all is used, the rest of the input is shed unseen.
Refusing a tuple takes CPU time too: a budget below that is used up before the input ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.wall_clock import run_live
from nile.operators.join.join import JoinInput, Outputs, PromisingJoin
from preferences.wall import WallBudget, WallClock
from summaries.hashing import Encoded, KeyHasher

__all__ = ["MeteredRun", "load_kernels"]

_LEAST_QUANTUM, _MOST_QUANTA = 256, 128
_SECOND = 1e9
_AHEAD = 0.25
"""How far ahead a quantum looks, as a share of the input."""
# Units of the cost table that a nanosecond, or an output, is believed to take before any was measured.
_UNITS_A_NS = 0.05
_UNITS_AN_OUTPUT = 100.0


class MeteredRun:
    """One run of a join whose plan has a budget of share, seconds_per_tuple, seconds or outputs.

    speed: how many times faster than its own pace the input is played back (share only).  cpu: CPU time of this
    thread, ns.  Work done for whoever consumes the outputs is not counted.
    """

    def __init__(
        self, join: PromisingJoin, *, speed: float = 1.0, cpu: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self._join = join
        self._speed = speed
        self._cpu = cpu
        self._used = 0.0
        self._given = 0
        self._clock: WallClock | None = None

    @property
    def spent(self) -> float:
        """What has been used so far, in the unit of the budget."""
        unit = self._join.plan.budget.unit
        if unit == "share":
            return self._clock.share if self._clock is not None else 0.0
        if unit == "outputs":
            return float(self._given)
        seconds = self._used / _SECOND
        return seconds / max(1, self._join.fed) if unit == "seconds_per_tuple" else seconds

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds used so far; None for a budget of outputs, which does not look at a clock."""
        if self._join.plan.budget.unit == "outputs":
            return None
        return (self._used if self._clock is None else self._clock.used) / _SECOND

    def run(self) -> Iterator[Outputs]:
        """Outputs as they are found."""
        budget = self._join.plan.budget
        arrivals = self._join.data.order.shape[0]
        if budget.unit == "outputs":
            yield from self._run_outputs(arrivals, int(budget.amount))
            return
        load_kernels(self._join.plan)
        if budget.unit == "share":
            self._clock = WallClock(WallBudget(budget.amount), cpu=self._cpu)
            yield from run_live(self._join, self._clock, speed=self._speed)
        else:
            seconds = budget.amount * (arrivals if budget.unit == "seconds_per_tuple" else 1)
            yield from self._run_seconds(arrivals, _SECOND * seconds)

    def _run_outputs(self, arrivals: int, most: int) -> Iterator[Outputs]:
        """At most `most` outputs; what the last quantum finds beyond them is left out."""
        for end in _ends(arrivals):
            for found in self._join.advance(
                end, credit=self._credit(most, self._join.fed / arrivals, end / arrivals, _UNITS_AN_OUTPUT)
            ):
                self._used += found.left.shape[0]
                kept = min(found.left.shape[0], most - self._given)
                self._given += kept
                if kept:
                    yield found if kept == found.left.shape[0] else _first(found, kept)
            if self._given == most:
                self._join.stop()
                return

    def _run_seconds(self, arrivals: int, most: float) -> Iterator[Outputs]:
        for end in _ends(arrivals):
            began = self._cpu()
            found = list(
                self._join.advance(
                    end, credit=self._credit(most, self._join.fed / arrivals, end / arrivals, _UNITS_A_NS)
                )
            )
            self._used += self._cpu() - began
            yield from found
            if self._used >= most:
                self._join.stop()
                return

    def _credit(self, most: float, begin: float, end: float, believed: float) -> float:
        """Units of the cost table to grant from `begin` to `end`, places in the input in [0, 1].

        Aims to have used its share of `most` a little later, at `_AHEAD`: admission follows the mean grant, and
        making good at once what one quantum took too much would shut its door.  The rate is what work has cost so
        far; `believed` counts as much as a thousandth of the budget.
        """
        aim = min(1.0, begin + _AHEAD)
        prior = most / 1_000
        rate = (prior * believed + self._join.spent) / (prior + self._used)
        wanted = (most * aim - self._used) * rate - self._join.credit
        return max(0.0, wanted) * (end - begin) / (max(aim, end) - begin)


def load_kernels(plan: JoinPlan) -> PromisingJoin:
    """Run a small join of its own to the end, so that loading kernels is not charged to a run under the clock.

    Its 4,096 arrivals are so far apart in time that zones end and granularities turn.  Returns that join.
    """
    n, keys = 2_048, 16
    codes = (np.arange(n) % keys).astype(np.int32)
    hashes = KeyHasher().words(np.arange(keys, dtype=np.int64))[codes]
    ts = np.arange(n, dtype=np.int64) * min(max(1, plan.spec.granularity // 64), 1 << 50)
    side = Encoded(codes=codes, hashes=hashes)
    order = np.tile(np.array([0, 1], np.int8), n)
    data = JoinInput(left_ts=ts, right_ts=ts, left=side, right=side, order=order, costs=np.ones(2 * n), keys=keys)
    join = PromisingJoin(plan if plan.window is None else replace(plan, window=int(ts[-1]) // 16), data)
    for credit in (200.0 * n, 0.0):  # the first takes in the slices of tuples that a zone is made of
        for _ in join.advance(n if credit else 2 * n, credit=credit):
            pass
    return join


def _ends(arrivals: int) -> Iterator[int]:
    """Where quanta end: the same for every split into batches."""
    quantum = max(_LEAST_QUANTUM, arrivals // _MOST_QUANTA)
    for begin in range(0, arrivals, quantum):
        yield min(arrivals, begin + quantum)


def _first(found: Outputs, count: int) -> Outputs:
    """The first outputs of a batch."""
    return Outputs(
        left=found.left[:count],
        right=found.right[:count],
        weight=found.weight[:count],
        side=None if found.side is None else found.side[:count],
        low=None if found.low is None else found.low[:count],
        high=None if found.high is None else found.high[:count],
    )
