"""Processes that try seeds in turn, several at once; what each seed came to is kept as it comes.

A process that ends in an attempt costs that attempt alone: the next one goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nile.experiments.faults.fault import Fault
from nile.experiments.faults.scoring import Score

__all__ = ["Crew", "Piece"]

_MEMORY = 1_500_000_000
"""Resident bytes beyond which a process is replaced by a fresh one, between two pieces."""
_IN_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30
"""Free bytes without which stores of attempts lie on disk.  What they check is what a process leaves, not the disk."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Seeds first .. first + count - 1 of a fault.  what: "attempts" or "controls"."""

    fault: Fault
    what: str
    first: int
    count: int


class Crew:
    """Works off pieces, `jobs` at once.

    came: called with each piece and the score of one seed of it, by one thread at a time; until: the monotonic second
    after which no piece is begun, None: none.
    """

    def __init__(
        self, pieces: Iterable[Piece], came: Callable[[Piece, Score], object], until: float | None = None
    ) -> None:
        self._pieces = deque(pieces)
        self._came = came
        self._until = until
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._begun = False  # whether any process has begun any seed
        self._error: BaseException | None = None

    def run(self, jobs: int) -> None:
        """Until all is done.  Whatever ends it early, KeyboardInterrupt too, leaves no process behind."""
        folder = Path(tempfile.mkdtemp(prefix="nile-faults-", dir=_roomy()))
        folder.chmod(0o755)  # attempts as another user work inside of it
        threads = [threading.Thread(target=self._work, args=(folder,), daemon=True) for _ in range(jobs)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            with self._lock:
                self._stopped = True
                for process in self._running:
                    process.kill()
            for thread in threads:
                thread.join()
            shutil.rmtree(folder, ignore_errors=True)
        if self._error is not None:
            raise self._error

    def _work(self, folder: Path) -> None:
        process, what = None, ""
        try:
            with tempfile.TemporaryFile("w+", dir=folder) as told:
                while (piece := self._next()) is not None:
                    if process is not None and (piece.what != what or _resident(process) > _MEMORY):
                        self._end(process)
                        process = None
                    process, what = self._done(piece, process, told, folder), piece.what
                if process is not None:
                    self._end(process)
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
                self._pieces.clear()

    def _next(self) -> Piece | None:
        with self._lock:
            late = self._until is not None and time.monotonic() > self._until
            return None if self._stopped or late or not self._pieces else self._pieces.popleft()

    def _done(
        self, piece: Piece, process: subprocess.Popen[str] | None, told: IO[str], folder: Path
    ) -> subprocess.Popen[str] | None:
        """Try all seeds of a piece; the process that is there for the next."""
        at, end = piece.first, piece.first + piece.count
        while at < end and not self._over():
            fresh = process is None
            if process is None:
                process = self._begin(told, folder)
            first = at
            at, done = self._ordered(process, piece, at, end - at)
            if done:
                return process
            status = self._end(process)
            process = None
            if self._over():
                return None
            told.seek(0)
            said = told.read().strip()
            if fresh and at == first and not self._begun:
                raise RuntimeError(f"fault {piece.fault.name}: a process to try it in did not start: {said[-2000:]}")
            why = f"the process ended with status {status}: {said[-200:]}"
            span = [(at, at + 1)]
            failed = Score(span, [(at, why)]) if piece.what == "attempts" else Score(controls=span, pale=[at])
            self._tell(piece, failed)
            at += 1
        return process

    def _ordered(self, process: subprocess.Popen[str], piece: Piece, first: int, count: int) -> tuple[int, bool]:
        """(the first seed of which nothing came, whether all were tried)."""
        assert process.stdin is not None
        assert process.stdout is not None
        at = first
        try:
            process.stdin.write(f"{piece.what} {piece.fault.name} {first} {count}\n")
            process.stdin.flush()
        except OSError:
            return at, False
        for line in process.stdout:
            try:
                value = json.loads(line)
            except ValueError:  # cut off in the middle
                break
            if value is None:
                return at, True
            self._begun = True
            if isinstance(value, dict):
                self._tell(piece, Score.of(value))
                at += 1
        return at, False

    def _over(self) -> bool:
        return self._stopped

    def _tell(self, piece: Piece, score: Score) -> None:
        with self._lock:
            self._came(piece, score)

    def _begin(self, told: IO[str], folder: Path) -> subprocess.Popen[str]:
        told.seek(0)
        told.truncate()
        with self._lock:
            process = subprocess.Popen(
                [sys.executable, "-m", "nile.experiments.faults.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True,
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,  # Ctrl-C is for who runs them
            )  # fmt: skip
            self._running.add(process)
            if self._stopped:
                process.kill()
        return process

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Let a process go; the status it ends with."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status


def _roomy() -> str | None:
    """Where stores of attempts lie: in memory, where there is room and the system has such a place."""
    try:
        free = shutil.disk_usage(_IN_MEMORY).free if os.access(_IN_MEMORY, os.W_OK) else 0
    except OSError:
        free = 0
    return str(_IN_MEMORY) if free >= _ROOM else None


def _resident(process: subprocess.Popen[str]) -> int:
    try:
        pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
