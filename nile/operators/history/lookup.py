"""Looking keys up in the key indices of a history: what the digests rule out is not read, and all is counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from nile.operators.history.keys import ProbeKeys
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
    from nile.pyramid.history.history import History
    from nile.pyramid.history.keys import KeyIndex
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["HistoryFigures", "Listed", "Matches", "Segment", "bounds_of", "listed_of", "read_ahead", "segments_of"]

Array = np.ndarray[Any, Any]
_Told = TypeVar("_Told")
_READERS = 2
_SMALL = 1 << 16
"""Bytes of a list that are read sooner than a reader has begun."""
_READ: Future[int] = Future()
_READ.set_result(0)


@dataclass(slots=True)
class HistoryFigures:
    """What a progressive query did.

    cells: read, each once; ruled_out: cells in which keys asked for would lie, none of which their digest leaves
    possible; tuples: looked at (rows read, and tuples of the directory entries found); looked_up: keys asked of a
    directory, listed: of them those that lists of heavy keys told without reading a cell; passed: keys of a join, and
    tuples of other queries, that the summary of the stream told to be of no use; outputs: pairs or records; bytes:
    checked or decompressed, by tier.
    """

    cells: int = 0
    ruled_out: int = 0
    tuples: int = 0
    looked_up: int = 0
    listed: int = 0
    passed: int = 0
    outputs: int = 0
    bytes: dict[str, int] = field(default_factory=dict)


class Matches(NamedTuple):
    """Runs of tuples with a key.

    key: int64 [m], which probing key; entry: int64 [m] in the segment's directory or its list of heavy keys; begin,
    end: int64 [m], places in its list of rows, inside the bounds in time.
    """

    key: Array
    entry: Array
    begin: Array
    end: Array

    def chosen(self, at: Array | slice) -> Matches:
        """Those at an index or of a mask."""
        return Matches(self.key[at], self.entry[at], self.begin[at], self.end[at])


class Listed(NamedTuple):
    """What a segment's list of heavy keys says of probing keys.

    at, place: int64 [n], those that are listed, and where in the list; low, most: int64 [cells], of each cell of theirs
    where in `at` it begins, and its matches; others: int64 [m], those that are not; asking, cells: the tuples that
    ask for them, and the cells that they lie in; rest: each has at most so many tuples, for certain; expected: and
    about so many, one that is here.  Of a segment asked in part all are bounds.
    """

    at: Array
    place: Array
    low: Array
    most: Array
    others: Array
    asking: int
    cells: int
    rest: int
    expected: float


class Segment:
    """One key index of a column of `kind`, asked within ordinals [begin, end).

    heavy_first: it is asked for its list of heavy keys first, where it has one.  ahead: the bytes that reading what
    it is asked first takes (`read_ahead`).
    """

    def __init__(
        self, index: KeyIndex, kind: pa.DataType, begin: int, end: int, figures: HistoryFigures, heavy_first: bool
    ) -> None:
        self.index = index
        self._kind = kind
        self.whole = begin <= index.first and index.end <= end
        self._begin = begin
        self._end = end
        self._figures = figures
        self._read = np.zeros(index.buckets, bool)
        self._cells: Array | None = None
        self.heavy_first = heavy_first and index.lists_heavy
        self.ahead = _READ

    @property
    def at_hand(self) -> bool:
        """Whether nothing has to be read for what it is asked first."""
        return self.index.heavy_at_hand if self.heavy_first else self.index.summary_at_hand

    @property
    def is_small(self) -> bool:
        """Whether what it is asked first is read sooner than a reader has begun."""
        return self.heavy_first and self.index.heavy_bytes < _SMALL

    @property
    def reading(self) -> float:
        """The cost of reading a tuple here; of one in memory 1."""
        return float(self.index.reading)

    def bounds(self, hashes: Array) -> tuple[Array, Array, int]:
        """(estimate, certain upper bound) of the tuples of each key, int64 [k] each, from the summary alone; and in how
        many more cells than before keys would lie none of which is left possible."""
        estimate, upper = self.index.bounds(hashes)
        ruled_out = self._rule_out(hashes, upper)
        if not self.whole:
            estimate, upper = np.minimum(estimate, self._room), np.minimum(upper, self._room)
        return estimate, upper, ruled_out

    def _rule_out(self, hashes: Array, upper: Array) -> int:
        """Note which cells keys lie in and which are left possible: how many more are ruled out than before."""
        cells = self.index.bucket_of(hashes)
        if self._cells is None:
            self._cells = np.zeros((2, self.index.buckets), bool)
        before = int((self._cells[0] & ~self._cells[1]).sum())
        self._cells[0, cells] = True
        self._cells[1, cells[upper > 0]] = True
        return int((self._cells[0] & ~self._cells[1]).sum()) - before

    def listed(self, keys: ProbeKeys) -> Listed:
        """What its list of heavy keys says of all keys.  Only where `heavy_first`."""
        heavy, index = self.index.heavy, self.index
        at, place, low, most, others = (np.empty(len(keys), np.int64) for _ in range(5))
        told = np.empty(4, np.int64)
        kernels.listed_cells(
            heavy.hashes, heavy.counts, self._room, keys.hashes, keys.rows, index.shift, at, place, low, most, others,
            told,
        )  # fmt: skip
        n, cells, asking, other_cells = told.tolist()
        expected = (index.keyed - heavy.tuples) / max(1, index.keys - heavy.counts.shape[0])
        return Listed(
            at[:n], place[:n], low[:cells], most[:cells], others[: len(keys) - n], asking, other_cells,
            min(heavy.rest, self._room), expected,
        )  # fmt: skip

    @property
    def _room(self) -> int:
        """Tuples here that are asked for."""
        return max(0, min(self._end, self.index.end) - max(self._begin, self.index.first))

    def asked(self, question: Callable[[], _Told]) -> tuple[_Told, int]:
        """What its `bounds` or `listed` answers, once what was read ahead for it is here, and the bytes read for both.

        By one thread at a time, so that nothing is read twice.
        """
        read, self.ahead = self.ahead.result(), _READ
        before = self.index.bytes_read
        return question(), read + self.index.bytes_read - before

    def count(self, read: int, ruled_out: int = 0) -> None:
        """So many bytes were read and cells ruled out by what it was asked."""
        self._count_bytes(read)
        self._figures.ruled_out += ruled_out

    def look_up(self, keys: ProbeKeys, which: Array) -> Matches:
        """The tuples of some keys (int64 [n], ascending), keys compared by value; reads the cells that they lie in."""
        figures, index = self._figures, self.index
        hashes = keys.hashes[which]
        before = index.bytes_read
        found = index.look_up(hashes)
        before_cells = int(self._read.sum())
        self._read[index.bucket_of(hashes)] = True
        figures.cells += int(self._read.sum()) - before_cells
        figures.looked_up += which.shape[0]
        several = np.flatnonzero(found.entries > 1)
        here = np.flatnonzero(found.entries > 0)
        made = Matches(which[here], found.entry[here], found.begin[here], found.end[here])
        if several.shape[0]:
            made = self._apart(made, found.entries[here], keys)
        if made.key.shape[0]:
            same = keys.same(made.key, index, self._kind, made.entry)
            if not same.all():
                made = made.chosen(same)
        figures.tuples += int((made.end - made.begin).sum())
        if not self.whole:
            made = self._bounded(made)
        self._count_bytes(self.index.bytes_read - before)
        return made

    def look_up_listed(self, keys: ProbeKeys, which: Array, places: Array) -> Matches:
        """The tuples of keys that lie at places of its list of heavy keys: int64 [n] each.  Reads no cell."""
        figures, heavy = self._figures, self.index.heavy
        before = self.index.bytes_read
        begin = heavy.begins[places].astype(np.int64)
        made = Matches(which, places, begin, begin + heavy.counts[places])
        same = keys.same(which, heavy, self._kind, places)
        if not same.all():
            made = made.chosen(same)
        figures.looked_up += which.shape[0]
        figures.listed += which.shape[0]
        figures.tuples += int((made.end - made.begin).sum())
        if not self.whole:
            made = self._bounded(made)
        self._count_bytes(self.index.bytes_read - before)
        return made

    def _apart(self, found: Matches, entries: Array, keys: ProbeKeys) -> Matches:
        """Entries that share a hash, one by one."""
        parts = []
        for i in range(found.key.shape[0]):
            if entries[i] == 1:
                parts.append([(found.key[i], found.entry[i], found.begin[i], found.end[i])])
                continue
            bucket = int(self.index.bucket_of(keys.hashes[found.key[i] : found.key[i] + 1])[0])
            cell = self.index.cell(bucket)
            first = int(found.entry[i]) - cell.first_entry
            starts = cell.starts[first : first + int(entries[i]) + 1] + cell.first_place
            parts.append([(found.key[i], found.entry[i] + e, starts[e], starts[e + 1]) for e in range(int(entries[i]))])
        rows = np.array([row for part in parts for row in part], np.int64).reshape(-1, 4)
        return Matches(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3])

    def _bounded(self, found: Matches) -> Matches:
        """The part of each run within [begin, end); runs that have none are left out."""
        begin, end = self._reached(found, self._begin), self._reached(found, self._end)
        return Matches(found.key, found.entry, begin, end).chosen(begin < end)

    def _reached(self, found: Matches, ordinal: int) -> Array:
        """The first place of each run whose ordinal is not below `ordinal`: int64 [m]; one binary search over all."""
        if ordinal <= self.index.first:
            return found.begin
        if ordinal >= self.index.end:
            return found.end
        low, high = found.begin.copy(), found.end.copy()
        open_ = np.flatnonzero(low < high)
        while open_.shape[0]:
            middle = (low[open_] + high[open_]) >> 1
            below = self.index.ordinals_at(middle) < ordinal
            low[open_[below]] = middle[below] + 1
            high[open_[~below]] = middle[~below]
            open_ = open_[low[open_] < high[open_]]
        return low

    def ordinals(self, begin: Array, end: Array) -> Array:
        """The ordinals of runs of places, run after run: int64 [sum of lengths]."""
        before = self.index.bytes_read
        parts = [self.index.ordinals(b, e) for b, e in zip(begin.tolist(), end.tolist(), strict=True)]
        self._count_bytes(self.index.bytes_read - before)
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def ordinals_at(self, places: Array) -> Array:
        """The ordinals of single places (int64 [n], any order): int64 [n]."""
        before = self.index.bytes_read
        made = self.index.ordinals_at(places)
        self._count_bytes(self.index.bytes_read - before)
        return made

    def _count_bytes(self, read: int) -> None:
        held = self._figures.bytes
        held[self.index.tier] = held.get(self.index.tier, 0) + read


@cache
def _readers() -> ThreadPoolExecutor:
    """Two threads that stay: starting them for every query would take as long as much of its work."""
    return ThreadPoolExecutor(_READERS, "nile-reader")


os.register_at_fork(after_in_child=_readers.cache_clear)


def read_ahead(segments: Sequence[Segment]) -> None:
    """Read what segments are asked first, in this order, two at a time, while the caller looks at keys, but for what is
    small.

    The disk is asked for all of it before anything is looked at: that is done when the last has come from it, and most
    of the rest is checksums.
    """
    unread = [segment for segment in segments if not segment.at_hand]
    for segment in unread:
        segment.index.want(heavy=segment.heavy_first)
    for segment in unread:
        if not segment.is_small:
            segment.ahead = _readers().submit(_heavy_of if segment.heavy_first else _summary_of, segment.index)


def listed_of(segments: Sequence[Segment], keys: ProbeKeys) -> Iterator[Listed]:
    """What the heavy keys of each say of probing keys.  Each must be `heavy_first`."""
    questions = [partial(segment.listed, keys) for segment in segments]
    soon = [segment.at_hand or segment.is_small for segment in segments]
    for segment, (listed, read) in _told(segments, questions, soon):
        segment.count(read)
        yield listed


def bounds_of(segments: Sequence[Segment], hashes: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
    """(estimate, certain upper bound) of the tuples of each segment's own keys (uint64 [k], ascending): int64 [k] each,
    a segment after the other."""
    questions = [partial(segment.bounds, own) for segment, own in zip(segments, hashes, strict=True)]
    soon = [segment.index.summary_at_hand for segment in segments]
    for segment, ((estimate, upper, ruled_out), read) in _told(segments, questions, soon):
        segment.count(read, ruled_out)
        yield estimate, upper


def _told(
    segments: Sequence[Segment], questions: Sequence[Callable[[], _Told]], soon: Sequence[bool]
) -> Iterator[tuple[Segment, tuple[_Told, int]]]:
    """What each segment answers its question, in order.

    soon: whether it is asked here and at once, if nobody reads for it, while readers are busy with others.  Where it is
    being read already it is asked here too, so that what is read is looked at while the next is; the readers ask those
    of which nobody reads anything yet.
    """
    asked = [
        None
        if segment.ahead is not _READ
        else segment.asked(question)
        if now
        else _readers().submit(segment.asked, question)
        for segment, question, now in zip(segments, questions, soon, strict=True)
    ]
    for segment, question, each in zip(segments, questions, asked, strict=True):
        told = segment.asked(question) if each is None else each
        yield segment, told.result() if isinstance(told, Future) else told


def _summary_of(index: KeyIndex) -> int:
    """Read an index's summary, if nobody has: the bytes that it took."""
    before = index.bytes_read
    index.bounds(np.zeros(0, np.uint64))
    return index.bytes_read - before


def _heavy_of(index: KeyIndex) -> int:
    """Read an index's list of heavy keys, if nobody has: the bytes that it took."""
    before = index.bytes_read
    _ = index.heavy
    return index.bytes_read - before


def segments_of(
    history: History, column: str, begin: int, end: int, figures: HistoryFigures, *, heavy_first: bool = False
) -> list[Segment]:
    """The key indices of a column that overlap ordinals [begin, end), oldest first.

    heavy_first: whether those that have a list of heavy keys are asked for that first, and not their digest.
    They are held, so they stay as they are whatever the history does later.
    """
    kind = history.schema.field(column).type
    return [
        Segment(index, kind, begin, end, figures, heavy_first)
        for index in history.indices(column)
        if index.first < end and begin < index.end
    ]
