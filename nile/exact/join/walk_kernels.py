"""W-join over buffers of each stream: one walk for all algorithms.

Design.  A new tuple fixes one member; the walk then chooses a tuple of one further stream a level, backtracking, as
TR 02-010 section 3.1 describes.  `access` says where candidates come from (the whole buffer, a bucket oldest first, a
bucket's chain newest first); when tuples leave is up to `nile.exact.join.buffers_kernels`.
The period a candidate must lie in is kept as bounds on differences of timestamps, one matrix a direction, so uniform
windows, conservative ones, graphs and directed paths are the same code.

The walk's stack is state: a full output stops it anywhere and the next call goes on.

Cost.  A tuple costs its candidates.  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.join.buffers_kernels import insert, prune, remove_expired
from nile.exact.join.parts_kernels import (
    ACCESS,
    ARRIVED,
    BAND,
    CHAIN,
    CHECKED,
    COMPARISONS,
    CONDITION,
    DIRECTION,
    DONE,
    EQUAL,
    FINISHED,
    FIRST,
    FULL,
    GROW,
    LAST,
    LEVEL,
    MODE_END,
    PERIOD,
    PROBED,
    PROBES,
    REMOVAL,
    SCAN,
    SEEN,
    WIDTH,
    WRITTEN,
    bucket_of,
    minus,
    plus,
)
from nile.exact.state.kernels import inlined, kernel

Array = np.ndarray[Any, Any]

_LEAST = np.iinfo(np.int64).min
_MOST = np.iinfo(np.int64).max


@inlined
def _joins_now(b: Any, r: Any, w: Any) -> Any:
    """Whether the arrival just put in is walked.  Forward evaluation: Mode 1 first looks for the starting tuples.

    Expired tuples are gone, so the first of every stream are starting tuples as soon as no stream is empty: then the
    period ends at the least of their times plus their windows, and until then nothing need be checked or removed.
    """
    if r.settings[REMOVAL] != PERIOD or w.at[MODE_END] != _LEAST:
        return True
    mask = b.ts.shape[1] - 1
    end = _MOST
    for j in range(b.ts.shape[0]):
        if b.place[j, FIRST] == b.place[j, LAST]:
            return False
        end = min(end, plus(b.ts[j, b.place[j, FIRST] & mask], r.lookback[j]))
    w.at[MODE_END] = end
    return True


@inlined
def _enter(b: Any, r: Any, w: Any, s: int, level: int, now: int, costs: Array) -> None:
    """Begin a level: the period its candidates must lie in, and the first candidate."""
    j = r.order[s, level]
    mask = b.ts.shape[1] - 1
    d = w.at[DIRECTION]
    low, high = _LEAST, _MOST
    if r.settings[CHECKED]:
        for above in range(level + 1):
            i = s if above == 0 else r.order[s, above - 1]
            ts = b.ts[i, w.chosen[i] & mask]
            low = max(low, minus(ts, r.back[d, i, j]))
            high = min(high, plus(ts, r.ahead[d, i, j]))
    w.low[level] = low
    w.high[level] = high
    costs[PROBES] += 1
    if r.settings[ACCESS] == SCAN:
        w.cursor[level] = b.place[j, FIRST]
        return
    bucket = bucket_of(b.code[s, w.chosen[s] & mask], b.head.shape[1])
    if r.settings[REMOVAL] == PROBED and b.head[j, bucket] >= 0:
        prune(b, j, bucket, minus(now, r.lookback[j]), now, costs)
    w.cursor[level] = b.head[j, bucket]


@inlined
def _meets(b: Any, r: Any, w: Any, s: int, level: int, j: int, p: int) -> Any:
    """Whether the candidate at position p of stream j satisfies the condition with every tuple chosen."""
    mask = b.ts.shape[1] - 1
    condition = r.settings[CONDITION]
    if condition == EQUAL:
        return b.code[j, p & mask] == b.code[s, w.chosen[s] & mask]
    if condition == BAND:
        for above in range(level + 1):
            i = s if above == 0 else r.order[s, above - 1]
            one, two = b.code[j, p & mask], b.code[i, w.chosen[i] & mask]
            apart = np.uint64(one) - np.uint64(two) if one > two else np.uint64(two) - np.uint64(one)
            if apart > np.uint64(r.settings[WIDTH]):
                return False
    return True


@inlined
def _next(b: Any, r: Any, w: Any, s: int, level: int, costs: Array) -> Any:
    """The next candidate of a level that lies in its period and satisfies the condition, or -1; moves the cursor."""
    j = r.order[s, level]
    mask = b.ts.shape[1] - 1
    access = r.settings[ACCESS]
    low, high = w.low[level], w.high[level]
    p = w.cursor[level]
    first, last = b.place[j, FIRST], b.place[j, LAST]
    found = np.int64(-1)
    looked = 0
    if access == SCAN and r.settings[CONDITION] == EQUAL:  # the common scan, in a loop of its own
        wanted = b.code[s, w.chosen[s] & mask]
        begin = p
        while p < last and found < 0:
            if b.code[j, p & mask] == wanted and low <= b.ts[j, p & mask] <= high:
                found = p
            p += 1
        looked = p - begin
    else:
        while found < 0 and first <= p < last:
            looked += 1
            ts = b.ts[j, p & mask]
            if access == CHAIN and ts < low:  # and so are all before it
                p = np.int64(-1)
                break
            if low <= ts <= high and _meets(b, r, w, s, level, j, p):
                found = p
            p = p + 1 if access == SCAN else b.link[j, p & mask]
    w.cursor[level] = p
    costs[COMPARISONS] += looked
    return found


@inlined
def _holds(b: Any, r: Any, w: Any) -> bool:
    """Refine: whether the chosen tuples keep every given bound of one direction; in a second pass, not of the first.

    A combination at one instant keeps both directions of a path and is counted in the first.
    """
    n = b.ts.shape[0]
    mask = b.ts.shape[1] - 1
    if w.at[DIRECTION] == 1:
        for i in range(1, n):  # noqa: SIM110
            if b.ts[i, w.chosen[i] & mask] != b.ts[0, w.chosen[0] & mask]:
                return True
        return False
    if r.exact.shape[0] == 0:
        return True
    for d in range(r.exact.shape[0]):
        kept = True
        for i in range(n):
            one = b.ts[i, w.chosen[i] & mask]
            for j in range(n):
                if b.ts[j, w.chosen[j] & mask] > plus(one, r.exact[d, i, j]):
                    kept = False
        if kept:
            return True
    return False


@kernel
def join_batch(
    b: Any, r: Any, w: Any, which: Array, ts: Array, code: Array, null: int, out: Array, costs: Array
) -> int:
    """Join a batch in total order until it is done, the output is full or a buffer must grow; returns which.

    which: int8 [m], the stream of each arrival; ts: int64 ns; code: int64, `null` or less never joins; out: int64
    [n, room], a combination a column; w.at[WRITTEN]: how many were written.
    """
    n = b.ts.shape[0]
    mask = b.ts.shape[1] - 1
    at = w.at[DONE]
    level = w.at[LEVEL]
    written = 0
    why = FINISHED
    while at < ts.shape[0]:
        s = which[at]
        now = ts[at]
        if level < 0:
            if b.place[s, LAST] - b.place[s, FIRST] > mask:
                remove_expired(b, r, w, now, False, costs)
                if b.place[s, LAST] - b.place[s, FIRST] > mask:
                    why = GROW
                    break
            w.at[ARRIVED] += 1
            remove_expired(b, r, w, now, False, costs)
            ordinal = b.place[s, SEEN]
            b.place[s, SEEN] = ordinal + 1
            if code[at] <= null:
                at += 1
                continue
            w.chosen[s] = insert(b, r, s, now, code[at], ordinal, costs)
            if not _joins_now(b, r, w):
                at += 1
                continue
            level = 0
            w.at[DIRECTION] = 0
            _enter(b, r, w, s, level, now, costs)
        while level >= 0:
            if written == out.shape[1]:
                why = FULL
                break
            p = _next(b, r, w, s, level, costs)
            if p < 0:
                level -= 1
                if level < 0 and w.at[DIRECTION] + 1 < r.back.shape[0]:
                    w.at[DIRECTION] += 1
                    level = 0
                    _enter(b, r, w, s, level, now, costs)
                continue
            w.chosen[r.order[s, level]] = p
            if level < n - 2:
                level += 1
                _enter(b, r, w, s, level, now, costs)
            elif _holds(b, r, w):
                for i in range(n):
                    out[i, written] = b.ordinal[i, w.chosen[i] & mask]
                written += 1
        if why == FULL:
            break
        at += 1
    w.at[DONE] = at
    w.at[LEVEL] = level
    w.at[WRITTEN] = written
    return why
