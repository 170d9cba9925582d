"""Streams that a connector fills from a file, some lines of which are rubbish: interrupted, and killed, at any place.

A kill at a place leaves the files that there are then: a copy of the store's folder, made there, is what the next
process opens.  However it went, in the end each line of the file is there once, and counted.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nile
from nile.execution.live.inputs.inflow import Inflow
from nile.experiments.faults.changes.failing import ended_at
from nile.experiments.faults.fault import Fault, expect, generator

__all__ = ["FILLED"]

_LIVES = 4
_PATIENCE = 60.0  # s: a machine may be busy
_RUBBISH = ("{", "nonsense", '{"n": "six"}', "[1, 2]", '{"n": 1e300}', "\u2028\u00e9")
_HERE = ("changes/filled.py",)


def _attempt(seed: int) -> None:
    rng = generator("filled", seed)
    with tempfile.TemporaryDirectory() as name:
        file, store = Path(name, "lines.jsonl"), Path(name, "store")
        good, bad, place = 0, 0, 3_000
        for life in range(_LIVES):
            good, bad = _written(file, rng, good, bad)
            db = nile.connect(store, checkpoint=None)
            copy = Path(name, f"copy{life}")
            try:
                if life == 0:
                    db.sql(f"CREATE STREAM s FROM FILE '{file}' (n BIGINT)")
                if rng.random() < 0.7:
                    _reached(db, good, bad)
                at = int(rng.integers(place))
                killed = (store, copy) if rng.random() < 0.5 else None
                place = ended_at(db.checkpoint, at, place, killed, _HERE)
            finally:
                db.close()
            if copy.exists():
                store = copy
        with nile.connect(store, checkpoint=None) as db:
            _reached(db, good, bad)
            rows = [n for (n,) in db.sql("SELECT n FROM s").fetchall()]
            expect(rows == list(range(good)), f"{len(rows)} rows of {good} lines, or others")
            told = db.accounting("s")
            told.check()
            expect((told.late, told.shed, told.rejected) == (0, 0, bad), f"{bad} lines of rubbish: {told}")
            expect(told.tuples_in == good + bad, f"{told.tuples_in} tuples of {good + bad} lines")


def _written(file: Path, rng: np.random.Generator, good: int, bad: int) -> tuple[int, int]:
    """More lines at the end of the file; how many it has of both kinds."""
    with file.open("a", encoding="utf-8") as out:
        for _ in range(int(rng.integers(1, 60))):
            if rng.random() < 0.2:
                out.write(str(rng.choice(_RUBBISH)) + "\n")
                bad += 1
            else:
                out.write(json.dumps({"n": good}) + "\n")
                good += 1
    return good, bad


def _reached(db: Any, good: int, bad: int) -> None:
    """Wait until the whole file has been read, and a little longer: what comes twice comes then."""
    end = time.monotonic() + _PATIENCE
    while (told := db.accounting("s")).applied < good or told.rejected < bad:
        expect(time.monotonic() < end, f"{told} of {good} lines and {bad} of rubbish")
        time.sleep(0.01)
    time.sleep(0.02)


def _control(seed: int) -> None:
    """A connector that is never told where it was."""
    begin = Inflow.__init__

    def anew(self: Inflow, live: Any, stream: Any, reads: Any, fields: Any, _: Any) -> None:
        begin(self, live, stream, reads, fields, None)

    with mock.patch.object(Inflow, "__init__", anew):
        for at in range(seed, seed + 4):
            _attempt(at)


FILLED = Fault(
    "filled", f"streams of a file with rubbish in it, {_LIVES} lives each, interrupted and killed", "each line once",
    _attempt, _control, full=200, small=2,
)  # fmt: skip
