"""The exact counter: one count for each distinct key, the summary that is always right and never small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from nile.summaries.envelope import Envelope
from nile.summaries.estimate import Estimate
from nile.summaries.summary import TOP, Summary, largest_change

__all__ = ["ExactCounter"]

Array = np.ndarray[Any, Any]


class ExactCounter(Summary):
    """How often each key came, exactly; 16 bytes a distinct key.

    hashes: uint64 [distinct], ascending; counts: int64 [distinct], none zero.  Cost: a batch of n tuples
    sorts the batch and looks its distinct keys up, n log n + n log distinct, and copies the arrays when keys
    are new.  Exact on hashes: two keys of equal hash (chance 2**-64 a pair) share one count.
    Counts stop at the ends of int64 and `saturated` tells.
    """

    __slots__ = ("counts", "hashes")

    kind: ClassVar[str] = "exact"
    linear: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.hashes: Array = np.zeros(0, np.uint64)
        self.counts: Array = np.zeros(0, np.int64)

    @property
    def distinct(self) -> int:
        """Keys whose count is not zero."""
        return int(self.hashes.shape[0])

    @property
    def nbytes(self) -> int:
        return int(self.hashes.nbytes + self.counts.nbytes)

    def estimate(self, hashes: Array) -> Estimate:
        """How often each key came, in tuples: fields float64 [n] for uint64 [n], the interval a point.

        Certified, with confidence 1, until saturated; then it claims nothing (confidence 0).  Counts past
        2**53 are rounded to float64.
        """
        keys = self._checked_hashes(hashes)
        at, found = self._look_up(keys)
        value = np.zeros(keys.shape[0], np.float64)
        value[found] = self.counts[at[found]]
        if self._saturated:
            return Estimate(value, value, value, 0.0, False)
        return Estimate.exact(value)

    def confidence(self) -> float:
        """1: there is nothing to doubt."""
        return 1.0

    def empty(self) -> Self:
        return type(self)()

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        n = hashes.shape[0]
        if n == 0:
            return
        if weights is None:
            self._merge(*np.unique(hashes, return_counts=True))
        elif n > 1 and largest_change(n, weights) > TOP:
            self._insert(hashes[: n // 2], weights[: n // 2])
            self._insert(hashes[n // 2 :], weights[n // 2 :])
        else:
            order = np.argsort(hashes, kind="stable")
            ordered = hashes[order]
            first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
            self._merge(ordered[first], np.add.reduceat(weights[order], first))

    def _combine(self, other: ExactCounter, sign: int) -> None:
        self._merge(other.hashes, other.counts if sign > 0 else -other.counts)

    def _look_up(self, keys: Array) -> tuple[Array, Array]:
        """Where each key is, or would be: positions [n] and whether it is there, bool [n]."""
        at = np.searchsorted(self.hashes, keys)
        found = np.zeros(keys.shape[0], np.bool_)
        inside = at < self.distinct
        found[inside] = self.hashes[at[inside]] == keys[inside]
        return at, found

    def _merge(self, keys: Array, counts: Array) -> None:
        """Add counts to ascending distinct keys, stopping at the ends of int64; zeros are dropped.

        Arrays are replaced, never written, so that nobody who holds them sees them change.
        """
        at, found = self._look_up(keys)
        mine = self.counts.copy()
        mine[at[found]], clipped = _saturating_sum(mine[at[found]], counts[found])
        fresh, fresh_clipped = _saturating_sum(counts[~found], np.zeros_like(counts[~found]))
        hashes = self.hashes
        if fresh.shape[0]:
            hashes = np.insert(hashes, at[~found], keys[~found])
            mine = np.insert(mine, at[~found], fresh)
        kept = mine != 0
        if not kept.all():
            hashes, mine = hashes[kept], mine[kept]
        self.hashes, self.counts = hashes, mine
        self._saturated |= clipped or fresh_clipped

    def _shape(self) -> Mapping[str, object]:
        return {}

    def _params(self) -> Mapping[str, Any]:
        return {}

    def _arrays(self) -> Mapping[str, Array]:
        return {"hashes": self.hashes, "counts": self.counts}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        hashes = envelope.array("hashes", "<u8", (None,))
        counts = envelope.array("counts", "<i8", hashes.shape)
        if not (hashes[1:] > hashes[:-1]).all():
            envelope.refuse("hashes must ascend, each once", "another order")
        if not counts.all() or counts.min(initial=0) < -TOP:
            envelope.refuse(f"counts must be from {-TOP} to {TOP} and not zero", "another count")
        counter = cls()
        counter.hashes = hashes.astype(np.uint64)
        counter.counts = counts.astype(np.int64)
        return counter


def _saturating_sum(a: Array, b: Array) -> tuple[Array, bool]:
    """a + b stopped at -TOP and TOP, and whether any stopped.  int64 [n] each.

    A sum wrapped exactly when both terms have the sign that it lacks.
    """
    total = a + b
    wrapped = ((a ^ total) & (b ^ total)) < 0
    total[wrapped] = np.where(a[wrapped] < 0, -TOP, TOP)
    low = total < -TOP
    total[low] = -TOP
    return total, bool(wrapped.any() or low.any())
