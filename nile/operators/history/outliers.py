"""The outliers of a join of two histories: pairs of keys that are rare in all of both, reported when certain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nile.operators.history.join import HistoryJoin, HistorySide, Output, Pairs
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import Matches, Segment, bounds_of, segments_of
from nile.summaries.estimate import Estimate

__all__ = ["OutlierJoin"]

Array = np.ndarray[Any, Any]
_FIRST = 128
_PIECE = 2_048


class OutlierJoin(HistoryJoin):
    """Pairs whose key has at most `cap` tuples in both histories together, all that is kept, rarest first.

    Conditions and bounds in time say which pairs are asked for; what counts as rare is over the whole streams.  A
    history joined with itself counts each tuple on both sides.  A key is ruled out as soon as what was found exceeds
    the cap, or as no sketch leaves a match possible; what was reported is never taken back.
    coverage: the share of probing tuples whose key has been decided.
    Source: DESIGN, section 2, Outliers, without a window; promising tuples, section 4.1 (asc).
    """

    def __init__(self, left: HistorySide, right: HistorySide, *, cap: int) -> None:
        super().__init__(left, right)
        self.cap = cap
        self._own = self.probe.history is self.other.history and self.probe.column == self.other.column
        history = self.other.history
        sides = [(segment, True) for segment in segments_of(
            history, self.other.column, 0, history.tuples, self.figures)]  # fmt: skip
        if not self._own:
            history = self.probe.history
            sides += [(segment, False) for segment in segments_of(
                history, self.probe.column, 0, history.tuples, self.figures)]  # fmt: skip
        self._sides: list[tuple[Segment, bool]] = sides
        self._reported = 0
        self._decided = 0
        self._most = 0
        self._guess = 0.0
        self._unread = self.probe.tuples
        self._in_chunk = 0

    def steps(self) -> Iterator[Output | None]:
        for begin, end in self._chunks():
            keys = yield from self._keys(begin, end)
            self._in_chunk = 0
            yield from self._visit(keys, end - begin)
            self._decided += end - begin - self._in_chunk

    def _visit(self, keys: ProbeKeys, tuples: int) -> Iterator[Output | None]:
        n, sides = len(keys), self._sides
        twice = 2 if self._own else 1
        guess, most = np.zeros((len(sides), n), np.int64), np.zeros((len(sides), n), np.int64)
        for s, (estimate, upper) in enumerate(bounds_of([segment for segment, _ in sides], keys)):
            guess[s], most[s] = estimate, upper
            yield None
        self._unread -= tuples
        matching = np.array([far for _, far in sides], bool)
        possible = most[matching].sum(axis=0) > 0
        possible &= keys.rows * twice <= self.cap
        expected = guess.sum(axis=0)
        candidates = np.flatnonzero(possible)
        candidates = candidates[np.argsort(expected[candidates], kind="stable")]
        # A key of at most cap tuples, r of them on the probing side, has at most r * (cap - r) pairs.
        bound = np.minimum(most[matching].sum(axis=0), np.maximum(0, self.cap // twice - (twice == 1) * keys.rows))
        bound = keys.rows * bound
        likely = np.where(expected * twice <= self.cap, keys.rows * guess[matching].sum(axis=0), 0)
        self._most, self._guess = int(bound[candidates].sum()), float(np.minimum(likely, bound)[candidates].sum())
        self._in_chunk = tuples - int(keys.rows[candidates].sum())
        self._decided += self._in_chunk
        at, size = 0, _FIRST
        while at < candidates.shape[0]:
            batch = np.sort(candidates[at : at + size])
            at, size = at + size, min(2 * size, _PIECE)
            found = yield from self._decide(keys, batch, guess, most, twice)
            pairs = self._certain(keys, found)
            self._most -= int(bound[batch].sum())
            self._guess -= float(np.minimum(likely, bound)[batch].sum())
            rows = int(keys.rows[batch].sum())
            self._decided += rows
            self._in_chunk += rows
            if pairs is not None:
                self._reported += len(pairs.left)
            yield pairs

    def _decide(self, keys: ProbeKeys, batch: Array, guess: Array, most: Array, twice: int) -> Any:
        """The runs of matches of those keys of the batch that are rare; a step a segment that is asked."""
        sides = self._sides
        reading = np.array([segment.reading for segment, _ in sides])
        order = np.argsort(-guess[:, batch].sum(axis=1) / reading, kind="stable")
        counted = np.zeros(batch.shape[0], np.int64)
        to_come = most[:, batch].sum(axis=0)
        parts: list[tuple[int, Matches]] = []
        for s in order.tolist():
            segment, far = sides[s]
            upper = most[s, batch]
            # Of the probing side nothing needs to be read for keys that are rare whatever it holds.
            open_ = (counted <= self.cap) & (upper > 0) & (far | (counted + twice * to_come > self.cap))
            to_come = to_come - upper
            asked = np.flatnonzero(open_)
            skipped = np.flatnonzero((upper > 0) & ~open_ & (counted <= self.cap))
            counted[skipped] += twice * upper[skipped]
            if not asked.shape[0]:
                continue
            found = segment.look_up(keys, batch[asked])
            np.add.at(counted, np.searchsorted(batch, found.key), twice * (found.end - found.begin))
            if far:
                parts.append((s, found))
            yield None
        rare = counted <= self.cap
        kept = []
        for s, found in parts:
            mine = rare[np.searchsorted(batch, found.key)]
            if mine.any():
                kept.append((s, found.chosen(mine)))
        return kept

    def _certain(self, keys: ProbeKeys, kept: list[tuple[int, Matches]]) -> Pairs | None:
        """The pairs of runs of rare keys that the statement asks for."""
        rows, matches = [], []
        for s, found in kept:
            others = self._sides[s][0].ordinals(found.begin, found.end)
            key = np.repeat(found.key, found.end - found.begin)
            inside = (others >= self.other.begin) & (others < self.other.end)
            key, others = key[inside], others[inside]
            size = keys.rows[key]
            first = np.repeat(keys.starts[key] - (np.cumsum(size) - size), size)
            rows.append(keys.ordinals[first + np.arange(int(size.sum()))])
            matches.append(np.repeat(others, size))
        if not rows:
            return None
        probing, other = np.concatenate(rows), np.concatenate(matches)
        self.figures.outputs += probing.shape[0]
        return Pairs(other, probing) if self.swapped else Pairs(probing, other)

    @property
    def coverage(self) -> float:
        return self._decided / self.probe.tuples if self.probe.tuples else 1.0

    @property
    def estimate(self) -> Estimate:
        found = float(self._reported)
        high = found + self._most + self._unread * max(0, self.cap - 1)
        return Estimate(min(found + max(0.0, self._guess), high), found, high, 1.0, True)
