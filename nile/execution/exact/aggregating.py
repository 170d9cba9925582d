"""Aggregates of groups over a whole relation, with DuckDB's meanings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, place_of
from nile.execution.exact.rows import groups, row_codes
from nile.sql.plan import AggregateItem
from nile.summaries.errors import SumOverflow
from nile.summaries.heavy import pa, pc

__all__ = ["aggregated"]

Array = np.ndarray[Any, Any]


def aggregated(item: AggregateItem, values: pa.Array | None, codes: Array, count: int) -> pa.Array:
    """One aggregate of `count` groups.  values: its argument [n], None for count(*); codes: the group of each row.

    Nulls do not count; NaN is the largest number; of no value a count is 0 and everything else null.  Sums of whole
    numbers are exact, and so are the means made of them.  O(n log n).
    Raises SumOverflow for a sum of whole numbers beyond 64 bits.
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
    kind = CATALOGUE[item.function]
    match item.function:
        case "count":
            return _typed(sizes, None, item)
        case "min" | "max":
            return _ordered(item, values, codes, sizes)
        case _ if kind.is_quantile:
            return _ordered(item, values, codes, sizes)
        case "sum" | "avg" if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
            return _whole(item, values, codes, count, sizes)
        case _:
            return _moments(item, values, codes, count, sizes)


def _typed(result: Any, null: Array | None, item: AggregateItem) -> pa.Array:
    array = pa.array(result, mask=null)
    return array if array.type == item.field.type else pc.cast(array, item.field.type, safe=False)


def _whole(item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array) -> pa.Array:
    """sum and avg of whole numbers: exact totals, as halves of 32 bits that cannot overflow below 2**31 rows."""
    kind = pa.uint64() if pa.types.is_uint64(values.type) else pa.int64()
    whole = pc.cast(values, kind).to_numpy(zero_copy_only=False)
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, codes, (whole >> 32).astype(np.int64))
    np.add.at(low, codes, (whole & 0xFFFFFFFF).astype(np.int64))
    high, low = high + (low >> 32), low & 0xFFFFFFFF
    fits = (high >= -(1 << 31)) & (high < 1 << 31)
    with np.errstate(over="ignore"):
        total = (high << 32) + low
    if item.function == "avg":
        exact = np.where(fits, total.astype(np.float64), high * 4294967296.0 + low)
        return _typed(exact / np.maximum(sizes, 1), sizes == 0, item)
    if not fits.all():
        at = int(np.flatnonzero(~fits)[0])
        raise SumOverflow(
            f"sum: needed a total within 64 bits; got {(int(high[at]) << 32) + int(low[at])}; cast the column to double"
        )
    return _typed(total, sizes == 0, item)


def _moments(item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array) -> pa.Array:
    """sum and avg of doubles (correctly rounded), variances and their roots."""
    kind = CATALOGUE[item.function]
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
        elif n >= kind.least:
            mean = total / n
            spread = _sum((part - mean) ** 2) / (n + 1 - kind.least)
            out[group] = math.sqrt(spread) if kind.is_root else spread
    return _typed(out, sizes < kind.least, item)


def _sum(values: Array) -> float:
    if np.isfinite(values).all():
        try:
            return math.fsum(values)
        except OverflowError:
            return math.inf if float(values.sum()) > 0 else -math.inf
    with np.errstate(all="ignore"):
        return float(values.sum())


def _ordered(item: AggregateItem, values: pa.Array, codes: Array, sizes: Array) -> pa.Array:
    """min, max and quantiles: values sorted inside their groups, NaN last."""
    pairs = pa.record_batch([pa.array(codes), values], names=["group", "value"])
    keys = [("group", "ascending"), ("value", "ascending")]
    order = pc.sort_indices(pairs, sort_keys=keys).to_numpy(zero_copy_only=False)
    begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    null = sizes == 0
    if item.function in ("min", "max"):
        place = np.zeros(sizes.shape[0]) if item.function == "min" else np.maximum(sizes - 1.0, 0.0)
    else:
        kind = CATALOGUE[item.function]
        share = item.fraction if kind.share is None else kind.share
        assert share is not None
        continuous = kind.gives == "number"
        place = np.array([place_of(max(n, 1), share, continuous=continuous) for n in sizes.tolist()])
        if continuous:
            return _between(item, values, order, begins, place, null)
    taken = _taken(values, order, begins + place.astype(np.int64), null)
    return taken if taken.type == item.field.type else pc.cast(taken, item.field.type, safe=False)


def _between(item: AggregateItem, values: pa.Array, order: Array, begins: Array, place: Array, null: Array) -> pa.Array:
    """The values on both sides of each place in proportion, halves without overflow."""
    below = np.floor(place).astype(np.int64)
    ends = [_taken(values, order, begins + at, null) for at in (below, np.ceil(place).astype(np.int64))]
    low, high = (pc.cast(end, pa.float64(), safe=False).to_numpy(zero_copy_only=False) for end in ends)
    over = place - below
    with np.errstate(all="ignore"):
        mixed = np.where(over == 0.5, low / 2 + high / 2, low + (high - low) * over)
        mixed = np.where(np.isinf(high - low), low * (1 - over) + high * over, mixed)
    return _typed(np.where((low == high) | (over == 0), low, mixed), null, item)


def _taken(values: pa.Array, order: Array, place: Array, null: Array) -> pa.Array:
    if not len(values):
        return pa.nulls(null.shape[0], values.type)
    index = order[np.minimum(place, order.shape[0] - 1)]
    return values.take(pa.array(index.astype(np.int64), mask=null))
