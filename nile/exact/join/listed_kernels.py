"""The join of two whole streams by lists: where the tuples of each key stand, in order, and which of them are in reach.

A key has a row of four positions in the lists: where its next left and right tuple will stand, and where the first one
in the window does.  What an arrival joins lies between two of them, one after the other in memory: no chain is walked.
Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import kernel

__all__ = ["LEFT_DONE", "RIGHT_DONE", "list_keys", "write_pairs"]

Array = np.ndarray[Any, Any]

_LEAST = np.iinfo(np.int64).min
NEXT, FIRST = 0, 2
"""Columns of a key's row: of left, and one further of right."""
LEFT_DONE, RIGHT_DONE, LEFT_GONE, RIGHT_GONE, DONE = range(5)
"""Places of progress: tuples of either stream dealt with and expired, and pairs written of the one that is next."""


@kernel
def list_keys(code: Array, side: int, rows: Array, listed: Array) -> None:
    """Tuples of a stream by key, those of a key in order; `rows` then says where each key's begin.

    code: int64 [n], below 0 for null; side: 0 left, 1 right; rows: int32 [keys, 4], zeros in the columns of the side;
    listed: int32 [n].  O(n + keys).
    """
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], side] += 1
    at = np.int32(0)
    for key in range(rows.shape[0]):
        count = rows[key, side]
        rows[key, side] = at
        rows[key, FIRST + side] = at
        at += count
    for i in range(code.shape[0]):
        key = code[i]
        if key >= 0:
            listed[rows[key, side]] = i
            rows[key, side] += 1
    for key in range(rows.shape[0]):
        rows[key, side] = rows[key, FIRST + side]


@kernel
def write_pairs(
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    window: int,
    rows: Array,
    left_listed: Array,
    right_listed: Array,
    progress: Array,
    left_out: Array,
    right_out: Array,
) -> int:
    """Write pairs of ordinals until all are written or the output is full, in the order in which they complete, those
    of an arrival from its newest partner back; returns how many.

    ts: int64 ns, not falling; code, rows, listed: as of `list_keys`; window: ns, below 0 for the whole streams;
    progress: int64 [5], zeros; *_out: int64.  O(tuples + pairs).
    """
    n, m = left_ts.shape[0], right_ts.shape[0]
    i, j = progress[LEFT_DONE], progress[RIGHT_DONE]
    left_gone, right_gone = progress[LEFT_GONE], progress[RIGHT_GONE]
    skip = progress[DONE]
    full = False
    room = left_out.shape[0]
    written = np.int64(0)
    while not full and (i < n or j < m):
        if j == m or (i < n and left_ts[i] <= right_ts[j]):
            ts, code = left_ts[i], left_code[i]
            if window >= 0:
                since = ts - window if ts >= _LEAST + window else _LEAST
                while right_gone < j and right_ts[right_gone] < since:
                    if right_code[right_gone] >= 0:
                        rows[right_code[right_gone], FIRST + 1] += 1
                    right_gone += 1
            if code >= 0:
                first = rows[code, FIRST + 1]
                p = rows[code, NEXT + 1] - 1 - skip
                while p >= first:
                    if written == room:
                        full = True
                        break
                    left_out[written] = i
                    right_out[written] = right_listed[p]
                    written += 1
                    p -= 1
                if full:
                    skip = rows[code, NEXT + 1] - 1 - p
                    continue
                skip = np.int64(0)
                rows[code, NEXT] += 1
            i += 1
        else:
            ts, code = right_ts[j], right_code[j]
            if window >= 0:
                since = ts - window if ts >= _LEAST + window else _LEAST
                while left_gone < i and left_ts[left_gone] < since:
                    if left_code[left_gone] >= 0:
                        rows[left_code[left_gone], FIRST] += 1
                    left_gone += 1
            if code >= 0:
                first = rows[code, FIRST]
                p = rows[code, NEXT] - 1 - skip
                while p >= first:
                    if written == room:
                        full = True
                        break
                    left_out[written] = left_listed[p]
                    right_out[written] = j
                    written += 1
                    p -= 1
                if full:
                    skip = rows[code, NEXT] - 1 - p
                    continue
                skip = np.int64(0)
                rows[code, NEXT + 1] += 1
            j += 1
    progress[LEFT_DONE], progress[RIGHT_DONE] = i, j
    progress[LEFT_GONE], progress[RIGHT_GONE] = left_gone, right_gone
    progress[DONE] = skip
    return int(written)
