"""Work on several cores at once: threads over compiled code that lets go of the interpreter, in an order that is fixed.

Which thread does what never shows in what comes out: pieces are cut by the input alone, and handed over in their order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Thread, current_thread, local
from typing import Generic, TypeVar

__all__ = ["Ahead", "cores", "cpu_ns", "cpu_seconds", "pieces_of", "together", "useful"]

T = TypeVar("T")
_MOST_CORES = 4
_LEAST = 1 << 17
"""Tuples a thread, below which starting it costs more than it saves."""
_PATIENCE = 0.002  # seconds between looks whether there is room, or nobody reads any more


class _Helped(local):
    """What threads have spent that were begun by this one: of each that still works, ns in a cell of its own, and of
    all others together.
    """

    def __init__(self) -> None:
        self.working: list[list[int]] = []
        self.ended = 0
        self.helps = False
        """Whether it does a part of what several threads do at once."""


_helped = _Helped()


def cpu_ns() -> int:
    """ns of CPU of this thread and of those that have worked for it; of one at work, until its latest piece was done.

    Only differences of two calls on the same thread mean something.
    """
    return time.thread_time_ns() + _helped.ended + sum(cell[0] for cell in _helped.working)


def cpu_seconds() -> float:
    """`cpu_ns` in seconds."""
    return cpu_ns() / 1e9


class _Cell:
    """Where a thread tells what it has spent.  Made and ended on the thread that has begun it."""

    def __init__(self) -> None:
        self._cell = [0]

    def begin(self) -> None:
        """The thread is about to begin."""
        _helped.working.append(self._cell)

    def tell(self) -> None:
        """On the thread itself: what it has spent so far."""
        self._cell[0] = cpu_ns()

    def end(self) -> None:
        """The thread has ended.  Elsewhere than where it was begun, where nobody asks for it any more, that is told to
        nobody."""
        if any(each is self._cell for each in _helped.working):
            _helped.working = [each for each in _helped.working if each is not self._cell]
            _helped.ended += self._cell[0]


def cores() -> int:
    """Cores this process may use, up to the number worth using."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _MOST_CORES)


def useful(threads: int | None, tuples: int, least: int | None = None) -> int:
    """How many threads are worth having for so many tuples, of those allowed (None: as many as there are cores).

    least: tuples that each should have at least.  On a thread that `together` has begun: one, for others have work.
    """
    if _helped.helps:
        return 1
    return max(1, min(cores() if threads is None else threads, tuples // (_LEAST if least is None else least)))


def pieces_of(length: int, pieces: int) -> list[slice]:
    """Something of a length in so many pieces, as equal as can be."""
    cuts = [k * length // pieces for k in range(pieces + 1)]
    return [slice(begin, end) for begin, end in pairwise(cuts)]


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Make all calls, the first on this thread and each other one on one of its own.  Raises what the first raises that
    does, once all have ended."""
    failed: list[BaseException] = []
    cells = [_Cell() for _ in calls[1:]]

    def run(call: Callable[[], object], cell: _Cell) -> None:
        try:
            _helped.helps = True
            call()
        except BaseException as error:
            failed.append(error)
        finally:
            cell.tell()

    threads = [
        Thread(target=run, args=(call, cell), name="nile join", daemon=True)
        for call, cell in zip(calls[1:], cells, strict=True)
    ]
    try:
        for thread, cell in zip(threads, cells, strict=True):
            cell.begin()
            thread.start()
        alone, _helped.helps = _helped.helps, len(calls) > 1 or _helped.helps
        try:
            calls[0]()
        finally:
            _helped.helps = alone
    finally:
        for thread, cell in zip(threads, cells, strict=True):  # they write into memory that the caller lets go of
            if thread.ident is not None:
                thread.join()
            cell.end()
    if failed:
        raise failed[0]


class Ahead(Generic[T]):
    """Items that a thread of its own takes from an iterator before they are asked for.

    most: how many may wait; one who has more waits.  `start` it inside of a try block that ends in `stop`: an interrupt
    may come at any time.
    """

    def __init__(self, items: Iterator[T], most: int) -> None:
        # In C, so that an interrupt of who reads leaves no lock behind that the thread then waits for.
        self._queue: SimpleQueue[T | _Failed] = SimpleQueue()
        self._nobody_reads = Event()
        self._most = most
        self._thread = Thread(target=self._take, args=(items,), name="nile join", daemon=True)
        self._cell = _Cell()

    @staticmethod
    def start(several: Sequence[Ahead[T]]) -> None:
        """Let the threads begin."""
        for each in several:
            each._cell.begin()
            each._thread.start()

    @staticmethod
    def stop(several: Sequence[Ahead[T]]) -> None:
        """Let the threads end, each once it is done with the item that it is at.

        The collector of garbage may end a join on one of its own threads, which cannot wait for itself.
        """
        for each in several:
            each._nobody_reads.set()
        for each in several:
            if each._thread.ident is not None and each._thread is not current_thread():
                each._thread.join()
            each._cell.end()

    def next(self) -> T:
        """The next item, waited for.  Raises what taking it raised."""
        item = self._queue.get()
        if isinstance(item, _Failed):
            raise item.error
        return item

    def _take(self, items: Iterator[T]) -> None:
        try:
            if self._nobody_reads.is_set():
                return
            for item in items:
                self._cell.tell()
                while self._queue.qsize() >= self._most and not self._nobody_reads.is_set():
                    time.sleep(_PATIENCE)
                if self._nobody_reads.is_set():
                    return
                self._queue.put(item)
        except BaseException as error:
            self._queue.put(_Failed(error))
        finally:
            self._cell.tell()


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error
