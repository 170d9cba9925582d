"""Live streams that a table of sensors fills: what its sources give is pushed with the places they have reached.

A store keeps the rows with the places, and not the table, whose classes are code: once the table has been declared
again, the stream goes on, each source behind its last row that is kept, where the source tells its place.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.plain import plain_schema
from nile.base.raw import RawBatch
from nile.execution.definitions import Reads
from nile.execution.live.inputs.handing_over import fed
from nile.sensors.source import SensorsSource
from nile.streams.live import LiveStream
from nile.summaries.errors import DatabaseClosed, UnknownStream
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["Tabled"]

_ROWS = 4096
_LOOK = 0.1
"""Seconds between two looks at whether the table has rows."""
_PATIENCE = 6.0
"""Seconds that closing waits for the sources to be closed."""


class Tabled:
    """Reads one table until its sources have ended, the stream or the table is gone, or it is stopped."""

    def __init__(self, live: Live, stream: LiveStream, reads: Reads, source: SensorsSource, places: Any) -> None:
        self.stream = stream
        self.reads = reads
        self.table = source.table
        self.state, self.error = "starting", None
        self._live = live
        self._source = source
        self._places: dict[str, Any] = dict(places or {})
        self._scan = source.scan(self._places)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nile reads {stream.name}", daemon=True)
        atexit.register(self.end)
        self._thread.start()

    error: str | None

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()
        self._source.manager.close(self._scan)

    def end(self) -> None:
        """Stop, and wait until what was being pushed is in."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)

    def read_up(self) -> None:
        """What is there when a table is declared comes when it does."""

    def told(self) -> dict[str, Any]:
        """Where it reads, and how that goes: columns of nile_sources.  error: of the reading, else of some sources."""
        failed = [port for port in list(self._scan.past.values()) if port.state == "failed"]
        some = f"{len(failed)} sources failed, {failed[0].address!r} first: {failed[0].error}" if failed else None
        return {"reads": f"sensors {self.reads.address}", "state": self.state, "error": self.error or some}

    def _run(self) -> None:
        try:
            self._check()
            while not len(self.table) and not self._stop.wait(_LOOK):
                pass
            columns = self.stream.schema.names
            if not self._stop.is_set():
                self.state = "open"
                for rows, places in self._source.placed(self._scan, columns, _ROWS):
                    if not self._taken(rows, places):
                        break
            if not self._stop.is_set():
                self._taken(pa.RecordBatch.from_pylist([], schema=self.stream.schema), {}, last=True)
                self.state = "ended"
        except (DatabaseClosed, UnknownStream):
            pass  # nobody wants it any more
        except BaseException as error:  # this thread has nobody above it
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"[:500]
        finally:
            atexit.unregister(self.end)
            if self.state in ("starting", "open"):
                self.state = "closed"
        if self.state == "failed":
            warnings.warn(
                f"stream '{self.stream.name}': needed what sensors '{self.reads.address}' give; got {self.error}; they "
                "are read no more: declare the table again",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check(self) -> None:
        """That the table has the columns that the stream was made with.  Raises TypeError."""
        own, there = self.stream.schema, plain_schema(self._source.schema)
        if not own.equals(there):
            raise TypeError(f"columns {there.to_string()!r:.200}, where the stream has {own.to_string()!r:.200}")

    def _taken(self, rows: pa.RecordBatch, places: dict[str, Any], *, last: bool = False) -> bool:
        """Push rows as soon as that may be, with all places; whether it was done before somebody stopped this."""
        stream, offset = self.stream, {**self._places, **places}

        def made() -> tuple[RawBatch, Any, int | None]:
            raw = RawBatch(rows, np.arange(1, rows.num_rows + 1, dtype=np.int64))
            return raw, offset or None, stream.latest + 1 if last and stream.pushed else None

        if not fed(self._live, stream, made, self._stop, self._refused):
            return False
        self.error = None
        self._places = offset
        return True

    def _refused(self, why: str) -> None:
        """Rows wait; meanwhile the queue of the sources holds them."""
        self.error = why
