"""A server on a thread of the test's own process, on loopback, and what talks to it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn.server

import nile
from nile.server.serve import Server, listen
from nile.server.settings import Settings

__all__ = ["TOKEN", "Served", "client_to", "served"]

TOKEN = "a-token-for-tests-alone"


def _nap(seconds: float) -> Any:
    return asyncio.sleep(min(seconds, 0.01))


# It looks whether to stop ten times a second, and waits as long again for connections: hundreds of tests, for nothing.
uvicorn.server.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": _nap})  # type: ignore[attr-defined]


@dataclass
class Served:
    """A running server: where it is, what it serves, how it counts."""

    url: str
    port: int
    server: Server
    db: nile.Database

    def client(self, **named: Any) -> httpx.Client:
        """One that shows the token."""
        return client_to(self.url, **named)

    @property
    def refused(self) -> dict[str, int]:
        """How often the guard refused, by reason."""
        return dict(self.server.app.refused)

    def wait_until(self, holds: Any, seconds: float = 60.0) -> None:
        """Until something holds.  Raises AssertionError."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.01)


def client_to(url: str, **named: Any) -> httpx.Client:
    headers = {"authorization": f"Bearer {TOKEN}", **named.pop("headers", {})}
    # No TLS here, and reading the certificates of all authorities takes 30 ms a client.
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30, verify=False, **named)


@contextmanager
def served(
    db: nile.Database, *places: str, port: int = 0, beside: Any = None, alone: bool = False, **settings: Any
) -> Iterator[Served]:
    """Serve a database while the block runs; it is closed afterwards, as the command does.

    alone: with the interpreter's settings that the command makes, which are taken back.
    """
    bound = listen("127.0.0.1", port)
    ready = threading.Event()
    server = Server(db, Settings(TOKEN, **settings), *places, ready=ready.set, beside=beside, alone=alone)
    turn = sys.getswitchinterval()
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        assert ready.wait(30)
        at = bound.getsockname()[1]
        yield Served(f"http://127.0.0.1:{at}", at, server, db)
    finally:
        server.should_exit = True
        thread.join(30)
        db.close()
        bound.close()
        if alone:
            gc.unfreeze()
            sys.setswitchinterval(turn)
    assert not thread.is_alive()
