"""Outer, semi and anti joins over whole inputs: the pairs by `joined`, and the rows that none of them has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nile.answers.tabular import held_together
from nile.execution.exact.joining import Side, joined
from nile.execution.values import schema_of
from nile.operators.common.rows import join_codes
from nile.sql.plan import Field, Join, Outer, Relation
from nile.summaries.heavy import pa

__all__ = ["has_partner", "outer_joined"]

Array = np.ndarray[Any, Any]
_CHOSEN = ("semi", "anti", "mark")
_ROWS = ("\0left", "\0right")


def outer_joined(plan: Outer, left: Side, right: Side) -> pa.RecordBatch:
    """The rows of an outer join at one instant: pairs, then rows of the left, then of the right without a partner.

    Cost: that of the join of equal keys and condition.  Raises KeyTypeError, MemoryRefused.
    """
    if plan.kind in _CHOSEN and plan.condition is None:
        return _chosen(plan, left, has_partner(plan, left, right))
    sides = [_numbered(side, name) for side, name in zip((left, right), _ROWS, strict=True)]
    inputs = [
        Relation(name, name, (*below.fields, Field(name, pa.int64())))
        for below, name in zip((plan.left, plan.right), _ROWS, strict=True)
    ]
    join = Join(tuple(inputs), plan.equal, plan.condition)
    partnered = [np.zeros(len(side), np.bool_) for side in sides]
    chosen = plan.kind in _CHOSEN
    wanted = frozenset(_ROWS[:1]) if chosen else None

    def pairs() -> Iterator[pa.RecordBatch]:
        for found in joined(join, sides, wanted=wanted):
            for name, seen in zip(_ROWS[:1] if chosen else _ROWS, partnered, strict=False):
                seen[found.column(found.schema.get_field_index(name)).to_numpy(zero_copy_only=False)] = True
            if not chosen:
                yield found.select([field.name for field in plan.fields])

    made = list(held_together(pairs()))
    if chosen:
        return _chosen(plan, left, partnered[0])
    schema = schema_of(plan.fields)
    for at, (side, kept) in enumerate(zip((left, right), ("left", "right"), strict=True)):
        if plan.kind in (kept, "full"):
            alone = side.batch.filter(pa.array(~partnered[at]))
            missing = [pa.nulls(alone.num_rows, f.type) for f in (plan.right if at == 0 else plan.left).fields]
            columns = [*alone.columns, *missing] if at == 0 else [*missing, *alone.columns]
            made.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    made = [pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in made]
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return pa.concat_batches([empty, *made])


def _chosen(plan: Outer, left: Side, partnered: Array) -> pa.RecordBatch:
    """The rows of the left that are asked for, or all with their mark.  partnered: which have a partner, bool [n]."""
    if plan.kind == "mark":
        return left.batch.append_column(plan.mark, pa.array(partnered))
    return left.batch.filter(pa.array(partnered == (plan.kind == "semi")))


def has_partner(plan: Outer, left: Side, right: Side) -> Array:
    """Whether each row of the left has a partner by its key alone: bool [n].  No pair is made."""
    keys = [(_column(left, a), _column(right, b)) for a, b in plan.equal]
    mine, theirs = join_codes(keys, len(left), len(right))
    there = np.zeros(max(mine.max(initial=-1), theirs.max(initial=-1)) + 2, np.bool_)
    there[theirs[theirs >= 0]] = True
    found: Array = (mine >= 0) & there[mine]
    return found


def _column(side: Side, name: str) -> pa.Array:
    return side.batch.column(side.batch.schema.get_field_index(name))


def _numbered(side: Side, name: str) -> Side:
    """The side with the number of each row; what windows hold at one instant all goes together."""
    return replace(side, batch=side.batch.append_column(name, pa.array(np.arange(len(side)))), window=None)
