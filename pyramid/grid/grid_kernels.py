"""Kernels of the value x time grid: update, change detection, and what a root says of a key.

Design: a tuple goes into G1's root and into the detector's recent sketch.  At a slice end the detector looks,
and the caller learns whether zones must move; `turn` moves them, outside any kernel.  A batch takes each
piece for itself: `advance` feeds the detector slice by slice, as far as zones stay put; `count` then puts
that whole run into the root.  In parts the same comes apart: `sketch_slices` says of each slice what the detector
needs of it, wherever its tuples are, `advance_slices` feeds these to the detector in order, and `add_keys` counts
tuples in any order, once it is known which zone has them.
Cost: O(rows) a tuple, or a distinct key of a run; O(detector) a slice.
Source: promising tuples, sections 3.1 to 3.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.change_kernels import confidence_of, look
from nile.pyramid.grid.granularity import turn
from nile.pyramid.grid.spec import SLICE
from nile.summaries.kernels import U8, allocating_kernel, inlined, kernel, part

__all__ = [
    "TOLD",
    "add_keys",
    "advance",
    "advance_slices",
    "cell_in",
    "cell_of",
    "count",
    "put_in_zone",
    "reach",
    "show",
    "sketch_slices",
    "slice_end",
    "slice_end_unseen",
    "summarize",
    "turn",
]

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer: an index that needs no test for being negative
_MOST = 1 << 30  # tuples of a zone that the detector's int32 counters are exact for


@inlined
def elapsed(later: int, earlier: int) -> Word:
    """later - earlier: right for any two int64 times of which the first is not before the second."""
    return U8(later) - U8(earlier)


@inlined
def cell_in(multipliers: Array, spec: Array, row: int, h: Word) -> Word:
    """`cell_of` with the arrays that it needs."""
    bucket = (h >> U8(1)) >> U8(spec[ga.BUCKET_SHIFT])
    inner = (multipliers[row] * h) >> U8(spec[ga.CELL_SHIFT])
    return (bucket << U8(spec[ga.CELL_BITS])) | inner


@inlined
def cell_of(s: Side, row: int, h: Word) -> Word:
    """Where hash h lands in a row: its value bucket, then column and sign inside the bucket's cell."""
    return cell_in(s.multipliers, s.spec, row, h)


@inlined
def _open(s: Side, ordinal: int, ts: int) -> None:
    """If this is the first tuple of the open zone, or of G1, begin it."""
    if s.zone[ga.ZONE_COUNT] == 0:
        s.zone[ga.ZONE_FIRST] = ts
        s.zone[ga.ZONE_START] = ordinal
        root = s.gran[0, ga.OFFSET]
        if s.node[root, ga.COUNT] == 0:
            s.node[root, ga.FIRST] = ts
            s.node[root, ga.START] = ordinal


@inlined
def put_in_zone(s: Side, ordinal: int, ts: int, h: Word) -> None:
    """One tuple into the open zone: `rows` updates."""
    _open(s, ordinal, ts)
    root = s.gran[0, ga.OFFSET]
    s.zone[ga.ZONE_COUNT] += 1
    s.node[root, ga.COUNT] += 1
    s.node[root, ga.LAST] = ts
    s.node[root, ga.END] = ordinal + 1
    for r in range(s.counters.shape[1]):
        s.counters[root, r, cell_of(s, r, h)] += 1


@inlined
def show(s: Side, h: Word) -> None:
    """One tuple to the detector, as many updates as that has rows."""
    if s.zone[ga.SLICE_COUNT] < _MOST:
        s.zone[ga.SLICE_COUNT] += 1
        for r in range(s.recent.shape[0]):
            s.recent[r, (s.detector_multipliers[r] * h) >> U8(64 - s.spec[ga.DETECTOR_BITS])] += 1


@inlined
def summarize(s: Side, ordinal: int, ts: int, h: Word) -> None:
    """One tuple into the open zone and the detector (the paper's Summarize)."""
    put_in_zone(s, ordinal, ts, h)
    show(s, h)


@inlined
def reach(s: Side, ordinal: int, ts: int) -> bool:
    """The stream has reached `ordinal` (summarised or not); True when that ends a slice."""
    s.zone[ga.NOW] = ts
    s.zone[ga.NEXT] = ordinal + 1
    return (ordinal + 1) & (SLICE - 1) == 0


@inlined
def _has_lasted(zone: Array, spec: Array, ts: int) -> bool:
    """Whether the open zone is as long as one may be."""
    return (  # type: ignore[no-any-return]
        spec[ga.DETECTOR_BITS] != 0
        and zone[ga.ZONE_COUNT] > 0
        and elapsed(ts, zone[ga.ZONE_FIRST]) >= U8(spec[ga.MAX_LENGTH])
    )


@inlined
def _end_slice(
    zone: Array, spec: Array, threshold: Array, detector: Array, recent: Array, moments: Array, ts: int
) -> bool:
    """`slice_end` with the arrays that it needs: a whole Side would count references to all of them."""
    how = spec[ga.ADAPTIVE]
    if how != 0 and zone[ga.SLICE_COUNT] > 0:
        look(detector, recent, moments)
        columns = detector.shape[1]
        zone[ga.ADDS] += 2 * detector.shape[0] * columns
        n = zone[ga.REFERENCE]
        m = zone[ga.SLICE_COUNT]
        if n > 0 and confidence_of(moments, columns, n, m, how) < threshold[0]:
            zone[ga.CHANGES] += 1
            zone[ga.ENDING] = 1
        zone[ga.REFERENCE] = n + m
        if n + m >= _MOST:
            zone[ga.ENDING] = 1
    zone[ga.SLICE_COUNT] = 0
    if _has_lasted(zone, spec, ts):
        zone[ga.ENDING] = 1
    return bool(zone[ga.ENDING] != 0)


@part
def slice_end(s: Side, ts: int) -> bool:
    """Compare the slice that just ended with the zone before it; True when the zone ends.

    The caller then leaves its kernel and calls `turn`, which is none.
    """
    return _end_slice(s.zone, s.spec, s.threshold, s.detector, s.recent, s.moments, ts)


@part
def slice_end_unseen(s: Side, ts: int) -> bool:
    """A slice has ended that the detector does not look at, as it holds too little; True when the zone ends by time."""
    if _has_lasted(s.zone, s.spec, ts):
        s.zone[ga.ENDING] = 1
    return bool(s.zone[ga.ENDING] != 0)


@inlined
def _enter(
    zone: Array, node: Array, keyed: int, first: int, first_ts: int, last: int, last_ts: int
) -> None:  # fmt: skip
    """`keyed` tuples of a slice (at least one), the ordinals of which are first to last, into the open zone."""
    if node[ga.COUNT] == 0:
        node[ga.FIRST] = first_ts
        node[ga.START] = first
    if zone[ga.ZONE_COUNT] == 0:
        zone[ga.ZONE_FIRST] = first_ts
        zone[ga.ZONE_START] = first
    zone[ga.ZONE_COUNT] += keyed
    zone[ga.SLICE_COUNT] += keyed
    node[ga.COUNT] += keyed
    node[ga.LAST] = last_ts
    node[ga.END] = last + 1


@inlined
def _sketch(
    recent: Array, multipliers: Array, by: Word, hashes: Array, first: int, last: int, nulls: int, cells: Array
) -> None:
    """hashes[first:last], at most a slice, into the recent sketch; the `nulls` among them are taken out again."""
    for r in range(recent.shape[0]):
        multiplier = multipliers[r]
        for i in range(U8(last - first)):  # first all cells, several at once, then all counters
            cells[i] = (multiplier * hashes[U8(first) + i]) >> by
        for i in range(U8(last - first)):
            recent[r, cells[i]] += 1
        recent[r, 0] -= nulls


@inlined
def _ends(codes: Array, first: int, last: int) -> tuple[int, int, int]:
    """How many of codes[first:last] are null, and the places of the first and the last that is not."""
    nulls = 0
    for i in range(U8(first), U8(last)):
        nulls += codes[i] < 0
    a = first
    z = last - 1
    if nulls < last - first:
        while codes[a] < 0:
            a += 1
        while codes[z] < 0:
            z -= 1
    return nulls, a, z


@allocating_kernel
def advance(s: Side, begin: int, end: int) -> int:
    """Bring zones and detector on to tuples begin..end-1 (ordinals), which are in the flat arrays.

    All that `summarize`, `reach` and `slice_end` do a tuple at a time, but for the counters of the root:
    those are for `count`.  Null keys have hash 0, which lands in cell 0 of every row: they are counted there
    and taken out again.  Returns the first ordinal not done: `end`, or less when after it zones must `turn`
    (then `s.zone[TURNING]` is 1, also when `end` is reached).
    """
    base = s.meta[ga.BASE]
    zone = s.zone
    node = s.node[s.gran[0, ga.OFFSET]]
    codes = s.code
    times = s.ts
    hashes = s.hash
    spec = s.spec
    threshold, detector, recent, moments = s.threshold, s.detector, s.recent, s.moments
    multipliers = s.detector_multipliers
    by = U8(64 - spec[ga.DETECTOR_BITS])
    cells = np.empty(SLICE, np.uint32)
    zone[ga.TURNING] = 0
    at = begin
    while at < end and zone[ga.TURNING] == 0:
        first = at - base
        at = min(end, (at | (SLICE - 1)) + 1)
        last = at - base
        nulls, a, z = _ends(codes, first, last)
        if nulls < last - first:
            _enter(zone, node, last - first - nulls, base + a, times[a], base + z, times[z])
            _sketch(recent, multipliers, by, hashes, first, last, nulls, cells)
        zone[ga.NOW] = times[last - 1]
        zone[ga.NEXT] = at
        if at & (SLICE - 1) == 0 and _end_slice(zone, spec, threshold, detector, recent, moments, times[last - 1]):
            zone[ga.TURNING] = 1
    return at


TOLD = 7
KEYED, A, A_TS, Z, Z_TS, UNTIL, UP_TO = 0, 1, 2, 3, 4, 5, 6  # columns of `told`


@allocating_kernel
def sketch_slices(
    ts: Array, codes: Array, hashes: Array, begin: int, bits: int, multipliers: Array, sketches: Array, told: Array,
    rest: Array,
) -> None:  # fmt: skip
    """What the detector needs of each slice, or of the piece of it, among tuples begin..begin + n - 1 (ordinals).

    ts: int64 [n]; codes: int32 [n]; hashes: uint64 [n]; bits, multipliers: those of the detector; sketches: int16
    [slices, rows, columns], the signed sketch of each; told: int64 [slices, 7], tuples with a key, ordinal and ts of
    the first and of the last of them, ts of the last tuple, the ordinal after it; rest: int32 [rows, 2 * columns], of
    the last slice, if it has not ended, the tuples of sign + and those of sign -.
    """
    by = U8(64 - bits)
    cells = np.empty(SLICE, np.uint32)
    columns = sketches.shape[2]
    n = ts.shape[0]
    first = 0
    for i in range(sketches.shape[0]):
        last = min(n, ((begin + first) | (SLICE - 1)) + 1 - begin)
        nulls, a, z = _ends(codes, first, last)
        rest[:] = 0
        told[i, KEYED] = last - first - nulls
        if nulls < last - first:
            told[i, A], told[i, A_TS] = begin + a, ts[a]
            told[i, Z], told[i, Z_TS] = begin + z, ts[z]
            _sketch(rest, multipliers, by, hashes, first, last, nulls, cells)
        told[i, UNTIL] = ts[last - 1]
        told[i, UP_TO] = begin + last
        for r in range(sketches.shape[1]):
            for c in range(columns):
                sketches[i, r, c] = rest[r, c] - rest[r, columns + c]
        first = last
    if (begin + n) & (SLICE - 1) == 0:
        rest[:] = 0


@kernel
def advance_slices(s: Side, sketches: Array, told: Array, rest: Array, begin: int) -> int:
    """`advance` by what `sketch_slices` says of slices begin..; the flat arrays are not needed.

    Returns the first slice not done; after it zones must `turn` when `s.zone[TURNING]` is 1.
    """
    zone = s.zone
    node = s.node[s.gran[0, ga.OFFSET]]
    recent = s.recent
    zone[ga.TURNING] = 0
    i = begin
    while i < told.shape[0] and zone[ga.TURNING] == 0:
        ended = told[i, UP_TO] & (SLICE - 1) == 0
        if told[i, KEYED] > 0:
            _enter(zone, node, told[i, KEYED], told[i, A], told[i, A_TS], told[i, Z], told[i, Z_TS])
            for r in range(recent.shape[0]):
                for c in range(sketches.shape[2] if ended else recent.shape[1]):
                    recent[r, c] += sketches[i, r, c] if ended else rest[r, c]
        zone[ga.NOW] = told[i, UNTIL]
        zone[ga.NEXT] = told[i, UP_TO]
        if ended and _end_slice(zone, s.spec, s.threshold, s.detector, recent, s.moments, told[i, UNTIL]):
            zone[ga.TURNING] = 1
        i += 1
    return i


@inlined
def _cells_of_row(spec: Array, multiplier: Word, hashes: Array, n: int, cells: Array) -> None:
    """`cell_of` for n hashes at once."""
    bits = U8(spec[ga.CELL_BITS])
    bucket_by = U8(1) + U8(spec[ga.BUCKET_SHIFT]) - bits
    bucket_mask = ((U8(1) << (U8(63) - U8(spec[ga.BUCKET_SHIFT]))) - U8(1)) << bits
    by = U8(spec[ga.CELL_SHIFT])
    for i in range(n):
        h = hashes[i]
        cells[i] = ((h >> bucket_by) & bucket_mask) | ((multiplier * h) >> by)


@allocating_kernel
def add_keys(counters: Array, spec: Array, multipliers: Array, hashes: Array, times: Array) -> None:
    """Count keys (uint64 [n]) times[i] (int64 [n]) times each.  counters: int64 [rows, cells]; spec: of the Side."""
    cells = np.empty(hashes.shape[0], np.uint32)
    for r in range(counters.shape[0]):
        _cells_of_row(spec, multipliers[r], hashes, hashes.shape[0], cells)
        for i in range(hashes.shape[0]):
            counters[r, cells[i]] += times[i]


@allocating_kernel
def count(s: Side, begin: int, end: int, key_hashes: Array, keys: Array, times: Array, distinct: int) -> None:
    """Count tuples begin..end-1 (ordinals), at most 65,536, in G1's root.

    keys: int32, the `distinct` keys of the run; times: int64, how often each comes; key_hashes: uint64, the hash
    of every key.  When a key comes twice or more on average each is counted once, that often; else each tuple is,
    row after row, so that a row's counters stay close.  The cells are those of `cell_of`.
    """
    counters = s.counters[s.gran[0, ga.OFFSET]]
    hashes = s.hash[begin - s.meta[ga.BASE] : end - s.meta[ga.BASE]]
    n = end - begin
    by_key = 2 * distinct <= n
    if by_key:
        own = np.empty(distinct, np.uint64)
        for k in range(distinct):
            own[k] = key_hashes[U8(keys[k])]
        hashes = own
        n = distinct
    cells = np.empty(n, np.uint32)
    for r in range(counters.shape[0]):
        row = counters[r]
        _cells_of_row(s.spec, s.multipliers[r], hashes, n, cells)
        if by_key:
            for i in range(n):
                row[cells[i]] += times[i]
        else:
            for i in range(n):
                row[cells[i]] += 1
    if not by_key:
        nulls = 0
        for code in s.code[begin - s.meta[ga.BASE] : end - s.meta[ga.BASE]]:
            nulls += code < 0
        for r in range(counters.shape[0]):
            counters[r, 0] -= nulls
