"""The tuples of two streams that are in a window of some join, by key: what joins of them by one key read in common.

A tuple is looked up and held once, until it has left the windows of all of them.  Which of those held are in the
window of a join is that join's own to know (`StreamJoining`): the tuples of a shorter window are the newest of a longer
one's, and chains of equal keys lead back from the newest.  Source: STREAM (CIDR 2003), section 3.2: operators that read
one synopsis, which holds what any of them needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

import numpy as np

from nile.base.nearest import nearest
from nile.exact.join.threads import together, useful
from nile.exact.pipeline.schedule import EARLIEST, Clock
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.pipeline.sources.taken_back import without
from nile.exact.plan.algebra import Join, Project, Scan, Select
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import made, words_of
from nile.exact.state.held import Held, State
from nile.exact.state.lent import roomy
from nile.exact.state.ring import Ring
from nile.exact.state.rows import RowTable
from nile.exact.state.types import common

if TYPE_CHECKING:
    from nile.exact.pipeline.sources.stream_join import StreamJoining

__all__ = ["Chain", "Windows"]

kernels: Any = arrow.Late("nile.exact.pipeline.sources.stream_join_kernels")

Chain = tuple[Scan, list[Select | Project]]
_PIECE = 1 << 12
"""Tuples of each side of a step from which on a thread of their own is worth having."""


def _as(column: Any, kind: Any) -> Any:
    return column if column.type == kind else nearest(column, kind)


class Windows:
    """Of each side what comes and a ring of what has come; of both a table of keys.

    to: the instant up to which tuples are in the rings; joins: those that read it, where there may be several.
    """

    HELD: ClassVar = ("arrivals", "rings", "to")
    DERIVED: ClassVar = ("clock", "keys", "joins", "_kinds", "_at", "_all", "_as_they_are", "_heads", "_fault", "_lock")

    def __init__(self, clock: Clock, plan: Join, left: Chain, right: Chain) -> None:
        self.clock = clock
        self.arrivals = [Incoming(*left), Incoming(*right)]
        self.rings = [Ring(each.schema) for each in self.arrivals]
        self.to = EARLIEST
        self.joins: WeakSet[StreamJoining] = WeakSet()
        one, other = (each.schema for each in self.arrivals)
        self._kinds = [common(one.field(a).type, other.field(b).type) for a, b in plan.on]
        self._at = [[each.schema.get_field_index(on[i]) for on in plan.on] for i, each in enumerate(self.arrivals)]
        self._all = [range(len(each.schema)) for each in self.arrivals]
        kinds = [[each.schema.field(i).type for i in at] for each, at in zip(self.arrivals, self._at, strict=True)]
        self._as_they_are = [each == self._kinds for each in kinds]
        self.keys = RowTable(self._kinds) if plan.on else None
        self._heads: list[Array] = []
        self._fault: Exception | None = None
        self._lock = Lock()  # joins may be at work on several threads, but for the first one that comes to an instant

    def come_to(self, to: int) -> None:
        """Take in what comes up to an instant, for the first of several joins that asks.  Raises, to all of them, what
        that raises.
        """
        if self._fault is not None:
            raise self._fault
        try:
            self.take(to, None)
        except Exception as error:
            self._fault = error
            raise

    def take(self, to: int, never: Sequence[tuple[Array, Any] | None] | None) -> None:
        """Put what comes up to an instant into the rings.  never: of each side what does not come after all."""
        self.to = to
        taken = [each.kept(to) for each in self.arrivals]
        for side, gone in enumerate(never or ()):
            if gone is not None and gone[0].shape[0]:
                ts, rows = taken[side][0], made(taken[side][1])
                stay = without(ts, rows, *gone)
                taken[side] = ts[stay], rows.filter(pa.array(stay))
        found = self._found_abreast(taken)
        for side, (ts, rows) in enumerate(taken):
            if ts.shape[0]:
                if found:
                    self.rings[side].add_words(ts, *found[side])
                else:
                    self._arrive(side, ts, rows)

    def _arrive(self, side: int, ts: Array, rows: Any) -> None:
        """Put tuples that come into the ring of a side."""
        keys, ring = self.keys, self.rings[side]
        words = self._words(side, rows)
        if keys is None:
            ring.add_words(ts, words, np.zeros(ts.shape[0], np.int64))
            return
        key_words, mask = self._key_words(keys, rows, side), keys.encoder.mask
        n, done = ts.shape[0], 0
        ring.room(ring.newest - ring.oldest + n)
        while True:
            done = kernels.arrive(
                done, ts, key_words, mask, words, keys.index, keys.kept, keys.hashes, keys.free, keys.meta, ring.newest,
                ring.ts, ring.codes, ring.words,
            )  # fmt: skip
            if done == n:
                break
            keys.grow()
        ring.newest += n

    def codes(self, side: int, rows: Any) -> Array:
        """The code of the key of each row of a side; -1 where a part of it is null."""
        keys, at = self.keys, self._at[side]
        if keys is None:
            return np.zeros(rows.num_rows, np.int64)
        words = self._key_words(keys, rows, side)
        some = 0
        for i in at:
            some += rows.column(i).null_count
        if not some or not (nulls := keys.encoder.nulls(words)).any():
            return keys.codes(words)
        codes = np.full(words.shape[0], -1, np.int64)
        codes[~nulls] = keys.codes(words[~nulls])
        return codes

    def _found_abreast(self, taken: Sequence[tuple[Array, Any]]) -> list[tuple[Array, Array]]:
        """Of each side the words of its rows and the codes of their keys, by a thread each; [] where these are few.

        Keys that are new get their codes afterwards, in order.
        """
        keys = self.keys
        few = min(ts.shape[0] for ts, _ in taken) < _PIECE or useful(self.clock.threads, 2 * _PIECE, _PIECE) < 2
        if few or keys is None or keys.numbers:
            return []
        made: list[Any] = [None, None]

        def find(side: int) -> None:
            rows = taken[side][1]
            own, codes = self._key_words(keys, rows, side), roomy(rows.num_rows)
            keys.find(own, codes)
            at = np.flatnonzero(codes < 0)
            made[side] = self._words(side, rows), codes, at, own[at]

        together([partial(find, side) for side in range(2)])
        for _, codes, at, own in made:
            if at.shape[0]:
                codes[at] = -1
                whole = ~keys.encoder.nulls(own)
                codes[at[whole]] = keys.codes(own[whole])
        return [each[:2] for each in made]

    def _words(self, side: int, rows: Any) -> Array:
        """Rows of a side as its ring has them: int64 [n, width], only to be read."""
        return words_of(rows, self._all[side], self.rings[side].encoder)

    def _key_words(self, keys: RowTable, rows: Any, side: int) -> Array:
        """The words of the keys of rows of a side: int64 [n, width], only to be read."""
        if self._as_they_are[side]:
            return words_of(rows, self._at[side], keys.encoder)
        columns = [rows.column(i) for i in self._at[side]]
        return keys.encode([_as(column, kind) for column, kind in zip(columns, self._kinds, strict=True)])

    @property
    def room(self) -> int:
        """Below which codes of keys are."""
        return 1 if self.keys is None else self.keys.room

    @property
    def heads(self) -> list[Array]:
        """Of each side the newest tuple of each key, for a join that begins between two steps: those of the others."""
        held = next((each.heads for each in self.joins), self._heads)
        return [each.copy() for each in held]

    def restore(self, arrivals: Sequence[Held], rings: Sequence[Held], to: int) -> None:
        """Hold captured tuples, for several joins whose windows begin among them.  Raises EnvelopeError."""
        self.to = to
        for each, part in zip(self.arrivals, arrivals, strict=True):
            each.restore(part)
        for side, part in enumerate(rings):
            self.rings[side].restore(part, partial(self.codes, side))
        counts = np.zeros((self.room, 2), np.int64)
        self._heads = [np.full(self.room, -1, np.int64) for _ in self.rings]
        for side, ring in enumerate(self.rings):
            kernels.chain(ring.oldest, ring.newest, ring.codes, ring.before, self._heads[side], counts, side)

    def capture(self) -> State:
        """All that is held, as of a join whose windows are as long."""
        return {
            "arrivals": [each.capture() for each in self.arrivals],
            "windows": [each.capture() for each in self.rings],
        }

    def forget(self) -> None:
        """Once all joins are done with one instant: let go of what has left all windows, and of keys of nothing."""
        with self._lock:
            if self.joins and all(each.done == self.to for each in self.joins):
                self._forget()

    def _forget(self) -> None:
        """The join whose window of a side is the longest has all tuples of that side that are still to be held."""
        one, other = (min(self.joins, key=lambda join: join.oldest(side)) for side in range(2))
        for ring, last in zip(self.rings, (one.oldest(0), other.oldest(1)), strict=True):
            if last > ring.oldest:
                if self.keys is not None:
                    gone = ring.codes[np.arange(ring.oldest, last) & ring.mask]
                    gone = gone[gone >= 0]
                    self.keys.release(gone[(one.key_counts[gone, 0] == 0) & (other.key_counts[gone, 1] == 0)])
                ring.oldest = last
                ring.forget()

    @property
    def memory(self) -> int:
        """Bytes of what comes, of what has come, and of the keys."""
        tables = sum(each.memory for each in self.rings) + sum(each.memory for each in self.arrivals)
        return tables + (0 if self.keys is None else self.keys.memory)
