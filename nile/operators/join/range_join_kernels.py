"""Whole streams in total order, each tuple with the range of its matches: counts of keys, and nothing else.

Design.  A rank never changes, so the range of a tuple is two counts of its key in the other stream: how many tuples
left the window, and how many came.  All four counts of a key lie in one row, so a tuple touches one line of the cache,
and no list is read.  A record is written before it is known to count: a branch would be guessed wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.summaries.kernels import inlined, kernel

__all__ = ["Records", "Streams", "like_keys", "write_ranges"]

Array = np.ndarray[Any, Any]
_LEAST = np.iinfo(np.int64).min
LEFT_DONE, RIGHT_DONE, LEFT_GONE, RIGHT_GONE = range(4)
"""Places of progress: tuples of either stream dealt with and expired."""


class Streams(NamedTuple):
    """Two whole streams.  ts: int64 ns, not falling; code: int64, below 0 for null; at: int64, the ordinals of tuples
    where some were left out, else [0]; like: whole [keys], of each key the ordinal of a left tuple."""

    left_ts: Array
    right_ts: Array
    left_code: Array
    right_code: Array
    left_at: Array
    right_at: Array
    like: Array


class Records(NamedTuple):
    """Room for range records [m] and one more.

    side: int8; ordinal, like, ts, low, high: int64: of the tuple, of a left tuple of its key, its time, and its
    matches' ranks [low, high) in the other stream's list of its key.
    """

    side: Array
    ordinal: Array
    like: Array
    ts: Array
    low: Array
    high: Array


@kernel
def like_keys(code: Array, at: Array, like: Array) -> None:
    """Of each key the ordinal of its last left tuple.  Arrays as of `Streams`."""
    named = at.shape[0] > 0
    for i in range(code.shape[0]):
        if code[i] >= 0:
            like[code[i]] = at[i] if named else i


@inlined
def _expired(ts: np.int64, window: int, when: Array, code: Array, gone: Any, came: Any, rows: Array, at: int) -> Any:
    """Count, in column `at` of the rows of their keys, tuples that have left the window; returns the first that has
    not.  ts: now; when, code: of their stream; gone, came: those that left before, and that came."""
    if window >= 0:
        since = ts - window if ts >= _LEAST + window else _LEAST
        while gone < came and when[gone] < since:
            if code[gone] >= 0:
                rows[code[gone], at] += 1
            gone += 1
    return gone


@kernel
def write_ranges(
    streams: Streams, left_end: int, right_end: int, window: int, rows: Array, progress: Array, out: Records
) -> int:
    """Write records of the tuples that have matches, in total order, until all are or the room is full; returns how
    many.

    *_end: the first tuples that have no turn; window: ns, below 0 for the whole streams; rows: whole [keys, 4], of each
    key how many tuples came of left, of right, and how many of those have left the window; progress: int64 [4].
    O(tuples).
    """
    left_ts, right_ts, left_code, right_code, left_at, right_at, like = streams
    side, ordinal, alike, when, low, high = out
    n, m = left_end, right_end
    i, j = progress[LEFT_DONE], progress[RIGHT_DONE]
    left_gone, right_gone = progress[LEFT_GONE], progress[RIGHT_GONE]
    named = left_at.shape[0] + right_at.shape[0] > 0
    room = side.shape[0] - 1
    at = np.int64(0)
    while at < room and (i < n or j < m):
        if j == m or (i < n and left_ts[i] <= right_ts[j]):
            ts, code = left_ts[i], left_code[i]
            right_gone = _expired(ts, window, right_ts, right_code, right_gone, j, rows, 3)
            if code >= 0:
                told = left_at[i] if named else np.int64(i)
                first, end = np.int64(rows[code, 3]), np.int64(rows[code, 1])
                rows[code, 0] += 1
                side[at] = 0
                ordinal[at], alike[at], when[at] = told, told, ts
                low[at], high[at] = first, end
                at += np.int64(first < end)
            i += 1
        else:
            ts, code = right_ts[j], right_code[j]
            left_gone = _expired(ts, window, left_ts, left_code, left_gone, i, rows, 2)
            if code >= 0:
                first, end = np.int64(rows[code, 2]), np.int64(rows[code, 0])
                rows[code, 1] += 1
                side[at] = 1
                ordinal[at] = right_at[j] if named else np.int64(j)
                alike[at], when[at] = like[code], ts
                low[at], high[at] = first, end
                at += np.int64(first < end)
            j += 1
    progress[LEFT_DONE], progress[RIGHT_DONE] = i, j
    progress[LEFT_GONE], progress[RIGHT_GONE] = left_gone, right_gone
    return int(at)
