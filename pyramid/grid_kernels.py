"""Kernels of the value x time grid: update, change detection, zones, COLLAPSE, pyramid, estimates.

Design: per tuple one update of G1's root and one of the detector's recent sketch.  At a slice end the
detector compares, and a zone that ends becomes a leaf: root minus the closed part.  A leaf that leaves a
granularity is added to the next one's current leaf and subtracted from every index node above it, so a node
is always the sum of its children and an upper bound of a node is never below one of a child.
Cost: O(rows) a tuple, O(detector) a slice, O(counters * log zones) a zone.
Source: promising tuples, sections 3.1 to 3.5 and Figure 5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyramid.arrays import (
    ADAPTIVE,
    ADDS,
    BASE,
    BUCKET_SHIFT,
    CELL_BITS,
    CELL_SHIFT,
    CHANGES,
    CLOSED,
    COUNT,
    DETECTOR_BITS,
    END,
    ENDING,
    FIRST,
    FORGETTING,
    FORGOTTEN,
    HEAD,
    KEPT_FROM,
    LAST,
    LEAVES,
    MAX_LENGTH,
    NEXT,
    NOW,
    OFFSET,
    REFERENCE,
    RING,
    SIZE,
    SLICE_COUNT,
    SPAN,
    START,
    TURNING,
    ZONE_COUNT,
    ZONE_FIRST,
    ZONE_START,
    Side,
)
from pyramid.change_kernels import confidence_of
from pyramid.list_kernels import append, is_full, make_room
from pyramid.spec import SLICE
from summaries.kernels import U8, inlined, kernel, part
from summaries.sketch_kernels import median

Array = np.ndarray[Any, Any]
_EMPTY_FIRST = np.int64(0x7FFFFFFFFFFFFFFF)
_EMPTY_LAST = -_EMPTY_FIRST


@inlined
def cell_of(s: Side, row: int, h: int) -> int:
    """Where hash h lands in a row: its value bucket, then column and sign inside the bucket's cell."""
    bucket = (h >> U8(1)) >> U8(s.spec[BUCKET_SHIFT])
    inner = (s.multipliers[row] * h) >> U8(s.spec[CELL_SHIFT])
    return np.int64((bucket << U8(s.spec[CELL_BITS])) | inner)  # type: ignore[no-any-return]


@part
def root_slot(s: Side, g: int) -> int:
    """The slot of granularity g's root (g from 0)."""
    return s.gran[g, OFFSET]  # type: ignore[no-any-return]


@inlined
def summarize(s: Side, ordinal: int, ts: int, h: int) -> None:
    """One tuple into the open zone (the paper's Summarize): `rows` updates here and in the detector."""
    zone = s.zone
    root = s.gran[0, OFFSET]
    if zone[ZONE_COUNT] == 0:
        zone[ZONE_FIRST] = ts
        zone[ZONE_START] = ordinal
    if s.node[root, COUNT] == 0:
        s.node[root, FIRST] = ts
        s.node[root, START] = ordinal
    zone[ZONE_COUNT] += 1
    zone[SLICE_COUNT] += 1
    s.node[root, COUNT] += 1
    s.node[root, LAST] = ts
    s.node[root, END] = ordinal + 1
    for r in range(s.counters.shape[1]):
        s.counters[root, r, cell_of(s, r, h)] += 1
    recent = s.detector
    bits = U8(64 - s.spec[DETECTOR_BITS])
    for r in range(recent.shape[0]):
        cell = np.int64((s.detector_multipliers[r] * h) >> bits)
        recent[r, cell >> 1, 1] += 1 - 2 * (cell & 1)


@part
def _combine(s: Side, target: int, source: int, sign: int) -> None:
    counters = s.counters
    for r in range(counters.shape[1]):
        for c in range(counters.shape[2]):
            counters[target, r, c] += sign * counters[source, r, c]
    s.zone[ADDS] += counters.shape[1] * counters.shape[2]


@part
def _refresh(s: Side, g: int, leaf: int) -> None:
    """Recompute counts, ordinals and times of a leaf's ancestors from their children."""
    offset = s.gran[g, OFFSET]
    position = (s.gran[g, LEAVES] + leaf) >> 1
    while position >= 1:
        slot = offset + position - 1
        left = offset + 2 * position - 1
        right = left + 1
        node = s.node
        node[slot, COUNT] = node[left, COUNT] + node[right, COUNT]
        node[slot, START] = min(node[left, START], node[right, START])
        node[slot, END] = max(node[left, END], node[right, END])
        node[slot, FIRST] = min(node[left, FIRST], node[right, FIRST])
        node[slot, LAST] = max(node[left, LAST], node[right, LAST])
        position >>= 1
    if g == 0 and s.zone[ZONE_COUNT] > 0:  # the open zone is in the root and in no leaf
        node = s.node
        node[offset, COUNT] += s.zone[ZONE_COUNT]
        node[offset, START] = min(node[offset, START], s.zone[ZONE_START])
        node[offset, END] = s.zone[NEXT]
        node[offset, FIRST] = min(node[offset, FIRST], s.zone[ZONE_FIRST])
        node[offset, LAST] = s.zone[NOW]


@part
def _clear(s: Side, slot: int) -> None:
    counters = s.counters
    for r in range(counters.shape[1]):
        for c in range(counters.shape[2]):
            counters[slot, r, c] = 0
    s.node[slot, COUNT] = 0
    s.node[slot, START] = _EMPTY_FIRST
    s.node[slot, END] = _EMPTY_LAST
    s.node[slot, FIRST] = _EMPTY_FIRST
    s.node[slot, LAST] = _EMPTY_LAST


@part
def _spread(s: Side, g: int, leaf: int, source: int, sign: int) -> None:
    """Add (or subtract) a slot's counters to every index node above a leaf.

    G1's root already holds what its leaves hold, because tuples enter there: only a departure touches it.
    """
    offset = s.gran[g, OFFSET]
    position = (s.gran[g, LEAVES] + leaf) >> 1
    while position >= 1:
        if not (g == 0 and position == 1 and sign > 0):
            _combine(s, offset + position - 1, source, sign)
        position >>= 1
    if g == 0:
        _combine(s, s.counters.shape[0] - 1, source, sign)


@part
def _absorb(s: Side, slot: int, source: int) -> None:
    """Counts, ordinals and times of `source` into leaf `slot` (its counters are added by the caller)."""
    node = s.node
    node[slot, COUNT] += node[source, COUNT]
    node[slot, START] = min(node[slot, START], node[source, START])
    node[slot, END] = max(node[slot, END], node[source, END])
    node[slot, FIRST] = min(node[slot, FIRST], node[source, FIRST])
    node[slot, LAST] = max(node[slot, LAST], node[source, LAST])


@part
def _merge_oldest(s: Side, g: int) -> None:
    """Make room in a full granularity by merging its two oldest zones, so that nothing is forgotten."""
    ring = s.gran[g, RING]
    head = s.gran[g, HEAD]
    second = (head + 1) % ring
    first_leaf = s.gran[g, OFFSET] + s.gran[g, LEAVES] + head - 1
    second_leaf = s.gran[g, OFFSET] + s.gran[g, LEAVES] + second - 1
    _spread(s, g, head, first_leaf, -1)
    _spread(s, g, second, first_leaf, 1)
    if g == 0:  # a departure was taken from the root above; the tuples are still in G1
        _combine(s, s.gran[0, OFFSET], first_leaf, 1)
    _combine(s, second_leaf, first_leaf, 1)
    _absorb(s, second_leaf, first_leaf)
    _clear(s, first_leaf)
    _refresh(s, g, head)
    _refresh(s, g, second)
    s.gran[g, HEAD] = second
    s.gran[g, SIZE] -= 1


@part
def _forget_oldest(s: Side, g: int) -> None:
    head = s.gran[g, HEAD]
    leaf = s.gran[g, OFFSET] + s.gran[g, LEAVES] + head - 1
    s.zone[KEPT_FROM] = max(s.zone[KEPT_FROM], s.node[leaf, END])
    s.zone[FORGOTTEN] += s.node[leaf, COUNT]
    _spread(s, g, head, leaf, -1)
    _clear(s, leaf)
    _refresh(s, g, head)
    s.gran[g, HEAD] = (head + 1) % s.gran[g, RING]
    s.gran[g, SIZE] -= 1


@part
def _take_zone(s: Side, g: int, source_g: int) -> None:
    """COLLAPSE (Figure 5b): the oldest zone of granularity source_g into the current zone of g = source_g + 1."""
    head = s.gran[source_g, HEAD]
    source = s.gran[source_g, OFFSET] + s.gran[source_g, LEAVES] + head - 1
    ring = s.gran[g, RING]
    current = (s.gran[g, HEAD] + s.gran[g, SIZE] - 1) % ring
    slot = s.gran[g, OFFSET] + s.gran[g, LEAVES] + current - 1
    _combine(s, slot, source, 1)
    _spread(s, g, current, source, 1)
    _absorb(s, slot, source)
    _refresh(s, g, current)
    _spread(s, source_g, head, source, -1)
    _clear(s, source)
    _refresh(s, source_g, head)
    s.gran[source_g, HEAD] = (head + 1) % s.gran[source_g, RING]
    s.gran[source_g, SIZE] -= 1


@part
def _make_room(s: Side) -> None:
    """Advance current zones, oldest granularity first, so that G2 can take G1's oldest zone.

    The paper advances every T_i / n; here a current zone also waits for data, so none is ever empty.
    """
    m = s.gran.shape[0]
    need = 0
    # How far does one departure from G1 push?  A granularity whose current zone is young takes it as it is.
    for g in range(1, m):
        size = s.gran[g, SIZE]
        source = s.gran[g - 1, OFFSET] + s.gran[g - 1, LEAVES] + s.gran[g - 1, HEAD] - 1
        if size > 0:
            current = (s.gran[g, HEAD] + size - 1) % s.gran[g, RING]
            slot = s.gran[g, OFFSET] + s.gran[g, LEAVES] + current - 1
            if s.node[source, FIRST] - s.node[slot, FIRST] < s.gran[g, SPAN] // s.gran[g, RING]:
                break
        need = g
        if size < s.gran[g, RING]:
            break
    for g in range(need, 0, -1):
        if s.gran[g, SIZE] == s.gran[g, RING]:
            if g + 1 < m:
                _take_zone(s, g + 1, g)
            elif s.spec[FORGETTING]:
                _forget_oldest(s, g)
            else:
                _merge_oldest(s, g)
        s.gran[g, SIZE] += 1


@part
def _retire(s: Side, now: int) -> None:
    """Zones wholly older than T1 leave G1: into G2, or forgotten where G1 is the last."""
    m = s.gran.shape[0]
    while s.gran[0, SIZE] > 0:
        leaf = s.gran[0, OFFSET] + s.gran[0, LEAVES] + s.gran[0, HEAD] - 1
        if s.node[leaf, LAST] > now - s.gran[0, SPAN]:
            break
        if m == 1:
            if not s.spec[FORGETTING]:
                break
            _forget_oldest(s, 0)
            continue
        _make_room(s)
        _take_zone(s, 1, 0)


@part
def _close_zone(s: Side) -> None:
    """End the open zone: it becomes G1's newest leaf."""
    zone = s.zone
    if zone[ZONE_COUNT] == 0:
        return
    if s.gran[0, SIZE] == s.gran[0, RING]:
        _merge_oldest(s, 0)
    leaf = (s.gran[0, HEAD] + s.gran[0, SIZE]) % s.gran[0, RING]
    slot = s.gran[0, OFFSET] + s.gran[0, LEAVES] + leaf - 1
    root = s.gran[0, OFFSET]
    base = s.counters.shape[0] - 1
    counters = s.counters
    for r in range(counters.shape[1]):
        for c in range(counters.shape[2]):
            counters[slot, r, c] = counters[root, r, c] - counters[base, r, c]
    zone[ADDS] += counters.shape[1] * counters.shape[2]
    s.node[slot, COUNT] = zone[ZONE_COUNT]
    s.node[slot, START] = zone[ZONE_START]
    s.node[slot, END] = zone[NEXT]
    s.node[slot, FIRST] = zone[ZONE_FIRST]
    s.node[slot, LAST] = zone[NOW]
    s.gran[0, SIZE] += 1
    zone[ZONE_COUNT] = 0
    zone[CLOSED] += 1
    _spread(s, 0, leaf, slot, 1)
    _refresh(s, 0, leaf)


@inlined
def reach(s: Side, ordinal: int, ts: int) -> bool:
    """The stream has reached `ordinal` (summarised or not); True when that ends a slice."""
    s.zone[NOW] = ts
    s.zone[NEXT] = ordinal + 1
    return (ordinal + 1) & (SLICE - 1) == 0


@part
def slice_end(s: Side, ts: int) -> bool:
    """Compare the slice that just ended with the zone before it; True when zones must move.

    The caller then leaves its kernel and calls `turn` (a kernel of its own, or every caller would compile
    COLLAPSE again).
    """
    zone = s.zone
    if s.spec[DETECTOR_BITS] == 0:
        return False
    if zone[SLICE_COUNT] > 0:
        how = s.spec[ADAPTIVE]
        if how != 0:
            confidence = 1.0
            if zone[REFERENCE] > 0:
                confidence = confidence_of(s.detector, zone[REFERENCE], zone[SLICE_COUNT], how)
            if confidence < s.threshold[0]:
                zone[CHANGES] += 1
                zone[ENDING] = 1
        detector = s.detector
        for r in range(detector.shape[0]):
            for c in range(detector.shape[1]):
                detector[r, c, 0] += detector[r, c, 1]
                detector[r, c, 1] = 0
        zone[ADDS] += 2 * detector.shape[0] * detector.shape[1]
        zone[REFERENCE] += zone[SLICE_COUNT]
        zone[SLICE_COUNT] = 0
    if zone[ZONE_COUNT] > 0 and ts - zone[ZONE_FIRST] >= s.spec[MAX_LENGTH]:
        zone[ENDING] = 1
    if zone[ENDING]:
        return True
    if s.gran[0, SIZE] == 0 or (s.gran.shape[0] == 1 and not s.spec[FORGETTING]):
        return False
    oldest = s.gran[0, OFFSET] + s.gran[0, LEAVES] + s.gran[0, HEAD] - 1
    return s.node[oldest, LAST] <= ts - s.gran[0, SPAN]  # type: ignore[no-any-return]


@kernel
def turn(s: Side) -> None:
    """End the open zone if it was found to end, and move on what has grown older than its granularity."""
    if s.zone[ENDING]:
        s.zone[ENDING] = 0
        _close_zone(s)
        detector = s.detector
        for r in range(detector.shape[0]):
            for c in range(detector.shape[1]):
                detector[r, c, 0] = 0
        s.zone[REFERENCE] = 0
    _retire(s, s.zone[NOW])


@inlined
def _add_row_counts(s: Side, slot: int, h: int, scale: float, rows: Array, bound: float) -> float:
    """rows[r] += scale * signed counter; returns bound + the least own-sign half (never scaled down)."""
    least = _EMPTY_FIRST
    for r in range(s.counters.shape[1]):
        cell = cell_of(s, r, h)
        own = s.counters[slot, r, cell]
        rows[r] += scale * np.float64(own - s.counters[slot, r, cell ^ 1])
        least = min(least, own)
    return bound + np.float64(least)


@inlined
def upper_bound(s: Side, slot: int, h: int) -> int:
    """At most so many tuples of this key are in the slot: the least own-sign half over the rows."""
    least = _EMPTY_FIRST
    for r in range(s.counters.shape[1]):
        least = min(least, s.counters[slot, r, cell_of(s, r, h)])
    return least  # type: ignore[no-any-return]


@part
def estimate_since(
    s: Side, g: int, h: int, since: int, rows: Array, stack: Array
) -> tuple[float, float, int]:
    """Tuples of the key in granularity g with ts >= since: (estimate, upper bound, sketches read).

    Best case one read: the root, when all of g is inside.  Otherwise the pyramid is descended: a node wholly
    inside is read, one wholly outside or with upper bound 0 is pruned, a leaf cut by the border counts in
    proportion to the time of it that is inside (its upper bound counts whole).
    rows: float64 work array [rows]; stack: int64 work array, two entries a level suffice.
    """
    offset = s.gran[g, OFFSET]
    node = s.node
    if node[offset, COUNT] == 0 or node[offset, LAST] < since:
        return 0.0, 0.0, 0
    rows[:] = 0.0
    reads = 0
    bound = 0.0
    if node[offset, FIRST] >= since:
        bound = _add_row_counts(s, offset, h, 1.0, rows, 0.0)
        reads = 1
    else:
        reads = 1
        if upper_bound(s, offset, h) == 0:
            return 0.0, 0.0, reads
        top = 0
        stack[0] = 1
        top = 1
        leaves = s.gran[g, LEAVES]
        while top > 0:
            top -= 1
            position = stack[top]
            slot = offset + position - 1
            if position == 1 and leaves > 1:
                stack[top] = 2
                stack[top + 1] = 3
                top += 2
                continue
            if node[slot, COUNT] == 0 or node[slot, LAST] < since:
                continue
            if node[slot, FIRST] >= since:
                bound = _add_row_counts(s, slot, h, 1.0, rows, bound)
                reads += 1
            elif position >= leaves:
                length = node[slot, LAST] - node[slot, FIRST] + 1
                inside = np.float64(node[slot, LAST] - since + 1) / np.float64(length)
                bound = _add_row_counts(s, slot, h, inside, rows, bound)
                reads += 1
            else:
                reads += 1
                if upper_bound(s, slot, h) > 0:
                    stack[top] = 2 * position
                    stack[top + 1] = 2 * position + 1
                    top += 2
        if g == 0 and s.zone[ZONE_COUNT] > 0 and s.zone[NOW] >= since:
            # The open zone: root minus the closed part.
            scale = 1.0
            if s.zone[ZONE_FIRST] < since:
                length = s.zone[NOW] - s.zone[ZONE_FIRST] + 1
                scale = np.float64(s.zone[NOW] - since + 1) / np.float64(length)
            base = s.counters.shape[0] - 1
            least = _EMPTY_FIRST
            for r in range(s.counters.shape[1]):
                cell = cell_of(s, r, h)
                own = s.counters[offset, r, cell] - s.counters[base, r, cell]
                other = s.counters[offset, r, cell ^ 1] - s.counters[base, r, cell ^ 1]
                rows[r] += scale * np.float64(own - other)
                least = min(least, own)
            bound += np.float64(least)
            reads += 2
    value = median(rows, rows.shape[0])
    return max(0.0, min(value, bound)), bound, reads


@part
def root_estimate(s: Side, g: int, h: int) -> tuple[float, float]:
    """A key's (estimate, upper bound) over all of granularity g: one read, of the root."""
    rows = s.counters.shape[1]
    root = s.gran[g, OFFSET]
    work = np.empty(rows, np.float64)
    least = _EMPTY_FIRST
    for r in range(rows):
        cell = cell_of(s, r, h)
        own = s.counters[root, r, cell]
        work[r] = np.float64(own - s.counters[root, r, cell ^ 1])
        least = min(least, own)
    bound = np.float64(least)
    return max(0.0, min(median(work, rows), bound)), bound


@kernel
def ingest(s: Side, begin: int, end: int) -> int:
    """Summarise and list tuples begin..end-1 (ordinals): what a build without a query does.

    Returns the first ordinal not done: `end`, or earlier when the arena must grow for that tuple or, after
    it, zones must turn (`s.zone[TURNING]` tells which).
    """
    base = s.meta[BASE]
    s.zone[TURNING] = 0
    for ordinal in range(begin, end):
        at = ordinal - base
        code = s.code[at]
        if code >= 0:
            if is_full(s, code) and not make_room(s, code):
                return ordinal
            append(s, code, ordinal)
            summarize(s, ordinal, s.ts[at], s.hash[at])
        if reach(s, ordinal, s.ts[at]) and slice_end(s, s.ts[at]):
            s.zone[TURNING] = 1
            return ordinal + 1
    return end


@kernel
def estimate_all(s: Side, hashes: Array, since: int, values: Array, bounds: Array) -> None:
    """values[i], bounds[i] (float64): estimate and upper bound of each key over all granularities since ts."""
    rows = np.zeros(s.counters.shape[1], np.float64)
    stack = np.zeros(128, np.int64)
    for i in range(hashes.shape[0]):
        total = 0.0
        bound = 0.0
        for g in range(s.gran.shape[0]):
            value, upper, _ = estimate_since(s, g, hashes[i], since, rows, stack)
            total += value
            bound += upper
        values[i] = total
        bounds[i] = bound


@part
def log2_class(priority: float) -> int:
    """floor(log2 priority) + 64, within 1..127; 0 for a priority of nothing.  Exact on every machine."""
    if not priority > 0.0:
        return 0
    _, exponent = math.frexp(priority)
    return max(1, min(127, exponent + 63))
