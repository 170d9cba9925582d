"""How much totals of samples vary at the rates that tuples met, whatever came in.

Live (`RatesMet`): where no coin is cast but by hash, an arrival that completes m outputs while keys come in with
a share d adds m * sqrt((1 - d) / d) to the root of what its key adds to the variance (Horvitz-Thompson; as levels of a
key are nested, no less than it is).  A refused tuple met the share that the last one came in with, and no more than
where its key lies.
Keys share sums by their hash: a 1,024th of the total's square at most is added.
Over an input that is there whole (`least_variance`): pairs that one arrival completes are in or out with its coin, so m
of them under level d and coin q add m * m * (1 / q - 1) / d at least.  `nile.preferences.key_sample.left_out` tells
what keys that are out by their hash may have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import Held, State
from nile.operators.common.data import JoinInput
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.join import learning_kernels, rates_kernels
    from nile.operators.join.sampling import Sampling
else:
    learning_kernels = lazy("nile.operators.join.learning_kernels")
    rates_kernels = lazy("nile.operators.join.rates_kernels")

__all__ = ["RatesMet", "least_variance"]

Array = np.ndarray[Any, Any]
_CELLS = 1024
_LARGEST = 1e60
_PIECE = 1 << 17


class RatesMet:
    """Those of all tuples of so many streams, each in order."""

    def __init__(self, streams: int) -> None:
        self._matches = 0.0
        self._by_key = np.zeros((streams, _CELLS))  # a row each: sums go on in order, whatever the cuts
        self._share = np.ones(streams)  # that the last tuple of each stream came in with; before any did, all would
        self._waiting = [np.zeros(0) for _ in range(streams)]  # matches of those that were not dealt with yet

    def arrive(self, stream: int, matches: Array) -> None:
        """Tuples of a stream came.  matches: float64 [n], the outputs that each completes, whoever came in."""
        self._waiting[stream] = np.concatenate([self._waiting[stream], matches])

    def deal_with(self, stream: int, share: Array, key: Array, salt: int) -> None:
        """The next tuples of a stream were dealt with.

        share: float64 [n], of keys that came in when each did, 0 where it was refused; key: uint64 [n], hashes; salt:
        of the places that these have among all, -1 where tuples are refused by coins of their own, too.
        """
        n = share.shape[0]
        matches, self._waiting[stream] = self._waiting[stream][:n], self._waiting[stream][n:]
        self._matches += math.fsum(matches)  # whole numbers: the same in any order
        self._share[stream] = rates_kernels.meet_rates(
            matches, share, key, salt, float(self._share[stream]), self._by_key[stream]
        )

    @property
    def foreseen(self) -> tuple[float, float]:
        """The matches of all tuples, whoever came in, and the variance of totals of samples at their rates."""
        return self._matches, float((self._by_key.sum(axis=0) ** 2).sum())

    def capture(self) -> State:
        """What has been seen, for `nile.execution.envelopes.flat`."""
        return {
            "by_key": self._by_key.copy(), "share": self._share.copy(), "matches": np.array([self._matches]),
            "waiting": [{"matches": each} for each in self._waiting],
        }  # fmt: skip

    def restore(self, held: Held) -> None:
        """Be where another one was.  Raises EnvelopeError."""
        by_key, matches = held.array("by_key", "float64", self._by_key.shape), held.array("matches", "float64", (1,))
        share = held.array("share", "float64", self._share.shape)
        waiting = []
        for part in held.parts("waiting", len(self._waiting)):
            waiting.append(part.array("matches", "float64", (None,)))
            part.end()
        fits = all(bool(((each >= 0.0) & (each <= _LARGEST)).all()) for each in (by_key, matches, *waiting))
        if not fits or not ((share > 0.0) & (share <= 1.0)).all():
            held.refuse("sums of what tuples add to a variance, and shares of keys", "others")
        self._by_key, self._share, self._waiting = by_key.copy(), share.copy(), waiting
        self._matches = float(matches[0])
        held.end()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._by_key.nbytes + sum(each.nbytes for each in self._waiting)


def least_variance(p: Sampling, data: JoinInput, matches: Array, salt: int) -> float:
    """What coins of tuples make of the variance of a sample's total at least, by the rates that all met: float.

    p: the plan, and how its rates were moved; matches: float64 [arrivals], the pairs that each completes, whoever came
    in; salt: of the places of keys.  Arrivals before the first that was looked at met what that one did.  O(arrivals).
    """
    n, begun, variance = data.order.shape[0], [0, 0], 0.0
    known = np.flatnonzero(p.factors)
    for begin in range(0, n, _PIECE):
        at = np.arange(begin, min(n, begin + _PIECE))
        order = data.order[at]
        hashes = np.empty(at.shape[0], np.uint64)
        for side, encoded in enumerate((data.left, data.right)):
            mine = order == side
            end = begun[side] + int(np.count_nonzero(mine))
            hashes[mine] = encoded.hashes[begun[side] : end]
            begun[side] = end
        slots = np.empty(at.shape[0], np.int64)
        learning_kernels.slots_of(hashes, salt, slots)
        segment = np.searchsorted(p.ends, at, side="right")
        stratum = p.slot[segment, slots]
        coin = np.where(order == 0, p.left[segment, stratum], p.right[segment, stratum])
        if known.shape[0]:
            part = at * p.factors.shape[0] // n
            coin = coin * p.factors[known[np.maximum(0, np.searchsorted(known, part, side="right") - 1)]]
        thinned = 1.0 / np.minimum(1.0, coin) - 1.0
        variance += float((matches[at] ** 2 * thinned / p.level[segment, stratum]).sum())
    return variance
