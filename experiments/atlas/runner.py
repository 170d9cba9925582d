"""Runs experiments: the points not known yet, on several processes, each result kept as soon as it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

from nile.experiments.atlas.form import Experiment
from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.points import Group, Point, Record, grouped, points_of
from nile.experiments.atlas.worker import as_json, measured
from nile.experiments.run.progress import Progress
from nile.summaries.errors import ConfigError, NileError

__all__ = ["Kept", "run_points"]

KEPT = "points.jsonl"


class Kept:
    """Results in a file of JSON lines, appended and flushed one by one: an interruption loses the last at most."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / KEPT
        self.records: dict[str, Record] = {}
        if resume and self._path.exists():
            self.records = dict(_read(self._path))
        # Written anew: a line that was torn by the interruption must not stand before the next one.
        text = "".join(_line(key, record) for key, record in self.records.items())
        partial = self._path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._path)
        self._file: IO[str] = self._path.open("a", encoding="utf-8")

    def add(self, key: str, record: Record) -> None:
        """Keep one result."""
        self.records[key] = record
        self._file.write(_line(key, record))
        self._file.flush()

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def _line(key: str, record: Record) -> str:
    return json.dumps({"key": key, "record": record}) + "\n"


def _read(path: Path) -> Iterator[tuple[str, Record]]:
    """What was kept; a line that an interruption tore is left out, and measured again."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            yield str(told["key"]), dict(told["record"])


def run_points(
    experiments: Sequence[Experiment],
    data: Data | None,
    kept: Kept,
    progress: Progress,
    *,
    quick: bool,
    jobs: int,
) -> list[Point]:
    """Measure every point of the experiments that `kept` does not have; all points, in a fixed order.

    Points that count operations are spread over `jobs` processes; points by the clock follow one at a time, in
    this process, with nothing of ours beside them.  The figures do not depend on `jobs`.
    Raises what a kind raises, ConfigError when a process ends unasked.
    """
    points = [point for each in experiments for point in points_of(each, data, quick=quick)]
    kinds = {each.name: each.kind for each in experiments}
    groups = []
    for group in grouped(points, kinds, data):
        missing = {key: options for key, options in group.points.items() if key not in kept.records}
        if missing:
            groups.append(replace(group, points=missing))
    counted = [group for group in groups if not group.kind.by_clock]
    timed = [group for group in groups if group.kind.by_clock]
    total = sum(len(group.points) for group in groups)
    known = len({point.key for point in points}) - total
    with progress.stage("points", total=total):
        if known:
            progress.say(f"{known:,} points are known from before")

        def took(group: Group, key: str, record: Record) -> None:
            kept.add(key, record)
            progress.step(f"{group.kind.name}, seed {group.seed}")

        if jobs == 1 or len(counted) < 2:
            _here(counted, took)
        else:
            _spread(counted, min(jobs, len(counted)), took)
        _here(timed, took)
    return points


Took = Callable[[Group, str, Record], None]


def _here(groups: Iterable[Group], took: Took) -> None:
    for group in groups:
        for key, record in measured(group):
            took(group, key, record)


def _spread(groups: Sequence[Group], jobs: int, took: Took) -> None:
    """The groups over worker processes, the largest first; results are taken in this thread."""
    waiting: SimpleQueue[Group] = SimpleQueue()
    for group in sorted(groups, key=lambda one: -len(one.points)):
        waiting.put(group)
    told: SimpleQueue[tuple[Group, str, Record] | Exception | None] = SimpleQueue()
    workers = [_Worker(waiting, told) for _ in range(jobs)]
    running = len(workers)
    try:
        while running:
            one = told.get()
            if one is None:
                running -= 1
            elif isinstance(one, Exception):
                raise one
            else:
                took(*one)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process, and the thread that talks to it."""

    def __init__(
        self, waiting: SimpleQueue[Group], told: SimpleQueue[tuple[Group, str, Record] | Exception | None]
    ) -> None:
        self._waiting, self._told = waiting, told
        command = [sys.executable, "-m", "nile.experiments.atlas.worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._thread = Thread(target=self._talk, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _talk(self) -> None:
        try:
            while True:
                self._measure(self._waiting.get_nowait())
        except Empty:
            self._told.put(None)
        except Exception as error:  # handed to the thread that waits
            self._told.put(error)

    def _measure(self, group: Group) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(as_json(group) + "\n")
            stdin.flush()
        except OSError:
            raise _ended(group) from None
        for line in stdout:
            told = json.loads(line)
            if "done" in told:
                return
            if "error" in told:
                raise NileError(told["error"])
            self._told.put((group, told["key"], told["record"]))
        raise _ended(group)


def _ended(group: Group) -> ConfigError:
    return ConfigError(
        f"experiment: needed a process to measure kind {group.kind.name!r}, seed {group.seed}; it ended before it was "
        "done (what it printed stands above); run again with --resume, and with --jobs 1 to see where"
    )
