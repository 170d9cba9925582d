"""Sums by group at the price of a pass: of doubles, each rounded once, as math.fsum gives them, and of whole numbers.

Design.  Of every addition what it rounds off is kept, exactly, and added up beside the total; what is lost of that
second sum is known too, in size.  Where it leaves open how the sum is rounded, which is next to never so, and of
numbers near the ends of what doubles hold, nothing is told, and the numbers are for `math.fsum`.
Source: Ogita, Rump and Oishi, Accurate sum and dot product, SIAM Journal on Scientific Computing 26 (2005).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.aggregate import sum_kernels as kernels
else:
    kernels = lazy("nile.operators.aggregate.sum_kernels")

__all__ = ["FEW", "rounded_sum", "rounded_sums", "whole_sums"]

Array = np.ndarray[Any, Any]
FEW = 1 << 14
"""Numbers that are not worth a compiled kernel."""
_MORE = 1.0 + 2.0**-20
"""Times a bound: it is a sum of as many rounded sizes as there are numbers, fewer than 2 ** 32."""


def rounded_sum(pieces: Iterable[Array]) -> float | None:
    """The sum of all pieces (float64), rounded once; None where that is not known, as of infinities.  1 ns a number."""
    lanes = np.zeros((kernels.LANES, 3))
    for values in pieces:
        kernels.add_all(np.ascontiguousarray(values), lanes)
    one = np.array([[0.0, 0.0, lanes[:, 2].sum()]])
    kernels.add_by_group(lanes[:, :2].reshape(-1), np.zeros(2 * kernels.LANES, np.int64), one)
    told, known = _rounded(one)
    return float(told[0]) if known[0] else None


def rounded_sums(values: Array, group: Array, groups: int) -> tuple[Array, Array]:
    """(the sum of each group, rounded once; whether that is known): float64, bool [groups].

    values: float64 [n]; group: int64 [n].  2 ns a number, 6 where groups are far more than the near cache holds.
    """
    sums = np.zeros((groups, 3))
    kernels.add_by_group(np.ascontiguousarray(values), group, sums)
    return _rounded(sums)


def whole_sums(values: Array, group: Array, groups: int) -> Array | None:
    """The sum of each group, int64 [groups]; None where it may be beyond 64 bits.  2 ns a number.

    values, group: int64 [n].
    """
    totals = np.zeros(groups, np.int64)
    most = kernels.add_whole(np.ascontiguousarray(values), group, totals)
    return totals if most >= 0 and most * values.shape[0] < 1 << 62 else None


def _two(first: Array, second: Array) -> tuple[Array, Array]:
    """(the sum, what it rounds off)."""
    total = first + second
    own = total - first
    return total, (first - (total - own)) + (second - own)


def _rounded(sums: Array) -> tuple[Array, Array]:
    """(totals with what was rounded off, whether those are the nearest to the true ones)."""
    with np.errstate(invalid="ignore"):
        told, rest = _two(sums[:, 0], sums[:, 1])
        error = _MORE * sums[:, 2]
        gap = np.minimum(np.nextafter(told, np.inf) - told, told - np.nextafter(told, -np.inf))
        known = (error == 0.0) | (2.0 * (_MORE * np.abs(rest) + error) < gap)
    return told, known & np.isfinite(told)
