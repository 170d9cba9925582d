"""Streams of a descriptor: lines in pieces, rubbish between them, an end at any place; interrupted, and killed.

A descriptor has no offset: what was read and not kept when a process ends is lost, with the line that it was in.  So in
the end the rows are whole lines, each at most once and in order, and none is missing but where a process had ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nile
from nile.experiments.faults.changes.failing import ended_at
from nile.experiments.faults.fault import Fault, expect, generator
from nile.sensors.connectors.stdin import StandardInput

__all__ = ["PIPED"]

_LIVES = 3
_PATIENCE = 60.0  # s: a machine may be busy
_HERE = ("changes/piped.py",)
_RUBBISH = ("", "{", "nonsense", '{"n": "six"}', "[1, 2]", '{"n": 1e300}', "\u2028\u00e9", "\0", "x" * 9_000)


class _Writer:
    """Writes lines to a pipe, in pieces.  good, bad: how many of them are numbers, and how many are rubbish."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.reads, self._end = os.pipe()
        self.good = self.bad = 0
        self._rng = rng

    def lines(self, count: int, *, last: bool = False) -> None:
        """So many more; last: the end is behind them, with or without the end of a line."""
        text = bytearray()
        for _ in range(count):
            if self._rng.random() < 0.2:
                line = str(self._rng.choice(_RUBBISH))
                self.bad += 1
            else:
                line = json.dumps({"n": self.good})
                self.good += 1
            text += line.encode() + (b"\r\n" if self._rng.random() < 0.3 else b"\n")
        if last:
            text += json.dumps({"n": self.good}).encode() + b"\n" * int(self._rng.integers(2))
            self.good += 1
        while text:
            size = int(self._rng.choice([3, 17, 60, 4_000]))
            os.write(self._end, text[:size])
            del text[:size]
            if self._rng.random() < 0.3:
                time.sleep(0.001)
        if last:
            os.close(self._end)
            self._end = -1

    def close(self) -> None:
        for each in (self.reads, self._end):
            if each >= 0:
                os.close(each)


def _attempt(seed: int) -> None:
    rng = generator("stdin", seed)
    writer = _Writer(generator("stdin lines", seed))
    with tempfile.TemporaryDirectory() as name, contextlib.closing(writer):
        store, place, ends = Path(name, "store"), 2_000, 0
        for life in range(_LIVES):
            db = nile.connect(store, checkpoint=None)
            copy = Path(name, f"copy{life}")
            try:
                if life == 0:
                    db.sql(f"CREATE STREAM s FROM STDIN '{writer.reads}' (n BIGINT)")
                begun = threading.Thread(target=writer.lines, args=(int(rng.integers(5, 60)),))
                begun.start()
                at = int(rng.integers(place))
                killed = (store, copy) if rng.random() < 0.5 else None
                place = ended_at(db.checkpoint, at, place, killed, _HERE)
                begun.join()
                if rng.random() < 0.7:
                    _reached(db, writer.good, lost=ends > 0)
                _checked(db, writer, ends)
            finally:
                db.close()
            store = copy if copy.exists() else store
            ends += 1
        with nile.connect(store, checkpoint=None) as db:
            writer.lines(int(rng.integers(5, 60)), last=True)
            _reached(db, writer.good, lost=True)
            _checked(db, writer, ends)
            _ended(db)


def _reached(db: Any, good: int, *, lost: bool) -> None:
    """Wait until the last number is there; lost: and no number at all is missing."""
    end = time.monotonic() + _PATIENCE
    while (rows := _rows(db))[-1:] != [good - 1]:
        expect(time.monotonic() < end, f"{rows[-3:]} of {good} lines, {db.accounting('s')}")
        time.sleep(0.005)
    expect(lost or rows == list(range(good)), f"{len(rows)} rows of {good} lines")


def _ended(db: Any) -> None:
    """Wait until the source says that it has ended."""
    end = time.monotonic() + _PATIENCE
    while (state := db.sql("SELECT state FROM nile_sources WHERE reads IS NOT NULL").fetchall()) != [("ended",)]:
        expect(time.monotonic() < end, f"a source at its end is {state}")
        time.sleep(0.005)


def _rows(db: Any) -> list[int]:
    return [n for (n,) in db.sql("SELECT n FROM s").fetchall()]


def _checked(db: Any, writer: _Writer, ends: int) -> None:
    """ends: how many processes have ended before."""
    rows, told = _rows(db), db.accounting("s")
    told.check()
    steps = np.diff(np.asarray([-1, *rows]))
    expect((steps > 0).all(), "a line that came twice, or out of order")
    expect((steps > 1).sum() <= ends, f"{(steps > 1).sum()} gaps where {ends} processes had ended")
    expect(rows[-1:] <= [writer.good - 1], f"a number {rows[-1:]} of {writer.good} that were written")
    most = writer.bad + ends  # a line that an end cut in two is rubbish
    expect(told.rejected <= most, f"{told.rejected} lines of rubbish, where {most} may be")


def _control(seed: int) -> None:
    """A reader that forgets the line that a piece ends in."""
    read = StandardInput.read

    def forgets(self: Any) -> Any:
        self._left = b""
        return read(self)

    with mock.patch.object(StandardInput, "read", forgets), mock.patch(f"{__name__}._PATIENCE", 1.0):
        for at in range(seed, seed + 6):
            _attempt(at)


PIPED = Fault(
    "stdin", f"streams of a descriptor, lines in pieces and rubbish, {_LIVES} lives each, interrupted and killed",
    "whole lines, once and in order", _attempt, _control, full=100, small=1,
)  # fmt: skip
