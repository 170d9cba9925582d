"""Types: a tree and a schema give a tree in which every node knows its kind.

Mixed comparisons are settled here and nowhere else: whole numbers meet doubles as doubles, dates meet
timestamps at midnight UTC, a text literal next to a timestamp or date becomes one, a NULL takes the kind of
its neighbour. Anything else is an error with a hint, never a silent conversion, so that Arrow, DuckDB and
Spark cannot convert it three ways.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from nile.base.plain import can_be_ordered
from nile.base.raw import check_columns
from nile.expressions.functions import PLAIN
from nile.expressions.lists.binding import as_list, bound_call
from nile.expressions.lists.functions import LISTS
from nile.expressions.lists.values import LIST_KINDS, element_kind, is_list
from nile.expressions.literals import beyond, moved_time, read_time
from nile.expressions.places import Fault
from nile.expressions.told import KIND_NAMES, describe, hint, remedy
from nile.expressions.tree import (
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Constant,
    In,
    IsNull,
    Kind,
    Like,
    Logic,
    Lookup,
    Node,
    Not,
    are_whole,
    is_beyond,
)
from nile.summaries.errors import ExpressionError
from nile.summaries.heavy import pa

_OF_TIME = ("year", "month", "day", "hour", "minute", "second", "date_trunc")
_OF_NUMBER = ("round", "floor", "ceil", "sqrt")
_NUMERIC = ("integer", "number")
_TIMES = ("timestamp", "date")
_CASTS: dict[Kind, tuple[Kind, ...]] = {
    "integer": ("integer", "number", "text", "boolean"),
    "number": ("integer", "number", "text", "boolean"),
    "text": ("integer", "number", "text", "boolean", "timestamp", "date"),
    "boolean": ("integer", "text", "boolean"),
    "timestamp": ("timestamp", "date", "text"),
    "date": ("timestamp", "date", "text"),
}


def kind_of(column: pa.DataType) -> Kind:
    """The kind of an Arrow type."""
    types = pa.types
    if types.is_dictionary(column):
        column = column.value_type
    if types.is_boolean(column):
        return "boolean"
    if types.is_integer(column) and not types.is_uint64(column):
        return "integer"
    if types.is_floating(column) or types.is_decimal(column) or types.is_uint64(column):
        return "number"
    if types.is_string(column) or types.is_large_string(column) or types.is_string_view(column):
        return "text"
    if types.is_timestamp(column):
        return "timestamp"
    if types.is_date(column):
        return "date"
    if types.is_list(column) or types.is_large_list(column):
        inner = kind_of(column.value_type)
        return LIST_KINDS.get(inner, "other") if inner != "null" else "other"
    return "null" if types.is_null(column) else "other"


def bind(tree: Node, schema: pa.Schema, *, where: str) -> Node:
    """The tree with a kind on every node. Raises ExpressionError for kinds that do not go together."""
    try:
        return SchemaBinder(schema, where).wanted(tree, "boolean", "the condition")
    except Fault as fault:
        raise ExpressionError(f"{where}: {fault.reason}") from None


def bind_value(tree: Node, schema: pa.Schema, *, where: str) -> Node:
    """The tree of an expression of any kind, with a kind on every node.  Raises as `bind`."""
    try:
        return SchemaBinder(schema, where).bind(tree)
    except Fault as fault:
        raise ExpressionError(f"{where}: {fault.reason}") from None


class Binder(ABC):
    """Gives every node of a tree a kind.  Raises Fault, whose node is the innermost that does not fit."""

    def __init__(self) -> None:
        self.arrow: dict[str, pa.DataType] = {}

    @abstractmethod
    def column(self, node: Column) -> Node:
        """What a column is; its Arrow type goes into `arrow`."""

    def told(self, node: Node) -> str:
        """What a bound node is, for a message."""
        if isinstance(node, Column) and (node.kind == "other" or is_list(node.kind)) and node.name in self.arrow:
            return f"'{node.name}', which is {self.arrow[node.name]}"
        return describe(node)

    def wanted(self, node: Node, kind: Kind, what: str) -> Node:
        """`node` bound, which must be of `kind` (a NULL becomes one)."""
        bound = self.bind(node)
        if bound.kind == "null":
            return _null(kind)
        if bound.kind != kind:
            raise Fault(f"{what} needs {KIND_NAMES[kind]}, got {self.told(bound)}; {remedy(bound)}")
        return bound

    def bind(self, node: Node) -> Node:
        """`node` with kinds on all of it."""
        try:
            return self._bind(node)
        except Fault as fault:
            if fault.node is None:
                fault.node = node
            raise

    def _bind(self, node: Node) -> Node:
        match node:
            case Constant():
                if is_beyond(node):
                    raise beyond(node.value)
                return node
            case Column():
                return self.column(node)
            case Logic():
                items = tuple(self.wanted(item, "boolean", node.operator) for item in node.items)
                return replace(node, items=items)
            case Not():
                return replace(node, item=self.wanted(node.item, "boolean", "NOT"))
            case IsNull():
                return replace(node, item=self.bind(node.item))
            case Compare():
                left, right = self._compared(node.operator, *self._operands((node.left, node.right)))
                return replace(node, left=left, right=right)
            case Between():
                item, low, high = self._comparable((node.item, node.low, node.high), "BETWEEN")
                return replace(node, item=item, low=low, high=high)
            case In():
                item, *choices = self._comparable((node.item, *node.choices), "IN")
                return replace(node, item=item, choices=tuple(choices))
            case Like():
                return replace(node, item=self.wanted(node.item, "text", "LIKE"))
            case Arithmetic():
                return self._arithmetic(node)
            case Call():
                return self._call(node)
            case Cast():
                return self._cast(node)
            case Case():
                return self._case(node)
            case Lookup():
                return replace(node, keys=tuple(map(self.bind, node.keys)))

    def _compared(self, operator: str, left: Node, right: Node) -> list[Node]:
        """Both sides brought to one kind; columns of one type that has no kind are compared as they are."""
        types = [self.arrow.get(each.name) if isinstance(each, Column) else None for each in (left, right)]
        spans = [
            each.kind == "interval" or (kind is not None and pa.types.is_duration(kind))
            for each, kind in zip((left, right), types, strict=True)
        ]
        if are_whole((left, right)):
            return [left, right]
        if all(spans) and "interval" in (left.kind, right.kind):
            return [left, right]
        if left.kind == right.kind == "other" and None not in types:
            if types[0] != types[1] or not can_be_ordered(types[0]):
                raise Fault(
                    f"'{operator}' cannot compare {self.told(left)}, with {self.told(right)}; compare columns of one "
                    "type that has an order"
                )
            return [left, right]
        return self._of_one([left, right], f"'{operator}'")

    def _alike(self, nodes: tuple[Node, ...], what: str) -> list[Node]:
        """The nodes bound and brought to one kind."""
        return self._of_one([self.bind(node) for node in nodes], what)

    def _comparable(self, nodes: tuple[Node, ...], what: str) -> list[Node]:
        """The same of what is compared: whole numbers with and without a sign stay what they are."""
        bound = self._operands(nodes)
        return bound if are_whole(bound) else self._of_one(bound, what)

    def _operands(self, nodes: tuple[Node, ...]) -> list[Node]:
        """What is compared, bound.  Literals beyond 64 bits with a sign go only with what is whole."""
        bound = [node if is_beyond(node) else self.bind(node) for node in nodes]
        return bound if are_whole(bound) else [self.bind(node) if is_beyond(node) else node for node in bound]

    def _of_one(self, bound: list[Node], what: str) -> list[Node]:
        kind: Kind = "null"
        for node in bound:
            kind = self._common(kind, node, what)
        if kind == "null":
            kind = "text"  # every comparison of nulls is null, of whichever kind
        return [self._as(node, kind) for node in bound]

    def _common(self, kind: Kind, node: Node, what: str) -> Kind:
        other = node.kind
        if other in ("other", "interval") or (is_list(other) and what not in ("CASE", "coalesce()")):
            raise Fault(f"{what} cannot use {self.told(node)}; {remedy(node)}")
        if kind == "null" or kind == other:
            return other
        if other == "null" or (other == "null[]" and is_list(kind)):
            return kind
        if kind == "null[]" and is_list(other):
            return other
        if kind in _NUMERIC and other in _NUMERIC:
            return "number"
        if kind in _TIMES and other in _TIMES:
            return "timestamp"
        if kind in _TIMES and node.kind == "text":
            return kind
        if kind == "text" and other in _TIMES:
            return other  # a text column here is refused by _as
        raise Fault(f"{what} cannot compare {KIND_NAMES[kind]} with {describe(node)}{hint(kind, node)}")

    def _as(self, node: Node, kind: Kind) -> Node:
        if node.kind == "null":
            return _null(kind)
        if is_list(kind):
            return as_list(node, kind)
        if node.kind == "text" and kind in _TIMES:
            if not (isinstance(node, Constant) and isinstance(node.value, str)):
                name = f'"{node.name}"' if isinstance(node, Column) else "..."
                raise Fault(
                    f"cannot compare {KIND_NAMES[kind]} with {describe(node)}; write CAST({name} AS {kind.upper()})"
                )
            return read_time(node.value, kind)
        if isinstance(node, Constant) and node.kind == "integer" and kind == "number":
            return Constant(None if node.value is None else float(node.value), "number")
        return node

    def _arithmetic(self, node: Arithmetic) -> Node:
        left, right = self.bind(node.left), self.bind(node.right)
        what = f"'{node.operator}'"
        if (moved := moved_time(node.operator, left, right)) is not None:
            return moved
        for side in (left, right):
            if side.kind not in (*_NUMERIC, "null"):
                then = "move it by an interval, a date also by days (d + 7)" if side.kind in _TIMES else remedy(side)
                raise Fault(f"{what} needs numbers, or a time and an interval; got {self.told(side)}; {then}")
        whole = left.kind != "number" and right.kind != "number" and node.operator != "/"
        kind: Kind = "integer" if whole else "number"
        return replace(node, left=self._as(left, kind), right=self._as(right, kind), kind=kind)

    def _call(self, node: Call) -> Node:
        if node.function in LISTS:
            return bound_call(node, [self.bind(each) for each in node.arguments], self.told)
        if node.function in PLAIN:
            return self._plain(node)
        if node.function == "coalesce":
            return self._of_one_kind(node)
        if node.function in ("greatest", "least", "nullif"):
            return self._of_one_kind(node)
        if node.function in _OF_TIME:
            return self._of_time(node)
        if node.function in _OF_NUMBER:
            return self._of_number(node)
        if node.function == "concat":
            return self._concat(node)
        if node.function == "substring":
            item = self.wanted(node.arguments[0], "text", "substring()")
            return replace(node, arguments=(item, *node.arguments[1:]), kind="text")
        if node.function == "abs":
            item = self.bind(node.arguments[0])
            if item.kind not in (*_NUMERIC, "null"):
                raise Fault(f"abs() needs a number, got {self.told(item)}; {remedy(item)}")
            item = self._as(item, "integer")
            return replace(node, arguments=(item,), kind=item.kind)
        raise AssertionError(node.function)

    def _concat(self, node: Call) -> Node:
        bound = [self.bind(each) for each in node.arguments]
        if any(is_list(each.kind) for each in bound):  # null where one of them is, which list_concat() is not
            joined = bound_call(Call("list_concat", tuple(bound)), bound, self.told)
            return Call("concat", joined.arguments, joined.kind)
        return replace(node, arguments=tuple(self._part(each) for each in bound), kind="text")

    def _part(self, bound: Node) -> Node:
        """A part of ||, as text."""
        if bound.kind in ("integer", "number", "boolean", "timestamp", "date"):
            return Cast(bound, "text", 0)
        if bound.kind == "null":
            return _null("text")
        if bound.kind != "text":
            raise Fault(f"'||' needs text, got {self.told(bound)}; {remedy(bound)}")
        return bound

    def _plain(self, node: Call) -> Node:
        """A function of the table: whole numbers stand for numbers, dates for times."""
        rule = PLAIN[node.function]
        written, literals = rule.split(node.arguments)
        values = [self.bind(each) for each in written]
        if node.function == "length" and is_list(values[0].kind):
            return bound_call(Call("len", node.arguments), values, self.told)
        for at, (value, kind) in enumerate(zip(values, rule.takes, strict=True)):
            also = ["integer"] if kind == "number" else ["date"] if kind == "timestamp" else []
            also += ["interval"] if node.function == "epoch" else []
            if value.kind == "null":
                values[at] = _null(kind)
            elif value.kind not in (kind, *also):
                raise Fault(f"{node.function}() needs {KIND_NAMES[kind]}, got {self.told(value)}; {remedy(value)}")
        arguments = (*literals, *values) if rule.leading else (*values, *literals)
        return replace(node, arguments=arguments, kind=rule.gives)

    def _of_one_kind(self, node: Call) -> Node:
        bound = [self.bind(each) for each in node.arguments]
        arguments = self._of_one(bound, f"{node.function}()")
        if node.function == "nullif" and bound[0].kind == "integer":
            arguments[0] = bound[0]  # it is what comes out, so a whole number stays one
        kind = arguments[0].kind if node.function == "nullif" else _kind_of_all(arguments)
        return replace(node, arguments=tuple(arguments), kind=kind)

    def _of_time(self, node: Call) -> Node:
        *unit, item = node.arguments
        bound = self.bind(item)
        if bound.kind == "null":
            bound = _null("timestamp")
        if bound.kind not in _TIMES:
            raise Fault(f"{node.function}() needs a timestamp or a date, got {self.told(bound)}; {remedy(bound)}")
        return replace(node, arguments=(*unit, bound), kind="timestamp" if unit else "integer")

    def _of_number(self, node: Call) -> Node:
        item, *digits = node.arguments
        bound = self.bind(item)
        if bound.kind not in (*_NUMERIC, "null"):
            raise Fault(f"{node.function}() needs a number, got {self.told(bound)}; {remedy(bound)}")
        whole = bound.kind == "integer" and node.function != "sqrt"
        if whole and any(isinstance(each, Constant) and int(each.value or 0) < 0 for each in digits):
            raise Fault("round() of a whole number needs digits of 0 or more; CAST it to DOUBLE")
        bound = self._as(bound, "integer" if whole else "number")
        return replace(node, arguments=(bound, *digits), kind="integer" if whole else "number")

    def _case(self, node: Case) -> Node:
        conditions = [self.wanted(condition, "boolean", "WHEN") for condition, _ in node.branches]
        *values, default = self._alike((*(value for _, value in node.branches), node.default), "CASE")
        branches = tuple(zip(conditions, values, strict=True))
        return Case(branches, default, _kind_of_all([*values, default]))

    def _cast(self, node: Cast) -> Node:
        item = self.bind(node.item)
        if item.kind == "null":
            return _null(node.kind)
        if item.kind == "null[]" and is_list(node.kind):
            return as_list(item, node.kind)
        if is_list(item.kind) and is_list(node.kind) and element_kind(item.kind) in _CASTS[element_kind(node.kind)]:
            return replace(node, item=item)
        if is_list(node.kind):
            raise Fault(f"{self.told(item)} cannot be cast to {KIND_NAMES[node.kind]}; {remedy(item)}")
        if item.kind not in _CASTS[node.kind]:
            raise Fault(f"{self.told(item)} cannot be cast to {KIND_NAMES[node.kind]}; {remedy(item)}")
        return replace(node, item=item)


class SchemaBinder(Binder):
    """Over the columns of a schema.  Raises UnknownColumn beside what a Binder raises."""

    def __init__(self, schema: pa.Schema, where: str) -> None:
        super().__init__()
        self._schema = schema
        self._where = where

    def column(self, node: Column) -> Node:
        check_columns(self._schema, (node.name,), where=self._where)
        column = self.arrow[node.name] = self._schema.field(node.name).type
        return typed_column(node.name, column)


def typed_column(name: str, column: pa.DataType) -> Column:
    """A column of an Arrow type."""
    plain = column.value_type if pa.types.is_dictionary(column) else column
    return Column(name, kind_of(column), column in (pa.int64(), pa.float64()), pa.types.is_uint64(plain))


def _kind_of_all(nodes: Sequence[Node]) -> Kind:
    """The kind of nodes that were brought to go together."""
    kinds = {node.kind for node in nodes}
    return kinds.pop() if len(kinds) == 1 else "timestamp" if kinds <= {*_TIMES} else "number"


def _null(kind: Kind) -> Constant:
    return Constant(None, kind)
