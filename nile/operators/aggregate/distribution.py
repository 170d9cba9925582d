"""Quantiles, distinct counts and most frequent values, from tuples.

Quantiles: the weighted sample's, with Woodruff's interval (JASA 47 (1952)): the error of the share of tuples
at or below the value, turned into values.  Distinct values: of a sample they are a lower bound; the value is
Charikar et al.'s GEE (PODS 2000, section 4), which is off by a factor of sqrt(N / n) at most in expectation
and no sample can promise much less.  Frequent values: Horvitz-Thompson counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.aggregates.catalogue import place_of
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.evidence import Evidence
from nile.operators.common.rows import groups
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["estimate_distribution", "sorted_quantile", "weighted_quantile"]

Array = np.ndarray[Any, Any]


def estimate_distribution(
    aggregate: Aggregate, m: int, evidence: Evidence, confidence: float, labels: pa.Array | None
) -> list[Number]:
    """One Number a group.  labels: the distinct values of the measure, by code (for distinct counts and top_k)."""
    measure = evidence.data.measures[m]
    counts = measure.valid[evidence.at]
    at, stratum = evidence.at[counts], evidence.stratum[counts]
    group = evidence.data.group[at]
    order, cuts = groups(group, evidence.data.groups)
    at, stratum = at[order], stratum[order]
    weight = (evidence.size / np.maximum(evidence.drawn, 1))[stratum]
    numbers = []
    for g in range(evidence.data.groups):
        part = slice(cuts[g], cuts[g + 1])
        if aggregate.function == "count_distinct":
            numbers.append(_distinct(measure.code[at[part]], weight[part], evidence))  # type: ignore[index]
        elif at[part].shape[0] == 0:
            numbers.append(Number(None, None if evidence.is_complete else Estimate.guess(math.nan)))
        elif aggregate.function == "top_k":
            code = measure.code[at[part]]  # type: ignore[index]
            numbers.append(_top(code, stratum[part], int(aggregate.argument or 1), evidence, confidence, labels))
        else:
            share = float(aggregate.argument or 0.0)
            continuous = aggregate.function == "quantile_cont"
            if evidence.is_complete:
                values = measure.values if measure.whole is None else measure.whole
                told = sorted_quantile(np.sort(values[at[part]]), share, continuous=continuous)
                shown = told if continuous or measure.whole is None else int(told)
                numbers.append(Number(shown, Estimate.exact(float(told))))
            else:
                taken = measure.values[at[part]]
                numbers.append(_quantile(taken, stratum[part], share, continuous, evidence, confidence))
    return numbers


def sorted_quantile(values: Array, share: float, *, continuous: bool) -> float:
    """The quantile of all values, ascending (NaN last), as SQL has it: PERCENTILE_CONT or PERCENTILE_DISC."""
    place = place_of(values.shape[0], share, continuous=continuous)
    if not continuous:
        told = values[int(place)]
        return float(told) if values.dtype.kind == "f" else int(told)
    below, above = math.floor(place), math.ceil(place)
    low, high = float(values[below]), float(values[above])
    return low if below == above or low == high else low + (high - low) * (place - below)


def weighted_quantile(values: Array, weight: Array, share: float, *, continuous: bool) -> float:
    """The quantile of values, ascending, that stand for `weight` each; of equal weights it is `sorted_quantile`.

    A value begins where the weights below it end; `continuous` lies between the two that begin around
    share * (where the last begins), in proportion.
    """
    reached = np.cumsum(weight)
    if not continuous:
        place = int(np.searchsorted(reached, share * float(reached[-1]) * (1.0 - 1e-12)))
        return float(values[min(place, values.shape[0] - 1)])
    begins = reached - weight
    target = share * float(begins[-1])
    below = max(int(np.searchsorted(begins, target, "right")) - 1, 0)
    above = min(below + 1, values.shape[0] - 1)
    low, high = float(values[below]), float(values[above])
    over = (target - begins[below]) / weight[below]
    return low if low == high or over <= 0.0 else low + (high - low) * float(over)


def _quantile(
    values: Array, stratum: Array, share: float, continuous: bool, evidence: Evidence, confidence: float
) -> Number:
    order = np.argsort(values, kind="stable")
    values, stratum = values[order], stratum[order]
    weight = (evidence.size / np.maximum(evidence.drawn, 1))[stratum]
    total = float(weight.sum())

    def at(p: float) -> float:
        return weighted_quantile(values, weight, p, continuous=False)

    value = weighted_quantile(values, weight, share, continuous=continuous)
    kept = evidence.drawn < evidence.size
    drawn, size = evidence.drawn[kept], evidence.size[kept]
    below = (values <= value).astype(np.float64) - share
    open_ = kept[stratum]
    if not open_.any():
        return Number(value, Estimate.guess(value))
    sample = type(evidence.sample)(
        size=size,
        drawn=drawn,
        stratum=(np.cumsum(kept) - 1)[stratum[open_]],
        group=np.zeros(int(open_.sum()), np.int64),
        groups=1,
    )
    totals = sample.totals(below[open_] / total, 1.0 / total)
    reach = float(totals.reach(confidence)[0])
    if not math.isfinite(reach) or math.isnan(value):
        return Number(value, Estimate.guess(value))
    # Beyond the sample's ends nothing is known.
    low = at(share - reach) if share - reach > 0.0 else -math.inf
    high = at(share + reach) if share + reach < 1.0 else math.inf
    return Number(value, Estimate(value, min(low, value), max(high, value), confidence, bool(totals.certified[0])))


def _distinct(code: Array, weight: Array, evidence: Evidence) -> Number:
    values, place, count = np.unique(code, return_inverse=True, return_counts=True)
    seen = int(values.shape[0])
    if evidence.is_complete:
        return Number(seen, Estimate.exact(float(seen)))
    once = count[place] == 1
    value = float((count > 1).sum()) + float(np.sqrt(weight[once]).sum())
    unseen = int((evidence.size - evidence.drawn).sum())
    value = min(max(value, float(seen)), float(seen + unseen))
    return Number(value, Estimate.between(value, float(seen), float(seen + unseen)))


def _top(code: Array, stratum: Array, k: int, evidence: Evidence, confidence: float, labels: pa.Array | None) -> Number:
    """The k values with the largest counts, ties by first appearance: dicts of value, count, low, high."""
    values, place = np.unique(code, return_inverse=True)
    kept = evidence.drawn < evidence.size
    open_ = kept[stratum]
    known = np.bincount(place[~open_], minlength=values.shape[0]).astype(np.float64)
    if open_.any():
        sample = type(evidence.sample)(
            size=evidence.size[kept],
            drawn=evidence.drawn[kept],
            stratum=(np.cumsum(kept) - 1)[stratum[open_]],
            group=place[open_].astype(np.int64),
            groups=int(values.shape[0]),
        )
        totals = sample.totals(np.ones(int(open_.sum())), 1.0)
        count = known + totals.value
        reach = totals.reach(confidence)
        least = known + sample.seen()
    else:
        count, least, reach = known, known, np.zeros(values.shape[0])
    best = np.lexsort((values, -count))[:k]
    names = labels.take(pa.array(values[best])).to_pylist() if labels is not None else values[best].tolist()
    return Number(
        [
            {
                "value": name,
                "count": float(count[b]),
                "low": float(max(least[b], count[b] - reach[b])),
                "high": float(count[b] + reach[b]),
            }
            for name, b in zip(names, best, strict=True)
        ],
        None,
    )
