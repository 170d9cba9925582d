"""The tuples of a live stream that a standing sample takes: by their ordinals, or by a value, and by nothing else.

Design.  Which tuples are taken is decided before anything of them is looked at, so what is not taken costs nothing, no
cut into pushes changes it, and a restart goes on with it.  Every tuple is taken with the same probability, whatever
the stream does: totals are divided by it (Horvitz-Thompson), averages and quantiles are those of the sample.
By ordinals: of every slice of 256 tuples so many that the share comes out, drawn without replacement, so that after
any slice at most one tuple more than the share was taken.  By value, for counts of different values: those whose hash
is below the share, all their tuples or none; then the share of the tuples is the share of the values on average only.
Source: Cochran, Sampling Techniques, 1977, section 5.3; distinct values: Gibbons, VLDB 2001, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.operators.aggregate.input import units
from nile.pyramid.grid.spec import SLICE
from nile.summaries.estimate import Estimate

__all__ = ["SliceSample", "Totalled", "worth"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SliceSample:
    """A sample of a share, in (0, 1], of a stream.  seed: of the draw; streams of one query have different ones."""

    share: float
    seed: int

    def taken(self, first: int, n: int) -> Array:
        """Which of the tuples of ordinals [first, first + n) are taken: bool [n]."""
        if self.share >= 1.0:
            return np.ones(n, bool)
        begin, end = first // SLICE, -(-(first + n) // SLICE)
        ordinal = np.arange(begin * SLICE, end * SLICE, dtype=np.uint64) + np.uint64(1)
        rank = np.argsort(np.argsort(units(ordinal, self.seed).reshape(-1, SLICE), axis=1), axis=1)
        begun = float(units(np.zeros(1, np.uint64), self.seed)[0])
        due = np.floor(self.share * SLICE * np.arange(begin, end + 1) + begun)
        taken: Array = (rank < np.diff(due)[:, None]).reshape(-1)
        return taken[first - begin * SLICE :][:n]

    def having(self, hashes: Array) -> Array:
        """Which values, by their hashes (uint64 [n]), are taken: bool [n]."""
        return units(hashes, self.seed) < self.share


@dataclass(frozen=True, slots=True)
class Totalled:
    """What a sample adds up to.  count: values in it; mean: theirs; spread: var_pop of them, NaN of none."""

    count: int
    mean: float = 0.0
    spread: float = 0.0


def worth(function: str, share: float, found: Totalled, confidence: float) -> Estimate:
    """What a count, sum or avg of a sample of this share is worth: the normal interval of Horvitz-Thompson.

    The variance is that of a draw of each tuple for itself, above that of a draw from slices; where the sample has
    none, or spreads not at all, the most tuples that such a sample misses at this confidence bound a count.  Not
    certified: the sample's own squares stand for those of all.  Other functions: a guess.
    """
    z, n = NormalDist().inv_cdf(0.5 + confidence / 2.0), found.count
    if share >= 1.0 and function in ("count", "sum", "avg"):
        value = float(n) if function == "count" else found.mean * (n if function == "sum" else 1)
        return Estimate.exact(value) if n or function == "count" else Estimate.guess(math.nan)
    if function == "count":
        value = n / share
        reach = z * math.sqrt((1.0 - share) * n) / share
        high = max(value + reach, value + math.log1p(-confidence) / math.log1p(-share))
        return Estimate(value, max(float(n), value - reach), high, confidence, False)
    if n < 2 or not math.isfinite(found.spread):
        return Estimate.guess(math.nan if not n or function not in ("sum", "avg") else found.mean)
    if function == "sum":
        reach = z * math.sqrt((1.0 - share) * n * (found.spread + found.mean**2)) / share
        value = n * found.mean / share
    elif function == "avg":
        reach = z * math.sqrt((1.0 - share) * found.spread / (n - 1))
        value = found.mean
    else:
        return Estimate.guess(math.nan)
    return Estimate(value, value - reach, value + reach, confidence, False)
