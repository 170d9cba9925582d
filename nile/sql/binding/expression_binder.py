"""Binding expressions: names to columns, kinds to types, and what may stand above a GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from nile.aggregates.catalogue import CATALOGUE
from nile.aggregates.results import result_type
from nile.base.plain import can_be_equal, can_be_ordered
from nile.expressions.binding import Binder, kind_of, typed_column
from nile.expressions.folding import fold
from nile.expressions.lists.binding import as_list
from nile.expressions.lists.values import element_kind, is_list
from nile.expressions.places import Fault
from nile.expressions.tree import (
    Arithmetic,
    Cast,
    Column,
    Compare,
    Comparison,
    Constant,
    Kind,
    Node,
    columns_of,
    rebuild,
)
from nile.sql.binding.scope import Scope, find, unique
from nile.sql.expression_text import aggregate_text, expression_text
from nile.sql.parsed import GROUPING, Aggregate, Expression, Nested, OverCall
from nile.sql.plan import AggregateItem, Field, Item, Plan
from nile.summaries.heavy import pa

__all__ = ["ExpressionBinder", "Grouping", "in_order", "told_apart", "type_of", "typed"]


_VALUE = "!"
"""What a value that is bound already is called in a written expression."""


class Grouping:
    """The keys and aggregates of one SELECT, as they are found."""

    def __init__(self, scope: Scope) -> None:
        self.share = scope.share
        self._fields = scope.fields
        self._absent: dict[Node, Constant] = {}
        self._keys: dict[Node, Item] = {}
        self._known: dict[object, AggregateItem] = {}
        self._taken: set[str] = set()
        self.aggregates: list[AggregateItem] = []

    @property
    def keys(self) -> tuple[Item, ...]:
        return tuple(self._keys.values())

    @property
    def fields(self) -> dict[str, Field]:
        """The columns of the groups so far."""
        return {item.name: item.field for item in self.keys} | {item.name: item.field for item in self.aggregates}

    def add_key(self, node: Node, start: int) -> None:
        """Group by `node` too; once is enough.  Raises Fault for what cannot be told equal."""
        if node in self._keys:
            return
        told_apart(node, self.type_of(node), "GROUP BY", start)
        name = unique(_text(node), self._taken)
        self._taken.add(name)
        self._keys[node] = Item(Field(name, self.type_of(node)), node)

    def add_absent(self, node: Node) -> None:
        """A key of another grouping set, if it is none here: null."""
        if node not in self._keys:
            self._absent[node] = Constant(None, "integer" if node.kind == "other" else node.kind)

    def bit(self, node: Node, start: int) -> Constant:
        """GROUPING of a key: 0, or 1 where it is of another grouping set."""
        if node not in self._keys and node not in self._absent:
            raise Fault(f"needed a column of GROUP BY in GROUPING(); got '{_text(node)}'; add it to GROUP BY", start)
        return Constant(int(node in self._absent), "integer")

    def type_of(self, node: Node) -> pa.DataType:
        """The type of a value over the sources' columns."""
        return type_of(node, self._fields)

    def above(self, node: Node, start: int) -> Node:
        """A value over the sources' columns as one over the groups'.  Raises Fault where it is not the same in one."""
        key = self._keys.get(node)
        if key is not None:
            return typed_column(key.name, key.field.type)
        if node in self._absent:
            return self._absent[node]
        if isinstance(node, Column) and node.name in self._fields:
            raise Fault(
                f"needed an aggregate or a column of GROUP BY; got '{node.name}'; add it to GROUP BY, or write "
                f"max({node.name})",
                start,
            )
        return rebuild(node, lambda child: self.above(child, start))

    def aggregate(self, written: Aggregate, argument: Node | None) -> Column:
        """The column of an aggregate whose expressions are bound; equal ones share one."""
        more = (written.order, written.where, written.separator)
        same = (written.function, argument, written.distinct, written.fraction, *more)
        if same in self._known:
            return _item_column(self._known[same])
        name = aggregate_text(written.function, argument, written.distinct, written.fraction, str, *more)
        while name in self._fields or name in self._taken:
            name += "_"
        self._taken.add(name)
        item = AggregateItem(
            Field(name, self._type(written.function, argument)),
            written.function,
            argument,
            written.distinct,
            written.fraction,
            *more,
        )
        self.aggregates.append(item)
        self._known[same] = item
        return _item_column(item)

    def complete(self) -> None:
        """A group without keys or aggregates counts, since it has to have something."""
        if not self._keys and not self.aggregates:
            self.aggregates.append(AggregateItem(Field("count(*)", pa.int64()), "count", None))

    def _type(self, function: str, argument: Node | None) -> pa.DataType:
        return result_type(CATALOGUE[function], None if argument is None else self.type_of(argument))


class ExpressionBinder(Binder):
    """Binds one expression.

    grouping: of the SELECT, where aggregates may stand; aliases: what names that are no column may mean; queries: what
    a query in the expression becomes, where there may be one; overs: what a window function does.
    """

    def __init__(
        self,
        scope: Scope,
        expression: Expression,
        grouping: Grouping | None,
        aliases: Mapping[str, Expression] | None = None,
        queries: Callable[[Nested, ExpressionBinder], Node] | None = None,
        overs: Callable[[OverCall, ExpressionBinder], Node] | None = None,
        unnests: Callable[[Node, pa.DataType], Node] | None = None,
    ) -> None:
        super().__init__()
        self._unnests = unnests
        self._overs = overs
        self._queries = queries
        self._value: Node | None = None
        self._scope = scope
        self._expression = self.written = expression
        self._grouping = grouping
        self._aliases = aliases or {}
        self._places: dict[str, int] = {}

    def condition(self, clause: str) -> Node:
        """A condition.  Raises Fault."""
        return self._finished(lambda: self.wanted(self._expression.node, "boolean", clause), clause)

    def value(self, clause: str) -> Node:
        """A value of any kind that can be returned."""
        node = self._finished(lambda: self.bind(self._expression.node), clause)
        if node.kind == "null" and not isinstance(node, Column):
            return Constant(None, "integer")
        if node.kind == "null[]":
            return as_list(node, "integer[]")
        if node.kind == "interval":
            raise Fault("needed a value; got an interval, which only adds to a time", self._expression.start)
        return node

    def _finished(self, work: Any, clause: str) -> Node:
        if self._expression.aggregates and self._grouping is None:
            raise Fault(
                f"needed single rows in {clause}; got an aggregate; "
                + ("write it in HAVING" if clause == "WHERE" else "take it out"),
                self._expression.aggregates[0].start,
            )
        try:
            node: Node = fold(work())
            if self._grouping is not None:
                return fold(self._above(node))
            return node
        except Fault as fault:
            if fault.start is None:
                fault.start = self._expression.places.get(id(fault.node), self._expression.start)
            raise

    def _above(self, node: Node) -> Node:
        assert self._grouping is not None
        try:
            return self._grouping.above(node, -1)
        except Fault as fault:
            if fault.start == -1:
                named = next((name for name in self._places if f"'{name}'" in fault.reason), None)
                fault.start = self._expression.start if named is None else self._places[named]
            raise

    def column(self, node: Column) -> Node:
        if node.name == _VALUE:
            assert self._value is not None
            return self._value
        at = int(node.name[1:])
        if node.name.startswith("?"):
            nested = self._expression.nested[at]
            if self._queries is None:
                raise Fault(
                    "needed an expression without a query here; got one; queries may stand in WHERE, HAVING and SELECT",
                    nested.start,
                )
            return self._queries(nested, self)
        if node.name.startswith("%"):
            call = self._expression.overs[at]
            if self._overs is None:
                raise Fault(
                    "needed an expression without OVER here; got one; window functions may stand in SELECT, QUALIFY "
                    "and ORDER BY",
                    call.start,
                )
            return self._overs(call, self)
        if node.name.startswith("^"):
            return self._element(*self._expression.unnests[at])
        if node.name.startswith("@"):
            return self._aggregate(self._expression.aggregates[at])
        reference = self._expression.references[at]
        try:
            field = self._scope.resolve(reference)
        except Fault:
            alias = find(reference.name, self._aliases) if reference.qualifier is None else []
            if len(alias) != 1:
                raise
            before = dict(takewhile(lambda each: each[0] != alias[0], self._aliases.items()))
            inner = ExpressionBinder(
                self._scope, self._aliases[alias[0]], self._grouping, before, self._queries, self._overs, self._unnests
            )
            return inner.bind(self._aliases[alias[0]].node)
        self._places.setdefault(field.name, reference.start)
        self.arrow[field.name] = field.type
        return typed_column(field.name, field.type)

    def _element(self, written: Node, start: int) -> Node:
        """An element of a list that is unnested in SELECT."""
        if self._unnests is None:
            raise Fault(
                "needed an expression without unnest() here; got one; it may stand in SELECT, and in FROM: FROM s, "
                "unnest(s.x) AS u(v)",
                start,
            )
        node = fold(self.bind(written))
        node = node if self._grouping is None else fold(self._above(node))
        return self._unnests(*self._as_list(node, start))

    def listed(self) -> tuple[Node, pa.DataType]:
        """A list and the type of its elements."""
        node = self._finished(lambda: self.bind(self._expression.node), "unnest()")
        return self._as_list(node, self._expression.start)

    def _as_list(self, node: Node, start: int) -> tuple[Node, pa.DataType]:
        if node.kind in ("null", "null[]"):
            node = as_list(node, "integer[]")
        if not is_list(node.kind):
            raise Fault(f"needed a list in unnest(); got {self.told(node)}; write one such as [1, 2]", start)
        fields = self._scope.fields if self._grouping is None else self._scope.fields | self._grouping.fields
        return node, type_of(node, fields).value_type

    def compared(self, item: Node, operator: Comparison, value: Node, types: Mapping[str, pa.DataType]) -> Node:
        """A written value of this expression compared with a bound one.  types: of the bound one's columns."""
        self._value = value
        self.arrow.update(types)
        return fold(self.bind(Compare(operator, item, Column(_VALUE))))

    def _aggregate(self, written: Aggregate) -> Node:
        assert self._grouping is not None
        argument = None if written.argument is None else fold(self.bind(written.argument))
        if argument is not None and written.function == GROUPING:
            return self._grouping.bit(argument, written.start)
        if argument is not None:
            argument = self._taken(written, argument)
        if CATALOGUE.get(written.function) is not None and CATALOGUE[written.function].is_collected:
            assert argument is not None
            written, argument = self._collected(written, argument)
        column = self._grouping.aggregate(written, argument)
        if self._grouping.share == 1.0 or written.function not in ("count", "sum"):
            return column
        if written.distinct:
            raise Fault(
                "needed an aggregate that a sample can estimate; got one of distinct values; leave SAMPLE out",
                written.start,
            )
        # Horvitz and Thompson (1952): what a tuple stands for is one over the probability that it is drawn with.
        return Arithmetic("*", Cast(column, "number"), Constant(1.0 / self._grouping.share, "number"), "number")

    def _collected(self, written: Aggregate, argument: Node) -> tuple[Aggregate, Node]:
        """An aggregate of rows in an order, its expressions bound."""
        assert self._grouping is not None
        order = tuple(replace(key, node=fold(self.bind(key.node))) for key in written.order)
        order = tuple(k if k.node.kind != "null" else replace(k, node=Constant(None, "integer")) for k in order)
        for key in order:
            if key.node.kind == "interval":
                raise Fault("needed a value to order by; got an interval, which only adds to a time", written.start)
            in_order(key.node, self._grouping.type_of(key.node), written.start)
        where = None if written.where is None else fold(self.wanted(written.where, "boolean", "FILTER"))
        own = (argument,)
        if written.function == "string_agg" and argument.kind != "text":
            if argument.kind == "other" or is_list(argument.kind):
                raise Fault("needed text for string_agg(); got a value that has none; CAST it", written.start)
            argument = Constant(None, "text") if argument.kind == "null" else fold(Cast(argument, "text", 0))
        if written.distinct and any(key.node not in (argument, *own) for key in order):
            raise Fault(
                f"needed ORDER BY of what {written.function}(DISTINCT ...) is of; got another value, which has several "
                "places where values are alike; order by it alone",
                written.start,
            )
        return replace(written, order=order, where=where), argument

    def _taken(self, written: Aggregate, argument: Node) -> Node:
        """The argument of an aggregate, which must be of a type that it takes.  Raises Fault."""
        assert self._grouping is not None
        kind: Kind = argument.kind
        known = CATALOGUE[written.function]
        if kind == "null":
            return Constant(None, "number" if known.takes == "number" else "integer")
        if known.takes == "number":
            fits, needed = kind in ("integer", "number"), "a number"
        elif known.takes == "ordered":
            fits, needed = kind != "interval" and can_be_ordered(self._grouping.type_of(argument)), "values in an order"
        else:
            fits, needed = kind != "interval", "a value"
            if fits and written.distinct:
                told_apart(argument, self._grouping.type_of(argument), "DISTINCT", written.start)
        if not fits:
            told = "an interval" if kind == "interval" else self._grouping.type_of(argument)
            raise Fault(
                f"needed {needed} for {known.sql}(); got '{_text(argument)}', which is "
                f"{told}; CAST it, or name another column",
                written.start,
            )
        return argument


def told_apart(node: Node, kind: pa.DataType, clause: str, start: int | None) -> None:
    """Raises Fault unless values of this type can be told equal."""
    if not can_be_equal(kind):
        raise Fault(
            f"needed values that can be told equal for {clause}; got '{_text(node)}', which is {kind}; take another "
            "column, or convert it where it comes from",
            start,
        )


def in_order(node: Node, kind: pa.DataType, start: int | None) -> None:
    """Raises Fault unless values of this type have an order."""
    if not can_be_ordered(kind):
        raise Fault(
            f"needed values that have an order for ORDER BY; got '{_text(node)}', which is {kind}; order by another "
            "column, or convert it where it comes from",
            start,
        )


def typed(name: str, node: Node, below: Plan) -> Field:
    """A field for a value over the columns of `below`."""
    return Field(name, type_of(node, {field.name: field for field in below.fields}))


def type_of(node: Node, fields: Mapping[str, Field]) -> pa.DataType:
    """The Arrow type of a value over columns."""
    if isinstance(node, Column) and node.name in fields:
        return fields[node.name].type
    if node.kind in ("timestamp", "timestamp[]"):
        below = [fields[name].type for name in columns_of(node) if name in fields]
        below += [each.value_type for each in below if is_list(kind_of(each))]
        fine = any(pa.types.is_timestamp(each) and each.unit == "ns" for each in below)
        kind = pa.timestamp("ns" if fine else "us")
        return kind if node.kind == "timestamp" else pa.list_(kind)
    if is_list(node.kind):
        return pa.list_(type_of(Constant(None, element_kind(node.kind)), fields))
    return {
        "boolean": pa.bool_(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "date": pa.date32(),
    }[node.kind]


def _item_column(item: AggregateItem) -> Column:
    return typed_column(item.name, item.field.type)


def _text(node: Node) -> str:
    return node.name if isinstance(node, Column) else expression_text(node, str)
