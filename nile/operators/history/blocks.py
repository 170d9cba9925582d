"""Blocks of a history: what a scan reads at a time, in which order, and what totals over some of them are worth.

A block is consecutive tuples, so blocks and not tuples are the units of the sample: a total of a block stands for
a block.  All have one size but the last, which is read first and known for certain (a stratum of its own).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.aggregates.catalogue import Kind
from nile.aggregates.linear import Units, linearised, reach_of_few
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
        self._units: list[Units] = []
        self._rest: tuple[Array, Units] = (np.zeros(0, np.int64), Units.none(0))

    def add(self, group: Array, units: Units) -> None:
        """The next block: groups that it has (int64 [g], each once), and what it holds of each."""
        if self._blocks.rest and not self._read:
            self._rest = (group, units)
        else:
            self._group.append(group)
            self._units.append(units)
        self._read += 1

    @property
    def known(self) -> int:
        """How many blocks are known for certain: 1 or 0, the first that was added."""
        return int(self._blocks.rest > 0)

    @property
    def weight(self) -> float:
        """How many blocks each block drawn stands for; 1 of the first one that is shorter, which is known."""
        return self._blocks.units / len(self._group) if self._group else 1.0

    @property
    def _unseen(self) -> int:
        drawn = self._read - (self._blocks.rest > 0)
        return (self._blocks.units - drawn) * self._blocks.size

    def sampled(self, groups: int) -> StratifiedSample:
        """The blocks drawn, one a group that it has, in the order they were added."""
        group = np.concatenate([*self._group, np.zeros(0, np.int64)]).astype(np.int64)
        drawn = np.array([len(self._group)])
        return StratifiedSample(
            np.array([self._blocks.units]), drawn, np.zeros(group.shape[0], np.int64), group, groups
        )

    def _known(self, groups: int) -> Units:
        at, units = self._rest
        known = Units.none(groups)
        for whole, part in zip(_columns(known), _columns(units), strict=True):
            whole[at] = part
        return known

    def counts(self, groups: int, confidence: float) -> list[Estimate]:
        """How many there are in all, one Estimate a group."""
        sample, count = self.sampled(groups), _together(self._units).count
        known = self._known(groups).count
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

    def numbers(self, kind: Kind, groups: int, confidence: float) -> list[Estimate]:
        """Sums, means or spreads of all numbers, one Estimate a group.

        Nothing bounds an unread number, so none is certified.
        """
        sample, known = self.sampled(groups), self._known(groups)
        with np.errstate(all="ignore"):
            told = linearised(
                kind, _together(self._units), sample.group, known, lambda amount: sample.totals(amount, np.inf).value
            )
            if not len(self._group):
                return [Estimate.guess(value) for value in told.value.tolist()]
            reach = sample.totals(told.residual, np.inf).reach(confidence)
            held = _together(self._units).count > 0.0
            made = _around(told.value, reach_of_few(reach, told, sample.group, held, confidence), confidence)
        if kind.is_spread:
            made = [replace(each, low=max(0.0, float(each.low))) for each in made]
        return made

    def exact(self, kind: Kind, groups: int) -> Array:
        """The numbers when every block has been read: float64 [groups]."""
        group = np.concatenate([self._rest[0], *self._group]).astype(np.int64)
        with np.errstate(all="ignore"):
            return linearised(
                kind, _together([self._rest[1], *self._units]), group, Units.none(groups),
                lambda amount: np.bincount(group, amount, groups),
            ).value  # fmt: skip


def _columns(units: Units) -> tuple[Array, Array, Array]:
    return units.count, units.total, units.squares


def _together(parts: list[Units]) -> Units:
    return Units(*map(np.concatenate, zip(*map(_columns, [*parts, Units.none(0)]), strict=True)))


def _around(value: Array, reach: Array, confidence: float) -> list[Estimate]:
    made = []
    for v, r in zip(value.tolist(), reach.tolist(), strict=True):
        if np.isfinite(r) and np.isfinite(v) and r > 0.0:
            made.append(Estimate(v, v - r, v + r, confidence, False))
        else:
            made.append(Estimate.guess(v))
    return made
