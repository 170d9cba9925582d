"""Kernels of the sketch of a key index.

It is that of `nile.summaries.sketch_kernels`: a row keeps the two signs of a counter apart, cell 2c the tuples of
sign +, cell 2c + 1 those of sign -, so the own half is a certain upper bound.  Counters are uint32 here: an index
covers at most 2**32 - 1 tuples and never takes one back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, allocating_kernel, kernel
from nile.summaries.sketch_kernels import median

Array = np.ndarray[Any, Any]

__all__ = ["level_codes", "sketch_add", "sketch_bounds"]


@kernel
def sketch_add(counters: Array, multipliers: Array, shift: int, hashes: Array, counts: Array) -> None:
    """Add counts[i] tuples of each key.  counters: uint32 [rows, cells]; cell = (multiplier * hash) >> shift."""
    by = U8(shift)
    for r in range(counters.shape[0]):
        row = counters[r]
        multiplier = multipliers[r]
        for i in range(hashes.shape[0]):
            row[(multiplier * hashes[i]) >> by] += np.uint32(counts[i])


@kernel
def level_codes(counters: Array, codes: Array) -> None:
    """The code of the least level that is not below each counter.  counters: uint32 [n]; codes: uint8 [n].

    Levels are 0 to 15, then eight steps an octave: the four highest bits of a number are its step.
    """
    for i in range(counters.shape[0]):
        below = np.int64(counters[i]) - 1
        octave = 0
        while below >> octave > 15:
            octave += 1
        codes[i] = np.uint8((below >> octave) + 8 * octave + 1)


@allocating_kernel
def sketch_bounds(
    codes: Array, levels: Array, multipliers: Array, shift: int, hashes: Array, estimate: Array, upper: Array
) -> None:
    """upper[i]: at most so many tuples of key i are there, for certain; estimate[i]: the median over rows of own half
    - other half, cut to [0, upper[i]].  int64 [n].  A key stops at its first 0.

    codes: uint8 [rows, cells]; levels: int64 [256], ascending: what each code stands for, rounded up.
    """
    rows = codes.shape[0]
    by = U8(shift)
    work = np.empty(rows, np.float64)
    for i in range(hashes.shape[0]):
        bound = np.int64(0x7FFFFFFFFFFFFFFF)
        for r in range(rows):
            cell = (multipliers[r] * hashes[i]) >> by
            own = levels[codes[r, cell]]
            bound = min(bound, own)
            if bound == 0:
                break
            work[r] = np.float64(own - levels[codes[r, cell ^ U8(1)]])
        upper[i] = bound
        estimate[i] = 0 if bound == 0 else max(0, min(np.int64(np.rint(median(work, rows))), bound))
