"""Groups over one window in one pass: what leaves and what comes, the groups of both, and what is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import inlined, kernel
from nile.exact.state.line_kernels import AFTER, AT, BEFORE, CODE, END, GROUP, TOUCH, begin_pair, due
from nile.exact.state.rows_kernels import intern_words, release_codes
from nile.exact.state.totals.states import DOUBLE, ROWS, WHOLE

Array = np.ndarray[Any, Any]

# place: int64 [7]
FIRST = 0  # where the first row that has not left is
HELD = 1  # rows that have not left
BORN = 2  # tuples so far
NULLS = 3  # whether a tuple of this pass has a null in a column that the line keeps
TUPLES = 4  # tuples of this pass
MOST = 5  # the most rows that wait at once in it
LOOKED = 6  # whether TUPLES, MOST and NULLS are known, of a pass that found too little room

# tuples, pairs: as of `line_kernels`
WEIGHT = 1  # of a tuple

# what a row told has beyond plain numbers
NULL_KEY = 1  # a key that is null
NO_NUMBER = 2  # a total of no values, or one beyond 64 bits
EMPTIED = 4  # a group that has no rows left, if only for an instant


@kernel
def slide(
    to: int,
    window: int,
    ts: Array,
    new_keys: Array,
    new_codes: Array,
    new_words: Array,
    kept: Array,
    index: Array,
    hashes: Array,
    free: Array,
    meta: Array,
    until: Array,
    codes: Array,
    words: Array,
    nulls: Array,
    place: Array,
    counts: Array,
    births: Array,
    mark: Array,
    tuples: Array,
    signs: Array,
    pairs: Array,
    taken: Array,
) -> tuple[int, int]:
    """Put rows into the line of a window, let go of those that leave by `to`, and number the pairs that both touch.

    ts: int64 [n]; new_keys: int64 [n, k], keys whose codes are looked up here, with kept, index, hashes, free, meta of
    their `RowTable`, [0, 0]: they are known; new_codes: int64 [at least n], [0]: all have code 0; new_words: int64
    [n, w + masks], the last of which say what is null; until int64 [room], codes int32 [room] or [0], words int64
    [room, w], nulls uint8 [room or 0, b]: of a `Line`; counts, births: int64 [groups], as of
    `group_kernels.count_pairs`, mark as of `number_pairs` there; tuples, pairs, place: as above; signs: int8 [room];
    taken: int64 [w + masks, room], the words of each tuple.
    Returns how many tuples and pairs there are; (-1, 0) with too little room: place says how much there has to be
    (TUPLES of scratch, MOST of the line, NULLS of those), and nothing is done; the next call has so much; (-2, 0) where
    the table of keys has to grow.
    Of one instant what leaves is first.  O(1) a tuple.
    """
    if new_keys.shape[1] > 0 and intern_words(new_keys, 0, new_codes, index, kept, hashes, free, meta) < ts.shape[0]:
        return -2, 0
    size = until.shape[0]
    width = words.shape[1]
    first = place[FIRST]
    held = place[HELD]
    come = ts.shape[0]
    some = np.int64(0)
    if place[LOOKED] == 0:
        gone = 0
        most = held
        for i in range(come):
            while gone < held + i and due(gone, held, first, until, ts, window) <= ts[i]:
                gone += 1
            most = max(most, held + i + 1 - gone)
            for c in range(width, new_words.shape[1]):
                some |= new_words[i, c]
        while gone < held + come and due(gone, held, first, until, ts, window) <= to:
            gone += 1
        place[TUPLES] = come + gone
        place[MOST] = most
        place[NULLS] = some != 0
        if come + gone > signs.shape[0] or most > size or (some != 0 and nulls.shape[0] == 0):
            place[LOOKED] = 1
            return -1, 0
    place[LOOKED] = 0
    some = np.int64(0)
    i = 0
    n = 0
    touched = 0
    while True:
        begin = touched
        now = np.int64(0x7FFFFFFFFFFFFFFF)
        if i < come:
            now = ts[i]
        if held > 0 and until[first] <= min(now, to):
            now = until[first]
        elif i == come:
            break
        while True:
            if held > 0 and until[first] == now:
                at = first
                first = first + 1 if first + 1 < size else 0
                held -= 1
                step = -1
            elif i < come and ts[i] == now:
                at = first + held if first + held < size else first + held - size
                until[at] = now + window + 1
                if codes.shape[0] > 0:
                    codes[at] = new_codes[i]
                for c in range(width):
                    words[at, c] = new_words[i, c]
                if nulls.shape[0] > 0:
                    for c in range(nulls.shape[1]):
                        nulls[at, c] = (new_words[i, width + (c >> 3)] >> (8 * (c & 7))) & 255
                held += 1
                i += 1
                step = 1
            else:
                break
            code = np.int64(codes[at]) if codes.shape[0] > 0 else np.int64(0)
            pair = mark[code]
            if pair < 0:
                pair = touched
                touched += 1
                mark[code] = pair
                begin_pair(pairs, pair, now, code, counts[code], n)
                if counts[code] == 0:
                    births[code] = place[BORN]
            pairs[END, pair] = n
            counts[code] += step
            place[BORN] += 1
            tuples[CODE, n] = code
            tuples[WEIGHT, n] = step
            tuples[TOUCH, n] = pair
            signs[n] = step
            for c in range(width):
                taken[c, n] = words[at, c]
            for c in range(width, taken.shape[0]):
                taken[c, n] = 0
            if nulls.shape[0] > 0:
                for c in range(nulls.shape[1]):
                    taken[width + (c >> 3), n] |= np.int64(nulls[at, c]) << (8 * (c & 7))
                    some |= np.int64(nulls[at, c])
            n += 1
        for k in range(begin, touched):
            pairs[AFTER, k] = counts[pairs[GROUP, k]]
            mark[pairs[GROUP, k]] = -1
    place[FIRST] = first
    place[HELD] = held
    place[NULLS] = some != 0
    return n, touched


@inlined
def _changes(k: int, pairs: Array, old: Array, new: Array, keyed: bool, counting: bool) -> bool:
    """Whether what is told of a pair's group is another row after it."""
    changed = counting and pairs[BEFORE, k] != pairs[AFTER, k]
    changed |= keyed and (pairs[BEFORE, k] > 0) != (pairs[AFTER, k] > 0)
    c = 0
    while not changed and c < old.shape[0]:
        changed = old[c, k] != new[c, k]
        c += 1
    return changed


@inlined
def _counts_rows(asked: Array) -> bool:
    counting = False
    for a in range(asked.shape[0]):
        counting |= asked[a, 1] == ROWS
    return counting


@inlined
def _number(row: int, at: int, old: Array, new: Array) -> Any:
    """What a row tells of its pair: the number before, or after."""
    return new[at, row >> 1] if row & 1 else old[at, row >> 1]


@kernel
def tell_part(
    held: int,
    at: int,
    pairs: Array,
    old: Array,
    new: Array,
    keyed: bool,
    mask_from: int,
    asked: Array,
    kept: Array,
    chosen: Array,
    out: Array,
    signs: Array,
) -> tuple[int, int, int]:
    """As `tell`, of whole instants, whose rows are written from `at` on: one past the last of them, how many go, and
    ODD; no group is forgotten.
    """
    width = kept.shape[1] if keyed else 0
    numbers = 1 + width + asked.shape[0]
    counting = _counts_rows(asked)
    rows = 0
    gone = 0
    odd = 0
    i = 0
    while i < held:
        begin = rows
        now = pairs[AT, i]
        end = i
        while end < held and pairs[AT, end] == now:
            odd |= EMPTIED if pairs[AFTER, end] == 0 else 0
            if _changes(end, pairs, old, new, keyed, counting) and (not keyed or pairs[BEFORE, end] > 0):
                chosen[rows] = 2 * end
                signs[at + rows] = -1
                rows += 1
            end += 1
        gone += rows - begin
        for k in range(i, end):
            if (not keyed or pairs[AFTER, k] > 0) and _changes(k, pairs, old, new, keyed, counting):
                chosen[rows] = 2 * k + 1
                signs[at + rows] = 1
                rows += 1
        i = end
    for r in range(rows):
        out[0, at + r] = pairs[AT, chosen[r] >> 1]
    for c in range(width):
        some = np.int64(0)
        for r in range(rows):
            word = kept[pairs[GROUP, chosen[r] >> 1], c]
            out[1 + c, at + r] = word
            some |= word
        if c >= mask_from and some != 0:
            odd |= NULL_KEY
    for c in range(out.shape[0] - numbers):
        for r in range(rows):
            out[numbers + c, at + r] = _number(chosen[r], c, old, new)
    for a in range(asked.shape[0]):
        place = 1 + width + a
        first = asked[a, 0]
        kind = asked[a, 1]
        missing = False
        if kind == ROWS:
            for r in range(rows):
                k = chosen[r] >> 1
                out[place, at + r] = pairs[AFTER, k] if chosen[r] & 1 else pairs[BEFORE, k]
        elif kind == WHOLE:
            for r in range(rows):
                value = _number(chosen[r], first, old, new)
                missing |= _number(chosen[r], first + 2, old, new) == 0 or value < -(1 << 31) or value >= (1 << 31)
                out[place, at + r] = (value << 32) + _number(chosen[r], first + 1, old, new)
        else:
            for r in range(rows):
                out[place, at + r] = _number(chosen[r], first, old, new)
            for r in range(rows if kind == DOUBLE else 0):
                missing |= _number(chosen[r], first + 1, old, new) == 0
        if missing:
            odd |= NO_NUMBER
    return at + rows, gone, odd


@kernel
def tell(
    held: int,
    pairs: Array,
    old: Array,
    new: Array,
    keyed: bool,
    mask_from: int,
    asked: Array,
    counts: Array,
    kept: Array,
    index: Array,
    hashes: Array,
    free: Array,
    meta: Array,
    chosen: Array,
    out: Array,
    signs: Array,
) -> tuple[int, int, int]:
    """The rows of groups that go and come: how many, how many of them go, and what there is beyond plain numbers (ODD);
    groups without rows are forgotten.

    old, new: int64 [w, room], what the first `held` pairs had before and after; keyed: groups have keys, and rows only
    while they have tuples; asked: int64 [a, 2], the first number of each aggregate, and how it is read (`sums.PLAIN`
    and so on); kept (from mask_from on nulls are told), index, hashes, free, meta: of their `RowTable`; chosen: int64
    [2 held] of scratch; out: int64 [1 + keys + a (+ w), 2 held], instants, words of keys, aggregates, and numbers where
    it has room for them; signs: int8 [2 held].  Of one instant the rows that go stand before those that come.  Told
    twice it tells the same.  O(1) a pair.
    """
    told = tell_part(held, 0, pairs, old, new, keyed, mask_from, asked, kept, chosen, out, signs)
    if keyed and told[2] & EMPTIED:
        many = 0
        for k in range(held):
            if counts[pairs[GROUP, k]] == 0:
                chosen[many] = pairs[GROUP, k]
                many += 1
        release_codes(chosen[:many], index, hashes, free, meta)
    return told
