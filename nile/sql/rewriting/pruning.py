"""Column pruning: columns that nothing uses are not read."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from nile.expressions.tree import Column, Node, columns_of, rename
from nile.sql import plan as ops
from nile.sql.plan import Field, Plan, Stream, map_inputs

__all__ = ["prune"]


Static = Mapping[str, Set[str]]
"""Of each table of sensors the columns that its rows have before any value comes."""


def prune(plan: Plan, always: Set[str], static: Static | None = None) -> Plan:
    """The plan without columns that its output does not need.

    always: columns of streams that are needed beside.  A stream keeps one column at least, its time; a relation its
    first; a group without keys one aggregate.  A table of sensors of which only static columns are needed is read as
    the stored relation of its rows, where that means the same: no source of it is opened (STEAM, section 4).
    """
    return _pruned(plan, {field.name for field in plan.fields}, always, static or {})


def _pruned(plan: Plan, needed: Set[str], always: Set[str], static: Static) -> Plan:
    if isinstance(plan, ops.ToStream | ops.Sample | ops.Windowed | ops.Hop | ops.OnClose | ops.Every) or (
        isinstance(plan, ops.Join) and plan.constraints
    ):
        static = {}  # these are about times
    match plan:
        case Stream():
            wanted = needed | always | _of(plan.where)
            own = {f"{plan.alias}.{name}" for name in static.get(plan.name, ())}
            timeless = plan.window is None or isinstance(plan.window, int)
            if own and timeless and wanted & {field.name for field in plan.fields} <= own:
                least = next(field.name for field in plan.fields if field.name in own)
                return ops.Relation(plan.name, plan.alias, _kept(plan.fields, wanted, least), plan.where)
            wanted |= set(plan.window.by if isinstance(plan.window, ops.Rows) else ())
            return replace(plan, fields=_kept(plan.fields, wanted, f"{plan.alias}.{plan.time}"))
        case ops.Relation():
            wanted = needed | always | _of(plan.where)
            return replace(plan, fields=_kept(plan.fields, wanted, plan.fields[0].name))
        case ops.Distinct() | ops.SetOperation() | ops.ToStream() | ops.Sample():
            return map_inputs(plan, lambda each: prune(each, always, static))
        case ops.Filter():
            needed = needed | _of(plan.condition)
        case ops.Project():
            counted = {item.name for item in plan.input.items} if isinstance(plan.input, ops.Unnest) else set()
            kept = [item for item in plan.items if item.name in needed or counted & _of(item.node)]
            plan = replace(plan, items=tuple(kept) or plan.items[:1])
            needed = _of(*(item.node for item in plan.items))
        case ops.Outer() if plan.kind == "mark" and plan.mark not in needed:
            return _pruned(plan.left, needed, always, static)
        case ops.Join() | ops.Outer():
            needed = needed | _of(plan.condition) | {name for pair in plan.equal for name in pair}
        case ops.Group():
            aggregates = tuple(each for each in plan.aggregates if each.name in needed)
            if not plan.by and not aggregates:
                aggregates = plan.aggregates[:1]
            plan = replace(plan, aggregates=aggregates)
            needed = _of(*(item.node for item in plan.by), *(node for each in aggregates for node in each.nodes))
        case ops.Windowed():
            return map_inputs(plan, lambda each: prune(each, always))
        case ops.Hop():
            needed = (needed - set(plan.names)) | {plan.time}
        case ops.Unnest():
            needed = (needed - {item.name for item in plan.items}) | _of(*(item.node for item in plan.items))
        case ops.OnClose():
            needed = needed | {plan.end}
        case ops.Over():
            items = tuple(item for item in plan.items if item.name in needed)
            plan = replace(plan, items=items or plan.items[:1])
            needed = (needed - {item.name for item in plan.items}) | _of(*(n for i in plan.items for n in i.nodes))
        case ops.Sort():
            needed = needed | _of(*(key.node for key in plan.keys))
    plan = map_inputs(plan, lambda each: _pruned(each, needed, always, static))
    return _numbered(_elements(plan)) if isinstance(plan, ops.Project) else plan


def _elements(plan: ops.Project) -> ops.Project:
    """Elements of lists called, and in the order, as they are written."""
    below = plan.input
    if not isinstance(below, ops.Unnest):
        return plan
    said = list(dict.fromkeys(name for item in plan.items for name in columns_of(item.node)))
    items = sorted(below.items, key=lambda item: said.index(item.name))
    names = {item.name: f"_unnest{at}" for at, item in enumerate(items)}
    if all(old == new for old, new in names.items()) and tuple(items) == below.items:
        return plan

    def called(column: Column) -> Column:
        return replace(column, name=names.get(column.name, column.name))

    made = tuple(replace(item, field=Field(names[item.name], item.field.type)) for item in items)
    return ops.Project(
        replace(below, items=made), tuple(replace(item, node=rename(item.node, called)) for item in plan.items)
    )


def _numbered(plan: ops.Project) -> ops.Project:
    """Window functions below called as where those that nobody asks for were never written."""
    under = plan.input.input if isinstance(plan.input, ops.Unnest) else plan.input
    over = under.input if isinstance(under, ops.Filter) else under
    if not isinstance(over, ops.Over):
        return plan
    names = {item.name: f"_over{at}" for at, item in enumerate(over.items)}
    if all(old == new for old, new in names.items()):
        return plan

    def called(column: Column) -> Column:
        return replace(column, name=names.get(column.name, column.name))

    made = tuple(replace(item, field=Field(names[item.name], item.field.type)) for item in over.items)
    below: Plan = replace(over, items=made)
    if isinstance(under, ops.Filter):
        below = ops.Filter(below, rename(under.condition, called))
    if isinstance(plan.input, ops.Unnest):
        lists = tuple(replace(item, node=rename(item.node, called)) for item in plan.input.items)
        below = ops.Unnest(below, lists)
    return ops.Project(below, tuple(replace(item, node=rename(item.node, called)) for item in plan.items))


def _of(*nodes: Node | None) -> Set[str]:
    return {name for node in nodes if node is not None for name in columns_of(node)}


def _kept(fields: tuple[Field, ...], wanted: Set[str], least: str) -> tuple[Field, ...]:
    kept = tuple(field for field in fields if field.name in wanted)
    return kept or tuple(field for field in fields if field.name == least)
