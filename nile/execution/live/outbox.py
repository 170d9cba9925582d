"""Outputs of a standing query: numbered from 0 in their order, kept until somebody reads them, and handed out."""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from nile.base.interrupts import INTERRUPTS
from nile.base.sizes import format_size
from nile.execution.live.commits import Commits
from nile.execution.live.into import Into
from nile.execution.live.unread import Filed, Files, Unread
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError, DatabaseClosed, EnvelopeError, Overloaded
from nile.summaries.heavy import pa

__all__ = ["Outbox"]


class Outbox(ABC):  # what a standing query does is told in `Subscription`
    """What a standing query has found, until it is read: by `poll`, iteration, `follow` or a callback."""

    schema: pa.Schema
    _may_drop = True
    _place: Any = None
    """Where else its outputs are found (`nile.execution.live.indexed`); None: nowhere."""

    def __init__(self, commits: Commits, callback: Callable[[pa.RecordBatch], None] | None) -> None:
        self._callback = callback
        self._commits = commits
        self._lock = commits.lock
        self._changed = threading.Condition(commits.lock)
        self._waits = Unread()
        self._closed = False
        self._left_to_store = False
        self._handed = 0
        self._streams: dict[str, LiveStream] = {}
        self._unread_limit: int | None = None
        self._most_bytes: int | None = None
        self._when_full = "wait"
        self._tick: Callable[[], None] = lambda: None
        self._fault: BaseException | None = None
        self.into: Into | None = None
        self.reader: object | None = None
        """Who alone may read: a sink, whose rows these are."""
        self._hearing: list[Callable[[], None]] = []
        self._outputs = 0
        self._was_read = False
        self.dropped = 0

    @property
    def closed(self) -> bool:
        """Whether it takes no more tuples."""
        return self._closed

    @property
    def streams(self) -> Mapping[str, LiveStream]:
        """The live streams it reads, by name."""
        return self._streams

    @property
    def outputs(self) -> int:
        """How many it has found so far."""
        return self._outputs + self._elsewhere()

    @outputs.setter
    def outputs(self, outputs: int) -> None:
        self._outputs = outputs - self._elsewhere()

    @property
    def hearing(self) -> list[Callable[[], None]]:
        """Called under the lock when there may be more to `peek` at, or it has ended; they must not wait or raise."""
        self._heed()
        return self._hearing

    @property
    def _found(self) -> Unread:
        """What waits for the reader, all of it here."""
        if self._place is not None:
            self._fetch()
        return self._waits

    def _fetch(self) -> None:  # noqa: B027
        """Bring here what was found for it elsewhere (`nile.execution.live.indexed`)."""

    def _elsewhere(self) -> int:
        """Outputs that are counted elsewhere, since that began."""
        return 0

    def _bytes_elsewhere(self) -> int:
        """Bytes of unread rows that wait elsewhere."""
        return 0

    def _heed(self) -> None:  # noqa: B027
        """Somebody waits for more."""

    @property
    def unread(self) -> int:
        """Unread rows."""
        return self.outputs - self._handed

    @property
    def has_reader(self) -> bool:
        """Whether a callback, a sink or a stream reads it, or somebody has since it was made or its store opened."""
        return self._was_read or any(each is not None for each in (self._callback, self.reader, self.into))

    @property
    def unread_bytes(self) -> int:
        """Bytes of memory of unread rows; those in files of the store take none."""
        with self._lock:
            return self._waits.bytes + self._bytes_elsewhere()

    @property
    def full(self) -> bool:
        """Whether pushes have to wait for its reader."""
        limit = self._unread_limit
        if self._callback is not None or self._closed:
            return False
        if limit is None:
            return self._most_bytes is not None and self.unread_bytes >= self._most_bytes
        return self.unread >= limit and self._when_full != "drop"

    def bound(
        self, unread: int | None, when_full: str, tick: Callable[[], None], most_bytes: int | None = None
    ) -> None:
        """How many rows may wait, and what then; tick: called before reading, for streams that are silent.

        most_bytes: of memory that rows without such a limit may take, None where files of a store take the rest.

        Raises ConfigError.
        """
        choices = ("wait", "refuse", "drop")
        if when_full not in choices or (unread is not None and (type(unread) is not int or unread < 1)):
            raise ConfigError(
                f"subscribe: needed unread=None or a number of rows, and when_full one of {', '.join(choices)}; got "
                f"{unread!r} and {when_full!r}; leave them out for no limit"
            )
        if unread is not None and when_full == "drop" and not self._may_drop:
            raise ConfigError(
                "subscribe, when_full: needed 'wait' or 'refuse' for a query that emits changes, which mean nothing "
                "with some of them gone; got 'drop'; or say emit='append'"
            )
        self._unread_limit, self._when_full, self._tick = unread, when_full, tick
        self._most_bytes = most_bytes

    def wait_for_reader(self) -> None:
        """Wait until there is room for outputs.  Raises Overloaded where the query refuses, or was given no limit."""
        if self._unread_limit is None:
            raise Overloaded(
                f"push: needed less than {format_size(self._most_bytes or 0)} of outputs that nobody reads of a "
                f"standing query over {', '.join(self._streams)}; got {self.unread:,} rows, "
                f"{format_size(self.unread_bytes)}; nothing was taken: poll() it or close() it, then push the same "
                "again; or subscribe with unread= and when_full='wait' or 'drop', or in a database with a store, where "
                "they go to files"
            )
        if self._when_full == "refuse":
            raise Overloaded(
                f"push: needed fewer than {self._unread_limit} rows unread of a standing query over "
                f"{', '.join(self._streams)}; got {self.unread}; nothing was taken: read them, then push the same again"
            )
        while self.full:
            self._changed.wait()

    def poll(self) -> list[pa.RecordBatch]:
        """Batches found since the last call.  Never blocks."""
        return self._read(lambda found: [batch for _, batch in found])  # type: ignore[no-any-return]

    def poll_numbered(self) -> list[tuple[int, pa.RecordBatch]]:
        """Like `poll`, as pairs of the ordinal of its first row and a batch."""
        return self._read(lambda found: found)  # type: ignore[no-any-return]

    def peek(self, ordinal: int, most: int, by: object = None) -> list[tuple[int, pa.RecordBatch]]:
        """As `poll_numbered`, from the output `ordinal` on and until they take `most` bytes; all of it goes on waiting.

        For readers who may come back for it: `release` lets go.  by: who asks.  Raises what ended the query, after all
        outputs.
        """
        with self._lock:
            self._check_here(by)
            self._was_read = True
            self._commits.check()
            self._tick()
            found = self._found.numbered(self._handed, ordinal, most)
            if not found and self._fault is not None:
                raise self._fault
            return found

    def release(self, ordinal: int) -> None:
        """Let go of the outputs before `ordinal`: they were handed out, or nobody will come for them."""
        with self._lock, INTERRUPTS:
            self._let_go(min(ordinal, self.outputs) - self._handed)
            self._changed.notify_all()

    def _read(self, form: Callable[[list[tuple[int, pa.RecordBatch]]], Any]) -> Any:
        """All that waits, numbered.  A reader who is interrupted before it has them finds them there again."""
        found: list[tuple[int, pa.RecordBatch]] = []
        try:
            with self._lock:
                self._check_here()
                self._was_read = True
                self._commits.check()
                self._tick()
                self._unread(found)
                fault, self._fault = (None, self._fault) if found else (self._fault, None)
                if fault is not None:
                    raise fault
                return form(found)
        except BaseException:
            with self._lock, INTERRUPTS:
                self._put_back(found)
            raise

    def _check_here(self, by: object = None) -> None:
        """Raises DatabaseClosed, and ConfigError for a reader of what a sink sends."""
        if self.reader is not None and by is not self.reader:
            raise ConfigError(
                f"standing query over {', '.join(self._streams)}: needed one that is read; got one whose rows go to a "
                "sink; ask the same query under another name"
            )
        if self._left_to_store:
            raise DatabaseClosed(
                f"standing query over {', '.join(self._streams)}: needed an open database; got one after close(), "
                f"whose store keeps what nobody has read ({self.unread:,} rows); open the store and ask by its name"
            )

    @property
    def ordinal(self) -> int:
        """Outputs handed out so far: in a callback the ordinal of the first row of the batch it was called with."""
        return self._handed

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while found := self.poll():
            yield from found

    def follow(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """Batches as they are found, until closed.  timeout: end after waiting this many seconds for the next."""
        self._check_here()
        while True:
            with self._changed:
                self._heed()
                self._tick()
                if not self._found and not self._closed:
                    self._changed.wait(timeout)
            try:
                found = Outbox.poll(self)
            except DatabaseClosed:  # while it was followed: the store keeps the rest
                return
            if not found:
                return
            yield from found

    def tell(self) -> None:
        """Call the callback with what waits.  A batch waits until the call is over: checkpoints meanwhile hold it."""
        found = self._found
        while (call := self._callback) is not None and found.waiting:
            fault = INTERRUPTS.calling(call, found.waiting[0])
            if fault is not None:
                self._commits.fault(fault)
            self._handed += found.popleft().num_rows

    def seal(self, files: Files, least: int) -> None:
        """Move outputs that wait to a file of the store, if they take more than `least` bytes of memory.

        A callback's are in memory until it has been told.  Raises StoreWriteError: then nothing has moved.
        """
        if self._callback is None:
            self._found.seal(files, self.schema, least)

    def filed(self) -> list[Filed]:
        """The outputs that wait in files, before all others."""
        return self._found.filed()

    def read_through(self) -> list[Any]:
        """Files whose outputs wait no longer, told once."""
        return self._found.read_through()

    def refill(self, filed: Sequence[Filed]) -> None:
        """Put back what waits in files, after what `capture` gave has been.  Raises EnvelopeError."""
        tail = list(self._found)
        waiting = sum(map(len, tail)) + sum(each.batch.num_rows for each in filed)
        if waiting != self.unread:
            raise EnvelopeError(
                f"state of a standing query: needed {self.unread} outputs that wait; got {waiting}; the bytes are not "
                "what Nile wrote"
            )
        self._found.adopt(filed, tail)

    def _unread(self, found: list[tuple[int, pa.RecordBatch]]) -> None:
        """Hand out what waits, but to a callback, which will be told."""
        if self._callback is not None:
            return
        with INTERRUPTS:
            ends = list(accumulate(map(len, self._found), initial=self._handed))
            found += zip(ends, self._found, strict=False)
            self._handed = ends[-1]
            self._found.clear()
            self._changed.notify_all()

    def _put_back(self, found: list[tuple[int, pa.RecordBatch]]) -> None:
        if found and not (self._found and self._found.first is found[0][1]):
            self._found.put_back(batch for _, batch in found)
        self._handed = found[0][0] if found else self._handed

    def _hand_out(self, batch: pa.RecordBatch) -> None:
        """Number a batch of outputs and give it to whoever reads."""
        if not (rows := batch.num_rows):
            return
        self._outputs += rows
        if self.into is not None:
            self._handed = self.outputs
            self.into.take(batch)
            return
        (self._waits if self._place is None else self._found).waiting.append(batch)
        if self._callback is not None:
            self._commits.wake(self)
            return
        if self._unread_limit is not None and self._when_full == "drop":
            self.dropped += self._let_go(self.unread - self._unread_limit)
        self._say_more()

    def _say_more(self) -> None:
        """To whoever waits for outputs."""
        self._changed.notify_all()
        for hear in self._hearing:
            hear()

    def _let_go(self, rows: int) -> int:
        """Let the oldest outputs go; how many."""
        before = self._handed
        while rows > 0:
            gone = min(rows, len(self._found.first))
            if gone < len(self._found.first):
                self._found.shorten(gone)
            else:
                self._found.popleft()
            self._handed += gone
            rows -= gone
        return self._handed - before
