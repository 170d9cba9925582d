"""Selections over a history in steps: blocks, single tuples in a random order, or the cells of some keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.operators.history.blocks import blocks_of
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import HistoryFigures, Matches, bounds_of, read_ahead, segments_of
from nile.operators.history.ruling import NOWHERE, left_of, outside
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
    from nile.pyramid.history.history import History
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["KeyScan", "Scan", "Stretch", "blocks", "rows_at_random"]

Array = np.ndarray[Any, Any]
_DRAWN = 8_192
_TAKEN = 32_768
_LOOKED_UP = 2_048


class Stretch(NamedTuple):
    """Candidates: tuples begin..end-1, or the ordinals (int64 [n]) where these are given; coverage after them.

    passed: how many more were dealt with, which a summary of the stream ruled out.
    """

    begin: int
    end: int
    ordinals: Array | None
    coverage: float
    passed: int = 0


Scan = Iterator[Stretch | None]


def blocks(begin: int, end: int, figures: HistoryFigures, runs: Array = NOWHERE) -> Scan:
    """All of [begin, end), block by block, the latest first.

    runs: int64 [r, 2], where none can be that is asked for: dealt with, but not read.
    """
    made = blocks_of(begin, end, None)
    done = 0
    for low, high in zip(made.begin.tolist(), made.end.tolist(), strict=True):
        left = left_of(runs, low, high)
        passed = high - low - sum(last - first for first, last in left)
        figures.tuples += high - low - passed
        figures.passed += passed
        done += passed
        for first, last in left[:-1]:
            done += last - first
            yield Stretch(first, last, None, done / (end - begin))
        first, last = left[-1] if left else (low, low)
        done += last - first
        yield Stretch(first, last, None, done / (end - begin), passed)


def rows_at_random(begin: int, end: int, figures: HistoryFigures, seed: int, runs: Array = NOWHERE) -> Scan:
    """All of [begin, end), tuple by tuple in a uniformly random order: what came so far is a random sample.

    runs: int64 [r, 2], where none can be that is asked for: of the sample, but not read.
    """
    total = end - begin
    half = max(1, ((total - 1).bit_length() + 1) // 2) if total else 1
    word = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    for at in range(0, total, _DRAWN):
        place = np.empty(min(_DRAWN, total - at), np.int64)
        kernels.permuted(at, total, half, word, place)
        ordinals = outside(runs, np.sort(place) + begin)
        passed = place.shape[0] - ordinals.shape[0]
        figures.tuples += ordinals.shape[0]
        figures.passed += passed
        yield Stretch(0, 0, ordinals, (at + place.shape[0]) / total, passed)


class KeyScan:
    """The tuples of [begin, end) with one of some keys: cells that a digest rules out are not read.

    runs: int64 [r, 2], where none of the keys can be: an index of such tuples alone is not asked.  descending:
    segments with the most expected matches over the cost of reading first, else those with the fewest.
    """

    def __init__(
        self, history: History, column: str, keys: ProbeKeys, begin: int, end: int, figures: HistoryFigures,
        *, descending: bool = True, runs: Array = NOWHERE,
    ) -> None:  # fmt: skip
        self._keys = keys
        self._segments = []
        for segment in segments_of(history, column, begin, end, figures):
            low, high = max(begin, segment.index.first), min(end, segment.index.end)
            if left_of(runs, low, high):
                self._segments.append(segment)
            else:
                figures.passed += high - low
        self._descending = descending
        read_ahead(self._segments)

    def steps(self) -> Scan:
        """Ordinals of them, ascending in a step; coverage: the share of the certain upper bound that was dealt with."""
        keys = self._keys
        bounds = list(bounds_of(self._segments, [keys.hashes] * len(self._segments)))
        guess = np.array([int(guess.sum()) for guess, _ in bounds], np.float64)
        promise = guess / np.array([segment.reading for segment in self._segments])
        most = np.array([int(upper.sum()) for _, upper in bounds], np.int64)
        total, done = int(most.sum()), 0
        for s in np.argsort(-promise if self._descending else promise, kind="stable").tolist():
            segment, possible = self._segments[s], np.flatnonzero(bounds[s][1])
            for at in range(0, possible.shape[0], _LOOKED_UP):
                which = possible[at : at + _LOOKED_UP]
                found = segment.look_up(keys, which)
                for run in _cut(found):
                    yield Stretch(0, 0, np.sort(segment.ordinals(run.begin, run.end)), done / total)
                done += int(bounds[s][1][which].sum())
                yield Stretch(0, 0, np.zeros(0, np.int64), done / total)


def _cut(found: Matches) -> Iterator[Matches]:
    """Runs, cut and put together to at most so many tuples a piece."""
    upto = np.cumsum(found.end - found.begin)
    at = 0
    while at < upto.shape[0]:
        if found.end[at] - found.begin[at] > _TAKEN:
            for begin in range(int(found.begin[at]), int(found.end[at]), _TAKEN):
                end = min(int(found.end[at]), begin + _TAKEN)
                one = found.chosen(slice(at, at + 1))
                yield Matches(one.key, one.entry, np.array([begin]), np.array([end]))
            at += 1
            continue
        before = int(upto[at - 1]) if at else 0
        high = max(at + 1, int(np.searchsorted(upto, before + _TAKEN, side="right")))
        yield found.chosen(slice(at, high))
        at = high
