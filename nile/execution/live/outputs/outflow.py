"""Standing queries whose outputs a sink sends on: each is let go once the receiver has it.

    query -> unread outputs (in memory, or files of the store) -> sent, by a thread of the sink's -> released

What a checkpoint has not as released is sent again after a kill, under the same (query, epoch, ordinal).
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from nile.execution.definitions import QueryDefinition, Sends
from nile.execution.live.subscription import Subscription
from nile.sensors.connectors.messages import shown_address
from nile.sensors.sinks.making import sink_of
from nile.sensors.sinks.sink import Sink
from nile.summaries.errors import DatabaseClosed, DatabaseTorn

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["Outflow", "Outflows", "into_of"]

_LOOK = 0.5
"""Seconds between two looks at whether there is more, where nobody says so."""
_PIECE = 4 << 20
"""Bytes of outputs that are looked at together."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 30.0
_PATIENCE = 12.0
"""Seconds that closing waits for a sink to take what is left, or to come back."""


class Outflow:
    """Sends the outputs of one standing query, until it has ended and all of them are there.

    state: "starting", "open", "waiting" (after an error, to be tried again) or "closed"; error: what went wrong last;
    sent: rows that the receiver has.
    """

    def __init__(self, live: Live, name: str, standing: Subscription, sends: Sends) -> None:
        self.name = name
        self.sends = sends
        self.standing = standing
        self.state, self.error, self.sent = "starting", None, 0
        self._live = live
        self._sink: Sink | None = None
        self._epoch = time.time_ns() if standing.epoch is None else standing.epoch
        self._news, self._stop, self._last = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nile sends {name}", daemon=True)
        standing.reader = self
        standing.hearing.append(self._news.set)
        atexit.register(self.drain)
        self._thread.start()

    error: str | None

    @property
    def ended(self) -> bool:
        """Whether it sends no more."""
        return not self._thread.is_alive()

    @property
    def done(self) -> bool:
        """Whether it will send no more."""
        return self.ended or (self.standing.closed and not self.standing.unread)

    def stop(self) -> None:
        """Send nothing more than what is on its way."""
        self._stop.set()
        self._news.set()

    def finish(self) -> None:
        """End once nothing is left, or it cannot be sent."""
        self._last.set()
        self._news.set()

    def join(self) -> None:
        """Wait until it has ended, unless the receiver hangs."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)

    def drain(self) -> None:
        """Send what there is, and end."""
        self.finish()
        self.join()

    def told(self) -> dict[str, Any]:
        """Where it sends, and how that goes: columns of nile_sinks."""
        return {
            "name": self.name, "sends": shown_address(self.sends.address), "using": self.sends.using,
            "state": self.state, "error": self.error, "sent": self.sent, "unread": self.standing.unread,
        }  # fmt: skip

    def _run(self) -> None:
        wait = 0.0
        try:
            while not self._stop.is_set():
                self._news.clear()
                over = self.standing.closed or self._last.is_set()  # asked first: rows and the end may come in between
                found = self.standing.peek(self.standing.ordinal, _PIECE, by=self)
                if not found:
                    if over:
                        break
                    self._news.wait(_LOOK)
                    continue
                try:
                    for ordinal, batch in found:
                        self._send(ordinal, batch)
                    wait = 0.0
                except Exception as error:
                    self._failed(error, wait == 0.0)
                    if self._last.is_set() or self.standing.closed:
                        break  # nobody is left who would wait
                    wait = min(2 * wait, _LONGEST_WAIT) if wait else _FIRST_WAIT
                    self._stop.wait(wait)
        except (DatabaseClosed, DatabaseTorn):
            pass
        except BaseException as error:  # of the query, which has ended by it: it has been told
            self.error = f"{type(error).__name__}: {error}"[:500]
        finally:
            self._close()
            self.state = "closed"
            atexit.unregister(self.drain)
        left = self.standing.unread
        if left and not self._stop.is_set() and (self.standing.epoch is None or self.standing.closed):
            warnings.warn(
                f"sink '{self.name}': needed {shown_address(self.sends.address)} to take the last {left:,} rows; got "
                f"{self.error}; they were not sent",
                RuntimeWarning,
                stacklevel=2,
            )

    def _send(self, ordinal: int, batch: Any) -> None:
        """Send a batch in pieces, and let go of each that is there."""
        if self._sink is None:
            self._sink = sink_of(self.sends.using, self.sends.address, self.standing.schema)
            self._sink.open()
        for at in range(0, batch.num_rows, self._sink.rows):
            if self._stop.is_set():
                return
            rows = batch.slice(at, self._sink.rows)
            first, after = ordinal + at, ordinal + at + rows.num_rows
            self._sink.send(rows, [f"{self.name}:{self._epoch}:{k}" for k in range(first, after)])
            self.standing.release(after)
            self.sent += rows.num_rows
            self.state, self.error = "open", None

    def _failed(self, error: Exception, first: bool) -> None:
        """What could not be sent is kept, and tried again."""
        self._close()
        self.state, self.error = "waiting", f"{type(error).__name__}: {error}"[:500]
        if first:
            warnings.warn(
                f"sink '{self.name}': needed {shown_address(self.sends.address)} to take rows; got {self.error}; they "
                "wait, and are sent again until it does",
                RuntimeWarning,
                stacklevel=2,
            )

    def _close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                sink.close()
            except Exception as error:
                self.error = self.error or f"close: {type(error).__name__}: {error}"[:500]


class Outflows:
    """The sinks of a database, each on a thread while its query is known."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._running: dict[int, Outflow] = {}  # by the identity of their query, which they hold

    def follow(self) -> None:
        """Begin those of new queries, and forget those that have ended.  Under the lock."""
        self._running = {key: each for key, each in self._running.items() if not each.ended}
        for name, (definition, standing) in self._live.standing.named().items():
            if definition.sends is not None and id(standing) not in self._running:
                self._running[id(standing)] = Outflow(self._live, name, standing, definition.sends)

    def all(self) -> list[Outflow]:
        """Those that there are, in the order in which they were made."""
        return list(self._running.values())

    def stop(self) -> None:
        """Send nothing more: what is left is for the next process.  Not under the lock."""
        for each in self.all():
            each.stop()
        for each in self.all():
            each.join()

    def drain(self) -> None:
        """Send what is left of queries that have ended.  Not under the lock."""
        for each in self.all():
            each.finish()
        for each in self.all():
            each.join()


def into_of(definition: QueryDefinition) -> str | None:
    """Where the rows of a standing query go: a stream, a relation, or an address; None: to whoever reads it."""
    if definition.sends is not None:
        return f"{definition.sends.using} {shown_address(definition.sends.address)}"
    return None if definition.into is None else definition.into.stream
