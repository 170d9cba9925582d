"""The join of two histories, most matches first: regions (key x cell) by expected matches over the cost of reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.operators.history.join import HistoryJoin, HistorySide, Output, Ranges, together
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import Listed, Matches, bounds_of, listed_of, read_ahead
from nile.summaries.estimate import Estimate
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["DescendingJoin"]

Array = np.ndarray[Any, Any]
_FIRST = 1_024
_PIECE = 4_096


class _Group(NamedTuple):
    """Keys that a segment may have: int64, ascending.  places: of those of its list of heavy keys, where in it; else
    None.  rest: the certain bound of each, where the digest was not asked yet; else None."""

    segment: int
    keys: Array
    places: Array | None = None
    rest: int | None = None


class _Regions(NamedTuple):
    """Cells with keys of a group in them: int64 [n] but promise; best first.

    group; low, high: the keys, as places in the group's (low -1: all of a group whose digest was not asked); most:
    certain upper bound of its matches; guess: matches expected; promise: float64, a cell's guess over the cost of
    reading.
    """

    group: Array
    low: Array
    high: Array
    most: Array
    guess: Array
    promise: Array

    def part(self, at: Array | slice) -> _Regions:
        """Those at an index."""
        return _Regions(*(column[at] for column in self))


class DescendingJoin(HistoryJoin):
    """Every pair, the most promising cells first.

    A segment with a list of its heavy keys is first asked for those; its digest is read when what the other keys are
    expected to have, a cell, is the most there is to come.
    coverage: pairs reported, over these and the certain upper bound of those still to come.  estimate: from what was
    reported to that bound; the bounds of lists and digests are certain, so it is certified.
    """

    _heavy_first = True

    def __init__(self, left: HistorySide, right: HistorySide, *, output: str = "pairs") -> None:
        super().__init__(left, right, output=output)
        read_ahead(self._segments)
        self._reported = 0
        self._pending = 0
        self._most = 0
        self._guess = 0
        self._chunk_reported = 0
        self._chunk_rows = 0
        self._unread = self.probe.tuples
        self._floor = 0.0
        self._groups: list[_Group] = []

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
        self._groups = []
        parts = []
        heavy = [s for s, segment in enumerate(self._segments) if segment.heavy_first]
        other = [s for s, segment in enumerate(self._segments) if not segment.heavy_first]
        asked = bounds_of([self._segments[s] for s in other], [keys.hashes] * len(other))
        if all(self._segments[s].index.summary_at_hand for s in other):
            asked = iter(list(asked))  # nothing is waited for, while lists are read
        for s, listed in zip(heavy, listed_of([self._segments[s] for s in heavy], keys), strict=True):
            parts += [self._listed(s, listed), self._unasked(s, listed)]
            yield None
        for s, (estimate, upper) in zip(other, asked, strict=True):
            at = np.flatnonzero(upper)
            parts.append(self._cells(keys, s, at, estimate[at], upper[at]))
            yield None
        regions = _best_first(parts)
        self._most, self._guess = int(regions.most.sum()), int(regions.guess.sum())
        return regions

    def _cells(self, keys: ProbeKeys, s: int, at: Array, estimate: Array, upper: Array) -> _Regions:
        """The cells of a segment in which keys `at` lie, of which each has so many tuples: int64 [len(at)] each."""
        low = _cuts(self._segments[s].index.bucket_of(keys.hashes[at]))
        rows = keys.rows[at]
        guess = np.add.reduceat(rows * estimate, low) if at.shape[0] else low
        most = np.add.reduceat(rows * upper, low) if at.shape[0] else low
        return self._regions(_Group(s, at), low, most, guess)

    def _listed(self, s: int, listed: Listed) -> _Regions:
        """The cells of a segment with keys that it lists."""
        return self._regions(_Group(s, listed.at, listed.place), listed.low, listed.most, listed.most)

    def _regions(self, group: _Group, low: Array, most: Array, guess: Array) -> _Regions:
        """Cells that begin at places `low` of a group's keys."""
        self._groups.append(group)
        high = np.append(low[1:], group.keys.shape[0])[: low.shape[0]]
        number = np.full(low.shape[0], len(self._groups) - 1)
        return _Regions(number, low, high, most, guess, guess / self._segments[group.segment].reading)

    def _unasked(self, s: int, listed: Listed) -> _Regions:
        """The keys that a segment does not list as one region, which promises what one cell of it does."""
        self._groups.append(_Group(s, listed.others, None, listed.rest))
        guess = listed.asking * min(listed.expected, listed.rest)
        promise = guess / max(1, listed.cells) / self._segments[s].reading
        many = 1 if listed.asking and listed.rest else 0
        group, none = np.full(many, len(self._groups) - 1), np.full(many, -1)
        most, expected = np.full(many, listed.asking * listed.rest), np.full(many, int(guess))
        return _Regions(group, none, none, most, expected, np.full(many, promise))

    def _opened(self, keys: ProbeKeys, regions: _Regions, at: Array) -> _Regions:
        """Ask the digests of regions `at`; all regions with what those become, best first."""
        groups = [self._groups[g] for g in regions.group[at].tolist()]
        parts = []
        asked = bounds_of([self._segments[group.segment] for group in groups], [keys.hashes] * len(groups))
        for group, (estimate, upper) in zip(groups, asked, strict=True):
            assert group.rest is not None
            which = group.keys[upper[group.keys] > 0]
            most = np.minimum(upper[which], group.rest)
            parts.append(self._cells(keys, group.segment, which, np.minimum(estimate[which], most), most))
        opened = regions.part(at)
        self._most += sum(int(part.most.sum()) for part in parts) - int(opened.most.sum())
        self._guess += sum(int(part.guess.sum()) for part in parts) - int(opened.guess.sum())
        return _best_first([regions.part(np.setdiff1d(np.arange(regions.group.shape[0]), at)), *parts])

    def _visit(self, keys: ProbeKeys, regions: _Regions) -> Iterator[Output | None]:
        size = _FIRST
        while n := regions.group.shape[0]:
            unasked = np.flatnonzero(regions.low < 0)
            ready = int(unasked[0]) if unasked.shape[0] else n
            if not ready:
                # Those that promise about as much are asked with it: each asking sorts what is left anew.
                alike = regions.promise[unasked] >= regions.promise[0] / 2
                regions = self._opened(keys, regions, unasked[alike])
                yield None
                continue
            upto = np.cumsum((regions.high - regions.low)[: min(size, ready)])
            end = max(1, int(np.searchsorted(upto, size, side="right")))
            size = min(2 * size, _PIECE)
            now, regions = regions.part(slice(None, end)), regions.part(slice(end, None))
            segment, found = self._read(keys, now)
            self._most -= int(now.most.sum())
            self._guess -= int(now.guess.sum())
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

    def _read(self, keys: ProbeKeys, regions: _Regions) -> tuple[Array, Matches]:
        """The runs of these regions, whose cells are read."""
        order = np.lexsort((regions.low, regions.group))
        low, high = regions.low[order], regions.high[order]
        size = int((high - low).sum())
        which, places = np.empty(size, np.int64), np.empty(size, np.int64)
        kernels.expand(low, high, which, places)
        of = regions.group[order][which]
        parts: list[tuple[int, Matches]] = []
        cuts = _cuts(of)
        for g, at in zip(of[cuts].tolist(), np.split(places, cuts[1:]), strict=True):
            group = self._groups[g]
            segment = self._segments[group.segment]
            if group.places is None:
                found = segment.look_up(keys, group.keys[at])
            else:
                found = segment.look_up_listed(keys, group.keys[at], group.places[at])
            parts.append((group.segment, found))
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


def _best_first(parts: list[_Regions]) -> _Regions:
    """All of some regions; of promises that are alike in 8 bits in their order.

    So they are sorted by 16 bits, a tenth of the time: sign, exponent and 7 bits of a float32.
    """
    none = np.zeros(0, np.int64)
    columns = [np.concatenate(column) for column in zip(_Regions(*[none] * 6), *parts, strict=True)]
    code = (columns[5].astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return _Regions(*columns).part(np.argsort(~code, kind="stable"))


def _cuts(buckets: Array) -> Array:
    """Where runs of equal ascending values begin."""
    return np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])[: buckets.shape[0]]
