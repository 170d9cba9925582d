"""What comes to a window and what leaves it, by threads of which each has some instants, sorted by parts of the groups.

Each part of each thread's tuples and pairs (instant, group) stands together, in time order: whoever works on a part of
the groups then reads and writes lines of the cache that no other thread does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import kernel

Array = np.ndarray[Any, Any]

# tuples: int64 [3, room], by tuple
CODE = 0
TOUCH = 2

# pairs: int64 [6, room], by pair
AT = 0
GROUP = 1
BEFORE = 2
AFTER = 3
START = 4
END = 5

# places: int64 [3, parts + 1], of each part
FIRST = 0  # its first tuple, and its first pair; one more: past the last tuple
NEXT = 1  # where its next tuple goes; in the end past its last
PAIRS = 2  # pairs of it


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


@kernel
def pass_by(
    begin_come: int, end_come: int, begin_leave: int, end_leave: int, window: int, ts: Array, new_codes: Array,
    new_words: Array, until: Array, codes: Array, words: Array, nulls: Array, first: int, held: int, mask: int,
    mark: Array, tuples: Array, signs: Array, taken: Array, pairs: Array, order: Array, places: Array,
) -> tuple[int, bool]:  # fmt: skip
    """Some rows that come and some that leave (whole instants), and the pairs (instant, group) that they touch, part
    after part, from their place among all on: how many pairs, and whether any row has a null.  Nothing is counted, and
    the line stays as it is.

    ts, new_codes: int64 [n], what comes; new_words: int64 [n, w + masks]; until, codes, words, nulls, first, held: of a
    `Line`; a group is of the part (code >> 3) & mask; mark: int64 [groups], -1 between calls.  tuples, signs int8
    [room], taken int64 [w + masks, room]: what there is of each tuple, TOUCH by its place among the pairs of the part;
    pairs: of each when, which group, BEFORE: the number of its first tuple among all, AFTER: how many rows more, START,
    END: its tuples, as of TOUCH; order: int64 [room], in time order, where each pair is; places: as above.  O(1) a row.
    """
    size = until.shape[0]
    width = words.shape[1]
    masks = new_words.shape[1] - width
    parts = mask + 1
    begin = begin_come + begin_leave
    for p in range(parts + 1):
        places[FIRST, p] = 0
        places[PAIRS, p] = 0
    for i in range(begin_come, end_come):
        places[FIRST, ((new_codes[i] >> 3) & mask) + 1] += 1
    for k in range(begin_leave, end_leave):
        own = k - held
        place = first + k if first + k < size else first + k - size
        code = np.int64(codes[place]) if own < 0 else new_codes[own]
        places[FIRST, ((code >> 3) & mask) + 1] += 1
    places[FIRST, 0] = begin
    for p in range(parts):
        places[FIRST, p + 1] += places[FIRST, p]
        places[NEXT, p] = places[FIRST, p]
    some = np.int64(0)
    i = begin_come
    k = begin_leave
    told = begin
    since = begin
    before = np.int64(0)
    for number in range(begin, end_come + end_leave):
        leaves = k < end_leave
        if leaves and i < end_come:
            leaves = due(k, held, first, until, ts, window) <= ts[i]  # of one instant what leaves is first
        own = k - held if leaves else i
        place = -1
        if leaves and own < 0:
            place = first + k if first + k < size else first + k - size
            now = until[place]
            code = np.int64(codes[place])
        else:
            now = ts[own] + window + 1 if leaves else ts[own]
            code = new_codes[own]
        if now != before:
            for j in range(since, told):
                mark[pairs[GROUP, order[j]]] = -1
            since = told
            before = now
        part = (code >> 3) & mask
        base = places[FIRST, part]
        n = places[NEXT, part]
        places[NEXT, part] = n + 1
        step = -1 if leaves else 1
        tuples[CODE, n] = code
        signs[n] = step
        if place >= 0:
            for c in range(width):
                taken[c, n] = words[place, c]
            for c in range(masks):
                taken[width + c, n] = 0
            for c in range(nulls.shape[1] if nulls.shape[0] > 0 else 0):
                taken[width + (c >> 3), n] |= np.int64(nulls[place, c]) << (8 * (c & 7))
        else:
            for c in range(width + masks):
                taken[c, n] = new_words[own, c]
        for c in range(width, width + masks):
            some |= taken[c, n]
        pair = mark[code]
        if pair < 0:
            pair = base + places[PAIRS, part]
            places[PAIRS, part] += 1
            mark[code] = pair
            order[told] = pair
            told += 1
            pairs[AT, pair] = now
            pairs[GROUP, pair] = code
            pairs[BEFORE, pair] = number
            pairs[AFTER, pair] = 0
            pairs[START, pair] = n - base
        tuples[TOUCH, n] = pair - base
        pairs[AFTER, pair] += step
        pairs[END, pair] = n - base
        if leaves:
            k += 1
        else:
            i += 1
    for j in range(since, told):
        mark[pairs[GROUP, order[j]]] = -1
    return told - begin, bool(some != 0)
