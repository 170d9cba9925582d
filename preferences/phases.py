"""A sample of a join in two phases: many pairs are found, and those are drawn that ages and keys have too few of.

Finding a pair and reading its age costs a scan, handing it out an output.  Where outputs are what a budget goes into, a
part of it finds more pairs than can be handed out, of which each comes with probability `share`, by ticks of its
own cell, one for each kind of age and group of keys: a cell has as many as it should, but for less than one.  So ages
are spread as those of all the pairs that were found, and what is left to chance is which tuples came in.

Source: two-phase sampling for stratification, Neyman, JASA 33 (1938); Cochran, Sampling Techniques, 1977, chapter 12.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.preferences.strata import Sizes, Strata, best_strata

__all__ = ["Phases", "cells_of", "two_phases"]

Array = np.ndarray[Any, Any]
_PARTS = (0.2, 0.3, 0.4, 0.5)  # of a budget, for handing out
_EMITTED = 0.2  # of a budget, what goes into handing pairs out with one phase, where two may do better
_STEPS = 20
_LEFT_OVER = 0.05  # of the variance of drawing pairs among those found, what cells leave for keys and all else
_BINS = 100.0  # of a histogram by age
_CUT = 1.0 / 3.0  # of the variance of a kind of age's pairs, what a bin's end that lies in it leaves
_OF_A_CELL = 1.0 / 6.0  # the variance of the pairs of a cell
_MOST_GROUPS, _LEAST_AGES, _MOST_AGES = 16, 32, 1024
_SPARED, _MOST_SPARED = 0.15, 0.3  # of a budget, and of what hands pairs out, the least for keys that are not listed
_KEYS = 0.1  # what is left of histograms by key counts so much less: they are closer than those by age
_MANY = 1_000.0  # pairs handed out, below which cells are too few
_WORTH = 0.85  # of the variance with one phase, the most with two


class Phases:
    """How pairs are found, and which share of those of each stratum and segment is handed out: float64 [s, k].

    handed: float64 [s], what that is expected to cost; pairs: float64 [k], handed out of each stratum.
    """

    def __init__(self, strata: Strata, share: Array, handed: Array, pairs: Array) -> None:
        self.strata = strata
        self.share = share
        self.handed = handed
        self.pairs = pairs


def two_phases(
    sizes: Sizes, one: Strata, budget: float, taking: float, emitting: float, scanning: float
) -> Phases | None:
    """The best plan of two phases, if ages vary less by it than by one; None: they hardly do.

    one: the plan of one phase; budget, taking (of a tuple), emitting, scanning (of a pair): in one unit of cost.
    """
    if float((one.cost - one.taking).sum()) < _EMITTED * budget:
        return None
    total = max(1.0, float((sizes.keys * sizes.pairs).sum()))
    best, least = None, _WORTH * _varies(sizes, one, total)
    for part in _PARTS:
        strata = best_strata(sizes, (1.0 - part) * budget, taking, scanning, blocks=True)
        phases = _handed_out(sizes, strata, part * budget, emitting, min(_SPARED, _MOST_SPARED * part) * budget)
        varies = _varies(sizes, strata, total)
        drawn = np.where(
            sizes.keys > 0.0, sizes.keys * sizes.pairs * _weights(strata) * (1.0 / phases.share - 1.0), 0.0
        )
        drawing = float(drawn.sum()) / (total * total)
        varies += drawing * min(1.0, _LEFT_OVER + _left(phases.pairs))
        if varies < least and float(phases.pairs.sum()) >= _MANY:
            best, least = phases, varies
    return best


def cells_of(pairs: Array) -> tuple[Array, Array]:
    """The group of each stratum, int64 [k], and the kinds of age of each group, int64 [g]: what tells cells apart.

    pairs: as many are handed out of each stratum.  The more kinds, the less a bin's end cuts one, and the more cells
    are off by a part of a pair, so a group has them as the root of its pairs.  The last group has all strata but the
    heaviest, which are left to chance in it.
    """
    handed = max(1.0, float(pairs.sum()))
    order = np.argsort(-pairs, kind="stable")
    shares = pairs[order] / handed
    alike = np.where(order == 0, 0.0, 1.0)  # stratum 0 has many keys
    found, least = np.full(1, _LEAST_AGES), math.inf
    for groups in range(1, min(_MOST_GROUPS, pairs.shape[0]) + 1):
        rest = shares[groups - 1 :]
        share = np.append(shares[: groups - 1], rest.sum())
        ages = np.clip(np.sqrt(_CUT * _BINS / _OF_A_CELL * handed * share), _LEAST_AGES, _MOST_AGES).astype(np.int64)
        mixed = float((rest * (1.0 - alike[groups - 1 :] * rest / max(1e-9, float(rest.sum())))).sum())
        rounded = _OF_A_CELL * float(ages.sum()) / handed
        left = _CUT * _BINS * float((share / ages).sum()) + rounded + _KEYS * (rounded + mixed)
        if left < least:
            found, least = ages, left
    group = np.full(pairs.shape[0], found.shape[0] - 1)
    group[order[: found.shape[0] - 1]] = np.arange(found.shape[0] - 1)
    return group, found


def _left(pairs: Array) -> float:
    """Of the variance of a histogram by age, over what chance alone would make, what cells leave."""
    group, ages = cells_of(pairs)
    handed = max(1.0, float(pairs.sum()))
    return float((_CUT * _BINS * pairs / ages[group]).sum() + _OF_A_CELL * ages.sum()) / handed


def _weights(strata: Strata) -> Array:
    """What a pair that was found stands for."""
    weights: Array = 1.0 / (strata.level * strata.left * strata.right * strata.rate)
    return weights


def _varies(sizes: Sizes, strata: Strata, total: float) -> float:
    """The variance of the share of a few pairs that come in by themselves, over that share."""
    missed = np.where(sizes.keys > 0.0, sizes.keys * sizes.pairs * (_weights(strata) - 1.0), 0.0)
    return float(missed.sum()) / (total * total)


def _drawing(sizes: Sizes, phases: Phases) -> float:
    """The variance of the total that handing a share out would add, were it drawn by chance alone."""
    stands = sizes.keys * sizes.pairs * _weights(phases.strata) * (1.0 / phases.share - 1.0)
    return float(np.where(sizes.keys > 0.0, stands, 0.0).sum())


def _handed_out(sizes: Sizes, strata: Strata, budget: float, emitting: float, spared: float) -> Phases:
    """Shares under which pairs that are handed out stand for as many each, as far as can be, and cost the budget.

    spared: what keys that are not listed get at least, which have most of the error of a histogram by key.
    """
    weights = _weights(strata)
    found = np.where(sizes.keys > 0.0, sizes.keys * sizes.pairs / weights, 0.0)
    least = min(1.0, spared / max(1e-9, emitting * float(found[:, 0].sum())))

    def shares(weight: float) -> Array:
        share = np.minimum(1.0, weights / weight)
        share[:, 0] = np.maximum(share[:, 0], least)
        return share

    low, high = 1.0, max(2.0, 1e3 * float((found * weights).sum()))
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        if emitting * float((found * shares(middle)).sum()) > budget:
            low = middle
        else:
            high = middle
    share = shares(high)
    handed = found * share
    return Phases(strata, share, emitting * handed.sum(axis=1), handed.sum(axis=0))
