"""What a random sample says of totals, ratios of totals and variances, and what each sampled unit adds to its error.

A unit is what was drawn at once: a tuple, a block of a history, a partition of a lake, an output of a join.  However
units were drawn, the error of a number is, to first order, that of the total of the residuals given here (Cochran,
Sampling Techniques, 1977, section 6.3, for ratios; variances likewise), so a sampling design needs to know how to
estimate totals and their errors, and nothing of aggregates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.catalogue import Kind
from nile.summaries.intervals import cell_spreads, cell_totals, student_quantile

__all__ = ["Linear", "Units", "linearised", "reach_of_few"]

Array = np.ndarray[Any, Any]

_SHARED = 30.0
"""Units for which what all groups show of their spread counts, beside those that a group has itself."""


@dataclass(frozen=True, slots=True)
class Units:
    """What units hold of each group: float64 [n].

    count: values that are not null; total: their sum; squares: their squared distances from their own mean, added up.
    """

    count: Array
    total: Array
    squares: Array

    @classmethod
    def of_values(cls, values: Array, valid: Array) -> Units:
        """Of single values, each a unit."""
        held = valid != 0
        return cls(
            held.astype(np.float64), values if held.all() else np.where(held, values, 0.0), np.zeros(values.shape[0])
        )

    @classmethod
    def none(cls, n: int) -> Units:
        """n that hold nothing."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n))

    def from_center(self, center: Array) -> Array:
        """Squared distances of each unit's values from `center`, added up."""
        held = self.count > 0.0
        own = np.where(held, self.total / np.where(held, self.count, 1.0), 0.0)
        return self.squares + np.where(held, self.count * (own - center) ** 2, 0.0)


@dataclass(frozen=True, slots=True)
class Linear:
    """Numbers of groups.

    value: float64 [groups]; mean: of the values (0 for totals); scale: the number's change when a total grows by 1;
    residual: float64 [n], what each unit adds to the total whose error is the number's.
    """

    value: Array
    mean: Array
    scale: Array
    residual: Array


def linearised(kind: Kind, units: Units, group: Array, known: Units, totals: Callable[[Array], Array]) -> Linear:
    """An aggregate whose interval is that of totals, ratios or spreads.

    group: int64 [n], of each unit; known: [groups], what is known beside the sample; totals: float64 [n] of units to
    the estimated totals of groups, float64 [groups].
    """
    if kind.interval == "total":
        amount, own = (units.count, known.count) if kind.gives == "whole" else (units.total, known.total)
        value = own + totals(amount)
        return Linear(value, np.zeros(value.shape[0]), np.ones(value.shape[0]), amount)
    count = known.count + totals(units.count)
    mean = (known.total + totals(units.total)) / count
    if kind.interval == "ratio":
        scale = 1.0 / count
        of = 0 if mean.shape[0] == 1 else group  # one number for all units
        return Linear(mean, mean, scale, (units.total - mean[of] * units.count) / count[of])
    off = units.from_center(mean[group])
    freedom = count + 1.0 - kind.least
    value = (known.from_center(mean) + totals(off)) / freedom
    scale = 1.0 / freedom
    residual = (off - units.count * value[group]) / freedom[group]
    if kind.is_root:
        value = np.sqrt(value)
        scale, residual = scale / (2.0 * value), residual / (2.0 * value[group])
    return Linear(value, mean, scale, residual)


def reach_of_few(reach: Array, linear: Linear, group: Array, held: Array, confidence: float) -> Array:
    """How far intervals reach of groups with few units of a sample each: float64 [groups], never less than `reach`.

    reach: what the sampling design makes of each group's own residuals; group: int64 [n], of each unit; held: bool
    [n], units with a value.  One unit shows no spread, and a few miss the tail: own intervals of means of lognormal
    values in groups of 10 to 1,000, a tenth of them drawn, cover 7 to 50 %.  So residuals are taken to spread within a
    group as its own do, or as those of all groups (pooled, with the weight of _SHARED units), whichever is more, and
    the quantile is Student's of as many.  One group alone, and what the design says is certain, is left as it is.
    O(n + groups).
    Source: pooled variances of small domains, Rao and Molina, Small Area Estimation, 2015, section 6.4.1.
    """
    groups = reach.shape[0]
    if groups < 2 or not held.any():
        return reach
    all_hold = held.all()
    at = group if all_hold else group[held]
    own = (linear.residual if all_hold else linear.residual[held]) / linear.scale[at]
    seen, total = cell_totals(own, at, groups)
    n = seen.astype(np.float64)
    center = total / np.maximum(n, 1.0)
    within, _ = cell_spreads(own, at, center)
    known = np.isfinite(within) & (n > 1.0)
    freedom = float((n[known] - 1.0).sum())
    if freedom < 1.0:
        return np.where(n == 1.0, math.inf, reach)
    pooled = float(within[known].sum()) / freedom
    more = min(_SHARED, freedom)
    blended = (within + more * pooled) / (np.maximum(n - 1.0, 0.0) + more)
    spread = np.maximum(blended, within / np.maximum(n - 1.0, 1.0))
    second, told = n * (center**2 + spread), within + n * center**2
    # What the design makes of a second moment: of a group that shows none, as of the others.
    scale = np.abs(linear.scale)
    usable = known & (told > 0.0) & np.isfinite(reach) & (reach > 0.0) & (scale > 0.0)
    design = reach[usable] / (scale[usable] * np.sqrt(told[usable]))
    usual = float(np.median(design)) if design.shape[0] else math.inf
    factor = np.where(usable, reach / np.where(usable, scale * np.sqrt(np.where(told > 0.0, told, 1.0)), 1.0), usual)
    wider = np.ones(groups)
    asked = student_quantile(confidence, 1 << 20)
    for units in np.unique(n[n > 0.0]).tolist():
        if units < 1_000.0:
            wider[n == units] = student_quantile(confidence, max(1, int(units - 1.0 + more))) / asked
    certain = (reach == 0.0) & (told > 0.0)
    reached = np.where((n > 0.0) & ~certain, factor * scale * np.sqrt(second) * wider, reach)
    return np.where(np.isfinite(reached), np.maximum(reach, reached), reach)
