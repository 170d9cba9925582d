"""Streams that are polled from an HTTP endpoint that fails in every way, interrupted, and killed, at any place.

HTTP has no offsets: what was answered and not kept when a process ends is lost.  So in the end the rows are answers
that were whole, each at most once and in order, and none is missing but where a process had ended.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nile
from nile.experiments.faults.changes.failing import FailingServer, Silent, ended_at, serving
from nile.experiments.faults.fault import Fault, expect, generator
from nile.sensors.connectors.http import Polled

__all__ = ["POLLED"]

_LIVES = 3
_PATIENCE = 60.0  # s: a machine may be busy
_HERE = ("changes/polled.py",)
_RUBBISH = (b"", b"{", b"nonsense", b'{"n": "six"}', b'{"n": 1e300}', b"[[]]", b"\xff\xfe{}")
_KINDS = ("good", "rubbish", "status", "cut off", "hung up", "no HTTP", "not modified", "elsewhere")
_SHARES = (0.72, 0.12, 0.04, 0.02, 0.02, 0.02, 0.04, 0.02)


class _Endpoint(FailingServer):
    """Answers with the next number, or in another way.  whole: the numbers of answers that are sent whole."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(_Answer)
        self.whole: set[int] = set()
        self.next = 0
        self._rng = rng
        self._lock = threading.Lock()

    def drawn(self) -> tuple[str, int, bytes]:
        """(how the next question is answered, the next number, some rubbish)."""
        with self._lock:
            kind, number = str(self._rng.choice(_KINDS, p=_SHARES)), self.next
            if kind == "good":  # noted before it is sent: whoever has it may ask again at once
                self.whole.add(number)
                self.next += 1
            return kind, number, _RUBBISH[int(self._rng.integers(len(_RUBBISH)))]


class _Answer(Silent):
    server: _Endpoint

    def do_GET(self) -> None:  # noqa: N802 - the name that is called
        kind, number, rubbish = self.server.drawn()
        body = rubbish if kind == "rubbish" else json.dumps({"n": number}).encode()
        match kind:
            case "hung up":
                return
            case "no HTTP":
                self.wfile.write(b"220 smtp.example.org ready\r\n")
                return
            case "status" | "not modified" | "elsewhere":
                self.send_response({"status": 500, "not modified": 304, "elsewhere": 302}[kind])
                if kind == "elsewhere":
                    self.send_header("Location", "ftp://127.0.0.1:1/")
                self.end_headers()
                return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 50 * (kind == "cut off")))
        self.end_headers()
        self.wfile.write(body)


def _attempt(seed: int) -> None:
    rng = generator("http", seed)
    server = _Endpoint(generator("http answers", seed))
    with tempfile.TemporaryDirectory() as name, serving(server):
        store, place, ends = Path(name, "store"), 2_000, 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that the endpoint fails
            for life in range(_LIVES):
                db = nile.connect(store, checkpoint=None)
                copy = Path(name, f"copy{life}")
                try:
                    if life == 0:
                        address = f"http://127.0.0.1:{server.server_port}/?every=0.002"
                        db.sql(f"CREATE STREAM s FROM HTTP '{address}' (n BIGINT)")
                    _more(db, int(rng.integers(5, 40)))
                    at = int(rng.integers(place))
                    killed = (store, copy) if rng.random() < 0.5 else None
                    place = ended_at(db.checkpoint, at, place, killed, _HERE)
                    kept = _checked(db, server, ends)
                finally:
                    db.close()
                store = copy if copy.exists() else store
                ends += 1
            with nile.connect(store, checkpoint=None) as db:
                if not copy.exists():
                    expect(len(_rows(db)) >= kept, f"a store closed with {kept} rows has {len(_rows(db))}")
                _more(db, 5)
                _checked(db, server, ends)


def _more(db: Any, rows: int) -> None:
    """Wait until so many more rows have come."""
    wanted, end = db.accounting("s").applied + rows, time.monotonic() + _PATIENCE
    while db.accounting("s").applied < wanted:
        expect(time.monotonic() < end, f"{db.accounting('s')}, not {wanted} rows")
        time.sleep(0.005)


def _rows(db: Any) -> list[int]:
    return [n for (n,) in db.sql("SELECT n FROM s").fetchall()]


def _checked(db: Any, server: _Endpoint, ends: int) -> int:
    """How many rows there are.  ends: how many processes have ended before."""
    rows = _rows(db)
    db.accounting("s").check()
    strange = [n for n in rows if n not in server.whole]
    expect(not strange, f"rows that nobody answered whole: {strange[:5]}")
    steps = np.diff(np.asarray(rows))
    back = np.flatnonzero(steps <= 0)[:3]
    expect(not back.size, f"answers that came twice, or out of order: {[rows[at : at + 2] for at in back]}")
    expect((steps > 1).sum() <= ends, f"{(steps > 1).sum()} gaps where {ends} processes had ended")
    return len(rows)


def _control(seed: int) -> None:
    """A reader that now and then hands out an answer again."""
    read, drawn = Polled.read, generator("http again", seed)

    def again(self: Any) -> Any:
        found = getattr(self, "_before", None)
        if found is None or drawn.random() < 0.7:
            found = read(self)
        self._before = found
        return found

    with mock.patch.object(Polled, "read", again):
        _attempt(seed)


POLLED = Fault(
    "http", f"streams polled from an endpoint that fails in every way, {_LIVES} lives each, interrupted and killed",
    "whole answers, once and in order", _attempt, _control, full=60, small=1,
)  # fmt: skip
