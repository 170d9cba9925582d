"""Kill -9 at random moments: a child that works on a store for ever, ended without warning over and over.

The child is any command.  It prints a line when it is ready and a whole number after each step that is durable; what
it printed last must not be lost.  Only kills after which there was progress since the last counted one are counted:
a harness that kills too early proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 600.0


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that it wrote, wherever it wrote it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@dataclass
class Kills:
    """counted: kills after progress; all: every kill; steps: how far the work came; late: kills in mid-step,
    that is, where more had become durable than the child could say."""

    counted: int = 0
    all: int = 0
    steps: int = 0
    late: int = 0


def kill_over_and_over(
    command: Sequence[str | os.PathLike[str]],
    verify: Callable[[int], int],
    kills: int,
    seed: int,
    *,
    longest: float = 0.05,
    early: float = 0.2,
    kill: Callable[[Any], None] = lambda child: child.kill(),
    start: Callable[[IO[bytes], IO[bytes]], Any] | None = None,
) -> Kills:
    """Start `command`, kill it, call `verify`, until `kills` kills were counted.

    verify(acknowledged): open what the child left, check all of it, and return how far it came; it is given the
    last number the child printed (0: none yet) and what it returns must not be less.  longest: seconds after the
    child is ready in which it is killed; start: how a child is started that writes to these files
    (None: anew); early: the share of kills at any moment since its start; kill: how.  Raises
    AssertionError when something was lost, and when the child ends by itself.
    """
    rng = Random(seed)
    done = Kills()
    acknowledged = 0
    started = 1.0  # how long a child takes to be ready, as seen so far
    while done.counted < kills:
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as complaint:
            if start is not None:
                child = start(told, complaint)
            else:
                child = subprocess.Popen([*command], cwd=ROOT, stdout=told, stderr=complaint, stdin=subprocess.DEVNULL)
            begun = time.monotonic()
            try:
                if rng.random() < early:
                    time.sleep(rng.uniform(0, started))
                else:
                    while not os.fstat(told.fileno()).st_size and child.poll() is None:
                        assert time.monotonic() - begun < _PATIENCE_S, "the child never got ready"
                        time.sleep(0.001)
                    started = (started + time.monotonic() - begun) / 2
                    time.sleep(rng.uniform(0, longest))
            finally:
                kill(child)
                child.wait()
            complaint.seek(0)
            last_words = complaint.read().decode(errors="replace")[-2000:]
            assert child.returncode == -signal.SIGKILL, f"the child ended by itself: {last_words}"
            told.seek(0)
            lines = told.read().decode().split("\n")[:-1]  # a last line that is cut does not count
        acknowledged = max([acknowledged, *(int(line) for line in lines if line.isdigit())])
        came = verify(acknowledged)
        assert came >= acknowledged, f"{acknowledged} was acknowledged, {came} came back"
        done.all += 1
        done.late += came > acknowledged
        if came > done.steps:
            done.counted += 1
            done.steps = came
        assert done.all < 20 * kills + 100, f"only {done.counted} of {done.all} kills came after progress"
        acknowledged = came  # it has been seen: it may not go away any more
    return done


def kill_all_of_it(child: subprocess.Popen[bytes]) -> None:
    """The process and all that it has started, such as a Java of Spark, in any order, at once."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    doomed = [child.pid]
    for pid in doomed:
        doomed += [one for one, parent in parents.items() if parent == pid]
    Random(child.pid).shuffle(doomed)
    for pid in doomed:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
