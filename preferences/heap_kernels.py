"""The priority queue of Figure 7: a binary heap of entries, and beside it the entries of the current arrival.

Design.  One array of places.  The first WAITING of them are a heap of what earlier arrivals left; the next
OWN are the entries of the current arrival; the rest are free.  The best entry goes first, whosever it is; with
OWN_FIRST set the current arrival's go before any that wait.  Both parts are told apart
only by where they lie, so a time-out (`demote`) moves no entry.  The order is total, so that it never
depends on how the heap happens to lie: key, then the earlier arrival, then the later zone.
Cost.  O(1) an entry made, O(log n) one that joins or leaves the heap, O(own) to find the best of the own.
Source: promising tuples, Figure 7, steps 3 and 4.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nile.summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]

# `entry`: whose tuple, which, the ordinals [LOW, HIGH) still to look at, its ts, the arrival that made it,
# whether the window cuts the zone, turns had, tuples looked at in this turn.
SIDE, ORDINAL, LOW, HIGH, TIME, ARRIVAL, CUT, TURNS, SEEN = 0, 1, 2, 3, 4, 5, 6, 7, 8
ENTRY_FIELDS = 9
# `real`: what entries are ordered by, least first, and the priority of Figure 7.
KEY, PRIORITY = 0, 1
REAL_FIELDS = 2
# `control`
WAITING, OWN, OWN_FIRST = 0, 1, 2
CONTROL_FIELDS = 3

DESCENDING, WEIGHTED, ASCENDING = 0, 1, 2


class Heap(NamedTuple):
    """The arrays of a queue for up to c entries."""

    entry: Array  # int64 [c, 9]
    real: Array  # float64 [c, 2]
    place: Array  # int64 [c]: a permutation of 0..c-1
    control: Array  # int64 [3]: entries in the heap, entries of the current arrival, whether these go first


class Heaps(NamedTuple):
    """The queues of q queries, each for up to c entries, one beside the other."""

    entry: Array  # int64 [q, c, 9]
    real: Array  # float64 [q, c, 2]
    place: Array  # int64 [q, c]
    control: Array  # int64 [q, 3]


@inlined
def heap_of(heaps: Heaps, query: int) -> Heap:
    """One query's queue."""
    return Heap(heaps.entry[query], heaps.real[query], heaps.place[query], heaps.control[query])


@inlined
def precedes(h: Heap, a: int, b: int) -> bool:
    """Whether the entry at place a goes before the one at place b."""
    if h.real[a, KEY] != h.real[b, KEY]:
        return bool(h.real[a, KEY] < h.real[b, KEY])
    if h.entry[a, ARRIVAL] != h.entry[b, ARRIVAL]:
        return bool(h.entry[a, ARRIVAL] < h.entry[b, ARRIVAL])
    return bool(h.entry[a, HIGH] > h.entry[b, HIGH])


@inlined
def key_of(priority: float, turns: int, preference: int) -> float:
    """What an entry is ordered by.  desc: -priority; asc: priority; weighted: (turns had + 1) / priority.

    The last is stride scheduling: an entry with twice the priority comes up twice as often.
    """
    if preference == DESCENDING:
        return -priority
    if preference == ASCENDING:
        return priority
    if priority == 0.0:
        return math.inf
    return (turns + 1.0) / priority


@inlined
def entries(h: Heap) -> int:
    """All entries queued."""
    return int(h.control[WAITING] + h.control[OWN])


@inlined
def most_waiting(heaps: Heaps) -> int:
    """Entries of earlier arrivals in the heap that has most of them."""
    most = 0
    for query in range(heaps.control.shape[0]):
        most = max(most, heaps.control[query, WAITING])
    return most


@inlined
def steps_of(n: int) -> float:
    """log2 n, straight between powers of two: the same bits on every machine, within 0.09."""
    whole = 0
    while n >> (whole + 1) > 0:
        whole += 1
    power = 1 << whole
    return whole + (n - power) / power


@inlined
def add_own(h: Heap) -> int:
    """A place for one more entry of the current arrival; there is one."""
    at = h.place[h.control[WAITING] + h.control[OWN]]
    h.control[OWN] += 1
    return int(at)


@inlined
def _rise(h: Heap, at: int) -> None:
    place = h.place
    while at > 0:
        above = (at - 1) >> 1
        if not precedes(h, place[at], place[above]):
            return
        place[at], place[above] = place[above], place[at]
        at = above


@inlined
def _sink(h: Heap, size: int) -> None:
    place = h.place
    at = 0
    while True:
        best = at
        for child in range(2 * at + 1, min(2 * at + 3, size)):
            if precedes(h, place[child], place[best]):
                best = child
        if best == at:
            return
        place[at], place[best] = place[best], place[at]
        at = best


@part
def demote(h: Heap) -> None:
    """Time-out: what is left of the current arrival's entries waits with the others."""
    while h.control[OWN] > 0:
        h.control[OWN] -= 1
        h.control[WAITING] += 1
        _rise(h, h.control[WAITING] - 1)


@part
def best(h: Heap) -> int:
    """Where in `place` the entry to probe next lies; -1 when empty."""
    first = h.control[WAITING]
    if h.control[OWN] == 0:
        return 0 if first > 0 else -1
    found = first
    for at in range(first + 1, first + h.control[OWN]):
        if precedes(h, h.place[at], h.place[found]):
            found = at
    if first > 0 and h.control[OWN_FIRST] == 0 and precedes(h, h.place[0], h.place[found]):
        return 0
    return int(found)


@part
def drop(h: Heap, at: int) -> None:
    """Take out the entry that `best` found."""
    place = h.place
    end = h.control[WAITING] + h.control[OWN] - 1
    if at >= h.control[WAITING]:
        place[at], place[end] = place[end], place[at]
        h.control[OWN] -= 1
        return
    last = h.control[WAITING] - 1
    place[0], place[last] = place[last], place[0]
    place[last], place[end] = place[end], place[last]  # the current arrival's entries lie right behind the heap
    h.control[WAITING] = last
    _sink(h, last)


@part
def put_back(h: Heap, at: int) -> None:
    """The key of the entry that `best` found has grown: let it fall to where it belongs now."""
    if at < h.control[WAITING]:
        _sink(h, h.control[WAITING])


@kernel
def replay_operations(h: Heap, operations: Array, keys: Array, out: Array) -> None:
    """Drive the queue from outside, for tests and inspection.

    operations: int64 [n]: 0 adds an entry of the current arrival with keys[i] (float64), 1 is a time-out,
    2 takes out the best, 3 gives the best the key keys[i], which is not less.  out[i]: the number of the
    operation that added the entry taken out, -1 otherwise.
    """
    for i in range(operations.shape[0]):
        out[i] = -1
        what = operations[i]
        if what == 0:
            at = add_own(h)
            h.entry[at, ARRIVAL] = i
            h.entry[at, HIGH] = i
            h.real[at, KEY] = keys[i]
        elif what == 1:
            demote(h)
        else:
            found = best(h)
            if found < 0:
                continue
            if what == 2:
                out[i] = h.entry[h.place[found], ARRIVAL]
                drop(h, found)
            else:
                h.real[h.place[found], KEY] = keys[i]
                put_back(h, found)
