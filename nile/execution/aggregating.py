"""Aggregates of groups over a whole relation, with DuckDB's meanings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.execution.rows import groups, row_codes
from nile.sql.plan import AggregateItem
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

__all__ = ["aggregated"]

Array = np.ndarray[Any, Any]
_INT64 = np.iinfo(np.int64)


def aggregated(item: AggregateItem, values: pa.Array | None, codes: Array, count: int) -> pa.Array:
    """One aggregate of `count` groups.  values: its argument [n], None for count(*); codes: the group of each row.

    Nulls do not count; NaN is the largest number; of no value a count is 0 and everything else null.  A sum of
    whole numbers beyond 64 bits is null.  variance and stddev are those of a sample; quantile takes the value at
    that place of the sorted ones, median the mean of the two in the middle.  O(n log n).
    """
    if values is None:
        return _typed(np.bincount(codes, minlength=count), None, item)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if not valid.all():
        values, codes = values.filter(pa.array(valid)), codes[valid]
    if item.distinct and len(values):
        _, first = row_codes([pa.array(codes), values], len(values))
        values, codes = values.take(pa.array(first)), codes[first]
    sizes = np.bincount(codes, minlength=count)
    match item.function:
        case "count":
            return _typed(sizes, None, item)
        case "min" | "max" | "quantile" | "median":
            return _ordered(item, values, codes, sizes)
        case "sum" if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
            return _whole_sum(item, values, codes, count, sizes)
        case _:
            return _moments(item, values, codes, count, sizes)


def _typed(result: Any, null: Array | None, item: AggregateItem) -> pa.Array:
    array = pa.array(result, mask=null)
    return array if array.type == item.field.type else pc.cast(array, item.field.type, safe=False)


def _whole_sum(item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array) -> pa.Array:
    whole = pc.cast(values, pa.int64(), safe=False).to_numpy(zero_copy_only=False)
    bound = np.zeros(count)
    np.add.at(bound, codes, np.abs(whole.astype(np.float64)))
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, whole)
    null = sizes == 0
    for group in np.flatnonzero(bound >= 2.0**62):
        total = sum(int(value) for value in whole[codes == group])
        if _INT64.min <= total <= _INT64.max:
            sums[group] = total
        else:
            null[group] = True
    return _typed(sums, null, item)


def _moments(item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array) -> pa.Array:
    """sum and avg of doubles (correctly rounded), variance and stddev."""
    numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    order, begins = groups(codes, count)
    ordered = numbers[order]
    out = np.zeros(count)
    for group in range(count):
        part = ordered[begins[group] : begins[group + 1]]
        n = part.shape[0]
        if not n:
            continue
        total = _sum(part)
        if item.function == "sum":
            out[group] = total
        elif item.function == "avg":
            out[group] = total / n
        elif n > 1:
            mean = total / n
            spread = _sum((part - mean) ** 2) / (n - 1)
            out[group] = math.sqrt(spread) if item.function == "stddev" else spread
    least = 2 if item.function in ("variance", "stddev") else 1
    return _typed(out, sizes < least, item)


def _sum(values: Array) -> float:
    if np.isfinite(values).all():
        try:
            return math.fsum(values)
        except OverflowError:
            return math.inf if float(values.sum()) > 0 else -math.inf
    with np.errstate(all="ignore"):
        return float(values.sum())


def _ordered(item: AggregateItem, values: pa.Array, codes: Array, sizes: Array) -> pa.Array:
    """min, max, median and quantile: values sorted inside their groups, NaN last."""
    pairs = pa.record_batch([pa.array(codes), values], names=["group", "value"])
    keys = [("group", "ascending"), ("value", "ascending")]
    order = pc.sort_indices(pairs, sort_keys=keys).to_numpy(zero_copy_only=False)
    begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    null = sizes == 0
    last = np.maximum(sizes - 1, 0)
    if item.function == "median":
        return _median(item, values, order, begins, last, null)
    if item.function == "min":
        place = begins
    elif item.function == "max":
        place = begins + last
    else:
        fraction = 0.5 if item.fraction is None else item.fraction
        at = np.ceil(sizes * fraction).astype(np.int64) - 1
        place = begins + np.clip(at, 0, last)
    taken = _taken(values, order, place, null)
    return taken if taken.type == item.field.type else pc.cast(taken, item.field.type, safe=False)


def _median(item: AggregateItem, values: pa.Array, order: Array, begins: Array, last: Array, null: Array) -> pa.Array:
    low = _taken(values, order, begins + last // 2, null)
    high = _taken(values, order, begins + (last + 1) // 2, null)
    if pa.types.is_temporal(values.type):
        ticks = [pc.cast(side, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) for side in (low, high)]
        middle = pa.array(ticks[0] + (ticks[1] - ticks[0]) // 2, mask=null)
        return pc.cast(middle, item.field.type)
    with np.errstate(all="ignore"):
        first, second = (pc.cast(side, pa.float64()).to_numpy(zero_copy_only=False) for side in (low, high))
        middle = np.where(first == second, first, first / 2 + second / 2)
    return _typed(middle, null, item)


def _taken(values: pa.Array, order: Array, place: Array, null: Array) -> pa.Array:
    if not len(values):
        return pa.nulls(null.shape[0], values.type)
    index = order[np.minimum(place, order.shape[0] - 1)]
    return values.take(pa.array(index.astype(np.int64), mask=null))
