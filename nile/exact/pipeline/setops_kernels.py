"""Frequency tables: how often a row stands in the result, from how often it stands on the left and on the right."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, part

Array = np.ndarray[Any, Any]

UNION_ALL = 0
DISTINCT = 1  # UNION, and DISTINCT of one input
INTERSECT_ALL = 2
INTERSECT = 3
MINUS_ALL = 4
MINUS = 5
SEMI = 6
ANTI = 7


@part
def standing(kind: int, left: int, right: int) -> int:
    """How often the row stands in the result.  Source: SQL; MINUS ALL as in negative tuples, section 4.3."""
    if kind == UNION_ALL:
        return left + right
    if kind == DISTINCT:
        return 1 if left + right > 0 else 0
    if kind == INTERSECT_ALL:
        return max(0, min(left, right))
    if kind == INTERSECT:
        return 1 if left > 0 and right > 0 else 0
    if kind == MINUS_ALL:
        return max(0, left - right)
    if kind == SEMI:
        return left if right > 0 else 0
    if kind == ANTI:
        return left if right <= 0 else 0
    return 1 if left > 0 and right <= 0 else 0


@allocating_kernel
def apply_counts(
    kind: int,
    ts: Array,
    sign: Array,
    side: Array,
    codes: Array,
    counts: Array,
    births: Array,
    born: int,
    marked: Array,
    wanted: bool,
) -> tuple[Array, Array, Array, int]:
    """Signed tuples into the frequency tables; the net change of each row at each instant comes out.

    ts int64, sign int8, side int8 (0 left, 1 right), codes int64 [n]; counts: int64 [rows, 2]; births: int64 [rows],
    the number of the tuple that made the row appear; born: how many tuples went before;
    marked: bool [rows], all False between calls.
    Returns (ts, sign, codes) of the output, in time order and within an instant what goes first, and born.
    """
    room = 2 * ts.shape[0] + 16
    out_ts = np.empty(room, np.int64)
    out_sign = np.empty(room, np.int8)
    out_code = np.empty(room, np.int64)
    written = 0
    touched = np.empty(ts.shape[0], np.int64)
    before = np.empty(ts.shape[0], np.int64)
    i = 0
    while i < ts.shape[0]:
        now = ts[i]
        n = 0
        while i < ts.shape[0] and ts[i] == now:
            code = codes[i]
            if not marked[code]:
                marked[code] = True
                touched[n] = code
                before[n] = standing(kind, counts[code, 0], counts[code, 1])
                if counts[code, 0] + counts[code, 1] == 0:
                    births[code] = born
                n += 1
            counts[code, side[i]] += 1 if sign[i] > 0 else -1
            born += 1
            i += 1
        for k in range(n):
            marked[touched[k]] = False
        if not wanted:
            continue
        for turn in range(2):
            for k in range(n):
                code = touched[k]
                change = standing(kind, counts[code, 0], counts[code, 1]) - before[k]
                if (change < 0) != (turn == 0) or change == 0:
                    continue
                for _ in range(abs(change)):
                    if written == room:
                        room *= 2
                        a = np.empty(room, np.int64)
                        b = np.empty(room, np.int8)
                        c = np.empty(room, np.int64)
                        copied(written, out_ts, a)
                        copied(written, out_sign, b)
                        copied(written, out_code, c)
                        out_ts = a
                        out_sign = b
                        out_code = c
                    out_ts[written] = now
                    out_sign[written] = 1 if change > 0 else -1
                    out_code[written] = code
                    written += 1
    return out_ts[:written], out_sign[:written], out_code[:written], born


@allocating_kernel
def all_standing(kind: int, counts: Array) -> Array:
    """How often each row stands in the result: int64 [n].  counts: int64 [n, 2]."""
    times = np.empty(counts.shape[0], np.int64)
    for i in range(counts.shape[0]):
        times[i] = standing(kind, counts[i, 0], counts[i, 1])
    return times
