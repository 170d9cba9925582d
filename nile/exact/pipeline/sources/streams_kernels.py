"""The join of two streams in range windows with W-Expire inside its buffers: rings, and chains of equal keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, inlined, kernel

Array = np.ndarray[Any, Any]

# place: int64 [2, 3], of each side
OLDEST = 0  # the first ordinal that has not left
NEXT = 1  # the first that has not come
NEWEST = 2  # one past the last in the ring

_NEVER = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined
def _leaves(ts: int, window: int) -> int:
    """The first nanosecond out of the window (negative: without end)."""
    if window < 0 or ts > _NEVER - 1 - window:
        return int(_NEVER)
    return ts + window + 1


@allocating_kernel
def join_streams(
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
    once: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """All that comes and leaves up to `to`; the pairs that come and go: (ts, sign, left ordinal, right ordinal, times).

    windows: ns, negative without end; ts, codes (-1 joins nothing), before: int64 rings by ordinal; heads: int64
    [keys], the newest ordinal of each, -1 none; key_counts: int64 [keys, 2], of each side; place as above.
    once: of the pairs of a tuple tell the one with the newest, and how many there are (times, else empty), in O(1).
    Of one instant what leaves goes first, then the left.  O(1) a tuple and O(1) a pair.
    """
    left_mask = left_ts.shape[0] - 1
    right_mask = right_ts.shape[0] - 1
    room = 1024
    for side in range(2):
        room += 2 * (place[side, NEWEST] - place[side, NEXT])
    out_ts = np.empty(room, np.int64)
    out_sign = np.empty(room, np.int8)
    out_left = np.empty(room, np.int64)
    out_right = np.empty(room, np.int64)
    out_times = np.empty(room if once else 0, np.int64)
    written = 0
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
        sign = np.int8(-1) if what < 2 else np.int8(1)
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
        if (sign > 0 and not come) or (sign < 0 and not go):
            continue
        other = right_heads[key] if left else left_heads[key]
        end = old_right if left else old_left
        while other >= end:
            if written == room:
                room *= 2
                a = np.empty(room, np.int64)
                b = np.empty(room, np.int8)
                c = np.empty(room, np.int64)
                d = np.empty(room, np.int64)
                copied(written, out_ts, a)
                copied(written, out_sign, b)
                copied(written, out_left, c)
                copied(written, out_right, d)
                out_ts = a
                out_sign = b
                out_left = c
                out_right = d
                if once:
                    e = np.empty(room, np.int64)
                    copied(written, out_times, e)
                    out_times = e
            out_ts[written] = now
            out_sign[written] = sign
            out_left[written] = own if left else other
            out_right[written] = other if left else own
            if once:
                out_times[written] = key_counts[key, 1 if left else 0]
                written += 1
                break
            written += 1
            other = right_before[other & right_mask] if left else left_before[other & left_mask]
    place[0, OLDEST] = old_left
    place[1, OLDEST] = old_right
    place[0, NEXT] = next_left
    place[1, NEXT] = next_right
    return out_ts[:written], out_sign[:written], out_left[:written], out_right[:written], out_times[:written]


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
