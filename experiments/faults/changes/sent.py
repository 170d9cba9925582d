"""Sinks whose receiver fails in every way, while what they send is pushed, interrupted, and killed, at any place.

However it went, in the end the receiver has each row at least once, under one number of its own, and the first time in
order.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nile
from nile.execution.live.outputs import outflow
from nile.experiments.faults.changes.failing import FailingServer, Silent, ended_at, serving
from nile.experiments.faults.fault import Fault, expect, generator
from nile.sensors.sinks.http import Posted
from nile.sensors.sinks.lines import Appended

__all__ = ["SENT"]

_LIVES = 3
_PATIENCE = 60.0  # s: a machine may be busy
_HERE = ("changes/sent.py",)
_KINDS = ("taken", "refused", "hung up", "taken and hung up", "no HTTP", "elsewhere")
_SHARES = (0.75, 0.07, 0.05, 0.05, 0.04, 0.04)


class _Receiver(FailingServer):
    """Takes posts of a line each row, or fails.  lines: what it has, as it came."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(_Post)
        self.lines: list[bytes] = []
        self.willing = False
        self._rng = rng

    def drawn(self) -> str:
        """How the next post is answered."""
        return "taken" if self.willing else str(self._rng.choice(_KINDS, p=_SHARES))


class _Post(Silent):
    server: _Receiver

    def do_POST(self) -> None:  # noqa: N802 - the name that is called
        kind = self.server.drawn()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if kind.startswith("taken"):
            self.server.lines += body.splitlines()
        match kind:
            case "hung up" | "taken and hung up":
                return
            case "no HTTP":
                self.wfile.write(b"220 smtp.example.org ready\r\n")
                return
        self.send_response({"taken": 204, "refused": 503, "elsewhere": 302}[kind])
        if kind == "elsewhere":
            self.send_header("Location", "/taken")
        self.end_headers()


def _push(db: Any, first: int, count: int) -> None:
    at = list(range(first, first + count))
    db.push("s", {"t": [float(n) for n in at], "n": at}, offset=first + count)


def _attempt(seed: int) -> None:
    rng = generator("sinks", seed)
    server = _Receiver(generator("sink answers", seed))
    with (
        tempfile.TemporaryDirectory() as name,
        serving(server),
        mock.patch.object(outflow, "_FIRST_WAIT", 0.005),
        mock.patch.object(outflow, "_LONGEST_WAIT", 0.02),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # that the receiver fails
        file, store, place = Path(name, "out.jsonl"), Path(name, "store"), 3_000
        to = f"FILE '{file}?id=at'" if seed % 2 else f"HTTP 'http://127.0.0.1:{server.server_port}/?id=at&rows=7'"
        for life in range(_LIVES):
            copy = Path(name, f"copy{life}")
            db = nile.connect(store, checkpoint=None)
            try:
                if life == 0:
                    db.stream("s", [("t", "float64"), ("n", "int64")], time="t")
                    db.sql(f"CREATE SINK a TO {to} AS SELECT n FROM s WHERE n % 5 <> 0")
                for _ in range(int(rng.integers(1, 4))):
                    work = partial(_push, db, int(db.offset("s") or 0), int(rng.integers(1, 60)))
                    if rng.random() < 0.5:
                        work = db.checkpoint  # type: ignore[assignment]
                    at = int(rng.integers(place))
                    killed = (store, copy) if not copy.exists() and rng.random() < 0.4 else None
                    place = ended_at(work, at, place, killed, _HERE)
            finally:
                db.close()
            store = copy if copy.exists() else store
        server.willing = True
        with nile.connect(store, checkpoint=None) as db:
            _push(db, int(db.offset("s") or 0), 10)
            db.advance(1e9)
            rows = [n for (n,) in db.sql("SELECT n FROM s WHERE n % 5 <> 0").fetchall()]
            _emptied(db)
        lines = file.read_bytes().splitlines() if seed % 2 else server.lines
        _checked(lines, rows)


def _emptied(db: Any) -> None:
    """Wait until nothing is left to be sent."""
    end = time.monotonic() + _PATIENCE
    while (told := db.sql("SELECT unread, state FROM nile_sinks").fetchall()) != [(0, "open")]:
        expect(time.monotonic() < end, f"a sink with something left: {told}")
        time.sleep(0.005)


def _checked(lines: list[bytes], rows: list[int]) -> None:
    """rows: those of the sink's query, in order."""
    found = [json.loads(line) for line in lines]
    by_id: dict[str, int] = {}
    for each in found:
        expect(by_id.setdefault(each["at"], each["n"]) == each["n"], f"two rows are {each['at']}")
    firsts = list(dict.fromkeys(each["n"] for each in found))
    expect(set(rows) <= set(firsts), f"{len(set(rows) - set(firsts))} of {len(rows)} rows were never sent")
    expect(firsts == sorted(firsts), "rows came for the first time out of order")
    expect(len(by_id) == len(firsts), f"{len(by_id)} numbers of {len(firsts)} rows")


def _control(seed: int) -> None:
    """Sinks that take it for granted that what they sent has arrived."""

    def granted(send: Any) -> Any:
        drawn = generator("sinks granted", seed)

        def sends(self: Any, rows: Any, ids: Any) -> None:
            with contextlib.suppress(Exception):
                if drawn.random() < 0.6:
                    send(self, rows, ids)

        return sends

    with (
        mock.patch.object(Posted, "send", granted(Posted.send)),
        mock.patch.object(Appended, "send", granted(Appended.send)),
    ):
        for at in range(seed, seed + 4):
            _attempt(at)


SENT = Fault(
    "sinks", f"sinks whose receiver fails in every way, {_LIVES} lives each, interrupted and killed",
    "each row, under one number, in order", _attempt, _control, full=300, small=2,
)  # fmt: skip
