"""Live streams that a connector fills: what it reads is pushed with the place it has reached, in one change.

    connector -> read (on a thread of the stream's) -> rows, and messages that fit nothing -> taken, with the offset
                                                    -> checkpoint, where the server is then told to forget it

A store commits rows and offset together, so a process that is killed goes on behind the last rows it has kept.
"""

from __future__ import annotations

import atexit
import select
import threading
import time
import warnings
import zlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.raw import Malformed, RawBatch
from nile.execution.definitions import Reads
from nile.execution.live.inputs.handing_over import fed
from nile.execution.live.inputs.tabled import Tabled
from nile.sensors.connectors import CONNECTORS
from nile.sensors.connectors.messages import shown_address
from nile.sensors.intake import TIMELESS, fitting, nanoseconds
from nile.sensors.port import Port, plain
from nile.sensors.sensor import NO_VALUE, sensor_class
from nile.sensors.table import TIME
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError, DatabaseClosed, UnknownStream
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["Inflow", "Inflows"]

_LOOK = 0.1
"""Seconds between two looks at whether the stream is still wanted."""
_GATHER = 0.05
"""Seconds from one read to the next of a server that sends on only once it is told of a checkpoint."""
_PATIENCE = 6.0
"""Seconds that closing waits for a connector's call to come back."""
_SOON = 10.0
"""Seconds at most for what is there at first to be read before CREATE STREAM returns."""
_TOLD = 1.0
"""Seconds until it is warned of what CREATE STREAM would have refused, had it been asked."""
_LATER = 0.2
"""Seconds until the next read from which on nothing more is there now."""
_QUIET = 10
"""Looks without anything to read from which on nothing more is there now."""
_SHOWN = 200
"""Characters of a message that is set aside."""


class Inflow:
    """Reads one connector until its stream is gone, closed, or the connector has ended or failed.

    port: its state, errors and restarts, as of a source of a table of sensors.
    """

    def __init__(self, live: Live, stream: LiveStream, reads: Reads, fields: pa.Schema, place: Any) -> None:
        kind = sensor_class(CONNECTORS[reads.using], where=f"stream '{stream.name}'")
        self.stream = stream
        self.reads = reads
        self.port = Port(kind, fields, 0, 0, reads.address, {}, place)
        self._live = live
        self._fields = fields
        self._stop = threading.Event()
        self._up = threading.Event()
        self._place = place
        keeper = live.keeper
        self._arrivals = None if keeper is None or keeper.directory.read_only else keeper.arrivals
        self._source = f"{stream.name} {zlib.crc32(reads.address.encode()):08x}"  # an address may hold a password
        self._ahead = [] if self._arrivals is None else self._arrivals.ahead(self._source, place)
        self._unsaved = False
        self._lost = False
        self._opened, self._awaited = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nile reads {stream.name}", daemon=True)
        atexit.register(self.end)
        self._thread.start()

    def stop(self) -> None:
        """Read no more; what has been read is still taken in or comes again."""
        self._stop.set()

    def end(self) -> None:
        """Stop, and wait until the connector is closed, unless it hangs."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)

    def read_up(self) -> None:
        """Wait until what was there when it began has been taken in, or cannot be, for ten seconds at most."""
        self._awaited.set()
        self._up.wait(_SOON)

    @property
    def refused(self) -> str | None:
        """Why its connector can never begin, as of an address that is none; None: it can, or it did."""
        return None if self._opened or self.port.state != "failed" else self.port.error

    def told(self) -> dict[str, Any]:
        """Where it reads, and how that goes: columns of nile_sources."""
        return {"reads": shown_address(self.reads.address), "state": self.port.state, "error": self.port.error}

    def _run(self) -> None:
        port, quiet = self.port, 0
        try:
            while not self._stop.is_set() and port.live:
                if (wait := port.due - time.monotonic()) > 0:
                    self._stop.wait(min(wait, _LOOK))
                elif not port.ready or self._readable():
                    quiet = 0
                    self._step()
                elif (quiet := quiet + 1) >= _QUIET:
                    self._up.set()
        except (DatabaseClosed, UnknownStream):
            self._lost = True  # nobody wants it any more
        except BaseException as error:  # this thread has nobody above it
            port.error, port.state, self._lost = f"{type(error).__name__}: {error}", "failed", True
        finally:
            self._up.set()
            self._let_go()
            atexit.unregister(self.end)
            if port.live:
                port.state = "closed"
        if port.state == "failed" and not (self.refused and self._awaited.wait(_TOLD)):
            warnings.warn(
                f"stream '{self.stream.name}': needed what can be read from {shown_address(self.reads.address)}; got "
                f"{port.error}; it is read no more: make the stream again (CREATE OR REPLACE STREAM)",
                RuntimeWarning,
                stacklevel=2,
            )

    def _readable(self) -> bool:
        descriptor = self.port.descriptor()
        if descriptor is None:
            return True
        try:
            return bool(select.select([descriptor], [], [], _LOOK)[0])
        except (OSError, ValueError):
            return True  # read says what is wrong

    def _step(self) -> None:
        port = self.port
        if self._unsaved and self._acknowledges:
            self._save()
        if port.instance is not None:
            port.instance.made.ahead = self._ahead  # type: ignore[attr-defined]
        found = port.step()
        ended = port.follow(found, time.monotonic())
        self._opened |= port.state == "open"
        instance = port.instance
        place = None if instance is None else plain(instance.made.place)
        if port.state == "open" and (isinstance(found, tuple) or place != self._place):
            self._take(found if isinstance(found, tuple) else (None, ()), place)
        if found is NO_VALUE or isinstance(found, BaseException) or port.due - time.monotonic() > _LATER:
            self._up.set()
        if self._acknowledges and self._unsaved:
            port.due = max(port.due, time.monotonic() + _GATHER)
        if ended or port.state != "open":
            self._let_go()

    @property
    def _acknowledges(self) -> bool:
        instance = self.port.instance
        return instance is not None and bool(getattr(instance.made, "acknowledges", False))

    def _let_go(self) -> None:
        """Close the instance, if there is one; what was not taken in or not saved is not acknowledged."""
        if self._unsaved and self._acknowledges and not self._lost:
            try:
                self._save()
            except Exception:
                self._lost = True
        instance = self.port.let_go()
        if instance is None:
            return
        instance.made.given = not self._lost  # type: ignore[attr-defined]
        if (error := instance.end()) is not None:
            self.port.note_closing(error)

    def _save(self) -> None:
        """What was read is in the store before the server may forget it."""
        if self._live.keeper is not None:
            self._live.checkpoint()
        self._unsaved = False

    def _take(self, found: tuple[Any, ...], place: Any) -> None:
        """Push what was read, as soon as it may be; where the stream goes meanwhile, it comes again."""
        instance = self.port.instance
        several = instance is not None and bool(getattr(instance.made, "several", False))

        def rows() -> tuple[RawBatch, Any, int | None]:
            if several and self._arrivals is not None:
                self._arrivals.add(self._source, self._place, place)
            return self._rows(found, place)

        if not fed(self._live, self.stream, rows, self._stop, self._refused_rows):
            self._lost = True
            return
        self._place, self._unsaved = place, True

    def _refused_rows(self, why: str) -> None:
        self.port.error = why

    def _rows(self, found: tuple[Any, ...], place: Any) -> tuple[RawBatch, Any, int | None]:
        """(what a read gave, as rows of the stream and what is set aside there; the place; before which ns none comes).

        What has no time of its own is stamped with that of arrival, which never falls: so standing queries need not
        wait for the next message to be sure that this one is the last of its time.
        """
        reached: int | None = None
        batch = self._is_batch()
        values: Sequence[Any] = list(found[1]) if batch else [found[1]]
        times: Sequence[Any] = [None] * len(values)
        if len(found) == 3 and found[2] is not None:
            times = list(found[2]) if batch else [found[2]]
        malformed = []
        numbers, stamps = np.arange(1, len(values) + 1), np.zeros(0, np.int64)
        if TIME not in self._fields.names and self.stream.time == TIME:
            last, told = max(time.time_ns(), self.stream.latest), []
            reached = last + 1 if times and all(said is None for said in times) else None
            kept = []
            for k, said in enumerate(times):
                at = last if said is None else nanoseconds(said)
                if at is None:
                    malformed.append(Malformed(k + 1, TIMELESS, repr(values[k])[:_SHOWN]))
                    continue
                kept.append(k)
                told.append(at)
            values, numbers = [values[k] for k in kept], numbers[kept]
            stamps = np.array(told, np.int64)
        places, columns, misfits = fitting(values, self._fields)
        if misfits:
            malformed += [Malformed(int(numbers[k]), why, repr(values[k])[:_SHOWN]) for k, why in misfits.items()]
            malformed.sort(key=lambda each: each.row)
            numbers = numbers[list(places)]
            stamps = stamps[list(places)] if len(stamps) else stamps
        given = dict(zip(self._fields.names, columns, strict=True))
        if TIME not in given and self.stream.time == TIME:
            given[TIME] = pa.array(stamps, pa.int64()).view(pa.timestamp("ns"))
        arrays = [given[name] for name in self.stream.schema.names]
        batch_of = pa.RecordBatch.from_arrays(arrays, schema=self.stream.schema)
        return RawBatch(batch_of, numbers, malformed), place, reached

    def _is_batch(self) -> bool:
        return self.port.instance is None or self.port.instance.made.batch


class Inflows:
    """The connectors of a database's streams, each on a thread while its stream is known."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._running: dict[LiveStream, Inflow | Tabled] = {}

    def follow(self) -> None:
        """Begin those of new streams, and stop those of streams that are gone.  Under the lock."""
        live = self._live
        known = {
            stream: definition.reads
            for name, stream in live.streams().items()
            if (definition := live.definitions[name]).reads is not None
        }
        tables = {stream: live.names.sensors(reads.address) for stream, reads in known.items() if reads.tabled}
        for stream, inflow in list(self._running.items()):
            table = tables.get(stream)
            if stream not in known or (isinstance(inflow, Tabled) and (not table or table.table is not inflow.table)):
                self._running.pop(stream).stop()
        for stream, reads in known.items():
            if stream in self._running:
                continue
            if (source := tables.get(stream)) is not None:
                self._running[stream] = Tabled(live, stream, reads, source, live.offsets.get(stream.name))
            elif not reads.tabled:
                # A ts that was declared has no nanoseconds: one with them was added, for the time of arrival.
                stamped = pa.field(TIME, pa.timestamp("ns"))
                fields = pa.schema([each for each in stream.schema if each != stamped or stream.time != TIME])
                place = live.offsets.get(stream.name)
                self._running[stream] = Inflow(live, stream, reads, fields, place)

    def check_free(self, stream: LiveStream) -> None:
        """That a stream is one that is pushed to.  Raises ConfigError."""
        if stream in self._running:
            using = self._running[stream].reads.using
            raise ConfigError(
                f"stream '{stream.name}', push: needed a stream that is pushed to; got one that reads {using}; make "
                "another, or send it there"
            )

    def of(self, stream: LiveStream) -> Inflow | Tabled | None:
        """What fills a stream; None: nothing does."""
        return self._running.get(stream)

    def close(self) -> None:
        """Stop all, and wait for them.  Not under the lock."""
        ending = [threading.Thread(target=partial(each.end), daemon=True) for each in self._running.values()]
        for inflow in self._running.values():
            inflow.stop()
        for each in ending:
            each.start()
        for each in ending:
            each.join()
        self._running.clear()
