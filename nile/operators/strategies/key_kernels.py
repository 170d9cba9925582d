"""Kernels over tuples listed by key: how many pairs each key has, and these pairs, one key after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

__all__ = ["AT", "pairs_by_key", "repeat_texts", "times_of", "write_keys"]

Array = np.ndarray[Any, Any]
_ENDS = np.iinfo(np.int64)
_LEAST, _MOST = _ENDS.min, _ENDS.max
AT, _PAST, _DONE = range(3)
"""Places of progress: keys done, left tuples done of the next one, and pairs written of the next of these."""


@inlined
def _since(ts: int, window: int) -> int:
    return ts - window if ts >= _LEAST + window else _LEAST


@inlined
def _until(ts: int, window: int) -> int:
    return ts + window if ts <= _MOST - window else _MOST


# Unsigned places: of others each access asks whether it counts from the end, and no loop over columns becomes a copy.
@kernel
def times_of(ts: Array, listed: Array, times: Array) -> None:
    """times[i] = ts[listed[i]]: int64; listed: int32."""
    for i in range(listed.shape[0]):
        times[i] = ts[U8(listed[i])]


@kernel
def pairs_by_key(
    rows: Array, left: Array, right: Array, window: int, begin: Array, many: Array, pairs: Array
) -> int:  # fmt: skip
    """Which right tuples each left one joins, how many pairs each key has, and all: one pass along the lists.

    rows: int32 [keys, 4], of each key the ends of its left and of its right tuples in the lists, and where these begin;
    left, right: int64, the times of the tuples by list, ns, a key's not falling; window: ns, below 0 for none; begin,
    many: int32, of each left tuple by list the first right one that it joins, and how many; pairs: int64 [keys].
    """
    total = np.int64(0)
    for key in range(rows.shape[0]):
        low, end = U8(rows[key, 3]), U8(rows[key, 1])
        high = low
        found = np.int64(0)
        for i in range(U8(rows[key, 2]), U8(rows[key, 0])):
            if window < 0:
                high = end
            else:
                since, until = _since(left[i], window), _until(left[i], window)
                while low < end and right[low] < since:
                    low += U8(1)
                high = max(high, low)
                while high < end and right[high] <= until:
                    high += U8(1)
            begin[i] = low
            many[i] = high - low
            found += np.int64(high - low)
        pairs[key] = found
        total += found
    return int(total)


@kernel
def write_keys(
    order: Array, rows: Array, begin: Array, many: Array, left: Array, right: Array, left_listed: Array,
    right_listed: Array, values: Array, progress: Array, left_out: Array, right_out: Array, left_ts: Array,
    right_ts: Array, key_out: Array,
) -> int:  # fmt: skip
    """The pairs of whole keys, by the left tuple and then by the right one, until the output is full; returns how many.

    order: int64 [m], keys; rows, begin, many, left, right: as `pairs_by_key`; listed: int32, what the tuples by list
    are told as; values: int64, the key of a left tuple by what that is told as ([0]: not wanted); progress: uint64 [3],
    zeros; *_out, *_ts: int64 [room], key_out too, or [0].
    """
    room, n = U8(left_out.shape[0]), U8(0)
    named = values.shape[0] > 0
    at, past, done = progress[AT], progress[_PAST], progress[_DONE]
    while at < U8(order.shape[0]):
        key = order[at]
        last = U8(rows[key, 0])
        i = U8(rows[key, 2]) + past
        while i < last:
            first = U8(begin[i]) + done
            m = min(U8(many[i]) - done, room - n)
            if m > U8(0):
                told, ts = np.int64(left_listed[i]), left[i]
                for k in range(m):
                    left_out[n + k] = told
                for k in range(m):
                    left_ts[n + k] = ts
                for k in range(m):
                    right_out[n + k] = right_listed[first + k]
                for k in range(m):
                    right_ts[n + k] = right[first + k]
                if named:
                    value = values[U8(told)]
                    for k in range(m):
                        key_out[n + k] = value
                n += m
            if done + m < U8(many[i]):
                progress[AT], progress[_PAST], progress[_DONE] = at, i - U8(rows[key, 2]), done + m
                return int(n)
            done = U8(0)
            i += U8(1)
        at += U8(1)
        past = U8(0)
    progress[AT], progress[_PAST], progress[_DONE] = at, U8(0), U8(0)
    return int(n)


@kernel
def repeat_texts(
    data: Array, ends: Array, places: Array, often: Array, out_data: Array, out_ends: Array
) -> None:  # fmt: skip
    """Texts, each so often, one after the other: places: int64 [m], which; often: int64 [m].

    data: uint8, ends: int32, of all texts, as Arrow has them; out_data: uint8, with room for what comes; out_ends:
    int32 [n + 1], the first of them 0.  What is written of a text is copied, twice as much each time.
    """
    at, n = U8(0), U8(0)
    for r in range(places.shape[0]):
        first, times = U8(ends[places[r]]), U8(often[r])
        size = U8(ends[places[r] + 1]) - first
        for k in range(size):
            out_data[at + k] = data[first + k]
        done, whole = size, size * times
        while done < whole:
            more = min(done, whole - done)
            begin = at + done
            for k in range(more):
                out_data[begin + k] = out_data[at + k]
            done += more
        for k in range(times):
            n += U8(1)
            out_ends[n] = at + size * (k + U8(1))
        at += whole
