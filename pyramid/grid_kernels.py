"""Kernels of the value x time grid: update, change detection, and what a root says of a key.

Design: a tuple goes into G1's root and into the detector's recent sketch.  At a slice end the detector looks,
and the caller learns whether zones must move; `turn` moves them, outside any kernel.  A batch takes each
piece for itself: the detector slice by slice as far as zones stay put, then that whole run into the root,
one row after the other, so that a row's multiplier and counters stay close.
Cost: O(rows) a tuple, O(detector) a slice.
Source: promising tuples, sections 3.1 to 3.3.
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
    COUNT,
    DETECTOR_BITS,
    END,
    ENDING,
    FIRST,
    FORGETTING,
    HEAD,
    LAST,
    LEAVES,
    MAX_LENGTH,
    NEXT,
    NOW,
    OFFSET,
    REACH,
    REFERENCE,
    SIZE,
    SLICE_COUNT,
    START,
    TURNING,
    ZONE_COUNT,
    ZONE_FIRST,
    ZONE_START,
    Side,
)
from pyramid.change_kernels import confidence_of, look
from pyramid.granularity import turn
from pyramid.spec import SLICE
from summaries.kernels import U8, inlined, kernel, part
from summaries.sketch_kernels import median

__all__ = ["cell_of", "ingest", "log2_class", "reach", "root_estimate", "slice_end", "summarize", "turn"]

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer: an index that needs no test for being negative
_RUN = 64 * SLICE
_BLOCK = 16 * SLICE
_MOST = 1 << 30  # tuples of a zone that the detector's int32 counters are exact for
_TOP = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined
def elapsed(later: int, earlier: int) -> Word:
    """later - earlier: right for any two int64 times of which the first is not before the second."""
    return U8(later) - U8(earlier)


@inlined
def cell_of(s: Side, row: int, h: Word) -> Word:
    """Where hash h lands in a row: its value bucket, then column and sign inside the bucket's cell."""
    bucket = (h >> U8(1)) >> U8(s.spec[BUCKET_SHIFT])
    inner = (s.multipliers[row] * h) >> U8(s.spec[CELL_SHIFT])
    return (bucket << U8(s.spec[CELL_BITS])) | inner


@inlined
def _open(s: Side, ordinal: int, ts: int) -> None:
    """If this is the first tuple of the open zone, or of G1, begin it."""
    if s.zone[ZONE_COUNT] == 0:
        s.zone[ZONE_FIRST] = ts
        s.zone[ZONE_START] = ordinal
        root = s.gran[0, OFFSET]
        if s.node[root, COUNT] == 0:
            s.node[root, FIRST] = ts
            s.node[root, START] = ordinal


@inlined
def summarize(s: Side, ordinal: int, ts: int, h: Word) -> None:
    """One tuple into the open zone (the paper's Summarize): `rows` updates here and in the detector."""
    _open(s, ordinal, ts)
    root = s.gran[0, OFFSET]
    s.zone[ZONE_COUNT] += 1
    s.node[root, COUNT] += 1
    s.node[root, LAST] = ts
    s.node[root, END] = ordinal + 1
    for r in range(s.counters.shape[1]):
        s.counters[root, r, cell_of(s, r, h)] += 1
    if s.zone[SLICE_COUNT] < _MOST:
        s.zone[SLICE_COUNT] += 1
        for r in range(s.recent.shape[0]):
            s.recent[r, (s.detector_multipliers[r] * h) >> U8(64 - s.spec[DETECTOR_BITS])] += 1


@inlined
def reach(s: Side, ordinal: int, ts: int) -> bool:
    """The stream has reached `ordinal` (summarised or not); True when that ends a slice."""
    s.zone[NOW] = ts
    s.zone[NEXT] = ordinal + 1
    return (ordinal + 1) & (SLICE - 1) == 0


@inlined
def _end_slice(s: Side, ts: int) -> bool:
    zone = s.zone
    how = s.spec[ADAPTIVE]
    if how != 0 and zone[SLICE_COUNT] > 0:
        look(s.detector, s.recent, s.moments)
        columns = s.detector.shape[1]
        zone[ADDS] += 2 * s.detector.shape[0] * columns
        n = zone[REFERENCE]
        m = zone[SLICE_COUNT]
        if n > 0 and confidence_of(s.moments, columns, n, m, how) < s.threshold[0]:
            zone[CHANGES] += 1
            zone[ENDING] = 1
        zone[REFERENCE] = n + m
        if n + m >= _MOST:
            zone[ENDING] = 1
    zone[SLICE_COUNT] = 0
    if s.spec[DETECTOR_BITS] == 0:
        return False
    if zone[ZONE_COUNT] > 0 and elapsed(ts, zone[ZONE_FIRST]) >= U8(s.spec[MAX_LENGTH]):
        zone[ENDING] = 1
    if zone[ENDING]:
        return True
    for g in range(s.gran.shape[0] - (0 if s.spec[FORGETTING] else 1)):
        if s.gran[g, SIZE] > 0:
            oldest = s.gran[g, OFFSET] + s.gran[g, LEAVES] + s.gran[g, HEAD] - 1
            if elapsed(ts, s.node[oldest, LAST]) >= U8(s.gran[g, REACH]):
                return True
    return False


@part
def slice_end(s: Side, ts: int) -> bool:
    """Compare the slice that just ended with the zone before it; True when zones must move.

    The caller then leaves its kernel and calls `turn`, which is none.
    """
    return _end_slice(s, ts)


@inlined
def _detect(recent: Array, multipliers: Array, by: Word, hashes: Array, nulls: int, cells: Array) -> None:
    """Count a slice of hashes, some of null keys, in the recent sketch."""
    for r in range(recent.shape[0]):
        multiplier = multipliers[r]
        row = recent[r]
        for i in range(hashes.shape[0]):
            cells[i] = (multiplier * hashes[i]) >> by
        for i in range(hashes.shape[0]):
            row[cells[i]] += 1
        row[0] -= nulls


@inlined
def _count(counters: Array, multipliers: Array, spec: Array, hashes: Array, nulls: int, cells: Array) -> None:
    """Count a run of hashes, some of null keys, in the root.  The cells are those of `cell_of`.

    One row after the other keeps its counters close; cells are found first, which the processor does for
    several tuples at once, and counted then.
    """
    bits = U8(spec[CELL_BITS])
    bucket_by = U8(1) + U8(spec[BUCKET_SHIFT]) - bits
    bucket_mask = ((U8(1) << (U8(63) - U8(spec[BUCKET_SHIFT]))) - U8(1)) << bits
    by = U8(spec[CELL_SHIFT])
    for begin in range(0, hashes.shape[0], _BLOCK):
        block = hashes[begin : begin + _BLOCK]
        for r in range(counters.shape[0]):
            multiplier = multipliers[r]
            row = counters[r]
            for i in range(block.shape[0]):
                h = block[i]
                cells[i] = ((h >> bucket_by) & bucket_mask) | ((multiplier * h) >> by)
            for i in range(block.shape[0]):
                row[cells[i]] += 1
    for r in range(counters.shape[0]):
        counters[r, 0] -= nulls


@kernel
def ingest(s: Side, begin: int, end: int) -> int:
    """Summarise tuples begin..end-1 (ordinals), which are in the flat arrays: what a build without a query does.

    All that `summarize`, `reach` and `slice_end` do a tuple at a time.  Null keys have hash 0, which lands in
    cell 0 of every row: they are counted there and taken out again.
    Returns the first ordinal not done: `end`, or less when after it zones must `turn` (then
    `s.zone[TURNING]` is 1, also when `end` is reached).
    """
    base = s.meta[BASE]
    zone = s.zone
    root = s.gran[0, OFFSET]
    node = s.node[root]
    counters = s.counters[root]
    codes = s.code
    hashes = s.hash
    times = s.ts
    detector_by = U8(64 - s.spec[DETECTOR_BITS])
    cells = np.empty(_BLOCK, np.uint32)
    zone[TURNING] = 0
    done = begin
    while done < end and zone[TURNING] == 0:
        limit = min(end, done + _RUN)
        at = done
        nulls = 0
        while at < limit and zone[TURNING] == 0:
            first = at - base
            at = min(limit, (at | (SLICE - 1)) + 1)
            last = at - base
            null = 0
            for i in range(first, last):
                null += codes[i] < 0
            keyed = last - first - null
            if keyed > 0:
                a = first
                while codes[a] < 0:
                    a += 1
                z = last - 1
                while codes[z] < 0:
                    z -= 1
                if node[COUNT] == 0:
                    node[FIRST] = times[a]
                    node[START] = base + a
                if zone[ZONE_COUNT] == 0:
                    zone[ZONE_FIRST] = times[a]
                    zone[ZONE_START] = base + a
                zone[ZONE_COUNT] += keyed
                zone[SLICE_COUNT] += keyed
                node[COUNT] += keyed
                node[LAST] = times[z]
                node[END] = base + z + 1
                _detect(s.recent, s.detector_multipliers, detector_by, hashes[first:last], null, cells)
            nulls += null
            zone[NOW] = times[last - 1]
            zone[NEXT] = at
            if at & (SLICE - 1) == 0 and _end_slice(s, times[last - 1]):
                zone[TURNING] = 1
        _count(counters, s.multipliers, s.spec, hashes[done - base : at - base], nulls, cells)
        done = at
    return done


@part
def root_estimate(s: Side, g: int, h: Word) -> tuple[float, float]:
    """A key's (estimate, upper bound) over all of granularity g: one read, of the root."""
    rows = s.counters.shape[1]
    root = s.gran[g, OFFSET]
    work = np.empty(rows, np.float64)
    least = _TOP
    for r in range(rows):
        cell = cell_of(s, r, h)
        own = s.counters[root, r, cell]
        work[r] = np.float64(own - s.counters[root, r, cell ^ U8(1)])
        least = min(least, own)
    bound = np.float64(least)
    return max(0.0, min(median(work, rows), bound)), bound


@part
def log2_class(priority: float) -> int:
    """floor(log2 priority) + 64, within 1..127; 0 for a priority of nothing.  Exact on every machine."""
    if not priority > 0.0:
        return 0
    _, exponent = math.frexp(priority)
    return max(1, min(127, exponent + 63))
