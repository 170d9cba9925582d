"""Columns that nobody asks for are not read."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from nile.sql.plan import (
    AggregateItem,
    Distinct,
    Field,
    Filter,
    Group,
    Join,
    Limit,
    Plan,
    Project,
    Relation,
    SetOperation,
    Sort,
    Stream,
)
from nile.sql.tree import Node, columns_of

__all__ = ["prune"]


def prune(plan: Plan, always: Set[str]) -> Plan:
    """The plan without columns that its output does not need.

    always: columns of streams that are needed beside.  A stream keeps one column at least, its time; a relation its
    first; a group without keys one aggregate.
    """
    return _pruned(plan, {field.name for field in plan.fields}, always)


def _pruned(plan: Plan, needed: Set[str], always: Set[str]) -> Plan:
    match plan:
        case Stream():
            wanted = needed | always | _of(plan.where)
            return replace(plan, fields=_kept(plan.fields, wanted, f"{plan.alias}.{plan.time}"))
        case Relation():
            wanted = needed | always | _of(plan.where)
            return replace(plan, fields=_kept(plan.fields, wanted, plan.fields[0].name))
        case Filter():
            return replace(plan, input=_pruned(plan.input, needed | _of(plan.condition), always))
        case Project():
            items = tuple(item for item in plan.items if item.name in needed) or plan.items[:1]
            return Project(_pruned(plan.input, _of(*(item.node for item in items)), always), items)
        case Join():
            wanted = needed | _of(plan.condition) | {name for pair in plan.equal for name in pair}
            return replace(plan, inputs=tuple(_pruned(each, wanted, always) for each in plan.inputs))
        case Group():
            aggregates: tuple[AggregateItem, ...] = tuple(each for each in plan.aggregates if each.name in needed)
            if not plan.by and not aggregates:
                aggregates = plan.aggregates[:1]
            nodes = [item.node for item in plan.by] + [
                each.argument for each in aggregates if each.argument is not None
            ]
            return replace(plan, input=_pruned(plan.input, _of(*nodes), always), aggregates=aggregates)
        case Sort():
            keys = _of(*(key.node for key in plan.keys))
            return replace(plan, input=_pruned(plan.input, needed | keys, always))
        case Limit():
            return replace(plan, input=_pruned(plan.input, needed, always))
        case Distinct():
            return replace(plan, input=_pruned(plan.input, _names(plan.input.fields), always))
        case SetOperation():
            left = _pruned(plan.left, _names(plan.left.fields), always)
            return replace(plan, left=left, right=_pruned(plan.right, _names(plan.right.fields), always))


def _of(*nodes: Node | None) -> Set[str]:
    return {name for node in nodes if node is not None for name in columns_of(node)}


def _names(fields: Iterable[Field]) -> Set[str]:
    return {field.name for field in fields}


def _kept(fields: tuple[Field, ...], wanted: Set[str], least: str) -> tuple[Field, ...]:
    kept = tuple(field for field in fields if field.name in wanted)
    return kept or tuple(field for field in fields if field.name == least)
