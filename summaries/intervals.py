"""Intervals from random samples, and when they may be claimed.

A total over a population is estimated from a stratified simple random sample without replacement; a total
over part of it (a selection, a group) counts the other tuples as zeros.  Sources: Cochran, Sampling
Techniques, 1977, sections 5.3, 5A.14 and 6.3 (stratified means, domains, ratios); the quantile of Student's
distribution: Hill, CACM 13 (1970), algorithm 396.

Design.  An interval of that kind is only as good as the sample is well-behaved.  The sample's own kurtosis
cannot tell: a sample that missed the few huge orders looks tame, and is the one that is wrong (of samples of
300 real prices, 40 % pass kurtosis * 10 <= n and none of their intervals covers the mean: measured).  So an
interval is certified only when, besides, a bound is known on what was not drawn, and a single tuple at that
bound would not change the picture: largest^2 * 10 <= n * s^2, the same rule for the population's largest
deviation as for the sample's fourth moment.  Unseen tuples at the bound that are rarer than one in n then add
at most a tenth to the variance.  Bounds come from cells, from marks that divert large values, from statistics of
the source, or from the quantity itself (a count adds 0 or 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.summaries import sample_kernels as kernels
else:
    kernels = lazy("nile.summaries.sample_kernels")

__all__ = ["TAIL", "StratifiedSample", "Totals", "cell_spreads", "cell_totals", "nothing_seen", "student_quantile"]

Array = np.ndarray[Any, Any]

_FEW = 1 << 12
"""Tuples of a sample that are not worth a compiled kernel, which gives the same numbers."""
TAIL = 0.1
"""An interval is certified when `Totals.tail` is at most this: kurtosis * 10 <= n, and the bound likewise."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Estimated totals, one per group.  All float64 [groups] but `freedom`.

    value: unbiased; variance: its estimated variance, infinite where a stratum is too small to tell; tail: what
    the most extreme tuple could add to the squared deviations, and kurtosis over n, whichever is larger (NaN
    where all are alike); freedom: degrees of freedom.
    """

    value: Array
    variance: Array
    tail: Array
    freedom: int

    def reach(self, confidence: float) -> Array:
        """How far the interval reaches to either side: float64 [groups]."""
        if self.freedom < 1:
            return np.where(self.variance > 0.0, math.inf, 0.0)
        return student_quantile(confidence, self.freedom) * np.sqrt(self.variance)

    @property
    def certified(self) -> Array:
        """Whether that interval may be claimed: bool [groups]."""
        return np.isfinite(self.variance) & (self.tail <= TAIL)


@dataclass(frozen=True, slots=True)
class StratifiedSample:
    """Which tuples of a stratified sample belong to which group.

    size, drawn: int64 [strata], tuples in the stratum and tuples drawn from it at random without
    replacement.  stratum, group: int64 [m], of the m drawn tuples that satisfy the query.  groups: how many.
    """

    size: Array
    drawn: Array
    stratum: Array
    group: Array
    groups: int

    @property
    def is_complete(self) -> bool:
        """Whether every tuple was drawn, so that nothing is left to chance."""
        return bool((self.drawn == self.size).all())

    @property
    def unseen(self) -> int:
        """Tuples that were not drawn."""
        return int((self.size - self.drawn).sum())

    def seen(self) -> Array:
        """Satisfying tuples drawn, by group: int64 [groups]."""
        return np.bincount(self.group, minlength=self.groups)

    def value(self, amount: Array) -> Array:
        """The estimated totals of `totals`, without their errors: float64 [groups]."""
        shape = (self.size.shape[0], self.groups)
        _, total = cell_totals(amount, self._cells(), shape[0] * shape[1])
        mean = total.reshape(shape) / np.maximum(self.drawn, 1)[:, None].astype(np.float64)
        return np.asarray((self.size[:, None].astype(np.float64) * mean).sum(axis=0))

    def _cells(self) -> Array:
        """The stratum and group of each: int64 [m]."""
        return self.stratum if self.groups == 1 else self.stratum * self.groups + self.group

    def totals(self, amount: Array, largest: Array | float, certain: Array | None = None) -> Totals:
        """The total of `amount` over all satisfying tuples, by group.

        amount: float64 [m], of each satisfying tuple drawn.  largest: float64 [groups], the most that |amount| of
        a tuple that was not drawn can be (inf: nothing is known, and nothing is certified).  certain: bool
        [strata], those whose total is known without error from what was drawn (they add no variance).
        O(m + strata * groups).
        """
        shape = (self.size.shape[0], self.groups)
        drawn = np.maximum(self.drawn, 1)[:, None].astype(np.float64)
        at, cells = self._cells(), shape[0] * shape[1]
        seen, total = cell_totals(amount, at, cells)
        mean = total.reshape(shape) / drawn
        absent = self.drawn[:, None] - seen.reshape(shape)
        squares, fourths = (told.reshape(shape) for told in cell_spreads(amount, at, mean.ravel()))
        squares = squares + absent * mean**2
        fourths = fourths + absent * mean**4
        size = self.size[:, None].astype(np.float64)
        left = self.drawn < self.size
        if certain is not None:
            left &= ~certain
        # N^2 (1 - n / N) s^2 / n, and s^2 = squares / (n - 1)
        weight = np.where(left, (1.0 - self.drawn / np.maximum(self.size, 1)) * (size / drawn)[:, 0] ** 2, 0.0)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            inflated = np.where(drawn > 1.0, drawn / (drawn - 1.0), math.inf)
            parts = np.where((weight > 0.0) & (squares > 0.0), weight * inflated * squares, 0.0)
            spread = (weight * squares).sum(axis=0)
            extreme = np.where(weight > 0.0, weight * (np.asarray(largest) + np.abs(mean)) ** 2, 0.0).max(
                axis=0, initial=0.0
            )
            tail = np.maximum((weight**2 * fourths).sum(axis=0) / spread**2, extreme / spread)
        # One tuple of many says nothing about the spread of the others.
        alone = (left & (self.drawn <= 1))[:, None]
        variance = np.where(alone.any(axis=0), math.inf, parts.sum(axis=0))
        return Totals(
            value=(size * mean).sum(axis=0),
            variance=variance,
            tail=tail,
            freedom=int((self.drawn - 1)[left].sum()),
        )


def cell_totals(amount: Array, at: Array, cells: int) -> tuple[Array, Array]:
    """(how many amounts each cell has, their total): int64, float64 [cells].  amount: float64 [n]; at: int64 [n]."""
    if at.shape[0] < _FEW:
        return np.bincount(at, minlength=cells), np.bincount(at, amount, cells)
    seen, total = np.zeros(cells, np.int64), np.zeros(cells)
    kernels.add_up(np.ascontiguousarray(amount, np.float64), at, seen, total)
    return seen, total


def cell_spreads(amount: Array, at: Array, mean: Array) -> tuple[Array, Array]:
    """The second and fourth powers of distances from the mean of each cell, added up: float64 [cells], both."""
    cells = mean.shape[0]
    if at.shape[0] < _FEW:
        off = amount - mean[at]
        off *= off
        return np.bincount(at, off, cells), np.bincount(at, off * off, cells)
    squares, fourths = np.zeros(cells), np.zeros(cells)
    kernels.spread_out(np.ascontiguousarray(amount, np.float64), at, mean, squares, fourths)
    return squares, fourths


def nothing_seen(size: int, drawn: int, confidence: float) -> float:
    """How many of `size` tuples may have a property that none of `drawn` at random had, at this confidence.

    size * (1 - (1 - confidence) ** (1 / drawn)): the exact binomial bound, which is above the one without
    replacement; with 95 % about 3 / drawn of them ("rule of three").
    """
    if drawn <= 0:
        return float(size)
    return min(float(size - drawn), size * (1.0 - math.pow(1.0 - confidence, 1.0 / drawn)))


@lru_cache(maxsize=4096)
def student_quantile(confidence: float, freedom: int) -> float:
    """t so that Student's distribution has `confidence` within [-t, t]; relative error below 1e-5.

    confidence: in (0, 1); freedom: degrees of freedom, 1 or more.
    """
    two_tails = 1.0 - confidence
    n = float(freedom)
    if freedom == 1:
        half = two_tails * math.pi / 2.0
        return math.cos(half) / math.sin(half)
    if freedom == 2:
        return math.sqrt(2.0 / (two_tails * (2.0 - two_tails)) - 2.0)
    a = 1.0 / (n - 0.5)
    b = 48.0 / a**2
    c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36
    d = ((94.5 / (b + c) - 3.0) / b + 1.0) * math.sqrt(a * math.pi / 2.0) * n
    x: float = d * two_tails
    y: float = math.pow(x, 2.0 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(two_tails * 0.5)
        y = x * x
        if freedom < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x
        y = math.expm1(a * y**2)
    else:
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0) + 0.5 / (n + 4.0)) * y - 1.0) * (
            n + 1.0
        ) / (n + 2.0) + 1.0 / y
    return math.sqrt(float(n * y))
