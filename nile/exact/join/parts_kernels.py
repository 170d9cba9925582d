"""What the kernels of W-joins over buffers share: how they are compiled, what they work on, and its numbers.

Cost.  None of its own.  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.exact.state.kernels import inlined

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


@inlined
def minus(ts: int, span: int) -> int:
    """ts - span, no less than the least int64; span >= 0."""
    return ts - span if ts >= _LEAST + span else _LEAST


@inlined
def plus(ts: int, span: int) -> int:
    """ts + span, no more than the largest int64; span >= 0."""
    return ts + span if ts <= _MOST - span else _MOST


@inlined
def bucket_of(code: int, buckets: int) -> Any:
    """The bucket of a code among a power of two: multiplicative hashing, upper bits folded into lower ones."""
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(buckets - 1))
