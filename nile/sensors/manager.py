"""The stream manager of a table of sensors: which sources run, and which query gets which tuples."""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from collections import deque
from contextlib import suppress
from typing import Any

from nile.base.interrupts import INTERRUPTS
from nile.sensors.awaiting import Awaiter
from nile.sensors.intake import ENDED, Intake
from nile.sensors.polling import NAME, Poller
from nile.sensors.port import Port
from nile.sensors.scan import Scan, hand_out
from nile.sensors.sensor import is_async
from nile.sensors.table import Rows, Table
from nile.summaries.heavy import pa

__all__ = ["SensorManager"]

_PATIENCE = 5.0
"""Seconds that closing a query waits for its sources to be closed; those that hang are closed later."""
_BEGUN = 0.2
"""Seconds after which who waits for a query to begin looks whether there is a thread that begins it."""
_PIECE = 0.05
"""Seconds for which Ctrl-C waits while somebody waits."""
_PARTS = 6
"""Entries of what has arrived for each value."""


class SensorManager:
    """Runs while a query reads the table.

    A source is begun for the first query that wants it and closed after the last; what it gives goes to all of them.
    What this knows is changed by the thread that polls alone.  Source: STEAM, sections 5 and 5.2.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._kind = table.spec.kind
        self._intake = Intake(table.spec)
        self._arrived: deque[Any] = deque()  # of each value six entries: what `Given` says
        self._ports: dict[int, Port] = {}
        self._known: dict[int, Port] = {}
        self._scans: dict[Scan, None] = {}
        self._poller = Poller(self)
        self._awaiter: Awaiter | None = None
        self._full = False
        self._warned = 0
        table.changed, table.ports = self._rows_changed, self._sources

    def open(self, scan: Scan) -> None:
        """Begin the sources that a query wants; which ones they are is known on return."""
        begun = threading.Event()

        def attach() -> None:
            if scan.closed.is_set():
                begun.set()
                return
            while self.waiting():
                self.gather()  # what was given before is of no query that begins now
            if not self._scans:
                self._known.clear()
                self._warned = 0
                atexit.register(self._exit)
            self._scans[scan] = None
            self._follow(scan, self.table.rows)
            begun.set()

        self._poller.note(attach)
        while not _waited(begun, _BEGUN):
            self._poller.start()

    def close(self, scan: Scan) -> None:
        """Let go of a query's sources; those that nobody else reads are closed when it returns, unless they hang."""
        with INTERRUPTS:
            scan.queue.close()
            self._poller.note(lambda: self._detach(scan))
            if not self._poller.running:  # then it reads nothing, and what is noted of it begins nothing
                scan.closed.set()
        if threading.current_thread().name.startswith(NAME):
            return  # the garbage collector runs anywhere
        until = time.monotonic() + _PATIENCE
        if _waited(scan.closed, _PATIENCE):
            for port in scan.left:
                _waited(port.closed, until - time.monotonic())

    # --- what the thread that polls does beside (`Work`) ----------------------------------------------------------

    def give(self, port: Port, found: tuple[Any, ...] | None) -> bool:
        if found is not None and port.gone.is_set():
            return False  # it hung in its call, and meanwhile nobody reads it
        first = not self._arrived
        value, said = (ENDED, None) if found is None else (found[1], found[2] if len(found) == 3 else None)
        # One after the other, in one piece: thousands of tuples that wait would have the garbage collector look at all.
        self._arrived.extend((port, port.version, value, said, time.time_ns(), port.told_place()))
        return first

    def waiting(self) -> int:
        return len(self._arrived) // _PARTS

    def full(self) -> bool:
        return self._full

    def look(self) -> bool:
        self._full = any(scan.queue.full for scan in self._scans)
        return self._full

    def over(self) -> bool:
        if self._scans or self._ports:
            return False
        if self._awaiter is not None:
            if any(port.gone.is_set() and not port.closed.is_set() for port in self._known.values()):
                return False
            self._awaiter.stop()
            self._awaiter = None
        return True

    def gather(self) -> None:
        given = [self._arrived.popleft() for _ in range(self.waiting() * _PARTS)]
        ports, values = given[::_PARTS], given[2::_PARTS]
        rest = (given[k::_PARTS] for k in range(3, _PARTS))
        batch = self._intake.rows(zip(ports, given[1::_PARTS], values, *rest, strict=True))
        if batch.num_rows:
            hand_out(batch, self._scans)
        if any(value is ENDED for value in values):
            for port, value in zip(ports, values, strict=True):
                if value is ENDED:
                    self._has_ended(port)

    # --- queries and rows -----------------------------------------------------------------------------------------

    def _has_ended(self, port: Port) -> None:
        self._warn_of(port)
        for scan in self._scans:
            if scan.ports.get(port.row) is port:
                del scan.ports[port.row]
                scan.past[port.row] = port
                scan.finish()
        if self._ports.get(port.row) is port:
            del self._ports[port.row]

    def _warn_of(self, port: Port) -> None:
        """Warn of a source that has failed for good: the first, and whenever there are twice as many as at the last
        warning; not where queries fail with it, since there is nothing else (`SensorsSource.placed`)."""
        if port.state != "failed":
            return
        failed = [each for each in self._known.values() if each.state == "failed"]
        if len(failed) == len(self._known) and not any(each.accounting.tuples_in for each in failed):
            return
        if len(failed) < 2 * self._warned:
            return
        self._warned, name = len(failed), self.table.spec.name
        others = f", and {len(failed) - 1:,} before it" if len(failed) > 1 else ""
        with suppress(RuntimeWarning):  # as an error it would end the thread that reads all the others
            warnings.warn(
                f"sensors '{name}': needed values of {port.address!r}; got {port.error}, after {port.restarts} restarts"
                f"; it has failed for good{others}, and is read no more: mend it and ask again, or give its row "
                f"another address (db.sensors('{name}').sources() has the state of each)",
                RuntimeWarning,
                stacklevel=2,
            )

    def _rows_changed(self) -> None:
        if self._poller.running:
            self._poller.note(self._follow_rows)

    def _detach(self, scan: Scan) -> None:
        if scan in self._scans:
            del self._scans[scan]
            for port in list(scan.ports.values()):
                self._leave(scan, port)
            if not self._scans:
                atexit.unregister(self._exit)
        scan.closed.set()

    def _follow_rows(self) -> None:
        """Rows changed: begin, keep, begin anew and close sources as each query wants them now."""
        rows = self.table.rows
        for row, port in list(self._ports.items()):
            at = rows.current.get(row)
            values = None if at is None else rows.versions.slice(at, 1).to_pylist()[0] if at != port.version else None
            if at is None or (values is not None and values[self.table.spec.stream] != port.address):
                for scan in self._scans:
                    if scan.ports.get(row) is port:
                        self._leave(scan, port)
            elif values is not None:
                port.version, port.static = at, values
        for scan in self._scans:
            self._follow(scan, rows)

    def _follow(self, scan: Scan, rows: Rows) -> None:
        """Have a query read what it wants of the rows."""
        wanted = scan.learn(rows)
        for row, port in list(scan.ports.items()):
            if row not in wanted:
                self._leave(scan, port)
        missing = [row for row in wanted if row not in scan.ports]
        new = [row for row in missing if row not in self._ports]
        static = rows.versions.take(pa.array([wanted[row] for row in new], pa.int64())).to_pylist()
        made, spec = {}, self.table.spec
        for row, values in zip(new, static, strict=True):
            at = values[spec.stream]
            made[row] = Port(self._kind, spec.fields, row, wanted[row], at, values, scan.places.get(at))
        for row in missing:
            past = scan.past.get(row)
            if past is not None and row in made and past.address == made[row].address:
                continue  # it has ended, and is not another one by now
            if row in made:
                self._begin(made[row])
            port = self._ports[row]
            port.queries += 1
            scan.ports[row] = port
        scan.finish()

    def _begin(self, port: Port) -> None:
        self._ports[port.row] = self._known[port.row] = port
        if not is_async(self._kind):
            self._poller.begin(port)
            return
        if self._awaiter is None:
            self._awaiter = Awaiter(self._awaited, self.full)
        self._awaiter.begin(port)

    def _awaited(self, port: Port, found: tuple[Any, ...] | None) -> None:
        if self.give(port, found):
            self._poller.ring()

    def _leave(self, scan: Scan, port: Port) -> None:
        """A query reads a source no longer; it is closed when none does."""
        del scan.ports[port.row]
        port.queries -= 1
        if port.queries:
            return
        scan.left.append(port)
        if self._ports.get(port.row) is port:
            del self._ports[port.row]
        port.gone.set()
        if port.closed.is_set():
            return
        if self._awaiter is not None:
            self._awaiter.leave(port)
        else:
            self._poller.leave(port)

    def _sources(self) -> list[Port]:
        """Those that are read, and those that were since somebody last began to; in the order of rows."""
        return [port for _, port in sorted(self._known.items())]

    def _exit(self) -> None:
        """At the end of the process: every source is closed."""
        for scan in list(self._scans):
            self.close(scan)


def _waited(event: threading.Event, seconds: float) -> bool:
    """Whether an event came within these seconds.

    In pieces in which no signal's handler runs: what one raises between the taking of an event's lock and the block
    that gives it back would leave it taken, and who sets the event would wait forever.
    """
    until = time.monotonic() + seconds
    while not event.is_set():
        left = until - time.monotonic()
        if left <= 0.0:
            return False
        with INTERRUPTS:
            event.wait(min(left, _PIECE))
    return True
