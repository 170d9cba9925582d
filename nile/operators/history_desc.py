"""The join of two histories, most matches first: regions (key x cell) by expected matches over the cost of reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nile.operators.history_join import HistoryJoin, HistorySide, Output, Ranges, together
from nile.operators.history_keys import ProbeKeys
from nile.operators.history_lookup import Matches, bounds_of
from summaries.estimate import Estimate

__all__ = ["DescendingJoin"]

Array = np.ndarray[Any, Any]
_FIRST = 1_024
_PIECE = 4_096


class _Regions(NamedTuple):
    """Cells with probing keys in them, best first: int64 [n] but promise.

    segment; low, high: the keys, as places in `possible[segment]`; most: certain upper bound of its matches;
    guess: matches expected.  possible: of each segment the keys that its sketch leaves possible, int64.
    """

    segment: Array
    low: Array
    high: Array
    most: Array
    guess: Array
    possible: list[Array]


class DescendingJoin(HistoryJoin):
    """Every pair, the most promising cells first.

    coverage: pairs reported, over these and the certain upper bound of those still to come.  estimate: from what was
    reported to that bound; the bounds of sketches are certain, so it is certified.
    """

    def __init__(self, left: HistorySide, right: HistorySide, *, output: str = "pairs") -> None:
        super().__init__(left, right, output=output)
        self._reported = 0
        self._pending = 0
        self._most = 0
        self._guess = 0
        self._chunk_reported = 0
        self._chunk_rows = 0
        self._unread = self.probe.tuples
        self._floor = 0.0

    def steps(self) -> Iterator[Output | None]:
        for begin, end in self._chunks():
            self._chunk_reported, self._chunk_rows = 0, end - begin
            keys = yield from self._keys(begin, end)
            regions = yield from self._plan(keys)
            self._unread -= end - begin
            yield from self._visit(keys, regions)
            self._passed += end - begin

    def _plan(self, keys: ProbeKeys) -> Any:
        """The regions, best first; a step a segment."""
        parts, possible = [], []
        for s, (estimate, upper) in enumerate(bounds_of(self._segments, keys)):
            segment = self._segments[s]
            at = np.flatnonzero(upper)
            possible.append(at)
            if at.shape[0]:
                low = _cuts(segment.index.bucket_of(keys.hashes[at]))
                rows = keys.rows[at]
                guess = np.add.reduceat(rows * estimate[at], low)
                most = np.add.reduceat(rows * upper[at], low)
                high = np.append(low[1:], at.shape[0])
                parts.append((np.full(low.shape[0], s), low, high, most, guess, guess / segment.reading))
            yield None
        if not parts:
            none = np.zeros(0, np.int64)
            return _Regions(none, none, none, none, none, possible)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(-columns[5], kind="stable")
        owner, low, high, most, guess = (column[order] for column in columns[:5])
        regions = _Regions(owner, low, high, most, guess, possible)
        self._most, self._guess = int(regions.most.sum()), int(regions.guess.sum())
        return regions

    def _visit(self, keys: ProbeKeys, regions: _Regions) -> Iterator[Output | None]:
        upto = np.cumsum(regions.high - regions.low)
        at, size = 0, _FIRST
        while at < upto.shape[0]:
            before = int(upto[at - 1]) if at else 0
            end = max(at + 1, int(np.searchsorted(upto, before + size, side="right")))
            size = _PIECE
            segment, found = self._read(keys, regions, at, end)
            self._most -= int(regions.most[at:end].sum())
            self._guess -= int(regions.guess[at:end].sum())
            length = found.end - found.begin
            matches = keys.rows[found.key] * length
            self._pending = int(matches.sum())
            yield None
            order = np.argsort(-matches, kind="stable")
            for output in self._emit(keys, segment[order], found.chosen(order)):
                new = int((output.last - output.first + 1).sum()) if isinstance(output, Ranges) else len(output.left)
                self._pending -= new
                self._reported += new
                self._chunk_reported += new
                yield output
            at = end

    def _read(self, keys: ProbeKeys, regions: _Regions, at: int, end: int) -> tuple[Array, Matches]:
        """The runs of regions at..end-1, whose cells are read."""
        parts = []
        owner = regions.segment[at:end]
        for s in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == s) + at
            low, high = regions.low[mine], regions.high[mine]
            size = high - low
            places = np.repeat(low - np.concatenate([[0], np.cumsum(size)[:-1]]), size) + np.arange(int(size.sum()))
            which = np.sort(regions.possible[s][places])
            parts.append((s, self._segments[s].look_up(keys, which)))
        return together(parts)

    @property
    def coverage(self) -> float:
        if not self.probe.tuples:
            return 1.0
        to_come = self._pending + self._most
        within = 0.0
        if self._chunk_rows and self._unread + self._passed < self.probe.tuples:  # the chunk's bounds are known
            total = self._chunk_reported + to_come
            within = (self._chunk_reported / total if total else 1.0) * self._chunk_rows
        self._floor = max(self._floor, min(1.0, (self._passed + within) / self.probe.tuples))
        return self._floor

    @property
    def estimate(self) -> Estimate:
        to_come = self._pending + self._most
        unread = self._unread * self.other.tuples  # nothing is known of the keys of chunks that were not read
        found = float(self._reported)
        value = found + self._pending + max(0, self._guess)
        if unread:
            done = self.probe.tuples - self._unread
            value = value * self.probe.tuples / done if done else 0.0
        high = found + to_come + unread
        return Estimate(min(max(value, found), high), found, high, 1.0, True)


def _cuts(buckets: Array) -> Array:
    """Where runs of equal ascending values begin."""
    return np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])
