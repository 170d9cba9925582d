"""What a random sample says of totals, ratios of totals and variances, and what each sampled unit adds to its error.

A unit is what was drawn at once: a tuple, a block of a history, a partition of a lake, an output of a join.  However
units were drawn, the error of a number is, to first order, that of the total of the residuals given here (Cochran,
Sampling Techniques, 1977, section 6.3, for ratios; variances likewise), so a sampling design needs to know how to
estimate totals and their errors, and nothing of aggregates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.catalogue import Kind

__all__ = ["Linear", "Units", "linearised"]

Array = np.ndarray[Any, Any]


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
        return cls(valid, np.where(valid > 0.0, values, 0.0), np.zeros(values.shape[0]))

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
        return Linear(mean, mean, scale, (units.total - mean[group] * units.count) / count[group])
    off = units.from_center(mean[group])
    freedom = count + 1.0 - kind.least
    value = (known.from_center(mean) + totals(off)) / freedom
    scale = 1.0 / freedom
    residual = (off - units.count * value[group]) / freedom[group]
    if kind.is_root:
        value = np.sqrt(value)
        scale, residual = scale / (2.0 * value), residual / (2.0 * value[group])
    return Linear(value, mean, scale, residual)
