"""The sketch of a key index: what rules its cells out without reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from summaries.countsketch import CountSketch
from summaries.lazy import lazy

if TYPE_CHECKING:
    from pyramid.history import history_kernels
else:
    history_kernels = lazy("pyramid.history.history_kernels")

__all__ = ["MOST_CELLS", "ROWS", "IndexSketch", "cells_for"]

Array = np.ndarray[Any, Any]

ROWS = 3
LEAST_CELLS = 1 << 8
MOST_CELLS = 1 << 21
_SEED = 0x4B45595F
_MULTIPLIERS = CountSketch.multipliers(ROWS, _SEED)


def cells_for(keys: int) -> int:
    """Cells a row for so many distinct keys: the power of two from 2 to 4 times as many, 256 to 2,097,152.

    Then a row's cell of a key that is absent is empty with probability exp(-1/2) at least, so that all three
    rows leave 6 % of absent keys possible at most, 2 % on average over key counts.  Beyond a million keys
    the sketch stops growing and rules out less; bounds stay certain.
    """
    return min(MOST_CELLS, max(LEAST_CELLS, 1 << max(0, 2 * keys - 1).bit_length()))


class IndexSketch:
    """Counts of keys in `ROWS` rows of uint32 counters, both signs apart: 12 bytes a cell.

    Linear: the counters of the sum of two disjoint sets of tuples are the sum of theirs, cell by cell, when
    shapes agree; `upper` of the sum is then never below `upper` of a part.
    Source: Charikar, Chen, Farach-Colton, ICALP 2002; promising tuples, sections 3.2 and 3.4.
    """

    __slots__ = ("counters",)

    def __init__(self, counters: Array) -> None:
        self.counters = counters

    @classmethod
    def of(cls, hashes: Array, counts: Array, cells: int) -> IndexSketch:
        """A sketch of keys (uint64 [k]) that come counts (int64 [k]) times each."""
        sketch = cls(np.zeros((ROWS, cells), np.uint32))
        sketch.add(hashes, counts)
        return sketch

    @property
    def cells(self) -> int:
        """Counters a row."""
        return int(self.counters.shape[1])

    @property
    def _shift(self) -> int:
        return 65 - self.cells.bit_length()

    def add(self, hashes: Array, counts: Array) -> None:
        """Count more tuples: keys uint64 [k], each counts (int64 [k]) times."""
        history_kernels.sketch_add(self.counters, _MULTIPLIERS, self._shift, hashes, counts)

    def upper(self, hashes: Array) -> Array:
        """At most so many tuples of each key (uint64 [n]), for certain: int64 [n].  Three reads a key."""
        out = np.empty(hashes.shape[0], np.int64)
        history_kernels.sketch_upper(self.counters, _MULTIPLIERS, self._shift, hashes, out)
        return out

    def estimate(self, hashes: Array) -> Array:
        """About so many tuples of each key (uint64 [n]), at most `upper`: int64 [n], the median over rows."""
        out = np.empty(hashes.shape[0], np.int64)
        history_kernels.sketch_estimate(self.counters, _MULTIPLIERS, self._shift, hashes, out)
        return out
