"""What tuples that came in by coins of their own add to the variance of a live sample's total.

Of a tuple whose coin had probability q, in a key drawn at level d, the outputs are in or out together: with z their
weights it adds d (1 - q) z**2 (`nile.preferences.key_sample`).  A tuple meets tuples of other levels; d is its own, the
most that any of its outputs came under, so that what is added is no less.
Memory.  Tuples of outputs are kept while a window reaches them; of those before, two sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.held import Held, State

__all__ = ["TupleCoins"]

Array = np.ndarray[Any, Any]


class TupleCoins:
    """Those of one stream."""

    def __init__(self) -> None:
        self._tuple = np.zeros(0, np.int64)
        self._sums = np.zeros((0, 2))  # the share of each, and its outputs' weights
        self._gone = np.zeros(2)  # the variance of those let go of, and the largest part of it

    def add(self, tuples: Array, share: Array, total: Array) -> None:
        """Outputs in the order found.  tuples: int64 [n]; share: float64 [n], d (1 - q); total: float64 [n]."""
        thinned = share > 0.0
        if not thinned.any():
            return
        known, at = np.unique(np.concatenate([self._tuple, tuples[thinned]]), return_inverse=True)
        sums = np.zeros((known.shape[0], 2))
        sums[at, 0] = np.concatenate([self._sums[:, 0], share[thinned]])
        sums[:, 1] = np.bincount(at, np.concatenate([self._sums[:, 1], total[thinned]]))  # one by one, in order
        self._tuple, self._sums = known, sums

    def let_go(self, first: int) -> None:
        """No output of a tuple before this one will come."""
        gone = int(np.searchsorted(self._tuple, first))
        if gone:
            self._gone = self._with(slice(0, gone))
            self._tuple, self._sums = self._tuple[gone:].copy(), self._sums[gone:].copy()

    def spread(self) -> tuple[float, float]:
        """The variance, and the largest part of it that one tuple has."""
        variance, largest = self._with(slice(0, None))
        return float(variance), float(largest)

    def _with(self, part: slice) -> Array:
        each = self._sums[part, 0] * self._sums[part, 1] ** 2
        variance = np.add.accumulate(np.append(self._gone[0], each))[-1]  # one by one, whatever the batches
        return np.array([variance, each.max(initial=self._gone[1])])

    def capture(self) -> State:
        """What has been seen, for `nile.execution.envelopes.flat`."""
        return {"tuple": self._tuple, "sums": self._sums, "gone": self._gone}

    def restore(self, held: Held, largest: float) -> None:
        """Be where another one was, of sums up to the largest.  Raises EnvelopeError."""
        self._tuple = held.array("tuple", "int64", (None,))
        self._sums = held.array("sums", "float64", (self._tuple.shape[0], 2))
        self._gone = held.array("gone", "float64", (2,))
        fits = all(bool(((each >= 0.0) & (each <= largest)).all()) for each in (self._sums, self._gone))
        if not fits or (self._tuple < 0).any() or (self._tuple[1:] <= self._tuple[:-1]).any():
            held.refuse("sums of tuples in their order", "others")
        held.end()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._tuple.nbytes + self._sums.nbytes
