"""What a weighted join's sample of keys is worth: the variance of its totals, and what keys left out may hold.

Keys are dropped by hash, whole: the unit of the sample is the key, not the output.  A key whose outputs came under
the levels d_1 <= d_2 <= ... is in at d_i when its hash is below it, so levels of one key are nested.  With z_i the
weights of its outputs at d_i, the Horvitz-Thompson variance is estimated by the sum over keys and pairs of levels
of z_i z_j (1 - max(d_i, d_j)), besides that of sampling among a key's outputs, w (w - 1 / d) each.
What the sample cannot show is a heavy key that was left out: most samples then are too low and look tame.  The
tuples tell: each that came in stands for 1 / d, and what these miss of the tuples there were may be one key's.
A total is that of keys and tuples each of which came in or not, a sum of weights of a Poisson kind: the ends of its
interval are quantiles of the gamma distributions that have its mean and variance, and those with one more part of the
largest weight.
Sources: Horvitz, Thompson, JASA 47 (1952); Cochran, Sampling Techniques, 1977, section 9A; Satterthwaite,
Biometrics Bulletin 2 (1946); Fay, Feuer, Statistics in Medicine 16 (1997), weighted sums of Poisson counts; Wilson,
Hilferty, PNAS 17 (1931), quantiles of chi squared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.summaries.estimate import Estimate
from nile.summaries.intervals import student_quantile

__all__ = [
    "KeySample",
    "KeyTotals",
    "counted",
    "left_out",
    "missing_of",
    "stood_for",
]

Array = np.ndarray[Any, Any]
_MANY = 1 << 18
_WIDEST = 5.0  # totals: an interval that is wider tells nothing, and is not claimed
_PARTS = 6.0  # total**2 over its variance, the equal parts that would vary as much: of fewer no interval is claimed
_MANY_PARTS, _STEPS = 60.0, 40  # from which on all are claimed of a mean that they may have; bisections
_UNLIKE = 5.0  # times as many outputs as other tuples, the most that those of a key that was left out may have
_FEW, _PLENTY = 8, 200
"""Degrees of freedom below which an interval of a group is not claimed, and from which on they are as good as infinite.
"""


@dataclass(frozen=True, slots=True)
class KeySample:
    """Outputs of a weighted join.  All [n]: weight: float64; level: float64 in (0, 1], the share of keys among
    which the key was drawn when the output's tuples came in; key: int64, not below 0.

    unseen: about how many outputs per key that was left out may have; missed: as much of what the sample stands for may
    be missing as of the tuples, None: not known (both: `missing_of`).  coins: of each stream
    whose tuples came in by coins of their own, the tuple behind each output (int64 [n]) and the probability of its
    coin (float64 [n]).

    foreseen: all outputs, whoever came in, and the least that coins of tuples make of the variance of totals, at the
    rates that all met; None: not known.
    """

    weight: Array
    level: Array
    key: Array
    unseen: float = 0.0
    coins: tuple[tuple[Array, Array], ...] = ()
    missed: float | None = None
    foreseen: Callable[[], tuple[float, float]] | None = None

    @property
    def drops_keys(self) -> bool:
        """Whether any output stands for keys that were left out."""
        return bool((self.level < 1.0).any()) or self.unseen > 0.0

    def spread(self, amount: Array, group: Array, groups: int) -> tuple[Array, Array]:
        """Variance of the estimated total of `amount` by group, and its degrees of freedom: float64 [groups] each.

        amount: float64 [n]; group: int64 [n].  Infinite freedom where no key was dropped: outputs are many.
        O(n log n).
        """
        if self.weight.shape[0] == 0:
            return np.zeros(groups), np.full(groups, math.inf)
        return _spread(self._parts(amount, group, groups))

    def _parts(self, amount: Array, group: Array, groups: int) -> list[Moments]:
        """What keys add, and the tuples of each stream with coins."""
        total = self.weight * amount
        keys = _by_key(group, self.key, self.level, total, self.within(amount), groups, bool(self.coins))
        return [keys, *(_by_tuple(group, *coin, total, groups) for coin in self.shares())]

    def within(self, amount: Array) -> Array:
        """What each output adds to the variance by itself, beside those that it shares its key or tuples with.

        Two outputs that share a tuple of coin q, and so the key, are in together 1 / q times as often as if they
        were apart, those of one key alone 1 / d times.  So the variance is the sum of (1 - d) z**2 by key, with z the
        weights there, of d (1 - q) z**2 by tuple, and of what these leave of each output's own w**2 (1 - 1 / w).
        """
        weight, level = self.weight, self.level
        if not self.coins:
            return np.asarray(np.maximum(weight * (weight - 1.0 / level), 0.0) * amount**2)
        left = level - 1.0 / weight
        for _, share in self.shares():
            left -= share
        return np.asarray(left * (weight * amount) ** 2)

    def shares(self) -> list[tuple[Array, Array]]:
        """Of each stream with coins, the tuple behind each output and its d (1 - q): int64 [n], float64 [n]."""
        return [(tuples, self.level * (1.0 - coin)) for tuples, coin in self.coins]

    def reach(self, amount: Array, group: Array, groups: int, confidence: float) -> Array:
        """How far an interval of a total reaches to either side, by group: float64 [groups].

        Infinitely far where a few keys or tuples make up the variance: as many others may have been missed.
        """
        return _reach(*self.spread(amount, group, groups), confidence)

    def count(self, pairs: Array, confidence: float) -> Estimate:
        """How many outputs the exact answer has.  pairs: [n], how many each output stands for itself.

        From what was found up; the upper end leaves room for a heavy key that was left out.  It is infinite where
        nothing was found, or what was found does not carry an interval (`counted`).
        """
        one, amount = np.zeros(pairs.shape[0], np.int64), np.asarray(pairs, np.float64)
        total = self.weight * amount
        if total.shape[0] == 0:
            return counted(0.0, 0.0, 0.0, self.unseen, confidence)
        parts, whole = self._parts(amount, one, 1), float(total.sum())
        variance = self.at_least(whole, float(_spread(parts)[0][0]))
        return counted(float(pairs.sum()), whole, variance, self.left_out(whole), confidence, _largest(parts))

    def at_least(self, total: float, variance: float) -> float:
        """The variance of a total: not below what coins make of one so large, whatever tuples the sample missed.

        A sample without what is heavy looks tame.  Totals vary as counts of equal parts, variance over outputs large.
        """
        outputs, least = (0.0, 0.0) if self.foreseen is None else self.foreseen()
        return max(variance, total * least / outputs) if outputs > 0.0 else variance

    def left_out(self, total: float) -> float:
        """How many outputs, of what the sample says are `total`, those of keys that were left out may be more."""
        return left_out(self.unseen, self.missed, total)


class KeyTotals:
    """What `KeySample.count` looks at, of outputs that are not kept: sums by key and level.

    Memory: 40 bytes for each level that a key's outputs came under, which are at most as many as its tuples; with
    coins 24 more for each tuple of an output.
    """

    def __init__(self) -> None:
        self._keys = _Sums()
        self._tuples: list[_Sums] = []
        self._found = 0.0

    def add(self, sample: KeySample, pairs: Array) -> None:
        """More outputs, each of which stands for `pairs` [n] itself."""
        amount = np.asarray(pairs, np.float64)
        total = sample.weight * amount
        self._keys.add(sample.key, sample.level, total, sample.within(amount))
        self._tuples = self._tuples or [_Sums() for _ in sample.coins]
        for sums, (tuples, share) in zip(self._tuples, sample.shares(), strict=True):
            sums.add(tuples, share, total)
        self._found += float(amount.sum())

    def count(self, of: KeySample, confidence: float) -> Estimate:
        """As `KeySample.count` of a sample like this one, but for the order in which doubles were added."""
        key, level, total, within = self._keys.merged()
        one = np.zeros(key.shape[0], np.int64)
        parts = [_by_key(one, key, level, total, within, 1, bool(self._tuples))]
        for sums in self._tuples:
            tuples, share, weighed = sums.merged()
            parts.append(_by_tuple(np.zeros(tuples.shape[0], np.int64), tuples, share, weighed, 1))
        whole = float(total.sum())
        variance = of.at_least(whole, float(_spread(parts)[0][0]))
        return counted(self._found, whole, variance, of.left_out(whole), confidence, _largest(parts))


class _Sums:
    """Rows summed by their first two columns, a whole number and a double, whenever there are many."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64), *(np.zeros(0) for _ in range(3))
        self._parts: list[tuple[Array, ...]] = [none]
        self._known = self._waiting = 0

    def add(self, *columns: Array) -> None:
        self._parts = [part[: len(columns)] for part in self._parts[:1]] + self._parts[1:] + [columns]
        self._waiting += columns[0].shape[0]
        if self._waiting > 2 * self._known + _MANY:
            self.merged()

    def merged(self) -> tuple[Array, ...]:
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        self._parts = [_summed(*columns)]
        self._known, self._waiting = self._parts[0][0].shape[0], 0
        return self._parts[0]


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


Moments = tuple[Array, Array, Array, Array]
"""Variance by group, the sum of the squares of its independent parts, whether keys were dropped, and the largest part
of the variance that a key, or a tuple, which may have been dropped has."""


def _by_key(group: Array, key: Array, level: Array, total: Array, within: Array, groups: int, apart: bool) -> Moments:
    """What keys add that are in or out whole.

    total: of the weighted amounts, within: their variance among a key's outputs (apart: counted by itself); of
    outputs, or of all of one key and level together, which come to the same.  O(n) where no key was dropped, else
    O(n log n).
    """
    if not apart and (level == 1.0).all():
        none = np.zeros(groups)
        return np.bincount(group, within, groups), none, none > 0.0, none
    order = np.lexsort((level, key, group))
    d, x, g, key = level[order], total[order], group[order], key[order]
    first = np.ones(key.shape[0], bool)
    first[1:] = (key[1:] != key[:-1]) | (g[1:] != g[:-1])
    cell = np.cumsum(first) - 1
    of = g[first]
    reached = np.cumsum(x)
    reached -= (reached - x)[first][cell]
    whole = np.maximum(np.bincount(cell, (1.0 - d) * (reached**2 - (reached - x) ** 2)), 0.0)
    inner = np.bincount(cell, within[order])
    part = whole if apart else whole + inner
    dropped = np.bincount(of, np.bincount(cell, d < 1.0), groups) > 0
    largest = np.zeros(groups)
    np.maximum.at(largest, of, whole)
    return np.bincount(of, whole + inner, groups), np.bincount(of, part**2, groups), dropped, largest


def _by_tuple(group: Array, tuples: Array, share: Array, total: Array, groups: int) -> Moments:
    """What tuples add that are in or out by coins of their own.  share: d (1 - q)."""
    order = np.lexsort((share, tuples, group))
    g, which, a = group[order], tuples[order], share[order]
    first = np.ones(order.shape[0], bool)
    first[1:] = (which[1:] != which[:-1]) | (g[1:] != g[:-1]) | (a[1:] != a[:-1])
    part = a[first] * np.bincount(np.cumsum(first) - 1, total[order]) ** 2
    few = np.bincount(g[first], part, groups), np.bincount(g[first], part**2, groups)
    largest = np.zeros(groups)
    np.maximum.at(largest, g[first], part)
    return (*few, np.zeros(groups, bool), largest)


def _largest(parts: list[Moments]) -> float:
    """The share in a total's standard error of the key, or tuple, that has most of it; 0 where none was dropped."""
    return math.sqrt(max(0.0, *(float(part[3].max(initial=0.0)) for part in parts)))


def _spread(parts: list[Moments]) -> tuple[Array, Array]:
    """Variance and degrees of freedom by group: float64 [groups] each."""
    variance = np.maximum(np.sum([part[0] for part in parts], axis=0), 0.0)
    squares = np.sum([part[1] for part in parts], axis=0)
    dropped = parts[0][2]
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(squares > 0.0, np.maximum(1.0, np.floor(variance**2 / squares)), math.inf)
    if len(parts) > 1:
        dropped = dropped | (freedom < _PLENTY)
    return variance, np.where(dropped, freedom, math.inf)


def _reach(variance: Array, freedom: Array, confidence: float) -> Array:
    normal = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    times = [student_quantile(confidence, int(f)) if math.isfinite(f) else normal for f in freedom]
    return np.where((variance > 0.0) & (freedom < _FEW), math.inf, np.array(times) * np.sqrt(variance))


def counted(
    found: float, total: float, variance: float, left_out: float, confidence: float, largest: float = 0.0
) -> Estimate:
    """How many outputs there are, of `found` that stand for `total`; see `KeySample.count`.

    left_out: what keys that were left out may have; largest: share in the standard error of the key, or tuple, that
    has most of it: as large a one may be missing.
    Not claimed where the total varies as one of fewer than `_PARTS` equal parts does, nor wider than `_WIDEST` totals.
    The lower end knows it: of those that are claimed a share of half of what is left of `confidence` is too high.
    """
    if not found or (variance > 0.0 and total * total < _PARTS * variance):
        return Estimate(total, min(total, found), math.inf, confidence, False)
    tail = (1.0 - confidence) / 2.0
    low = min(total, max(found, _least(tail, total, variance)))
    high = max(total, _quantile(1.0 - tail, total + largest, variance + largest * largest)) + left_out
    return Estimate(total, low, high if high - low <= _WIDEST * total else math.inf, confidence, False)


def _quantile(share: float, mean: float, variance: float) -> float:
    """A quantile of the gamma distribution of this mean and variance, within 2 % where it has `_PARTS` parts."""
    if variance <= 0.0:
        return mean
    part = variance / (9.0 * mean * mean)
    return mean * max(0.0, 1.0 - part + NormalDist().inv_cdf(share) * math.sqrt(part)) ** 3


def _least(share: float, total: float, variance: float) -> float:
    """The mean of which a share of all totals that are claimed, of `_PARTS` parts or more, is as large as this."""
    parts = total * total / variance if variance > 0.0 else math.inf
    if parts > _MANY_PARTS:
        return _quantile(share, total, variance)
    low, high = 0.0, parts
    for _ in range(_STEPS):
        mean = 0.5 * (low + high)
        claimed = _reached(_PARTS, mean)
        if claimed > 0.0 and _reached(parts, mean) > share * claimed:
            high = mean
        else:
            low = mean
    return low * total / parts


def _reached(parts: float, mean: float) -> float:
    """How probably a Poisson count of this mean is `parts` or more, as the gamma distribution goes on between them."""
    off = (mean / parts) ** (1.0 / 3.0) - 1.0 + 1.0 / (9.0 * parts)
    return NormalDist().cdf(3.0 * math.sqrt(parts) * off)


def left_out(unseen: float, missed: float | None, total: float) -> float:
    """How many outputs, of what a sample says are `total`, those of keys that were left out may be more.

    As many as one key could have, but as a share of the total no more than `_UNLIKE` times that of the tuples that are
    missing, if that is known; and no less than that share.
    """
    if missed is None:
        return unseen
    return min(max(unseen, missed * total), _UNLIKE * missed * total)


def stood_for(streams: Iterable[tuple[int, Array]]) -> list[tuple[float, float]]:
    """Of each stream, how many tuples with a key there were, and how many those that came in stand for.

    streams: of each the former, and the level of each tuple that came in, float64.
    """
    return [(float(tuples), float((1.0 / level).sum())) for tuples, level in streams]


def missing_of(streams: Sequence[tuple[float, float]], window: int | None, span: int) -> tuple[float, float]:
    """What those tuples that came in do not stand for: (outputs of a key that has all of it, in each stream; how many
    times the tuples that they do stand for, in the stream with most).

    streams: as of `stood_for`.  window: None: no window; span: of the input, in the unit of the window.  Where a heavy
    key is left out, tuples are missing as its outputs are.  Tuples are taken to come evenly: of n in a span, all within
    x of each other (a share of it) have probability n x^(n - 1) - (n - 1) x^n.
    """
    n = len(streams)
    x = 1.0 if window is None or span <= window else window / span
    near = n * x ** (n - 1) - (n - 1) * x**n
    of_one_key = math.prod(max(0.0, tuples - stood) for tuples, stood in streams) * near
    return of_one_key, max((max(0.0, tuples / stood - 1.0) for tuples, stood in streams if stood), default=0.0)
