"""Several streams read together, as they come: the one that lies furthest back in time is read next."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

import numpy as np

from nile.base.room import allowed_room, each_within
from nile.exact.join.threads import abreast, pieces_of, useful
from nile.streams.files.parquet import ParquetSource
from nile.streams.manager import StreamManager

__all__ = ["Abreast", "Ahead", "Read", "read_abreast"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_EARLIEST = int(np.iinfo(np.int64).min)
_SLOW = 0.05
"""Seconds of waiting for a stream's next tuples, from which on it is one that has to be waited for."""
_MOST_AHEAD = 16
_WORTH = 1 << 14
"""Rows of files a thread, from which on several threads are worth beginning."""
_EVEN = 0.75
"""The most of all rows that one thread may have to read: of one file two decode the columns in so much of the time."""
_PATIENCE = 1.0
"""Seconds that whoever closes waits for an item that is being made."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was read of a stream at once: (ts, int64 [n] ns, not decreasing; what else came); None: its end.

    sure: none of this time or before will come, of any stream; None: nothing is known yet, or all are at their ends.
    """

    name: str
    item: tuple[Array, T] | None
    sure: int | None


class Abreast(Generic[T]):
    """Iterate it once; whoever reads no further calls `close`, or lets go of it.

    Where a stream has to be waited for and another one may have to be, each of these is from then on read ahead on a
    thread of its own (`Ahead`): they are waited for at the same time.  What is read, and in which order, does not
    depend on that, nor on who is late.  Sources that nobody waits for stay on the thread of whoever reads.
    may_wait: names of streams whose sources may still be making their rows.
    """

    def __init__(self, streams: Mapping[str, Generator[tuple[Array, T]]], may_wait: Collection[str]) -> None:
        self._streams: dict[str, Generator[tuple[Array, T]] | Ahead[tuple[Array, T]]] = dict(streams)
        self._may_wait = frozenset(may_wait)
        self._at = dict.fromkeys(self._streams, _EARLIEST)
        self._reading: Generator[Read[T]] | None = None
        self.waited = False
        """Whether a stream had to be waited for."""

    def __iter__(self) -> Generator[Read[T]]:
        if self._reading is None:  # not made before: it holds this, so both would stay until garbage is collected
            self._reading = self._read()
        return self._reading

    def close(self) -> None:
        """Let go of the sources."""
        if self._reading is not None:
            self._reading.close()
        for each in self._streams.values():  # where nothing was read yet
            each.close()

    def _read(self) -> Generator[Read[T]]:
        try:
            while self._streams:
                name = min(self._streams, key=self._at.__getitem__)
                with _Watch(partial(self._look_ahead, name) if self._others(name) else None) as watch:
                    item = next(self._streams[name], None)
                self.waited |= watch.slow
                if item is None:
                    del self._streams[name]
                elif item[0].shape[0]:
                    self._at[name] = int(item[0][-1])
                if self.waited:
                    self._look_ahead()
                known = min((self._at[each] for each in self._streams), default=_EARLIEST)
                yield Read(name, item, None if known == _EARLIEST else known - 1)
        finally:
            for each in self._streams.values():
                each.close()

    def _others(self, name: str) -> bool:
        """Whether there is something to begin with while `name` is waited for."""
        return name in self._may_wait and not self.waited and len(self._may_wait & self._streams.keys()) > 1

    def _look_ahead(self, busy: str | None = None) -> None:
        """Read ahead all that may have to be waited for; busy: but for one that is being read."""
        waiting = [name for name in self._streams if name in self._may_wait]
        for name in waiting if len(waiting) > 1 else ():
            given = self._streams[name]
            if name != busy and not isinstance(given, Ahead):
                self._streams[name] = Ahead(given)


class _Watch:
    """Looks whether something is waited for: 50 ms or more of time by the clock, in which there is little work.

    Work is no waiting: files that take long to read give no more by being asked again.  meanwhile: to be done as soon
    as it is waited for, by another thread; done when the watch ends, or never.
    """

    def __init__(self, meanwhile: Callable[[], None] | None) -> None:
        self._meanwhile = meanwhile
        self._timer: threading.Timer | None = None
        self.slow = False

    def __enter__(self) -> Self:
        self._asked, self._busy = time.monotonic(), time.process_time()
        if self._meanwhile is not None:
            self._timer = threading.Timer(_SLOW, self._look)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self.slow = self._waits()

    def _waits(self) -> bool:
        took = time.monotonic() - self._asked
        return took >= _SLOW and time.process_time() - self._busy < took / 2

    def _look(self) -> None:
        if self._waits() and self._meanwhile is not None:
            self._meanwhile()


class Ahead(Generic[T]):
    """What a generator gives, made on a thread of its own, a few items ahead of whoever reads.

    What it raises is raised where its next item would be.  `close` closes the generator as soon as it is not busy with
    an item, for which it waits for a second: what blocks in a generator cannot be interrupted.
    """

    def __init__(self, items: Generator[T], most: int = _MOST_AHEAD) -> None:
        self._items = items
        self._most = most
        self._made: deque[T] = deque()
        self._changed = threading.Condition()
        self._busy = self._closed = self._ended = False
        self._error: BaseException | None = None
        self._closing_error: BaseException | None = None
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._make,), name="nile source", daemon=True)
        self._thread.start()

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._ended)
            if self._made:
                self._changed.notify_all()
                return self._made.popleft()
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def __iter__(self) -> Ahead[T]:
        return self

    def close(self) -> None:
        """No more is wanted.  Raises what closing the generator raises, where that was waited for."""
        with self._changed:
            self._closed = True
            self._made.clear()
            busy = self._busy
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE if busy else None)
            error, self._closing_error = self._closing_error, None
            if error is not None:
                raise error

    def _make(self) -> None:
        try:
            while self._has_room():
                item = next(self._items, None)
                with self._changed:
                    self._busy = False
                    if item is None:
                        return
                    self._made.append(item)
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            try:
                self._items.close()
            except BaseException as error:
                self._closing_error = error
            with self._changed:
                self._busy, self._ended = False, True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room for one more item; False: no more is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._made) < self._most)
            self._busy = not self._closed
            return self._busy


def read_abreast(
    managers: Sequence[StreamManager], load: Callable[[StreamManager], Generator[None, None, T]]
) -> list[T]:
    """What is loaded of each stream, in their order: of Parquet files of like length on a thread each.

    load: yields now and then until it returns what it has loaded.  Raises what the first in order raises.
    """
    lengths = [each.source.rows if isinstance(each.source, ParquetSource) else 0 for each in managers]
    threads = min([len(managers) or 1, *(useful(each.spec.threads, sum(lengths), _WORTH) for each in managers)])
    lanes = pieces_of(len(managers), threads)
    if max(sum(lengths[lane]) for lane in lanes) > _EVEN * sum(lengths):
        lanes = [slice(None)]
    for each in managers if len(lanes) > 1 else ():
        each.threads = 1

    def loaded(own: Sequence[StreamManager]) -> Iterator[list[T] | None]:
        found = []
        for each in own:
            one = yield from load(each)
            found.append(one)
        yield found

    room = allowed_room()
    return [one for lane in abreast([each_within(room, loaded(managers[lane])) for lane in lanes]) for one in lane]
