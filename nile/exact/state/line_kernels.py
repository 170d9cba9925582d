"""What comes to a window and what leaves it, by threads of which each has some instants."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.group_kernels import AHEAD
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


@inlined
def _group(own: int, number: int, new_codes: Array, codes: Array, first: int) -> Any:
    """The group of the number-th row to leave, the own-th of those that come."""
    if own >= 0:
        return new_codes[own]
    at = first + number
    return np.int64(codes[at if at < codes.shape[0] else at - codes.shape[0]])


@inlined
def _ask_for(code: Any, counts: Array, mark: Array) -> None:
    fetch(counts, code)
    fetch(mark, code)


@kernel
def gather(
    begin_come: int, end_come: int, begin_leave: int, end_leave: int, new_codes: Array, new_words: Array, until: Array,
    codes: Array, words: Array, nulls: Array, first: int, held: int, counts: Array,
    mark: Array, tuples: Array, signs: Array, taken: Array,
) -> None:  # fmt: skip
    """Some rows that come, then some that leave, as of `pass_by`, and how many rows groups have (counts); mark: 0 for
    those they are of.  O(1) a row."""
    n = 0
    for leaves in (False, True):
        for number in range(begin_leave if leaves else begin_come, end_leave if leaves else end_come):
            code = _row(leaves, number, n, new_codes, new_words, until, codes, words, nulls, first, held,
                           tuples, signs, taken)  # fmt: skip
            if number + AHEAD < (end_leave if leaves else end_come):
                own = number + AHEAD - (held if leaves else 0)
                _ask_for(_group(own, number + AHEAD, new_codes, codes, first), counts, mark)
            counts[code] += -1 if leaves else 1
            mark[code] = 0
            n += 1


@kernel
def pass_by(
    begin_come: int, end_come: int, begin_leave: int, end_leave: int, window: int, ts: Array, new_codes: Array,
    new_words: Array, until: Array, codes: Array, words: Array, nulls: Array, first: int, held: int, born: int,
    counts: Array, births: Array, mark: Array, tuples: Array, signs: Array, taken: Array, pairs: Array,
) -> tuple[int, bool]:  # fmt: skip
    """Some rows that come and some that leave (whole instants), and the pairs (instant, group) that they touch: how
    many pairs, and whether a group has no rows after one of them.  The line stays as it is.

    ts, new_codes: int64 [n], what comes; new_words: int64 [n, w + masks]; until, codes, words, nulls, first, held: of a
    `Line`; born: tuples before the first that comes or leaves; counts, births: int64 [groups], rows of each and the
    number of the tuple that made it appear; mark: int64 [groups], -1 between calls; tuples, signs int8 [room], pairs:
    as of `over_window_kernels`; taken int64 [w + masks, room]: words of each tuple.  O(1) a row.
    """
    i = begin_come
    k = begin_leave
    n = 0
    touched = 0
    emptied = False
    number = born + begin_come + begin_leave
    end = end_come + end_leave - begin_come - begin_leave
    leaving_at = 0
    if k < end_leave:
        leaving_at = due(k, held, first, until, ts, window)
    while n < end:
        begin = touched
        now = leaving_at
        if k == end_leave or (i < end_come and ts[i] < leaving_at):
            now = ts[i]
        while True:
            leaves = k < end_leave and leaving_at == now  # of one instant what leaves is first
            if not leaves and (i == end_come or ts[i] != now):
                break
            code = _row(leaves, k if leaves else i, n, new_codes, new_words, until, codes, words, nulls,
                           first, held, tuples, signs, taken)  # fmt: skip
            if leaves:
                k += 1
                if k + AHEAD < end_leave:
                    _ask_for(_group(k + AHEAD - held, k + AHEAD, new_codes, codes, first), counts, mark)
                if k < end_leave:
                    leaving_at = due(k, held, first, until, ts, window)
            else:
                i += 1
                if i + AHEAD < end_come:
                    _ask_for(new_codes[i + AHEAD], counts, mark)
                    fetch(births, new_codes[i + AHEAD])
            pair = mark[code]
            if pair < 0:
                pair = touched
                touched += 1
                mark[code] = pair
                begin_pair(pairs, pair, now, code, counts[code], n)
                if counts[code] == 0:
                    births[code] = number + n
            counts[code] += -1 if leaves else 1
            pairs[END, pair] = n
            tuples[TOUCH, n] = pair
            n += 1
        for j in range(begin, touched):
            code = pairs[GROUP, j]
            pairs[AFTER, j] = counts[code]
            emptied |= counts[code] == 0
            mark[code] = -1
    return touched, emptied
