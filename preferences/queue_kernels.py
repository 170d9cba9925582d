"""The work-conserving bucket queue: entries by floor(log2 priority), newest first inside a class.

A heap pays log n a pop for an order finer than any estimate; 128 classes pay a constant.  Entries wait until
they are taken, until their window has passed, or until the queue is at its limit and they are the oldest of
the least class.  Source: the priority queue of promising tuples, Figure 7, step 4; DESIGN section 3, 8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]

CLASSES = 128
# `control`
FREE, SIZE, TOP, LEAST = 0, 1, 2, 3
CONTROL_FIELDS = 4
# `entry`: whose tuple, which, two bounds (ordinals or ranks), whether they are ranks, class, ts.
SIDE, ORDINAL, LOW, HIGH, RESOLVED, CLASS, TIME = 0, 1, 2, 3, 4, 5, 6
ENTRY_FIELDS = 7
# `real`: sampling state of an entry, and how many matches it promises.
GAP, STEP, WEIGHT, PROMISE = 0, 1, 2, 3
REAL_FIELDS = 4


class Queue(NamedTuple):
    """The queue's arrays for up to c entries; links are -1 where there is none."""

    entry: Array  # int64 [c, 7]
    real: Array  # float64 [c, 4]
    link: Array  # int64 [c, 2]: newer, older
    ends: Array  # int64 [128, 2]: newest, oldest of each class
    control: Array  # int64 [4]: first free place, entries, highest class that may hold one, least likewise


@inlined
def is_full(q: Queue) -> bool:
    """No place is free."""
    return q.control[FREE] < 0  # type: ignore[no-any-return]


@part
def push(q: Queue, klass: int) -> int:
    """Take a free place, link it as the newest of class `klass` and return it; the queue is not full."""
    at = q.control[FREE]
    q.control[FREE] = q.link[at, 0]
    q.control[SIZE] += 1
    newest = q.ends[klass, 0]
    q.link[at, 0] = -1
    q.link[at, 1] = newest
    if newest >= 0:
        q.link[newest, 0] = at
    else:
        q.ends[klass, 1] = at
    q.ends[klass, 0] = at
    q.entry[at, CLASS] = klass
    q.control[TOP] = max(q.control[TOP], klass)
    q.control[LEAST] = min(q.control[LEAST], klass)
    return at  # type: ignore[no-any-return]


@part
def unlink(q: Queue, at: int) -> None:
    """Take place `at` out and free it (its entry stays readable until the next push)."""
    klass = q.entry[at, CLASS]
    newer = q.link[at, 0]
    older = q.link[at, 1]
    if newer >= 0:
        q.link[newer, 1] = older
    else:
        q.ends[klass, 0] = older
    if older >= 0:
        q.link[older, 0] = newer
    else:
        q.ends[klass, 1] = newer
    q.link[at, 0] = q.control[FREE]
    q.control[FREE] = at
    q.control[SIZE] -= 1


@part
def top_class(q: Queue) -> int:
    """The highest class with an entry, -1 when empty."""
    if q.control[SIZE] == 0:
        q.control[TOP] = 0
        q.control[LEAST] = CLASSES - 1
        return -1
    klass = q.control[TOP]
    while q.ends[klass, 0] < 0:
        klass -= 1
    q.control[TOP] = klass
    return klass  # type: ignore[no-any-return]


@part
def pop(q: Queue, oldest_first: bool) -> int:
    """The place of the highest class's newest (or oldest) entry, taken out; -1 when empty."""
    klass = top_class(q)
    if klass < 0:
        return -1
    at = q.ends[klass, 1] if oldest_first else q.ends[klass, 0]
    unlink(q, at)
    return at  # type: ignore[no-any-return]


@part
def evict(q: Queue) -> int:
    """Take out the oldest entry of the least class (the queue is not empty); returns its place."""
    klass = q.control[LEAST]
    while q.ends[klass, 1] < 0:
        klass += 1
    q.control[LEAST] = klass
    at = q.ends[klass, 1]
    unlink(q, at)
    return at  # type: ignore[no-any-return]


@kernel
def replay_operations(q: Queue, operations: Array, out: Array) -> None:
    """Drive the queue from outside, for tests and inspection.

    operations: int64 [n]; class 0..127 pushes an entry whose ORDINAL is the operation's number, -1 pops the
    newest, -2 pops the oldest, -3 evicts.  out[i]: the ORDINAL taken out, -1 for none or a push.
    """
    for i in range(operations.shape[0]):
        what = operations[i]
        out[i] = -1
        if what >= 0:
            if not is_full(q):
                at = push(q, what)
                q.entry[at, ORDINAL] = i
        elif what == -3:
            if q.control[SIZE] > 0:
                out[i] = q.entry[evict(q), ORDINAL]
        else:
            at = pop(q, what == -2)
            if at >= 0:
                out[i] = q.entry[at, ORDINAL]
