"""A plan over finite inputs: its result over the windows' content at one instant (or over all rows).

This is the snapshot of Definition 1 (negative tuples, section 2.1), worked out at once, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.answers.tabular import held_together, row_bytes
from nile.base.nearest import nearest
from nile.exact.join.form import Form
from nile.exact.join.threads import cpu_ns
from nile.execution.exact.collecting import collected
from nile.execution.exact.counting import grouped_rows, join_below
from nile.execution.exact.hopping import hop_rows
from nile.execution.exact.joining import Side, joined, refuse_beyond
from nile.execution.exact.outer import outer_joined
from nile.execution.exact.unnesting import unnested_rows
from nile.execution.over.functions import over_rows
from nile.execution.over.ordering import first_rows, sorted_rows
from nile.execution.shape import Shape
from nile.execution.values import column_of, filtered, maker, schema_of, value_of
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import row_codes
from nile.sql import plan as ops
from nile.sql.plan import Plan, Stream, inputs_of
from nile.summaries.errors import KeyTypeError
from nile.summaries.heavy import pa

__all__ = ["Path", "Relational", "as_left", "combined", "grouped", "left_after"]

Array = np.ndarray[Any, Any]
Path = tuple[int, ...]
"""Which child of which child a node is; () is the root."""


class Relational:
    """Evaluates plans.  leaf: the rows of a leaf as a Side; counts: rows that came out of each node, by its path;
    shapes: where it is told what joins were.
    """

    def __init__(
        self, leaf: Callable[[Stream | ops.Relation], Side], counts: dict[Path, int], shapes: list[Shape] | None = None
    ) -> None:
        self._leaf = leaf
        self._counts = counts
        self._shapes = [] if shapes is None else shapes

    def rows(self, plan: Plan, path: Path = ()) -> pa.RecordBatch:
        """The rows of a node.  Raises KeyTypeError, MemoryRefused."""
        return self.side(plan, path).batch

    def side(self, plan: Plan, path: Path = ()) -> Side:
        """The rows of a node with their times, where it has one tuple of one stream a row."""
        made = self._side(plan, path)
        self._counts[path] = self._counts.get(path, 0) + len(made)
        return made

    def _side(self, plan: Plan, path: Path) -> Side:
        if isinstance(plan, Stream | ops.Relation):
            return self._leaf(plan)
        if isinstance(plan, ops.Group) and (found := join_below(plan)) is not None:
            return Side(self._grouped_join(plan, *found, path))
        if isinstance(plan, ops.Limit) and plan.count is not None and isinstance(plan.input, ops.Sort):
            rows = self.rows(plan.input.input, (*path, 0, 0))
            self._counts[*path, 0] = self._counts.get((*path, 0), 0) + rows.num_rows
            return Side(first_rows(plan.input.keys, rows, plan.offset + plan.count).slice(plan.offset))
        sides = [self.side(each, (*path, k)) for k, each in enumerate(inputs_of(plan))]
        (below, *_) = sides
        match plan:
            case ops.Filter():
                return self._filter(plan, below)
            case ops.Project():
                return Side(maker(plan.items)(below.batch), below.ts, below.window)
            case ops.Join():
                return Side(_all_joined(plan, sides, self._shapes))
            case ops.Outer():
                left, right = sides
                return Side(outer_joined(plan, left, right))
            case ops.Distinct():
                _, first = row_codes(below.batch.columns, len(below))
                return Side(below.batch.take(pa.array(first)))
            case ops.SetOperation():
                left, right = sides
                return Side(combined(plan, left.batch, right.batch))
            case ops.Group():
                return Side(grouped(plan, below.batch)[0])
            case ops.Hop():
                return Side(hop_rows(plan, below.batch)[0])
            case ops.Unnest():
                return Side(unnested_rows(plan, below.batch)[0])
            case ops.ToStream() | ops.Sample() | ops.Windowed() | ops.OnClose() | ops.Every():
                raise AssertionError(plan)  # these run as pipelines
            case ops.Over():
                return Side(over_rows(plan, below.batch))
            case ops.Sort():
                return Side(sorted_rows(plan.keys, below.batch))
            case ops.Limit():
                return Side(below.batch.slice(plan.offset, plan.count))

    def _grouped_join(
        self, plan: ops.Group, join: ops.Join, between: tuple[ops.Project, ...], path: Path
    ) -> pa.RecordBatch:
        """Groups of a join's outputs, which are made only where counting cannot do without."""
        at = (*path, *(0,) * (len(between) + 1))
        sides = [self.side(each, (*at, k)) for k, each in enumerate(join.inputs)]
        began = cpu_ns()
        counted = grouped_rows(plan, join, between, sides)
        if counted is not None:
            rows, outputs = counted
            form = Form("counts", "each aggregate and group is of one input's columns", sum(map(len, sides)))
            self._shapes.append(Shape(form, outputs, took=cpu_ns() - began))
        else:
            below = _all_joined(join, sides, self._shapes)
            outputs = below.num_rows
            for step in between:
                below = maker(step.items)(below)
            rows, _ = grouped(plan, below)
        for k in range(len(between) + 1):
            self._counts[at[: len(at) - k]] = outputs
        return rows

    @staticmethod
    def ordered(plan: ops.Sort, below: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the order of a Sort's keys."""
        return sorted_rows(plan.keys, below)

    @staticmethod
    def _filter(plan: ops.Filter, below: Side) -> Side:
        if below.ts is None:
            return Side(filtered(plan.condition, below.batch), None, below.window)
        numbered = below.batch.append_column("\0row", pa.array(np.arange(len(below))))
        kept = filtered(plan.condition, numbered)
        if kept.num_rows == len(below):
            return below
        row = kept.column(kept.num_columns - 1).to_numpy(zero_copy_only=False)
        return Side(kept.select(list(range(below.batch.num_columns))), below.ts[row], below.window)


def _all_joined(plan: ops.Join, sides: Sequence[Side], shapes: list[Shape]) -> pa.RecordBatch:
    """The outputs of a join together.  Raises MemoryRefused, before they are made where they can be counted."""
    schema = schema_of(plan.fields)
    if plan.condition is None:
        refuse_beyond(plan, sides, row_bytes(schema))
    return _concat(held_together(joined(plan, sides, shapes=shapes)), schema)


def _concat(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def combined(plan: ops.SetOperation, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    """UNION, INTERSECT or EXCEPT of two inputs."""
    both = pa.concat_batches([as_left(plan, left), as_left(plan, right)])
    kept = left_after(plan, both, left.num_rows)
    return both if kept is None else both.take(pa.array(kept))


def as_left(plan: ops.SetOperation, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of an input of a set operation in the types and names of the left one.  Raises KeyTypeError."""
    schema = schema_of(plan.fields)
    try:
        columns = [
            column if column.type == field.type else nearest(column, field.type)
            for column, field in zip(rows.columns, schema, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise KeyTypeError(
            f"{plan.kind.upper()}: needed values that the left side's types hold; got one beyond ({error}); cast it"
        ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def left_after(plan: ops.SetOperation, both: pa.RecordBatch, left: int) -> Array | None:
    """Which rows of both inputs, so many of the left one first, a set operation gives: int64 [m]; None: all."""
    if plan.kind == "union" and plan.all:
        return None
    codes, first = row_codes(both.columns, both.num_rows)
    if plan.kind == "union":
        return first
    own = codes[:left]
    theirs = np.bincount(codes[left:], minlength=first.shape[0])
    if plan.all:
        order = np.argsort(own, kind="stable")
        begins = np.searchsorted(own[order], own[order])
        occurrence = np.empty(own.shape[0], np.int64)
        occurrence[order] = np.arange(own.shape[0]) - begins
        return np.flatnonzero(occurrence < theirs[own] if plan.kind == "intersect" else occurrence >= theirs[own])
    mine = first[first < left]
    shared = theirs[codes[mine]] > 0
    kept: Array = mine[shared if plan.kind == "intersect" else ~shared]
    return kept


def grouped(plan: ops.Group, below: pa.RecordBatch) -> tuple[pa.RecordBatch, Array]:
    """(a row for each group, in order of first appearance; the first row of each, none without keys)."""
    keys = [value_of(item, below) for item in plan.by]
    codes, first = row_codes(keys, below.num_rows)
    count = first.shape[0] if plan.by else 1
    at = pa.array(first)
    columns = [key.take(at) for key in keys]
    for each in plan.aggregates:
        if CATALOGUE[each.function].is_collected:
            columns.append(collected(each, below, codes, count))
            continue
        values = None if each.argument is None else column_of(each.argument, below)
        columns.append(aggregated(each, values, codes, count))
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(plan.fields)), first
