"""SIGINT and SIGTERM to a server while rows are pushed and outputs are streamed: what it has acknowledged it keeps.

Only the checkpoint that a server writes at its end makes rows durable here, so one that ends without it has lost them.
"""

from __future__ import annotations

import re
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nile
from nile.experiments.faults.changes.forks import Forked
from nile.experiments.faults.fault import Fault, expect, generator
from nile.server.serve import Server
from nile.server.settings import Settings
from nile.summaries.errors import NileError

__all__ = ["SERVED", "warm"]

_LIVES = 3
_BATCH = 20
_PATIENCE = 120.0  # s: a machine may be busy
_LONGEST = 0.3  # s from the first push to the signal, at most


class _Life:
    """A server from its start to its end, and the client that works on it until then."""

    def __init__(self, folder: Path, errors: Path) -> None:
        command = ["serve", str(folder / "store"), "--checkpoint", "1 h", "--port", "0"]
        with errors.open("a") as told:
            self.process = Forked(
                "nile.experiments.cli:main", f"{__name__}:warm", [*command, "--token-file", str(folder / "token")], told
            )
        said = self.process.stdout.readline()
        place = re.search(r"http://[^\s,]+", said)
        expect(place is not None, f"the server said {said!r}: {errors.read_text()[-250:]}")
        self.far: Any = nile.connect(place[0], token=(folder / "token").read_text().strip())  # type: ignore[index]

    def ends(self) -> int:
        """The status that it ends with."""
        return self.process.wait(_PATIENCE)


def warm() -> None:
    """Load and use what a server needs, but for its threads."""
    with tempfile.TemporaryDirectory() as folder:
        with nile.connect(Path(folder, "store")) as db:
            Server(db, Settings("-"), folder).config.load()
            db.stream("s", [("t", "float64"), ("n", "int64")], time="t")
            query = db.subscribe("SELECT n FROM s", name="q")
            for at in (1, 2):
                db.push("s", {"t": [float(at)], "n": [at]}, offset=at)
                query.poll_numbered()
            db.sql("SELECT n FROM s").fetchall()
        nile.connect(Path(folder, "store")).close()


def _worked(life: _Life, found: list[int], acknowledged: list[int], begun: Callable[[], object]) -> None:
    """Push on from the offset, and read outputs, until the server is gone.  begun: called after the first push."""
    far = life.far
    far.stream("s", [("t", "float64"), ("n", "int64")], time="t")
    query = far.subscribe("SELECT n FROM s", name="q")
    query.ordinal = len(found)
    at = int(far.offset("s") or 0)
    acknowledged.append(at)
    while True:
        rows = range(at, at + _BATCH)
        far.push("s", {"t": [float(n) for n in rows], "n": list(rows)}, offset=at + _BATCH)
        at += _BATCH
        acknowledged.append(at)
        if len(acknowledged) == 3:
            begun()
        found += [n for batch in query.poll() for n in batch["n"].to_pylist()]


def _attempt(seed: int, *, signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)) -> None:
    rng = generator("served", seed)
    found: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(_LIVES):
            life, acknowledged = _Life(folder, folder / "errors"), [0]
            number = int(signals[int(rng.integers(len(signals)))])
            stop = threading.Timer(float(rng.uniform(0.02, _LONGEST)), life.process.send_signal, [number])
            try:
                try:
                    _worked(life, found, acknowledged, stop.start)
                except (NileError, OSError) as error:
                    expect(stop.ident is not None, f"before any signal at row {acknowledged[-1]}: {error}")
                stop.join()
                status = life.ends()
            finally:
                life.process.kill()
                life.process.wait()
            told = f"signal {number} at row {acknowledged[-1]}"
            expect(status in (0, -number), f"{told}: the server ended with {status}")
            _check(folder / "store", acknowledged[-1], found, told)


def _check(store: Path, acknowledged: int, found: list[int], told: str) -> None:
    """What was acknowledged is there, what was not as a whole batch or not at all, and each output has its number."""
    with nile.connect(store, read_only=True) as db:
        held = int(db.offset("s") or 0) if "s" in db.streams else 0
        rows = [n for (n,) in db.sql("SELECT n FROM s").fetchall()] if held else []
    expect(held in (acknowledged, acknowledged + _BATCH), f"{told}: the store is at {held}")
    expect(rows == list(range(held)), f"{told}: {len(rows)} rows of {held}")
    expect(found == list(range(len(found))) and len(found) <= held, f"{told}: {len(found)} outputs, not each once")


def _control(seed: int) -> None:
    """A server that is given no time for its last checkpoint."""
    for at in range(seed, seed + 2):
        _attempt(at, signals=(signal.SIGKILL,))


SERVED = Fault(
    "served", f"SIGINT or SIGTERM to a server, {_LIVES} lives each, while it is pushed to and read",
    "whole pushes; what was acknowledged", _attempt, _control, full=60, small=1,
)  # fmt: skip
