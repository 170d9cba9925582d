"""A stand-in for a Spark session: tasks run in this process, in any order, and may die and be tried again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_TYPES = {"bigint": pa.int64(), "binary": pa.binary()}


@dataclass
class StandIn:
    """What scans use of a session.

    fail: the probability that an attempt of a task dies, or that a twin of it runs to its end and is not needed.
    cores: tasks at once, as they say.  died, twins: attempts so far.
    """

    source: random.Random
    fail: float = 0.0
    cores: int = 2
    died: int = 0
    twins: int = 0

    @property
    def sparkContext(self) -> StandIn:  # noqa: N802 (the name that Spark gives it)
        return self

    @property
    def defaultParallelism(self) -> int:  # noqa: N802
        return self.cores

    def range(self, begin: int, end: int, step: int, partitions: int) -> _Range:
        assert (begin, step, partitions) == (0, 1, end)  # a place a task
        return _Range(self, end)

    def attempt(self, task: Task, place: int) -> list[pa.RecordBatch]:
        """What a task gives for a place, after attempts that came to nothing."""
        while self.source.random() < self.fail:
            given = task(_batches(place))
            if self.source.random() < 0.5:
                self.twins += len(list(given)) >= 0
                continue
            for _ in range(self.source.randrange(3)):  # some of it was on its way
                next(given, None)
            given.close()  # type: ignore[attr-defined]
            self.died += 1
        return list(task(_batches(place)))


@dataclass(frozen=True)
class _Range:
    session: StandIn
    places: int
    task: Task | None = None
    schema: str = ""

    def mapInArrow(self, task: Task, schema: str) -> _Range:  # noqa: N802
        return _Range(self.session, self.places, task, schema)

    def toArrow(self) -> pa.Table:  # noqa: N802
        """The rows of all tasks, in the order in which tasks ended."""
        assert self.task is not None
        schema = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, self.schema.split(","))])
        found = []
        for place in self.session.source.sample(range(self.places), self.places):
            found += self.session.attempt(self.task, place)
        return pa.Table.from_batches(found, schema)


def _batches(place: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array([place], pa.int64())})
