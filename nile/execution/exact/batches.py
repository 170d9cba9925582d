"""Batches on their way through a plan: numbered, marked, cut, and in the types of a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nile.base.spill import Spill
from nile.expressions.tree import Node, columns_of
from nile.sql import plan as ops
from nile.summaries.heavy import pa, pc

__all__ = ["NUMBER", "Batches", "cut", "fitted", "looked_at", "marked", "numbered", "numbers_of", "repeated"]

Array = np.ndarray[Any, Any]
Batches = Iterator[pa.RecordBatch]
NUMBER = "\0n"
"""The column of rows' numbers."""


def looked_at(plan: ops.Group) -> set[str]:
    """The columns that keys and aggregates are made of."""
    nodes: list[Node] = [item.node for item in plan.by]
    for each in plan.aggregates:
        nodes += [node for node in (each.argument, each.where) if node is not None]
        nodes += [key.node for key in each.order]
    return {name for node in nodes for name in columns_of(node)}


def numbered(batches: Batches, schema: pa.Schema) -> Batches:
    """The columns of a schema, and behind them the number of each row."""
    begin = 0
    whole = schema.append(pa.field(NUMBER, pa.int64()))
    for batch in batches:
        numbers = pa.array(np.arange(begin, begin + batch.num_rows))
        begin += batch.num_rows
        yield pa.RecordBatch.from_arrays([*columns_as(batch, schema), numbers], schema=whole)


def numbers_of(batch: pa.RecordBatch, at: int) -> Array:
    """A column of numbers: int64 [n]."""
    found: Array = batch.column(at).to_numpy(zero_copy_only=False)
    return found


def columns_as(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """The columns of a schema by their names, in its types."""
    found = [(batch.column(batch.schema.get_field_index(field.name)), field.type) for field in schema]
    return [column if column.type == kind else column.cast(kind) for column, kind in found]


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Those columns alone."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays(columns_as(batch, schema), schema=schema)


def marked(batches: Batches, schema: pa.Schema, *, right: bool) -> Batches:
    """Rows with the side that they are of behind them."""
    for batch in batches:
        side = pa.array(np.full(batch.num_rows, right))
        yield pa.RecordBatch.from_arrays([*batch.columns, side], schema=schema)


def cut(batches: Batches, offset: int, count: int | None) -> Batches:
    """Without the first rows, and no more than so many."""
    for batch in batches:
        rows = batch.slice(offset, count)
        offset -= min(offset, batch.num_rows)
        count = None if count is None else count - rows.num_rows
        yield rows
        if count == 0:
            return


def repeated(plan: ops.SetOperation, rows: Spill, side: int) -> Batches:
    """INTERSECT or EXCEPT of one row that came so often that memory does not hold it.  side: the column of sides."""
    lefts = rights = 0
    for batch in rows.kept():
        mine = int(batch.column(side).true_count)
        rights += mine
        lefts += batch.num_rows - mine
    within = plan.kind == "intersect"
    if plan.all:
        begin, end = (0, min(lefts, rights)) if within else (rights, lefts)
    else:
        begin, end = 0, int(lefts > 0 and (rights > 0) == within)
    seen = 0
    for batch in rows.kept():
        left = batch.filter(pc.invert(batch.column(side)))
        yield left.slice(max(0, begin - seen), max(0, min(left.num_rows, end - seen) - max(0, begin - seen)))
        seen += left.num_rows
