"""The clock of a question under a budget of CPU seconds, or with a deadline: from the call to the last batch read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from nile.base.machine import crowd, waited_ns
from nile.exact.join.threads import cpu_ns
from nile.preferences.budget import Budget
from nile.summaries.lazy import loading_ns

__all__ = ["Clock", "timed"]

T = TypeVar("T")


def _working() -> int:
    """ns of CPU of this thread and those that help it, without loading, which is done once and for all questions."""
    return cpu_ns() - loading_ns()


class Clock:
    """The CPU time of a question since it was asked, but for what lies between `pause` and `resume`: the caller's, and
    for loading.

    limits: whether `elapsed` is what the budget bounds: CPU time, or, with a deadline, which waits for nobody, time by
    the clock on the wall.  CPU time is that of the thread which asks and reads, and of those that help it to
    join.  owed: ns that will be worked on what was found, once it was; counted as if they had been.
    """

    def __init__(
        self,
        budget: Budget | None,
        *,
        cpu: Callable[[], int] = _working,
        wall: Callable[[], int] = time.perf_counter_ns,
        waited: Callable[[], int] = waited_ns,
        crowd: Callable[[], float] = crowd,
    ) -> None:
        """cpu, wall, waited: ns; crowd: tasks that want a core, of each."""
        self.limits = budget is not None and budget.is_timed
        self._deadline = budget is not None and budget.unit == "deadline"
        self._cpu, self._wall = cpu, wall
        self._since, self._began, self._loaded = cpu(), wall(), loading_ns(wall=True)
        if self._deadline:
            self._waited, self._crowd = waited, crowd
            self._others, self._before = crowd(), waited()
        self.owed = 0.0
        self._working = 1
        self._paused: int | None = None

    @classmethod
    def at_rest(cls, budget: Budget | None) -> Clock:
        """One that begins when the first work does."""
        clock = cls(budget)
        clock.pause()
        return clock

    @property
    def cpu(self) -> int:
        """ns of CPU so far."""
        return (self._cpu() if self._paused is None else self._paused) - self._since

    @property
    def elapsed(self) -> float:
        """ns so far, of what the budget is one of, and those owed."""
        return self._passed + self.owed

    @property
    def _passed(self) -> int:
        return self._wall() - self._began if self._deadline else self.cpu

    @property
    def loading(self) -> int:
        """ns of `elapsed` that went on loading code, which this process does once: a deadline counts them."""
        return loading_ns(wall=True) - self._loaded if self._deadline else 0

    @property
    def worked(self) -> int:
        """ns so far in which a core was had, or none was wanted: at least those that the CPU worked."""
        if not self._deadline:
            return max(1, self._passed)
        # What a system says of waiting is not exact, and may be more than all there was.
        passed = self._passed - self.loading
        return max(1, min(passed, self.cpu), passed - (self._waited() - self._before))

    @property
    def crowded(self) -> float:
        """How many times longer work is expected to take than if there were always a core for it: with a deadline as so
        far, or as many tasks want each core, if that is more."""
        if not self._deadline:
            return 1.0
        return max(self._passed / self.worked, 0.5 * (self._others + self._crowd()))

    def pause(self) -> None:
        """One piece of work is done; when none goes on, what comes now is the caller's."""
        self._working -= 1
        if not self._working:
            self._paused = self._cpu()

    def resume(self) -> None:
        """A piece of work begins, maybe inside of another."""
        self._working += 1
        if self._paused is not None:
            self._since += self._cpu() - self._paused
            self._paused = None

    def during(self, work: Callable[[], T]) -> T:
        """Do something that is the question's."""
        self.resume()
        try:
            return work()
        finally:
            self.pause()

    def without(self, work: Callable[[], None]) -> None:
        """Do something whose CPU time is not the question's, which a clock at rest does not count anyway."""
        began = self._cpu()
        work()
        if self._paused is None:
            self._since += self._cpu() - began


def timed(parts: Iterator[T], clock: Clock | None) -> Iterator[T]:
    """The parts as they come, none of which is None, the clock running only while one is made."""
    if clock is None:
        yield from parts
        return
    while (part := clock.during(lambda: next(parts, None))) is not None:
        yield part
