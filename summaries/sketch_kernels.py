"""Kernels of the count sketch (Charikar, Chen, Farach-Colton, ICALP 2002; promising tuples, section 3.2).

A row keeps the two signs of a counter apart: cell 2c holds how many tuples hashed to column c with sign +,
cell 2c + 1 with sign -.  The count-sketch counter is their difference; each half alone is a count-min
counter of twice the width, and so an upper bound.  One multiply and one increment a row give both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, allocating_kernel, kernel

Array = np.ndarray[Any, Any]

_BLOCK = 16_384  # 128 KiB of hashes


@kernel
def update(counters: Array, multipliers: Array, shift: int, hashes: Array) -> None:
    """Add each key once.  counters: int64 [rows, cells]; cell = (multiplier * hash) >> shift."""
    rows = counters.shape[0]
    by = U8(shift)
    for i in range(hashes.shape[0]):
        h = hashes[i]
        for r in range(rows):
            counters[r, np.int64((multipliers[r] * h) >> by)] += 1


@kernel
def median(values: Array, n: int) -> float:
    """The median of values[:n] (n small); sorts that part in place.  Even n: the mean of the middle two."""
    for i in range(1, n):
        x = values[i]
        j = i - 1
        while j >= 0 and values[j] > x:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = x
    if n % 2 == 1:
        return values[n // 2]  # type: ignore[no-any-return]
    return 0.5 * (values[n // 2 - 1] + values[n // 2])  # type: ignore[no-any-return]


@allocating_kernel
def estimate(counters: Array, multipliers: Array, shift: int, hashes: Array, out: Array, upper: Array) -> None:
    """out[i]: median over rows of sign * (plus - minus); upper[i]: least own-sign half.  float64, int64 [n]."""
    rows = counters.shape[0]
    by = U8(shift)
    work = np.empty(rows, np.float64)
    for i in range(hashes.shape[0]):
        h = hashes[i]
        bound = np.int64(0x7FFFFFFFFFFFFFFF)
        for r in range(rows):
            cell = np.int64((multipliers[r] * h) >> by)
            own = counters[r, cell]
            work[r] = np.float64(own) - np.float64(counters[r, cell ^ 1])
            bound = min(bound, own)
        out[i] = median(work, rows)
        upper[i] = bound


@kernel
def second_moments(counters: Array, out: Array) -> None:
    """out[r] = sum over columns of (plus - minus)**2: each an unbiased estimate of the sum of squared counts."""
    for r in range(counters.shape[0]):
        total = 0.0
        for c in range(0, counters.shape[1], 2):
            x = np.float64(counters[r, c]) - np.float64(counters[r, c + 1])
            total += x * x
        out[r] = total


@kernel
def saturating_combine(target: Array, other: Array, sign: int) -> bool:
    """target += sign * other, element by element, stopping at the ends of int64; True when one stopped."""
    top = np.int64(0x7FFFFFFFFFFFFFFF)
    clipped = False
    flat = target.reshape(-1)
    source = other.reshape(-1)
    for i in range(flat.shape[0]):
        a = flat[i]
        b = source[i]
        if sign < 0:
            b = top if b == -top - 1 else -b
        if b > 0 and a > top - b:
            flat[i] = top
            clipped = True
        elif b < 0 and a < -top - b:
            flat[i] = -top
            clipped = True
        else:
            flat[i] = a + b
    return clipped


# A batch row after row gives the same as `update` in another order: with one row at a time its multiplier stays in a
# register and its 16 KiB (1,024 columns) in the first cache, and a block of hashes in the second, which is more than
# twice as fast from some thousand tuples per batch on.  Cells are unsigned and blocks are slices, so that numba adds no
# tests for negative indices to the inner loop.
@kernel
def update_rows(counters: Array, multipliers: Array, shift: int, hashes: Array) -> None:
    """counters[r, (multipliers[r] * hashes[i]) >> shift] += 1 for every row r and key i.

    counters: int64 [rows, cells], cells = 2**(64 - shift); multipliers: uint64 [rows]; hashes: uint64 [n].
    """
    by = U8(shift)
    for begin in range(0, hashes.shape[0], _BLOCK):
        block = hashes[begin : begin + _BLOCK]
        for r in range(counters.shape[0]):
            multiplier = multipliers[r]
            row = counters[r]
            for i in range(block.shape[0]):
                row[(multiplier * block[i]) >> by] += 1


@kernel
def update_rows_weighted(counters: Array, multipliers: Array, shift: int, hashes: Array, weights: Array) -> None:
    """counters[r, (multipliers[r] * hashes[i]) >> shift] += weights[i]; weights: int64 [n], any sign."""
    by = U8(shift)
    for begin in range(0, hashes.shape[0], _BLOCK):
        block = hashes[begin : begin + _BLOCK]
        added = weights[begin : begin + _BLOCK]
        for r in range(counters.shape[0]):
            multiplier = multipliers[r]
            row = counters[r]
            for i in range(block.shape[0]):
                row[(multiplier * block[i]) >> by] += added[i]
