"""The exact window join of two streams as a chain join: the judge, and the engine when nothing is preferred.

Per key the tuples of each stream form a chain from the newest back; a probe follows the other stream's chain
until it leaves the window.  Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
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


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
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


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def enumerate_pairs(
    order: Array,
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    window: int,
    newest: Array,
    left_before: Array,
    right_before: Array,
    progress: Array,
    left_out: Array,
    right_out: Array,
) -> int:
    """Write pairs (left ordinal, right ordinal) until done or the output is full; returns how many.

    newest: int64 [2, keys], the newest ordinal of each key, -1 none; *_before: int64, the one before it;
    progress: int64 [4]: arrivals done, left seen, right seen, where in the chain to resume (-2: at its head).
    """
    written = 0
    room = left_out.shape[0]
    while progress[0] < order.shape[0]:
        side = order[progress[0]]
        at = progress[1 + side]
        code = left_code[at] if side == 0 else right_code[at]
        if code >= 0:
            ts = left_ts[at] if side == 0 else right_ts[at]
            link = newest[1 - side, code] if progress[3] == -2 else progress[3]
            while link >= 0:
                other = right_ts[link] if side == 0 else left_ts[link]
                if window >= 0 and ts - other > window:
                    break
                if written == room:
                    progress[3] = link
                    return written
                left_out[written] = at if side == 0 else link
                right_out[written] = link if side == 0 else at
                written += 1
                link = right_before[link] if side == 0 else left_before[link]
            progress[3] = -2
            if side == 0:
                left_before[at] = newest[0, code]
            else:
                right_before[at] = newest[1, code]
            newest[side, code] = at
        progress[1 + side] += 1
        progress[0] += 1
    return written
