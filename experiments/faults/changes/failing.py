"""What the rows of connectors share: a process that ends at a place, and an HTTP server that fails as it is told."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nile.experiments.faults.places import at_place

__all__ = ["FailingServer", "Silent", "ended_at", "serving"]


def ended_at(
    action: Callable[[], Any], at: int, places: int, killed: tuple[Path, Path] | None, spared: tuple[str, ...]
) -> int:
    """Run an action that a kill or an interrupt ends at place `at`; how many places there are, as far as is known.

    A kill at a place leaves the files that there are then: killed = (a store's folder, where its copy goes, which is
    what the next process opens); None: an interrupt.  places: how many there were before.
    """
    spared = (*spared, "shutil.py", "threading.py", "changes/failing.py")
    if killed is not None:
        return max(50, at_place(action, at, partial(shutil.copytree, *killed), spared))
    with contextlib.suppress(KeyboardInterrupt):
        at_place(action, at, lambda: signal.raise_signal(signal.SIGINT), spared)
    return places


class FailingServer(http.server.ThreadingHTTPServer):
    """A server on a free port of this machine, whose clients may be gone and whose threads nobody waits for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, *_: Any) -> None:
        """Who asked may be gone."""


class Silent(http.server.BaseHTTPRequestHandler):
    """Tells nothing of what it is asked."""

    def log_message(self, *_: Any) -> None:
        """Nothing is told."""


@contextlib.contextmanager
def serving(server: FailingServer) -> Iterator[None]:
    """Let it serve while the block runs."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
