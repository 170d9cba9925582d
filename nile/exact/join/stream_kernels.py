"""The chain join of two streams as they arrive: what is kept is the window's content, not the stream.

Each stream has a ring of a power of two in which a tuple stands at its ordinal; an entry is (key, ordinal of the
tuple before it in its bucket).  One table holds, a bucket, the newest ordinal of either stream, side by side, since an
arrival needs both: it walks the other's chain back until it leaves the window, and heads its own.  Expired entries
are never unlinked: an ordinal below the other stream's first kept one ends the walk.
Cost.  O(1 + outputs + collisions) a tuple.  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import inlined, kernel

Array = np.ndarray[Any, Any]

# Columns of place, one row per stream
SEEN, FIRST, DONE = range(3)
# Why a kernel stops
FINISHED, FULL, GROW = range(3)
HEAD = -2  # a walk that begins

_LEAST = np.iinfo(np.int64).min


@inlined
def _bucket(code: int, shift: Any) -> Any:
    """The bucket of a key: the upper bits of a multiplicative hash."""
    return np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> shift)


@inlined
def _since(ts: int, window: int) -> int:
    """The earliest time still within the window of ts."""
    return ts - window if ts >= _LEAST + window else _LEAST


@kernel
def join_pairs(
    left_ts: Array,
    left_code: Array,
    right_ts: Array,
    right_code: Array,
    window: int,
    left_ring: Array,
    right_ring: Array,
    left_times: Array,
    right_times: Array,
    heads: Array,
    shift: Any,
    place: Array,
    resume: Array,
    left_out: Array,
    right_out: Array,
    costs: Array,
) -> int:
    """Join a batch of both streams in total order; resume[1]: how many pairs were written.  Returns why it stopped.

    *_ts: int64 ns; *_code: int64, below 0 never joins; *_ring: int64 [capacity, 2]; *_times: int64 [capacity];
    heads: int64 [buckets, 2]; shift: uint64, 64 less the bits of a bucket; place: int64 [2, 3]; resume[0]: where in a
    chain to go on; *_out: int64 ordinals; costs: int64 (compared, probed, inserted).
    """
    n, m = left_ts.shape[0], right_ts.shape[0]
    i, j = place[0, DONE], place[1, DONE]
    left_base, right_base = place[0, SEEN] - i, place[1, SEEN] - j
    left_first, right_first = place[0, FIRST], place[1, FIRST]
    mask = np.int64(left_ring.shape[0] - 1)
    room = left_out.shape[0]
    written = np.int64(0)
    compared = np.int64(0)
    probed = np.int64(0)
    why = FINISHED
    while i < n or j < m:
        if j == m or (i < n and left_ts[i] <= right_ts[j]):
            ts, code, own = left_ts[i], left_code[i], left_base + i
            since = _since(ts, window)
            if own - left_first > mask:
                while left_first < own and left_times[left_first & mask] < since:
                    left_first += 1
                if own - left_first > mask:
                    why = GROW
                    break
            if code >= 0:
                seen = right_base + j
                while right_first < seen and right_times[right_first & mask] < since:
                    right_first += 1
                bucket = _bucket(code, shift)
                p = heads[bucket, 1] if resume[0] == HEAD else resume[0]
                probed += 1
                while p >= right_first:
                    if right_ring[p & mask, 0] == code:
                        if written == room:
                            why = FULL
                            break
                        left_out[written] = own
                        right_out[written] = p
                        written += 1
                    compared += 1
                    p = right_ring[p & mask, 1]
                if why == FULL:
                    resume[0] = p
                    break
                resume[0] = HEAD
                left_ring[own & mask, 0] = code
                left_ring[own & mask, 1] = heads[bucket, 0]
                heads[bucket, 0] = own
            else:
                left_ring[own & mask, 0] = -1
            left_times[own & mask] = ts
            i += 1
        else:
            ts, code, own = right_ts[j], right_code[j], right_base + j
            since = _since(ts, window)
            if own - right_first > mask:
                while right_first < own and right_times[right_first & mask] < since:
                    right_first += 1
                if own - right_first > mask:
                    why = GROW
                    break
            if code >= 0:
                seen = left_base + i
                while left_first < seen and left_times[left_first & mask] < since:
                    left_first += 1
                bucket = _bucket(code, shift)
                p = heads[bucket, 0] if resume[0] == HEAD else resume[0]
                probed += 1
                while p >= left_first:
                    if left_ring[p & mask, 0] == code:
                        if written == room:
                            why = FULL
                            break
                        left_out[written] = p
                        right_out[written] = own
                        written += 1
                    compared += 1
                    p = left_ring[p & mask, 1]
                if why == FULL:
                    resume[0] = p
                    break
                resume[0] = HEAD
                right_ring[own & mask, 0] = code
                right_ring[own & mask, 1] = heads[bucket, 1]
                heads[bucket, 1] = own
            else:
                right_ring[own & mask, 0] = -1
            right_times[own & mask] = ts
            j += 1
    place[0, SEEN], place[1, SEEN] = left_base + i, right_base + j
    place[0, FIRST], place[1, FIRST] = left_first, right_first
    place[0, DONE], place[1, DONE] = i, j
    resume[1] = written
    costs[0] += compared
    costs[1] += probed
    return why


@kernel
def expire(times: Array, place: Array, side: int, since: int) -> None:
    """Let go of the tuples of one stream older than `since`."""
    mask = np.int64(times.shape[0] - 1)
    first = place[side, FIRST]
    while first < place[side, SEEN] and times[first & mask] < since:
        first += 1
    place[side, FIRST] = first


@kernel
def refill(
    ring: Array, times: Array, new_ring: Array, new_times: Array, heads: Array, shift: Any, place: Array, side: int
) -> None:
    """Put what one stream's ring holds into a ring of another capacity, and its buckets into the new empty `heads`."""
    mask = np.int64(times.shape[0] - 1)
    new_mask = np.int64(new_times.shape[0] - 1)
    for p in range(place[side, FIRST], place[side, SEEN]):
        code = ring[p & mask, 0]
        new_times[p & new_mask] = times[p & mask]
        new_ring[p & new_mask, 0] = code
        if code >= 0:
            bucket = _bucket(code, shift)
            new_ring[p & new_mask, 1] = heads[bucket, side]
            heads[bucket, side] = p


@kernel
def fill(ring: Array, times: Array, heads: Array, shift: Any, side: int, ts: Array, code: Array, ordinal: int) -> None:
    """Put tuples of one stream into a ring that has room for them, from `ordinal` on, and head their chains."""
    mask = np.int64(times.shape[0] - 1)
    for k in range(ts.shape[0]):
        p = np.int64(ordinal + k)
        times[p & mask] = ts[k]
        ring[p & mask, 0] = code[k]
        if code[k] >= 0:
            bucket = _bucket(code[k], shift)
            ring[p & mask, 1] = heads[bucket, side]
            heads[bucket, side] = p
