"""Name resolution: a query as written becomes a bound plan.

A SELECT becomes, from below: its sources; a Join of them; a Filter for WHERE; a Group and a Filter for HAVING; a
Project to the output's names; Distinct; Sort and Limit.  A key of ORDER BY that is not returned rides along as a
hidden column of the Project below the Sort, and a Project above takes it off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nile.expressions.places import Fault, NotYetFault
from nile.expressions.tree import Column, Node, columns_of, conjunction, conjuncts, rename
from nile.sql import plan as ops
from nile.sql.binding.combining import alike, all_of_sets, by_name
from nile.sql.binding.expression_binder import ExpressionBinder, Grouping, in_order, told_apart, typed
from nile.sql.binding.from_binder import FromBinder
from nile.sql.binding.inputs import column_of
from nile.sql.binding.nesting import Nesting
from nile.sql.binding.outputs import Output, alias, aliases, expanded, few, named, of_rows, position, spread
from nile.sql.binding.over_binder import Overs
from nile.sql.binding.scope import Scope, ScopeSource, find, unique
from nile.sql.binding.unnesting import Unnests
from nile.sql.catalog import Catalog
from nile.sql.parsed import Block, Expression, GroupingSets, Operation, Ordered, Streamed, Written
from nile.sql.plan import Field, Plan

__all__ = ["BoundBlock", "QueryBinder"]


@dataclass(frozen=True, slots=True)
class BoundBlock:
    """A bound query.  scope: of its FROM; None for a set operation.  aggregates: whether it has any.

    share: the probability that a row is in the samples that it is of; 1 of groups, which say what the whole has.
    """

    plan: Plan
    scope: Scope | None
    aggregates: bool = False
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the expressions of a SELECT are bound against, above its WHERE."""

    scope: Scope
    grouping: Grouping | None
    nesting: Nesting | None
    overs: Overs | None
    unnests: Unnests | None = None

    def binder(self, written: Expression, known: Mapping[str, Expression] | None = None) -> ExpressionBinder:
        """What binds one of them.  known: aliases that it may name."""
        queries = None if self.nesting is None else self.nesting.value
        return ExpressionBinder(self.scope, written, self.grouping, known, queries, self.overs, self.unnests)


class QueryBinder:
    """Binds the queries of one statement.

    window: that of every stream without one of its own.  Raises Fault.
    """

    def __init__(self, catalog: Catalog, window: ops.StreamWindow, *, closing: bool = False) -> None:
        self._closing = closing
        self.sources = FromBinder(catalog, window, self._given)
        self._depth = 0

    def _given(self, query: Written) -> tuple[Plan, float]:
        """The plan of a query in FROM, and of how much of the whole its rows are."""
        bound = self.bind(query)
        return bound.plan, bound.share

    def bind(self, query: Written) -> BoundBlock:
        """The plan of a query; its root's columns are called as the user sees them."""
        if self._depth and query.limit is None and not query.offset:
            query = replace(query, order=())  # an order that nobody sees
        self._depth += 1
        bound = self._bind(query)
        self._depth -= 1
        return bound

    def _bind(self, query: Written) -> BoundBlock:
        if isinstance(query, Block) and isinstance(query.group, GroupingSets):
            return self._sets(query, query.group)
        if isinstance(query, Streamed):
            inner = self.bind(query.query)
            return BoundBlock(ops.ToStream(query.kind, inner.plan), None, False, inner.share)
        return self._block(query) if isinstance(query, Block) else self._operation(query)

    def _operation(self, query: Operation) -> BoundBlock:
        sides = self.bind(query.left), self.bind(query.right)
        left, right = (side.plan for side in sides)
        if query.by_name:
            left, right = by_name(left, right, query.start)
        if any(side.share != 1.0 for side in sides):
            raise NotYetFault(
                f"a sample in {query.kind.upper()} would not estimate the whole; group each side first",
                query.start,
            )
        if len(left.fields) != len(right.fields):
            raise Fault(
                f"needed as many columns on both sides of {query.kind.upper()}; got {len(left.fields)} and "
                f"{len(right.fields)}",
                query.start,
            )
        left, right = alike(left, right, query)
        if not (query.all and query.kind == "union"):
            for field in left.fields:
                told_apart(column_of(field), field.type, query.kind.upper(), query.start)
        plan: Plan = ops.SetOperation(query.kind, query.all, left, right)
        scope = _output_scope(plan)
        keys = [
            self._output_key(each, plan, scope)
            for each in few(spread(query.order, len(plan.fields)), "ORDER BY", query.start)
        ]
        return BoundBlock(_limited(_sorted(plan, keys), query), None)

    def _sets(self, block: Block, groups: GroupingSets) -> BoundBlock:
        """A query for each grouping set, and all of them together."""
        values = [item.value for item in block.items]
        if block.qualify is not None or any(isinstance(each, Expression) and each.overs for each in values):
            raise NotYetFault(
                "window functions with GROUPING SETS, ROLLUP and CUBE are not there yet; write the groups as a query "
                "in FROM",
                block.start,
            )
        absent = tuple(key for each in groups.sets for key in each)
        alone = replace(block, absent=absent, order=(), limit=None, offset=0, distinct=False)
        self._depth += 1
        made = [self._block(replace(alone, group=keys)) for keys in groups.sets]
        self._depth -= 1
        plan = all_of_sets([each.plan for each in made])
        if block.distinct:
            for field in plan.fields:
                told_apart(column_of(field), field.type, "DISTINCT", block.start)
            plan = ops.Distinct(plan)
        texts = [each.text if isinstance(each, Expression) else "" for each in values]
        texts = texts if len(texts) == len(plan.fields) else []
        keys = []
        for ordered in few(spread(block.order, len(plan.fields)), "ORDER BY", block.start):
            assert ordered.key is not None
            if ordered.key.text in texts and not find(ordered.key.text, [field.name for field in plan.fields]):
                node: Node = column_of(plan.fields[texts.index(ordered.key.text)])
                keys.append(_sort_key(node, ordered, plan))
            else:
                keys.append(self._output_key(ordered, plan, _output_scope(plan)))
        return BoundBlock(_limited(_sorted(plan, keys), block), None, any(each.aggregates for each in made))

    def _output_key(self, ordered: Ordered, plan: Plan, scope: Scope) -> ops.SortKey:
        assert ordered.key is not None
        at = position(ordered.key, len(plan.fields), "ORDER BY")
        node = (
            ExpressionBinder(scope, ordered.key, None).value("ORDER BY") if at is None else column_of(plan.fields[at])
        )
        return _sort_key(node, ordered, plan)

    def nested(self, block: Block, outer: Scope, correlated: list[Node]) -> BoundBlock:
        """A query inside of an expression.

        outer: of the query around it, whose columns may stand in conditions of its WHERE, which go to `correlated`.
        """
        self._depth += 1
        bound = self._block(block, outer, correlated)
        self._depth -= 1
        return bound

    def where(
        self, block: Block, scope: Scope, outer: Scope | None, correlated: list[Node], nesting: Nesting
    ) -> list[Node]:
        """The conditions of a WHERE; those that name columns of the query around go to `correlated`."""
        if block.where is None:
            return []
        inner = Scope(scope.sources, scope.merged, outer)
        conditions = conjuncts(ExpressionBinder(inner, block.where, None, of_rows(block), nesting).condition("WHERE"))
        if outer is None:
            return list(conditions)
        theirs = outer.names
        outside = [node for node in conditions if not theirs.isdisjoint(columns_of(node))]
        if any(name.startswith("?") for node in outside for name in columns_of(node)):
            raise NotYetFault(
                "a query beside a column of the query two levels up, under one OR, is not there yet; write a JOIN",
                block.where.start,
            )
        correlated += outside
        return [node for node in conditions if theirs.isdisjoint(columns_of(node))]

    def values(self, block: Block, scope: Scope) -> list[Node]:
        """The columns of a query without groups."""
        reading = _Reading(scope, None, Nesting(self, self.sources, scope), _overs(scope, None))
        return [self._item(output, reading) for output in expanded(block, scope)]

    def _block(self, block: Block, outer: Scope | None = None, correlated: list[Node] | None = None) -> BoundBlock:
        scope, inputs = self.sources.sources(block)
        below = Nesting(self, self.sources, scope)
        conditions = self.where(block, scope, outer, [] if correlated is None else correlated, below)
        items = expanded(block, scope)
        grouping = self._grouping(block, items, scope)
        nesting = below if grouping is None else Nesting(self, self.sources, scope, grouping)
        overs = _overs(scope, grouping)
        reading = _Reading(scope, grouping, nesting, overs)
        unnests = Unnests()
        bound = [
            self._item(item, replace(reading, unnests=unnests), aliases(items[:at])) for at, item in enumerate(items)
        ]
        having = None
        if block.having is not None and grouping is not None:
            node = ExpressionBinder(scope, block.having, grouping, aliases(items), nesting).condition("HAVING")
            simple, told = nesting.conditions(conjuncts(node))
            having = conjunction([*simple, *told])
        qualify = None
        if block.qualify is not None:
            qualify = reading.binder(block.qualify, aliases(items)).condition("QUALIFY")
        keys = self._order_nodes(block, items, bound, reading)
        plan = below.over(inputs, conditions)
        if grouping is not None:
            grouping.complete()
            plan = ops.Group(plan, grouping.keys, tuple(grouping.aggregates))
            if nesting.is_used:
                if overs.items:
                    raise NotYetFault("scalar subqueries with OVER are not there yet", block.start)
                plan, called = self._beside(plan, nesting)
                bound = [rename(node, called) for node in bound]
                having = None if having is None else rename(having, called)
                keys = [(key if isinstance(key, int) else rename(key, called), ordered) for key, ordered in keys]
            if having is not None:
                plan = ops.Filter(plan, having)
        if qualify is not None and not overs.items:
            raise Fault("needed a window function for QUALIFY; got none; write WHERE or HAVING", block.start)
        plan = overs.over(plan)
        if qualify is not None:
            plan = ops.Filter(plan, qualify)
        plan = unnests.over(plan)
        visible = named([item.name for item in items])
        outputs = [ops.Item(typed(name, node, plan), node) for name, node in zip(visible, bound, strict=True)]
        aggregates = grouping is not None and bool(grouping.aggregates)
        if self._closing and self._depth == 1:
            outputs.append(_closing(block, scope, grouping))
        if scope.share != 1.0 and (overs.items or block.distinct):
            raise NotYetFault("OVER and DISTINCT of a sample are not there yet; leave SAMPLE out", block.start)
        share = 1.0 if grouping is not None else scope.share
        return BoundBlock(_finished(block, plan, outputs, keys), scope, aggregates, share)

    def _beside(self, group: ops.Group, nesting: Nesting) -> tuple[Plan, Callable[[Column], Node]]:
        """Groups beside queries that are values, and what the groups' columns are called then."""
        names = {field.name: f"c{at}" for at, field in enumerate(group.fields)}
        items = tuple(ops.Item(Field(names[each.name], each.type), column_of(each)) for each in group.fields)
        source = self.sources.derived("_group", ops.Project(group, items))
        called = {name: column_of(source.columns[short]) for name, short in names.items()}

        def now(column: Column) -> Node:
            return called.get(column.name, column)

        return nesting.above(source.plan, now), now

    def _item(self, item: Output, reading: _Reading, before: Mapping[str, Expression] | None = None) -> Node:
        if isinstance(item.value, Field):
            column = column_of(item.value)
            return column if reading.grouping is None else reading.grouping.above(column, item.start)
        return reading.binder(item.value, before).value("SELECT")

    # Groups.

    def _grouping(self, block: Block, items: Sequence[Output], scope: Scope) -> Grouping | None:
        expressions = [item.value for item in items if isinstance(item.value, Expression)]
        others = [each for each in (block.having, *(key.key for key in block.order)) if each is not None]
        grouped = block.group is not None or block.having is not None
        if not grouped and not any(each.aggregates for each in (*expressions, *others)):
            return None
        grouping = Grouping(scope)
        if block.group == "all":
            for item in items:
                if isinstance(item.value, Field):
                    grouping.add_key(column_of(item.value), item.start)
                elif not item.value.aggregates:
                    grouping.add_key(ExpressionBinder(scope, item.value, None).value("GROUP BY"), item.start)
            return grouping
        assert not isinstance(block.group, GroupingSets)
        for key in few(block.group or (), "GROUP BY", block.start):
            grouping.add_key(self._key(key, items, scope), key.start)
        for key in block.absent:
            grouping.add_absent(self._key(key, items, scope))
        return grouping

    def _key(self, key: Expression, items: Sequence[Output], scope: Scope) -> Node:
        at = position(key, len(items), "GROUP BY")
        if at is None:
            at = alias(key, items, scope)
        if at is None:
            return ExpressionBinder(scope, key, None).value("GROUP BY")
        value = items[at].value
        if isinstance(value, Field):
            return column_of(value)
        if value.aggregates:
            raise Fault("needed columns to group by; got an aggregate", key.start)
        return ExpressionBinder(scope, value, None).value("GROUP BY")

    def _order_nodes(
        self,
        block: Block,
        items: Sequence[Output],
        bound: Sequence[Node],
        reading: _Reading,
    ) -> list[tuple[Node | int, Ordered]]:
        """For each key the position of the output that it is, or its value below the outputs."""
        keys: list[tuple[Node | int, Ordered]] = []
        places = {node: at for at, node in reversed(list(enumerate(bound)))}
        for ordered in few(spread(block.order, len(items)), "ORDER BY", block.start):
            assert ordered.key is not None
            at = position(ordered.key, len(items), "ORDER BY")
            if at is None:
                at = alias(ordered.key, items, None)
            if at is None:
                node = replace(reading, nesting=None).binder(ordered.key, aliases(items)).value("ORDER BY")
                at = places.get(node)
                if at is None and block.distinct:
                    raise Fault(
                        "needed ORDER BY of columns that SELECT DISTINCT returns; got another one", ordered.key.start
                    )
                keys.append((node if at is None else at, ordered))
            else:
                keys.append((at, ordered))
        return keys


def _closing(block: Block, scope: Scope, grouping: Grouping | None) -> ops.Item:
    """The column that says when the window of a row ends."""
    ends = [source.columns["window_end"] for source in scope.sources if "window_end" in source.columns]
    if not ends or block.order or block.limit is not None or block.offset:
        raise Fault(
            "needed rows of TUMBLE or HOP, or a query with their window_end, and no ORDER BY, for EMIT ON WINDOW "
            "CLOSE; got another query",
            block.start,
        )
    node: Node = column_of(ends[0])
    if grouping is not None:
        try:
            node = grouping.above(node, block.start)
        except Fault:
            raise Fault(
                "needed GROUP BY window_end (and what else there is) for EMIT ON WINDOW CLOSE; got groups over several "
                "windows; add it to GROUP BY",
                block.start,
            ) from None
    return ops.Item(Field("_close", ends[0].type), node)


def _overs(scope: Scope, grouping: Grouping | None) -> Overs:
    """The window functions of a SELECT: over its groups where it has any, else over its rows."""
    if grouping is not None:
        return Overs(grouping.above, lambda: grouping.fields)
    return Overs(lambda node, _: node, lambda: scope.fields)


def _output_scope(plan: Plan) -> Scope:
    return Scope((ScopeSource("", plan, {field.name: field for field in plan.fields}),))


def _sort_key(node: Node, ordered: Ordered, below: Plan) -> ops.SortKey:
    in_order(node, typed("", node, below).type, ordered.start)
    return ops.SortKey(node, ordered.descending, ordered.nulls_last)


def _sorted(plan: Plan, keys: Sequence[ops.SortKey]) -> Plan:
    return ops.Sort(plan, tuple(keys)) if keys else plan


def _limited(plan: Plan, query: Written) -> Plan:
    return plan if query.limit is None and not query.offset else ops.Limit(plan, query.limit, query.offset)


def _finished(
    block: Block, below: Plan, outputs: Sequence[ops.Item], keys: Sequence[tuple[Node | int, Ordered]]
) -> Plan:
    """The outputs, distinct, in order and cut."""
    items = list(outputs)
    sort: list[ops.SortKey] = []
    for node, ordered in keys:
        if isinstance(node, int):
            in_order(outputs[node].node, outputs[node].field.type, ordered.start)
            sort.append(ops.SortKey(column_of(outputs[node].field), ordered.descending, ordered.nulls_last))
            continue
        hidden = ops.Item(typed(unique("_order", {item.name for item in items}), node, below), node)
        in_order(node, hidden.field.type, ordered.start)
        items.append(hidden)
        sort.append(ops.SortKey(column_of(hidden.field), ordered.descending, ordered.nulls_last))
    plan: Plan = ops.Project(below, tuple(items))
    if block.distinct:
        for item in outputs:
            told_apart(item.node, item.field.type, "DISTINCT", block.start)
        plan = ops.Distinct(plan)
    plan = _limited(_sorted(plan, sort), block)
    if len(items) == len(outputs):
        return plan
    return ops.Project(plan, tuple(ops.Item(item.field, column_of(item.field)) for item in outputs))
