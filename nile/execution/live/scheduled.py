"""The scheduler of a database: which operators of its standing queries run, and for how long, when something comes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.running import Running
from nile.execution.live.subscription import Subscription
from nile.runtime.dispatching import Dispatcher, check_name
from nile.summaries.errors import ConfigError

__all__ = ["Schedule", "Scheduled"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """scheduler: by its name, None: a push is worked on query by query; quantum: CPU seconds that a push, or a reader
    that asks, may work, None: until nothing waits; latency: of `chain-latency`, seconds.  Raises ConfigError.
    """

    scheduler: str | None = None
    quantum: float | None = None
    latency: float = 0.1

    def __post_init__(self) -> None:
        check_name(self.scheduler, "scheduler")
        given = {"latency": self.latency} | ({} if self.quantum is None else {"quantum": self.quantum})
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"{name}: needed seconds, more than 0; got {value!r}; say {name}=0.01")
        if self.scheduler is None and self.quantum is not None:
            raise ConfigError(
                "quantum: needed a scheduler, which says what runs first where not all can; got none; say "
                "scheduler='chain'"
            )


class Scheduled:
    """What is asked, and what runs by it.  bounded: whether the database samples (`memory=`, `cpu=`).

    Raises ConfigError for both: what samples charges each push with all that it costs.
    """

    def __init__(self, asked: Schedule, *, bounded: bool = False) -> None:
        self._bounded = bounded
        self.peak = 0
        """The most bytes that waited in queues when work began or ended."""
        self._dispatcher: Dispatcher | None = None
        self.asked = Schedule()
        self.ask(asked)

    def ask(self, asked: Schedule) -> None:
        """From now on."""
        if asked.scheduler is not None and self._bounded:
            raise ConfigError(
                "scheduler: needed a database without bounds of memory= or cpu=, which charge each push with all that "
                "it costs; got one with bounds; leave out one of them"
            )
        if asked.scheduler is None:
            self._dispatcher = None
        elif self._dispatcher is None or asked != self.asked:
            self._dispatcher = Dispatcher(asked.scheduler, latency=asked.latency)
        self.asked = asked

    def change(self, **values: Any) -> Schedule:
        """What is asked, with other values.  Raises ConfigError."""
        return replace(self.asked, **values)

    @property
    def formed(self) -> int | None:
        """How often chains were formed anew."""
        return None if self._dispatcher is None else self._dispatcher.formed

    def follow(self, running: Iterable[Subscription]) -> None:
        """Let operators of plans wait for the scheduler where they may; of others nothing waits any more."""
        for plan in plans_of(running):
            deferred = self._dispatcher is not None and not plan.at_once
            plan.pipeline.deferred = deferred
            if not deferred:
                plan.settle()

    def waits(self, running: Iterable[Subscription]) -> bool:
        """Whether something waits."""
        return self._dispatcher is not None and any(each.stages.waits for each in plans_of(running))

    def waiting(self, running: Iterable[Subscription]) -> tuple[int, int]:
        """(tuples, bytes) that wait for operators."""
        found = _queues(plan for plan in plans_of(running) if plan.pipeline.deferred)
        return sum(tuples for tuples, _ in found), sum(held for _, held in found)

    def work(self, running: Iterable[Subscription], seconds: float | None = None) -> None:
        """Run operators, a part of a change.  seconds: of CPU, None: the quantum; inf: until nothing waits."""
        if self._dispatcher is None:
            return
        plans = [plan for plan in plans_of(running) if plan.pipeline.deferred]
        if not any(plan.stages.waits for plan in plans):
            return
        self.peak = max(self.peak, sum(held for _, held in _queues(plans)))
        self._dispatcher.came(plans)
        limit = self.asked.quantum if seconds is None else seconds
        self._dispatcher.run(None if limit is None or limit == math.inf else limit)
        self.peak = max(self.peak, sum(held for _, held in _queues(plans)))


def _queues(plans: Iterable[Running]) -> list[tuple[int, int]]:
    """(tuples, bytes) of each."""
    return [plan.stages.waiting(number) for plan in plans for number in range(len(plan.stages.stages))]


def plans_of(running: Iterable[Subscription]) -> list[Running]:
    """The plans of exact queries, each once."""
    return list(
        {
            id(one.plan): one.plan
            for one in running
            if isinstance(one, ExactSubscription) and not isinstance(one, BoundedSubscription) and not one.closed
        }.values()
    )
