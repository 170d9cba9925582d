"""Aggregates of one group whose rows memory does not hold: they are read from disk as often as it takes.

The answers are those of `nile.operators.aggregate.exact`, bit for bit: sums of doubles are rounded once, of however
many pieces their values come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, place_of
from nile.answers.tabular import beyond_room, room_for_answers
from nile.base.nearest import nearest
from nile.base.spill import Spill, Spills
from nile.execution.exact.collecting import collected, counting_rows
from nile.execution.exact.parting import parts, row_hashes
from nile.execution.exact.sorting import Sorter, together
from nile.execution.over.ordering import order_of
from nile.execution.values import column_of, filtered
from nile.expressions.tree import Column, columns_of
from nile.operators.aggregate.exact import aggregated, fsum_of, told_total, whole_totals
from nile.operators.aggregate.sums import FEW, rounded_sum
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, SortKey
from nile.summaries.heavy import pa, pc

__all__ = ["OneGroup"]

Array = np.ndarray[Any, Any]
Values = Callable[[], Iterator[tuple[pa.Array, Array | None]]]
_LISTED = 2
"""Of a list: copies of its rows while it is made."""
_PLACES, _SORTED, _RANKED, _TOLD, _JOINED = 24, 16, 72, 304, 16
"""And bytes a row, as measured: of places, for each key of an order that is a number and that is not, to tell values
apart, to join text."""
_SORTED_BY = (SortKey(Column("value")),)


@dataclass(frozen=True, slots=True)
class OneGroup:
    """All rows of a group on disk.  share: bytes of memory that work may take.

    weight: the column that says how many rows each stands for, 1 or more; "": one each.  Not for lists and the like.
    """

    rows: Spill
    spills: Spills
    share: int
    weight: str = ""

    def aggregated(self, item: AggregateItem) -> pa.Array:
        """One aggregate: an array of one value.  Raises SumOverflow; MemoryRefused for a list beyond memory."""
        kind = CATALOGUE[item.function]
        if kind.is_collected:
            return self._first(item) if kind.gives == "same" else self._listed(item)
        if item.argument is None:
            return _typed(sum(batch.num_rows for batch in self.rows.kept()), item)
        if item.function in ("min", "max"):
            return self._extreme(item)
        values = self._different(item) if item.distinct else lambda: self._weighted(item)
        count = sum(len(each) if weight is None else int(weight.sum()) for each, weight in values())
        if item.function == "count":
            return _typed(count, item)
        if kind.is_quantile:
            return self._quantile(item, values, count)
        if count < kind.least:
            return pa.nulls(1, item.field.type)
        types = {each.type for each, _ in values()}
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

    def _weighted(self, item: AggregateItem) -> Iterator[tuple[pa.Array, Array | None]]:
        """The values that are not null, and how many rows each stands for."""
        if not self.weight:
            yield from ((values, None) for values in self._values(item))
            return
        assert item.argument is not None
        for batch in self.rows.kept():
            values = column_of(item.argument, batch)
            weight = batch.column(batch.schema.get_field_index(self.weight)).filter(values.is_valid())
            if len(weight):
                yield values.drop_null(), weight.to_numpy(zero_copy_only=False)

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
        return lambda: ((batch.column(0), None) for batch in kept.kept())

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
        schema = self._schema(item).append(pa.field("weight", pa.int64()))
        sorter = Sorter(self.spills, schema, lambda batch: order_of(_SORTED_BY, batch), self.share, low + 2)
        for each, weight in values():
            often = np.ones(len(each), np.int64) if weight is None else weight
            sorter.add(pa.RecordBatch.from_arrays([each, pa.array(often)], schema=schema))
        found, seen = [], 0
        for batch in sorter.rows():
            ends = seen + np.cumsum(batch.column(1).to_numpy())
            inside = [place for place in (low, low + 1) if seen <= place < int(ends[-1])]
            at = np.searchsorted(ends, np.array(inside, np.int64), side="right")
            found.append(batch.column(0).take(pa.array(at)))
            seen = int(ends[-1])
        both = pa.concat_arrays(found)
        around = np.array([low + 1, count - low - 1][: len(both)], np.int64)
        return aggregated(replace(item, distinct=False), both, np.zeros(len(both), np.int64), 1, around)

    def _first(self, item: AggregateItem) -> pa.Array:
        """Of the rows so far that of which the aggregate is."""
        best = together([], self.rows.schema)
        for batch in self.rows.kept():
            both = together([best, batch], self.rows.schema)
            order = counting_rows(item, both, np.zeros(both.num_rows, np.int64))
            best = both.take(pa.array(order[-1:] if item.function == "last" else order[:1]))
        return collected(item, best, np.zeros(best.num_rows, np.int64), 1)

    def list_bytes(self, item: AggregateItem) -> tuple[int, int]:
        """(the rows that a list is of, bytes that it takes while it is made)."""
        count = size = 0
        kinds: list[pa.DataType] = []
        for batch in self._looked_at(item):
            count += batch.num_rows
            kinds = kinds or [column_of(key.node, batch).type for key in item.order]
            size += int(batch.nbytes) + (0 if isinstance(item.argument, Column) else self._value_bytes(item, batch))
        by_row = _PLACES + sum(_SORTED if pa.types.is_primitive(kind) else _RANKED for kind in kinds)
        by_row += _TOLD * item.distinct + _JOINED * (item.function == "string_agg")
        return count, _LISTED * size + by_row * count

    def _listed(self, item: AggregateItem) -> pa.Array:
        count, needed = self.list_bytes(item)
        if needed > room_for_answers():
            raise beyond_room(
                f"{item.function}: needed all values of one group in memory, as they are one value of the answer",
                count, needed, "select the rows themselves, or list fewer: WHERE, or more groups",
            )  # fmt: skip
        rows = together(list(self._looked_at(item)), self.rows.schema)
        return collected(item, rows, np.zeros(rows.num_rows, np.int64), 1)

    def _looked_at(self, item: AggregateItem) -> Iterator[pa.RecordBatch]:
        """The rows that count, with the columns that are looked at, one at least."""
        assert item.argument is not None
        nodes = [item.argument, *(key.node for key in item.order), *([] if item.where is None else [item.where])]
        names = list(dict.fromkeys(name for node in nodes for name in columns_of(node))) or self.rows.schema.names[:1]
        for batch in self.rows.kept():
            rows = batch.select(names)
            yield rows if item.where is None else filtered(item.where, rows)

    @staticmethod
    def _value_bytes(item: AggregateItem, batch: pa.RecordBatch) -> int:
        assert item.argument is not None
        return int(column_of(item.argument, batch).nbytes)


def _typed(value: Any, item: AggregateItem) -> pa.Array:
    array = pa.array([value])
    return array if array.type == item.field.type else pc.cast(array, item.field.type, safe=False)


def _whole(item: AggregateItem, values: Values, count: int, kind: pa.DataType) -> pa.Array:
    total = sum(int(whole_totals(each, np.zeros(len(each), np.int64), 1, weight)[0]) for each, weight in values())
    return told_total(item, np.array([count]), np.array([total], object), kind)


def _moment(item: AggregateItem, values: Values, count: int) -> pa.Array:
    """sum and avg of doubles, variances and their roots."""
    kind = CATALOGUE[item.function]

    def numbers() -> Iterator[tuple[Array, Array | None]]:
        for each, weight in values():
            yield nearest(each, pa.float64(), safe=False).to_numpy(zero_copy_only=False), weight

    total = _sum(numbers)
    if item.function == "sum":
        return _typed(total, item)
    mean = total / count
    if item.function == "avg":
        return _typed(mean, item)

    def off() -> Iterator[tuple[Array, Array | None]]:
        for each, weight in numbers():
            with np.errstate(all="ignore"):
                yield (each - mean) ** 2, weight

    spread = _sum(off) / (count + 1 - kind.least)
    return _typed(math.sqrt(spread) if kind.is_root else spread, item)


def _sum(numbers: Callable[[], Iterator[tuple[Array, Array | None]]]) -> float:
    """The sum of all, each as often as its weight says, rounded once."""
    rough, finite, rows, once = 0.0, True, 0, True
    for each, weight in numbers():
        with np.errstate(all="ignore"):
            rough += float(each.sum())
        finite = finite and bool(np.isfinite(each).all())
        rows, once = rows + each.shape[0], once and weight is None
    if not finite:
        return rough
    if once and rows >= FEW and (told := rounded_sum(each for each, _ in numbers())) is not None:
        return told
    try:
        return fsum_of(numbers)
    except OverflowError:
        return math.inf if rough > 0 else -math.inf
