"""Window functions over more rows than memory holds: some partitions at a time, one that is too large by itself."""

from __future__ import annotations

from collections.abc import Sequence

from nile.base.spill import Spill, Spills
from nile.execution.exact.batches import NUMBER, Batches, fitted, numbered
from nile.execution.exact.one_partition import OnePartition, beside
from nile.execution.exact.parting import parts_by
from nile.execution.exact.promised import source_of
from nile.execution.exact.sorting import by_number
from nile.execution.over.functions import over_values
from nile.execution.values import column_of, schema_of
from nile.expressions.tree import Column, Node
from nile.sql.plan import Over, OverItem, Plan, Stream, leaves_of
from nile.summaries.heavy import pa

__all__ = ["over_in_parts"]


def over_in_parts(plan: Over, batches: Batches, spills: Spills, share: int) -> Batches:
    """The rows as they came, with the values of window functions behind them.

    Memory: a share.  Raises SumOverflow; MemoryRefused as `OnePartition` does.
    """
    plain, out = schema_of(plan.input.fields), schema_of(plan.fields)
    schema = plain.append(pa.field(NUMBER, pa.int64()))
    given = numbered(batches, plain)
    shared = [node for node in plan.items[0].by if all(node in item.by for item in plan.items)]
    if shared:
        found = _partitions(plan, plan.items, given, schema, spills, share, shared)
        found = by_number(found, _with(schema, plan.items), len(plain), spills, share)
    else:
        found = _staged(plan, plan.items, given, schema, spills, share, ())
    for batch in found:
        yield fitted(batch, out)


def _with(schema: pa.Schema, items: Sequence[OverItem]) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(item.name, item.field.type) for item in items)])


def _partitions(
    plan: Over, items: Sequence[OverItem], batches: Batches, schema: pa.Schema, spills: Spills, share: int,
    by: Sequence[Node],
) -> Batches:  # fmt: skip
    """Functions of rows that are parted by what all of them are partitioned by; in no order."""
    out = _with(schema, items)
    for part in parts_by(batches, schema, lambda batch: [column_of(node, batch) for node in by], spills, share):
        if isinstance(part, Spill):
            yield from (fitted(each, out) for each in _staged(plan, items, part.kept(), schema, spills, share, by))
        else:
            yield beside(part, items, over_values(items, part))


def _staged(
    plan: Over, items: Sequence[OverItem], batches: Batches, schema: pa.Schema, spills: Spills, share: int,
    by: Sequence[Node],
) -> Batches:  # fmt: skip
    """One order of rows after the other; rows come out as they came.  by: what is equal in all of them."""
    at = schema.get_field_index(NUMBER)
    stages: dict[object, list[OverItem]] = {}
    for item in items:
        stages.setdefault((item.by, item.order), []).append(item)
    for own in stages.values():
        rest = [node for node in own[0].by if node not in by]
        out = _with(schema, own)
        if rest:
            found = _partitions(plan, own, batches, schema, spills, share, [*by, *rest])
            batches = by_number(found, out, at, spills, share)
        else:
            work = OnePartition(own, schema, spills, share, _rises(plan, own[0]))
            found = work.rows(batches)
            batches = found if work.keeps_order else by_number(found, out, at, spills, share)
        schema = out
    return batches


def _rises(plan: Over, item: OverItem) -> bool:
    """Whether rows come in the order of a function: that of the time of the one stream that they are of."""
    below: Plan = plan.input
    if len(item.order) != 1 or item.order[0].descending or not isinstance(item.order[0].node, Column):
        return False
    source = source_of(below, item.order[0].node.name)
    leaf = leaves_of(below)[0]
    if source is None or not isinstance(leaf, Stream) or source[1] != leaf.time:
        return False
    kind = next(field.type for field in leaf.fields if field.name == f"{leaf.alias}.{leaf.time}")
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))
