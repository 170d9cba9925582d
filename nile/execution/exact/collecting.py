"""Aggregates of rows in an order, over a whole relation: list, string_agg, first, last, arg_max, arg_min."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.execution.over.ordering import sort_columns
from nile.execution.values import column_of
from nile.operators.common.rows import row_codes
from nile.sql.columns import AggregateItem
from nile.summaries.heavy import pa, pc

__all__ = ["collected", "counting_rows"]

Array = np.ndarray[Any, Any]


def collected(item: AggregateItem, below: pa.RecordBatch, codes: Array, count: int) -> pa.Array:
    """One of them for each of `count` groups.  codes: the group of each row of `below`.

    Rows are in their own order where nothing says another.  Without a row it is null.  O(n log n).
    """
    assert item.argument is not None
    kind = CATALOGUE[item.function]
    values = column_of(item.argument, below)
    order = counting_rows(item, below, codes)
    if item.distinct and order.shape[0]:
        at = pa.array(order)
        _, first = row_codes([pa.array(codes).take(at), values.take(at)], order.shape[0])
        order = order[np.sort(first)]
    sizes = np.bincount(codes[order], minlength=count)
    ends = np.cumsum(sizes)
    none = pa.array(sizes == 0)
    if kind.gives == "same":
        place = ends - 1 if item.function == "last" else ends - sizes
        if not order.shape[0]:
            return pa.nulls(count, item.field.type)
        taken = values.take(pa.array(order[np.minimum(place, order.shape[0] - 1)], mask=sizes == 0))
        return taken if taken.type == item.field.type else pc.cast(taken, item.field.type, safe=False)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, values.take(pa.array(order)), mask=none)
    if kind.gives == "text":
        return pc.binary_join(lists, item.separator or "")
    return lists if lists.type == item.field.type else pc.cast(lists, item.field.type, safe=False)


def counting_rows(item: AggregateItem, below: pa.RecordBatch, codes: Array) -> Array:
    """The places of the rows that count, group by group and in the order of each: int64 [m]."""
    assert item.argument is not None
    kind = CATALOGUE[item.function]
    kept = np.ones(below.num_rows, np.bool_)
    if kind.skips:
        keys = [key.node for key in item.order if kind.argument == "key"]
        for each in (column_of(node, below) for node in (item.argument, *keys)):
            kept &= pc.is_valid(each).to_numpy(zero_copy_only=False)
    if item.where is not None:
        kept &= pc.fill_null(column_of(item.where, below), False).to_numpy(zero_copy_only=False)
    order: Array = np.lexsort([*sort_columns(item.order, below)[::-1], codes])
    return order[kept[order]]
