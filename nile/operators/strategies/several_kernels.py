"""Kernels over tuples of n streams listed by key: how many combinations each key has, and these, or some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import inlined, kernel

__all__ = ["AT", "combinations_by_key", "list_stream", "write_combinations"]

Array = np.ndarray[Any, Any]
_LEAST = np.iinfo(np.int64).min
AT, _INSIDE, _PASSED, _WRITTEN = range(4)
"""Places of progress: keys done, whether the next one was begun, combinations passed, and of these written."""


@kernel
def list_stream(codes: Array, told: Array, ts: Array, begin: Array, listed: Array, times: Array) -> None:
    """Lists a stream's tuples by key, in their order.

    codes: int64 [n], below 0 for none; told: int64 [n], what they are told as; ts: int64, times by that; begin: int64
    [keys + 1], where in the lists this stream's begin, at [0], becomes where each key's do; listed, times: int64.
    """
    first, keys = begin[0], begin.shape[0] - 1
    begin[:] = 0
    for i in range(codes.shape[0]):
        if codes[i] >= 0:
            begin[codes[i] + 1] += 1
    begin[0] = first
    for key in range(keys):
        begin[key + 1] += begin[key]
    for i in range(codes.shape[0]):
        if codes[i] >= 0:
            at = begin[codes[i]]
            begin[codes[i]] = at + 1
            listed[at] = told[i]
            times[at] = ts[told[i]]
    for key in range(keys, 0, -1):  # each stands where its list ends, which is where the next one begins
        begin[key] = begin[key - 1]
    begin[0] = first


@inlined
def _next(begin: Array, key: int, times: Array, at: Array) -> Any:
    """The stream whose next tuple of the key comes first, of equals the first one; below 0 where none is left."""
    own = -1
    for k in range(at.shape[0]):
        if at[k] < begin[k, key + 1] and (own < 0 or times[at[k]] < times[at[own]]):
            own = k
    return own


@inlined
def _completed(own: int, times: Array, window: int, cap: int, at: Array, low: Array) -> Any:
    """How many combinations the next tuple of a stream completes; 0 where it is no outlier, where these are wanted."""
    ts = times[at[own]]
    since = _LEAST if window < 0 or ts < _LEAST + window else ts - window
    found, standing = 1.0, 1
    for k in range(at.shape[0]):
        while low[k] < at[k] and times[low[k]] < since:
            low[k] += 1
        if k != own:
            found *= at[k] - low[k]
        standing += at[k] - low[k]
    return found if cap == 0 or standing <= cap else 0.0


@kernel
def combinations_by_key(
    begin: Array, times: Array, window: int, cap: int, at: Array, low: Array, by_key: Array
) -> tuple[float, float]:
    """(the most combinations that a tuple completes, how many there are), and of each key.

    begin: int64 [n, keys + 1], where in the lists those of each key begin, of each stream; times: int64, ns, of the
    tuples by list; window: ns, below 0 for none; cap: of outliers, which alone count, or 0; at, low: int64 [n], room;
    by_key: int64 [keys].
    """
    most, whole = 0.0, 0.0
    for key in range(by_key.shape[0]):
        some = True
        for k in range(at.shape[0]):
            at[k] = low[k] = begin[k, key]
            some &= begin[k, key + 1] > begin[k, key]
        found = 0.0
        while some:
            own = _next(begin, key, times, at)
            if own < 0:
                break
            completed = _completed(own, times, window, cap, at, low)
            most, found = max(most, completed), found + completed
            at[own] += 1
        by_key[key] = np.int64(min(found, 2.0**62))
        whole += found
    return most, whole


@kernel
def write_combinations(
    order: Array, begin: Array, by_key: Array, listed: Array, times: Array, window: int, cap: int, step: float,
    phase: float, progress: Array, at: Array, low: Array, out: Array,
) -> int:  # fmt: skip
    """Combinations of the keys in an order, every `step`-th from `phase` on, until the output is full; how many.

    Of a key in the order in which they complete, of one tuple the last stream fastest.  order: int64 [m]; begin,
    by_key, times, window, cap: as of `combinations_by_key`; listed: int64, what tuples by list are told as; step: from
    1 on; progress: int64 [4], zeros; at, low: int64 [n], kept beside it; out: int64 [n, room].
    """
    room, n = out.shape[1], 0
    done, inside, passed, written = progress[AT], progress[_INSIDE], progress[_PASSED], progress[_WRITTEN]
    wanted = np.int64(phase + written * step)
    while done < order.shape[0]:
        key = order[done]
        if not inside:
            if passed + by_key[key] <= wanted:
                passed += by_key[key]
                done += 1
                continue
            for k in range(at.shape[0]):
                at[k] = low[k] = begin[k, key]
            inside = 1
        own = _next(begin, key, times, at)
        if own < 0:
            inside = 0
            done += 1
            continue
        completed = np.int64(_completed(own, times, window, cap, at, low))
        while wanted < passed + completed:
            if n == room:
                progress[AT], progress[_INSIDE], progress[_PASSED], progress[_WRITTEN] = done, inside, passed, written
                return n
            number = wanted - passed
            for k in range(at.shape[0] - 1, -1, -1):
                if k == own:
                    out[k, n] = listed[at[k]]
                else:
                    many = at[k] - low[k]
                    out[k, n] = listed[low[k] + number % many]
                    number //= many
            n += 1
            written += 1
            wanted = np.int64(phase + written * step)
        passed += completed
        at[own] += 1
    progress[AT], progress[_INSIDE], progress[_PASSED], progress[_WRITTEN] = done, inside, passed, written
    return n
