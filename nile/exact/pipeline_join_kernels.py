"""The symmetric window join of signed inputs: two tables of counted rows, listed by key."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]

# links: int64 [rows, 2], the row before and the row after in the list of its key, -1 none; newest first
BEFORE = 0
AFTER = 1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _put(row: int, key: int, sign: int, counts: Array, births: Array, born: int, links: Array, heads: Array) -> None:
    """Count a row up or down, and put it at the head of its key's list or take it out."""
    if sign > 0:
        counts[row] += 1
        if counts[row] == 1:
            births[row] = born
            head = heads[key]
            links[row, 0] = -1
            links[row, 1] = head
            if head >= 0:
                links[head, 0] = row
            heads[key] = row
        return
    if counts[row] <= 0:
        return
    counts[row] -= 1
    if counts[row] == 0:
        before = links[row, 0]
        after = links[row, 1]
        if before >= 0:
            links[before, 1] = after
        else:
            heads[key] = after
        if after >= 0:
            links[after, 0] = before


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def apply_join(
    side: Array,
    sign: Array,
    rows: Array,
    keys: Array,
    born: int,
    left_counts: Array,
    left_births: Array,
    left_links: Array,
    left_heads: Array,
    right_counts: Array,
    right_births: Array,
    right_links: Array,
    right_heads: Array,
    come: bool,
    go: bool,
) -> tuple[Array, Array, Array, int]:
    """Signed tuples into the tables; the pairs that come and go: (tuple, left row, right row), and born.

    side int8 (0 left), sign int8 (2 and -2 are told to nobody), rows int64 of the side's table, keys int64: [n];
    counts, births: int64 [rows]; links as above; heads: int64 [keys], -1 none; come, go: which pairs are wanted.
    A pair comes out once for each pair of equal rows that it stands for.
    """
    room = 2 * side.shape[0] + 16
    out_at = np.empty(room, np.int64)
    out_left = np.empty(room, np.int64)
    out_right = np.empty(room, np.int64)
    written = 0
    for i in range(side.shape[0]):
        left = side[i] == 0
        s = sign[i]
        if left:
            _put(rows[i], keys[i], s, left_counts, left_births, born, left_links, left_heads)
        else:
            _put(rows[i], keys[i], s, right_counts, right_births, born, right_links, right_heads)
        born += 1
        if s == 2 or s == -2 or (s > 0 and not come) or (s < 0 and not go):
            continue
        other = right_heads[keys[i]] if left else left_heads[keys[i]]
        while other >= 0:
            times = right_counts[other] if left else left_counts[other]
            if written + times > room:
                room = max(2 * room, written + times)
                a = np.empty(room, np.int64)
                b = np.empty(room, np.int64)
                c = np.empty(room, np.int64)
                a[:written] = out_at[:written]
                b[:written] = out_left[:written]
                c[:written] = out_right[:written]
                out_at = a
                out_left = b
                out_right = c
            for _ in range(times):
                out_at[written] = i
                out_left[written] = rows[i] if left else other
                out_right[written] = other if left else rows[i]
                written += 1
            other = right_links[other, 1] if left else left_links[other, 1]
    return out_at[:written], out_left[:written], out_right[:written], born


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def all_pairs(
    left_rows: Array, left_keys: Array, left_counts: Array, right_counts: Array, right_links: Array, right_heads: Array
) -> tuple[Array, Array]:
    """Every pair that stands now, (left, right), of these left rows in turn."""
    total = 0
    for i in range(left_rows.shape[0]):
        other = right_heads[left_keys[i]]
        while other >= 0:
            total += left_counts[left_rows[i]] * right_counts[other]
            other = right_links[other, 1]
    left = np.empty(total, np.int64)
    right = np.empty(total, np.int64)
    written = 0
    for i in range(left_rows.shape[0]):
        other = right_heads[left_keys[i]]
        while other >= 0:
            for _ in range(left_counts[left_rows[i]] * right_counts[other]):
                left[written] = left_rows[i]
                right[written] = other
                written += 1
            other = right_links[other, 1]
    return left, right
