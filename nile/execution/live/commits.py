"""Atomic changes of a database, each followed by the notification of whoever subscribed.

with commits:           signals wait
    ...                 rows, offset, accounting, summaries, histories, standing queries: all or nothing
                        callbacks are told, then signals come through
commits.complain()      what callbacks raised, once all have been told
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from nile.base.interrupts import INTERRUPTS
from nile.summaries.errors import DatabaseTorn

__all__ = ["Commits", "Told"]


class Told(Protocol):
    """A standing query with a callback."""

    def tell(self) -> None:
        """Call it with everything that waits."""


class _Prepared:
    """What is looked at, and then changed: no handler of a signal comes in between, which may close the database."""

    def __init__(self, besides: Callable[[BaseException], None]) -> None:
        self._besides = besides

    def __enter__(self) -> None:
        INTERRUPTS.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            INTERRUPTS.__exit__(None, None, None)
        except BaseException as interrupt:
            self._besides(interrupt)
            raise


class Commits:
    """One lock for everything that is live, the changes made under it, and the callbacks that wait to hear of them.

    `with commits:` under the lock is a change, and the telling of it.  What can be refused is refused before it; an
    exception in it (memory that ends, a thread that is told to stop) leaves it half done, and from then on everything
    is refused: nothing half done is ever read or written to a store.
    Callbacks are told in the order of the changes, by whoever holds the lock; a change that a callback makes is made at
    once, and told when the callbacks told before have come back.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._torn: str | None = None
        self._telling = False
        self.began: int | None = None
        """When the push that is worked on was called, ns of `time.monotonic_ns`; None: it is none."""
        self._to_tell: dict[Told, None] = {}
        self._faults: list[BaseException] = []
        self._unseen: list[Callable[[], None]] = []
        self.prepared = _Prepared(self._besides)
        """`with commits.prepared:` around checks and the change that they allow."""

    def __enter__(self) -> None:
        self.check()
        INTERRUPTS.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._see()
                self.tell()
            else:
                self._tear(error)
        finally:
            try:
                INTERRUPTS.__exit__(None, None, None)
            except BaseException as interrupt:
                self._besides(interrupt)
                raise

    @contextmanager
    def called(self, began: int) -> Iterator[None]:
        """Around a push that was called then.  One inside of it, by a callback, has a time of its own."""
        before, self.began = self.began, began
        try:
            yield
        finally:
            self.began = before

    @property
    def torn(self) -> bool:
        """Whether a change was left half done."""
        return self._torn is not None

    def check(self) -> None:
        """Raises DatabaseTorn."""
        if self._torn is not None:
            raise DatabaseTorn(
                f"database: needed changes that are made in one piece; got one that was cut off by {self._torn}; "
                "nothing of it is read or written any more: open it again (a store is as of its last checkpoint)"
            )

    def seen_after(self, show: Callable[[], None]) -> None:
        """Call this when the change is made, before anybody is told: then other threads may read what it did."""
        self._unseen.append(show)

    def _see(self) -> None:
        while self._unseen:
            self._unseen.pop(0)()

    def wake(self, standing: Told) -> None:
        """A query has something to tell."""
        self._to_tell[standing] = None

    def forget(self, standing: Told) -> None:
        """It has nothing to tell."""
        self._to_tell.pop(standing, None)

    def tell(self) -> None:
        """Call the callbacks that wait.  Inside a callback nothing is called: whoever called that one goes on."""
        if self._telling:
            return
        with INTERRUPTS:
            self._telling = True
            try:
                while self._to_tell:
                    standing = next(iter(self._to_tell))
                    standing.tell()
                    self._to_tell.pop(standing, None)
            except BaseException as error:
                self._tear(error)
                raise
            finally:
                self._telling = False

    def fault(self, error: BaseException) -> None:
        """Something that a callback raised, or that a standing query could not do."""
        self._faults.append(error)

    def complain(self, *, at_once: bool = False) -> None:
        """Raise what went wrong since the last call, what is no Exception first; inside a callback nothing is raised.

        at_once: only what is no Exception (KeyboardInterrupt, SystemExit).
        """
        stops = [fault for fault in self._faults if not isinstance(fault, Exception)]
        if self._telling or not (stops if at_once else self._faults):
            return
        first = stops[0] if stops else self._faults[0]
        self._besides(first)
        raise first

    def _tear(self, error: BaseException) -> None:
        self._torn = self._torn or f"{type(error).__name__}: {error}".rstrip(": ")

    def _besides(self, error: BaseException) -> None:
        """What else went wrong goes with the error that comes out."""
        faults, self._faults = self._faults, []
        for other in faults:
            if other is not error:
                error.add_note(f"and besides: {type(other).__name__}: {other}")
