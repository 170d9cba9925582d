"""From evidence to numbers: every aggregate with what it is worth.

Whole cells and strata read to their end are known; the rest is a stratified random sample.  Totals are
Horvitz-Thompson, averages the ratio of two of them, with the linearised variance (Cochran 1977, section 6.3),
variances likewise.  Where a number is known its Estimate is exact; a minimum or maximum comes with the bound
that cells give on what was not read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.aggregates.catalogue import CATALOGUE, Kind
from nile.aggregates.linear import Linear, Units, linearised, reach_of_few
from nile.operators.aggregate.evidence import Evidence
from nile.summaries.estimate import Estimate
from nile.summaries.intervals import Totals, nothing_seen
from nile.summaries.moments import Moments

__all__ = ["Number", "estimate_moment"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Number:
    """An aggregate's value and what it is worth.

    value: int or float (a list for top_k); None: null, since no tuple counts, or unknown, since none was seen.
    estimate: the same as an Estimate; None for a null that is certain, and for top_k.
    """

    value: Any
    estimate: Estimate | None


def estimate_moment(aggregate: Aggregate, m: int, evidence: Evidence, confidence: float) -> list[Number]:
    """One Number a group for a count, sum, average, extreme or variance.  m: its measure, -1 for count(*)."""
    if aggregate.function == "count":
        return _counts(m, evidence, confidence)
    if aggregate.function in ("min", "max"):
        return _extremes(m, evidence, largest=aggregate.function == "max")
    base = evidence.base(m)
    if evidence.is_complete:
        return [_known(aggregate.function, base, g) for g in range(evidence.data.groups)]
    measure = evidence.data.measures[m]
    with np.errstate(all="ignore"):
        told, totals = _sampled(CATALOGUE[aggregate.function], base, m, evidence)
        value, certified = told.value, totals.certified
        held = evidence.of(measure.valid)
        group = evidence.sample.group
        reach = reach_of_few(totals.reach(confidence), told, group, held, confidence)
    counted = base.count + np.bincount(group if held.all() else group[held], minlength=evidence.data.groups)
    positive = CATALOGUE[aggregate.function].is_spread
    numbers = []
    every = zip(*(part.tolist() for part in (counted, value, reach, certified)), strict=True)
    for held_of, told_of, reaches, sure in every:
        if not held_of:
            numbers.append(Number(None, Estimate.guess(math.nan)))
        elif not math.isfinite(told_of):
            numbers.append(Number(told_of, Estimate.guess(told_of)))
        else:
            numbers.append(_number(told_of, reaches, confidence, sure, positive=positive))
    return numbers


def _number(value: float, reach: float, confidence: float, certified: bool, *, positive: bool = False) -> Number:
    if not math.isfinite(reach):
        return Number(value, Estimate.guess(value))
    low = max(0.0, value - reach) if positive else value - reach
    return Number(value, Estimate(value, min(low, value), value + reach, confidence, certified))


def _known(function: str, base: Moments, g: int) -> Number:
    """An aggregate of moments that cover everything."""
    n = int(base.count[g])
    kind = CATALOGUE[function]
    if n < kind.least:
        return Number(None, None)
    total: int | float = float(base.total[g]) if base.whole is None else int(base.whole[g])
    value: int | float
    if function == "sum":
        value = total
    elif function == "avg":
        value = total / n
    else:
        value = float(base.squares[g]) / (n + 1 - kind.least)
        value = math.sqrt(value) if kind.is_root else value
    return Number(value, Estimate.exact(float(value)))


def _counts(m: int, evidence: Evidence, confidence: float) -> list[Number]:
    sample, groups = evidence.sample, evidence.data.groups
    known = evidence.rows if m < 0 else evidence.base(m).count
    if evidence.is_complete:
        return [Number(int(known[g]), Estimate.exact(float(known[g]))) for g in range(groups)]
    left = evidence.left
    amount = np.ones(left.shape[0]) if m < 0 else evidence.of(evidence.data.measures[m].valid).astype(np.float64)
    # Where all satisfy, counting them needs no sample, unless they are told apart by group.
    free = evidence.sure if m < 0 and groups == 1 else None
    totals = sample.totals(amount, 1.0, free)
    if free is not None and bool(free.all()):
        return [Number(round(v), Estimate.exact(float(round(v)))) for v in known + totals.value]
    reach, certified = totals.reach(confidence), totals.certified
    seen = np.bincount(sample.group, amount, groups)
    size, drawn, unseen = int(sample.size.sum()), int(sample.drawn.sum()), sample.unseen
    slack = nothing_seen(size, drawn, confidence)
    value = known + totals.value
    least = (known + seen).astype(np.float64)
    # Of none seen the sample shows no spread, nor of all alike, and an interval would be a point.
    high = np.minimum(np.where(seen == 0, value + slack, value + reach), least + unseen)
    low = np.maximum(np.where((seen != 0) & (reach == 0.0), value - slack, value - reach), least)
    ends = value, np.minimum(low, value), np.maximum(high, value), certified
    every = zip(*(part.tolist() for part in ends), strict=True)
    return [Number(told, Estimate(told, below, above, confidence, sure)) for told, below, above, sure in every]


def _sampled(kind: Kind, base: Moments, m: int, evidence: Evidence) -> tuple[Linear, Totals]:
    """(numbers, the total whose error is theirs), with what is known of the largest of them."""
    measure, sample = evidence.data.measures[m], evidence.sample
    units = Units.of_values(evidence.of(measure.values), evidence.of(measure.valid))
    known = Units(base.count.astype(np.float64), base.total, base.squares)
    told = linearised(kind, units, sample.group, known, sample.value)
    largest = _largest(m, evidence, told.mean)
    if kind.is_spread:
        largest = np.maximum(largest**2, told.value**2 if kind.is_root else told.value)
    return told, sample.totals(told.residual, largest * told.scale)


def _largest(m: int, evidence: Evidence, center: Array | float) -> Array:
    """How far from `center` an unread tuple may lie at most: float64 [groups]."""
    return np.maximum(np.abs(evidence.most[m] - center), np.abs(evidence.least[m] - center))


def _extremes(m: int, evidence: Evidence, *, largest: bool) -> list[Number]:
    """What was found, and how far beyond it an unread tuple could lie.  NaN is larger than any number."""
    base, measure = evidence.base(m), evidence.data.measures[m]
    groups = evidence.data.groups
    left = evidence.left[evidence.of(measure.valid)]
    group = evidence.data.group[left]
    values = measure.values[left]
    nan = np.isnan(values)
    nans = base.nans + np.bincount(group[nan], minlength=groups)
    found = (base.high if largest else base.low).copy()
    (np.maximum if largest else np.minimum).at(found, group[~nan], values[~nan])
    seen = base.count + np.bincount(group, minlength=groups)
    numbers = []
    for g in range(groups):
        value: float = float(found[g])
        beyond = float((evidence.most if largest else evidence.least)[m][g])
        if evidence.is_complete:
            beyond = value
        if seen[g] and (nans[g] == seen[g] or (largest and nans[g])):
            # All NaN: a number among the unread ones would be less.
            exact = largest or evidence.is_complete
            numbers.append(Number(math.nan, Estimate.exact(math.nan) if exact else Estimate.guess(math.nan)))
        elif not seen[g]:
            numbers.append(Number(None, None if evidence.is_complete else Estimate.guess(math.nan)))
        else:
            shown: int | float = value if measure.whole is None else _whole(value, evidence, m, g, largest=largest)
            if largest:
                estimate = Estimate.exact(value) if beyond <= value else Estimate.between(value, value, beyond)
            else:
                estimate = Estimate.exact(value) if beyond >= value else Estimate.between(value, beyond, value)
            numbers.append(Number(shown, estimate))
    return numbers


def _whole(value: float, evidence: Evidence, m: int, g: int, *, largest: bool) -> int:
    """An extreme as the integer it is: float64 rounds those past 2**53."""
    whole = evidence.data.measures[m].whole
    if whole is None or abs(value) < 1 << 53 or evidence.known.cells.shape[0]:
        return int(value)
    at = evidence.at[(evidence.data.group[evidence.at] == g) & evidence.data.measures[m].valid[evidence.at]]
    return int(whole[at].max() if largest else whole[at].min())
