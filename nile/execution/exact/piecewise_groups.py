"""Groups worked out piece by piece: a row for each group and piece, and of these again, until all are together.

For counts, extremes, and sums and means of whole numbers, whose parts can be put together without a rounding; a sum is
kept as that of the halves of its numbers, which cannot overflow below 2**31 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nile.execution.exact.sorting import footprint, together
from nile.execution.values import column_of, schema_of, value_of
from nile.operators.aggregate.exact import aggregated, told_total
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, Group
from nile.summaries.heavy import pa, pc

__all__ = ["Pieces"]

Array = np.ndarray[Any, Any]


class Pieces:
    """A group at work.  Rows of pieces: keys, then what is kept of each aggregate, then the number of the first row."""

    def __init__(self, plan: Group, kinds: Sequence[pa.DataType | None]) -> None:
        """kinds: the type of each aggregate's argument."""
        self._plan = plan
        self._keys = len(plan.by)
        keys = [pa.field(f"k{k}", item.field.type) for k, item in enumerate(plan.by)]
        parts: list[pa.Field] = []
        for each, kind in zip(plan.aggregates, kinds, strict=True):
            types = [kind] if each.function in ("min", "max") else [pa.int64()] * _width(each)
            parts += [pa.field(f"p{len(parts) + k}", one) for k, one in enumerate(types)]
        self.schema = pa.schema([*keys, *parts, pa.field("\0n", pa.int64())])

    @classmethod
    def of(cls, plan: Group, below: pa.Schema) -> Pieces | None:
        """None where an aggregate is not of that kind.  below: the columns that it is of."""
        none = pa.RecordBatch.from_pylist([], below)
        kinds = []
        for each in plan.aggregates:
            kind = None if each.argument is None else column_of(each.argument, none).type
            if each.function not in ("count", "min", "max", "sum", "avg"):
                return None
            if each.function not in ("min", "max") and each.distinct:
                return None
            if each.function in ("sum", "avg") and not _is_whole(kind):
                return None
            kinds.append(kind)
        return cls(plan, kinds)

    def reduced(self, batches: Iterator[pa.RecordBatch], share: int) -> Iterator[pa.RecordBatch]:
        """Rows of pieces, as few as fit in a share of memory.  batches: columns, then the number of each row."""
        waiting: list[pa.RecordBatch] = []
        taken = 0
        for batch in batches:
            lifted = self._lifted(batch)
            waiting.append(lifted)
            taken += footprint(lifted)
            if taken > share:
                merged = self.merged(together(waiting, self.schema))
                waiting, taken = [merged], footprint(merged)
                if taken > share // 2:
                    yield merged
                    waiting, taken = [], 0
        if waiting:
            yield self.merged(together(waiting, self.schema))

    def keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        found: list[pa.Array] = rows.columns[: self._keys]
        return found

    def _lifted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each row as a piece."""
        n = batch.num_rows
        columns = [value_of(item, batch) for item in self._plan.by]
        for each in self._plan.aggregates:
            if each.argument is None:
                columns.append(pa.array(np.ones(n, np.int64)))
                continue
            values = column_of(each.argument, batch)
            if each.function in ("min", "max"):
                columns.append(values)
                continue
            columns.append(values.is_valid().cast(pa.int64()))
            if each.function != "count":
                kind = pa.uint64() if pa.types.is_uint64(values.type) else pa.int64()
                whole = pc.fill_null(values.cast(kind), 0).to_numpy(zero_copy_only=False)
                columns += [pa.array(part.astype(np.int64)) for part in (whole >> 32, whole & 0xFFFFFFFF)]
        return pa.RecordBatch.from_arrays([*columns, batch.column(batch.num_columns - 1)], schema=self.schema)

    def merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one group as one, in order of first appearance."""
        codes, first = row_codes(self.keys(rows), rows.num_rows)
        count = first.shape[0]
        at = pa.array(first)
        columns = [key.take(at) for key in self.keys(rows)]
        place = self._keys
        for each in self._plan.aggregates:
            if each.function in ("min", "max"):
                columns.append(_extreme(each, rows.column(place), codes, count))
                place += 1
                continue
            for _ in range(_width(each)):
                total = np.zeros(count, np.int64)
                np.add.at(total, codes, rows.column(place).to_numpy())
                columns.append(pa.array(total))
                place += 1
        columns.append(rows.column(place).take(at))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def told(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """(a row for each group, the number of the first row of each).  rows: one of each.  Raises SumOverflow."""
        columns = self.keys(rows)
        place = self._keys
        for each in self._plan.aggregates:
            if each.function in ("min", "max"):
                held = rows.column(place)
                columns.append(held if held.type == each.field.type else pc.cast(held, each.field.type, safe=False))
                place += 1
                continue
            sizes, *halves = (rows.column(place + k).to_numpy() for k in range(_width(each)))
            totals = None
            if halves:
                high, low = halves
                small = np.abs(high).max(initial=0) < 1 << 29 and low.max(initial=0) < 1 << 61
                totals = (high << 32) + low if small else high.astype(object) * (1 << 32) + low.astype(object)
            columns.append(told_total(each, sizes, totals))
            place += _width(each)
        return pa.RecordBatch.from_arrays(columns, schema=schema_of(self._plan.fields)), rows.column(place)


def _width(item: AggregateItem) -> int:
    """How many whole numbers are kept of one: of how many values it is, and the halves of their sum."""
    return 1 if item.function == "count" else 3


def _is_whole(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _extreme(item: AggregateItem, values: pa.Array, codes: Array, count: int) -> pa.Array:
    found = aggregated(item, values, codes, count)
    return found if found.type == values.type else pc.cast(found, values.type, safe=False)
