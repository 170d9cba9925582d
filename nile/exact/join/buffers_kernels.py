"""The buffers of W-joins: how tuples come in, and the rules of removal that tell the algorithms apart.

`removal` says when tuples leave: eagerly; in the bucket probed, with an update routine for buckets rarely probed; when
the period of forward evaluation ends; every so many arrivals.
Buffers are rings of a power of two, addressed by absolute positions that only grow; a bucket links positions.

Cost.  Amortised O(1) a tuple.  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.join.parts_kernels import (
    ACCESS,
    ARRIVED,
    BUCKET,
    CHAIN,
    CYCLE,
    DROPPED,
    EVERY,
    FIRST,
    LAST,
    LEAST_RECENT,
    MODE_END,
    MOST_RECENT,
    MOVED,
    PERIOD,
    PROBED,
    REMOVAL,
    SCAN,
    SEEN,
    UPDATES,
    bucket_of,
    minus,
)
from nile.exact.state.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]

_LEAST = np.iinfo(np.int64).min


@part
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


@part
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


@part
def prune(b: Any, j: int, bucket: int, since: int, now: int, costs: Array) -> None:
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


@part
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


@kernel
def remove_expired(b: Any, r: Any, w: Any, now: int, forced: bool, costs: Array) -> None:
    """Remove tuples as the algorithm does when time reaches `now`; forced: also what it would leave for later."""
    removal = r.settings[REMOVAL]
    n = b.ts.shape[0]
    if removal == PROBED:
        for j in range(n):
            since = minus(now, r.lookback[j])
            oldest = b.place[j, LEAST_RECENT]
            while oldest >= 0 and b.visited[j, oldest] < since:
                prune(b, j, oldest, since, now, costs)
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


@inlined
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


@kernel
def fill(b: Any, r: Any, j: int, ts: Array, code: Array, ordinal: Array, seen: int, costs: Array) -> None:
    """Put tuples of stream j, none of them null, into its empty buffer, which has room; seen: tuples of it so far."""
    for k in range(ts.shape[0]):
        insert(b, r, j, ts[k], code[k], ordinal[k], costs)
    b.place[j, SEEN] = seen


@kernel
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
