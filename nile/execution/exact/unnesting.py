"""Lists as rows: each row once for each element of its lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.execution.values import value_of
from nile.expressions.lists.values import Lists
from nile.sql.plan import Field, Item, Unnest
from nile.summaries.heavy import pa, pc

__all__ = ["unnested_rows"]

Array = np.ndarray[Any, Any]


def unnested_rows(plan: Unnest, below: pa.RecordBatch) -> tuple[pa.RecordBatch, Array, Array]:
    """(rows once for each element, which row each is of, zeros: none of them ends).  O(rows + elements)."""
    lists = []
    for item in plan.items:
        whole = Item(Field(item.name, pa.list_(item.field.type)), item.node)
        lists.append(Lists.of(value_of(whole, below)))
    often = np.max([each.lengths for each in lists], axis=0)
    rows = np.repeat(np.arange(below.num_rows), often)
    place = np.arange(rows.shape[0]) - (np.cumsum(often) - often)[rows]
    columns = []
    for each, item in zip(lists, plan.items, strict=True):
        there = place < each.lengths[rows]
        if there.all():
            columns.append(each.values)
        elif len(each.values):
            columns.append(each.values.take(pa.array(np.where(there, each.starts[rows] + place, 0), mask=~there)))
        else:
            columns.append(pa.nulls(rows.shape[0], item.field.type))
    taken = below.take(pa.array(rows))
    names = [*taken.schema.names, *(item.name for item in plan.items)]
    made = [pc.cast(each, item.field.type) for each, item in zip(columns, plan.items, strict=True)]
    return pa.RecordBatch.from_arrays([*taken.columns, *made], names=names), rows, np.zeros(rows.shape[0], np.int64)
