"""One run of a scan: waves of partitions in the order of their ranking, until all are read or the budget ends."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.preferences.budget import Budget
from nile.spark.failure import spark_failures
from nile.spark.masters import task_slots
from nile.spark.scan.task import WAVE_ROWS, ScanTask
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nile.spark.scan.ranking import Ranking

__all__ = ["Waves"]

Array = np.ndarray[Any, Any]

_WAVE = 2  # partitions a core: the tasks of a wave end at about the same time


class Waves:
    """Partitions being read.  Those read are always the first ones of the ranking: a wave counts when all of it is in.

    read: how many.  bytes: theirs.  outputs: list of how many outputs each has.  tuples: of each side, those that these
    partitions answer for.  elapsed: seconds until the last wave ended.
    """

    def __init__(
        self, spark: SparkSession, ranking: Ranking, task: ScanTask, budget: Budget | None, most: int | None,
        called: float,
    ):  # fmt: skip
        """most: outputs that are wanted at most, None: all; called: when the scan began, ranking included, s of
        `time.monotonic`, from which a deadline counts; seconds count from the first wave."""
        self.ranking = ranking
        self.outputs: list[int] = []
        self.tuples = [0, 0]
        self.elapsed = 0.0
        self._spark = spark
        self._task = task
        self._most = most
        self._fits = len(ranking.order)
        self._seconds: float | None = None
        if budget is not None and budget.unit == "fraction" and budget.amount < 1.0:
            self._fits = ranking.fits(budget.amount * ranking.bytes)
        elif budget is not None and budget.unit in ("seconds", "deadline"):
            self._seconds = budget.amount
        self._called = called if budget is not None and budget.unit == "deadline" else None

    @property
    def read(self) -> int:
        return len(self.outputs)

    @property
    def found(self) -> int:
        """Outputs of the partitions read, no more than were wanted."""
        return sum(self.outputs) if self._most is None else min(sum(self.outputs), self._most)

    @property
    def bytes(self) -> int:
        """Of the partitions read."""
        return sum(each.bytes for each in self.ranking.order[: self.read])

    @property
    def whole(self) -> bool:
        """Whether all partitions have been read."""
        return self.read == len(self.ranking.order)

    def run(self) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
        """(place in the ranking, rows) of every batch that a wave found, in order.

        Raises SparkFailed, StoreCorrupt.
        """
        begun = time.monotonic() if self._called is None else self._called
        at_once = _WAVE * task_slots(self._spark)
        while self.read < self._fits:
            room = None if self._most is None else self._most - self.found
            left = None if self._seconds is None else self._seconds - (time.monotonic() - begun)
            if (room is not None and room <= 0) or (left is not None and left <= 0.0):
                return
            found = self._wave(min(self.read + at_once, self._fits), room, left)
            self.elapsed = time.monotonic() - begun
            if found is None:
                return
            yield found

    def _wave(self, end: int, room: int | None, left: float | None) -> list[tuple[int, pa.RecordBatch]] | None:
        """The next partitions, up to the place `end`; None: there was no time for them, and none of them counts."""
        begin = self.read
        works = tuple(each.work for each in self.ranking.order[begin:end])
        task = replace(self._task, works=works, room=room)
        with _deadline(self._spark, left) as passed, spark_failures("scan of the lake"):
            try:
                frame = self._spark.range(0, len(works), 1, len(works)).mapInArrow(task.run, WAVE_ROWS)
                table = frame.toArrow()
            except Exception:
                if passed.is_set():
                    return None
                raise
        place = table.column("place").to_numpy()
        self.outputs += np.bincount(place, table.column("outputs").to_numpy(), len(works)).astype(np.int64).tolist()
        self.tuples = [had + int(np.sum(table.column(side).to_numpy())) for had, side in
                       zip(self.tuples, ("left", "right"), strict=True)]  # fmt: skip
        order = np.argsort(place, kind="stable").tolist()
        data = table.column("batch")
        rows = []
        for at in order:
            if data[at].is_valid:
                with pa.ipc.open_stream(data[at].as_buffer()) as reader:
                    rows += [(begin + int(place[at]), batch) for batch in reader]
        return rows if room is None else _first(rows, room)


def _first(rows: list[tuple[int, pa.RecordBatch]], room: int) -> list[tuple[int, pa.RecordBatch]]:
    """The first `room` rows: of every partition there are as many."""
    kept = []
    for place, batch in rows:
        kept.append((place, batch.slice(0, room)))
        room -= kept[-1][1].num_rows
        if room <= 0:
            break
    return kept


@contextmanager
def _deadline(spark: SparkSession, seconds: float | None) -> Iterator[threading.Event]:
    """What Spark runs inside is cancelled after so many seconds; the event says that it was."""
    passed = threading.Event()
    if seconds is None:
        yield passed
        return
    tag = f"nile-scan-{uuid.uuid4().hex}"

    def cancel() -> None:
        passed.set()
        spark.interruptTag(tag)

    timer = threading.Timer(seconds, cancel)
    spark.addTag(tag)
    timer.start()
    try:
        yield passed
    finally:
        timer.cancel()
        spark.removeTag(tag)
