"""Bound expressions as callables over Arrow batches: what a plan's conditions and columns become."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nile.base.nearest import nearest
from nile.expressions.evaluate import as_stored, evaluate_mask
from nile.expressions.tree import Column, Logic, Node
from nile.sql.plan import Field, Item
from nile.summaries.heavy import pa

__all__ = ["all_of", "column_of", "filtered", "maker", "picks", "schema_of", "tester", "value_of"]


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """The fields of a plan's node as an Arrow schema."""
    return pa.schema([pa.field(field.name, field.type) for field in fields])


def tester(condition: Node) -> Callable[[pa.RecordBatch], pa.BooleanArray]:
    """A condition as a mask over a batch: true, false or null."""
    return lambda batch: evaluate_mask(condition, batch)


def maker(items: Sequence[Item]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A projection over a batch.  A plain column passes through untouched, in its own Arrow type."""
    schema = schema_of([item.field for item in items])
    known: tuple[pa.Schema | None, list[int | None]] = None, []

    def make(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal known
        given, places = known
        if given is None or not batch.schema.equals(given):
            known = given, places = batch.schema, [_place(item, batch.schema) for item in items]
        arrays = [
            value_of(item, batch) if at is None else batch.column(at) for item, at in zip(items, places, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return make


def picks(items: Sequence[Item], schema: pa.Schema) -> tuple[int, ...] | None:
    """Where the columns of a projection are in batches of a schema; None: it does more than to pass columns on."""
    places = [_place(item, schema) for item in items]
    found = tuple(at for at in places if at is not None)
    return found if found and len(found) == len(places) else None


def _place(item: Item, schema: pa.Schema) -> int | None:
    """Which column an item passes through as it is; None: it is worked out."""
    if not isinstance(item.node, Column):
        return None
    at = int(schema.get_field_index(item.node.name))
    return at if at >= 0 and schema.field(at).type == item.field.type else None


def column_of(node: Node, batch: pa.RecordBatch) -> pa.Array:
    """An expression over a batch, in the type that it comes in."""
    return as_stored(node, batch)


def value_of(item: Item, batch: pa.RecordBatch) -> pa.Array:
    """One expression over a batch, in the type of its field."""
    array = column_of(item.node, batch)
    if array.type == item.field.type:
        return array
    if array.null_count == len(array):  # NULL has no type of its own
        return pa.nulls(len(array), item.field.type)
    return nearest(array, item.field.type, safe=False)


def filtered(condition: Node, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows for which the condition is true; the batch itself where it is true of all."""
    if batch.num_rows == 0:
        return batch
    mask = evaluate_mask(condition, batch)
    return batch if mask.true_count == len(mask) else batch.filter(mask)


def all_of(*conditions: Node | None) -> Node | None:
    """Conditions that must all be true, as one."""
    given = [condition for condition in conditions if condition is not None]
    if len(given) < 2:
        return given[0] if given else None
    return Logic("AND", tuple(given))
