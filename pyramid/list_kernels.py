"""Kernels of the key directory and the hot tuple lists.

Per key an append-only list of ordinals in one shared arena.  A segment is a power of two; when it is full,
entries older than anything a query can still reach are dropped from its front, or it moves to one of twice
the size and its old place joins the free list of its size.  An entry's rank (its place among all ever
appended) never changes.  Amortised O(1) an append, at most four times the live entries in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyramid.arrays import BASE, DROPPED_TUPLES, GONE, HELD, KEEP_FROM, PLACE, ROOM, TOP, Side
from summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]
_SMALLEST = 4


@part
def _size_class(room: int) -> int:
    k = 0
    while (1 << k) < room:
        k += 1
    return k


@part
def make_room(s: Side, code: int) -> bool:
    """Room for one more ordinal in the key's full list; False, and nothing done, when the arena must grow first."""
    size = s.lists[code, HELD]
    room = s.lists[code, ROOM]
    begin = s.lists[code, PLACE]
    old = 0
    keep = s.meta[KEEP_FROM]
    while old < size and s.arena[begin + old] < keep:
        old += 1
    if old > 0 and 2 * old >= room:
        for i in range(size - old):
            s.arena[begin + i] = s.arena[begin + old + i]
    else:
        wanted = max(2 * room, _SMALLEST)
        k = _size_class(wanted)
        place = s.free[k]
        if place >= 0:
            s.free[k] = s.arena[place]
        else:
            place = s.meta[TOP]
            if place + wanted > s.arena.shape[0]:
                return False
            s.meta[TOP] += wanted
        for i in range(size - old):
            s.arena[place + i] = s.arena[begin + old + i]
        if room > 0:
            j = _size_class(room)
            s.arena[begin] = s.free[j]
            s.free[j] = begin
        s.lists[code, PLACE] = place
        s.lists[code, ROOM] = wanted
    s.lists[code, GONE] += old
    s.meta[DROPPED_TUPLES] += old
    s.lists[code, HELD] = size - old
    return True


@inlined
def is_full(s: Side, code: int) -> bool:
    """Whether the key's list must `make_room` before the next `append`."""
    return s.lists[code, HELD] == s.lists[code, ROOM]  # type: ignore[no-any-return]


@inlined
def append(s: Side, code: int, ordinal: int) -> None:
    """Put an ordinal at the end of the key's list, which is not full."""
    size = s.lists[code, HELD]
    s.arena[s.lists[code, PLACE] + size] = ordinal
    s.lists[code, HELD] = size + 1


@part
def rank_from(s: Side, code: int, ordinal: int) -> int:
    """The rank of the key's first entry with that ordinal or a later one.  O(log list)."""
    begin = s.lists[code, PLACE]
    low = 0
    high = s.lists[code, HELD]
    while low < high:
        middle = (low + high) >> 1
        if s.arena[begin + middle] < ordinal:
            low = middle + 1
        else:
            high = middle
    return s.lists[code, GONE] + low  # type: ignore[no-any-return]


@part
def rank_since(s: Side, code: int, since: int) -> int:
    """The rank of the key's first entry with ts >= since.  O(log list), galloping back from the end.

    Entries before the first tuple held are older than anything a query asks for.
    """
    begin = s.lists[code, PLACE]
    size = s.lists[code, HELD]
    base = s.meta[BASE]
    step = 1
    high = size
    low = size - 1
    while low >= 0 and s.arena[begin + low] >= base and s.ts[s.arena[begin + low] - base] >= since:
        high = low
        low -= step
        step <<= 1
    low = max(low, 0)
    while low < high:
        middle = (low + high) >> 1
        ordinal = s.arena[begin + middle]
        if ordinal < base or s.ts[ordinal - base] < since:
            low = middle + 1
        else:
            high = middle
    return s.lists[code, GONE] + low  # type: ignore[no-any-return]


@inlined
def ordinal_at(s: Side, code: int, rank: int) -> int:
    """The ordinal at a rank of the key's list."""
    return s.arena[s.lists[code, PLACE] + rank - s.lists[code, GONE]]  # type: ignore[no-any-return]


@inlined
def end_rank(s: Side, code: int) -> int:
    """One past the rank of the key's newest entry: how many were ever appended."""
    return s.lists[code, GONE] + s.lists[code, HELD]  # type: ignore[no-any-return]


@kernel
def expand_ranges(
    s: Side, codes: Array, first: Array, last: Array, begin: int, out_range: Array, out_ordinal: Array
) -> tuple[int, int]:
    """Write (range number, ordinal) for every rank first[i]..last[i]-1; returns (ranges done, rows written)."""
    rows = 0
    for i in range(begin, codes.shape[0]):
        n = last[i] - first[i]
        if rows + n > out_range.shape[0]:
            return i, rows
        at = s.lists[codes[i], PLACE] - s.lists[codes[i], GONE]
        for rank in range(first[i], last[i]):
            out_range[rows] = i
            out_ordinal[rows] = s.arena[at + rank]
            rows += 1
    return codes.shape[0], rows
