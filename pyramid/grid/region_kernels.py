"""What a region promises: a key's estimate from the grid, matches for a stretch of time, and the class of a priority.

Source: promising tuples, sections 3.3 and 4.2; DESIGN section 2, Priority.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import cell_in, cell_of
from nile.summaries.kernels import U8, allocating_part, inlined, part
from nile.summaries.sketch_kernels import median

__all__ = ["density", "density_class", "read_between", "root_estimate"]

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer: an index that needs no test for being negative
_QUARTERS = (2.0**-0.75, 2.0**-0.5, 2.0**-0.25)
OPEN = -1
_TOP = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined
def _counter(counters: Array, root: int, slot: int, row: int, cell: Word) -> int:
    """A counter of a slot; slot OPEN is the open zone: the finest granularity's root without its children."""
    if slot != OPEN:
        return counters[slot, row, cell]  # type: ignore[no-any-return]
    held = counters[root, row, cell]
    return held - counters[root + 1, row, cell] - counters[root + 2, row, cell]  # type: ignore[no-any-return]


@allocating_part
def _middle_of_rows(
    counters: Array, root: int, slot: int, multipliers: Array, spec: Array, h: Word, rows: int
) -> tuple[float, float]:
    """`_estimate` by several rows: the median of their estimates, the least of their bounds."""
    work = np.empty(rows, np.float64)
    least = _TOP
    for r in range(rows):
        cell = cell_in(multipliers, spec, r, h)
        own = _counter(counters, root, slot, r, cell)
        work[r] = np.float64(own - _counter(counters, root, slot, r, cell ^ U8(1)))
        least = min(least, np.int64(own))
    bound = np.float64(least)
    return max(0.0, min(median(work, rows), bound)), bound


@part
def _estimate(s: Side, slot: int, h: Word, rows: int) -> tuple[float, float]:
    """A key's (estimate, upper bound) in a slot by the first `rows` rows.

    One row is enough to rank regions, and its bound is as certain as that of all.
    """
    root = s.gran[0, ga.OFFSET]
    if rows == 1:
        cell = cell_of(s, 0, h)
        own = _counter(s.counters, root, slot, 0, cell)
        value = np.float64(own - _counter(s.counters, root, slot, 0, cell ^ U8(1)))
        return max(0.0, min(value, np.float64(own))), np.float64(own)
    return _middle_of_rows(s.counters, root, slot, s.multipliers, s.spec, h, rows)


@part
def root_estimate(s: Side, g: int, h: Word, rows: int) -> tuple[float, float]:
    """A key's (estimate, upper bound) over all of granularity g by the first `rows` rows: one read, of the root."""
    return _estimate(s, s.gran[g, ga.OFFSET], h, rows)


@inlined
def _share(first: int, last: int, since: int, until: int) -> float:
    """The share of the time [first, last] that lies in [since, until]."""
    return np.float64(min(last, until) - max(first, since) + 1) / np.float64(last - first + 1)


@part
def read_between(s: Side, h: Word, since: int, until: int, rows: int, enough: float) -> tuple[float, float, float, int]:
    """(estimate, upper bound, tuples of any key, sketches read) of a key in [since, until], by a grid that is lent.

    Pyramids are descended from their roots: a node with `enough` of its time inside is read as a whole, one outside not
    at all, and what an end cuts, with `enough` = 1.0 zones alone, counts in proportion to time.  At most 4 log2(zones)
    + 2 reads a granularity; the open zone, which has no sketch of its own, takes three.
    """
    value = 0.0
    bound = 0.0
    tuples = 0.0
    reads = 0
    for g in range(s.gran.shape[0]):
        root = s.gran[g, ga.OFFSET]
        leaves = s.gran[g, ga.LEAVES]
        node = 1
        while True:
            at = s.node[root + node - 1]
            share = 0.0
            if at[ga.COUNT] > 0 and at[ga.LAST] >= since and at[ga.FIRST] <= until:
                share = _share(at[ga.FIRST], at[ga.LAST], since, until)
                if share < enough and node < leaves:
                    node *= 2
                    continue
            if share > 0.0:
                told, most = _estimate(s, root + node - 1, h, rows)
                value += share * told
                bound += most
                tuples += share * np.float64(at[ga.COUNT])
                reads += 1
            whole = node == 1
            while node > 1 and node & 1:
                node >>= 1
            if node == 1:
                break
            node += 1
        # The open zone is in the root of the finest granularity and in no node below it.
        first, last = s.zone[ga.ZONE_FIRST], s.node[root, ga.LAST]
        if g == 0 and not whole and s.zone[ga.ZONE_COUNT] > 0 and last >= since and first <= until:
            share = _share(first, last, since, until)
            told, most = _estimate(s, OPEN, h, rows)
            value += share * told
            bound += most
            tuples += share * np.float64(s.zone[ga.ZONE_COUNT])
            reads += 3
    return value, bound, tuples, reads


@part
def density(matches: float, length: int, s: Side) -> float:
    """Matches per span of the finest granularity, of a region `length` ns long.

    Lengths below a thousandth of that count as that: simultaneous tuples are no infinite density.
    """
    span = np.float64(s.gran[0, ga.SPAN])
    return np.float64(matches) * span / max(1e-3 * span, np.float64(length))


@part
def density_class(priority: float) -> int:
    """floor(4 log2 priority) + 36, within 1..127; 0 for a priority of nothing.  Exact on every machine.

    A quarter of an octave is finer than estimates are, and as fine as a fade factor of 0.8 needs.
    """
    if not priority > 0.0:
        return 0
    mantissa, exponent = math.frexp(priority)
    quarter = int(mantissa >= _QUARTERS[0]) + int(mantissa >= _QUARTERS[1]) + int(mantissa >= _QUARTERS[2])
    return max(1, min(127, 4 * (exponent + 8) + quarter))
