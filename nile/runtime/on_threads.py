"""Plans that share nothing, worked on by several threads: each by one, and what comes out is handed over in order.

A plan is given whole to a thread, for kernels and Arrow let go of the interpreter while they work.  Which thread had it
shows nowhere: outputs wait until their readers take them, one after the other, as they would without threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from nile.exact.join.threads import cores, cpu_seconds, together

__all__ = ["Ahead", "shared_out", "worked_ahead"]

T = TypeVar("T")
_WORTH = 1e-3
"""CPU seconds that the busiest thread must be spared: starting others costs a tenth of it."""


class Ahead(Generic[T]):
    """What steps of work led to, for whoever takes them in their order.

    cost: CPU seconds that all steps took the last times, 0: nobody knows.
    """

    def __init__(self) -> None:
        self.cost = 0.0
        self.done: deque[tuple[T | None, Exception | None]] = deque()
        """What was done that nobody has taken."""

    def work(self, steps: Sequence[Callable[[], T]]) -> None:
        """Do steps, up to the first that fails, on any thread."""
        begun = cpu_seconds()
        for step in steps:
            try:
                self.done.append((step(), None))
            except Exception as error:
                self.done.append((None, error))
                break
        spent = cpu_seconds() - begun
        self.cost = (self.cost + spent) / 2.0 if self.cost else spent

    def take(self, step: Callable[[], T]) -> T:
        """What the next step led to, which is done now if it was not before.  Raises what it raised."""
        if not self.done:
            return step()
        found, error = self.done.popleft()
        if error is not None:
            raise error
        return found  # type: ignore[return-value]


def shared_out(costs: Sequence[float], threads: int) -> list[list[int]]:
    """Which of some pieces of work each thread does: the dearest first, each to who has least so far.

    In each the order is that given.  Source: Graham, SIAM J. Applied Mathematics 17, 1969: at most 4/3 - 1/(3 threads)
    times the best.
    """
    load = [0.0] * threads
    out: list[list[int]] = [[] for _ in range(threads)]
    for each in sorted(range(len(costs)), key=lambda k: -costs[k]):
        least = load.index(min(load))
        load[least] += costs[each]
        out[least].append(each)
    return [sorted(each) for each in out if each]


def worked_ahead(works: Sequence[tuple[Ahead[T], Sequence[Callable[[], T]]]], threads: int | None) -> int:
    """Do the steps of each, on as many threads as are worth having (None: of all cores): how many.

    Costs that nobody knows yet are learnt on this thread alone.
    """
    costs = [ahead.cost for ahead, _ in works]
    alone = [list(range(len(works)))]
    parts = shared_out(costs, min(cores() if threads is None else threads, len(works))) if all(costs) else alone
    if sum(costs) - max(sum(costs[k] for k in part) for part in parts) < _WORTH:
        parts = alone
    together([partial(_all, [works[k] for k in part]) for part in parts])
    return len(parts)


def _all(works: Sequence[tuple[Ahead[T], Sequence[Callable[[], T]]]]) -> None:
    for ahead, steps in works:
        ahead.work(steps)
