"""What a weighted join's sample of keys is worth: the variance of its totals, and what keys left out may hold.

Keys are dropped by hash, whole: the unit of the sample is the key, not the output.  A key whose outputs came under
the levels d_1 <= d_2 <= ... is in at d_i when its hash is below it, so levels of one key are nested.  With z_i the
weights of its outputs at d_i, the Horvitz-Thompson variance is estimated by the sum over keys and pairs of levels
of z_i z_j (1 - max(d_i, d_j)), besides that of sampling among a key's outputs, w (w - 1 / d) each.
What the sample cannot show is a heavy key that was left out: most samples then are too low and look tame.  The
tuples tell: each that came in stands for 1 / d, and what these miss of the tuples there were may be one key's.
Sources: Horvitz, Thompson, JASA 47 (1952); Cochran, Sampling Techniques, 1977, section 9A; Satterthwaite,
Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.summaries.estimate import Estimate
from nile.summaries.intervals import student_quantile

__all__ = ["KeySample", "KeyTotals", "outputs_of_one_key"]

Array = np.ndarray[Any, Any]
_MANY = 1 << 18


@dataclass(frozen=True, slots=True)
class KeySample:
    """Outputs of a weighted join.  All [n]: weight: float64; level: float64 in (0, 1], the share of keys among
    which the key was drawn when the output's tuples came in; key: int64, not below 0.

    unseen: about how many outputs per key that was left out may have, `outputs_of_one_key`.
    """

    weight: Array
    level: Array
    key: Array
    unseen: float = 0.0

    @property
    def drops_keys(self) -> bool:
        """Whether any output stands for keys that were left out."""
        return bool((self.level < 1.0).any()) or self.unseen > 0.0

    def spread(self, amount: Array, group: Array, groups: int) -> tuple[Array, Array]:
        """Variance of the estimated total of `amount` by group, and its degrees of freedom: float64 [groups] each.

        amount: float64 [n]; group: int64 [n].  Infinite freedom where no key was dropped: outputs are many.
        O(n log n).
        """
        none = np.zeros(groups), np.full(groups, math.inf)
        if self.weight.shape[0] == 0:
            return none
        within = np.maximum(self.weight * (self.weight - 1.0 / self.level), 0.0) * amount**2
        return _spread(group, self.key, self.level, self.weight * amount, within, groups)

    def reach(self, amount: Array, group: Array, groups: int, confidence: float) -> Array:
        """How far an interval of a total reaches to either side, by group: float64 [groups]."""
        return _reach(*self.spread(amount, group, groups), confidence)

    def count(self, pairs: Array, confidence: float) -> Estimate:
        """How many outputs the exact answer has.  pairs: [n], how many each output stands for itself.

        From what was found up; the upper end leaves room for a heavy key that was left out.
        """
        one = np.zeros(pairs.shape[0], np.int64)
        reach = float(self.reach(np.asarray(pairs, np.float64), one, 1, confidence)[0])
        total = float((self.weight * pairs).sum())
        return _estimate(float(pairs.sum()), total, reach + self.unseen, reach, confidence)


class KeyTotals:
    """What `KeySample.count` looks at, of outputs that are not kept: sums by key and level.

    Memory: 40 bytes for each level that a key's outputs came under, which are at most as many as its tuples.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Array, ...]] = []
        self._merged = self._waiting = 0
        self._found = 0.0

    def add(self, sample: KeySample, pairs: Array) -> None:
        """More outputs, each of which stands for `pairs` [n] itself."""
        amount = np.asarray(pairs, np.float64)
        within = np.maximum(sample.weight * (sample.weight - 1.0 / sample.level), 0.0) * amount**2
        self._parts.append((sample.key, sample.level, sample.weight * amount, within))
        self._found += float(amount.sum())
        self._waiting += amount.shape[0]
        if self._waiting > 2 * self._merged + _MANY:
            self._merge()

    def _merge(self) -> tuple[Array, ...]:
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        self._parts = [_summed(*columns)]
        self._merged = self._waiting = self._parts[0][0].shape[0]
        return self._parts[0]

    def count(self, unseen: float, confidence: float) -> Estimate:
        """As `KeySample.count`, but for the order in which doubles were added."""
        if not self._parts:
            return Estimate(0.0, 0.0, unseen, confidence, False)
        key, level, total, within = self._merge()
        one = np.zeros(key.shape[0], np.int64)
        reach = float(_reach(*_spread(one, key, level, total, within, 1), confidence)[0])
        return _estimate(self._found, float(total.sum()), reach + unseen, reach, confidence)


def _summed(key: Array, level: Array, *amounts: Array) -> tuple[Array, ...]:
    """One row for each key and level, amounts summed.  O(n + keys) of one level, as where nothing is shed."""
    if key.shape[0] and int(key.max()) < 4 * key.shape[0] and (level == level[0]).all():
        known = np.flatnonzero(np.bincount(key))
        sums = [np.bincount(key, each)[known] for each in amounts]
        return (known, np.full(known.shape[0], level[0]), *sums)
    order = np.lexsort((level, key))
    key, level = key[order], level[order]
    first = np.ones(key.shape[0], bool)
    first[1:] = (key[1:] != key[:-1]) | (level[1:] != level[:-1])
    at = np.flatnonzero(first)
    sums = [np.add.reduceat(each[order], at) if at.shape[0] else each[:0] for each in amounts]
    return (key[at], level[at], *sums)


def _spread(group: Array, key: Array, level: Array, total: Array, within: Array, groups: int) -> tuple[Array, Array]:
    """Variance and degrees of freedom by group: float64 [groups] each.

    total: of the weighted amounts, within: their variance among a key's outputs; of outputs, or of all of one key and
    level together, which come to the same.
    """
    order = np.lexsort((level, key, group))
    d, x, g, key = level[order], total[order], group[order], key[order]
    first = np.ones(key.shape[0], bool)
    first[1:] = (key[1:] != key[:-1]) | (g[1:] != g[:-1])
    cell = np.cumsum(first) - 1
    of = g[first]
    reached = np.cumsum(x)
    reached -= (reached - x)[first][cell]
    whole = np.bincount(cell, (1.0 - d) * (reached**2 - (reached - x) ** 2))
    part = np.maximum(whole, 0.0) + np.bincount(cell, within[order])
    variance = np.bincount(of, part, groups)
    squares = np.bincount(of, part**2, groups)
    dropped = np.bincount(of, np.bincount(cell, d < 1.0), groups) > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(dropped & (squares > 0.0), np.maximum(1.0, np.floor(variance**2 / squares)), math.inf)
    return variance, freedom


def _reach(variance: Array, freedom: Array, confidence: float) -> Array:
    normal = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    times = [student_quantile(confidence, int(f)) if math.isfinite(f) else normal for f in freedom]
    return np.array(times) * np.sqrt(variance)


def _estimate(found: float, total: float, above: float, below: float, confidence: float) -> Estimate:
    return Estimate(total, min(total, max(found, total - below)), total + above, confidence, False)


def outputs_of_one_key(streams: Iterable[tuple[int, Array]], window: int | None, span: int) -> float:
    """Outputs of a key that has, in each stream, the tuples that those which came in do not stand for.

    streams: of each, how many tuples with a key there were, and the level of each that came in.  window: None: no
    window; span: of the input, in the unit of the window.  Tuples are taken to come evenly: of n in a span, all
    within x of each other (a share of it) have probability n x^(n - 1) - (n - 1) x^n.
    """
    missing = [max(0.0, tuples - float((1.0 / level).sum())) for tuples, level in streams]
    n = len(missing)
    x = 1.0 if window is None or span <= window else window / span
    return math.prod(missing) * (n * x ** (n - 1) - (n - 1) * x**n)
