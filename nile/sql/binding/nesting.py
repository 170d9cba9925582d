"""Queries inside of expressions become joins: one value a cross or left join, EXISTS and IN a semi or anti join, or
where their truth is a value among others (under OR, in CASE) a column of every row that says whether it has a partner.

A query may name columns of the one around it in the conditions of its WHERE; these become conditions of the join
(Kim, ACM TODS 7 (1982); Dayal, VLDB 1987).  So what is kept up to date is what a join keeps up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from nile.expressions.folding import fold
from nile.expressions.places import Fault, NotYetFault
from nile.expressions.tree import (
    Call,
    Case,
    Column,
    Constant,
    IsNull,
    Logic,
    Node,
    Not,
    columns_of,
    conjunction,
    rename,
)
from nile.sql import plan as ops
from nile.sql.binding.expression_binder import ExpressionBinder, Grouping, told_apart
from nile.sql.binding.from_binder import FromBinder
from nile.sql.binding.inputs import Inputs, column_of, joined_plan
from nile.sql.binding.links import links, quantified
from nile.sql.binding.scope import Scope
from nile.sql.binding.single import single
from nile.sql.parsed import Block, Derived, Expression, Nested, Written
from nile.sql.plan import Field, Plan
from nile.sql.rewriting.pushing import recognised
from nile.summaries.heavy import pa

__all__ = ["Nesting"]

_Step: TypeAlias = tuple[Literal["semi", "anti"], Plan, Sequence[Node]]
"""What EXISTS or IN as a condition does to the rows around it: the kind of join, with what, and when."""


class Blocks(Protocol):
    """What binds the queries of a statement."""

    def bind(self, query: Written) -> Bound:
        """A query by itself."""

    def nested(self, block: Block, outer: Scope, correlated: list[Node]) -> Bound:
        """One inside of an expression; conditions that name columns of `outer` go to `correlated`."""

    def where(
        self, block: Block, scope: Scope, outer: Scope | None, correlated: list[Node], nesting: Nesting
    ) -> list[Node]:
        """The conditions of a WHERE, those on columns of `outer` aside."""

    def values(self, block: Block, scope: Scope) -> list[Node]:
        """The columns of a query without groups."""


class Bound(Protocol):
    """A bound query."""

    @property
    def plan(self) -> Plan:
        """Its plan."""

    @property
    def aggregates(self) -> bool:
        """Whether it has any."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of a query in EXISTS or IN, and when one of them is meant.

    value: what IN compares with, over the plan's columns; conditions: over both queries' columns.
    """

    plan: Plan
    conditions: tuple[Node, ...]
    value: Node | None


class Nesting:
    """The queries in the expressions of one SELECT.

    scope: what they may name of it, beside their own; grouping: of the SELECT, where they stand above its groups.
    """

    def __init__(self, binder: Blocks, sources: FromBinder, scope: Scope, grouping: Grouping | None = None) -> None:
        self._grouping = grouping
        self._binder = binder
        self._from = sources
        self._scope = Scope(scope.sources, scope.merged)
        self.scalars: list[Plan] = []
        self._left: list[tuple[Plan, tuple[tuple[str, str], ...]]] = []
        self._marks: list[ops.Outer] = []
        self._steps: list[_Step] = []
        self._start = 0
        self._asked: list[tuple[Nested, Expression]] = []

    def __call__(self, nested: Nested, around: ExpressionBinder) -> Node:
        """What stands in a condition of WHERE for the query."""
        if nested.kind == "scalar":
            return self._scalar(nested)
        self._asked.append((nested, around.written))
        return Column(f"?{len(self._asked) - 1}", "boolean")

    def value(self, nested: Nested, around: ExpressionBinder) -> Node:
        """What stands in another expression for the query."""
        if nested.kind != "scalar":
            return self._marked(nested, around.written)
        return self._scalar(nested)

    # One value.

    def _scalar(self, nested: Nested) -> Node:
        query = nested.query
        query = single(query, nested.start)
        correlated: list[Node] = []
        try:
            bound = self._binder.nested(query, self._scope, correlated)
        except Fault as fault:
            if query.sources and isinstance(query.sources[0].source, Derived) and query is not nested.query:
                fault.reason += (
                    "; a query that is a value and has GROUP BY, LIMIT or DISTINCT cannot name columns around it"
                )
            raise
        plan = bound.plan
        if not bound.aggregates or not isinstance(plan, ops.Project):
            raise _no_single_row(nested)
        if len(query.items) != 1 or len(plan.fields) != 1:
            raise Fault("needed one column in a query that is a value; got several; leave the others out", nested.start)
        if not correlated:
            source = self._from.derived("_value", plan, ("value",))
            self.scalars.append(source.plan)
            return column_of(source.columns["value"])
        return self._for_each(plan, correlated, nested)

    def _for_each(self, plan: ops.Project, correlated: Sequence[Node], nested: Nested) -> Node:
        """A value for each row around: groups by what is compared, joined on it, and nothing where there is none."""
        group = plan.input
        if not isinstance(group, ops.Group):
            raise _no_single_row(nested)
        inner = {field.name: 0 for field in group.input.fields}
        owner = inner | dict.fromkeys(self._scope.names, 1)
        pairs = []
        for node in correlated:
            pair = recognised(node, owner)
            if pair is None:
                raise NotYetFault(
                    "a value for each row needs conditions that columns of both queries are equal; got another one; "
                    "write a JOIN and GROUP BY",
                    nested.start,
                )
            pairs.append(pair if owner[pair[0]] == 0 else pair[::-1])
        types = {field.name: field for field in group.input.fields}
        keys = tuple(dict.fromkeys(own for own, _ in pairs))
        for own in keys:
            told_apart(column_of(types[own]), types[own].type, "=", nested.start)
        by = tuple(ops.Item(types[own], column_of(types[own])) for own in keys)
        grouped = replace(group, by=by)
        names = {field.name: f"c{at}" for at, field in enumerate(grouped.fields)}
        items = tuple(ops.Item(Field(names[each.name], each.type), column_of(each)) for each in grouped.fields)
        source = self._from.derived("_value", ops.Project(grouped, items))
        called = {name: source.columns[short] for name, short in names.items()}
        counts = {each.name for each in group.aggregates if each.function == "count"}

        def outside(column: Column) -> Node:
            found = column_of(called[column.name])
            return Call("coalesce", (found, Constant(0, "integer")), "integer") if column.name in counts else found

        equal = tuple(dict.fromkeys((self._outside(theirs, nested), called[own].name) for own, theirs in pairs))
        self._left.append((source.plan, equal))
        return rename(plan.items[0].node, outside)

    def _outside(self, name: str, nested: Nested) -> str:
        """What a column of the query around is called where this one stands."""
        if self._grouping is None:
            return name
        key = self._grouping.above(column_of(self._scope.fields[name]), nested.start)
        if not isinstance(key, Column):
            raise NotYetFault("a value for each row with GROUPING SETS is not there yet; write a JOIN", nested.start)
        return key.name

    # EXISTS and IN.

    def over(self, inputs: Inputs, conditions: Sequence[Node]) -> Plan:
        """The plan of a FROM and the conditions of its WHERE, with all queries in the expressions of the SELECT."""
        for each in self.scalars:
            inputs.add(each, comma=True)
        own = {field.name for each in inputs.plans for field in each.fields}
        plain: list[Node] = []
        later: list[Node] = []
        simple, told = self.conditions(conditions)
        for node in simple:
            (plain if own.issuperset(columns_of(node)) else later).append(node)
        inputs.conditions += plain
        plan = inputs.plan()
        for right, equal in self._left:
            plan = ops.Outer("left", plan, right, equal)
        remaining = conjunction(later)
        plan = plan if remaining is None else ops.Filter(plan, remaining)
        for kind, right, links_of in self._steps:
            plan = quantified(kind, plan, right, links_of)
        for mark in self._marks:
            plan = replace(mark, left=plan)
        known = conjunction(told)
        return plan if known is None else ops.Filter(plan, known)

    def conditions(self, conditions: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """(conditions without EXISTS and IN, those with their truth as a value); the others become joins."""
        simple, told = [], []
        for node in conditions:
            if (which := _asks(node)) is not None:
                self._quantify(*self._asked[which[0]], which[1])
            elif any(name.startswith("?") for name in columns_of(node)):
                told.append(rename(node, self._told))
            else:
                simple.append(node)
        return simple, told

    @property
    def is_used(self) -> bool:
        """Whether there were any."""
        return bool(self.scalars or self._left or self._marks or self._steps)

    def above(self, plan: Plan, called: Callable[[Column], Node]) -> Plan:
        """Groups beside the queries in the expressions above them.  called: what a column of the groups is now."""

        def name(old: str) -> str:
            new = called(Column(old))
            return new.name if isinstance(new, Column) else old

        plan = joined_plan([plan, *self.scalars], (), ()) if self.scalars else plan
        for right, equal in self._left:
            plan = ops.Outer("left", plan, right, tuple((name(one), other) for one, other in equal))
        for kind, right, links_of in self._steps:
            plan = quantified(kind, plan, right, [rename(node, called) for node in links_of])
        for mark in self._marks:
            equal = tuple((name(one), other) for one, other in mark.equal)
            condition = None if mark.condition is None else rename(mark.condition, called)
            plan = replace(mark, left=plan, equal=equal, condition=condition)
        return plan

    def _told(self, column: Column) -> Node:
        """A column, or what stands for a query in a condition with other parts."""
        return self._marked(*self._asked[int(column.name[1:])]) if column.name.startswith("?") else column

    def _marked(self, nested: Nested, around: Expression) -> Node:
        """EXISTS or IN as a value, told by a column of every row: of IN null where SQL has it unknown."""
        self._start = nested.start
        found = self._found(nested)
        if nested.kind == "exists":
            return self._mark(found.plan, found.conditions)
        item, equal = self._compared(nested, around, found)
        there = self._mark(found.plan, (*found.conditions, equal))
        plan, conditions = self._unknown(nested, item)
        branches = ((there, Constant(True, "boolean")), (self._mark(plan, conditions), Constant(None, "boolean")))
        return Case(branches, Constant(False, "boolean"), "boolean")

    def _above(self, conditions: Sequence[Node]) -> Sequence[Node]:
        return conditions if self._grouping is None else [self._grouping.above(c, self._start) for c in conditions]

    def _mark(self, right: Plan, conditions: Sequence[Node]) -> Column:
        """A column that says whether a row has a partner."""
        conditions = self._above(conditions)
        name = f"{self._from.own_name('_mark')}.there"
        names = {field.name for field in right.fields}
        outside = {n: 0 for node in conditions for n in columns_of(node) if n not in names}
        equal, condition = links(outside | dict.fromkeys(names, 1), conditions)
        self._marks.append(ops.Outer("mark", right, right, equal, condition, name))  # its left side comes in `over`
        return Column(name, "boolean")

    def _quantify(self, nested: Nested, around: Expression, wanted: bool) -> None:
        """EXISTS or IN as a condition: rows with a partner, or without."""
        self._start = nested.start
        found = self._found(nested)
        kind: Literal["semi", "anti"] = "semi" if wanted else "anti"
        if nested.kind == "exists":
            self._steps.append((kind, found.plan, self._above(found.conditions)))
            return
        item, equal = self._compared(nested, around, found)
        self._steps.append((kind, found.plan, self._above((*found.conditions, equal))))
        if not wanted:
            plan, conditions = self._unknown(nested, item)
            self._steps.append(("anti", plan, self._above(conditions)))

    def _unknown(self, nested: Nested, item: Node) -> tuple[Plan, tuple[Node, ...]]:
        """The rows that make IN unknown, and when: beside a null on either side, as SQL has it."""
        again = self._found(nested)
        assert again.value is not None
        inside = {field.name for field in again.plan.fields}
        looked_at = dict.fromkeys(name for node in again.conditions for name in columns_of(node) if name in inside)
        types = {field.name: field for field in again.plan.fields}
        null = fold(IsNull(again.value))
        items = [ops.Item(Field("null", pa.bool_()), null)]
        items += [
            ops.Item(Field(f"c{at}", types[name].type), column_of(types[name])) for at, name in enumerate(looked_at)
        ]
        source = self._from.derived("_null", ops.Distinct(ops.Project(again.plan, tuple(items))))
        called = {name: column_of(source.columns[f"c{at}"]) for at, name in enumerate(looked_at)}
        conditions = [rename(node, lambda column: called.get(column.name, column)) for node in again.conditions]
        unknown = Logic("OR", (column_of(source.columns["null"]), IsNull(item)))
        return source.plan, (*conditions, unknown)

    def _compared(self, nested: Nested, around: Expression, found: _Found) -> tuple[Node, Node]:
        """(what is compared, that the comparison with the query's value holds)."""
        assert nested.item is not None
        assert found.value is not None
        binder = ExpressionBinder(self._scope, around, self._grouping)
        try:
            item = binder.bind(nested.item)
            types = {field.name: field.type for field in found.plan.fields}
            return item, binder.compared(nested.item, nested.operator, found.value, types)
        except Fault as fault:
            if fault.start is None:
                fault.start = around.places.get(id(fault.node), nested.start)
            raise

    def _found(self, nested: Nested) -> _Found:
        query = nested.query
        if nested.kind == "in" and len(query.items if isinstance(query, Block) else ()) > 1:
            raise _several(nested)
        if isinstance(query, Block) and _is_plain(query, nested.kind):
            scope, inputs = self._from.sources(query)
            correlated: list[Node] = []
            nesting = Nesting(self._binder, self._from, scope)
            conditions = self._binder.where(query, scope, self._scope, correlated, nesting)
            value = None
            if nested.kind == "in":
                (value, *further) = self._binder.values(query, scope)
                if further:
                    raise _several(nested)
            else:  # nobody looks at them, but they have to be columns
                self._binder.values(query, Scope(scope.sources, scope.merged, self._scope))
            plan, called = self._named(nesting.over(inputs, conditions))
            value = None if value is None else rename(value, called)
            return _Found(plan, tuple(rename(node, called) for node in correlated), value)
        bound = self._binder.bind(_unordered(query))
        if nested.kind == "in" and len(bound.plan.fields) != 1:
            raise _several(nested)
        source = self._from.derived("_query", bound.plan)
        return _Found(source.plan, (), column_of(next(iter(source.columns.values()))))

    def _named(self, plan: Plan) -> tuple[Plan, Callable[[Column], Node]]:
        """A plan that one name of its own stands for, and what its columns are called then."""
        if isinstance(plan, ops.Stream | ops.Relation | ops.Project):
            return plan, lambda column: column
        names = {field.name: f"c{at}" for at, field in enumerate(plan.fields)}
        items = tuple(ops.Item(Field(names[each.name], each.type), column_of(each)) for each in plan.fields)
        source = self._from.derived("_query", ops.Project(plan, items))
        called = {name: column_of(source.columns[short]) for name, short in names.items()}
        return source.plan, lambda column: called.get(column.name, column)


def _is_plain(query: Block, kind: str) -> bool:
    """Whether a query is a FROM and a WHERE, as far as EXISTS or IN can tell."""
    if query.group is not None or query.having is not None or query.limit is not None or query.offset:
        return False
    values = [item.value for item in query.items if isinstance(item.value, Expression)]
    if any(value.aggregates for value in values):
        return False
    return kind == "exists" or (len(values) == 1 and len(query.items) == 1 and not values[0].nested)


def _unordered(query: Written) -> Written:
    """A query without an order, which nobody sees inside of EXISTS or IN."""
    return query if query.limit is not None or query.offset else replace(query, order=())


def _asks(node: Node) -> tuple[int, bool] | None:
    """(the number of the query that a condition is EXISTS or IN of, whether it is without NOT)."""
    wanted = True
    while isinstance(node, Not):
        node, wanted = node.item, not wanted
    if isinstance(node, Column) and node.name.startswith("?"):
        return int(node.name[1:]), wanted
    return None


def _several(nested: Nested) -> Fault:
    return Fault("needed one column in the query of IN; got several; leave the others out", nested.start)


def _no_single_row(nested: Nested) -> Fault:
    return NotYetFault(
        "a value for each row of a query with GROUP BY, LIMIT or DISTINCT is not there yet, only of those that select "
        "or aggregate, such as (SELECT max(price) FROM s WHERE s.k = t.k); write a JOIN",
        nested.start,
    )
