"""Moments: what a cell knows about a column of numbers without its tuples.

Per cell: how many numbers, their sum, the sum of their squared deviations from the cell's own mean, the
least and the largest.  Deviations are kept, not squares: sums of squares of numbers far from zero cancel
(variance of a million prices near 1e9 would be noise).  Merging is Chan, Golub, LeVeque, COMPSTAT 1982,
equation 2.1b, over any number of parts at once.  Counts and sums could be taken back, extremes could not, so
moments only merge; what left a window is left out, not subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Moments", "exact_sum", "whole_sum"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of `n` cells.  Nulls are no numbers; NaN is one, larger than infinity.

    count, nans: int64 [n], numbers and how many of them are NaN.  total: float64 [n] (NaN or infinite where
    a number is).  squares: float64 [n], sum of (x - mean)^2.  low, high: float64 [n] over the numbers but
    NaN, +inf and -inf where there are none.  whole: [n], exact sums of integers (int64, or Python integers
    where int64 could overflow); None for floats.
    """

    count: Array
    nans: Array
    total: Array
    squares: Array
    low: Array
    high: Array
    whole: Array | None = None

    @classmethod
    def of(cls, values: Array, valid: Array, starts: Array, whole: Array | None = None) -> Moments:
        """Of tuples already in the order of their cells.

        values: float64 [m]; valid: bool [m], False for a null; starts: int64 [n], where each cell begins (no
        cell is empty); whole: int64 [m] when the numbers are integers.  O(m).
        """
        if starts.shape[0] == 0:
            return cls.empty(0, whole=whole is not None)
        numbers = valid & ~np.isnan(values)
        filled = np.where(valid, values, 0.0)
        count = np.add.reduceat(valid.astype(np.int64), starts)
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.add.reduceat(filled, starts)
            sizes = np.diff(np.append(starts, values.shape[0]))
            mean = np.repeat(total / np.maximum(count, 1), sizes)
            squares = np.add.reduceat(np.where(valid, (filled - mean) ** 2, 0.0), starts)
        return cls(
            count=count,
            nans=np.add.reduceat((valid & ~numbers).astype(np.int64), starts),
            total=total,
            squares=squares,
            low=np.minimum.reduceat(np.where(numbers, values, math.inf), starts),
            high=np.maximum.reduceat(np.where(numbers, values, -math.inf), starts),
            whole=None if whole is None else _whole_sums(np.where(valid, whole, 0), starts),
        )

    @classmethod
    def empty(cls, n: int, *, whole: bool = False) -> Moments:
        """Of `n` cells without a tuple."""
        return cls(
            count=np.zeros(n, np.int64),
            nans=np.zeros(n, np.int64),
            total=np.zeros(n),
            squares=np.zeros(n),
            low=np.full(n, math.inf),
            high=np.full(n, -math.inf),
            whole=np.zeros(n, np.int64) if whole else None,
        )

    @classmethod
    def each(cls, values: Array, valid: Array, whole: Array | None = None) -> Moments:
        """Of tuples, each a cell of its own.  Fields as of `of`; merging these rounds a sum only once."""
        count = valid.astype(np.int64)
        nan = np.isnan(values)
        return cls(
            count=count,
            nans=(valid & nan).astype(np.int64),
            total=np.where(valid, values, 0.0),
            squares=np.zeros(values.shape[0]),
            low=np.where(valid & ~nan, values, math.inf),
            high=np.where(valid & ~nan, values, -math.inf),
            whole=None if whole is None else np.where(valid, whole, 0),
        )

    def with_more(self, other: Moments) -> Moments:
        """The cells of both, these first."""
        whole = None
        if self.whole is not None and other.whole is not None:
            whole = np.concatenate([self.whole, other.whole])
        return Moments(
            count=np.concatenate([self.count, other.count]),
            nans=np.concatenate([self.nans, other.nans]),
            total=np.concatenate([self.total, other.total]),
            squares=np.concatenate([self.squares, other.squares]),
            low=np.concatenate([self.low, other.low]),
            high=np.concatenate([self.high, other.high]),
            whole=whole,
        )

    def merged(self, cells: Array, into: Array, groups: int) -> Moments:
        """The moments of unions of cells.  cells: int64 [c]; into: int64 [c], the union each goes to.

        Sums are rounded once (`exact_sum`), however many cells there are.  O(c log c).
        """
        if cells.shape[0] == 0:
            return Moments.empty(groups, whole=self.whole is not None)
        order = np.argsort(into, kind="stable")
        cells, into = cells[order], into[order]
        present, starts = np.unique(into, return_index=True)
        result = Moments.empty(groups, whole=self.whole is not None)
        result.count[present] = np.add.reduceat(self.count[cells], starts)
        result.nans[present] = np.add.reduceat(self.nans[cells], starts)
        result.low[present] = np.minimum.reduceat(self.low[cells], starts)
        result.high[present] = np.maximum.reduceat(self.high[cells], starts)
        parts = np.split(self.total[cells], starts[1:])
        result.total[present] = [exact_sum(part) for part in parts]
        mean = (result.total / np.maximum(result.count, 1))[into]
        count = self.count[cells]
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.where(count > 0, self.total[cells] / np.maximum(count, 1) - mean, 0.0)
            result.squares[present] = np.add.reduceat(self.squares[cells] + count * off**2, starts)
        if self.whole is None:
            return result
        whole = np.zeros(groups, object)
        whole[present] = [whole_sum(part) for part in np.split(self.whole[cells], starts[1:])]
        return Moments(result.count, result.nans, result.total, result.squares, result.low, result.high, whole)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays held."""
        arrays = (self.count, self.nans, self.total, self.squares, self.low, self.high, self.whole)
        return sum(int(array.nbytes) for array in arrays if array is not None)


def exact_sum(values: Array) -> float:
    """The sum of float64 [n], rounded once (math.fsum); infinite or NaN as IEEE would have it.  0.0 when empty."""
    finite = np.isfinite(values)
    if not finite.all():
        odd = values[~finite]
        with np.errstate(invalid="ignore"):
            return float(odd.sum())
    try:
        return math.fsum(values)
    except OverflowError:
        # A partial sum left the range; a quarter of a quarter cannot, and the factor is a power of two.
        scaled = math.fsum(np.ldexp(values, -64))
        try:
            return math.ldexp(scaled, 64)
        except OverflowError:
            return math.copysign(math.inf, scaled)


def whole_sum(values: Array) -> int:
    """The sum of integers [n] (int64 or Python integers), exact."""
    if values.dtype == object:
        return sum(values.tolist())
    low = int((values & 0xFFFFFFFF).sum())
    return (int((values >> 32).sum()) << 32) + low


def _whole_sums(values: Array, starts: Array) -> Array:
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if largest * values.shape[0] < 1 << 63:
        summed: Array = np.add.reduceat(values, starts)
        return summed
    high = np.add.reduceat(values >> 32, starts).astype(object)
    low = np.add.reduceat(values & 0xFFFFFFFF, starts).astype(object)
    both: Array = high * (1 << 32) + low
    return both
