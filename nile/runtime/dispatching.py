"""Which operator of which standing plan runs next: schedulers by name over plans with queues, while they run.

Costs and selectivities are measured as operators run, per tuple, and chains formed anew where they have drifted.  Of
an operator on several paths (a join) the steepest chain counts.  Time is in seconds.
Source: STREAM (CIDR 2003), section 4.2; the bulletin (2003), section 3.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nile.exact.join.threads import cpu_seconds
from nile.exact.pipeline.stages import Ran, Stages
from nile.runtime.charts import Chart, Meter, Step
from nile.summaries.errors import ConfigError

__all__ = ["NAMES", "Dispatcher", "Queued", "check_name"]

NAMES = ("fifo", "round-robin", "greedy", "chain", "chain-latency")
_DRIFT = 0.1
_GUESS = Step(1e-6, 1.0)  # of an operator that has not run: seconds a tuple, tuples for each


class Queued(Protocol):
    """A plan at work, whose operators may be run."""

    @property
    def stages(self) -> Stages:
        """Its operators; another object once it has become another plan."""

    def run(self, number: int) -> Ran | None:
        """Let an operator that is ready come to its next instant, and hand out what that leads to; None: it failed."""


def check_name(name: object, where: str) -> str | None:
    """A scheduler's name, None for none.  Raises ConfigError."""
    if name is None:
        return None
    if not isinstance(name, str) or name not in NAMES:
        raise ConfigError(f"{where}: needed one of {', '.join(NAMES)}, or None; got {name!r}; name one of these")
    return name


@dataclass(frozen=True, slots=True)
class _Push:
    """Something that came to a plan.  to: the instant up to which it lets it work; number: in order; at: when, s."""

    to: int
    number: int
    at: float


class _Known:
    """What is known of a plan.  pushes: not worked off yet, the oldest first; seconds: of each operator, a run."""

    def __init__(self, plan: Queued, number: int) -> None:
        self.plan, self.stages, self.number = plan, plan.stages, number
        self.pushes: deque[_Push] = deque()
        self.paths = self.stages.paths()
        self.meters = [Meter([_GUESS] * len(path)) for path in self.paths]
        self.charts = [each.chart() for each in self.meters]
        many = len(self.stages.stages)
        self.seconds, self.priorities = [0.0] * many, [0.0] * many
        self._owed = [(0.0, 0)] * many
        self.version = 0
        self.formed = -1
        self._form()

    def observe(self, number: int, took: float, ran: Ran) -> None:
        """An operator ran.  What took in nothing, as where windows move on, counts with what it takes next."""
        self.seconds[number] += 0.1 * (took - self.seconds[number])
        owed, went = self._owed[number]
        if not ran.came:
            self._owed[number] = owed + took, went + ran.went
            return
        self._owed[number] = 0.0, 0
        drifted = False
        for at, path in enumerate(self.paths):
            if number in path:
                self.meters[at].observe(path.index(number), owed + took, ran.came, went + ran.went)
                self.charts[at], was = self.meters[at].chart(), self.charts[at]
                if _differ(self.charts[at], was):
                    drifted = True
                else:
                    self.charts[at] = was
        if drifted:
            self._form()

    def _form(self) -> None:
        self.priorities = [-math.inf] * len(self.priorities)
        for chart, path in zip(self.charts, self.paths, strict=True):
            for number, priority in zip(path, chart.priorities(), strict=True):
                self.priorities[number] = max(self.priorities[number], priority)
        self.formed += 1

    def alone(self, number: int) -> float:
        """How fast an operator shrinks what waits for it, by itself."""
        best = -math.inf
        for chart, path in zip(self.charts, self.paths, strict=True):
            if number in path:
                at = path.index(number)
                best = max(best, Chart(chart.times[at : at + 2], chart.sizes[at : at + 2]).priorities()[0])
        return best

    @property
    def rest(self) -> float:
        """About how long what waits will take."""
        return sum(self.seconds)


def _differ(one: Chart, other: Chart) -> bool:
    pairs = [*zip(one.times, other.times, strict=True), *zip(one.sizes, other.sizes, strict=True)]
    return any(abs(a - b) > _DRIFT * max(abs(a), abs(b)) for a, b in pairs)


class Dispatcher:
    """Runs operators of plans by the scheduler `name`, one at a time.

    latency: of `chain-latency`, seconds within which what comes should be worked off: as soon as doing without the
    oldest would make something late, the oldest goes first.
    Cost of a choice: O(log operators that are ready); of chain-latency O(plans).  Raises ConfigError.
    """

    def __init__(self, name: str, *, latency: float = 0.1) -> None:
        known = check_name(name, "scheduler")
        assert known is not None
        self.name, self.latency = known, latency
        self._known: dict[int, _Known] = {}
        self._heap: list[tuple[tuple[float, ...], int, int, int]] = []  # key, plan, version, operator
        self._number = self._plans = 0
        self._turn = (-1, -1)

    @property
    def formed(self) -> int:
        """How often chains were formed anew."""
        return sum(each.formed for each in self._known.values())

    def came(self, plans: Iterable[Queued]) -> None:
        """Plans that something may have come to, all there are: those that have something to do are to be run."""
        now, alive = time.monotonic(), {}
        for plan in plans:
            key = id(plan)
            known = self._known.get(key)
            if known is None or known.plan is not plan or known.stages is not plan.stages:
                known = _Known(plan, self._plans)
                self._plans += 1
            alive[key] = known
            to = plan.stages.to
            while known.pushes and plan.stages.done >= known.pushes[0].to:
                known.pushes.popleft()  # worked off by whoever looked at its state
            if plan.stages.waits and (not known.pushes or known.pushes[-1].to < to):
                self._number += 1
                known.pushes.append(_Push(to, self._number, now))
        self._known = alive
        self._heap = []
        for known in alive.values():
            self._offer(known)

    def run(self, seconds: float | None, clock: Callable[[], float] = cpu_seconds) -> int:
        """Run operators until nothing waits, or for so long; how many ran.  At least one does where one can."""
        begun, many = clock(), 0
        while (found := self._next()) is not None:
            known, number = found
            at = clock()
            ran = known.plan.run(number)
            took = clock() - at
            many += 1
            if ran is None:
                known.version += 1  # nobody reads it any more
                known.pushes.clear()
                continue
            known.observe(number, took, ran)
            while known.pushes and known.stages.done >= known.pushes[0].to:
                known.pushes.popleft()
            self._offer(known)
            if seconds is not None and clock() - begun >= seconds:
                break
        return many

    def _offer(self, known: _Known) -> None:
        known.version += 1
        if known.stages.waits:
            for number in known.stages.ready():
                heapq.heappush(self._heap, (self._key(known, number), id(known.plan), known.version, number))

    def _key(self, known: _Known, number: int) -> tuple[float, ...]:
        turn = known.stages.stages[number].turn
        oldest = known.pushes[0].number if known.pushes else 0
        if self.name == "fifo":
            return oldest, turn, -number
        if self.name == "round-robin":
            return known.number, number
        falls = known.alone(number) if self.name == "greedy" else known.priorities[number]
        return -falls, oldest, turn, -number

    def _next(self) -> tuple[_Known, int] | None:
        if self.name == "round-robin":
            return self._in_turn()
        if self.name == "chain-latency" and (late := self._late()) is not None:
            ready = late.stages.ready()
            return late, min(ready, key=lambda each: (late.stages.stages[each].turn, -each))
        while self._heap:
            _, key, version, number = heapq.heappop(self._heap)
            known = self._known.get(key)
            if known is not None and known.version == version:
                return known, number
        return None

    def _in_turn(self) -> tuple[_Known, int] | None:
        """The operator after the last one."""
        self._heap = [each for each in self._heap if self._fresh(each)]
        if not self._heap:
            return None
        after = [each for each in self._heap if each[0] > self._turn]
        key, plan, _, number = min(after or self._heap)
        self._turn = (int(key[0]), int(key[1]))
        return self._known[plan], number

    def _fresh(self, entry: tuple[tuple[float, ...], int, int, int]) -> bool:
        known = self._known.get(entry[1])
        return known is not None and known.version == entry[2]

    def _late(self) -> _Known | None:
        """The plan with the oldest push, where something would be late if that waited longer."""
        some = (each for each in self._known.values() if each.pushes and each.stages.waits)
        waiting = sorted(some, key=lambda each: each.pushes[0].number)
        now = time.monotonic()
        for each in waiting:
            now += each.rest
            if now > each.pushes[0].at + self.latency:
                return waiting[0]
        return None
