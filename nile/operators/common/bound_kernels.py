"""Sketches of sliding windows, each asked by every tuple of the other streams: bounds of a join's total.

Counters are those of `nile.summaries.sketch_kernels`: the two signs of each apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

Array = np.ndarray[Any, Any]


@inlined
def _cell(multiplier: np.uint64, word: np.uint64, shift: np.uint64) -> np.int64:
    return np.int64((multiplier * word) >> shift)


@kernel
def slide(
    ts: Array, owner: Array, word: Array, window: int, multipliers: Array, shift: int, counters: Array, signed: Array,
    own: Array,
) -> float:  # fmt: skip
    """How many combinations there are at most; adds to signed[r] what each row says, on average over its hashes.

    An arrival with a key completes, of each other stream, no more than the least of its counters over rows; as
    sign * (plus - minus) tells, which is unbiased, and so is the product over streams, whose hashes are independent.
    ts: int64 [n] ns, not falling; owner: int8 [n], its stream, -1 without a key; word: uint64 [n]; window: ns;
    multipliers: uint64 [streams, rows]; counters: int64 [streams, rows, cells], zeros; signed: float64 [rows];
    own: float64 [rows], scratch.
    """
    streams, rows = multipliers.shape
    by = U8(shift)
    total = 0.0
    gone = 0
    for i in range(ts.shape[0]):
        while ts[gone] < ts[i] - window:
            of = owner[gone]
            if of >= 0:
                for r in range(rows):
                    counters[of, r, _cell(multipliers[of, r], word[gone], by)] -= 1
            gone += 1
        side = owner[i]
        if side < 0:
            continue
        most = 1.0
        own[:] = 1.0
        for k in range(streams):
            if k == side:
                continue
            least = np.int64(0x7FFFFFFFFFFFFFFF)
            for r in range(rows):
                cell = _cell(multipliers[k, r], word[i], by)
                mine = counters[k, r, cell]
                least = min(least, mine)
                own[r] *= np.float64(mine - counters[k, r, cell ^ 1])
            most *= np.float64(least)
        total += most
        for r in range(rows):
            signed[r] += own[r]
            counters[side, r, _cell(multipliers[side, r], word[i], by)] += 1
    return total
