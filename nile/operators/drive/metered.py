"""A join under a budget that kernels cannot count by themselves: outputs, CPU seconds, or a share of a core.

A kernel counts operations and stops when its credit is spent.  So the input is taken in quanta: before each, what
is left of the budget is turned into credit at the rate that work has cost so far, after each the meter is read.
Too much in one quantum is taken off the next ones.  When all is used, the rest of the input is shed unseen; but of a
sample under a clock, which is drawn to its end (`nile.operators.drive.timed_sample`).
Refusing a tuple takes CPU time too: a budget below that is used up before the input ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Generic, Protocol

from nile.operators.common.contract import Operator, Out, Spending
from nile.operators.drive.clock import Clock
from nile.operators.drive.timed_sample import timed_sample
from nile.operators.drive.wall_clock import run_live
from nile.preferences.budget import Budget, BudgetReport
from nile.preferences.wall import WallBudget, WallClock

__all__ = ["MeteredRun", "load_kernels", "report_of"]

_LEAST_QUANTUM, _MOST_QUANTA = 256, 128
_SECOND = 1e9
_AHEAD = 0.25
"""How far ahead a quantum looks, as a share of the input."""
# Units of the cost table that a nanosecond, or an output, is believed to take before any was measured.
_UNITS_A_NS = 0.05
_UNITS_AN_OUTPUT = 100.0


class _Metering(Protocol):
    @property
    def spent(self) -> float:
        """Used so far, in the unit of the budget."""


class MeteredRun(Generic[Out]):
    """One run of a join whose plan has a budget of share, seconds_per_tuple, seconds, deadline or outputs.

    speed: how many times faster than its own pace the input is played back (share only).  draws: whether the join
    itself draws as many outputs as were asked for, from all of the input (outputs only).  cpu: CPU time of this
    thread, ns.  clock: of the whole question, which has read its input before (seconds, deadline); without one only the
    operator's own time counts.
    """

    def __init__(
        self,
        join: Operator[Out],
        *,
        speed: float = 1.0,
        draws: bool = False,
        cpu: Callable[[], int] = time.thread_time_ns,
        clock: Clock | None = None,
    ) -> None:
        assert join.plan.budget is not None
        self._budget = join.plan.budget
        self._join = join
        self._draws = draws
        self._speed = speed
        self._cpu = cpu
        self._used = 0.0
        self._given = 0
        self._late = 0.0
        self._clock: WallClock | None = None
        self._question = clock if clock is not None and clock.limits else None

    @property
    def spent(self) -> float:
        """What has been used so far, in the unit of the budget."""
        unit = self._budget.unit
        if unit == "share":
            return self._clock.share if self._clock is not None else 0.0
        if unit == "outputs":
            return float(self._given)
        seconds = self._used / _SECOND
        return seconds / max(1, self._join.fed) if unit == "seconds_per_tuple" else seconds

    @property
    def cuts(self) -> bool:
        """Whether the outputs are the first that were found, by a budget in outputs, so that they are no sample."""
        return self._budget.unit == "outputs" and not self._draws

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds used so far; None for a budget of outputs, which does not look at a clock."""
        if self._budget.unit == "outputs":
            return None
        return (self._used if self._clock is None else self._clock.used) / _SECOND

    @property
    def warnings(self) -> tuple[str, ...]:
        """That time was over before the first tuple, and how much would not have been, where that was so."""
        if not self._late:
            return ()
        return (
            f"budget: needed more than {self._late:.2g} seconds, which it takes to read what is asked of; got "
            f"{self._budget}, over before anything was looked for; allow more",
        )

    def run(self) -> Iterator[Out]:
        """Outputs as they are found."""
        budget = self._budget
        arrivals = self._join.arrivals
        if budget.unit == "outputs":
            yield from self._run_outputs(arrivals, int(budget.amount))
            return
        if self._question is None:
            load_kernels(self._join.example())
        else:
            self._question.without(lambda: load_kernels(self._join.example()))
        if budget.unit == "share":
            self._clock = WallClock(WallBudget(budget.amount), cpu=self._cpu)
            yield from run_live(self._join, self._clock, speed=self._speed)
        else:
            seconds = budget.amount * (arrivals if budget.unit == "seconds_per_tuple" else 1)
            yield from self._run_seconds(arrivals, _SECOND * seconds)

    def _run_outputs(self, arrivals: int, most: int) -> Iterator[Out]:
        """At most `most` outputs; what the last quantum finds beyond them is left out."""
        for end in _ends(arrivals):
            ahead = self._join.fed / arrivals, end / arrivals, _UNITS_AN_OUTPUT
            credit = None if self._draws else self._credit(most, *ahead)
            for found in self._join.advance(end, credit=credit):
                self._used += len(found)
                kept = min(len(found), most - self._given)
                self._given += kept
                if kept:
                    yield found if kept == len(found) else found.first(kept)
            if self._given == most:
                self._join.finish()
                return

    def _run_seconds(self, arrivals: int, most: float) -> Iterator[Out]:
        began = self._cpu() if self._question is None else 0
        before = self._elapsed(began)
        if before >= most:
            self._late = before / _SECOND
        sample = timed_sample(self._join, most - before)
        ends = _ends(arrivals) if sample is None else sample.ends()
        for end in ends:
            self._used = self._elapsed(began)
            if sample is None:
                credit = self._credit(most, self._join.fed / arrivals, end / arrivals, _UNITS_A_NS)
                running = self._join.advance(end, credit=credit)
            else:
                running = sample.advance(end, self._used - before)
            found = list(running)
            self._used = self._elapsed(began)
            yield from found
            if self._used >= most and sample is None:
                self._join.finish()
                return

    def _elapsed(self, began: int) -> float:
        """ns used so far: of the question, or without one since `began`."""
        return float(self._cpu() - began if self._question is None else self._question.elapsed)

    def _credit(self, most: float, begin: float, end: float, believed: float) -> float:
        """Units of the cost table to grant from `begin` to `end`, places in the input in [0, 1].

        Aims to have used its share of `most` a little later, at `_AHEAD`: admission follows the mean grant, and
        making good at once what one quantum took too much would shut its admission.  The rate is what work has cost so
        far; `believed` counts as much as a thousandth of the budget.
        """
        aim = min(1.0, begin + _AHEAD)
        prior = most / 1_000
        rate = (prior * believed + self._join.spent) / (prior + self._used)
        wanted = (most * aim - self._used) * rate - self._join.credit
        return max(0.0, wanted) * (end - begin) / (max(aim, end) - begin)


def load_kernels(example: Operator[Any]) -> None:
    """Run an operator's `example` to its end, so that loading kernels is not charged to a run under the clock."""
    half = example.arrivals // 2
    # The first half takes in the slices of tuples that a zone is made of.
    for end, credit in ((half, 100.0 * example.arrivals), (example.arrivals, 0.0)):
        for _ in example.advance(end, credit=credit):
            pass


def report_of(asked: Budget, run: _Metering | None, figures: Spending) -> BudgetReport:
    """What was asked, granted and spent.  run: None under a fraction."""
    fraction = figures.budget_spent
    bounded = asked.unit in ("fraction", "share") and 0.0 < figures.granted < inf and figures.exact_cost > 0.0
    return BudgetReport(
        asked.amount, fraction if run is None else run.spent, asked.unit, fraction, asked.is_reproducible,
        granted=figures.granted / figures.exact_cost if bounded else None,
    )  # fmt: skip


def _ends(arrivals: int) -> Iterator[int]:
    """Where quanta end: the same for every split into batches."""
    quantum = max(_LEAST_QUANTUM, arrivals // _MOST_QUANTA)
    for begin in range(0, arrivals, quantum):
        yield min(arrivals, begin + quantum)
