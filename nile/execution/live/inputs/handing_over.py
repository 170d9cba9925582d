"""Pushing what was read to a live stream as soon as that may be."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nile.base.raw import RawBatch
from nile.streams.live import LiveStream
from nile.summaries.errors import DatabaseClosed, UnknownStream

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["fed"]

_AGAIN = 0.05
"""Seconds until rows that were refused (a query has too much unread, a store cannot be written) are pushed again."""


def fed(
    live: Live,
    stream: LiveStream,
    rows: Callable[[], tuple[RawBatch, Any, int | None]],
    stop: threading.Event,
    refused: Callable[[str], None],
) -> bool:
    """Push rows until they are in; whether they are, before somebody stopped it.

    rows: what `Live.feed` takes, made under the lock; refused: hears why they wait.  Raises DatabaseClosed,
    UnknownStream where the stream goes meanwhile.
    """
    while True:
        with live.lock:
            before = stream.pushed
            try:
                live.feed(stream, *rows())
            except (DatabaseClosed, UnknownStream):
                raise
            except Exception as error:
                if stream.pushed != before:  # rows are in; a callback of a query has raised
                    warnings.warn(f"stream '{stream.name}': {error}", RuntimeWarning, stacklevel=2)
                    return True
                refused(f"{type(error).__name__}: {error}"[:500])
            else:
                return True
        if stop.wait(_AGAIN):
            return False
