"""Steps 2 and 3 of JOIN-PROBE: which zones of the other stream a tuple should probe, and how promising each is."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import heap_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import since_of
from nile.preferences.heap_kernels import Heap
from nile.preferences.state import State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import cell_of
from nile.pyramid.grid.list_kernels import end_rank, ordinal_at, rank_since
from nile.summaries.kernels import U8, allocating_part, inlined, part
from nile.summaries.sketch_kernels import median

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer: numpy's to Python, a machine word to the compiler
_FAR = 1 << 62
_NO_BASE = -1


@inlined
def is_sketched(s: Side) -> bool:
    """Whether the stream has a summary: every structure but T1."""
    return bool(s.spec[ga.DETECTOR_BITS] != 0)


@inlined
def bucket_of(s: Side, h: Word) -> int:
    """The value bucket of a key: 0 without value buckets (T1, T2)."""
    return int(np.int64((h >> U8(1)) >> U8(s.spec[ga.BUCKET_SHIFT])))


@part
def _read(s: Side, slot: int, base: int, h: Word, rows: Array) -> tuple[float, float]:
    """A key's (estimate, upper bound) in a slot, less slots `base` and `base` + 1 unless that is -1."""
    n = rows.shape[0]
    least = _FAR
    for r in range(n):
        cell = cell_of(s, r, h)
        mine = s.counters[slot, r, cell]
        other = s.counters[slot, r, cell ^ U8(1)]
        if base >= 0:
            mine -= s.counters[base, r, cell] + s.counters[base + 1, r, cell]
            other -= s.counters[base, r, cell ^ U8(1)] + s.counters[base + 1, r, cell ^ U8(1)]
        rows[r] = np.float64(mine - other)
        least = min(least, mine)
    bound = np.float64(least)
    return max(0.0, min(median(rows, n), bound)), bound


@part
def _enqueue(
    st: State, q: Heap, side: int, ordinal: int, ts: int, low: int, high: Word, cut: bool, priority: float
) -> None:
    """PQ.Insert(x1, zone, priority): the zone is ordinals [low, high) of the other stream."""
    at = queue.add_own(q)
    entry = q.entry
    entry[at, queue.SIDE] = side
    entry[at, queue.ORDINAL] = ordinal
    entry[at, queue.LOW] = low
    entry[at, queue.HIGH] = high
    entry[at, queue.TIME] = ts
    entry[at, queue.ARRIVAL] = st.whole[js.APPLIED]
    entry[at, queue.CUT] = np.int64(cut)
    entry[at, queue.TURNS] = 0
    entry[at, queue.SEEN] = 0
    q.real[at, queue.PRIORITY] = priority
    q.real[at, queue.KEY] = queue.key_of(priority, 0, st.setting[js.PREFERENCE])
    st.whole[js.REGIONS] += 1


@allocating_part
def visit(s: Side, h: Word, side: int, ordinal: int, ts: int, st: State, q: Heap) -> int:
    """Steps 2 and 3: one entry for each zone of `s`, the other stream; returns sketches read."""
    since = since_of(ts, st.window[0])
    if not is_sketched(s):  # T1: the window is one zone
        rank = rank_since(s, 0, since)
        if rank < end_rank(s, 0):
            _enqueue(st, q, side, ordinal, ts, ordinal_at(s, 0, rank), s.zone[ga.NEXT], False, 1.0)
        return 0
    node = s.node
    w = st.whole
    scale = 0.0 if st.setting[js.BLIND] else 1.0
    rows = np.empty(s.counters.shape[1], np.float64)
    stack = np.empty(64, np.int64)
    reads = 0
    for g in range(s.gran.shape[0]):
        root = s.gran[g, ga.OFFSET]
        if node[root, ga.COUNT] == 0:
            continue
        if node[root, ga.LAST] < since:
            break
        fade = scale * st.fades[g]
        _, bound = _read(s, root, _NO_BASE, h, rows)
        reads += 1
        if bound == 0.0:
            w[js.PRUNED] += 1
            continue
        opened = g == 0 and s.zone[ga.ZONE_COUNT] > 0
        if opened:  # the open zone is the root less its children, which are read for that
            value, upper = _read(s, root, root + 1, h, rows)
            for child in range(root + 1, root + 3):
                if node[child, ga.COUNT] > 0:
                    reads += 1
            if upper > 0.0:
                first = s.zone[ga.ZONE_FIRST]
                _enqueue(st, q, side, ordinal, ts, s.zone[ga.ZONE_START], s.zone[ga.NEXT], first < since, fade * value)
            else:
                w[js.PRUNED] += 1
        leaves = s.gran[g, ga.LEAVES]
        stack[0] = 2
        stack[1] = 3
        top = 2
        while top > 0:
            top -= 1
            position = stack[top]
            slot = root + position - 1
            if node[slot, ga.COUNT] == 0 or node[slot, ga.LAST] < since:
                continue
            value, bound = _read(s, slot, _NO_BASE, h, rows)
            if not (opened and position <= 3):
                reads += 1
            if bound == 0.0:
                w[js.PRUNED] += 1
            elif position < leaves:
                stack[top] = 2 * position
                stack[top + 1] = 2 * position + 1
                top += 2
            else:
                first = node[slot, ga.FIRST]
                _enqueue(
                    st, q, side, ordinal, ts, node[slot, ga.START], node[slot, ga.END], first < since, fade * value
                )
    return reads
