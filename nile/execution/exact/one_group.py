"""Aggregates of one group whose rows memory does not hold: they are read from disk as often as it takes.

The answers are those of `nile.operators.aggregate.exact`, bit for bit: sums of doubles are rounded once, of however
many pieces their values come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, place_of
from nile.answers.tabular import held_together
from nile.base.spill import Spill, Spills
from nile.execution.exact.collecting import collected, counting_rows
from nile.execution.exact.parting import parts, row_hashes
from nile.execution.exact.sorting import Sorter, together
from nile.execution.over.ordering import order_of
from nile.execution.values import column_of
from nile.expressions.tree import Column
from nile.operators.aggregate.exact import aggregated, told_total, whole_totals
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, SortKey
from nile.summaries.heavy import pa, pc

__all__ = ["OneGroup"]

Array = np.ndarray[Any, Any]
Values = Callable[[], Iterator[pa.Array]]
_SORTED_BY = (SortKey(Column("value")),)


@dataclass(frozen=True, slots=True)
class OneGroup:
    """All rows of a group on disk.  share: bytes of memory that work may take."""

    rows: Spill
    spills: Spills
    share: int

    def aggregated(self, item: AggregateItem) -> pa.Array:
        """One aggregate: an array of one value.  Raises SumOverflow; MemoryRefused for a list beyond memory."""
        kind = CATALOGUE[item.function]
        if kind.is_collected:
            return self._first(item) if kind.gives == "same" else self._listed(item)
        if item.argument is None:
            return _typed(sum(batch.num_rows for batch in self.rows.kept()), item)
        if item.function in ("min", "max"):
            return self._extreme(item)
        values = self._different(item) if item.distinct else lambda: self._values(item)
        count = sum(map(len, values()))
        if item.function == "count":
            return _typed(count, item)
        if kind.is_quantile:
            return self._quantile(item, values, count)
        if count < kind.least:
            return pa.nulls(1, item.field.type)
        types = {each.type for each in values()}
        if item.function in ("sum", "avg") and all(pa.types.is_integer(t) or pa.types.is_boolean(t) for t in types):
            return _whole(item, values, count, *types)
        return _moment(item, values, count)

    def _values(self, item: AggregateItem) -> Iterator[pa.Array]:
        """The values that are not null."""
        assert item.argument is not None
        for batch in self.rows.kept():
            values = column_of(item.argument, batch)
            kept = values.drop_null() if values.null_count else values
            if len(kept):
                yield kept

    def _as_rows(self, values: Iterator[pa.Array]) -> Iterator[pa.RecordBatch]:
        return (pa.RecordBatch.from_arrays([each], names=["value"]) for each in values)

    def _schema(self, item: AggregateItem) -> pa.Schema:
        first = next(self._values(item), None)
        return pa.schema([("value", pa.null() if first is None else first.type)])

    def _different(self, item: AggregateItem) -> Values:
        """Each value once, in any order."""
        schema = self._schema(item)
        kept = self.spills.new(schema)

        def hashes(batch: pa.RecordBatch) -> Array:
            return row_hashes(batch.columns, batch.num_rows)

        for part in parts(self._as_rows(self._values(item)), schema, hashes, self.spills, self.share):
            found = together([], schema)
            for batch in part.kept() if isinstance(part, Spill) else [part]:
                both = together([found, batch], schema)
                _, first = row_codes(both.columns, both.num_rows)
                found = both.take(pa.array(first))
            self.spills.put(kept, found)
        return lambda: (batch.column(0) for batch in kept.kept())

    def _extreme(self, item: AggregateItem) -> pa.Array:
        best = pa.nulls(1, item.field.type)
        for values in self._values(item):
            both = pa.concat_arrays([best, values if values.type == best.type else pc.cast(values, best.type)])
            best = aggregated(item, both, np.zeros(len(both), np.int64), 1)
        return best

    def _quantile(self, item: AggregateItem, values: Values, count: int) -> pa.Array:
        """By the two values between which it lies, with as many rows as there are below and above."""
        kind = CATALOGUE[item.function]
        share = item.fraction if kind.share is None else kind.share
        assert share is not None
        if not count:
            return pa.nulls(1, item.field.type)
        low = math.floor(place_of(count, share, continuous=kind.gives == "number"))
        schema = self._schema(item)
        sorter = Sorter(self.spills, schema, lambda batch: order_of(_SORTED_BY, batch), self.share, low + 2)
        for batch in self._as_rows(values()):
            sorter.add(batch)
        found, seen = [], 0
        for batch in sorter.rows():
            begin, end = max(0, low - seen), min(batch.num_rows, low + 2 - seen)
            if begin < end:
                found.append(batch.column(0).slice(begin, end - begin))
            seen += batch.num_rows
        both = pa.concat_arrays(found)
        weight = np.array([low + 1, count - low - 1][: len(both)], np.int64)
        return aggregated(replace(item, distinct=False), both, np.zeros(len(both), np.int64), 1, weight)

    def _first(self, item: AggregateItem) -> pa.Array:
        """Of the rows so far that of which the aggregate is."""
        best = together([], self.rows.schema)
        for batch in self.rows.kept():
            both = together([best, batch], self.rows.schema)
            order = counting_rows(item, both, np.zeros(both.num_rows, np.int64))
            best = both.take(pa.array(order[-1:] if item.function == "last" else order[:1]))
        return collected(item, best, np.zeros(best.num_rows, np.int64), 1)

    def _listed(self, item: AggregateItem) -> pa.Array:
        rows = together(held_together(self.rows.kept()), self.rows.schema)
        return collected(item, rows, np.zeros(rows.num_rows, np.int64), 1)


def _typed(value: Any, item: AggregateItem) -> pa.Array:
    array = pa.array([value])
    return array if array.type == item.field.type else pc.cast(array, item.field.type, safe=False)


def _whole(item: AggregateItem, values: Values, count: int, kind: pa.DataType) -> pa.Array:
    total = sum(int(whole_totals(each, np.zeros(len(each), np.int64), 1, None)[0]) for each in values())
    return told_total(item, np.array([count]), np.array([total], object), kind)


def _moment(item: AggregateItem, values: Values, count: int) -> pa.Array:
    """sum and avg of doubles, variances and their roots."""
    kind = CATALOGUE[item.function]

    def numbers() -> Iterator[Array]:
        return (pc.cast(each, pa.float64(), safe=False).to_numpy(zero_copy_only=False) for each in values())

    total = _sum(numbers)
    if item.function == "sum":
        return _typed(total, item)
    mean = total / count
    if item.function == "avg":
        return _typed(mean, item)

    def off() -> Iterator[Array]:
        for each in numbers():
            with np.errstate(all="ignore"):
                yield (each - mean) ** 2

    spread = _sum(off) / (count + 1 - kind.least)
    return _typed(math.sqrt(spread) if kind.is_root else spread, item)


def _sum(numbers: Callable[[], Iterator[Array]]) -> float:
    """The sum of all, rounded once."""
    rough, finite = 0.0, True
    for each in numbers():
        with np.errstate(all="ignore"):
            rough += float(each.sum())
        finite = finite and bool(np.isfinite(each).all())
    if not finite:
        return rough
    try:
        return math.fsum(chain.from_iterable(each.tolist() for each in numbers()))
    except OverflowError:
        return math.inf if rough > 0 else -math.inf
