"""Ctrl-C in a client of a server, at any place of a request: it was done whole or not at all, and the next one works.

A source that asks for its offset after each interrupt goes on without a row lost or doubled, a query that nobody reads
keeps all of its outputs, and no answer is that of the request before.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nile
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.places import at_place
from nile.server.serve import Server, listen
from nile.server.settings import Settings

__all__ = ["REMOTE"]

_TRIES = 10
_TOKEN = "a-token-for-faults-alone"  # of a server on loopback that lives for one attempt
_BATCH = 10
_COUNT = "SELECT count(*) AS n FROM s"


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[tuple[Any, Any]]:
    """A database with a store, and the same through its server."""
    db = nile.connect(folder / "store", checkpoint=None)
    bound, ready = listen("127.0.0.1", 0), threading.Event()
    server = Server(db, Settings(_TOKEN), str(folder), ready=ready.set)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        expect(ready.wait(60), "the server never got ready")
        host, port = bound.getsockname()[:2]
        with nile.connect(f"http://{host}:{port}", token=_TOKEN) as far:
            yield db, far
    finally:
        server.should_exit = True
        thread.join(60)
        db.close()
        bound.close()


def _rows(first: int) -> dict[str, list[Any]]:
    at = range(first, first + _BATCH)
    return {"t": [float(n) for n in at], "n": list(at)}


def _interrupted(seed: int, *, asks: bool) -> None:
    """Requests that are cut into; asks: whether the source goes on from the offset, or pushes again what was cut."""
    rng = generator("remote", seed)
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as (db, far):
        far.stream("s", [("t", "float64"), ("n", "int64")], time="t", lateness="1 h")
        far.subscribe("SELECT n FROM s", name="lonely")
        at = 0

        def push() -> None:
            far.push("s", _rows(at), **({"offset": at + _BATCH} if asks else {}))

        def ask() -> None:
            wanted = db.sql(_COUNT).fetchall()
            expect(far.sql(_COUNT).fetchall() == wanted, "an answer that is not of its question")

        requests: tuple[Callable[[], None], ...] = (push, push, ask)
        # Cut into there, Python's own modules keep a lock for ever that the server waits for, in this process.
        spared = ("faults/changes/remote.py", "threading.py", "logging/__init__.py")
        places = {each: at_place(each, None, lambda: None, spared) for each in (push, ask)}
        at = int(far.offset("s"))
        for _ in range(_TRIES):
            request = requests[int(rng.integers(len(requests)))]
            place = int(rng.integers(places[request]))
            with contextlib.suppress(KeyboardInterrupt):
                at_place(request, place, lambda: signal.raise_signal(signal.SIGINT), spared)
                at += _BATCH if request is push else 0
            reached = int(far.offset("s"))
            expect(not asks or reached in (at, at + _BATCH), f"at {at}, and the server at {reached}")
            at = reached if asks else at
            ask()
        while at < (_TRIES + 2) * _BATCH:
            push()
            at += _BATCH
        far.advance(1e6)
        found = [row["n"] for batch in db.subscription("lonely").poll() for row in batch.to_pylist()]
        expect(sorted(found) == list(range(at)), f"{len(found)} outputs of {at} rows")


def _control(seed: int) -> None:
    """A source that does not ask how far the server came, and pushes again."""
    for at in range(seed, seed + 12):
        _interrupted(at, asks=False)


REMOTE = Fault(
    "remote", f"{_TRIES} requests of a client each, cut into by Ctrl-C", "all of it, or nothing; the next one works",
    lambda seed: _interrupted(seed, asks=True), _control, full=100, small=1,
)  # fmt: skip
