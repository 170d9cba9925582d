"""Outputs that nobody reads, over restarts and crashes: every one comes once, in order, and memory stays flat."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import nile
from nile.durable import keeper
from nile.experiments.faults.fault import Fault, expect, generator
from nile.pyramid.disk.care import check
from nile.summaries.heavy import pa

__all__ = ["FAULT"]

_SCHEMA = [("t", "int64"), ("k", "string"), ("x", "float64")]
_TEXT = "SELECT t, k, x FROM s WHERE x > 0.25"
_SEALED = 4_000
_STEPS = 30


class _Run:
    """A store with one query that is seldom read, and all that it must tell, worked out by hand."""

    def __init__(self, path: Path, rng: np.random.Generator, *, forgets: bool) -> None:
        self.path = path
        self.rng = rng
        self.forgets = forgets
        self.wanted: list[int] = []
        self.found: dict[int, int] = {}
        self.pushed = 0
        self.db = self._opened()

    def _opened(self) -> nile.Database:
        db = nile.connect(self.path, memory="16MB", checkpoint=None)
        db.stream("s", _SCHEMA, time="t")
        db.subscribe(_TEXT, name="lonely")
        return db

    def push(self) -> None:
        rows = int(self.rng.integers(1, 600))
        at = np.arange(self.pushed, self.pushed + rows)
        x = self.rng.random(rows)
        keys = [None if i % 11 == 0 else f"key {i % 97}" for i in at.tolist()]
        self.db.push("s", {"t": at, "k": pa.array(keys, pa.string()), "x": x}, offset=self.pushed + rows)
        self.wanted += at[x > 0.25].tolist()
        self.pushed += rows

    def read(self) -> None:
        for first, batch in self.db.subscription("lonely").poll_numbered():
            for place, t in enumerate(batch.column(0).to_pylist(), first):
                expect(self.found.setdefault(place, t) == t, f"output {place} was {self.found[place]}, then {t}")

    def forget(self) -> None:
        """What a store that lost a file of outputs would do, for the control."""
        waiting: Any = self.db.subscription("lonely")._found
        if self.forgets and (filed := waiting.filed()):
            gone = filed[0].batch.num_rows
            waiting.adopt(filed[1:], waiting.tail())
            self.db.subscription("lonely")._handed += gone

    def restart(self) -> None:
        self.db.checkpoint()
        self.forget()
        self.db.close()
        self.db = self._opened()
        expect(self.db.offset("s") == self.pushed, f"the offset is {self.db.offset('s')} of {self.pushed}")

    def crash(self) -> None:
        """The store as a process that was killed now would leave it: what was not committed comes again."""
        left = self.path.with_name(f"{self.path.name}-{self.pushed}")
        shutil.copytree(self.path, left)
        self.db.close()
        self.path = left
        self.db = self._opened()
        again = int(self.db.offset("s"))
        self.wanted = [t for t in self.wanted if t < again]
        self.found = {place: t for place, t in self.found.items() if place < len(self.wanted)}
        self.pushed = again


def _attempt(seed: int, *, forgets: bool = False) -> None:
    rng = generator("unread", seed)
    before, keeper._SEALED = keeper._SEALED, _SEALED
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = _Run(Path(folder) / "store", rng, forgets=forgets)
            for _ in range(_STEPS):
                match int(rng.integers(0, 12)):
                    case 0:
                        run.read()
                    case 1:
                        run.restart()
                    case 2:
                        run.db.checkpoint()
                        run.push()
                        run.crash()
                    case 3 | 4:
                        run.db.checkpoint()
                        held = run.db.subscription("lonely").unread_bytes
                        expect(held <= _SEALED, f"{held} bytes of outputs are held after a checkpoint")
                    case _:
                        run.push()
            run.restart()
            run.db.advance(10 * run.pushed + 1)
            run.read()
            told = [run.found.get(place) for place in range(len(run.wanted))]
            expect(told == run.wanted and len(run.found) == len(run.wanted), "outputs are missing, or there are others")
            run.db.close()
            expect(not check(run.path).wrong, f"the store is damaged: {check(run.path).wrong}")
    finally:
        keeper._SEALED = before


def _control(seed: int) -> None:
    _attempt(seed, forgets=True)


FAULT = Fault(
    "unread-outputs", "a named query that nobody reads, over restarts and crashes", "each output once, memory flat",
    _attempt, _control, full=400, small=3,
)  # fmt: skip
