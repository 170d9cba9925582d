"""The streams of a plan, read together incrementally: the one furthest behind is read next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.execution.reading import Leaf, Reading
from nile.sql.plan import Stream
from nile.streams.abreast import Abreast, Read
from nile.summaries.heavy import pa

__all__ = ["Coming", "Piece"]

Array = np.ndarray[Any, Any]
_EARLIEST = int(np.iinfo(np.int64).min)


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
    Memory: nothing is kept, but what `waits` has read ahead, and a few batches of each stream where several have to be
    waited for (`nile.streams.abreast`).  Raises what the stream managers raise.
    """

    def __init__(self, reading: Reading, leaves: Sequence[Stream]) -> None:
        self._reading = reading
        self._leaves = {leaf.alias: leaf for leaf in leaves}
        self._streams = {leaf.name: [each for each in leaves if each.name == leaf.name] for leaf in leaves}
        self._ahead: deque[Piece] = deque()
        waiting = {own[0].name for own in self._streams.values() if reading.may_wait(own[0])}
        self._can_wait = bool(waiting)
        self._read = Abreast({name: reading.coming(own) for name, own in self._streams.items()}, waiting)
        self.last: int | None = None

    @property
    def _pieces(self) -> Iterator[Piece]:
        """What is left to read.  Not held: it holds this, and what was read would outlive whoever reads it."""
        return map(self._piece, self._read)

    def __iter__(self) -> Iterator[Piece]:
        try:
            while self._ahead:
                yield self._ahead.popleft()
            yield from self._pieces
        finally:
            self._read.close()  # whoever reads no further lets go of the sources

    def waits(self) -> bool:
        """Whether a stream has to be waited for; else all are read now, and are there as `whole` leaves."""
        if not self._can_wait:
            self._reading.load(list(self._leaves.values()))
            return False
        for piece in self._pieces:
            self._ahead.append(piece)
            if self._read.waited:
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

    def _piece(self, read: Read[Any]) -> Piece:
        if read.item is None:
            return Piece([], read.sure)
        ts, own = read.item
        if ts.shape[0]:
            self.last = max(int(ts[-1]), _EARLIEST if self.last is None else self.last)
        leaves = self._streams[read.name]
        return Piece([(leaf.alias, *one) for leaf, one in zip(leaves, own, strict=True)], read.sure)
