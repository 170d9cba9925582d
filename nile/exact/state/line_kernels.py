"""What comes to a window and what leaves it, and the pairs (instant, group) that it touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.group_kernels import AHEAD, AT_ONCE, own_runs
from nile.exact.state.kernels import fetch, inlined, kernel

Array = np.ndarray[Any, Any]

# tuples: int64 [3, room], by tuple
CODE = 0
TOUCH = 2

# pairs (instant, group): int64 [6, room], by pair
AT = 0  # the instant
GROUP = 1  # the code of the group
BEFORE = 2  # its rows before
AFTER = 3
START = 4  # the first tuple
END = 5  # the last


@inlined
def begin_pair(pairs: Array, pair: Any, now: Any, code: Any, rows: Any, tuple_: Any) -> None:
    """The first tuple of a group in an instant, before which it has so many rows."""
    pairs[AT, pair] = now
    pairs[GROUP, pair] = code
    pairs[BEFORE, pair] = rows
    pairs[START, pair] = tuple_


@kernel
def due(k: int, held: int, first: int, until: Array, ts: Array, window: int) -> int:
    """When the k-th of the rows held and those to come leaves."""
    if k >= held:
        return int(ts[k - held]) + window + 1
    at = first + k
    return int(until[at if at < until.shape[0] else at - until.shape[0]])


@kernel
def leaving(before: int, held: int, first: int, until: Array, ts: Array, window: int) -> int:
    """How many of the rows held and those to come leave before an instant.  O(log n)."""
    low = 0
    high = held + ts.shape[0]
    while low < high:
        middle = (low + high) // 2
        if due(middle, held, first, until, ts, window) < before:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _row(
    leaves: bool, number: int, n: int, new_codes: Array, new_words: Array, until: Array,
    codes: Array, words: Array, nulls: Array, first: int, held: int, tuples: Array, signs: Array, taken: Array,
) -> Any:  # fmt: skip
    """Write the number-th row that leaves or comes as the n-th tuple; its group."""
    size = until.shape[0]
    width = words.shape[1]
    masks = new_words.shape[1] - width
    own = number - held if leaves else number
    if leaves and own < 0:
        place = first + number if first + number < size else first + number - size
        code = np.int64(codes[place])
        for c in range(width):
            taken[c, n] = words[place, c]
        for c in range(masks):
            taken[width + c, n] = 0
        for c in range(nulls.shape[1] if nulls.shape[0] > 0 else 0):
            taken[width + (c >> 3), n] |= np.int64(nulls[place, c]) << (8 * (c & 7))
    else:
        code = new_codes[own]
        for c in range(width + masks):
            taken[c, n] = new_words[own, c]
    tuples[CODE, n] = code
    signs[n] = -1 if leaves else 1
    return code


@kernel
def lay_out(
    begin_come: int, end_come: int, begin_leave: int, end_leave: int, window: int, ts: Array, new_codes: Array,
    new_words: Array, until: Array, codes: Array, words: Array, nulls: Array, first: int, held: int,
    tuples: Array, signs: Array, taken: Array, pairs: Array,
) -> bool:  # fmt: skip
    """Write some rows that come and some that leave (whole instants) in order, each as if a pair began with it; whether
    two are of one instant.  The line stays as it is.

    ts, new_codes: int64 [n], what comes; new_words: int64 [n, w + masks]; until, codes, words, nulls, first, held: of a
    `Line`; tuples, signs int8 [room], pairs: as of `over_window_kernels`; taken int64 [w + masks, room]: words of each
    tuple.  O(1) a row.
    """
    i = begin_come
    k = begin_leave
    several = False
    for n in range(end_come + end_leave - begin_come - begin_leave):
        now: Any = np.int64(0x7FFFFFFFFFFFFFFF)
        if i < end_come:
            now = ts[i]
        leaves: Any = False
        if k < end_leave:
            leaving_at = due(k, held, first, until, ts, window)
            leaves = leaving_at <= now  # of one instant what leaves is first
            if leaves:
                now = leaving_at
        code = _row(leaves, k if leaves else i, n, new_codes, new_words, until, codes, words, nulls, first, held,
                       tuples, signs, taken)  # fmt: skip
        if leaves:
            k += 1
        else:
            i += 1
        pairs[AT, n] = now
        pairs[GROUP, n] = code
        pairs[START, n] = n
        if n > 0 and pairs[AT, n - 1] == now:
            several = True
    return several


@kernel
def count_own(
    n: int, several: bool, number: int, tuples: Array, signs: Array, pairs: Array, counts: Array, births: Array,
    mark: Array, part: int, mask: int, own: Array,
) -> int:  # fmt: skip
    """Of n rows that `lay_out` wrote, take in those of some groups (part, mask: as of `apply_counts`): how
    many rows at most are told of them.

    A pair has the number of its first row, and there is none for other rows: before and after are -1.  several: whether
    two are of one instant; number: tuples before all; counts, births: int64 [groups], rows of each and the number of
    the tuple that made it appear; mark: int64 [groups], -1 between calls; own: int64 [AT_ONCE] of scratch.  O(1) a row.
    """
    rows = 0
    codes = tuples[CODE]
    for some in range(0, n, AT_ONCE):
        many = own_runs(some, codes, codes[:0], n, part, mask, own)
        for k in range(many):
            if k + AHEAD < many:
                following = codes[own[k + AHEAD]]
                fetch(counts, following)
                fetch(births, following)
                if several:
                    fetch(mark, following)
            j = own[k]
            code = codes[j]
            pair = j
            if several:
                if mark[code] >= 0 and pairs[AT, mark[code]] == pairs[AT, j]:
                    pair = mark[code]
                else:
                    mark[code] = j
            before = counts[code]
            after = before + signs[j]
            counts[code] = after
            if pair == j:
                pairs[BEFORE, j] = before
                rows += before > 0
                if before == 0:
                    births[code] = number + j
            else:
                pairs[BEFORE, j] = pairs[AFTER, j] = -1
                rows -= before > 0
            rows += after > 0
            pairs[AFTER, pair] = after
            pairs[END, pair] = j
            tuples[TOUCH, j] = pair
    if several:
        for some in range(0, n, AT_ONCE):
            for k in range(own_runs(some, codes, codes[:0], n, part, mask, own)):
                mark[codes[own[k]]] = -1
    return rows


@kernel
def count_up(codes: Array, signs: Array, counts: Array, mark: Array) -> None:
    """Add up how many rows groups have more (counts), and set mark to 0 for groups of codes.  O(1) a row."""
    for i in range(codes.shape[0]):
        if i + AHEAD < codes.shape[0]:
            fetch(counts, codes[i + AHEAD])
            fetch(mark, codes[i + AHEAD])
        counts[codes[i]] += signs[i]
        mark[codes[i]] = 0
