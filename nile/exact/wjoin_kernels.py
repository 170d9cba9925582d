"""W-join over buffers of each stream: one walk, and the rules of removal that tell the algorithms apart.

Design.  A new tuple fixes one member; the walk then chooses a tuple of one further stream a level, backtracking, as
TR 02-010 section 3.1 describes.  `access` says where candidates come from (the whole buffer, a bucket oldest first, a
bucket's chain newest first), `removal` when tuples leave (eagerly; in the bucket probed, with an update routine for
buckets rarely probed; when the period of forward evaluation ends; every so many arrivals).
The period a candidate must lie in is kept as bounds on differences of timestamps, one matrix a direction, so uniform
windows, conservative ones, graphs and directed paths are the same code.

Buffers are rings of a power of two, addressed by absolute positions that only grow; a bucket links positions.
The walk's stack is state: a full output stops it anywhere and the next call goes on.

Cost.  A tuple costs its candidates; removal is amortised O(1).  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

Array = np.ndarray[Any, Any]

# Columns of Buffers.place
FIRST, LAST, SEEN, LEAST_RECENT, MOST_RECENT = range(5)
PLACES = 5
# Entries of Rules.settings
ACCESS, REMOVAL, CHECKED, CONDITION, WIDTH, EVERY = range(6)
SCAN, BUCKET, CHAIN = range(3)
EAGER, PROBED, PERIOD, CYCLE = range(4)
EQUAL, BAND, ANY = range(3)
# Entries of Walk.at
DONE, LEVEL, DIRECTION, WRITTEN, MODE_END, ARRIVED = range(6)
# Entries of costs
COMPARISONS, PROBES, UPDATES, DROPPED, MOVED = range(5)
# Why a kernel stops
FINISHED, FULL, GROW = range(3)

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function, **options: bool) -> Function:
    """Kernels borrow their arrays, as no kernel here makes any: counting references costs more than the work."""
    compiled: Function = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, **options)(function)
    return compiled


def _kernel(function: Function) -> Function:
    """Called from Python."""
    return _compiled(function)


def _part(function: Function) -> Function:
    """Called from kernels alone."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _inlined(function: Function) -> Function:
    """Called from kernels alone, for every tuple or candidate."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


_LEAST = np.iinfo(np.int64).min
_MOST = np.iinfo(np.int64).max


class Buffers(NamedTuple):
    """What is kept of each stream: [n, capacity] rings of tuples, [n, buckets] tables.

    link: the next position of the bucket, newer (BUCKET) or older (CHAIN), -1 none; dead: removed out of order;
    head, tail: first and last position of a bucket; visited: ns when expired tuples of a bucket were last removed;
    newer, older: the list of buckets that hold tuples, by `visited`.  place: int64 [n, PLACES].
    """

    ts: Array
    code: Array
    ordinal: Array
    link: Array
    dead: Array
    head: Array
    tail: Array
    visited: Array
    newer: Array
    older: Array
    place: Array


class Rules(NamedTuple):
    """What is settled at plan time.

    order: int64 [n, n - 1], the streams a new tuple of each looks into; back, ahead: int64 [d, n, n], a candidate of
    j must lie in [ts_i - back, ts_i + ahead] of each chosen i; exact: int64 [r, n, n], upper bounds on ts_j - ts_i of
    which one matrix must hold, r = 0 when the period already says so; lookback: int64 [n] ns; settings: int64.
    """

    order: Array
    back: Array
    ahead: Array
    exact: Array
    lookback: Array
    settings: Array


class Walk(NamedTuple):
    """Where the walk stands: int64 [n] a level (cursor, low, high) or a stream (chosen); `at` int64."""

    cursor: Array
    low: Array
    high: Array
    chosen: Array
    at: Array


@_inlined
def minus(ts: int, span: int) -> int:
    """ts - span, no less than the least int64; span >= 0."""
    return ts - span if ts >= _LEAST + span else _LEAST


@_inlined
def plus(ts: int, span: int) -> int:
    """ts + span, no more than the largest int64; span >= 0."""
    return ts + span if ts <= _MOST - span else _MOST


@_inlined
def bucket_of(code: int, buckets: int) -> Any:
    """The bucket of a code among a power of two: multiplicative hashing, upper bits folded into lower ones."""
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(buckets - 1))


@_part
def _unlist(b: Any, j: int, bucket: int) -> None:
    """Take a bucket out of the list by visits."""
    older, newer = b.older[j, bucket], b.newer[j, bucket]
    if older >= 0:
        b.newer[j, older] = newer
    else:
        b.place[j, LEAST_RECENT] = newer
    if newer >= 0:
        b.older[j, newer] = older
    else:
        b.place[j, MOST_RECENT] = older


@_part
def _enlist(b: Any, j: int, bucket: int, now: int) -> None:
    """Put a bucket at the recent end of the list by visits."""
    last = b.place[j, MOST_RECENT]
    b.older[j, bucket] = last
    b.newer[j, bucket] = -1
    b.visited[j, bucket] = now
    b.place[j, MOST_RECENT] = bucket
    if last >= 0:
        b.newer[j, last] = bucket
    else:
        b.place[j, LEAST_RECENT] = bucket


@_part
def _prune(b: Any, j: int, bucket: int, since: int, now: int, costs: Array) -> None:
    """Remove what is older than `since` from a bucket that holds tuples, and count it as visited."""
    mask = b.ts.shape[1] - 1
    p = b.head[j, bucket]
    while p >= 0 and b.ts[j, p & mask] < since:
        b.dead[j, p & mask] = 1
        p = b.link[j, p & mask]
        costs[DROPPED] += 1
        costs[UPDATES] += 1
    b.head[j, bucket] = p
    _unlist(b, j, bucket)
    if p >= 0:
        _enlist(b, j, bucket, now)
    else:
        b.tail[j, bucket] = -1
    while b.place[j, FIRST] < b.place[j, LAST] and b.dead[j, b.place[j, FIRST] & mask]:
        b.place[j, FIRST] += 1


@_part
def _drop_before(b: Any, r: Any, j: int, since: int, costs: Array) -> None:
    """Remove the tuples of stream j older than `since`, which are its first; with buckets, their first too."""
    mask = b.ts.shape[1] - 1
    first = b.place[j, FIRST]
    while first < b.place[j, LAST] and b.ts[j, first & mask] < since:
        if r.settings[ACCESS] == BUCKET:
            bucket = bucket_of(b.code[j, first & mask], b.head.shape[1])
            b.head[j, bucket] = b.link[j, first & mask]
            if b.head[j, bucket] < 0:
                b.tail[j, bucket] = -1
            costs[UPDATES] += 1
        first += 1
        costs[DROPPED] += 1
    b.place[j, FIRST] = first


@_kernel
def remove_expired(b: Any, r: Any, w: Any, now: int, forced: bool, costs: Array) -> None:
    """Remove tuples as the algorithm does when time reaches `now`; forced: also what it would leave for later."""
    removal = r.settings[REMOVAL]
    n = b.ts.shape[0]
    if removal == PROBED:
        for j in range(n):
            since = minus(now, r.lookback[j])
            oldest = b.place[j, LEAST_RECENT]
            while oldest >= 0 and b.visited[j, oldest] < since:
                _prune(b, j, oldest, since, now, costs)
                oldest = b.place[j, LEAST_RECENT]
        return
    if not forced and removal == PERIOD and now <= w.at[MODE_END]:
        return
    if not forced and removal == CYCLE and w.at[ARRIVED] % r.settings[EVERY] != 0:
        return
    for j in range(n):
        _drop_before(b, r, j, minus(now, r.lookback[j]), costs)
    if removal == PERIOD:
        w.at[MODE_END] = _LEAST


@_inlined
def insert(b: Any, r: Any, j: int, ts: int, code: int, ordinal: int, costs: Array) -> Any:
    """Put a tuple at the end of stream j's buffer, and of its bucket; returns its position."""
    mask = b.ts.shape[1] - 1
    p = b.place[j, LAST]
    b.place[j, LAST] = p + 1
    b.ts[j, p & mask] = ts
    b.code[j, p & mask] = code
    b.ordinal[j, p & mask] = ordinal
    access = r.settings[ACCESS]
    if access == SCAN:
        return p
    costs[UPDATES] += 1
    bucket = bucket_of(code, b.head.shape[1])
    if access == CHAIN:
        b.link[j, p & mask] = b.head[j, bucket]
        b.head[j, bucket] = p
        return p
    b.link[j, p & mask] = -1
    last = b.tail[j, bucket]
    b.tail[j, bucket] = p
    if last >= 0:
        b.link[j, last & mask] = p
    else:
        b.head[j, bucket] = p
    if r.settings[REMOVAL] == PROBED:
        b.dead[j, p & mask] = 0
        if last < 0:
            _enlist(b, j, bucket, ts)
    return p


@_inlined
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


@_inlined
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
        _prune(b, j, bucket, minus(now, r.lookback[j]), now, costs)
    w.cursor[level] = b.head[j, bucket]


@_inlined
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


@_inlined
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


@_inlined
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


@_kernel
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


@_kernel
def refill(old: Any, new: Any, r: Any, now: int, costs: Array) -> None:
    """Put what `old` holds into the empty `new` of another capacity, at the same positions."""
    mask = old.ts.shape[1] - 1
    for j in range(old.ts.shape[0]):
        new.place[j, SEEN] = old.place[j, SEEN]
        first = old.place[j, FIRST]
        new.place[j, FIRST] = first
        new.place[j, LAST] = first
        new.place[j, LEAST_RECENT] = -1
        new.place[j, MOST_RECENT] = -1
        for p in range(first, old.place[j, LAST]):
            s = p & mask
            if old.dead.shape[1] > 1 and old.dead[j, s]:
                new.dead[j, p & (new.ts.shape[1] - 1)] = 1
                new.place[j, LAST] = p + 1
                continue
            insert(new, r, j, old.ts[j, s], old.code[j, s], old.ordinal[j, s], costs)
            costs[MOVED] += 1
        bucket = new.place[j, LEAST_RECENT]
        while bucket >= 0:
            new.visited[j, bucket] = now
            bucket = new.newer[j, bucket]
