"""Columns that nobody asks for are not read."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from nile.expressions.tree import Node, columns_of
from nile.sql import plan as ops
from nile.sql.plan import Field, Plan, Stream, map_inputs

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
            wanted |= set(plan.window.by if isinstance(plan.window, ops.Rows) else ())
            return replace(plan, fields=_kept(plan.fields, wanted, f"{plan.alias}.{plan.time}"))
        case ops.Relation():
            wanted = needed | always | _of(plan.where)
            return replace(plan, fields=_kept(plan.fields, wanted, plan.fields[0].name))
        case ops.Distinct() | ops.SetOperation() | ops.ToStream() | ops.Sample():
            return map_inputs(plan, lambda each: prune(each, always))
        case ops.Filter():
            needed = needed | _of(plan.condition)
        case ops.Project():
            plan = replace(plan, items=tuple(item for item in plan.items if item.name in needed) or plan.items[:1])
            needed = _of(*(item.node for item in plan.items))
        case ops.Join() | ops.Outer():
            needed = needed | _of(plan.condition) | {name for pair in plan.equal for name in pair}
        case ops.Group():
            aggregates = tuple(each for each in plan.aggregates if each.name in needed)
            if not plan.by and not aggregates:
                aggregates = plan.aggregates[:1]
            plan = replace(plan, aggregates=aggregates)
            needed = _of(*(item.node for item in plan.by), *(each.argument for each in aggregates))
        case ops.Windowed():
            return map_inputs(plan, lambda each: prune(each, always))
        case ops.Hop():
            needed = (needed - set(plan.names)) | {plan.time}
        case ops.OnClose():
            needed = needed | {plan.end}
        case ops.Over():
            items = tuple(item for item in plan.items if item.name in needed)
            plan = replace(plan, items=items or plan.items[:1])
            needed = (needed - {item.name for item in plan.items}) | _of(*(n for i in plan.items for n in i.nodes))
        case ops.Sort():
            needed = needed | _of(*(key.node for key in plan.keys))
    return map_inputs(plan, lambda each: _pruned(each, needed, always))


def _of(*nodes: Node | None) -> Set[str]:
    return {name for node in nodes if node is not None for name in columns_of(node)}


def _kept(fields: tuple[Field, ...], wanted: Set[str], least: str) -> tuple[Field, ...]:
    kept = tuple(field for field in fields if field.name in wanted)
    return kept or tuple(field for field in fields if field.name == least)
