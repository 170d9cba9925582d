"""The join of two streams in range windows with W-Expire inside its buffers: rings, and chains of equal keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, inlined, kernel
from nile.exact.state.rows_kernels import hashed, interned, release_code

Array = np.ndarray[Any, Any]

# place: int64 [2, 3], of each side
OLDEST = 0  # the first ordinal that has not left
NEXT = 1  # the first that has not come
NEWEST = 2  # one past the last in the ring

# of a tuple that makes pairs come or go: when, +1 or -1, which side's, its ordinal, its newest partner's
TS = 0
SIGN = 1
SIDE = 2
OWN = 3
NEWEST_OF = 4

_NEVER = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined
def _leaves(ts: int, window: int) -> int:
    """The first nanosecond out of the window (negative: without end)."""
    if window < 0 or ts > _NEVER - 1 - window:
        return int(_NEVER)
    return ts + window + 1


@inlined
def _moving(to: int, window: int, ts: Array, place: Array) -> int:
    """How many tuples of a side come, and leave by `to`.  ts: its ring; place: int64 [3]."""
    mask = ts.shape[0] - 1
    gone = place[OLDEST]
    while gone < place[NEWEST] and _leaves(ts[gone & mask], window) <= to:
        gone += 1
    return int(place[NEWEST] - place[NEXT] + gone - place[OLDEST])


@kernel
def arrive(
    begin: int,
    new_ts: Array,
    new_keys: Array,
    mask_from: int,
    new_words: Array,
    index: Array,
    kept: Array,
    hashes: Array,
    free: Array,
    meta: Array,
    newest: int,
    ts: Array,
    codes: Array,
    words: Array,
) -> int:
    """Put the tuples of a side from `begin` on into its ring, which has room; the first whose key found none.

    new_ts: int64 [n]; new_keys: int64 [n, k], words of their keys, from mask_from on of what is null in them, which
    joins nothing (code -1); new_words: int64 [n, w]; index, kept, hashes, free, meta: of the `RowTable` of keys;
    newest: the ordinal of the first of all n; ts, codes, words: the ring.
    """
    mask = ts.shape[0] - 1
    for i in range(begin, new_ts.shape[0]):
        null = np.int64(0)
        for c in range(mask_from, new_keys.shape[1]):
            null |= new_keys[i, c]
        code = -1
        if null == 0:
            code = interned(new_keys, i, hashed(new_keys, i), index, kept, hashes, free, meta)
            if code < 0:
                return i
        at = (newest + i) & mask
        ts[at] = new_ts[i]
        codes[at] = code
        for c in range(words.shape[1]):
            words[at, c] = new_words[i, c]
    return len(new_ts)


@kernel
def moves(
    to: int,
    left_window: int,
    right_window: int,
    left_ts: Array,
    left_codes: Array,
    left_before: Array,
    left_heads: Array,
    right_ts: Array,
    right_codes: Array,
    right_before: Array,
    right_heads: Array,
    key_counts: Array,
    place: Array,
    come: bool,
    go: bool,
    out: Array,
    ends: Array,
) -> tuple[int, int]:
    """All that comes and leaves up to `to`: how many tuples make pairs come or go, of which out (int64 [room, 5]) has
    TS to NEWEST_OF, and ends (int64 [1 + room]) how many pairs those before each make together; how many pairs go.

    With less room than there may be such tuples nothing is done: below 0, how much it takes, and 0.
    windows: ns, negative without end; ts, codes (-1 joins nothing), before: int64 rings by ordinal; heads: int64
    [keys], the newest ordinal of each, -1 none; key_counts: int64 [keys, 2], of each side; place as above.
    Of one instant what leaves goes first, then the left.  O(1) a tuple.
    """
    left_mask = left_ts.shape[0] - 1
    right_mask = right_ts.shape[0] - 1
    room = _moving(to, left_window, left_ts, place[0]) + _moving(to, right_window, right_ts, place[1])
    if room > out.shape[0]:
        return -room, 0
    ends[0] = 0
    written = 0
    gone = 0
    old_left = place[0, OLDEST]
    old_right = place[1, OLDEST]
    next_left = place[0, NEXT]
    next_right = place[1, NEXT]
    while True:
        now = int(_NEVER)
        what = -1
        if old_left < next_left:
            now = _leaves(left_ts[old_left & left_mask], left_window)
            what = 0
        if old_right < next_right:
            t = _leaves(right_ts[old_right & right_mask], right_window)
            if t < now:
                now = t
                what = 1
        if next_left < place[0, NEWEST] and left_ts[next_left & left_mask] < now:
            now = left_ts[next_left & left_mask]
            what = 2
        if next_right < place[1, NEWEST] and right_ts[next_right & right_mask] < now:
            now = right_ts[next_right & right_mask]
            what = 3
        if what < 0 or now > to or now == _NEVER:
            break
        left = what == 0 or what == 2
        sign = -1 if what < 2 else 1
        if what == 0:
            own = old_left
            old_left += 1
            key = left_codes[own & left_mask]
        elif what == 1:
            own = old_right
            old_right += 1
            key = right_codes[own & right_mask]
        elif what == 2:
            own = next_left
            next_left += 1
            key = left_codes[own & left_mask]
            if key >= 0:
                left_before[own & left_mask] = left_heads[key]
                left_heads[key] = own
        else:
            own = next_right
            next_right += 1
            key = right_codes[own & right_mask]
            if key >= 0:
                right_before[own & right_mask] = right_heads[key]
                right_heads[key] = own
        if key < 0:
            continue
        key_counts[key, 0 if left else 1] += sign
        pairs = key_counts[key, 1 if left else 0]
        if pairs == 0 or (sign > 0 and not come) or (sign < 0 and not go):
            continue
        out[written, TS] = now
        out[written, SIGN] = sign
        out[written, SIDE] = 0 if left else 1
        out[written, OWN] = own
        out[written, NEWEST_OF] = right_heads[key] if left else left_heads[key]
        written += 1
        ends[written] = ends[written - 1] + pairs
        if sign < 0:
            gone += pairs
    place[0, OLDEST] = old_left
    place[1, OLDEST] = old_right
    place[0, NEXT] = next_left
    place[1, NEXT] = next_right
    return written, gone


@kernel
def pairs_moved(
    moved: Array, ends: Array, left_before: Array, right_before: Array,
    ts: Array, sign: Array, first: Array, second: Array,
) -> None:  # fmt: skip
    """The pairs of tuples that `moves` told: into int64 [pairs] ts, left and right ordinals, int8 [pairs] sign.

    The newest partner of a tuple first.  O(1) a pair.
    """
    left_mask = left_before.shape[0] - 1
    right_mask = right_before.shape[0] - 1
    begin = ends[0]
    for i in range(moved.shape[0]):
        other = moved[i, NEWEST_OF]
        left = moved[i, SIDE] == 0
        for at in range(ends[i] - begin, ends[i + 1] - begin):
            ts[at] = moved[i, TS]
            sign[at] = moved[i, SIGN]
            if left:
                first[at] = moved[i, OWN]
                second[at] = other
                other = right_before[other & right_mask]
            else:
                first[at] = other
                second[at] = moved[i, OWN]
                other = left_before[other & left_mask]


@kernel
def word_moved(moved: Array, ends: Array, side: int, words: Array, at: int, ordinals: Array, out: Array) -> None:
    """One word of the tuples of a side in the pairs of `pairs_moved`: out int64 [pairs]; ordinals: int64 [pairs], of
    that side; words: int64 [size, width], its ring.
    """
    mask = words.shape[0] - 1
    begin = ends[0]
    for i in range(moved.shape[0]):
        if moved[i, SIDE] == side:
            own = words[moved[i, OWN] & mask, at]
            for k in range(ends[i] - begin, ends[i + 1] - begin):
                out[k] = own
        else:
            for k in range(ends[i] - begin, ends[i + 1] - begin):
                out[k] = words[ordinals[k] & mask, at]


@kernel
def release_keys(
    first: int, last: int, codes: Array, key_counts: Array, index: Array, hashes: Array, free: Array, meta: Array
) -> None:
    """Forget the keys of ordinals from first to before last that no tuple of either side has.

    codes, key_counts: as of `moves`; index, hashes, free, meta: of the `RowTable` of keys.
    """
    mask = codes.shape[0] - 1
    for own in range(first, last):
        key = codes[own & mask]
        if key >= 0 and key_counts[key, 0] == 0 and key_counts[key, 1] == 0:
            release_code(key, index, hashes, free, meta)


@kernel
def chain(oldest: int, newest: int, codes: Array, before: Array, heads: Array, key_counts: Array, side: int) -> None:
    """Put the tuples of a side's ring into the chains of their keys, and count them, as if they had come."""
    mask = codes.shape[0] - 1
    for own in range(oldest, newest):
        key = codes[own & mask]
        if key >= 0:
            before[own & mask] = heads[key]
            heads[key] = own
            key_counts[key, side] += 1


@allocating_kernel
def pairs_of(first: int, last: int, codes: Array, heads: Array, before: Array, oldest: int) -> tuple[Array, Array]:
    """Every pair that holds: (left ordinal, right ordinal) of the left ones from first to before last.

    codes: the left's ring; heads, before, oldest: the right's.
    """
    mask = codes.shape[0] - 1
    other_mask = before.shape[0] - 1
    total = 0
    for own in range(first, last):
        if codes[own & mask] >= 0:
            other = heads[codes[own & mask]]
            while other >= oldest:
                total += 1
                other = before[other & other_mask]
    left = np.empty(total, np.int64)
    right = np.empty(total, np.int64)
    written = 0
    for own in range(first, last):
        if codes[own & mask] >= 0:
            other = heads[codes[own & mask]]
            while other >= oldest:
                left[written] = own
                right[written] = other
                written += 1
                other = before[other & other_mask]
    return left, right
