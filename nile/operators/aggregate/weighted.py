"""Aggregates over the outputs of a join: Horvitz-Thompson where outputs carry inclusion weights.

A weighted output stands for `weight` = 1 / inclusion probability outputs, so sums of weight * x are unbiased
for the exact sums (Horvitz, Thompson, JASA 47 (1952)), averages are their ratios.  Intervals treat keys as drawn
whole where tuples were shed by key, and outputs as drawn one by one among those of their key (`key_sample`);
systematic sampling is not that, so none is certified.  Outputs that a preference picked (desc, asc) are no random
sample: what they add up to is told, and what is certain about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.asked import DISTRIBUTION, Aggregate
from nile.aggregates.catalogue import CATALOGUE
from nile.aggregates.linear import Units, linearised, reach_of_few
from nile.operators.aggregate.distribution import weighted_quantile
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.input import Measure
from nile.preferences.key_sample import KeySample
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["WeightedOutputs", "weighted_numbers"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class WeightedOutputs:
    """Outputs of a join, n of them.  group: int64 [n]; random: whether they are a sample (`weighted`), or picked."""

    sample: KeySample
    group: Array
    groups: int
    random: bool

    @property
    def weight(self) -> Array:
        """Of each output: float64 [n]."""
        return self.sample.weight

    def total(self, amount: Array) -> Array:
        """Estimated totals of `amount` by group: float64 [groups]."""
        return np.bincount(self.group, self.weight * amount, self.groups)

    def reach(self, amount: Array, confidence: float) -> Array:
        """How far their intervals reach to either side: float64 [groups]."""
        return self.sample.reach(amount, self.group, self.groups, confidence)

    def unseen(self, amount: Array) -> Array:
        """What a heavy key that was left out may add, were it like the others: float64 [groups]."""
        outputs = float(self.weight.sum())
        return self.total(amount) * (self.sample.left_out(outputs) / outputs if outputs else 0.0)


def weighted_numbers(
    aggregate: Aggregate,
    measure: Measure | None,
    outputs: WeightedOutputs,
    confidence: float,
    labels: pa.Array | None,
) -> list[Number]:
    """One Number a group.  measure: of the outputs, None for count(*)."""
    if aggregate.function in ("min", "max"):
        return [
            _extreme(measure, outputs.group == g, largest=aggregate.function == "max") for g in range(outputs.groups)
        ]
    if aggregate.function in DISTRIBUTION:
        return [_distribution(aggregate, measure, outputs, g, labels) for g in range(outputs.groups)]
    one = np.ones(outputs.weight.shape[0]) if measure is None else measure.valid.astype(np.float64)
    units = Units.of_values(one if measure is None else measure.values, one)
    seen = np.bincount(outputs.group, one, outputs.groups)
    kind = CATALOGUE[aggregate.function]
    with np.errstate(all="ignore"):
        linear = linearised(kind, units, outputs.group, Units.none(outputs.groups), outputs.total)
        value, error = linear.value, outputs.reach(linear.residual, confidence)
        if outputs.random and aggregate.function != "count":
            error = reach_of_few(error, linear, outputs.group, one > 0.0, confidence)
    more = outputs.unseen(linear.residual) if kind.interval == "total" else np.zeros(outputs.groups)
    numbers = []
    for g in range(outputs.groups):
        least = float(seen[g]) if aggregate.function == "count" else -math.inf
        told = float(value[g])
        if aggregate.function != "count" and not seen[g]:
            numbers.append(Number(None, Estimate.guess(math.nan)))
        elif not outputs.random:
            certain = aggregate.function == "count"
            numbers.append(Number(told, Estimate.between(told, least, math.inf) if certain else Estimate.guess(told)))
        elif not math.isfinite(told) or not math.isfinite(error[g]):
            numbers.append(Number(told, Estimate.guess(told)))
        else:
            reach = float(error[g])
            low = min(told, max(least, told - reach + min(0.0, float(more[g]))))
            high = told + reach + max(0.0, float(more[g]))
            numbers.append(Number(told, Estimate(told, low, high, confidence, False)))
    return numbers


def _extreme(measure: Measure | None, chosen: Array, *, largest: bool) -> Number:
    """What was found: a true output, so a bound on one side."""
    assert measure is not None
    values = measure.values[chosen & measure.valid]
    if values.shape[0] == 0:
        return Number(None, Estimate.guess(math.nan))
    numbers = values[~np.isnan(values)]
    if numbers.shape[0] == 0 or (largest and numbers.shape[0] < values.shape[0]):
        return Number(math.nan, Estimate.exact(math.nan) if largest else Estimate.guess(math.nan))
    found = float(numbers.max() if largest else numbers.min())
    ends = (found, math.inf) if largest else (-math.inf, found)
    shown: int | float = found
    if measure.whole is not None:  # float64 rounds those past 2**53
        whole = measure.whole[chosen & measure.valid]
        shown = int(whole.max() if largest else whole.min())
    return Number(shown, Estimate.between(found, *ends))


def _distribution(
    aggregate: Aggregate, measure: Measure | None, outputs: WeightedOutputs, g: int, labels: pa.Array | None
) -> Number:
    assert measure is not None
    chosen = (outputs.group == g) & measure.valid
    weight = outputs.weight[chosen]
    if aggregate.function == "count_distinct":
        seen = 0 if measure.code is None else int(np.unique(measure.code[chosen]).shape[0])
        return Number(seen, Estimate.between(float(seen), float(seen), math.inf))
    if weight.shape[0] == 0:
        return Number(None, Estimate.guess(math.nan))
    if aggregate.function == "top_k":
        assert measure.code is not None
        values, place = np.unique(measure.code[chosen], return_inverse=True)
        count = np.bincount(place.reshape(-1), weight)
        least = np.bincount(place.reshape(-1))
        best = np.lexsort((values, -count))[: int(aggregate.argument or 1)]
        names = labels.take(pa.array(values[best])).to_pylist() if labels is not None else values[best].tolist()
        return Number(
            [
                {"value": name, "count": float(count[b]), "low": float(least[b]), "high": math.inf}
                for name, b in zip(names, best, strict=True)
            ],
            None,
        )
    order = np.argsort(measure.values[chosen], kind="stable")
    share, continuous = float(aggregate.argument or 0.0), CATALOGUE[aggregate.function].gives == "number"
    value = weighted_quantile(measure.values[chosen][order], weight[order], share, continuous=continuous)
    return Number(value, Estimate.guess(value))
