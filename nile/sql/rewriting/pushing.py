"""Predicate pushdown: selections move towards the streams, and projections that only rename are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nile.expressions.binding import typed_column
from nile.expressions.folding import fold
from nile.expressions.tree import Column, Compare, Constant, Node, Not, columns_of, conjunction, conjuncts, rename
from nile.sql import plan as ops
from nile.sql.binding.scope import unique
from nile.sql.plan import Field, Plan, Stream, map_inputs

__all__ = ["merge_projections", "push_selections", "recognised"]


def push_selections(plan: Plan) -> Plan:
    """Every condition as far down as it means the same.

    A condition on one stream's columns becomes the stream's `where`, except under ROWS windows, which count before
    they select; one on several inputs of a join becomes an equality or the join's condition.
    """
    plan = map_inputs(plan, push_selections)
    if isinstance(plan, ops.Outer):
        return _outer_condition(plan)
    if isinstance(plan, ops.Filter):
        return _pushed(plan.input, conjuncts(plan.condition))
    return plan


def _pushed(plan: Plan, conditions: Sequence[Node]) -> Plan:
    """`plan`, whose rows must meet the conditions."""
    conditions = [each for each in conditions if each != Constant(True, "boolean")]
    if not conditions:
        return plan
    match plan:
        case ops.Filter():
            return _pushed(plan.input, [*conjuncts(plan.condition), *conditions])
        case Stream() if not isinstance(plan.window, ops.Rows):
            return replace(plan, where=conjunction([*conjuncts(plan.where), *conditions]))
        case ops.Relation():
            return replace(plan, where=conjunction([*conjuncts(plan.where), *conditions]))
        case ops.Join():
            return _into_join(plan, conditions)
        case ops.Hop():
            own = [each for each in conditions if set(columns_of(each)).isdisjoint(plan.names)]
            below = replace(plan, input=_pushed(plan.input, own))
            return _filtered(below, [each for each in conditions if each not in own])
        case ops.Unnest():
            return replace(plan, input=_pushed(plan.input, conditions))  # no condition names an element: `_through`
        case ops.Outer():
            return _into_outer(plan, conditions)
        case ops.Distinct() | ops.SetOperation():
            free = [each for each in conditions if _may_enter(plan, each)]
            return _filtered(_below(plan, free), [each for each in conditions if each not in free])
        case ops.Project() if not isinstance(plan.input, ops.Windowed):
            return _through(plan, {item.name: item.node for item in plan.items}, conditions)
        case ops.Group() if plan.by:
            return _through(plan, {item.name: item.node for item in plan.by}, conditions)
    return _filtered(plan, conditions)


def _may_enter(plan: Plan, condition: Node) -> bool:
    """Whether a condition on the rows of a query can go below its projection: whether that only renames."""
    match plan:
        case ops.Distinct():
            return _may_enter(plan.input, condition)
        case ops.SetOperation():
            right = _on_the_right(plan, condition)
            return _may_enter(plan.left, condition) and _may_enter(plan.right, right)
        case ops.Project():
            renamed = {item.name for item in plan.items if _is_below(plan, item.node)}
            names = columns_of(condition)
            return bool(names) and all(name in renamed for name in names)
    return False


def _below(plan: ops.Distinct | ops.SetOperation, conditions: Sequence[Node]) -> Plan:
    if isinstance(plan, ops.Distinct):
        return replace(plan, input=_pushed(plan.input, conditions))
    right = [_on_the_right(plan, each) for each in conditions]
    return replace(plan, left=_pushed(plan.left, conditions), right=_pushed(plan.right, right))


def _on_the_right(plan: ops.SetOperation, condition: Node) -> Node:
    """A condition on the rows of a set operation in the names of its right side."""
    names = {a.name: _column(b) for a, b in zip(plan.left.fields, plan.right.fields, strict=True)}
    return rename(condition, lambda column: names[column.name])


def _filtered(plan: Plan, conditions: Sequence[Node]) -> Plan:
    condition = conjunction(conditions)
    return plan if condition is None else ops.Filter(plan, condition)


def _through(plan: ops.Project | ops.Group, below: Mapping[str, Node], conditions: Sequence[Node]) -> Plan:
    """Conditions on columns that are only called differently below go below."""
    renamed = {name: node for name, node in below.items() if isinstance(node, Column) and _is_below(plan, node)}
    free = [each for each in conditions if columns_of(each) and all(name in renamed for name in columns_of(each))]
    bound = [each for each in conditions if each not in free]
    if free:
        inner = []
        for each in free:
            asked = rename(each, lambda column: renamed[column.name])
            decided = _decided(plan, asked)
            inner += [asked] if decided is None else []
            plan = decided or plan
        plan = replace(plan, input=_pushed(plan.input, inner))
    return _filtered(plan, bound)


def _is_below(plan: ops.Project | ops.Group, node: Node) -> bool:
    """Whether a value is a column of the rows below, which an element of a list is not."""
    elements = {item.name for item in plan.input.items} if isinstance(plan.input, ops.Unnest) else ()
    return isinstance(node, Column) and node.name not in elements


def _decided(plan: ops.Project | ops.Group, condition: Node) -> ops.Project | ops.Group | None:
    """A query whose rows must, or must not, have a partner that a column below tells of: the join says so.

    condition: over the columns below; None: it says something else.
    """
    item, there = (condition.item, False) if isinstance(condition, Not) else (condition, True)
    if not isinstance(item, Column) or (below := _chosen(plan.input, item.name, there)) is None:
        return None

    def known(node: Node) -> Node:
        return fold(rename(node, lambda each: Constant(there, "boolean") if each.name == item.name else each))

    if isinstance(plan, ops.Project):
        return ops.Project(below, tuple(replace(each, node=known(each.node)) for each in plan.items))
    aggregates = (each.over(known) for each in plan.aggregates)
    return ops.Group(below, tuple(replace(each, node=known(each.node)) for each in plan.by), tuple(aggregates))


def _chosen(plan: Plan, mark: str, there: bool) -> Plan | None:
    """The rows of a plan with a partner, or without, where a join below tells so in the column `mark`."""
    if not isinstance(plan, ops.Outer) or plan.kind != "mark":
        return None
    if plan.mark == mark:
        return replace(plan, kind="semi" if there else "anti", mark="")
    if mark in columns_of(plan.condition or Constant(True, "boolean")):
        return None
    left = _chosen(plan.left, mark, there)
    return None if left is None else replace(plan, left=left)


def _into_join(plan: ops.Join, conditions: Sequence[Node]) -> ops.Join:
    owner = {field.name: at for at, each in enumerate(plan.inputs) for field in each.fields}
    inputs, equal = list(plan.inputs), list(plan.equal)
    rest = list(conjuncts(plan.condition))
    for condition in conditions:
        owners = {owner[name] for name in columns_of(condition)}
        pair = recognised(condition, owner)
        if len(owners) == 1:
            (at,) = owners
            inputs[at] = _pushed(inputs[at], [condition])
        elif pair is None:
            rest.append(condition)
        elif pair not in equal and pair[::-1] not in equal:
            equal.append(pair)
    return replace(plan, inputs=tuple(inputs), equal=tuple(equal), condition=conjunction(rest))


_OWN_ROWS = {"left": "left", "semi": "left", "anti": "left", "mark": "left", "right": "right"}
"""Of which side an outer join's rows are, so that a condition on them may be asked before it."""
_PARTNERS = {"left": ("right",), "anti": ("right",), "mark": ("right",), "right": ("left",), "semi": ("left", "right")}
"""On which sides a condition of an outer join, on that side alone, only says which partners there are."""


def _side(plan: ops.Outer, condition: Node) -> str | None:
    """The one side that a condition is about."""
    names = set(columns_of(condition))
    for side, below in (("left", plan.left), ("right", plan.right)):
        if names and names <= {field.name for field in below.fields}:
            return side
    return None


def _with_side(plan: ops.Outer, side: str | None, condition: Node) -> ops.Outer:
    if side == "left":
        return replace(plan, left=_pushed(plan.left, [condition]))
    return replace(plan, right=_pushed(plan.right, [condition]))


def _into_outer(plan: ops.Outer, conditions: Sequence[Node]) -> Plan:
    """Conditions on the rows that an outer join gives."""
    rest = []
    for condition in conditions:
        side = _side(plan, condition)
        if side is not None and side == _OWN_ROWS.get(plan.kind):
            plan = _with_side(plan, side, condition)
        else:
            rest.append(condition)
    return _filtered(plan, rest)


def _outer_condition(plan: ops.Outer) -> ops.Outer:
    """An outer join's own condition: equalities apart, and on partners alone asked before."""
    owner = {field.name: 0 for field in plan.left.fields} | {field.name: 1 for field in plan.right.fields}
    equal, rest = list(plan.equal), []
    for condition in conjuncts(plan.condition):
        pair, side = recognised(condition, owner), _side(plan, condition)
        if condition == Constant(True, "boolean"):
            continue
        if pair is not None:
            pair = pair if owner[pair[0]] == 0 else pair[::-1]
            equal += [pair] if pair not in equal else []
        elif side in _PARTNERS.get(plan.kind, ()):
            plan = _with_side(plan, side, condition)
        else:
            rest.append(condition)
    return replace(plan, equal=tuple(equal), condition=conjunction(rest))


def recognised(condition: Node, owner: Mapping[str, int]) -> tuple[str, str] | None:
    """The columns of two inputs that a condition says are equal; None: it says something else.

    owner: which input each column is of.  A whole number beside a double is no key, as they compare as doubles.
    """
    if not isinstance(condition, Compare) or condition.operator != "=":
        return None
    left, right = condition.left, condition.right
    if not isinstance(left, Column) or not isinstance(right, Column) or left.kind != right.kind:
        return None
    return (left.name, right.name) if owner[left.name] != owner[right.name] else None


def merge_projections(plan: Plan) -> Plan:
    """A projection of a projection is one, where either of them only renames."""
    plan = map_inputs(plan, merge_projections)
    if isinstance(plan, ops.Project) and isinstance(plan.input, ops.Limit | ops.Sort):
        return _with_hidden(plan)
    if not isinstance(plan, ops.Project) or not isinstance(plan.input, ops.Project):
        return plan
    upper, lower = plan, plan.input
    if not (_only_renames(upper) or _only_renames(lower)):
        return plan
    if isinstance(lower.input, ops.Unnest):
        said = _named([item.node for item in upper.items])
        elements = {item.name for item in lower.input.items}
        lost = [item for item in lower.items if item.name not in said and elements & set(columns_of(item.node))]
        if lost:
            return plan  # how many rows there are hangs on every element
    below = {item.name: item.node for item in lower.items}
    items = [(item.field, rename(item.node, lambda column: below[column.name])) for item in upper.items]
    # What a constant was put into is folded, as it would be had it been written so.
    return ops.Project(lower.input, tuple(ops.Item(field, fold(node)) for field, node in items))


def _with_hidden(plan: ops.Project) -> ops.Project:
    """What is sorted by and not returned is called as where the query itself does not return it."""
    sort = plan.input.input if isinstance(plan.input, ops.Limit) else plan.input
    if not isinstance(sort, ops.Sort) or not isinstance(sort.input, ops.Project):
        return plan
    below = sort.input
    shown = _named([item.node for item in plan.items])
    names: dict[str, str] = {}
    for item in below.items:
        if item.name not in shown:
            names[item.name] = unique("_order", {*shown, *names.values()})
    if all(old == new for old, new in names.items()):
        return plan

    def called(column: Column) -> Column:
        return replace(column, name=names.get(column.name, column.name))

    items = tuple(replace(each, field=Field(names.get(each.name, each.name), each.field.type)) for each in below.items)
    keys = tuple(replace(key, node=rename(key.node, called)) for key in sort.keys)
    sort = ops.Sort(replace(below, items=items), keys)
    return replace(plan, input=replace(plan.input, input=sort) if isinstance(plan.input, ops.Limit) else sort)


def _named(nodes: Sequence[Node]) -> set[str]:
    return {name for node in nodes for name in columns_of(node)}


def _only_renames(plan: ops.Project) -> bool:
    return all(isinstance(item.node, Column | Constant) for item in plan.items)


def _column(field: Field) -> Column:
    return typed_column(field.name, field.type)
