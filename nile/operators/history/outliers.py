"""The outliers of a join of two histories: pairs of keys that are rare in all of both, reported when certain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nile.operators.history.join import HistoryJoin, HistorySide, Output, Pairs
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import Matches, Segment, bounds_of, read_ahead, segments_of
from nile.summaries.estimate import Estimate

__all__ = ["OutlierJoin"]

Array = np.ndarray[Any, Any]
_FIRST = 128
_PIECE = 2_048


class _Told:
    """What digests told of keys: asked (bool), guess and most (int64) by side and key; expected: all guesses of a key
    so far, int64."""

    def __init__(self, sides: int, keys: int) -> None:
        self.asked = np.zeros((sides, keys), bool)
        self.guess, self.most = np.zeros((sides, keys), np.int64), np.zeros((sides, keys), np.int64)
        self.expected = np.zeros(keys, np.int64)


class OutlierJoin(HistoryJoin):
    """Pairs whose key has at most `cap` tuples in both histories together, all that is kept, rarest first.

    Conditions and bounds in time say which pairs are asked for; what counts as rare is over the whole streams.  A
    history joined with itself counts each tuple on both sides.  A key is ruled out as soon as what was found exceeds
    the cap, or as no digest leaves a match possible; what was reported is never taken back.
    coverage: the share of probing tuples whose key has been decided.
    Source: DESIGN, section 2, Outliers, without a window; promising tuples, section 4.1 (asc).
    """

    def __init__(self, left: HistorySide, right: HistorySide, *, cap: int) -> None:
        super().__init__(left, right, whole=True)
        self.cap = cap
        self._own = self.probe.history is self.other.history and self.probe.column == self.other.column
        sides = [(segment, True) for segment in self._segments]
        if not self._own:
            history = self.probe.history
            sides += [(segment, False) for segment in segments_of(
                history, self.probe.column, 0, history.tuples, self.figures)]  # fmt: skip
        self._sides: list[tuple[Segment, bool]] = sides
        self._largest_first = sorted(range(len(sides)), key=lambda s: -sides[s][0].index.tuples)
        read_ahead([sides[s][0] for s in self._largest_first])
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
        told = _Told(len(self._sides), len(keys))
        twice = 2 if self._own else 1
        # Of a key with r tuples on the probing side, at most cap in all, there are at most r * (cap - r) pairs.
        bound = keys.rows * np.maximum(0, self.cap // twice - (twice == 1) * keys.rows)
        # What some indices make too frequent is put off before the others are asked; their order stays the same.
        first, later = np.flatnonzero(keys.rows * twice <= self.cap), [np.zeros(0, np.int64)]
        for s in self._largest_first:
            yield from self._ask(told, keys, [s], first)
            frequent = told.expected[first] * twice > self.cap
            later.append(first[frequent])
            first = first[~frequent]
        put_off = np.sort(np.concatenate(later))
        self._unread -= tuples
        self._in_chunk = tuples - int(keys.rows[first].sum()) - int(keys.rows[put_off].sum())
        self._decided += self._in_chunk
        self._most, self._guess = int(bound[put_off].sum()), 0.0
        yield from self._decide_all(keys, told, first, bound)
        if put_off.shape[0]:
            yield from self._ask(told, keys, self._largest_first, put_off)
            self._most -= int(bound[put_off].sum())
            yield from self._decide_all(keys, told, put_off, bound)

    def _ask(self, told: _Told, keys: ProbeKeys, sides: Sequence[int], which: Array) -> Iterator[None]:
        """Ask the digests of some sides about some keys (int64 [m]), unless they told of them; a step a digest."""
        fresh = [which[~told.asked[s, which]] for s in sides]
        segments = [self._sides[s][0] for s in sides]
        answers = bounds_of(segments, [keys.hashes[own] for own in fresh])
        for s, own, (estimate, upper) in zip(sides, fresh, answers, strict=True):
            told.asked[s, own] = True
            told.guess[s, own], told.most[s, own] = estimate, upper
            told.expected[own] += estimate
            yield None

    def _decide_all(self, keys: ProbeKeys, told: _Told, which: Array, bound: Array) -> Iterator[Output | None]:
        """The outliers among some keys (int64 [m], ascending), those expected to be rarest first.

        bound: int64 [k], the pairs that a key has at most.
        """
        twice = 2 if self._own else 1
        matching = np.array([far for _, far in self._sides], bool)
        matches = told.most[matching][:, which].sum(axis=0)
        candidates, matches = which[matches > 0], matches[matches > 0]
        expected = told.expected[candidates]
        guess = np.where(expected * twice <= self.cap, told.guess[matching][:, candidates].sum(axis=0), 0)
        order = np.argsort(expected, kind="stable")
        candidates = candidates[order]
        most = np.minimum(bound[candidates], keys.rows[candidates] * matches[order])
        likely = np.minimum(most, keys.rows[candidates] * guess[order])
        self._most += int(most.sum())
        self._guess += float(likely.sum())
        decided = int(keys.rows[which].sum()) - int(keys.rows[candidates].sum())
        self._decided += decided
        self._in_chunk += decided
        at, size = 0, _FIRST
        while at < candidates.shape[0]:
            now = slice(at, at + size)
            batch = np.sort(candidates[now])
            found = yield from self._decide(keys, batch, told, twice)
            pairs = self._certain(keys, found)
            self._most -= int(most[now].sum())
            self._guess -= float(likely[now].sum())
            rows = int(keys.rows[batch].sum())
            self._decided += rows
            self._in_chunk += rows
            at, size = at + size, min(2 * size, _PIECE)
            if pairs is not None:
                self._reported += len(pairs.left)
            yield pairs

    def _decide(self, keys: ProbeKeys, batch: Array, told: _Told, twice: int) -> Any:
        """The runs of matches of those keys of the batch that are rare; a step a segment that is asked."""
        sides, guess, most = self._sides, told.guess, told.most
        reading = np.array([segment.reading for segment, _ in sides])
        order = np.argsort(-guess[:, batch].sum(axis=1) / reading, kind="stable")
        counted = np.zeros(batch.shape[0], np.int64)
        to_come = most[:, batch].sum(axis=0)
        parts: list[tuple[int, Matches]] = []
        for s in order.tolist():  # hardly any of those that may be here is ruled out by what the others have
            segment, far = sides[s]
            if far:
                segment.index.want_keys(keys.hashes[batch[most[s, batch] > 0]])
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
