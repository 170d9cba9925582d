"""A plan taken apart: what approximate and progressive operators know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nile.execution.values import all_of
from nile.expressions.tree import Node, rename
from nile.sql.plan import Distinct, Filter, Group, Join, Limit, Plan, Project, Sort, Stream
from nile.summaries.errors import NotYet

__all__ = ["Shape", "shape_of"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan taken apart: what is on top of a group, the group, and the join or stream below it.

    top: ORDER BY and LIMIT, outermost first; above: selections and projections under it, outermost first, over the
    group or else over the columns of the leaves; core: the Join, or the one Stream; where: what the rows below a group
    (or of a single stream) must satisfy, over the columns of leaves; group: with arguments over those columns.
    """

    top: tuple[Sort | Limit, ...]
    above: tuple[Filter | Project, ...]
    group: Group | None
    where: Node | None
    core: Join | Stream


def shape_of(plan: Plan) -> Shape:
    """The parts of a plan that approximate operators know.  Raises NotYet for one they do not."""
    top: list[Sort | Limit] = []
    while isinstance(plan, Sort | Limit):
        top.append(plan)
        plan = plan.input
    above: list[Filter | Project] = []
    while isinstance(plan, Filter | Project):
        above.append(plan)
        plan = plan.input
    distinct = False
    if isinstance(plan, Distinct) and isinstance(plan.input, Project):  # each row once: a group of all its columns
        plan, distinct = Group(plan.input.input, plan.input.items, ()), True
    if isinstance(plan, Group):
        where, names, core = _flattened(plan.input)
        group = replace(
            plan,
            by=tuple(replace(item, node=_substituted(item.node, names)) for item in plan.by),
            aggregates=tuple(
                each if each.argument is None else replace(each, argument=_substituted(each.argument, names))
                for each in plan.aggregates
            ),
        )
        if distinct and not isinstance(core, Join):
            raise NotYet(
                "approximate DISTINCT: needed a join, of whose outputs each row comes once; got one stream, of which "
                "a row that was not looked at may be another; leave out WITH PREFERENCE and BUDGET, or DISTINCT"
            )
        return Shape(tuple(top), tuple(above), group, where, core)
    if isinstance(plan, Stream | Join):
        return Shape(tuple(top), tuple(above), None, None, plan)
    raise _not_yet(plan)


def _flattened(plan: Plan) -> tuple[Node | None, dict[str, Node], Join | Stream]:
    """(condition, what each column is, core) of selections and projections over a core, in the core's columns."""
    if isinstance(plan, Stream | Join):
        return None, {}, plan
    if isinstance(plan, Filter):
        where, names, core = _flattened(plan.input)
        return all_of(where, _substituted(plan.condition, names)), names, core
    if isinstance(plan, Project):
        where, names, core = _flattened(plan.input)
        return where, {item.name: _substituted(item.node, names) for item in plan.items}, core
    raise _not_yet(plan)


def _not_yet(plan: Plan) -> NotYet:
    what = {
        "SetOperation": "UNION, INTERSECT or EXCEPT",
        "Distinct": "DISTINCT",
        "Relation": "a stored relation",
        "Windowed": "a window on a query, or SAMPLE",
        "ToStream": "ISTREAM, DSTREAM or RSTREAM",
        "Hop": "TUMBLE or HOP",
        "Unnest": "unnest",
        "OnClose": "EMIT ON WINDOW CLOSE",
        "Every": "EMIT EVERY",
        "Over": "a window function (OVER)",
        "Outer": "an outer, semi or anti join (or IN, EXISTS)",
    }
    name = what.get(type(plan).__name__, type(plan).__name__.lower())
    return NotYet(
        f"approximate query: needed selections, window joins and aggregates of streams; got {name}, which has no "
        "approximate operator yet; leave out WITH PREFERENCE, BUDGET and ERROR for the exact answer"
    )


def _substituted(node: Node, names: Mapping[str, Node]) -> Node:
    """A tree with columns replaced by what they stand for."""
    return rename(node, lambda column: names.get(column.name, column))
