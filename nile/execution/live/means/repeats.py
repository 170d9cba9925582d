"""What totals over values that are drawn by their hashes vary by, however often each of them was told.

Who is drawn is drawn always: a value told m times at weight w stands for m * (w - 1) others at once, so the variance of
the total is the sum over values of m**2 * w * (w - 1).  Who counts each telling by itself has m for m**2.  Nobody holds
m of each value, but sums over them with random signs have that sum of squares on average, each value in one cell of
many: off by a standard deviation of sqrt(2 / cells).  Such sums add, and the part of a late joiner is a difference.
Source: Alon, Matias and Szegedy, STOC 1996; Charikar, Chen and Farach-Colton, ICALP 2002.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.aggregate.input import units

__all__ = ["REPEATS", "repeated", "varied"]

Array = np.ndarray[Any, Any]
REPEATS = 128
"""Cells: the standard deviation of a total is known to 6 %."""
_SEED = 29


def repeated(hashes: Array, beyond: Array) -> Array:
    """What tellings of values (uint64 [n]), each of which stands for so many beyond itself (float64 [n]), add to each
    cell: float64 [REPEATS]."""
    places = (2 * REPEATS * units(hashes, _SEED)).astype(np.int64)
    worth = np.sqrt(beyond * (beyond + 1.0)) * np.where(places & 1, 1.0, -1.0)
    return np.bincount(places >> 1, worth, REPEATS)


def varied(cells: Array) -> float:
    """The variance of the total of what was added to cells (float64 [REPEATS])."""
    return float(cells @ cells)
