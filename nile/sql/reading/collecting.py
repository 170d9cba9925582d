"""Aggregates of rows in an order as written: list, string_agg, first, last, arg_max and arg_min."""

from __future__ import annotations

from typing import Any

from nile.expressions.places import Fault, NotYetFault
from nile.expressions.taking import Taker, start_of
from nile.expressions.tree import Node
from nile.sql.columns import SortKey
from nile.sql.parsed import Aggregate

__all__ = ["COLLECTING", "read_collected"]

COLLECTING = {
    "ArrayAgg": "list",
    "GroupConcat": "string_agg",
    "First": "first",
    "Last": "last",
    "ArgMax": "arg_max",
    "ArgMin": "arg_min",
}
"""What sqlglot calls them, and the catalogue."""


def read_collected(node: Any, taker: Taker, depth: int) -> Aggregate:
    """One of them.  Raises Fault."""
    function = COLLECTING[type(node).__name__]
    start = start_of(node) or 0
    if function in ("arg_max", "arg_min"):
        if node.args.get("count") is not None:
            raise NotYetFault(
                f"{function}() of several rows is not there yet; write list(x ORDER BY y) over a LIMIT, or QUALIFY "
                "row_number() OVER (...) <= n",
                start,
            )
        inner = taker.only(node, "this", "expression")
        if node.args.get("expression") is None:
            raise Fault(f"needed a value and what to order by, such as {function}(item, price)", start)
        key = SortKey(taker.take(node.args["expression"], depth), function == "arg_max")
        return Aggregate(function, taker.take(inner, depth), False, None, start, (key,))
    inner = taker.only(node, "this", "separator") if function == "string_agg" else taker.only(node, "this")
    separator = None
    if function == "string_agg":
        given = node.args.get("separator")
        separator = "," if given is None else taker.text_literal(given, "string_agg()")
    distinct, order = False, tuple[SortKey, ...]()
    if type(inner).__name__ == "Order":
        order, inner = _keys(inner, taker, depth), inner.this
    if type(inner).__name__ == "Distinct":
        distinct = True
        taker.only(inner, "expressions")
        if len(inner.expressions) != 1:
            raise NotYetFault("DISTINCT of several columns in an aggregate is not there yet", start)
        inner = inner.expressions[0]
        if type(inner).__name__ == "Order":
            order, inner = _keys(inner, taker, depth), inner.this
    if inner is None:
        raise Fault(f"needed something to aggregate; got {function}()", start)
    argument: Node = taker.take(inner, depth)
    if distinct and function in ("first", "last"):
        distinct = False  # it is the same value
    return Aggregate(function, argument, distinct, None, start, order, None, separator)


def _keys(node: Any, taker: Taker, depth: int) -> tuple[SortKey, ...]:
    """What ORDER BY inside of the parentheses says."""
    keys = []
    for each in node.expressions:
        written = each.this if type(each).__name__ == "Ordered" else each
        descending, first = bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
        keys.append(SortKey(taker.take(written, depth), descending, not first))
    return tuple(keys)
