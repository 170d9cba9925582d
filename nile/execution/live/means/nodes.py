"""Expressions that weighed queries are made of."""

from __future__ import annotations

from nile.expressions.binding import kind_of
from nile.expressions.tree import Arithmetic, Call, Case, Column, Compare, Constant, IsNull, Kind, Node
from nile.sql.columns import AggregateItem, Field
from nile.summaries.heavy import pa

__all__ = [
    "counted",
    "fits",
    "is_whole",
    "kind_in",
    "minus",
    "of_group",
    "one",
    "or_zero",
    "over",
    "plus",
    "times",
    "whole",
    "zero",
]


def of_group(group: Node, number: int, node: Node) -> Node:
    return Case(((Compare("=", group, Constant(number, "integer")), node),), zero(), node.kind)


def counted(x: Node | None, node: Node) -> Node:
    return node if x is None else Case(((IsNull(x), zero()),), node, "integer")


def fits(each: AggregateItem) -> bool:
    """Whether an aggregate is of numbers that weights can multiply."""
    kinds = ("integer", "number")
    plain = pa.types.is_integer(each.field.type) or pa.types.is_floating(each.field.type)
    return plain and (each.function == "count" or (each.argument is not None and each.argument.kind in kinds))


def is_whole(node: Node) -> bool:
    return node.kind == "integer"


def whole(name: str) -> Column:
    return Column(name, "integer", True)


def zero() -> Constant:
    return Constant(0, "integer")


def one() -> Constant:
    return Constant(1, "integer")


def or_zero(name: str, kind: Kind) -> Node:
    return Call(
        "coalesce",
        (Column(name, kind, True), Constant(0, "integer") if kind == "integer" else Constant(0.0, "number")),
        kind,
    )


def _both(left: Node, right: Node) -> Kind:
    return "integer" if left.kind == right.kind == "integer" else "number"


def times(left: Node, right: Node, kind: Kind | None = None) -> Node:
    return Arithmetic("*", left, right, kind or _both(left, right))


def minus(left: Node, right: Node) -> Node:
    return Arithmetic("-", left, right, _both(left, right))


def plus(left: Node, right: Node, kind: Kind | None = None) -> Node:
    return Arithmetic("+", left, right, kind or _both(left, right))


def over(left: Node, right: Node) -> Node:
    return Arithmetic("/", left, right, "number")


def kind_in(field: Field) -> Kind:
    """What a column of this type is to expressions."""
    return kind_of(field.type)
