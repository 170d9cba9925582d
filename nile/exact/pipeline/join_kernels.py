"""The symmetric window join of signed inputs: two tables of counted rows, listed by key."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, inlined, kernel

Array = np.ndarray[Any, Any]

# a side's rows: int64 [rows, 4], what an arrival reads of a row in one cache line
COUNT = 0  # how often it holds
BIRTH = 1  # the number of the tuple that made it appear
BEFORE = 2  # its neighbours in the list of its key, newest first; -1 none
AFTER = 3


@inlined
def _put(row: int, key: int, sign: int, born: int, rows: Array, heads: Array) -> None:
    """Count a row up or down, and put it at the head of its key's list or take it out."""
    if sign > 0:
        rows[row, COUNT] += 1
        if rows[row, COUNT] == 1:
            rows[row, BIRTH] = born
            head = heads[key]
            rows[row, BEFORE] = -1
            rows[row, AFTER] = head
            if head >= 0:
                rows[head, BEFORE] = row
            heads[key] = row
        return
    if rows[row, COUNT] <= 0:
        return
    rows[row, COUNT] -= 1
    if rows[row, COUNT] == 0:
        before = rows[row, BEFORE]
        after = rows[row, AFTER]
        if before >= 0:
            rows[before, AFTER] = after
        else:
            heads[key] = after
        if after >= 0:
            rows[after, BEFORE] = before


@allocating_kernel
def apply_join(
    side: Array,
    sign: Array,
    codes: Array,
    keys: Array,
    born: int,
    left_rows: Array,
    left_heads: Array,
    right_rows: Array,
    right_heads: Array,
    come: bool,
    go: bool,
    totals: Array,
    once: bool,
) -> tuple[Array, Array, Array, Array, int]:
    """Signed tuples into the tables; the pairs that come and go: (tuple, left row, right row, times), and born.

    side int8 (0 left), sign int8 (2 and -2 are told to nobody), codes int64 of the side's rows, keys int64: [n];
    rows as above; heads: int64 [keys], -1 none; born: tuples before; come, go: which pairs are wanted.
    A pair comes out once for each pair of equal rows that it stands for.  once: of the pairs of a tuple one comes out,
    and how many there are (times, else empty), in O(1); totals: int64 [keys, 2], the rows of each side, kept if once.
    """
    room = 2 * side.shape[0] + 16
    out_at = np.empty(room, np.int64)
    out_left = np.empty(room, np.int64)
    out_right = np.empty(room, np.int64)
    out_times = np.empty(room if once else 0, np.int64)
    written = 0
    for i in range(side.shape[0]):
        left = side[i] == 0
        s = sign[i]
        code = codes[i]
        held = left_rows[code, COUNT] if left else right_rows[code, COUNT]
        if left:
            _put(code, keys[i], s, born, left_rows, left_heads)
            other = right_heads[keys[i]]
        else:
            _put(code, keys[i], s, born, right_rows, right_heads)
            other = left_heads[keys[i]]
        born += 1
        if once:
            if left:
                totals[keys[i], 0] += left_rows[code, COUNT] - held
            else:
                totals[keys[i], 1] += right_rows[code, COUNT] - held
        if s == 2 or s == -2 or (s > 0 and not come) or (s < 0 and not go):
            continue
        if once:
            if other >= 0:  # there is room for one of each tuple
                out_at[written] = i
                out_left[written] = code if left else other
                out_right[written] = other if left else code
                out_times[written] = totals[keys[i], 1 if left else 0]
                written += 1
            continue
        while other >= 0:
            if left:
                times = right_rows[other, COUNT]
                after = right_rows[other, AFTER]
            else:
                times = left_rows[other, COUNT]
                after = left_rows[other, AFTER]
            if written + times > room:
                room = max(2 * room, written + times)
                a = np.empty(room, np.int64)
                b = np.empty(room, np.int64)
                c = np.empty(room, np.int64)
                copied(written, out_at, a)
                copied(written, out_left, b)
                copied(written, out_right, c)
                out_at = a
                out_left = b
                out_right = c
            for _ in range(times):
                out_at[written] = i
                out_left[written] = code if left else other
                out_right[written] = other if left else code
                written += 1
            other = after
    return out_at[:written], out_left[:written], out_right[:written], out_times[:written], born


@kernel
def list_rows(keys: Array, rows: Array, heads: Array) -> None:
    """Put rows 0 to n - 1, the oldest first, at the head of the lists of their keys (int64 [n])."""
    for row in range(keys.shape[0]):
        head = heads[keys[row]]
        rows[row, BEFORE] = -1
        rows[row, AFTER] = head
        if head >= 0:
            rows[head, BEFORE] = row
        heads[keys[row]] = row


@allocating_kernel
def all_pairs(
    codes: Array, keys: Array, left_rows: Array, right_rows: Array, right_heads: Array
) -> tuple[Array, Array]:
    """Every pair that stands now, (left, right), of these left rows (codes, and their keys) in turn."""
    total = 0
    for i in range(codes.shape[0]):
        other = right_heads[keys[i]]
        while other >= 0:
            total += left_rows[codes[i], COUNT] * right_rows[other, COUNT]
            other = right_rows[other, AFTER]
    left = np.empty(total, np.int64)
    right = np.empty(total, np.int64)
    written = 0
    for i in range(codes.shape[0]):
        other = right_heads[keys[i]]
        while other >= 0:
            for _ in range(left_rows[codes[i], COUNT] * right_rows[other, COUNT]):
                left[written] = codes[i]
                right[written] = other
                written += 1
            other = right_rows[other, AFTER]
    return left, right
