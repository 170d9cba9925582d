"""Combinations of n streams under windows between pairs of them, by chained symmetric probing."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def shortest(windows: Array) -> Array:
    """How far apart two streams' tuples can be at most: shortest paths over the windows given.  int64 [n, n].

    windows: int64 [n, n], -1 none; distances are at most 2**61.  O(n**3).
    """
    n = windows.shape[0]
    far = np.int64(1) << 61
    distance = np.full((n, n), far, np.int64)
    for i in range(n):
        distance[i, i] = 0
        for j in range(n):
            if i != j and windows[i, j] >= 0:
                distance[i, j] = min(far, windows[i, j])
    for k in range(n):
        for i in range(n):
            for j in range(n):
                distance[i, j] = min(distance[i, j], distance[i, k] + distance[k, j])
    return distance


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def combine(
    streams: Array,
    ordinals: Array,
    times: Array,
    keys: Array,
    windows: Array,
    distance: Array,
    reach: Array,
    plan: Array,
    directed: bool,
    ts: Array,
    before: Array,
    held_keys: Array,
    heads: Array,
    key_counts: Array,
    oldest: Array,
    newest: Array,
) -> tuple[Array, Array, Array]:
    """The combinations that arrivals complete: (arrival, ordinal of each stream's member [., n], leaves at).

    streams, ordinals, times, keys (-1: joins nothing): int64 [arrivals], in total order; windows: int64 [n, n] (i, j)
    as given, -1 none, symmetric unless directed, where only [i, j] with i before j on the path is set; distance as
    above; reach: int64 [n], how long a tuple can still join; plan: int64 [n, n], in which order the streams are
    probed from each; ts, before (the ordinal of the key's tuple before, -1), held_keys: int64 [n, power of two], by
    ordinal; heads: int64 [n, keys]; key_counts: int64 [keys]; oldest, newest: int64 [n], ordinals that are held.
    """
    n = windows.shape[0]
    mask = ts.shape[1] - 1
    room = 2 * streams.shape[0] + 16
    out_at = np.empty(room, np.int64)
    out = np.empty((room, n), np.int64)
    out_until = np.empty(room, np.int64)
    written = 0
    cursor = np.empty(n, np.int64)
    member = np.empty(n, np.int64)
    member_ts = np.empty(n, np.int64)
    for a in range(streams.shape[0]):
        i = streams[a]
        now = times[a]
        key = keys[a]
        for j in range(n):
            while oldest[j] < newest[j] and ts[j, oldest[j] & mask] < now - reach[j]:
                gone = held_keys[j, oldest[j] & mask]
                if gone >= 0:
                    key_counts[gone] -= 1
                oldest[j] += 1
        slot = ordinals[a] & mask
        ts[i, slot] = now
        held_keys[i, slot] = key
        newest[i] = ordinals[a] + 1
        if key < 0:
            continue
        before[i, slot] = heads[i, key]
        heads[i, key] = ordinals[a]
        key_counts[key] += 1
        member[i] = ordinals[a]
        member_ts[i] = now
        level = 1
        cursor[1] = heads[plan[i, 1], key]
        while level > 0:
            j = plan[i, level]
            at = cursor[level]
            if at < oldest[j] or now - ts[j, at & mask] > distance[i, j]:
                level -= 1
                continue
            cursor[level] = before[j, at & mask]
            t = ts[j, at & mask]
            fits = True
            for m in range(level):
                other = plan[i, m]
                w = max(windows[other, j], windows[j, other])
                if w >= 0 and abs(member_ts[other] - t) > w:
                    fits = False
                    break
            if not fits:
                continue
            member[j] = at
            member_ts[j] = t
            if level < n - 1:
                level += 1
                cursor[level] = heads[plan[i, level], key]
                continue
            until = np.int64(0x7FFFFFFFFFFFFFFF)
            rises = True
            falls = True
            for p in range(n):
                for q in range(n):
                    w = windows[p, q]
                    if w < 0 or p == q:
                        continue
                    first = min(member_ts[p], member_ts[q])
                    if first <= until - 1 - w:
                        until = min(until, first + w + 1)
                    rises = rises and member_ts[p] <= member_ts[q]
                    falls = falls and member_ts[p] >= member_ts[q]
            if directed and not (rises or falls):
                continue
            if written == room:
                room *= 2
                b = np.empty(room, np.int64)
                c = np.empty((room, n), np.int64)
                d = np.empty(room, np.int64)
                b[:written] = out_at[:written]
                c[:written] = out[:written]
                d[:written] = out_until[:written]
                out_at = b
                out = c
                out_until = d
            out_at[written] = a
            out_until[written] = until
            for p in range(n):
                out[written, p] = member[p]
            written += 1
    return out_at[:written], out[:written], out_until[:written]
