"""How far a Spark job is: stage, rows, and an estimate of what remains, told while it runs.

Spark tells how many tasks of a job are done.  Tasks of one stage take about the same time, so what remains is
the time so far times (1 - done) / done; before a first task has ended nothing is claimed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nile.spark.masters import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobProgress", "Listener", "job"]

_EVERY = 0.5  # seconds between two looks


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Where a job stands.

    stage: what it is doing, in words.  rows: tuples this stage works on, None while unknown.  done: share of
    its tasks that have ended, 0 to 1.  remaining: seconds until the stage ends, estimated, None while unknown.
    """

    stage: str
    rows: int | None = None
    done: float = 0.0
    remaining: float | None = None

    def __str__(self) -> str:
        """One line for a person."""
        rows = "" if self.rows is None else f" {self.rows:,} rows"
        if self.remaining is None:
            return f"{self.stage}{rows}"
        if self.done >= 1:
            return f"{self.stage}{rows}, done"
        return f"{self.stage}{rows}, {self.done:.0%}, about {_seconds(self.remaining)} left"


Listener = Callable[[JobProgress], None]


@contextmanager
def job(spark: SparkSession, stage: str, listener: Listener | None, rows: int | None = None) -> Iterator[None]:
    """Whatever Spark does inside is told to `listener`: at the start, about twice a second, and at the end.

    The listener is called from another thread while the job runs.  Without one nothing is watched.
    """
    if listener is None:
        yield
        return
    listener(JobProgress(stage, rows))
    told = _Told(stage, rows, listener)
    with _asked(spark, told) if is_connect(spark) else _watched(spark.sparkContext, told):
        yield
    listener(JobProgress(stage, rows, 1.0, 0.0))


class _Told:
    """What the listener of one stage has heard so far."""

    def __init__(self, stage: str, rows: int | None, listener: Listener) -> None:
        self._stage, self._rows, self._listener = stage, rows, listener
        self._begin, self._share = time.monotonic(), 0.0

    def tell(self, share: float) -> None:
        """share: of the tasks known by now that have ended, 0 to 1."""
        if self._share < share < 1:  # the end is told by the job itself
            self._share = share
            remaining = (time.monotonic() - self._begin) * (1 - share) / share
            self._listener(JobProgress(self._stage, self._rows, share, remaining))


@contextmanager
def _watched(context: Any, told: _Told) -> Iterator[None]:
    """Jobs of this thread inside, looked at twice a second from another thread."""
    stop = threading.Event()
    group = f"nile-{threading.get_ident()}-{time.monotonic_ns()}"
    watcher = threading.Thread(target=_watch, args=(context, group, told, stop), daemon=True)
    before = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", before)


def _watch(context: Any, group: str, told: _Told, stop: threading.Event) -> None:
    while not stop.wait(_EVERY):
        try:
            share = tasks_done(context.statusTracker(), group)
        except Exception:  # Spark is going away; the job itself says why
            return
        told.tell(share)


@contextmanager
def _asked(session: Any, told: _Told) -> Iterator[None]:
    """Jobs of the session inside, as the Spark Connect server tells of them."""

    def hear(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001
        known = list(stages or ())
        total = sum(one.num_tasks for one in known)
        if total:
            told.tell(sum(one.num_completed_tasks for one in known) / total)

    session.registerProgressHandler(hear)
    try:
        yield
    finally:
        session.removeProgressHandler(hear)


def tasks_done(tracker: Any, group: str) -> float:
    """The share of the tasks of a group's jobs that have ended, as far as Spark knows them by now."""
    done = total = 0
    for number in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(number)
        for stage in info.stageIds if info is not None else ():
            seen = tracker.getStageInfo(stage)
            if seen is not None:
                done, total = done + seen.numCompletedTasks, total + seen.numTasks
    return done / total if total else 0.0


def _seconds(remaining: float) -> str:
    if remaining < 90:
        return f"{max(1, round(remaining))} s"
    return f"{round(remaining / 60)} min" if remaining < 5_400 else f"{remaining / 3_600:.1f} h"
