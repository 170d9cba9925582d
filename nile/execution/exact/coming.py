"""The streams of a plan, read together as they come: the one that lies furthest back is read next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.execution.reading import Leaf, Reading
from nile.sql.plan import Stream
from nile.summaries.heavy import pa

__all__ = ["Coming", "Piece"]

Array = np.ndarray[Any, Any]
_EARLIEST = int(np.iinfo(np.int64).min)
_SLOW = 0.05
"""Seconds of waiting for a stream's next tuples, from which on it is one that has to be waited for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What was read at once.  tuples: of each leaf (alias, ts, columns); sure: none of this time or before will come,
    of any stream; None: nothing is known yet, or all are at their ends.
    """

    tuples: list[tuple[str, Array, pa.RecordBatch]]
    sure: int | None


class Coming:
    """Streams as pieces of what they give, each read once however many leaves name it; iterate it once.

    last: the latest event time read so far, also of tuples that a leaf's own condition left out; None before any.
    Memory: nothing is kept, but what `waits` has read ahead.  Raises what the stream managers raise.
    """

    def __init__(self, reading: Reading, leaves: Sequence[Stream]) -> None:
        self._reading = reading
        self._leaves = {leaf.alias: leaf for leaf in leaves}
        self._at = dict.fromkeys((leaf.name for leaf in leaves), _EARLIEST)
        self._ahead: deque[Piece] = deque()
        self._waited = False
        self._can_wait = any(map(reading.may_wait, leaves))
        self._pieces = self._read()
        self.last: int | None = None

    def __iter__(self) -> Iterator[Piece]:
        try:
            while self._ahead:
                yield self._ahead.popleft()
            yield from self._pieces
        finally:
            self._pieces.close()  # whoever reads no further lets go of the sources

    def waits(self) -> bool:
        """Whether a stream has to be waited for; else all are read now, and are there as `whole` leaves."""
        if not self._can_wait:
            return False
        for piece in self._pieces:
            self._ahead.append(piece)
            if self._waited:
                return True
        return False

    def whole(self, alias: str) -> Leaf:
        """All of a leaf, once `waits` has said that no stream has to be waited for."""
        leaf = self._leaves[alias]
        if not self._can_wait:
            return self._reading.whole(leaf)
        read = [(ts, rows) for piece in self._ahead for name, ts, rows in piece.tuples if name == alias]
        none = pa.RecordBatch.from_pylist([], self._reading.schema(leaf))
        ts = np.concatenate([np.zeros(0, np.int64), *(ts for ts, _ in read)])
        return Leaf(ts, pa.concat_batches([rows for _, rows in read] or [none]))

    def _read(self) -> Generator[Piece]:
        streams = {name: [leaf for leaf in self._leaves.values() if leaf.name == name] for name in self._at}
        waiting = {name: self._reading.coming(leaves) for name, leaves in streams.items()}
        try:
            while waiting:
                name = min(waiting, key=self._at.__getitem__)
                asked, busy = time.monotonic(), time.process_time()
                read = next(waiting[name], None)
                took = time.monotonic() - asked
                # Work is no waiting: files that take long to read give no more by being asked again.
                self._waited |= took >= _SLOW and time.process_time() - busy < took / 2
                tuples = []
                if read is None:
                    del waiting[name]
                else:
                    ts, own = read
                    if ts.shape[0]:
                        self._at[name] = int(ts[-1])
                        self.last = max(self._at[name], _EARLIEST if self.last is None else self.last)
                    tuples = [(leaf.alias, *one) for leaf, one in zip(streams[name], own, strict=True)]
                known = min((self._at[each] for each in waiting), default=_EARLIEST)
                yield Piece(tuples, None if known == _EARLIEST else known - 1)
        finally:
            for each in waiting.values():
                each.close()
