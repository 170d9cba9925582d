"""The standing queries of a database: which there are, which have a name, and what is done to all of them."""

from __future__ import annotations

from collections.abc import Mapping

from nile.base.machine import memory_bytes
from nile.base.sizes import format_size
from nile.execution.definitions import QueryDefinition
from nile.execution.live.subscription import Subscription
from nile.execution.live.unread import Files
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError, Overloaded, UnknownStream

__all__ = ["Subscriptions"]

_LOOK_EVERY = 1 << 16
"""Tuples of a stream between two looks at what its standing queries hold."""
_STATE_SHARE = 4
"""Of this machine's memory: what a standing query's state may take."""


class Subscriptions:
    """Standing queries in the order in which they were asked.  Not safe for threads: used under the lock of `Live`."""

    def __init__(self) -> None:
        self._running: list[Subscription] = []
        self._named: dict[str, tuple[QueryDefinition, Subscription]] = {}
        self._looked: dict[str, int] = {}

    def add(self, made: Subscription, name: str | None = None, definition: QueryDefinition | None = None) -> None:
        """One more; with a name, and what was asked, it can be found again."""
        self._running = [*(one for one in self._running if not one.closed), made]
        if name is not None and definition is not None:
            self._named[name] = (definition, made)

    def named(self) -> dict[str, tuple[QueryDefinition, Subscription]]:
        """Those that have a name and are open: what was asked, and the query."""
        self._named = {name: pair for name, pair in self._named.items() if not pair[1].closed}
        return dict(self._named)

    def get(self, name: str) -> Subscription:
        """The one of this name.  Raises UnknownStream."""
        named = self.named()
        if name not in named:
            known = ", ".join(named) or "none"
            raise UnknownStream(
                f"standing query {name!r}: needed one of those with a name ({known}); make it with "
                f"db.subscribe(text, name={name!r})"
            )
        return named[name][1]

    def asked_again(self, name: str | None, definition: QueryDefinition) -> Subscription | None:
        """The one that has this name already; None: there is none.  Raises ConfigError for another query."""
        named = self.named()
        if name is None or name not in named:
            return None
        known, held = named[name]
        if known != definition:
            raise ConfigError(
                f"standing query {name!r}: needed the query that has this name, {known.text!r}; got "
                f"{definition.text!r} or other options; close that one, or take another name"
            )
        return held

    def check_free(self, stream: LiveStream) -> None:
        """That a live stream may go, or be replaced.  Raises ConfigError."""
        stream.check_whole("DROP")
        readers = [name for name, (_, made) in self.named().items() if stream in made.streams.values()]
        if readers:
            raise ConfigError(
                f"stream '{stream.name}': needed a stream that no standing query with a name reads, before it can go; "
                f"got {', '.join(map(repr, readers))}; close it first: db.subscription({readers[0]!r}).close()"
            )

    def arrived(self, stream: LiveStream, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come, for all that read it."""
        for standing in self._running:
            if standing.streams.get(name) is stream:
                standing.arrived(name, batch)

    def all(self) -> list[Subscription]:
        """All, in the order in which they were asked."""
        return list(self._running)

    def over(self) -> list[Mapping[str, LiveStream]]:
        """The streams of each."""
        return [standing.streams for standing in self._running]

    def progress(self) -> None:
        """Let each emit what follows of how far its streams have come."""
        for standing in self._running:
            standing.progress()

    def wait_for_readers(self, stream: LiveStream) -> None:
        """Before a stream takes rows: that no query with a limit has too much unread.  Waiting lets go of the lock.

        Raises Overloaded for a query that refuses.
        """
        while full := [one for one in self._running if one.full and stream in one.streams.values()]:
            for standing in full:
                standing.wait_for_reader()

    def check_state(self, stream: LiveStream) -> None:
        """Before a stream takes rows, now and then: that no query over it holds more than its share of the machine.

        Raises Overloaded.
        """
        seen = stream.accounting.tuples_in // _LOOK_EVERY
        if self._looked.get(stream.name) == seen:
            return
        most = memory_bytes() // _STATE_SHARE
        for standing in self._running:
            if standing.closed or stream not in standing.streams.values():
                continue
            if (held := standing.memory) > most:
                raise Overloaded(
                    f"push: needed less than {format_size(most)} of state of a standing query over "
                    f"{', '.join(standing.streams)}, a quarter of this machine's memory; got {format_size(held)}; "
                    "nothing was taken: close() it, or ask it with a WINDOW, or group by fewer keys"
                )
        self._looked[stream.name] = seen

    def settle(self, files: Files, most: int) -> None:
        """Before rows are taken: move outputs that nobody reads to files, where all take more than `most` bytes.

        Raises StoreWriteError.
        """
        if sum(standing.unread_bytes for standing in self._running) > most:
            for standing in self._running:
                standing.seal(files, most // (2 * len(self._running)))

    def finish(self) -> None:
        """End each: a part of a change."""
        for standing in self._running:
            standing.finish()
        self._forget()

    def detach(self, *, stored: bool) -> None:
        """Let each go without an end: a store goes on with those that have a name, and with what they hold unread."""
        named = [held for _, held in self.named().values()] if stored else []
        for standing in self._running:
            standing.detach(left_to_store=standing in named)
        self._forget()

    def _forget(self) -> None:
        self._running.clear()
        self._named.clear()
