"""What every standing query over live streams is to its reader: outputs that wait, are numbered, and are handed out."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import Any, Self

from nile.base.interrupts import INTERRUPTS
from nile.base.sizes import format_size
from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State
from nile.execution.live.commits import Commits
from nile.execution.live.unread import Filed, Files, Unread
from nile.preferences.budget import BudgetReport
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError, DatabaseClosed, EnvelopeError, NileError, Overloaded
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Subscription"]


class Subscription(ABC):
    """Outputs numbered from 0 in their order, read by `poll`, iteration, `follow` or a callback.

    A subclass works on what arrives (`_arrived`, `_progress`, `_finish`) and hands what it finds to `_hand_out`.  All
    three are parts of a change (`Commits`); a query that cannot do its part has no way on, and ends.
    """

    schema: pa.Schema
    _may_drop = True

    def __init__(self, commits: Commits, callback: Callable[[pa.RecordBatch], None] | None) -> None:
        self._callback = callback
        self._commits = commits
        self._lock = commits.lock
        self._changed = threading.Condition(commits.lock)
        self._found = Unread()
        self._closed = False
        self._left_to_store = False
        self._handed = 0
        self._streams: dict[str, LiveStream] = {}
        self._unread_limit: int | None = None
        self._most_bytes: int | None = None
        self._when_full = "wait"
        self._tick: Callable[[], None] = lambda: None
        self.outputs = 0
        self.dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it takes no more tuples."""
        return self._closed

    @property
    def streams(self) -> Mapping[str, LiveStream]:
        """The live streams it reads, by name."""
        return self._streams

    @property
    def partial(self) -> tuple[str, ...]:
        """The streams that are silent (`idle`): what is told now is told without them."""
        with self._lock:
            return tuple(name for name, stream in self._streams.items() if stream.silent)

    @property
    def unread(self) -> int:
        """Rows that wait to be read."""
        return self.outputs - self._handed

    @property
    def unread_bytes(self) -> int:
        """Bytes of memory that they take; those in files of the store take none."""
        return self._found.bytes

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

    @property
    @abstractmethod
    def accounting(self) -> dict[str, Accounting]:
        """Of its streams: in = applied + late + shed + rejected."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes held."""

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent so far.  Of an exact query: all of it."""
        return BudgetReport(1.0, 1.0, "fraction", 1.0)

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that could still be reached.  1 of an exact query."""
        return 1.0

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has so far.  Of an exact query: as many as there are."""
        return Estimate.exact(float(self.outputs))

    def poll(self) -> list[pa.RecordBatch]:
        """What has been found since the last call.  Never waits."""
        return self._read(lambda found: [batch for _, batch in found])  # type: ignore[no-any-return]

    def poll_numbered(self) -> list[tuple[int, pa.RecordBatch]]:
        """As `poll`, each batch after the ordinal of its first row."""
        return self._read(lambda found: found)  # type: ignore[no-any-return]

    def _read(self, form: Callable[[list[tuple[int, pa.RecordBatch]]], Any]) -> Any:
        """All that waits, numbered.  A reader who is interrupted before it has them finds them there again."""
        found: list[tuple[int, pa.RecordBatch]] = []
        try:
            with self._lock:
                self._check_here()
                self._commits.check()
                self._tick()
                self._unread(found)
                return form(found)
        except BaseException:
            with self._lock, INTERRUPTS:
                self._put_back(found)
            raise

    def _check_here(self) -> None:
        """Raises DatabaseClosed."""
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
        """Batches as they are found, until closed.  timeout: most seconds to wait for the next; then it ends."""
        self._check_here()
        while True:
            with self._changed:
                self._tick()
                if not self._found and not self._closed:
                    self._changed.wait(timeout)
            try:
                found = Subscription.poll(self)
            except DatabaseClosed:  # while it was followed: the store keeps the rest
                return
            if not found:
                return
            yield from found

    def arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come."""
        self._work(partial(self._arrived, name, batch))

    def progress(self) -> None:
        """Emit what follows of how far the streams have come."""
        self._work(self._progress)

    def finish(self) -> None:
        """Emit what is left, and end: a part of a change."""
        self._work(self._finish)
        self._end()

    def close(self) -> None:
        """No tuple will come any more: emits what is left.  Raises what a callback raises."""
        with self._lock:
            if self._commits.torn:
                self.detach()
            elif not self._closed:
                with self._commits:
                    self.finish()
            self._commits.complain()

    def attach(self, callback: Callable[[pa.RecordBatch], None]) -> None:
        """From now on call this with every batch; first with those that wait.  The next push raises what it raises."""
        self._check_here()
        with self._lock, INTERRUPTS:
            self._callback = callback
            self._commits.wake(self)
            self._commits.tell()

    def detach(self, *, left_to_store: bool = False) -> None:
        """Take leave of the streams without an end: nothing more comes.  left_to_store: one goes on with it."""
        with self._lock, INTERRUPTS:
            self._left_to_store = left_to_store
            self._end()

    def tell(self) -> None:
        """Call the callback with what waits.  A batch waits until the call is over: checkpoints meanwhile hold it."""
        while self._found and self._callback is not None:
            fault = INTERRUPTS.calling(self._callback, self._found.first)
            if fault is not None:
                self._commits.fault(fault)
            self._handed += len(self._found.popleft())

    @abstractmethod
    def capture(self) -> State:
        """All that is held, for `nile.execution.held.flat` and `packed`."""

    @abstractmethod
    def _arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come."""

    @abstractmethod
    def _progress(self) -> None:
        """Emit what follows of how far the streams have come."""

    @abstractmethod
    def _finish(self) -> None:
        """Emit what is left: no tuple will come any more."""

    def _work(self, step: Callable[[], None]) -> None:
        """A part of a change, unless closed.  What it cannot do ends this query alone, and the push raises it."""
        if self._closed:
            return
        try:
            step()
        except Exception as error:
            if isinstance(error, MemoryError) and not isinstance(error, NileError):
                raise  # not the fault of this query: the whole change is off
            error.add_note(f"a standing query over {', '.join(self._streams)} has ended by this")
            self._commits.fault(error)
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._changed.notify_all()

    def _passed(self) -> int | None:
        """The last instant that all streams have passed; None before there is one, and once closed."""
        passed = [stream.passed for stream in self._streams.values()]
        if self._closed or any(at is None for at in passed):
            return None
        return min(at for at in passed if at is not None) - 1

    def _mailbox(self) -> State:
        """Outputs so far, and those that nobody has read, for `capture`; of those in files only how many they are."""
        filed = sum(each.batch.num_rows for each in self._found.filed())
        said = {"outputs": self.outputs, "read": self._handed, "unread": joined(self._found.tail(), self.schema)}
        return {**said, "filed": filed} if filed else said

    def _refill(self, held: Held) -> None:
        """Put back what `_mailbox` gave.  Raises EnvelopeError."""
        self.outputs = held.integer("outputs", 0, MOST)
        self._handed = held.integer("read", 0, self.outputs)
        filed = held.integer("filed", 0, self.outputs - self._handed) if held.has("filed") else 0
        found = held.rows("unread", self.schema, self.outputs - self._handed - filed)
        if found.num_rows:
            self._found.append(found)

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
        if not batch.num_rows:
            return
        self.outputs += batch.num_rows
        self._found.append(batch)
        if self._callback is not None:
            self._commits.wake(self)
            return
        if self._unread_limit is not None and self._when_full == "drop":
            self._drop(self.unread - self._unread_limit)
        self._changed.notify_all()

    def _drop(self, rows: int) -> None:
        """Let the oldest outputs go."""
        while rows > 0:
            gone = min(rows, len(self._found.first))
            if gone < len(self._found.first):
                self._found.shorten(gone)
            else:
                self._found.popleft()
            self._handed += gone
            self.dropped += gone
            rows -= gone
