"""Joins of more than two inputs of more rows than memory holds: one input after the other, each step a `Pairing`.

Rows carry their number in each input and, of a stream, their time; from these follows where a combination stands among
all that `joined` finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nile.base.spill import Spills
from nile.execution.choice import is_chain
from nile.execution.exact.batches import Batches, fitted
from nile.execution.exact.paired import Input, Pairing, placed
from nile.execution.exact.sorting import Sorter
from nile.execution.key_columns import one_key
from nile.execution.values import all_of, schema_of
from nile.expressions.tree import columns_of, conjuncts
from nile.sql.plan import Field, Join, Limit, Plan, Project, Relation, Stream, leaves_of
from nile.summaries.heavy import pa

__all__ = ["Step", "is_countable", "is_timed", "joined_by_steps", "steps_of"]

Array = np.ndarray[Any, Any]
Given = Iterator[tuple[pa.RecordBatch, Array | None]]


@dataclass(frozen=True, slots=True)
class Step:
    """What was joined so far with one more input, the `other`-th."""

    other: int
    join: Join


def is_timed(plan: Plan) -> bool:
    """Whether the rows of an input have the times of one stream."""
    return is_chain(plan) and isinstance(leaves_of(plan)[0], Stream)


def is_countable(plan: Plan) -> bool:
    """Whether a join below projections has no condition but keys: its outputs can be counted without making them."""
    while isinstance(plan, Project | Limit):
        plan = plan.input
    return isinstance(plan, Join) and plan.condition is None


def steps_of(plan: Join) -> list[Step]:
    """One input after the other, in the order in which `joined` takes them; () of two, or in windows."""
    owner = {field.name: k for k, each in enumerate(plan.inputs) for field in each.fields}
    if len(plan.inputs) < 3 or plan.constraints or not all(name in owner for pair in plan.equal for name in pair):
        return []
    links = [(owner[a], a, owner[b], b) for a, b in plan.equal]
    wide = [_with_places(k, each) for k, each in enumerate(plan.inputs)]
    taken, fields, left = {0}, wide[0], list(conjuncts(plan.condition))
    found = []
    while len(taken) < len(plan.inputs):
        linked = (
            k for k in range(len(plan.inputs))
            if k not in taken and any(k in (i, j) and taken & {i, j} for i, _, j, _ in links)
        )  # fmt: skip
        other = next(linked, None)
        if other is None:
            other = next(k for k in range(len(plan.inputs)) if k not in taken)
        own = [(i, a, j, b) for i, a, j, b in links if other in (i, j) and taken & {i, j}]
        equal = tuple((a, b) if j == other else (b, a) for _, a, j, b in own)
        names = {field.name for field in (*fields, *wide[other])}
        now = [node for node in left if set(columns_of(node)) <= names]
        left = [node for node in left if node not in now]
        inputs = (Relation("\0so far", "\0so far", fields), Relation("\0other", "\0other", wide[other]))
        found.append(Step(other, Join(inputs, equal, all_of(*now) if now else None)))
        taken.add(other)
        fields = (*fields, *wide[other])
    return found


def _row(k: int) -> str:
    return f"\0row {k}"


def _time(k: int) -> str:
    return f"\0time {k}"


def _with_places(k: int, plan: Plan) -> tuple[Field, ...]:
    times = (Field(_time(k), pa.int64()),) if is_timed(plan) else ()
    return (*plan.fields, Field(_row(k), pa.int64()), *times)


def joined_by_steps(
    plan: Join, steps: Sequence[Step], inputs: Sequence[Given], spills: Spills, share: int, threads: int | None,
    most: int | None = None,
) -> Batches:  # fmt: skip
    """The combinations in order.  inputs: the rows of each and, where it `is_timed`, their times.

    most: how many are wanted from the front.  Cost: that of the steps' joins; each row, each that a step found, and
    each combination is written once.
    Raises KeyTypeError, MemoryRefused.
    """

    def rows_of(k: int) -> Batches:
        schema = schema_of(_with_places(k, plan.inputs[k]))
        for batch in placed(inputs[k], schema_of(plan.inputs[k].fields)):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    found = rows_of(0)
    for step in steps:
        left, right = (each.fields for each in step.join.inputs)
        sides = [
            Input(placed(((batch, None) for batch in rows), schema_of(fields)), fields, timed=False)
            for rows, fields in ((found, left), (rows_of(step.other), right))
        ]
        found = Pairing(step.join, sides, spills, share // len(steps), threads).rows(ordered=False)
    fields = schema_of((*left, *right))
    order = partial(_order, plan, [0, *(step.other for step in steps)])
    sorter = Sorter(spills, fields, order, share, most)
    for batch in found:
        sorter.add(batch)
    out = schema_of(plan.fields)
    for batch in sorter.rows():
        yield fitted(batch, out)


def _order(plan: Join, taken: Sequence[int], batch: pa.RecordBatch) -> Array:
    """The places of combinations in the order of `joined`: int64 [n].

    Those of streams are in the order of the tuples that complete them, where the later of streams comes after; what one
    tuple completes is in the order of rows.  Of streams alone that share a key (a window join) the newest rows come
    first, of the stream behind that of the tuple before those of the next.
    """
    streams = [k for k, each in enumerate(plan.inputs) if is_timed(each)]
    alone = len(streams) == len(plan.inputs) and bool(plan.equal) and one_key(plan)[0] is not None
    keys = [_column(batch, _row(k)) for k in taken]
    if streams:
        rows, times = (np.stack([_column(batch, name(k)) for k in streams]) for name in (_row, _time))
        last = len(streams) - 1 - np.argmax(times[::-1], axis=0)
        after = [np.take_along_axis(rows, ((last + k) % len(streams))[None], axis=0)[0] for k in range(len(streams))]
        keys = [times.max(axis=0), last, after[0], *([-each for each in after[1:]] if alone else keys)]
    found: Array = np.lexsort(keys[::-1])
    return found


def _column(batch: pa.RecordBatch, name: str) -> Array:
    found: Array = batch.column(batch.schema.get_field_index(name)).to_numpy(zero_copy_only=False)
    return found
