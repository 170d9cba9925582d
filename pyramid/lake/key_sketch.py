"""The sketch of a key index: what rules its cells out without reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.countsketch import CountSketch
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.lake import key_sketch_kernels as kernels
else:
    kernels = lazy("nile.pyramid.lake.key_sketch_kernels")

__all__ = ["LEVELS", "MOST_CELLS", "ROWS", "Counting", "IndexSketch", "cells_for"]

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


def _levels() -> Array:
    levels = np.full(256, (1 << 32) - 1, np.int64)
    levels[:16] = np.arange(16)
    for octave in range(4, 32):
        levels[16 + 8 * (octave - 4) : 24 + 8 * (octave - 4)] = np.arange(8, 16) << (octave - 3)
    return levels


LEVELS = _levels()
"""What a code of one byte stands for, int64 [256]: 0 to 15, then eight steps an octave, up to 2**32 - 1."""


class Counting:
    """A sketch in the making: `ROWS` rows of uint32 counters, both signs apart.

    Source: Charikar, Chen, Farach-Colton, ICALP 2002; promising tuples, sections 3.2 and 3.4.
    """

    def __init__(self, cells: int) -> None:
        self._counters = np.zeros((ROWS, cells), np.uint32)

    def add(self, hashes: Array, counts: Array) -> None:
        """Count tuples: keys uint64 [k], each counts (int64 [k]) times."""
        kernels.sketch_add(self._counters, _MULTIPLIERS, _shift(self._counters), hashes, counts)

    def sketch(self) -> IndexSketch:
        """The sketch of what was counted.  Each counter is rounded up to a level, by an eighth at most."""
        codes = np.empty(self._counters.shape, np.uint8)
        kernels.level_codes(self._counters.ravel(), codes.reshape(-1))
        return IndexSketch(codes)


class IndexSketch:
    """Counts of keys, a byte a counter: 3 bytes per cell, a quarter of what exact counters take from a disk.

    A counter is rounded up to one of `LEVELS`, so 0 still says that nothing is there, and `upper` is certain; it
    is made from counters that are exact, so that of more tuples is never below that of a part of them.
    """

    __slots__ = ("codes",)

    def __init__(self, codes: Array) -> None:
        self.codes = codes

    @classmethod
    def of(cls, hashes: Array, counts: Array, cells: int) -> IndexSketch:
        """A sketch of keys (uint64 [k]) that come counts (int64 [k]) times each."""
        counting = Counting(cells)
        counting.add(hashes, counts)
        return counting.sketch()

    @property
    def cells(self) -> int:
        """Counters a row."""
        return int(self.codes.shape[1])

    def bounds(self, hashes: Array) -> tuple[Array, Array]:
        """(estimate, upper) of the tuples of each key (uint64 [n]): int64 [n] each.  Six reads a key at most.

        upper: at most so many, for certain; estimate: about so many, 0 to `upper`, the median over rows.
        """
        estimate, upper = np.empty(hashes.shape[0], np.int64), np.empty(hashes.shape[0], np.int64)
        kernels.sketch_bounds(self.codes, LEVELS, _MULTIPLIERS, _shift(self.codes), hashes, estimate, upper)
        return estimate, upper


def _shift(table: Array) -> int:
    return 65 - int(table.shape[1]).bit_length()
