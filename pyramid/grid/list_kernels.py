"""Kernels of the key directory and the hot tuple lists.

Design.  Per key an append-only list of ordinals in one shared arena, its room a power of two.  A full list
first drops from its front what no query can reach any more, if that is half of it; else it moves to the end
of the arena, with twice the room.  When the arena is full, a new one takes what is alive, lists back to back.
An entry's rank (its place among all ever appended) never changes.
Cost.  Amortised O(1) an append: a new arena has as much free room as it has in use, and keys that have no place
in the old one are not looked at.
A batch is counted first and makes room once a key, which touches a key's line once and not once a tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_SMALLEST = 4  # entries; a place is never smaller, so that `placed` needs a quarter of the arena's length
_SLACK = 4096


@inlined
def _first_from(arena: Array, begin: int, size: int, ordinal: int) -> int:
    """How many of the ascending entries arena[begin : begin + size] come before `ordinal`."""
    low = 0
    high = size
    while low < high:
        middle = (low + high) >> 1
        if arena[begin + middle] < ordinal:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _wanted(room: int, live: int, more: int) -> int:
    """The room of a list that moves: a power of two, at least twice what it has."""
    wanted = max(2 * room, _SMALLEST)
    while wanted < live + more:
        wanted *= 2
    return wanted


@inlined
def make_room_in(lists: Array, arena: Array, placed: Array, meta: Array, code: int | np.uint64, more: int) -> bool:
    """Room for `more` ordinals in a list that has less; False, and nothing done, when the arena is too small."""
    size = lists[code, ga.HELD]
    room = lists[code, ga.ROOM]
    begin = lists[code, ga.PLACE]
    keep = meta[ga.KEEP_FROM]
    old = _first_from(arena, begin, size, keep)
    place = begin
    if 2 * old < room or size - old + more > room:
        place = meta[ga.TOP]
        wanted = _wanted(room, size - old, more)
        if place + wanted > arena.shape[0]:
            return False
        meta[ga.TOP] = place + wanted
        if room == 0:
            placed[meta[ga.PLACED]] = code
            meta[ga.PLACED] += 1
        lists[code, ga.PLACE] = place
        lists[code, ga.ROOM] = wanted
    for i in range(size - old):
        arena[place + i] = arena[begin + old + i]
    lists[code, ga.GONE] += old
    lists[code, ga.HELD] = size - old
    meta[ga.DROPPED_TUPLES] += old
    return True


@part
def make_room(s: Side, code: int) -> bool:
    """Room for one more ordinal in the key's full list; False, and nothing done, when the arena must grow first."""
    return make_room_in(s.lists, s.arena, s.placed, s.meta, code, 1)


@inlined
def is_full(s: Side, code: int) -> bool:
    """Whether the key's list must `make_room` before the next `append`."""
    return bool(s.lists[code, ga.HELD] == s.lists[code, ga.ROOM])


@inlined
def append(s: Side, code: int, ordinal: int) -> None:
    """Put an ordinal at the end of the key's list, which is not full."""
    size = s.lists[code, ga.HELD]
    s.arena[s.lists[code, ga.PLACE] + size] = ordinal
    s.lists[code, ga.HELD] = size + 1


@kernel
def append_all(s: Side, begin: int, end: int, marks: Array, keys: Array, times: Array) -> int:
    """Append tuples begin..end-1 (ordinals), but null keys, to the lists of their keys; returns the distinct keys.

    keys: int32, the distinct keys, in order of appearance; times: int64, how often each comes; both are written,
    and have as many places as there are tuples.  marks: int64 [all keys], 0 before and after.
    Returns -free, with nothing appended, when that much of the arena must be free and is not.
    """
    lists = s.lists
    arena = s.arena
    codes = s.code[begin - s.meta[ga.BASE] : end - s.meta[ga.BASE]]
    distinct = 0
    for i in range(codes.shape[0]):
        if codes[i] < 0:
            continue
        code = U8(codes[i])
        if marks[code] == 0:
            keys[distinct] = codes[i]
            distinct += 1
        marks[code] += 1
    free = 0
    for k in range(distinct):
        code = U8(keys[k])
        times[k] = marks[code]
        if lists[code, ga.HELD] + marks[code] > lists[code, ga.ROOM]:
            free += _wanted(lists[code, ga.ROOM], lists[code, ga.HELD], marks[code])
    if free <= arena.shape[0] - s.meta[ga.TOP]:
        free = 0
        for k in range(distinct):
            code = U8(keys[k])
            if lists[code, ga.HELD] + times[k] > lists[code, ga.ROOM]:
                make_room_in(lists, arena, s.placed, s.meta, code, times[k])
            marks[code] = lists[code, ga.PLACE] + lists[code, ga.HELD]
            lists[code, ga.HELD] += times[k]
        for i in range(codes.shape[0]):
            if codes[i] >= 0:
                code = U8(codes[i])
                place = marks[code]
                arena[U8(place)] = begin + i
                marks[code] = place + 1
    for k in range(distinct):
        marks[U8(keys[k])] = 0
    return distinct if free == 0 else -free


@inlined
def _kept_room(room: int, live: int) -> int:
    """The room of a list in a new arena: twice what lives, up to eight times if it had it, so that it stays put."""
    if live == 0:
        return 0
    return max(_wanted(0, live, live), min(room, _wanted(0, live, 3 * live)))


@kernel
def compact(s: Side, free: int, arena: Array, placed: Array) -> int:
    """Move what is alive of the lists into a new arena, at least `free` entries of which stay free.

    With an empty arena nothing moves, and the length that a new one needs is returned; `placed` takes a quarter
    of it.  O(keys placed + entries).
    """
    lists = s.lists
    keep = s.meta[ga.KEEP_FROM]
    top = 0
    keys = 0
    for k in range(s.meta[ga.PLACED]):
        code = s.placed[k]
        begin = lists[code, ga.PLACE]
        old = _first_from(s.arena, begin, lists[code, ga.HELD], keep)
        live = lists[code, ga.HELD] - old
        room = _kept_room(lists[code, ga.ROOM], live)
        if arena.shape[0] > 0:
            for i in range(live):
                arena[top + i] = s.arena[begin + old + i]
            lists[code, ga.PLACE] = top
            lists[code, ga.ROOM] = room
            lists[code, ga.HELD] = live
            lists[code, ga.GONE] += old
            s.meta[ga.DROPPED_TUPLES] += old
            if live > 0:
                placed[keys] = code
                keys += 1
        top += room
    if arena.shape[0] > 0:
        s.meta[ga.TOP] = top
        s.meta[ga.PLACED] = keys
    return top + max(top, free, _SLACK)


@part
def rank_from(s: Side, code: int, ordinal: int) -> int:
    """The rank of the key's first entry with that ordinal or a later one.  O(log list)."""
    begin = s.lists[code, ga.PLACE]
    return int(s.lists[code, ga.GONE] + _first_from(s.arena, begin, s.lists[code, ga.HELD], ordinal))


@part
def rank_since(s: Side, code: int, since: int) -> int:
    """The rank of the key's first entry with ts >= since.  O(log list), galloping back from the end.

    Entries before the first tuple held are older than anything a query asks for.
    """
    begin = s.lists[code, ga.PLACE]
    size = s.lists[code, ga.HELD]
    base = s.meta[ga.BASE]
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
    return int(s.lists[code, ga.GONE] + low)


@part
def first_since(s: Side, since: int, end: int) -> int:
    """The ordinal of the stream's first tuple that is held and has ts >= since, `end` if none before that.  O(log)."""
    low = s.meta[ga.BASE]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if s.ts[middle - s.meta[ga.BASE]] < since:
            low = middle + 1
        else:
            high = middle
    return int(end if low > end else low)


@inlined
def ordinal_at(s: Side, code: int, rank: int) -> int:
    """The ordinal at a rank of the key's list."""
    return int(s.arena[s.lists[code, ga.PLACE] + rank - s.lists[code, ga.GONE]])


@inlined
def end_rank(s: Side, code: int) -> int:
    """One past the rank of the key's newest entry that shows: how many were ever appended."""
    shown = s.lists[code, ga.HELD]
    if s.meta[ga.VISIBLE] != ga.ALL_VISIBLE:
        shown = _first_from(s.arena, s.lists[code, ga.PLACE], shown, s.meta[ga.VISIBLE])
    return int(s.lists[code, ga.GONE] + shown)


@kernel
def counts_since(s: Side, since: int, counts: Array) -> None:
    """counts[c] (int64): entries of key c that a query can still reach and whose ts is `since` or later."""
    keep = s.meta[ga.KEEP_FROM]
    for code in range(counts.shape[0]):
        first = max(rank_since(s, code, since), rank_from(s, code, keep))
        counts[code] = end_rank(s, code) - first


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
        at = s.lists[codes[i], ga.PLACE] - s.lists[codes[i], ga.GONE]
        for rank in range(first[i], last[i]):
            out_range[rows] = i
            out_ordinal[rows] = s.arena[at + rank]
            rows += 1
    return codes.shape[0], rows
