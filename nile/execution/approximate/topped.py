"""Groups through what is above them, and what each number of theirs that is shown is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nile.execution.approximate.join import group_rows
from nile.execution.approximate.shape import Shape
from nile.execution.exact.relational import Relational
from nile.execution.values import filtered, maker
from nile.expressions.tree import Column
from nile.operators.aggregate.estimates import Number
from nile.sql.plan import Filter, Sort
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["numbers_shown", "topped", "within"]


def topped(shape: Shape, batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[str, str], list[int]]:
    """Groups through what is above them: (rows, which aggregate each plain column is, which groups are left)."""
    row = pa.array(np.arange(batch.num_rows))
    names = {name: name for name in batch.schema.names}
    for step in shape.above[::-1]:
        if isinstance(step, Filter):
            kept = filtered(step.condition, batch.append_column("\0row", row))
            row, batch = kept.column(kept.num_columns - 1), kept.select(list(range(batch.num_columns)))
        else:
            names = {
                item.name: names[item.node.name]
                for item in step.items
                if isinstance(item.node, Column) and item.node.name in names
            }
            batch = maker(step.items)(batch)
    for top in shape.top[::-1]:
        whole = batch.append_column("\0row", row)
        whole = Relational.ordered(top, whole) if isinstance(top, Sort) else whole.slice(top.offset, top.count)
        row, batch = whole.column(whole.num_columns - 1), whole.select(list(range(batch.num_columns)))
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema), names, row.to_pylist()


def numbers_shown(
    shape: Shape, answer: Any, schema: pa.Schema
) -> tuple[pa.RecordBatch, Mapping[str, Sequence[Estimate]]]:
    """(the rows of an aggregate answer, by column the number of each row where the column is an aggregate as it is).

    A null is an Estimate of NaN; lists have none.
    """
    group = shape.group
    assert group is not None
    (batch,) = group_rows(answer, group.fields)
    batch, names, rows = topped(shape, batch, schema)
    numbers: dict[str, list[Number]] = {each.name: [] for each in group.aggregates}
    for _, _, name, number in answer.numbers():
        numbers[name].append(number)
    return batch, {
        shown: [Estimate.exact(math.nan) if (told := numbers[name][row].estimate) is None else told for row in rows]
        for shown, name in names.items()
        if name in numbers and not any(isinstance(numbers[name][row].value, list) for row in rows)
    }


def within(numbers: Sequence[Estimate]) -> str:
    """How far off the numbers of a column may be, in words: of its value the one that is least certain; "": none is."""
    ends = [(float(each.value), float(each.low), float(each.high)) for each in numbers if each.low < each.high]
    off = [(abs(value), max(high - value, value - low)) for value, low, high in ends]
    shares = [beside / size for size, beside in off if math.isfinite(beside) and size]
    nothing = [beside for size, beside in off if math.isfinite(beside) and not size]
    unknown = sum(not math.isfinite(beside) for _, beside in off)
    told = [f"within {100 * max(shares):.2g} %"] if shares else []
    told += [f"within {max(nothing):.3g} of 0"] if nothing else []
    told += [f"unknown in {unknown:,} of {len(numbers):,}"] if unknown else []
    return " and ".join(told)
