"""Two streams in total order: what each arrival joins, counted, and how common its key is.

Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, kernel

Array = np.ndarray[Any, Any]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_INFINITE = 0x7FF << 52
"""The bits of an infinite double; not a number is above, but for the sign."""


@kernel
def merged_order(left: Array, right: Array, order: Array) -> None:
    """order[i]: 0 or 1, the stream of the i-th arrival.  left, right: int64 ts, each not decreasing; ties: left."""
    i = 0
    j = 0
    for k in range(order.shape[0]):
        if j == right.shape[0] or (i < left.shape[0] and left[i] <= right[j]):
            order[k] = 0
            i += 1
        else:
            order[k] = 1
            j += 1


@allocating_kernel
def count_matches(
    order: Array,
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    keys: int,
    window: int,
    matches: Array,
    standing: Array,
) -> None:
    """matches[i]: tuples of the other stream that arrival i joins; standing[i]: its key's tuples in both windows.

    order: int8 [n]; ts: int64; code: int64, -1 for null; window: ns, negative for the whole stream;
    matches, standing: int64 [n]; standing counts arrival i itself.  One pass, O(1) a tuple.
    """
    counts = np.zeros((2, keys), np.int64)
    seen = np.zeros(2, np.int64)
    gone = np.zeros(2, np.int64)
    for k in range(order.shape[0]):
        side = order[k]
        at = seen[side]
        ts = left_ts[at] if side == 0 else right_ts[at]
        code = left_code[at] if side == 0 else right_code[at]
        if window >= 0:
            while gone[0] < seen[0] and ts - left_ts[gone[0]] > window:
                if left_code[gone[0]] >= 0:
                    counts[0, left_code[gone[0]]] -= 1
                gone[0] += 1
            while gone[1] < seen[1] and ts - right_ts[gone[1]] > window:
                if right_code[gone[1]] >= 0:
                    counts[1, right_code[gone[1]]] -= 1
                gone[1] += 1
        seen[side] += 1
        if code < 0:
            matches[k] = 0
            standing[k] = 0
            continue
        counts[side, code] += 1
        matches[k] = counts[1 - side, code]
        standing[k] = counts[0, code] + counts[1, code]


@kernel
def has_other_forms(bits: Array) -> bool:
    """Whether any of the doubles, given as int64 [n], equals another of other bits: it is -0.0 or not a number."""
    found = False
    for i in range(bits.shape[0]):  # no way out: several at once
        found |= (bits[i] == _LEAST) | ((bits[i] & _MOST) > _INFINITE)
    return found
