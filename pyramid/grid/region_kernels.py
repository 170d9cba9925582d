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
from nile.summaries.kernels import U8, allocating_part, part
from nile.summaries.sketch_kernels import median

__all__ = ["density", "density_class", "root_estimate"]

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer: an index that needs no test for being negative
_QUARTERS = (2.0**-0.75, 2.0**-0.5, 2.0**-0.25)
_TOP = np.int64(0x7FFFFFFFFFFFFFFF)


@allocating_part
def _middle_of_rows(counters: Array, multipliers: Array, spec: Array, h: Word, rows: int) -> tuple[float, float]:
    """`root_estimate` by several rows: the median of their estimates, the least of their bounds."""
    work = np.empty(rows, np.float64)
    least = _TOP
    for r in range(rows):
        cell = cell_in(multipliers, spec, r, h)
        own = counters[r, cell]
        work[r] = np.float64(own - counters[r, cell ^ U8(1)])
        least = min(least, own)
    bound = np.float64(least)
    return max(0.0, min(median(work, rows), bound)), bound


@part
def root_estimate(s: Side, g: int, h: Word, rows: int) -> tuple[float, float]:
    """A key's (estimate, upper bound) over all of granularity g by the first `rows` rows: one read, of the root.

    One row is enough to rank regions, and its bound is as certain as that of all.
    """
    root = s.gran[g, ga.OFFSET]
    if rows == 1:
        cell = cell_of(s, 0, h)
        own = s.counters[root, 0, cell]
        value = np.float64(own - s.counters[root, 0, cell ^ U8(1)])
        return max(0.0, min(value, np.float64(own))), np.float64(own)
    return _middle_of_rows(s.counters[root], s.multipliers, s.spec, h, rows)


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
