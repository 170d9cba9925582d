"""Names to columns: a query as written becomes a bound plan.

A SELECT becomes, from below: its sources; a Join of them; a Filter for WHERE; a Group and a Filter for HAVING; a
Project to the output's names; Distinct; Sort and Limit.  A key of ORDER BY that is not returned rides along as a
hidden column of the Project below the Sort, and a Project above takes it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nile.expressions.binding import is_native, kind_of
from nile.expressions.folding import fold
from nile.expressions.places import Fault, NotYetFault, listed, nearest
from nile.expressions.tree import Cast, Column, Node, conjunction, conjuncts
from nile.sql import plan as ops
from nile.sql.catalog import Catalog, Entry
from nile.sql.expression_binder import ExpressionBinder, Grouping, in_order, told_apart, typed
from nile.sql.outputs import Output, alias, aliases, expanded, few, named, position
from nile.sql.parsed import (
    Block,
    Derived,
    Expression,
    Operation,
    Ordered,
    Reference,
    Source,
    Table,
    Written,
)
from nile.sql.plan import Field, Plan, Stream
from nile.sql.pushing import recognised
from nile.sql.scope import Scope, ScopeSource, find, unique

__all__ = ["BoundBlock", "QueryBinder"]


@dataclass(frozen=True, slots=True)
class BoundBlock:
    """A bound query.  scope: of its FROM; None for a set operation.  aggregates: whether it has any."""

    plan: Plan
    scope: Scope | None
    aggregates: bool = False


class QueryBinder:
    """Binds the queries of one statement.

    window: that of every stream without one of its own.  Raises Fault.
    """

    def __init__(self, catalog: Catalog, window: ops.StreamWindow) -> None:
        self._catalog = catalog
        self._window = window
        self.streams = 0
        self.own_windows = 0
        self.windowed = window is not None
        self._depth = 0
        self._taken: set[str] = set()

    def bind(self, query: Written) -> BoundBlock:
        """The plan of a query; its root's columns are called as the user sees them."""
        if self._depth and (query.order or query.limit is not None or query.offset):
            raise NotYetFault(
                "ORDER BY and LIMIT inside of a query are not there yet; write them at the end of the statement",
                query.start,
            )
        self._depth += 1
        bound = self._bind(query)
        self._depth -= 1
        return bound

    def _bind(self, query: Written) -> BoundBlock:
        return self._block(query) if isinstance(query, Block) else self._operation(query)

    def _operation(self, query: Operation) -> BoundBlock:
        left, right = self.bind(query.left).plan, self.bind(query.right).plan
        if len(left.fields) != len(right.fields):
            raise Fault(
                f"needed as many columns on both sides of {query.kind.upper()}; got {len(left.fields)} and "
                f"{len(right.fields)}",
                query.start,
            )
        left, right = _alike(left, right, query)
        if not (query.all and query.kind == "union"):
            for field in left.fields:
                told_apart(_column(field), field.type, query.kind.upper(), query.start)
        plan: Plan = ops.SetOperation(query.kind, query.all, left, right)
        scope = _output_scope(plan)
        keys = [self._output_key(each, plan, scope) for each in few(query.order, "ORDER BY", query.start)]
        return BoundBlock(_limited(_sorted(plan, keys), query), None)

    def _output_key(self, ordered: Ordered, plan: Plan, scope: Scope) -> ops.SortKey:
        at = position(ordered.key, len(plan.fields), "ORDER BY")
        node = ExpressionBinder(scope, ordered.key, None).value("ORDER BY") if at is None else _column(plan.fields[at])
        return _sort_key(node, ordered, plan)

    def _block(self, block: Block) -> BoundBlock:
        scope, plan = self._sources(block)
        items = expanded(block, scope)
        grouping = self._grouping(block, items, scope)
        bound = [self._item(item, scope, grouping) for item in items]
        having = self._having(block, items, scope, grouping)
        keys = self._order_nodes(block, items, bound, scope, grouping)
        if grouping is not None:
            grouping.complete()
            plan = ops.Group(plan, grouping.keys, tuple(grouping.aggregates))
            if having is not None:
                plan = ops.Filter(plan, having)
        visible = named([item.name for item in items])
        outputs = [ops.Item(typed(name, node, plan), node) for name, node in zip(visible, bound, strict=True)]
        aggregates = grouping is not None and bool(grouping.aggregates)
        return BoundBlock(_finished(block, plan, outputs, keys), scope, aggregates)

    def _item(self, item: Output, scope: Scope, grouping: Grouping | None) -> Node:
        if isinstance(item.value, Field):
            column = _column(item.value)
            return column if grouping is None else grouping.above(column, item.start)
        return ExpressionBinder(scope, item.value, grouping).value("SELECT")

    # Sources.

    def _sources(self, block: Block) -> tuple[Scope, Plan]:
        sources: list[ScopeSource] = []
        merged: dict[str, Field] = {}
        equal: list[tuple[str, str]] = []
        conditions: list[Node] = []
        for joined in block.sources:
            source = self._source(joined.source)
            if "." in source.alias or not source.alias:
                raise Fault(f"needed an alias without a dot; got '{source.alias}'", joined.source.start)
            if any(source.alias.lower() == other.alias.lower() for other in sources):
                raise Fault(
                    f"needed another name for each stream; got '{source.alias}' twice; write "
                    f"{source.name or source.alias} AS other",
                    joined.source.start,
                )
            before = Scope(tuple(sources), dict(merged))
            sources.append(source)
            for reference in joined.using:
                merged |= _using(reference, before, source, equal)
            if joined.on is not None:
                scope = Scope(tuple(sources), merged)
                conditions += conjuncts(ExpressionBinder(scope, joined.on, None).condition("ON"))
        scope = Scope(tuple(sources), merged)
        if block.where is not None:
            conditions += conjuncts(ExpressionBinder(scope, block.where, None).condition("WHERE"))
        if len(sources) == 1:
            plan = sources[0].plan
        else:
            rest = []
            owner = {field.name: at for at, source in enumerate(sources) for field in source.columns.values()}
            for condition in conditions:
                pair = recognised(condition, owner)
                if pair is None:
                    rest.append(condition)
                elif pair not in equal and pair[::-1] not in equal:
                    equal.append(pair)
            conditions = rest
            plan = ops.Join(tuple(source.plan for source in sources), tuple(equal))
        remaining = conjunction(conditions)
        return scope, plan if remaining is None else ops.Filter(plan, remaining)

    def _source(self, source: Source) -> ScopeSource:
        if isinstance(source, Derived):
            return self._derived(source)
        entry = self._entry(source)
        called = source.alias or entry.name
        alias = self._own_name(called)
        columns = {
            field.name: Field(f"{alias}.{field.name}", field.type)
            for field in entry.schema
            if entry.schema.names.count(field.name) == 1
        }
        fields = tuple(columns.values())
        twice = tuple(dict.fromkeys(field.name for field in entry.schema if field.name not in columns))
        if not entry.is_stream:
            if source.own is not None:
                raise Fault(
                    f"needed a stream before a window; got relation '{entry.name}', whose rows are valid at all times",
                    source.own.start,
                )
            return ScopeSource(called, ops.Relation(entry.name, alias, fields), columns, entry.name, twice)
        assert entry.time is not None
        position, self.streams = self.streams, self.streams + 1
        window: ops.StreamWindow = self._window
        where = None
        if source.own is not None:
            window = source.own.window
            self.own_windows += 1
            self.windowed = self.windowed or window is not None
            if source.where is not None:
                scope = Scope((ScopeSource(called, ops.Relation(entry.name, alias, fields), columns, entry.name),))
                where = ExpressionBinder(scope, source.where, None).condition("WHERE")
        return ScopeSource(
            called, Stream(entry.name, alias, position, fields, entry.time, window, where), columns, entry.name, twice
        )

    def _own_name(self, called: str) -> str:
        """What a plan calls an input: as the statement does, with _1, _2 ... behind where another block does too.

        Runs tell leaves apart by it, and columns of different blocks can meet in one join.
        """
        name = unique(called, self._taken)
        self._taken.add(name)
        return name

    def _entry(self, source: Table) -> Entry:
        entries = self._catalog.entries
        found = find(source.name, entries)
        if len(found) == 1:
            return entries[found[0]]
        if found:
            raise Fault(
                f"needed a stream; got '{source.name}', which is {listed(found)}; write it exactly", source.start
            )
        near = nearest(source.name, entries)
        hint = f"; did you mean {near}?" if near else ""
        if any(sign in source.name for sign in "./\\*"):
            hint = f"; a file gets its name with CREATE STREAM name FROM '{source.name[:80]}'"
        known = f" ({listed(entries)})" if entries else ", of which there are none"
        raise Fault(f"needed a stream or relation{known}; got '{source.name[:80]}'{hint}", source.start)

    def _derived(self, source: Derived) -> ScopeSource:
        inner = self.bind(source.query).plan
        own = self._own_name(source.alias)
        columns = {field.name: Field(f"{own}.{field.name}", field.type) for field in inner.fields}
        items = tuple(
            ops.Item(column, _column(field)) for field, column in zip(inner.fields, columns.values(), strict=True)
        )
        return ScopeSource(source.alias, ops.Project(inner, items), columns)

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
                    grouping.add_key(_column(item.value), item.start)
                elif not item.value.aggregates:
                    grouping.add_key(ExpressionBinder(scope, item.value, None).value("GROUP BY"), item.start)
            return grouping
        for key in few(block.group or (), "GROUP BY", block.start):
            grouping.add_key(self._key(key, items, scope), key.start)
        return grouping

    def _key(self, key: Expression, items: Sequence[Output], scope: Scope) -> Node:
        at = position(key, len(items), "GROUP BY")
        if at is None:
            at = alias(key, items, scope)
        if at is None:
            return ExpressionBinder(scope, key, None).value("GROUP BY")
        value = items[at].value
        if isinstance(value, Field):
            return _column(value)
        if value.aggregates:
            raise Fault("needed columns to group by; got an aggregate", key.start)
        return ExpressionBinder(scope, value, None).value("GROUP BY")

    def _having(self, block: Block, items: Sequence[Output], scope: Scope, grouping: Grouping | None) -> Node | None:
        if block.having is None or grouping is None:
            return None
        return ExpressionBinder(scope, block.having, grouping, aliases(items)).condition("HAVING")

    def _order_nodes(
        self,
        block: Block,
        items: Sequence[Output],
        bound: Sequence[Node],
        scope: Scope,
        grouping: Grouping | None,
    ) -> list[tuple[Node | int, Ordered]]:
        """For each key the position of the output that it is, or its value below the outputs."""
        keys: list[tuple[Node | int, Ordered]] = []
        places = {node: at for at, node in reversed(list(enumerate(bound)))}
        for ordered in few(block.order, "ORDER BY", block.start):
            at = position(ordered.key, len(items), "ORDER BY")
            if at is None:
                at = alias(ordered.key, items, None)
            if at is None:
                node = ExpressionBinder(scope, ordered.key, grouping, aliases(items)).value("ORDER BY")
                at = places.get(node)
                if at is None and block.distinct:
                    raise Fault(
                        "needed ORDER BY of columns that SELECT DISTINCT returns; got another one", ordered.key.start
                    )
                keys.append((node if at is None else at, ordered))
            else:
                keys.append((at, ordered))
        return keys


def _column(field: Field) -> Column:
    return Column(field.name, kind_of(field.type), is_native(field.type))


def _using(reference: Reference, before: Scope, source: ScopeSource, equal: list[tuple[str, str]]) -> dict[str, Field]:
    """JOIN ... USING (name): both sides are equal, and the name alone means the left one."""
    left = before.resolve(reference)
    right = Scope((source,)).resolve(reference)
    if kind_of(left.type) != kind_of(right.type) or (kind_of(left.type) == "other" and left.type != right.type):
        raise Fault(
            f"needed columns of one kind for USING; got {left.name}, {left.type}, and {right.name}, {right.type}; "
            "write ON with a CAST",
            reference.start,
        )
    told_apart(_column(left), left.type, "USING", reference.start)
    equal.append((left.name, right.name))
    name = next(name for name, column in source.columns.items() if column == right)
    return {name: left}


def _output_scope(plan: Plan) -> Scope:
    return Scope((ScopeSource("", plan, {field.name: field for field in plan.fields}),))


def _alike(left: Plan, right: Plan, query: Operation) -> tuple[Plan, Plan]:
    """Both sides with columns of the same kinds: whole numbers beside numbers become numbers."""
    kinds = [(kind_of(a.type), kind_of(b.type)) for a, b in zip(left.fields, right.fields, strict=True)]
    for at, (one, other) in enumerate(kinds):
        if one != other and {one, other} != {"integer", "number"}:
            raise Fault(
                f"needed columns of one kind on both sides of {query.kind.upper()}; got {one} and {other} for "
                f"column {at + 1}, '{left.fields[at].name}'; CAST one of them",
                query.start,
            )
    return (
        _widened(left, [one != other and one == "integer" for one, other in kinds]),
        _widened(right, [one != other and other == "integer" for one, other in kinds]),
    )


def _widened(plan: Plan, which: Sequence[bool]) -> Plan:
    """The plan with some whole numbers as numbers."""
    if not any(which):
        return plan
    nodes = [item.node for item in plan.items] if isinstance(plan, ops.Project) else list(map(_column, plan.fields))
    below = plan.input if isinstance(plan, ops.Project) else plan
    items = []
    for field, node, widen in zip(plan.fields, nodes, which, strict=True):
        value = fold(Cast(node, "number")) if widen else node
        items.append(ops.Item(typed(field.name, value, below) if widen else field, value))
    return ops.Project(below, tuple(items))


def _sort_key(node: Node, ordered: Ordered, below: Plan) -> ops.SortKey:
    in_order(node, typed("", node, below).type, ordered.key.start)
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
            in_order(outputs[node].node, outputs[node].field.type, ordered.key.start)
            sort.append(ops.SortKey(_column(outputs[node].field), ordered.descending, ordered.nulls_last))
            continue
        hidden = ops.Item(typed(unique("_order", {item.name for item in items}), node, below), node)
        in_order(node, hidden.field.type, ordered.key.start)
        items.append(hidden)
        sort.append(ops.SortKey(_column(hidden.field), ordered.descending, ordered.nulls_last))
    plan: Plan = ops.Project(below, tuple(items))
    if block.distinct:
        for item in outputs:
            told_apart(item.node, item.field.type, "DISTINCT", block.start)
        plan = ops.Distinct(plan)
    plan = _limited(_sorted(plan, sort), block)
    if len(items) == len(outputs):
        return plan
    return ops.Project(plan, tuple(ops.Item(item.field, _column(item.field)) for item in outputs))
