"""The join of two whole streams by lists: where the tuples of each key stand, in order, and which of them are in reach.

A key has a row of four positions in the lists: where its next left and right tuple will stand, and where the first one
in the window does.  What an arrival joins lies between two of them, one after the other in memory: no chain is walked.
Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.base.compiler import numba
from nile.exact.state.kernels import inlined, kernel

__all__ = [
    "DONE", "FIRST", "LEFT_DONE", "LEFT_GONE", "NEXT", "RIGHT_DONE", "RIGHT_GONE", "begin_lists", "count_keys",
    "hold_keys", "pass_keys", "place_keys", "rewind", "write_pairs",
]  # fmt: skip

Array = np.ndarray[Any, Any]

_LEAST = np.iinfo(np.int64).min
NEXT, FIRST = 0, 2
"""Columns of a key's row: of left, and one further of right."""
LEFT_DONE, RIGHT_DONE, LEFT_GONE, RIGHT_GONE, DONE = range(5)
"""Places of progress: tuples of either stream dealt with and expired, and pairs written of the one that is next."""
_AHEAD = 8
"""Arrivals of a stream after which a row is looked at that is asked for now."""


@numba.extending.intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _fetch(_typing: Any, rows: Any, _at: Any) -> Any:
    """Ask for a row of an array, so that it is in a near cache once it is looked at; nothing waits for it."""

    def ask(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        word = context.get_value_type(numba.types.intp)
        stride = builder.extract_value(array.strides, 0)
        place = builder.add(builder.ptrtoint(array.data, word), builder.mul(given[1], stride))
        line = builder.inttoptr(place, context.get_value_type(numba.types.voidptr))
        how = [context.get_constant(numba.types.int32, each) for each in (1, 3, 1)]  # to write, near, data
        kind = numba.core.cgutils.ir.FunctionType(numba.core.cgutils.ir.VoidType(), [line.type, *(n.type for n in how)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [line.type], kind), [line, *how])
        return context.get_dummy_value()

    return numba.types.void(rows, numba.types.int64), ask


@inlined
def _fetch_row(rows: Array, codes: Array, at: Any, end: Any) -> None:
    """Of the code at this place, where there is one."""
    if at < end and codes[at] >= 0:
        _fetch(rows, codes[at])


@kernel
def count_keys(code: Array, side: int, rows: Array) -> None:
    """Add the tuples of each key.  code: int64 [n], below 0 for null; side: 0 left, 1 right; rows: int32 [keys, 4]."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], side] += 1


@kernel
def begin_lists(rows: Array) -> float:
    """From the tuples of each key in each piece of the streams, where the next one of it will stand in the lists.

    rows: int32 [pieces, keys, 4]; also the first place of each key, in all pieces.  Returns how many pairs there are
    without a window.  O(pieces keys).
    """
    left = right = np.int32(0)
    pairs = 0.0
    for key in range(rows.shape[1]):
        first, second = left, right
        for piece in range(rows.shape[0]):
            row = rows[piece, key]
            row[2], row[3] = first, second
            row[0], left = left, left + row[0]
            row[1], right = right, right + row[1]
        pairs += np.float64(left - first) * np.float64(right - second)
    return pairs


@kernel
def place_keys(code: Array, begin: int, side: int, rows: Array, listed: Array, at: Array) -> None:
    """Put the tuples of a piece, the first of which is the `begin`-th, into the list: each key's in order.

    listed: int32 or int64; at: int64, what each tuple of the stream is told as; [0]: its ordinal.
    """
    named = at.shape[0] > 0
    for i in range(code.shape[0]):
        key = code[i]
        if key >= 0:
            listed[rows[key, side]] = at[begin + i] if named else begin + i
            rows[key, side] += 1


@kernel
def rewind(rows: Array) -> None:
    """Go back to before the first tuple.  rows: int32 [keys, 4]."""
    for key in range(rows.shape[0]):
        rows[key, 0] = rows[key, 2]
        rows[key, 1] = rows[key, 3]


@kernel
def pass_keys(code: Array, column: int, rows: Array) -> None:
    """Go past tuples: `column` is `NEXT` or `FIRST` and the side."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], column] += 1


@kernel
def hold_keys(code: Array, side: int, rows: Array) -> None:
    """Let the window of a side hold these tuples, the last ones before the next, and nothing else."""
    for key in range(rows.shape[0]):
        rows[key, FIRST + side] = rows[key, side]
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], FIRST + side] -= 1


@kernel
def write_pairs(
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    left_end: int,
    right_end: int,
    window: int,
    rows: Array,
    left_listed: Array,
    right_listed: Array,
    left_at: Array,
    right_at: Array,
    progress: Array,
    left_out: Array,
    right_out: Array,
) -> int:
    """Write pairs of ordinals until all are written or the output is full, in the order in which they complete, those
    of an arrival from its newest partner back; returns how many.

    ts: int64 ns, not falling; code: int64, below 0 for null; *_end: the first tuples that have no turn; rows, listed:
    as of `begin_lists` and `place_keys`, *_at: as that takes them; window: ns, below 0 for the whole streams;
    progress: int64 [5], zeros; *_out: int64.  O(tuples + pairs).
    """
    n, m = left_end, right_end
    i, j = progress[LEFT_DONE], progress[RIGHT_DONE]
    left_gone, right_gone = progress[LEFT_GONE], progress[RIGHT_GONE]
    skip = progress[DONE]
    named = left_at.shape[0] + right_at.shape[0] > 0
    full = False
    room = left_out.shape[0]
    written = np.int64(0)
    while not full and (i < n or j < m):
        if j == m or (i < n and left_ts[i] <= right_ts[j]):
            ts, code = left_ts[i], left_code[i]
            _fetch_row(rows, left_code, i + _AHEAD, n)
            if window >= 0:
                since = ts - window if ts >= _LEAST + window else _LEAST
                while right_gone < j and right_ts[right_gone] < since:
                    if right_code[right_gone] >= 0:
                        rows[right_code[right_gone], FIRST + 1] += 1
                    right_gone += 1
            if code >= 0:
                told = left_at[i] if named else np.int64(i)
                newest = rows[code, NEXT + 1] - 1 - skip
                standing = newest + 1 - rows[code, FIRST + 1]
                some = min(standing, room - written)
                for back in range(some):  # one loop without a way out, which takes several at once
                    left_out[written + back] = told
                    right_out[written + back] = right_listed[newest - back]
                written += some
                if some < standing:
                    full = True
                    skip += some
                    continue
                skip = np.int64(0)
                rows[code, NEXT] += 1
            i += 1
        else:
            ts, code = right_ts[j], right_code[j]
            _fetch_row(rows, right_code, j + _AHEAD, m)
            if window >= 0:
                since = ts - window if ts >= _LEAST + window else _LEAST
                while left_gone < i and left_ts[left_gone] < since:
                    if left_code[left_gone] >= 0:
                        rows[left_code[left_gone], FIRST] += 1
                    left_gone += 1
            if code >= 0:
                told = right_at[j] if named else np.int64(j)
                newest = rows[code, NEXT] - 1 - skip
                standing = newest + 1 - rows[code, FIRST]
                some = min(standing, room - written)
                for back in range(some):
                    left_out[written + back] = left_listed[newest - back]
                    right_out[written + back] = told
                written += some
                if some < standing:
                    full = True
                    skip += some
                    continue
                skip = np.int64(0)
                rows[code, NEXT + 1] += 1
            j += 1
    progress[LEFT_DONE], progress[RIGHT_DONE] = i, j
    progress[LEFT_GONE], progress[RIGHT_GONE] = left_gone, right_gone
    progress[DONE] = skip
    return int(written)
