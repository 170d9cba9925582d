"""Aggregates of a join's outputs without the outputs: a row counts as often as it is in one.

An aggregate whose argument and whose groups are of one input (a key that is equal in all counts as a column of each)
is one of that input's rows, each weighted with the number of combinations it is in.  So 20,000 x 20,000 equal keys cost
40,000 rows, and not 400,000,000 pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.execution.exact.joining import Side, combinations_of_rows
from nile.execution.values import column_of, schema_of, value_of
from nile.expressions.tree import columns_of
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, Group, Join, Plan, Project
from nile.summaries.heavy import pa

__all__ = ["bases_of", "grouped_rows", "join_below", "known_of"]

Array = np.ndarray[Any, Any]


def join_below(plan: Group) -> tuple[Join, tuple[Project, ...]] | None:
    """The join under a group, with the projections between them from below; None where something else is there."""
    below: Plan = plan.input
    between: list[Project] = []
    while isinstance(below, Project):
        between.append(below)
        below = below.input
    return (below, tuple(between[::-1])) if isinstance(below, Join) and below.condition is None else None


def grouped_rows(
    plan: Group, join: Join, between: Sequence[Project], sides: Sequence[Side]
) -> tuple[pa.RecordBatch, int] | None:
    """(the groups, how many combinations the join has); None where one is of several inputs, or of an order."""
    bases = bases_of(plan, join, between, sides)
    if bases is None:
        return None
    places = [known_of(join, between, sides, k) for k in range(len(sides))]
    used = sorted(set(bases))
    weights = combinations_of_rows(join, sides, used)
    if not used or weights is None:
        return None
    keys, codes, count = _groups(plan, [places[k] for k in used], weights)
    at = {base: n for n, base in enumerate(used)}
    columns = list(keys)
    for each, base in zip(plan.aggregates, bases, strict=False):
        n = at[base]
        batch = places[base]
        values = None if each.argument is None else column_of(each.argument, batch)
        columns.append(aggregated(each, values, codes[n], count, weights[n]))
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(plan.fields)), int(weights[0].sum())


def bases_of(plan: Group, join: Join, between: Sequence[Project], sides: Sequence[Side]) -> list[int] | None:
    """The input that each aggregate is of, or that the keys are of where there is none; None: not each is of one."""
    if any(CATALOGUE[each.function].is_collected for each in plan.aggregates):
        return None
    places = [known_of(join, between, sides, k) for k in range(len(sides))]
    found = [_base(plan, each, places) for each in plan.aggregates or (None,)]
    bases = [base for base in found if base is not None]
    if len(bases) < len(found):
        return None if plan.aggregates else []
    return bases


def known_of(join: Join, between: Sequence[Project], sides: Sequence[Side], k: int) -> pa.RecordBatch:
    """What is known of input k alone: its columns, those that equal one of them, and what projections make of these."""
    batch = sides[k].batch
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    types = {field.name: field.type for field in join.fields}
    more = True
    while more:
        more = False
        for one, other in (*join.equal, *((b, a) for a, b in join.equal)):
            if one in columns and other not in columns and types[one] == types[other]:
                columns[other] = columns[one]
                more = True
    for step in between:
        held = _batch(columns, len(sides[k]))
        columns = {item.name: value_of(item, held) for item in step.items if set(columns_of(item.node)) <= set(columns)}
    return _batch(columns, len(sides[k]))


def _batch(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    if not columns:
        columns = {"\0": pa.nulls(rows)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _base(plan: Group, each: AggregateItem | None, places: Sequence[pa.RecordBatch]) -> int | None:
    """The first input that has all columns of the groups and of an aggregate."""
    needed = {name for item in plan.by for name in columns_of(item.node)}
    if each is not None and each.argument is not None:
        needed.update(columns_of(each.argument))
    return next((k for k, batch in enumerate(places) if needed <= set(batch.schema.names)), None)


def _groups(
    plan: Group, batches: Sequence[pa.RecordBatch], weights: Sequence[Array]
) -> tuple[list[pa.Array], list[Array], int]:
    """(one value a group for each key, the group of each input's rows, how many groups): those with a combination.

    Groups are numbered by first appearance; rows without a combination have group 0 and weight 0.
    """
    if not plan.by:
        return [], [np.zeros(batch.num_rows, np.int64) for batch in batches], 1
    kept = [np.flatnonzero(weight) for weight in weights]
    parts = [
        [value_of(item, batch).take(pa.array(at)) for item in plan.by] for batch, at in zip(batches, kept, strict=True)
    ]
    keys = [pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True)]
    together, first = row_codes(keys, sum(at.shape[0] for at in kept))
    codes = []
    for batch, at, own in zip(
        batches, kept, np.split(together, np.cumsum([at.shape[0] for at in kept])[:-1]), strict=True
    ):
        code = np.zeros(batch.num_rows, np.int64)
        code[at] = own
        codes.append(code)
    return [key.take(pa.array(first)) for key in keys], codes, first.shape[0]
