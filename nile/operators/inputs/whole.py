"""The exact answer to aggregates of one stream, column by column, as exact SQL works it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.aggregates.catalogue import CATALOGUE
from nile.expressions.conditions import Condition, Value
from nile.operators.aggregate.exact import aggregated
from nile.operators.aggregate.ordered import is_told_as_is
from nile.operators.common.rows import row_codes
from nile.operators.inputs.aggregating import constant
from nile.operators.inputs.loading import Columns
from nile.sql.columns import AggregateItem, Field
from nile.summaries.errors import SumOverflow
from nile.summaries.heavy import pa, pc

__all__ = ["Whole", "whole_of"]

_WHOLE = ("count", "count_distinct")


@dataclass(frozen=True, slots=True)
class Whole:
    """by: the groups, one value each; values: of each aggregate a value for each group; numbers: of each, whether its
    values are numbers that doubles hold, as intervals do; covered: of the window.
    """

    by: dict[str, pa.Array]
    values: tuple[pa.Array, ...]
    numbers: tuple[bool, ...]
    covered: float


def whole_of(
    columns: Columns,
    aggregates: Sequence[Aggregate],
    conditions: Sequence[Condition],
    by: Sequence[Value],
    interval: tuple[int, int],
    covered: float,
    where: str,
) -> Whole | None:
    """Over the tuples of an interval of ordinals that satisfy the conditions; None: exact SQL has another meaning.

    That is so of decimals, which are doubles here, of totals beyond 64 bits and of what SQL does not have.
    Groups are in order of their first tuple that satisfies.  Cost: that of exact SQL.
    """
    batch = columns.batch.slice(interval[0], interval[1] - interval[0])
    for condition in conditions:
        batch = batch.filter(pc.fill_null(condition.mask(batch), False))
    n = batch.num_rows
    keys = [value.key_of(batch, where=where) if value.columns else constant(value, n, where) for value in by]
    codes, first = row_codes(keys, n)
    count = first.shape[0] if by else 1
    values, numbers = [], []
    for aggregate in aggregates:
        told = _told(aggregate, batch, codes, count, where)
        if told is None:
            return None
        values.append(told[0])
        numbers.append(told[1])
    at = pa.array(first)
    return Whole(
        {value.text: key.take(at) for value, key in zip(by, keys, strict=True)}, tuple(values), tuple(numbers), covered
    )


def _told(
    aggregate: Aggregate,
    batch: pa.RecordBatch,
    codes: np.ndarray[tuple[int], np.dtype[np.int64]],
    count: int,
    where: str,
) -> tuple[pa.Array, bool] | None:
    """One aggregate of all groups: whole numbers of 64 bits, doubles, or values as they are, which are no numbers."""
    value, function = aggregate.value, aggregate.function
    kind = CATALOGUE[function]
    if value is None:
        return aggregated(_item(aggregate, pa.int64()), None, codes, count), True
    array = value.of(batch, where=where) if value.columns else constant(value, batch.num_rows, where)
    exactly = value.column_of(batch, where=where)
    exactly = array if exactly is None else exactly
    types = pa.types
    if (kind.is_set and function != "count_distinct") or kind.is_collected or types.is_dictionary(exactly.type):
        return None
    if function in _WHOLE:
        return aggregated(_item(aggregate, pa.int64()), exactly, codes, count), True
    if types.is_decimal(exactly.type) or types.is_decimal(array.type):
        return None
    if kind.takes == "ordered" and is_told_as_is(exactly, function):
        return aggregated(_item(aggregate, exactly.type), exactly, codes, count), False
    whole = types.is_integer(array.type) and (function == "sum" or (kind.takes == "ordered" and kind.gives != "number"))
    try:
        return aggregated(_item(aggregate, pa.int64() if whole else pa.float64()), array, codes, count), True
    except SumOverflow:
        return None


def _item(aggregate: Aggregate, kind: pa.DataType) -> AggregateItem:
    distinct = aggregate.function == "count_distinct"
    return AggregateItem(
        Field(aggregate.name, kind), "count" if distinct else aggregate.function, None, distinct, aggregate.argument
    )
