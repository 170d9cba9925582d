"""The heaviest keys of a key index: what most matches are with, known without reading its sketch.

The sketch takes 6 to 12 bytes a key and every byte of it is checked before its first use; this list takes one and a
half, and with it goes a certain bound for all other keys.  Between the two a query that wants the most matches first
needs few sketches.  Source: promising tuples, section 3.2 (several granularities of counts over one cell).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from summaries.lazy import lazy

if TYPE_CHECKING:
    from pyramid.history import history_kernels
else:
    history_kernels = lazy("pyramid.history.history_kernels")

__all__ = ["Heaviest", "HeavyKeys"]

Array = np.ndarray[Any, Any]

SHARE = 8
"""One distinct key of so many is listed."""
LEAST = 4_096
"""Of fewer distinct keys none is: their sketch is at most 48 KB."""
MOST = 1 << 16
"""Keys listed at most: 768 KB."""


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """hashes: uint64 [h], strictly ascending; counts: uint32 [h], the tuples of each, exact; rest: any other hash has
    at most so many; others: how many other distinct hashes there are, and other_tuples: tuples of all of them."""

    hashes: Array
    counts: Array
    rest: int
    others: int
    other_tuples: int

    def counts_of(self, hashes: Array) -> Array:
        """The tuples of each hash (uint64 [n], ascending): int64 [n], 0 for one that is not listed.  O(h + n)."""
        out = np.zeros(hashes.shape[0], np.int64)
        history_kernels.listed_counts(self.hashes, self.counts, hashes, out)
        return out


class Heaviest:
    """The list in the making, in memory of its own: 12 bytes for each of 262,144 hashes and of what comes at a time."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._counts = np.zeros(0, np.int64)
        self._distinct = 0
        self._tuples = 0

    def add(self, hashes: Array, counts: Array) -> None:
        """More entries, all of each hash: uint64 [k], ascending, and int64 [k] tuples of each.  O(k) amortised."""
        if not hashes.shape[0]:
            return
        first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
        self._distinct += first.shape[0]
        self._tuples += int(counts.sum())
        self._hashes = np.concatenate([self._hashes, hashes[first]])
        self._counts = np.concatenate([self._counts, np.add.reduceat(counts, first)])
        if self._hashes.shape[0] > 4 * MOST:
            self._keep(MOST + 1)

    def _keep(self, n: int) -> None:
        """Only the n heaviest, the heaviest first; of equal counts the lower hash, so that no cut into calls shows."""
        order = np.lexsort((self._hashes, -self._counts))[:n]
        self._hashes, self._counts = self._hashes[order], self._counts[order]

    def listed(self) -> HeavyKeys | None:
        """The list; None where there are too few keys for one."""
        if self._distinct < LEAST:
            return None
        n = min(MOST, self._distinct // SHARE)
        self._keep(n + 1)
        order = np.argsort(self._hashes[:n])
        counts = self._counts[:n][order]
        return HeavyKeys(
            self._hashes[:n][order],
            counts.astype(np.uint32),
            int(self._counts[n]),
            self._distinct - n,
            self._tuples - int(counts.sum()),
        )
