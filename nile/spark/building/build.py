"""Build: from the lake to the same store, byte for byte, as if all its tuples had been pushed in order.

    plan -> tasks write rows, key indices, slice sketches -> zones, here, over slices in order -> tasks count -> commit

Tasks read the lake's files and write the store's themselves; only names, lengths and digests come back.  Memory here
does not grow with rows: sketches of slices are read from files, a few thousand at a time, and what is counted is one
sketch for each leaf of the summaries' pyramids and task.  It grows with distinct keys, which a summary holds anyway.
Nothing is visible before the store's manifest names it: a build that dies leaves the store as it was, and what it had
written is removed when the store is next opened.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nile.pyramid.disk.attempts import Attempt
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.manifest import StoredFile
from nile.pyramid.grid.manager_parts import Slices, put_counters, take_keys, take_slices
from nile.pyramid.history.history import plain_schema
from nile.pyramid.lake.lake import LakeStream, streams_of
from nile.spark.building.plan import Wanted, counting, first_works
from nile.spark.building.target import Target, target_of
from nile.spark.building.tasks import COUNTS, DETAILS, DONE, TOLD, Done, Job, Run, Work, detail_of
from nile.spark.failure import needed_packages, spark_failures
from nile.spark.masters import task_slots
from nile.spark.progress import Listener, job
from nile.spark.session import query_settings, spark_session
from nile.summaries.envelope import Envelope, unpack
from nile.summaries.errors import ConfigError, SourceError, SourceMissing
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Built", "Runner", "build", "build_with", "done_of"]

Runner = Callable[[str, Job, Sequence[Work]], list[list[Done]]]
"""Does works, in any order and place: stage in words, what they share, the works; what came of each."""


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of a build.  tuples: in the stream now, `new` of them from this build; files: written.

    summaries, indexed: those of the stream; epoch: of the store.
    """

    stream: str
    tuples: int
    new: int
    files: int
    summaries: tuple[str, ...]
    indexed: tuple[str, ...]
    epoch: int

    def __str__(self) -> str:
        """The account, in one line."""
        changed = f"{self.new:,} new, {self.files:,} files written" if self.files else "nothing new"
        summaries = f", summaries {', '.join(self.summaries)}" if self.summaries else ""
        return f"{self.stream}: {self.tuples:,} tuples ({changed}), indexed by {', '.join(self.indexed)}{summaries}"


def build(
    lake: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    stream: str | None = None,
    summaries: Sequence[str] = (),
    index: Sequence[str] = (),
    spark: SparkSession | None = None,
    on_progress: Listener | None = None,
) -> Built:
    """Build a store from a stream of the lake; every task must see both at these paths.

    stream: its name; None: the only one of the lake.  summaries: CREATE SUMMARY statements on it; existing ones are
    continued, and may be repeated.  index: columns to index besides the lake's clustering key and those of summaries.
    Building again adds what the lake has received since, with the same result as building all at once.
    Raises SourceMissing, SourceError (no tuples yet), StoreCorrupt (a part of the lake that changed), StoreLocked,
    StoreWriteError (a full disk), ConfigError (the store's stream has other columns, or rows from elsewhere, or a
    standing query follows it), SqlError, UnknownColumn, KeyTypeError, JavaMissing, SparkFailed.
    """
    opened = _opened(lake, stream)
    needed_packages("build")
    session = spark or spark_session()

    def run(stage: str, shared: Job, works: Sequence[Work]) -> list[list[Done]]:
        packed = [(number, work.packed()) for number, work in enumerate(works)]
        with (
            spark_failures(f"build of '{opened.layout.stream}'"),
            job(session, stage, on_progress, sum(work.rows for work in works)),
        ):
            frame = session.createDataFrame(packed, TOLD).repartitionById(len(works), functions.col("number"))
            rows = frame.mapInArrow(shared.map, DONE).collect()
        return [done_of(row["done"]) for row in sorted(rows, key=lambda row: row["number"])]

    with query_settings(session):
        return build_with(run, opened, store, summaries=summaries, index=index, slots=lambda: task_slots(session))


def build_with(
    run: Runner,
    lake: LakeStream,
    store: str | os.PathLike[str],
    *,
    summaries: Sequence[str] = (),
    index: Sequence[str] = (),
    slots: Callable[[], int] = lambda: 1,
) -> Built:
    """`build`, with the works done by `run`.

    slots: how many run at a time, asked when they are cut: the executors of a cluster come one after another.
    """
    with StoreDirectory.open(store) as directory:
        target = target_of(directory, lake, summaries, index)
        try:
            return _Building(run, lake, target, slots).finish()
        finally:
            directory.discard()
            directory.sweep_attempts()


class _Building:
    """One build of one stream."""

    def __init__(self, run: Runner, lake: LakeStream, target: Target, slots: Callable[[], int]) -> None:
        self._run, self._lake, self._target, self._slots = run, lake, target, slots
        self._wanted: Wanted = target.wanted(lake.tuples)
        self._job = Job(
            str(lake.path.absolute()),
            str(target.directory.path.absolute()),
            target.directory.epoch,
            plain_schema(lake.layout.schema),
        )

    def finish(self) -> Built:
        """Do it all."""
        target, directory = self._target, self._target.directory
        before = target.history.tuples
        works = first_works(self._lake.parts, self._wanted, target.held())
        rows: dict[tuple[int, int], StoredFile] = {}
        indices: dict[str, dict[tuple[int, int], StoredFile]] = {column: {} for column in target.indexed}
        details: dict[str, list[Done]] = {column: [] for column in target.indexed}
        if works:
            works.sort(key=lambda work: -work.rows)
            for work, all_done in zip(works, self._run("writing rows and indices", self._job, works), strict=True):
                into = rows if work.kind == "rows" else indices[work.column]
                for done in all_done:
                    if done.file.role == DETAILS:
                        details[work.column].append(done)
                    else:
                        assert done.run is not None
                        into[(done.run.begin, done.run.end)] = directory.adopt(done.file)
            self._summarise(details)
        epoch = directory.epoch
        if works or not before:
            epoch = target.commit(self._wanted, rows, indices, self._lake)
        return Built(
            target.name,
            self._wanted.tuples,
            self._wanted.tuples - before,
            len(rows) + sum(len(files) for files in indices.values()),
            tuple(made.name for made, _ in target.summaries),
            target.indexed,
            epoch,
        )

    def _summarise(self, details: dict[str, list[Done]]) -> None:
        """Bring the managers on: zones first, over slices in order, then what every zone holds."""
        news = {}
        for column, found in details.items():
            managers = self._wanted.columns[column]
            if not found:
                continue
            news[column] = [(manager, manager.store.tuples) for manager in managers]
            found.sort(key=lambda done: -1 if done.run is None else done.run.begin)
            for done in found:
                envelope = _taken(done.file)
                for number, manager in enumerate(managers):
                    detail = detail_of(envelope, number)
                    if detail is not None:
                        slices, values, counts = detail
                        take_slices(manager, Slices(*slices))
                        take_keys(manager, values, counts, where=f"column '{column}'")
        works = counting(self._lake.parts, news, 2 * self._slots()) if news else []
        if not works:
            return
        for work, all_done in zip(works, self._run("counting", self._job, works), strict=True):
            for done in all_done:
                assert done.file.role == COUNTS
                envelope = _taken(done.file)
                for number, (manager, _) in enumerate(news[work.column]):
                    put_counters(manager, work.summaries[number].leaves, envelope.arrays[str(number)])


def _opened(lake: str | os.PathLike[str], stream: str | None) -> LakeStream:
    root = Path(lake)
    if stream is None:
        known = streams_of(root)
        if not known:
            raise SourceMissing(f"{root}: needed a lake with a stream; it is empty; `nile ingest` adds one")
        if len(known) > 1:
            raise ConfigError(f"{root}: needed the name of a stream; the lake has {', '.join(known)}; name one")
        stream = known[0]
    opened = LakeStream.open(root, stream)
    if not opened.tuples:
        raise SourceError(f"{root}: needed a stream with tuples; '{stream}' has no tuples yet; `nile ingest` adds some")
    return opened


def done_of(done: str) -> list[Done]:
    """What a task said that it did."""
    return [Done(Attempt(**one["file"]), None if one["run"] is None else Run(**one["run"])) for one in json.loads(done)]


def _taken(file: Attempt) -> Envelope:
    """What a task left for the driver; the file's name is gone when it returns."""
    with open(file.path, "rb") as held:
        data = memoryview(mmap.mmap(held.fileno(), 0, access=mmap.ACCESS_READ))
    os.unlink(file.path)
    return unpack(data, where=file.role)
