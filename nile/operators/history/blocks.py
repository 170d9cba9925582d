"""Blocks of a history: what a scan reads at a time, in which order, and what totals over some of them are worth.

A block is consecutive tuples, so blocks and not tuples are the units of the sample: a total of a block stands for
a block.  All have one size but the last, which is read first and known for certain (a stratum of its own).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.estimate import Estimate
from nile.summaries.intervals import StratifiedSample, nothing_seen

__all__ = ["Blocks", "UnitTotals", "blocks_of"]

Array = np.ndarray[Any, Any]
LARGEST = 65_536
LEAST = 256
_UNITS = 512


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of ordinals [begin, end): int64 [n] each, in the order to be read.  size: of every block but a first
    one that is shorter (`rest` tuples, 0: there is none)."""

    begin: Array
    end: Array
    size: int
    rest: int

    @property
    def units(self) -> int:
        """Blocks of the whole size: the population of the sample."""
        return int(self.begin.shape[0]) - (self.rest > 0)


def blocks_of(begin: int, end: int, seed: int | None) -> Blocks:
    """The blocks of tuples [begin, end): 512 or so of them, of 256 to 65,536 tuples (a power of two).

    seed: of their random order; None: the latest first.
    """
    tuples = max(0, end - begin)
    size = LEAST
    while size < LARGEST and size * _UNITS < tuples:
        size *= 2
    rest = tuples % size
    starts = np.arange(begin, end - rest, size, dtype=np.int64)
    starts = starts[::-1] if seed is None else np.random.default_rng(seed).permutation(starts)
    ends = starts + size
    if rest:
        starts, ends = np.concatenate([[end - rest], starts]), np.concatenate([[end], ends])
    return Blocks(starts, ends, size, rest)


class UnitTotals:
    """Totals by block and group, and the intervals that they allow (Cochran 1977: totals of clusters, ratios)."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._read = 0
        self._group: list[Array] = []
        self._count: list[Array] = []
        self._amount: list[Array] = []
        self._rest: tuple[Array, Array, Array] = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

    def add(self, group: Array, count: Array, amount: Array) -> None:
        """The next block: groups that it has (int64 [g], each once), numbers counted (float64) and their sums."""
        if self._blocks.rest and not self._read:
            self._rest = (group, count, amount)
        else:
            self._group.append(group)
            self._count.append(count)
            self._amount.append(amount)
        self._read += 1

    @property
    def _unseen(self) -> int:
        drawn = self._read - (self._blocks.rest > 0)
        return (self._blocks.units - drawn) * self._blocks.size

    def _sampled(self, groups: int) -> tuple[StratifiedSample, Array, Array]:
        group = np.concatenate([*self._group, np.zeros(0, np.int64)]).astype(np.int64)
        drawn = np.array([len(self._group)])
        sample = StratifiedSample(
            np.array([self._blocks.units]), drawn, np.zeros(group.shape[0], np.int64), group, groups
        )
        zero = np.zeros(0)
        return sample, np.concatenate([*self._count, zero]), np.concatenate([*self._amount, zero])

    def _known(self, groups: int) -> tuple[Array, Array]:
        at, count, amount = self._rest
        known = np.zeros(groups), np.zeros(groups)
        known[0][at], known[1][at] = count, amount
        return known

    def counts(self, groups: int, confidence: float) -> list[Estimate]:
        """How many there are in all, one Estimate a group."""
        sample, count, _ = self._sampled(groups)
        known = self._known(groups)[0]
        seen = known + np.bincount(sample.group, count, groups)
        if not len(self._group):
            return [Estimate.between(k, k, k + self._unseen) for k in known.tolist()]
        totals = sample.totals(count, float(self._blocks.size))
        slack = nothing_seen(self._blocks.units, len(self._group), confidence) * self._blocks.size
        made = []
        for g in range(groups):
            value, reach = float(known[g] + totals.value[g]), float(totals.reach(confidence)[g])
            least, most = float(seen[g]), float(seen[g]) + self._unseen
            if not np.isfinite(reach):
                made.append(Estimate.between(min(max(value, least), most), least, most))
                continue
            if reach == 0.0:  # every block alike shows no spread
                reach = slack
            low, high = max(value - reach, least), min(value + reach, most)
            value = min(max(value, low), high)
            made.append(Estimate(value, low, high, confidence, bool(totals.certified[g])))
        return made

    def sums(self, groups: int, confidence: float) -> list[Estimate]:
        """The sum of all numbers, one Estimate a group.  Nothing bounds an unread number, so none is certified."""
        sample, _, amount = self._sampled(groups)
        known = self._known(groups)[1]
        if not len(self._group):
            return [Estimate.guess(k) for k in known.tolist()]
        totals = sample.totals(amount, np.inf)
        return _around(known + totals.value, totals.reach(confidence), confidence)

    def means(self, groups: int, confidence: float) -> list[Estimate]:
        """The mean of all numbers, one Estimate a group: the ratio of two totals, its variance linearised."""
        sample, count, amount = self._sampled(groups)
        rest_count, rest_amount = self._known(groups)
        with np.errstate(all="ignore"):
            if not len(self._group):
                return [Estimate.guess(float(m)) for m in (rest_amount / rest_count).tolist()]
            counted = rest_count + sample.totals(count, np.inf).value
            mean = (rest_amount + sample.totals(amount, np.inf).value) / counted
            residual = (amount - mean[sample.group] * count) / counted[sample.group]
            totals = sample.totals(residual, np.inf)
            return _around(mean, totals.reach(confidence), confidence)


def _around(value: Array, reach: Array, confidence: float) -> list[Estimate]:
    made = []
    for v, r in zip(value.tolist(), reach.tolist(), strict=True):
        if np.isfinite(r) and np.isfinite(v) and r > 0.0:
            made.append(Estimate(v, v - r, v + r, confidence, False))
        else:
            made.append(Estimate.guess(v))
    return made
