"""Ctrl-C as people press it: real signals to a process that pushes to a store inside `with nile.connect(path)`.

The process takes each as it comes, leaves the `with`, opens the store again and goes on from the offset; what it has in
the end, and every output it was told by its number, must be that of a process that nobody interrupted.
`main` is what runs in that process.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.interrupts import INTERRUPTS
from nile.engine.connect import connect
from nile.engine.database import Database
from nile.execution.envelopes import packed
from nile.execution.live.subscription import Subscription
from nile.experiments.faults.changes.forks import Forked
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.interruption import undefended
from nile.experiments.faults.scene import QUERIES, rows

__all__ = ["SIGNALS", "main", "warm"]

COUNT = 10
"""Signals of one attempt."""
_BATCH = 60
_NAMES = ("rows", "windowed", "join", "desc")
_LONGEST = 0.04  # s from one signal to the next, at most
_PATIENCE = 300.0  # s: a machine may be busy
_AGAIN = 10.0  # s after which a signal is sent again: longer than it waits on a busy machine


def _work(db: Database, told: dict[str, dict[int, str]], batches: int | None) -> None:
    """Push on from where the streams are; batches: until so many have been pushed, None: for ever."""
    for name in "ab":
        if name not in db.streams:
            db.stream(name, [("t", "float64"), ("k", "int64"), ("n", "int64")], time="t", lateness="1 s")
    if "s" not in db._names.summaries:
        db.sql("CREATE SUMMARY s ON a (k) WITH GRANULARITY '2 s' AND COLLAPSE (2, 2)")
    standing = {name: db.subscribe(QUERIES[name][0], name=name, **QUERIES[name][1]) for name in _NAMES}
    if batches is None:
        print("ready", flush=True)
    while batches is None or min(db.offset(name) for name in "ab") < batches * _BATCH:
        name = min("ab", key=db.offset)
        first = db.offset(name)
        db.push(name, rows(first, _BATCH), offset=first + _BATCH)
        _read(standing, told)
    _read(standing, told)  # what the last push found may wait from before an interrupt


def _read(standing: dict[str, Subscription], told: dict[str, dict[int, str]]) -> None:
    """Note what waits by its numbers: what was read counts as told, and a reader that drops it has lost it."""
    with INTERRUPTS:
        for each, one in standing.items():
            for ordinal, batch in one.poll_numbered():
                for k, row in enumerate(batch.to_pylist()):
                    before = told[each].setdefault(ordinal + k, repr(row))
                    expect(before == repr(row), f"{each}: output {ordinal + k} was {before}, and is {row}")


def _held(db: Database) -> dict[str, str]:
    """All that a database holds, but for what has been read of its outputs."""
    out = {}
    for name in "ab":
        told = db.accounting(name)
        found = db.sql(f"SELECT count(*) AS c, sum(n) AS s, max(n) AS m FROM {name}").fetchall()
        out[name] = f"{db.offset(name)} {told} {found}"
    for name in _NAMES:
        one = db.subscription(name)
        one.poll()
        out[name] = packed("query", one.capture()).hex()
    return out


def warm() -> None:
    """Load and use what the process needs."""
    with tempfile.TemporaryDirectory() as folder, connect(Path(folder, "store"), memory="16MB") as db:
        _work(db, {name: {} for name in _NAMES}, 2)


def main(arguments: list[str]) -> None:
    """PATH COUNT [undefended]: be interrupted COUNT times, then tell as JSON whether all is as it must be."""
    path, count = arguments[0], int(arguments[1])
    told: dict[str, dict[int, str]] = {name: {} for name in _NAMES}
    came = 0
    with undefended() if "undefended" in arguments else contextlib.nullcontext():
        with connect(path, checkpoint="0.1 s", memory="16MB") as db:
            _work(db, told, 2)  # kernels are compiled
        while came < count:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                if came % 4 == 0:  # while it opens, else at work
                    print("ready", flush=True)
                with connect(path, checkpoint="0.1 s", memory="16MB") as db:
                    _work(db, told, None)
            except KeyboardInterrupt:
                # The next one may be sent as soon as this one is told of; it is to come while something is done.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                came += 1
                if came == count:  # one that was sent again may be on its way
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                print(came, flush=True)
    print(json.dumps(_compared(path, told)), flush=True)


def _compared(path: str, told: dict[str, dict[int, str]]) -> list[str]:
    """What is not as in a database that nobody interrupted."""
    wrong = []
    with connect(path) as db, connect() as peace:
        other: dict[str, dict[int, str]] = {name: {} for name in _NAMES}
        batches = max(db.offset(name) for name in "ab") // _BATCH
        _work(db, told, batches)
        _work(peace, other, batches)
        db.advance(batches * _BATCH / 5.0 + 60)
        peace.advance(batches * _BATCH / 5.0 + 60)
        _work(db, told, 0)
        _work(peace, other, 0)
        one, two = _held(db), _held(peace)
        wrong += [name for name in one if one[name] != two[name]]
        wrong += [f"outputs of {name}" for name in _NAMES if told[name] != other[name]]
    return wrong


def _attempt(seed: int, *options: str, count: int = COUNT) -> None:
    rng = generator("signals", seed)
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "errors")
        with errors.open("w") as told:
            arguments = [str(Path(folder, "store")), str(count), *options]
            child = Forked(f"{__name__}:main", f"{__name__}:warm", arguments, told)
        try:
            last = _interrupted(child, rng)
        finally:
            child.kill()
            child.wait()
        expect(child.returncode == 0, f"the process ended with {child.returncode}: {errors.read_text().strip()[-250:]}")
        wrong: Any = json.loads(last)
        expect(wrong == [], f"after {count} signals not as without: {', '.join(map(str, wrong))}")


def _interrupted(child: Forked, rng: np.random.Generator) -> str:
    """Send a signal whenever the process is at work; the last line it says."""
    said: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in child.stdout:
            said.put(line)
        child.wait(_PATIENCE)
        said.put("")

    threading.Thread(target=read, daemon=True).start()
    last, ready, deadline = "", False, time.monotonic() + _PATIENCE
    while line := _next(said, ready):
        expect(time.monotonic() < deadline, "the process takes too long")
        last, ready = line, line in ("ready\n", "again\n")
        if ready:
            time.sleep(float(rng.uniform(0, _LONGEST)))
            child.send_signal(signal.SIGINT)
    return last


def _next(said: queue.Queue[str], waits: bool) -> str:
    """The next line.  A signal that came while Python could not raise anything is sent again."""
    try:
        return said.get(timeout=_AGAIN if waits else _PATIENCE)
    except queue.Empty:
        return "again\n" if waits else ""


def _control(seed: int) -> None:
    """Processes with nothing to defend them, interrupted until it does harm: one signal in twenty or so does."""
    for at in range(4):
        _attempt(seed + 1_000 * at, "undefended", count=4 * COUNT)


SIGNALS = Fault(
    "signals", f"{COUNT} real signals each to a process that pushes to a store", "as without; every output once",
    _attempt, _control, full=50, small=1,
)  # fmt: skip
