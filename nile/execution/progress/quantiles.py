"""Quantiles of groups from values that stand for more than themselves, with intervals by rank (Woodruff 1952)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.catalogue import Kind
from nile.base.nearest import nearest
from nile.operators.aggregate.distribution import weighted_quantile
from nile.operators.common.rows import ranks
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Points", "quantiles"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Points:
    """Values of groups, n of them, none null.

    group: int64 [n]; unit: int64 [n], what each was drawn with, -1 where it is known; stands: float64 [n], how many
    values of its unit each is for; weight: float64 [n], how many units its unit is for.
    """

    values: pa.Array
    group: Array
    unit: Array
    stands: Array
    weight: Array


def quantiles(
    kind: Kind,
    share: float,
    points: Points,
    groups: int,
    slack: Array,
    reach: Callable[[Array], Array] | None,
    units: int,
    confidence: float,
) -> tuple[pa.Array, list[Estimate]]:
    """(the quantile of each group, null of no value; what each is worth).

    slack: float64 [groups], the share of a group's values by which a place among points may be off, for certain.
    reach: float64 [units] of residuals to how far the interval of their total reaches, float64 [groups]; None: all
    units were read.  Numbers have intervals, other values are told without.  O(n log n).
    """
    order_of = ranks(points.values)
    order = np.lexsort((order_of, points.group))
    cuts = np.searchsorted(points.group[order], np.arange(groups + 1))
    weight = (points.weight * points.stands)[order]
    place = np.zeros(groups, np.int64)
    total = np.zeros(groups)
    for g in range(groups):
        part = slice(cuts[g], cuts[g + 1])
        if cuts[g] < cuts[g + 1]:
            reached = np.cumsum(weight[part])
            total[g] = reached[-1]
            place[g] = cuts[g] + _first(reached, share)
    none = total == 0.0
    at = order[np.minimum(place, max(order.shape[0] - 1, 0))] if order.shape[0] else np.zeros(groups, np.int64)
    error = slack.copy()
    if reach is not None:
        below = (order_of <= order_of[at][points.group]) - share if order.shape[0] else np.zeros(0)
        drawn = points.unit >= 0
        residual = (points.stands * below / np.where(none, 1.0, total)[points.group])[drawn]
        error = error + reach(np.bincount(points.unit[drawn], residual, units))
    numeric = pa.types.is_integer(points.values.type) or pa.types.is_floating(points.values.type)
    numbers = (
        nearest(points.values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)[order] if numeric else None
    )
    told, made = np.full(groups, np.nan), []
    for g in range(groups):
        part = slice(cuts[g], cuts[g + 1])
        if none[g] or numbers is None:
            made.append(Estimate.guess(math.nan))
            continue
        here, own = numbers[part], weight[part]
        told[g] = weighted_quantile(here, own, share, continuous=kind.gives == "number")
        made.append(_worth(float(told[g]), here, np.cumsum(own), share, float(error[g]), reach is not None, confidence))
    if kind.gives == "number":
        return pa.array(told, mask=none), made
    if not order.shape[0]:
        return pa.nulls(groups, points.values.type), made
    return points.values.take(pa.array(at, mask=none)), made


def _first(reached: Array, share: float) -> int:
    """The first value that a share of all does not exceed.  reached: float64 [n], weights up to each."""
    place = int(np.searchsorted(reached, share * float(reached[-1]) * (1.0 - 1e-12)))
    return min(place, int(reached.shape[0]) - 1)


def _worth(
    value: float, here: Array, reached: Array, share: float, error: float, sampled: bool, confidence: float
) -> Estimate:
    """Beyond the ends of a sample nothing is known; of all values their ends are."""
    if not math.isfinite(error) or math.isnan(value) or (sampled and error == 0.0):
        return Estimate.guess(value)
    if not sampled and error == 0.0:
        return Estimate.exact(value)
    error += 1.0 / float(reached[-1])  # two neighbours that a value lies between
    low = float(here[_first(reached, share - error)]) if share - error > 0.0 else -math.inf
    high = float(here[_first(reached, share + error)]) if share + error < 1.0 else math.inf
    low, high = min(low, value), max(high, value)
    if math.isnan(high):  # NaN is above every number
        high = math.inf
    return Estimate(value, low, high, confidence, False) if sampled else Estimate.between(value, low, high)
