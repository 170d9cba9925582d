"""Histograms of an exact answer and of what was found of it, and how far apart they are (Hist-MSE).

Source: promising tuples, section 5.2, item 2.  Sums of weights are rounded once, so a figure is the same bit for
bit on every machine and in any order of output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "Binned", "Histogram", "ideal_mse"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BINS = 100
"""Intervals of a Hist-MSE histogram (paper, section 5.2: k = 100)."""

_EXACTLY = 1 << 26  # how many 27-bit numbers add up exactly in float64


@dataclass(frozen=True, slots=True)
class Binned:
    """bins: of each of N, uint8 [N]; counts: how many each bin has, int64 [BINS]."""

    bins: NDArray[np.uint8]
    counts: Ints

    @classmethod
    def of(cls, bins: Ints) -> Binned:
        """bins: in [0, BINS)."""
        return cls(bins.astype(np.uint8), np.bincount(bins, minlength=BINS))

    def found(self, hits: Ints, weights: Floats) -> Histogram:
        """hits: which of the N were found, int64 [n]; weights: float64 [n]."""
        return Histogram.weighed(self.counts, self.bins[hits], weights)


@dataclass(frozen=True, slots=True)
class Histogram:
    """exact: how many there are in each of BINS bins; obtained: the sum of the weights of those found there."""

    exact: tuple[int, ...]
    obtained: tuple[float, ...]

    @classmethod
    def weighed(cls, exact: Ints, bins: NDArray[np.integer[Any]], weights: Floats) -> Histogram:
        """exact: int64 [BINS]; bins: of each one found, integers [n]; weights: float64 [n], finite and > 0."""
        return cls(tuple(exact.tolist()), tuple(_weight_sums(bins, weights)))

    @property
    def mse(self) -> float | None:
        """Sum over the bins of the squared difference of the two normalised histograms; None where one is empty."""
        whole, total = math.fsum(self.obtained), sum(self.exact)
        if not whole or not total:
            return None
        gaps = [got / whole - count / total for got, count in zip(self.obtained, self.exact, strict=True)]
        return math.fsum(gap * gap for gap in gaps)


def ideal_mse(counts: Ints, n: int) -> float | None:
    """Expected Hist-MSE of a uniform sample of n of the N in `counts`: sum p (1 - p) * (N - n) / (n (N - 1)).

    None where it has nothing; 0 where n is all of them, or more.
    """
    total = int(counts.sum())
    if n == 0 or total == 0:
        return None
    if n >= total:
        return 0.0
    # sum p (1 - p) = (N**2 - sum of squared counts) / N**2, in integers
    spread: int = total**2 - sum(count * count for count in counts.tolist())
    return spread * (total - n) / (total**2 * n * (total - 1))


def _weight_sums(bins: NDArray[np.integer[Any]], weights: Floats) -> list[float]:
    """Correctly rounded sum of the weights in each bin, whatever their order, as `math.fsum` has it.

    A weight is a whole number of 53 bits times a power of two.  Halves of these numbers are counted by bin and
    power: sums of up to 2**26 numbers below 2**27 are exact in float64.  What is left to add are a few integers.
    """
    sums = [0] * BINS
    if not len(weights):
        return [0.0] * BINS
    mantissa, exponent = np.frexp(weights)
    least = int(exponent.min())
    powers = int(exponent.max()) - least + 1
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    at = bins.astype(np.int64) * powers + (exponent - least)
    for start in range(0, len(weights), _EXACTLY):
        part = slice(start, start + _EXACTLY)
        for half, bits in ((whole[part] >> 26, 26), (whole[part] & (1 << 26) - 1, 0)):
            counted = np.bincount(at[part], half)
            for place in np.flatnonzero(counted).tolist():
                sums[place // powers] += int(counted[place]) << bits + place % powers
    unit = Fraction(2) ** (least - 53)
    return [float(total * unit) for total in sums]
