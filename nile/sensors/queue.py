"""The queue of one query: rows of all its sources in order of arrival, in bounded memory.

    put -> [in: filling | in: being written] -> disk -> [out: read ahead | out: being read] -> take

While the reader keeps up there are the out parts alone.  Once they are full, rows go to the in parts: one fills while
the other is written to disk, and whenever an out part has been read, the next one is read back from there.
Source: STEAM, section 5.1 and Figure 5.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from nile.base.interrupts import INTERRUPTS
from nile.base.sizes import format_size
from nile.base.spill import Spill, temporary_file
from nile.summaries.heavy import pa

__all__ = ["BUFFER", "Held", "Queue"]

BUFFER = 64_000_000
"""Bytes of memory of a queue, of its four parts together, unless a table says otherwise."""
_RETRY = 0.5
"""Seconds until a part that could not be written is tried again."""


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a batch: those that `mask` marks (None: all), or of which this is a copy.  size: bytes of these rows.

    A batch that several queries hold so is in memory once, until the last of them has taken it: the counter is that of
    the reference itself.
    """

    batch: pa.RecordBatch
    size: int
    mask: pa.BooleanArray | None = None

    def rows(self) -> pa.RecordBatch:
        """These rows alone."""
        return self.batch if self.mask is None else self.batch.filter(self.mask)


class Queue:
    """First in, first out, from the manager's thread to that of a query.  limit: bytes, of the four parts together."""

    def __init__(
        self,
        schema: pa.Schema,
        limit: int = BUFFER,
        *,
        where: str = "sensors",
        open_file: Callable[[], IO[bytes]] = temporary_file,
    ) -> None:
        self._part = limit // 4
        self._where = where
        self._spill = Spill(schema, open_file)
        self._out: deque[Held] = deque()
        self._out_size = 0
        self._filling: list[Held] = []
        self._filling_size = 0
        self._writing: list[Held] | None = None
        self._on_disk = 0
        self._retry_at = 0.0
        self._news = threading.Condition()
        self._worker: threading.Thread | None = None
        self._ended = self._closed = False
        self._error: Exception | None = None
        self.spilled = 0
        """Parts that were written to disk so far."""

    @property
    def full(self) -> bool:
        """Whether both in parts are full: one is being written, and the other could not take any more."""
        return self._writing is not None and self._filling_size >= self._part

    @property
    def ended(self) -> bool:
        """Whether nothing is left and nothing will come."""
        with self._news:
            return self._ended and not (self._out or self._behind())

    @property
    def memory(self) -> int:
        """Bytes of the rows in all four parts."""
        with self._news:
            writing = sum(held.size for held in self._writing or ())
            return self._out_size + self._filling_size + writing

    def put(self, held: Held) -> None:
        """Append rows.  Never waits: who puts has to stop while this is `full`."""
        with self._news:
            if self._closed:
                return
            if not self._behind() and (not self._out or self._out_size + held.size <= 2 * self._part):
                self._give(held)
                return
            self._filling.append(held)
            self._filling_size += held.size
            self._turn()

    def end(self) -> None:
        """Nothing more will come."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def take(self, seconds: float) -> pa.RecordBatch | None:
        """The next rows, waited for so long; None: there are none yet, or `ended`.  Raises EnvelopeError, OSError.

        Ctrl-C waits as long: it must not come between the taking of the lock and the block that gives it back.
        """
        until = time.monotonic() + seconds
        with INTERRUPTS, self._news:
            while not self._out:
                if self._error is not None:
                    raise self._error
                if self._filling and not self._on_disk and self._writing is None:
                    parts, self._filling, self._filling_size = self._filling, [], 0
                    for each in parts:
                        self._give(each)
                    break
                left = until - time.monotonic()
                if (self._ended and not self._behind()) or left <= 0 or not self._news.wait(left):
                    return None
            held = self._out.popleft()
            self._out_size -= held.size
            if self._out_size <= self._part:
                self._news.notify_all()
        return held.rows()

    def close(self) -> None:
        """Let go of all that is left, in memory and on disk."""
        with self._news:
            self._closed = self._ended = True
            self._out.clear()
            self._filling, self._writing = [], None
            self._out_size = self._filling_size = self._on_disk = 0
            if self._worker is None:
                self._spill.close()
            self._news.notify_all()

    def _behind(self) -> bool:
        """Whether rows wait behind the out parts."""
        return bool(self._filling) or self._writing is not None or self._on_disk > 0

    def _give(self, held: Held) -> None:
        self._out.append(held)
        self._out_size += held.size
        self._news.notify_all()

    def _turn(self) -> None:
        """An in part that is full is written, if the other one has been."""
        if self._filling_size < self._part or self._writing is not None:
            return
        self._writing, self._filling, self._filling_size = self._filling, [], 0
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="nile sensors spill", daemon=True)
            self._worker.start()
        self._news.notify_all()

    def _work(self) -> None:
        """Write in parts and read out parts, until nothing is on disk."""
        while (job := self._job()) is not None:
            job()

    def _job(self) -> Callable[[], None] | None:
        """What is to be done on the disk; None: nothing more."""
        with self._news:
            while True:
                room, now = self._out_size <= self._part, time.monotonic()
                if self._closed or self._error is not None or not (self._on_disk or self._writing is not None):
                    self._spill.close()
                    self._worker = None
                    return None
                if self._on_disk and room:
                    return self._read
                if self._writing is not None and room:  # nothing is before it on disk: it need not go there
                    parts, self._writing = self._writing, None
                    for each in parts:
                        self._give(each)
                    self._turn()
                elif self._writing is not None and now >= self._retry_at:
                    parts = self._writing
                    return lambda parts=parts: self._write(parts)  # type: ignore[misc]
                else:
                    self._news.wait(None if self._writing is None else max(self._retry_at - now, 0.0))

    def _read(self) -> None:
        try:
            batch = self._spill.pop()
        except Exception as error:
            with self._news:
                self._error = error
                self._news.notify_all()
            return
        with self._news:
            if not self._closed:
                self._on_disk -= 1
                self._give(Held(batch, batch.nbytes))

    def _write(self, parts: list[Held]) -> None:
        try:
            self._spill.append(pa.concat_batches([each.rows() for each in parts]))
        except OSError as error:
            if self._retry_at == 0.0:
                size = format_size(sum(each.size for each in parts))
                warnings.warn(
                    f"{self._where}: needed {size} of disk for rows that a query has not read yet; got {error}; "
                    "reading sources pauses until there is room, or the query has read on",
                    RuntimeWarning,
                    stacklevel=2,
                )
            with self._news:
                self._retry_at = time.monotonic() + _RETRY
            return
        with self._news:
            if not self._closed:
                self._writing, self._retry_at = None, 0.0
                self._on_disk += 1
                self.spilled += 1
                self._turn()
                self._news.notify_all()
