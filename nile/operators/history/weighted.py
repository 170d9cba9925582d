"""The pairs of a join of two histories in a uniformly random order: every prefix is a random sample of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.history.join import HistoryJoin, HistorySide, Output, Pairs, together
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import Matches, bounds_of, read_ahead
from nile.summaries.errors import MemoryRefused
from nile.summaries.estimate import Estimate
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["MOST_PROBING", "WeightedJoin"]

Array = np.ndarray[Any, Any]

MOST_PROBING = 1 << 23
"""Probing tuples, of which each takes 8 bytes and its key: all must be known before the first pair is drawn."""
_FIRST = 256
_PIECE = 8_192
_LOOKED_UP = 2_048


class WeightedJoin(HistoryJoin):
    """Every pair, in an order that the seed decides and that is uniform over all orders of ranks in a permutation.

    First the directories say how many pairs each key has in each segment; then pair numbers 0..total - 1 come in
    the order of a keyed permutation, so nothing is drawn twice and no state grows.
    coverage: pairs drawn over all of them; 0 until the total is known.  estimate: the total, exact from then on.
    """

    def __init__(self, left: HistorySide, right: HistorySide, *, seed: int = 0) -> None:
        """Raises MemoryRefused where neither side is small enough to be held."""
        super().__init__(left, right)
        self._seed = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self.total: int | None = None
        self._drawn = 0
        if self.probe.tuples > MOST_PROBING:
            raise MemoryRefused(
                f"progressive join WITH PREFERENCE weighted: needed a side of at most {MOST_PROBING:,} tuples, whose "
                f"keys are held; got {self.probe.tuples:,}; bound the time of one side, or say desc"
            )
        read_ahead(self._segments)

    def steps(self) -> Iterator[Output | None]:
        keys = yield from self._keys(self.probe.begin, self.probe.end)
        parts: list[tuple[int, Matches]] = []
        for s, (_, upper) in enumerate(bounds_of(self._segments, [keys.hashes] * len(self._segments))):
            segment, possible = self._segments[s], np.flatnonzero(upper)
            for at in range(0, possible.shape[0], _LOOKED_UP):
                parts.append((s, segment.look_up(keys, possible[at : at + _LOOKED_UP])))
                yield None
        owner, runs = together(parts)
        upto = np.cumsum(keys.rows[runs.key] * (runs.end - runs.begin))
        self.total = int(upto[-1]) if upto.shape[0] else 0
        half = max(1, ((self.total - 1).bit_length() + 1) // 2) if self.total else 1
        size = _FIRST
        while self._drawn < self.total:
            number = np.empty(min(size, self.total - self._drawn), np.int64)
            kernels.permuted(self._drawn, self.total, half, self._seed, number)
            size = _PIECE
            pairs = self._pairs_of(keys, owner, runs, upto, number)
            self._drawn += number.shape[0]
            self.figures.outputs += number.shape[0]
            yield pairs

    def _pairs_of(self, keys: ProbeKeys, owner: Array, runs: Matches, upto: Array, number: Array) -> Pairs:
        """The pairs of these numbers."""
        run = np.searchsorted(upto, number, side="right")
        length = (runs.end - runs.begin)[run]
        within = number - (upto[run] - keys.rows[runs.key[run]] * length)
        probing = keys.ordinals[keys.starts[runs.key[run]] + within // length]
        place = runs.begin[run] + within % length
        other = np.empty_like(probing)
        mine = owner[run]
        for s in np.unique(mine).tolist():
            at = np.flatnonzero(mine == s)
            other[at] = self._segments[s].ordinals_at(place[at])
        return Pairs(other, probing) if self.swapped else Pairs(probing, other)

    @property
    def coverage(self) -> float:
        if self.total is None:
            return 0.0
        return self._drawn / self.total if self.total else 1.0

    @property
    def estimate(self) -> Estimate:
        if self.total is not None:
            return Estimate.exact(float(self.total))
        return Estimate.between(0.0, 0.0, float(self.probe.tuples * self.other.tuples))
