"""What a join over live streams does beside joining: exact window counts, and taking its lists and queue apart.

Cost.  O(1) a tuple for the counts; O(held) to list or to put back what a store holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import queue_kernels as queue
from nile.preferences.arrival_kernels import since_of
from nile.preferences.queue_kernels import Queue
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import append, is_full, make_room
from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]

# `place` of `count_matches`, pairs by side: the first tuple that is still counted, and the next to be counted.
FIRST_COUNTED, NEXT_COUNTED = 0, 2
PLACE_FIELDS = 4


@kernel
def count_matches(left: Side, right: Side, order: Array, window: int, counts: Array, place: Array, out: Array) -> None:
    """How many exact matches each arrival completes: tuples of its key in the other stream, at most `window` ago.

    order: int8 [n], the stream of each arrival, the first of which is tuple `place[NEXT_COUNTED + side]` of its
    stream; counts: int64 [keys, 2], tuples of left and right in the window, of all that came; out: int64 [n], written.
    Twin: of arrival j, sum over earlier i of the other stream: code_i == code_j >= 0 and ts_j - ts_i <= window.
    """
    for i in range(order.shape[0]):
        side = order[i]
        ordinal = place[NEXT_COUNTED + side]
        place[NEXT_COUNTED + side] = ordinal + 1
        if side == 0:
            at = ordinal - left.meta[ga.BASE]
            code, ts = left.code[at], left.ts[at]
        else:
            at = ordinal - right.meta[ga.BASE]
            code, ts = right.code[at], right.ts[at]
        since = since_of(ts, window)
        first = place[FIRST_COUNTED] - left.meta[ga.BASE]
        while first + left.meta[ga.BASE] < place[NEXT_COUNTED] and left.ts[first] < since:
            if left.code[first] >= 0:
                counts[left.code[first], 0] -= 1
            first += 1
        place[FIRST_COUNTED] = first + left.meta[ga.BASE]
        first = place[FIRST_COUNTED + 1] - right.meta[ga.BASE]
        while first + right.meta[ga.BASE] < place[NEXT_COUNTED + 1] and right.ts[first] < since:
            if right.code[first] >= 0:
                counts[right.code[first], 1] -= 1
            first += 1
        place[FIRST_COUNTED + 1] = first + right.meta[ga.BASE]
        out[i] = 0
        if code >= 0:
            out[i] = counts[code, 1 - side]
            counts[code, side] += 1


@kernel
def count_combinations(s: Side, window: int, counts: Array, place: Array, out: Array) -> None:
    """How many exact combinations each arrival of n streams completes, in one store keyed by (key, stream).

    counts: int64 [keys, n], tuples of each stream in the window, of all that came; place: int64 [2], the first arrival
    that is still counted, and the next to be counted, which is the first of `out`; out: float64, written.
    Twin: of arrival j, product over the other streams of how many i < j of the key came at most `window` before.
    """
    n = counts.shape[1]
    base = s.meta[ga.BASE]
    first = place[0] - base
    for i in range(out.shape[0]):
        at = place[1] - base + i
        since = since_of(s.ts[at], window)
        while first < at and s.ts[first] < since:
            gone = np.int64(s.code[first])
            if gone >= 0:
                counts[gone // n, gone % n] -= 1
            first += 1
        code = np.int64(s.code[at])
        out[i] = 0.0
        if code < 0:
            continue
        key, own = code // n, code % n
        out[i] = 1.0
        for k in range(n):
            if k != own:
                out[i] *= np.float64(counts[key, k])
        counts[key, own] += 1
    place[0] = first + base
    place[1] += out.shape[0]


@kernel
def listed(s: Side, keep: int, shown: Array, gone: Array) -> None:
    """Which tuples from ordinal `keep` on stand in the list of their key.

    shown: uint8 [tuples held from `keep`], zeros before, 1 after where the tuple is listed; gone: int64 [keys],
    written: the rank of the first of them in each key's list.
    """
    for code in range(gone.shape[0]):
        begin = s.lists[code, ga.PLACE]
        past = 0
        for i in range(s.lists[code, ga.HELD]):
            ordinal = s.arena[begin + i]
            if ordinal < keep:
                past += 1
            else:
                shown[ordinal - keep] = 1
        gone[code] = s.lists[code, ga.GONE] + past


@kernel
def put_back(s: Side, begin: int, shown: Array) -> int:
    """Append tuples from ordinal `begin` on that were listed; returns the first that has no room in the arena, or -1.

    shown: uint8 [n], of ordinals begin, begin + 1, ...
    """
    for i in range(shown.shape[0]):
        if shown[i]:
            code = s.code[begin + i - s.meta[ga.BASE]]
            if is_full(s, code) and not make_room(s, code):
                return begin + i
            append(s, code, begin + i)
    return -1


@kernel
def places(q: Queue, out: Array) -> None:
    """The places of all entries, class by class from the least, oldest first: int64 [entries], written."""
    n = 0
    for klass in range(queue.CLASSES):
        at = q.ends[klass, 1]
        while at >= 0:
            out[n] = at
            n += 1
            at = q.link[at, 0]


@kernel
def put_in(q: Queue, entry: Array, real: Array, place: Array) -> None:
    """Push entries in the order that `places` gave.  entry: int64 [n, 7]; real: float64 [n, 4]; place: int64 [n],
    written: where each stands.
    """
    for i in range(entry.shape[0]):
        at = queue.push(q, entry[i, queue.CLASS])
        place[i] = at
        for k in range(queue.ENTRY_FIELDS):
            q.entry[at, k] = entry[i, k]
        for k in range(queue.REAL_FIELDS):
            q.real[at, k] = real[i, k]
