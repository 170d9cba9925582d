"""Aggregates of groups over a whole relation, with DuckDB's meanings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, place_of
from nile.base.nearest import nearest
from nile.operators.aggregate.sums import FEW, rounded_sum, rounded_sums, whole_sums
from nile.operators.common.rows import groups, ordered, row_codes
from nile.sql.plan import AggregateItem
from nile.summaries.errors import SumOverflow
from nile.summaries.heavy import pa, pc

__all__ = ["aggregated", "fsum_of", "told_total", "whole_totals"]

Array = np.ndarray[Any, Any]


def aggregated(
    item: AggregateItem, values: pa.Array | None, codes: Array, count: int, weight: Array | None = None
) -> pa.Array:
    """One aggregate of `count` groups.  values: its argument [n], None for count(*); codes: the group of each row.

    weight: how many rows each stands for, int64 [n] of 0 or more; None: one each.  The answer is that over the rows
    written out, bit for bit, and costs what the rows given cost.
    Nulls do not count; NaN is the largest number; of no value a count is 0 and everything else null.  Sums of whole
    numbers are exact, and so are the means made of them.  O(n log n).
    Raises SumOverflow for a sum of whole numbers beyond 64 bits.
    """
    if weight is not None:
        kept = weight > 0
        codes, weight = codes[kept], weight[kept]
        values = None if values is None else values.filter(pa.array(kept))
    if values is None:
        return _typed(sizes_of(codes, count, weight), None, item)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if not valid.all():
        values, codes = values.filter(pa.array(valid)), codes[valid]
        weight = None if weight is None else weight[valid]
    if item.distinct:
        weight = None
    if item.distinct and len(values):
        _, first = row_codes([pa.array(codes), values], len(values))
        values, codes = values.take(pa.array(first)), codes[first]
    sizes = sizes_of(codes, count, weight)
    kind = CATALOGUE[item.function]
    match item.function:
        case "count":
            return _typed(sizes, None, item)
        case "min" | "max":
            return _extreme(item, values, codes, sizes)
        case _ if kind.is_quantile:
            return _ordered(item, values, codes, sizes, weight)
        case "sum" | "avg" if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
            return _whole(item, values, codes, count, sizes, weight)
        case _:
            return _moments(item, values, codes, count, sizes, weight)


def sizes_of(codes: Array, count: int, weight: Array | None) -> Array:
    """Rows of each group: int64 [count]."""
    if weight is None:
        return np.array([codes.shape[0]]) if count == 1 else np.bincount(codes, minlength=count)
    sizes = np.zeros(count, np.int64)
    np.add.at(sizes, codes, weight)
    return sizes


def whole_totals(values: pa.Array, codes: Array, count: int, weight: Array | None) -> Array:
    """The sum of whole numbers (or truth values) of each group, however large: int64 [count], or Python's numbers."""
    kind = pa.uint64() if pa.types.is_uint64(values.type) else pa.int64()
    whole = pc.cast(values, kind).to_numpy(zero_copy_only=False)
    if weight is None and whole.dtype == np.int64 and whole.shape[0] >= FEW:
        told = whole_sums(whole, codes, count)
        if told is not None:
            return told
    times = np.ones(1, np.int64) if weight is None else weight
    if whole.shape[0] and float(np.abs(whole.astype(np.float64)).max()) * float(times.max()) * whole.shape[0] < 2**62:
        total = np.zeros(count, np.int64)
        np.add.at(total, codes, whole.astype(np.int64) * times)
        return total
    # Halves of 32 bits cannot overflow below 2**31 rows; with weights Python's numbers have no end.
    if weight is not None:
        sums = [0] * count
        for code, value, often in zip(codes.tolist(), whole.tolist(), weight.tolist(), strict=True):
            sums[code] += value * often
        return np.array(sums, object)
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, codes, (whole >> 32).astype(np.int64))
    np.add.at(low, codes, (whole & 0xFFFFFFFF).astype(np.int64))
    return np.array([(int(above) << 32) + int(below) for above, below in zip(high, low, strict=True)], object)


def _typed(result: Any, null: Array | None, item: AggregateItem) -> pa.Array:
    array = pa.array(result, mask=null)
    return array if array.type == item.field.type else pc.cast(array, item.field.type, safe=False)


def _whole(
    item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array, weight: Array | None
) -> pa.Array:
    """sum and avg of whole numbers."""
    return told_total(item, sizes, whole_totals(values, codes, count, weight), values.type)


def told_total(item: AggregateItem, sizes: Array, totals: Array | None, kind: pa.DataType | None = None) -> pa.Array:
    """count, and sum and avg of whole numbers, by how many values a group has and what they come to.

    sizes: int64 [n]; totals: int64 [n], or Python's numbers; kind: of the values, for messages.  Raises SumOverflow.
    """
    if totals is None:
        return _typed(sizes, None, item)
    if item.function == "avg":
        return _typed(totals.astype(np.float64) / np.maximum(sizes, 1), sizes == 0, item)
    for total in totals if totals.dtype == object else ():
        if not -(1 << 63) <= total < 1 << 63:
            raise SumOverflow(
                f"{item.name}: needed a total of {kind or 'whole numbers'} within 64 bits; got {total}; cast the "
                "column to double"
            )
    return _typed(totals.astype(np.int64), sizes == 0, item)


def _moments(
    item: AggregateItem, values: pa.Array, codes: Array, count: int, sizes: Array, weight: Array | None
) -> pa.Array:
    """sum and avg of doubles (correctly rounded), variances and their roots."""
    kind = CATALOGUE[item.function]
    numbers = nearest(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    out = _totals(numbers, codes, count, weight)
    with np.errstate(all="ignore"):
        if item.function != "sum":
            out = out / sizes
        if kind.is_spread:
            off = _totals((numbers - out[codes]) ** 2, codes, count, weight)
            out = off / np.maximum(sizes + 1 - kind.least, 1)
            out = np.sqrt(out) if kind.is_root else out
    return _typed(np.where(sizes < kind.least, 0.0, out), sizes < kind.least, item)


def _totals(numbers: Array, codes: Array, count: int, weight: Array | None) -> Array:
    """The sum of each group, rounded once: float64 [count], 0 of none."""
    out, left = np.zeros(count), np.ones(count, bool)
    if weight is None and numbers.shape[0] >= FEW:
        if count == 1:
            told = rounded_sum([numbers])
            out[0], left[0] = told or 0.0, told is None
        else:
            out, known = rounded_sums(numbers, codes, count)
            left = ~known
        if not left.any():
            return out
        some = left[codes]
        numbers, codes = numbers[some], codes[some]
    order, begins = groups(codes, count)
    ordered = numbers[order]
    often = None if weight is None else weight[order]
    for group in np.flatnonzero(left & (np.diff(begins) > 0)):
        at = slice(begins[group], begins[group + 1])
        out[group] = _sum(ordered[at], None if often is None else often[at])
    return out


def _sum(values: Array, weight: Array | None) -> float:
    """The sum of all values, each as often as its weight says, rounded once."""
    if np.isfinite(values).all():
        try:
            return math.fsum(values) if weight is None else fsum_of(lambda: iter([(values, weight)]))
        except OverflowError:
            return math.inf if float(values.sum()) > 0 else -math.inf
    with np.errstate(all="ignore"):
        return float(values.sum())


def fsum_of(numbers: Callable[[], Iterator[tuple[Array, Array | None]]]) -> float:
    """math.fsum of finite numbers, float64 [n], each as often as its weight says, int64 [n], or once.

    numbers: the pieces that they come in, as often as they are asked for; with weights products are exact: each is two
    doubles (Dekker, Numerische Mathematik 18 (1971)), or else all are fractions.  Raises OverflowError.
    """
    if any(weight is not None and _is_far(values, weight) for values, weight in numbers()):
        total = Fraction(0)
        for values, weight in numbers():
            often = [1] * values.shape[0] if weight is None else weight.tolist()
            total += sum(Fraction(v) * w for v, w in zip(values.tolist(), often, strict=True))
        return float(total)
    return math.fsum(chain.from_iterable(_terms(values, weight).tolist() for values, weight in numbers()))


def _is_far(values: Array, weight: Array) -> bool:
    """Whether a product of a value and its weight may not be two doubles."""
    size = np.abs(values)
    far = (size > 2.0**900) | ((size < 2.0**-900) & (size > 0.0))
    return int(weight.max(initial=0)) > 1 << 53 or bool(far.any())


def _terms(values: Array, weight: Array | None) -> Array:
    """Doubles whose sum is that of the products."""
    if weight is None:
        return values
    times = weight.astype(np.float64)
    product = values * times
    (high, low), (times_high, times_low) = _halves(values), _halves(times)
    error = ((high * times_high - product) + high * times_low + low * times_high) + low * times_low
    return np.concatenate([product, error])


def _halves(values: Array) -> tuple[Array, Array]:
    spread = 134217729.0 * values
    high = spread - (spread - values)
    return high, values - high


def _extreme(item: AggregateItem, values: pa.Array, codes: Array, sizes: Array) -> pa.Array:
    """min and max: of equal values (0.0 and -0.0) the first and the last row's.  20 ns a number, others by their ranks.

    Of values with weights each is there, or not.
    """
    places = ordered(values)
    if item.function == "max":
        places = ~places  # the order of whole numbers turned round, without one that overflows
    least = np.full(sizes.shape[0], np.iinfo(np.int64).max)
    np.minimum.at(least, codes, places)
    hits = np.flatnonzero(places == least[codes])
    row = np.zeros(sizes.shape[0], np.int64)
    last = item.function == "max"
    row[codes[hits] if last else codes[hits[::-1]]] = hits if last else hits[::-1]
    taken = values.take(pa.array(row, mask=sizes == 0)) if len(values) else pa.nulls(sizes.shape[0], values.type)
    return taken if taken.type == item.field.type else pc.cast(taken, item.field.type, safe=False)


def _ordered(item: AggregateItem, values: pa.Array, codes: Array, sizes: Array, weight: Array | None) -> pa.Array:
    """Quantiles: values sorted inside their groups, NaN last."""
    pairs = pa.record_batch([pa.array(codes), values], names=["group", "value"])
    keys = [("group", "ascending"), ("value", "ascending")]
    order = pc.sort_indices(pairs, sort_keys=keys).to_numpy(zero_copy_only=False)
    begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    if weight is not None:  # every row once more for each that it stands for, as places only
        order = Repeated(order, np.cumsum(weight[order]))
    null = sizes == 0
    kind = CATALOGUE[item.function]
    share = item.fraction if kind.share is None else kind.share
    assert share is not None
    continuous = kind.gives == "number"
    place = np.array([place_of(max(n, 1), share, continuous=continuous) for n in sizes.tolist()])
    if continuous:
        return _between(item, values, order, begins, place, null)
    taken = _taken(values, order, begins + place.astype(np.int64), null)
    return taken if taken.type == item.field.type else pc.cast(taken, item.field.type, safe=False)


class Repeated:
    """Rows in order, each as often as its weight says, without writing them out.  ends: where each one's places end."""

    def __init__(self, rows: Array, ends: Array) -> None:
        self._rows = rows
        self._ends = ends
        self.shape = (int(ends[-1]) if ends.shape[0] else 0,)

    def __getitem__(self, places: Array) -> Array:
        found: Array = self._rows[np.searchsorted(self._ends, places, side="right")]
        return found


def _between(
    item: AggregateItem, values: pa.Array, order: Array | Repeated, begins: Array, place: Array, null: Array
) -> pa.Array:
    """The values on both sides of each place in proportion, halves without overflow."""
    below = np.floor(place).astype(np.int64)
    ends = [_taken(values, order, begins + at, null) for at in (below, np.ceil(place).astype(np.int64))]
    low, high = (nearest(end, pa.float64(), safe=False).to_numpy(zero_copy_only=False) for end in ends)
    over = place - below
    with np.errstate(all="ignore"):
        mixed = np.where(over == 0.5, low / 2 + high / 2, low + (high - low) * over)
        mixed = np.where(np.isinf(high - low), low * (1 - over) + high * over, mixed)
    return _typed(np.where((low == high) | (over == 0), low, mixed), null, item)


def _taken(values: pa.Array, order: Array | Repeated, place: Array, null: Array) -> pa.Array:
    if not len(values):
        return pa.nulls(null.shape[0], values.type)
    index = order[np.minimum(place, order.shape[0] - 1)]
    return values.take(pa.array(index.astype(np.int64), mask=null))
