"""Schedulers: which operator runs next when batches wait in queues, and how much it takes.

Time goes in units: in each one operator works on one batch of its queue, which keeps its size until the operator has
done it.  So a run of policies over arrivals tells the sizes of all queues at each instant, and when each batch is done.
Source: STREAM (CIDR 2003), section 4.2; the bulletin (2003), sections 3 and 5 (Chain under a bound of latency).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nile.runtime.charts import Chart, Meter, Step
from nile.summaries.errors import ConfigError

__all__ = ["SCHEDULERS", "Arrival", "Batch", "Chain", "Fifo", "Greedy", "RoundRobin", "Run", "Scheduler", "simulate"]

Paths = Sequence[Sequence[Step]]


@dataclass(slots=True)
class Batch:
    """One that waits.  number: of its arrival; operator: the next; done: units of it that are done; rest: units until
    its answer is there; size: what it takes.
    """

    number: int
    path: int
    arrived: int
    operator: int
    done: float
    rest: float
    size: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch of size 1 that comes to a path.  steps: what its operators really cost and leave; None: as the path's."""

    at: int
    path: int = 0
    steps: tuple[Step, ...] | None = None


class Scheduler(Protocol):
    """Picks which of the waiting batches, the oldest first, is worked on for a unit of time."""

    def pick(self, now: int, waiting: Sequence[Batch]) -> Batch:
        """One of them; there is one."""

    def observe(self, path: int, operator: int, took: float, came: float, went: float) -> None:
        """An operator is done with a batch: the time it took, and the batch's size before and after."""


class Fifo:
    """Batches in the order they came, each to its end."""

    def pick(self, now: int, waiting: Sequence[Batch]) -> Batch:
        """The oldest."""
        del now
        return waiting[0]

    def observe(self, path: int, operator: int, took: float, came: float, went: float) -> None:
        """Nothing is learnt."""


class RoundRobin(Fifo):
    """Operators in turn, one batch each; those without a batch are passed over."""

    def __init__(self) -> None:
        self._last: tuple[int, int] = (-1, -1)

    def pick(self, now: int, waiting: Sequence[Batch]) -> Batch:
        """The oldest of the operator after the last, or the one that is not done yet."""
        del now
        begun = next((each for each in waiting if each.done and (each.path, each.operator) == self._last), None)
        if begun is not None:
            return begun
        turns = sorted({(each.path, each.operator) for each in waiting})
        self._last = next((turn for turn in turns if turn > self._last), turns[0])
        return next(each for each in waiting if (each.path, each.operator) == self._last)


class Chain(Fifo):
    """The operator whose chain shrinks batches fastest, of equal ones the oldest batch.

    adapts: costs and selectivities are measured, and chains formed anew once a size or time of a chart is off by more
    than a tenth.  latency: no batch is done later than so many units after it came, where any order could do that: as
    soon as doing without an older batch would make one late, the oldest goes first, as under Fifo, which is late least.
    """

    drift = 0.1

    def __init__(self, paths: Paths, *, latency: float | None = None, adapts: bool = False) -> None:
        self._latency = latency
        self._charts = [Chart.of(path) for path in paths]
        self._priorities = [each.priorities() for each in self._charts]
        self._meters = [Meter(path) for path in paths] if adapts else None
        self.formed = 0
        """How often chains were formed anew."""

    def pick(self, now: int, waiting: Sequence[Batch]) -> Batch:
        """See the class."""
        if self._latency is not None:
            work = 0.0
            for each in waiting:
                work += each.rest
                if now + work > each.arrived + self._latency - 1:
                    return waiting[0]
        return max(waiting, key=lambda each: self._priorities[each.path][each.operator])

    def observe(self, path: int, operator: int, took: float, came: float, went: float) -> None:
        """Measure; form chains anew where they have drifted."""
        if self._meters is None:
            return
        self._meters[path].observe(operator, took, came, went)
        chart, held = self._meters[path].chart(), self._charts[path]
        pairs = [*zip(chart.times, held.times, strict=True), *zip(chart.sizes, held.sizes, strict=True)]
        if any(abs(a - b) > self.drift * max(abs(a), abs(b)) for a, b in pairs):
            self._charts[path], self._priorities[path] = chart, chart.priorities()
            self.formed += 1


class Greedy(Chain):
    """The operator that by itself shrinks what waits for it fastest; a slow one before it may starve it."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths)
        self._priorities = [
            tuple(Chart(each.times[at : at + 2], each.sizes[at : at + 2]).priorities()[0] for at in range(len(path)))
            for each, path in zip(self._charts, paths, strict=True)
        ]


SCHEDULERS: Mapping[str, Callable[[Paths], Scheduler]] = {
    "fifo": lambda _: Fifo(),
    "round-robin": lambda _: RoundRobin(),
    "greedy": Greedy,
    "chain": Chain,
    "chain-adaptive": lambda paths: Chain(paths, adapts=True),
}


@dataclass(frozen=True, slots=True)
class Run:
    """sizes: of all queues together, at each instant from 0 on, with what comes then; done: when each batch was."""

    sizes: tuple[float, ...]
    done: tuple[int, ...]
    latencies: tuple[int, ...]


def simulate(paths: Paths, arrivals: Sequence[Arrival], scheduler: Scheduler) -> Run:
    """Work off arrivals, in any order of time.  Costs are whole units.  Raises ConfigError for others."""
    real = [tuple(paths[each.path] if each.steps is None else each.steps) for each in arrivals]
    if any(step.cost != int(step.cost) or step.cost < 0 for steps in real for step in steps):
        raise ConfigError("scheduling: needed costs that are whole units of time; got others; scale them")
    order = sorted(range(len(arrivals)), key=lambda number: arrivals[number].at)
    waiting: list[Batch] = []
    sizes: list[float] = []
    done = [0] * len(arrivals)
    now = 0
    while order or waiting:
        while order and arrivals[order[0]].at <= now:
            number = order.pop(0)
            each, steps = arrivals[number], real[number]
            batch = Batch(number, each.path, each.at, 0, 0.0, sum(step.cost for step in steps), 1.0)
            if _finished(batch, steps, scheduler):
                done[number] = now
            else:
                waiting.append(batch)
        sizes.append(sum(each.size for each in waiting))
        if waiting:
            batch = scheduler.pick(now, waiting)
            batch.done += 1
            batch.rest -= 1
            if _finished(batch, real[batch.number], scheduler):
                done[batch.number] = now + 1
                waiting.remove(batch)
        now += 1
    sizes.append(0.0)
    return Run(tuple(sizes), tuple(done), tuple(end - each.at for end, each in zip(done, arrivals, strict=True)))


def _finished(batch: Batch, steps: Sequence[Step], scheduler: Scheduler) -> bool:
    """Hand a batch on from operators that are done with it; whether it is at its end."""
    while batch.operator < len(steps) and batch.done >= steps[batch.operator].cost:
        step, came = steps[batch.operator], batch.size
        batch.size *= step.selectivity
        scheduler.observe(batch.path, batch.operator, step.cost, came, batch.size)
        batch.operator, batch.done = batch.operator + 1, 0.0
    return batch.operator == len(steps)
