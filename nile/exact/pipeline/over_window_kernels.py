"""Groups over one window in one pass: what leaves and what comes, the groups of both, and what is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import kernel
from nile.exact.state.rows_kernels import release_codes

Array = np.ndarray[Any, Any]

# place: int64 [4]
OLDEST = 0  # the ordinal of the first row that has not left
NEWEST = 1  # one past the last that has come
BORN = 2  # tuples so far
NULLS = 3  # whether a tuple of this pass has a null in a column that the ring keeps

# tuples: int64 [3, room], by tuple
CODE = 0
WEIGHT = 1
TOUCH = 2

# pairs (instant, group): int64 [6, room], by pair
AT = 0  # the instant
GROUP = 1  # the code of the group
BEFORE = 2  # its rows before
AFTER = 3
FIRST = 4  # the first tuple
LAST = 5


@kernel
def slide(
    to: int,
    window: int,
    ts: Array,
    new_codes: Array,
    new_words: Array,
    mask_from: int,
    until: Array,
    codes: Array,
    words: Array,
    place: Array,
    counts: Array,
    births: Array,
    mark: Array,
    tuples: Array,
    signs: Array,
    pairs: Array,
    taken: Array,
) -> tuple[int, int]:
    """Put rows into the ring of a window, let go of those that leave by `to`, and number the pairs that both touch.

    ts, new_codes: int64 [n]; new_words: int64 [n, w], of which from mask_from on nulls are told; until, codes: int64
    [ring], words: int64 [ring, w], by ordinal, with room for n more; counts, births, mark: int64 [groups], as of
    `touch_groups`; tuples, pairs, place: as above; signs: int8 [room]; taken: int64 [w, room], the words of each tuple.
    Returns how many tuples and pairs there are; with too little room, what it has to be, negative, and nothing is done.
    Of one instant what leaves is first.  O(1) a tuple.
    """
    mask = until.shape[0] - 1
    oldest = place[OLDEST]
    newest = place[NEWEST]
    come = ts.shape[0]
    leaving = 0
    while oldest + leaving < newest and until[(oldest + leaving) & mask] <= to:
        leaving += 1
    if leaving + 2 * come > signs.shape[0]:
        return -(leaving + 2 * come), 0
    for i in range(come):
        at = (newest + i) & mask
        until[at] = ts[i] + window + 1
        codes[at] = new_codes[i]
        for c in range(words.shape[1]):
            words[at, c] = new_words[i, c]
    end = newest + come
    place[NEWEST] = end
    nulls = np.int64(0)
    n = 0
    held = 0
    while True:
        begin = held
        now = np.int64(0x7FFFFFFFFFFFFFFF)
        if newest < end:
            now = until[newest & mask] - window - 1
        if oldest < newest and until[oldest & mask] <= min(now, to):
            now = until[oldest & mask]
        elif newest == end:
            break
        while True:
            if oldest < newest and until[oldest & mask] == now:
                at = oldest & mask
                oldest += 1
                step = -1
            elif newest < end and until[newest & mask] - window - 1 == now:
                at = newest & mask
                newest += 1
                step = 1
            else:
                break
            code = codes[at]
            pair = mark[code]
            if pair < 0:
                pair = held
                held += 1
                mark[code] = pair
                pairs[AT, pair] = now
                pairs[GROUP, pair] = code
                pairs[BEFORE, pair] = counts[code]
                pairs[FIRST, pair] = n
                if counts[code] == 0:
                    births[code] = place[BORN]
            pairs[LAST, pair] = n
            counts[code] += step
            place[BORN] += 1
            tuples[CODE, n] = code
            tuples[WEIGHT, n] = step
            tuples[TOUCH, n] = pair
            signs[n] = step
            for c in range(words.shape[1]):
                taken[c, n] = words[at, c]
                if c >= mask_from:
                    nulls |= words[at, c]
            n += 1
        for k in range(begin, held):
            pairs[AFTER, k] = counts[pairs[GROUP, k]]
            mark[pairs[GROUP, k]] = -1
    place[OLDEST] = oldest
    place[NULLS] = nulls != 0
    return n, held


@kernel
def tell(
    held: int,
    pairs: Array,
    old: Array,
    new: Array,
    keyed: bool,
    mask_from: int,
    counts: Array,
    kept: Array,
    index: Array,
    hashes: Array,
    free: Array,
    meta: Array,
    empty: Array,
    out: Array,
    signs: Array,
) -> tuple[int, int, bool]:
    """The rows of groups that go and come: how many, how many of them go, whether any key is null; groups without rows
    are forgotten.

    old, new: int64 [w, room], what the first `held` pairs had before and after; keyed: groups have keys, and rows only
    while they have tuples; kept (from mask_from on nulls are told), index, hashes, free, meta: of their `RowTable`;
    empty: int64 [held] of scratch; out: int64 [1 + keys + w, 2 held], instants, words of keys, numbers; signs: int8
    [2 held].  Of one instant the rows
    that go stand before those that come.  O(1) a pair.
    """
    width = kept.shape[1] if keyed else 0
    written = 0
    gone = 0
    nulls = np.int64(0)
    i = 0
    while i < held:
        end = i
        while end < held and pairs[AT, end] == pairs[AT, i]:
            end += 1
        for turn in range(2):
            for k in range(i, end):
                if keyed and pairs[BEFORE if turn == 0 else AFTER, k] <= 0:
                    continue
                changed = keyed and (pairs[BEFORE, k] > 0) != (pairs[AFTER, k] > 0)
                if not changed:
                    for c in range(old.shape[0]):
                        if old[c, k] != new[c, k]:
                            changed = True
                            break
                if not changed:
                    continue
                out[0, written] = pairs[AT, k]
                code = pairs[GROUP, k]
                for c in range(width):
                    out[1 + c, written] = kept[code, c]
                    if c >= mask_from:
                        nulls |= kept[code, c]
                for c in range(old.shape[0]):
                    out[1 + width + c, written] = old[c, k] if turn == 0 else new[c, k]
                signs[written] = -1 if turn == 0 else 1
                gone += 1 - turn
                written += 1
        i = end
    if keyed:
        many = 0
        for k in range(held):
            if counts[pairs[GROUP, k]] == 0:
                empty[many] = pairs[GROUP, k]
                many += 1
        release_codes(empty[:many], index, hashes, free, meta)
    return written, gone, nulls != 0
