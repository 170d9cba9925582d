"""Work on several cores at once: threads over compiled code that lets go of the interpreter, in an order that is fixed.

Which thread does what never shows in what comes out: pieces are cut by the input alone, and handed over in their order.
Threads stay for the next work, as many as there are cores: of what one that ends has held, the system takes every page
back, and clears it for the next.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread, get_ident, local
from typing import Generic, TypeVar, cast

__all__ = ["Ahead", "abreast", "cores", "cpu_ns", "cpu_seconds", "of_each", "pieces_of", "together", "useful"]

T = TypeVar("T")
U = TypeVar("U")
_MOST_CORES = 4
_LEAST = 1 << 17
"""Tuples a thread, below which starting it costs more than it saves."""
_ANY = 1 << 62
_PATIENCE = 0.002  # seconds between looks whether there is room, or nobody reads any more
_WORKING, _WAITING = "nile join", "nile join waits"
"""Names of threads."""


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


def of_each(call: Callable[[U], T], each: Sequence[U], tuples: int, threads: int | None) -> list[T]:
    """What a call makes of each of several things, of so many tuples in all, by a thread each if that pays."""
    if useful(threads, tuples) < 2:
        return [call(one) for one in each]
    found: list[T | None] = [None] * len(each)

    def work(k: int) -> None:
        found[k] = call(each[k])

    together([partial(work, k) for k in range(len(each))])
    return cast("list[T]", found)


class _Task:
    """Work for another thread, begun and ended by the one that it is done for.

    call: raises nothing.  An interrupt may come at any time: `start` it inside of a try block that ends in `end`.
    """

    def __init__(self, call: Callable[[_Task], object]) -> None:
        self._call = call
        self._context = Context()
        self._spent = [0]  # ns, so far
        self._begun = self._worker = 0
        self._claims = deque([None])  # who takes it does the work, or takes it back
        self._done = False
        self._doing = Lock()  # in C: who is interrupted while waiting leaves nothing behind
        self._doing.acquire()

    def start(self) -> None:
        """Have it done."""
        _helped.working.append(self._spent)
        _helpers.give(self)

    def run(self) -> bool:
        """On the thread that does it; whether that stays for more."""
        stays = True
        try:
            with suppress(IndexError):
                self._claims.pop()
                current_thread().name = _WORKING
                self._worker, self._begun = get_ident(), cpu_ns()
                self._context.run(self._forgotten(), self)
                self.tell()
        finally:
            try:
                stays = _helpers.may_stay()
            finally:
                self._done = True
                self._doing.release()
        return stays

    def _forgotten(self) -> Callable[[_Task], object]:
        """What to call, which may hold this task, and much else."""
        call, self._call = self._call, _nothing
        return call

    def tell(self) -> None:
        """On the thread itself: what it has spent so far counts for whoever began it."""
        self._spent[0] = cpu_ns() - self._begun

    def wait(self) -> None:
        """Until it is done."""
        if not self._done and self._worker != get_ident():
            self._doing.acquire()
            self._doing.release()

    def end(self) -> None:
        """Take it back if it has not begun, else wait until it is done.

        What it has spent counts for the thread that began it: elsewhere, where nobody asks, it is told to nobody.
        """
        try:
            self._claims.pop()
            self._done = True
            self._forgotten()
        except IndexError:
            self.wait()
        if any(each is self._spent for each in _helped.working):
            _helped.working = [each for each in _helped.working if each is not self._spent]
            _helped.ended += self._spent[0]


def _nothing(_: _Task) -> None:
    pass


class _Helpers:
    """Threads that wait for work, which any of them takes."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._idle: deque[None] = deque()  # one for each that waits, or is about to

    def give(self, task: _Task) -> None:
        """Have a task done: on a new thread where none is idle."""
        try:
            self._idle.pop()
        except IndexError:
            Thread(target=self._work, args=(self._tasks,), name=_WAITING, daemon=True).start()
        self._tasks.put(task)

    def may_stay(self) -> bool:
        """On a thread whose work is done: whether it is one more that waits."""
        current_thread().name = _WAITING
        stays = len(self._idle) < _MOST_CORES
        if stays:
            self._idle.append(None)
        return stays

    @staticmethod
    def _work(tasks: SimpleQueue[_Task]) -> None:
        stays = True
        while stays:
            task = tasks.get()
            stays = task.run()
            del task  # and what it holds


_helpers = _Helpers()


def _forked() -> None:
    """In a process that was forked, where none of the threads are."""
    global _helpers
    _helpers = _Helpers()


os.register_at_fork(after_in_child=_forked)


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Make all calls, the first on this thread and each other one on one of its own.  Raises what the first raises that
    does, once all have ended."""
    failed: list[BaseException] = []

    def run(call: Callable[[], object], _: _Task) -> None:
        try:
            _helped.helps = True
            call()
        except BaseException as error:
            failed.append(error)
        finally:
            _helped.helps = False

    tasks = [_Task(partial(run, call)) for call in calls[1:]]
    try:
        for task in tasks:
            task.start()
        alone, _helped.helps = _helped.helps, len(calls) > 1 or _helped.helps
        try:
            calls[0]()
        finally:
            _helped.helps = alone
        for task in tasks:
            task.wait()
    finally:
        for task in tasks:  # they write into memory that the caller lets go of
            task.end()
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
        self._task = _Task(partial(self._take, items))

    @staticmethod
    def start(several: Sequence[Ahead[T]]) -> None:
        """Let the threads begin."""
        for each in several:
            each._task.start()

    @staticmethod
    def stop(several: Sequence[Ahead[T]]) -> None:
        """Let the threads end, each once it is done with the item that it is at.

        The collector of garbage may end a join on one of its own threads, which cannot wait for itself.
        """
        for each in several:
            each._nobody_reads.set()
        for each in several:
            each._task.end()

    def next(self) -> T:
        """The next item, waited for.  Raises what taking it raised."""
        item = self._queue.get()
        if isinstance(item, _Failed):
            raise item.error
        return item

    def _take(self, items: Iterator[T], task: _Task) -> None:
        try:
            for item in () if self._nobody_reads.is_set() else items:
                task.tell()
                while self._queue.qsize() >= self._most and not self._nobody_reads.is_set():
                    time.sleep(_PATIENCE)
                if self._nobody_reads.is_set():
                    return
                self._queue.put(item)
        except BaseException as error:
            self._queue.put(_Failed(error))


def abreast(works: Sequence[Iterator[T | None]]) -> list[T]:
    """The first item of each that is not None, worked out on a thread of its own but for the first's; in their order.

    Raises what the first in order raises; those behind it, and all of them at an interrupt, end at their next item.
    """
    others = [Ahead(each, _ANY) for each in works[1:]]
    try:
        Ahead.start(others)
        return [_found(each) for each in (*(work.__next__ for work in works[:1]), *(each.next for each in others))]
    finally:
        Ahead.stop(others)


def _found(following: Callable[[], T | None]) -> T:
    while (item := following()) is None:
        pass
    return item


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error
