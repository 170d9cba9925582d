"""Functions of lists as sqlglot parses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nile.expressions.lists.functions import LISTS, SLICE_END
from nile.expressions.places import Fault
from nile.expressions.tokens import start_of
from nile.expressions.tree import Call, Constant, Node

__all__ = ["LIST_NAMES", "LIST_SPELLINGS", "list_call"]


class Takes(Protocol):
    """What takes nodes apart, as these readers use it."""

    def take(self, node: Any, depth: int = 0) -> Node:
        """The tree of a node."""

    def only(self, node: Any, *allowed: str) -> Any:
        """The first allowed argument, once it is sure that there are no others."""

    def text_literal(self, node: Any, of: str) -> str:
        """The value of a text literal."""


LIST_NAMES: Mapping[str, str] = {
    alias: name for name, rule in LISTS.items() for alias in (name, *rule.names) if name != "len" or alias != "len"
}
"""Functions of lists by all their names."""
_NODES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ArraySize": ("len", ("this",)),
    "ArrayContains": ("list_contains", ("this", "expression")),
    "ArrayPosition": ("list_position", ("this", "expression")),
    "ArrayMin": ("list_min", ("this",)),
    "ArrayMax": ("list_max", ("this",)),
    "ArrayFirst": ("list_first", ("this",)),
    "ArrayLast": ("list_last", ("this",)),
    "ArrayDistinct": ("list_distinct", ("this",)),
    "ArrayReverse": ("list_reverse", ("this",)),
    "ArrayAppend": ("list_append", ("this", "expression")),
    "ArrayPrepend": ("list_prepend", ("expression", "this")),
    "ArrayOverlaps": ("list_has_any", ("this", "expression")),
    "ArrayIntersect": ("list_intersect", ("this", "expression")),
}
"""What sqlglot calls them, and their arguments in order."""
_SPELT = ("null_propagation", "nulls_first", "check_null", "is_length", "value_constructor", "bracket_notation")


def list_call(taker: Takes, name: str, given: list[Any], node: Any, depth: int) -> Node:
    """A call of a function of lists by its name.  Raises Fault."""
    rule = LISTS[name]
    least = len(rule.takes) - (name == "list_value")
    if len(given) < least or (len(given) > least and not rule.more):
        raise Fault(f"needed {name}() with {least} arguments; got {len(given)}", start_of(node))
    taken = [
        Constant(taker.text_literal(each, f"{name}()"), "text") if "text" in rule.takes[at : at + 1] else
        taker.take(each, depth)
        for at, each in enumerate(given)
    ]  # fmt: skip
    return Call(name, tuple(taken))


def _by_class(taker: Takes, node: Any, depth: int) -> Node:
    name, arguments = _NODES[type(node).__name__]
    taker.only(node, *arguments, "expressions", *_SPELT)
    given = [node.args[each] for each in arguments if node.args.get(each) is not None]
    return list_call(taker, name, [*given, *(node.args.get("expressions") or ())], node, depth)


def _array(taker: Takes, node: Any, depth: int) -> Node:
    """[1, 2], list_value(1, 2)."""
    taker.only(node, "expressions", *_SPELT)
    if any(type(each).__name__ == "Comprehension" for each in node.expressions):
        raise Fault(
            "needed a list of values; got FOR, a list made of another; unnest that in FROM, and take list(...) of it",
            start_of(node),
        )
    if len(node.expressions) == 1 and type(node.expressions[0]).__name__ in ("Select", "Subquery", "Union"):
        raise Fault("needed a list of values; got a query; write (SELECT list(x) FROM ...)", start_of(node))
    return list_call(taker, "list_value", node.expressions, node, depth)


def _concat(taker: Takes, node: Any, depth: int) -> Node:
    taker.only(node, "this", "expressions", *_SPELT)
    return list_call(taker, "list_concat", [node.this, *node.expressions], node, depth)


def _slice(taker: Takes, node: Any, depth: int) -> Node:
    """array_slice(x, 1, 2)."""
    taker.only(node, "this", "start", "end", *_SPELT)
    given = [node.args.get(each) for each in ("this", "start", "end")]
    return list_call(taker, "list_slice", [each for each in given if each is not None], node, depth)


def _sort(taker: Takes, node: Any, depth: int) -> Node:
    """list_sort(x), list_sort(x, 'DESC')."""
    taker.only(node, "this", "asc", *_SPELT)
    falling = node.args.get("asc") is not None and not node.args["asc"].this
    if (first := node.args.get("nulls_first")) is not None and first.this:
        raise Fault("needed a list in order with its NULLs last; got NULLS FIRST; leave it out", start_of(node))
    return list_call(taker, "list_reverse_sort" if falling else "list_sort", [node.this], node, depth)


def _text(taker: Takes, node: Any, depth: int) -> Node:
    taker.only(node, "this", "expression")
    return list_call(taker, "array_to_string", [node.this, node.expression], node, depth)


def _bracket(taker: Takes, node: Any, depth: int) -> Node:
    """x[1], x[1:2]."""
    taker.only(node, "this", "expressions")
    item = taker.take(node.this, depth)
    index: Any = node.expressions[0] if len(node.expressions) == 1 else None
    if type(index).__name__ == "Slice":
        taker.only(index, "this", "expression")
        begin, end = index.args.get("this"), index.args.get("expression")
        first = Constant(1, "integer") if begin is None else taker.take(begin, depth)
        last = Constant(SLICE_END, "integer") if end is None else taker.take(end, depth)
        return Call("list_slice", (item, first, last))
    negative = type(index).__name__ == "Neg"
    digits = index.this if negative else index
    if type(digits).__name__ == "Literal" and not digits.is_string and str(digits.this).isdecimal():
        place = int(digits.this) * (-1 if negative else 1) + 1  # the parser counts from 0
        return Call("list_extract", (item, Constant(place, "integer")))
    if type(index).__name__ in ("Column", "Null"):
        return Call("list_extract", (item, taker.take(index, depth)))
    raise Fault(
        "needed a whole number, a column or a slice such as x[1:2] in brackets; got something else; write "
        "list_extract(x, i)",
        start_of(node),
    )


def _no_lambda(_: Takes, node: Any, __: int) -> Node:
    raise Fault(
        "needed functions of values; got one with a lambda; unnest the list, as in FROM s, unnest(s.x) AS u(v), and "
        "take list(...) of what is computed",
        start_of(node),
    )


LIST_SPELLINGS: Mapping[str, Callable[[Any, Any, int], Node]] = {
    **dict.fromkeys(_NODES, _by_class),
    "Array": _array,
    "ArrayConcat": _concat,
    "ArraySlice": _slice,
    "ArraySort": _sort,
    "SortArray": _sort,
    "ArrayToString": _text,
    "Bracket": _bracket,
    "Transform": _no_lambda,
    "ArrayFilter": _no_lambda,
    "Reduce": _no_lambda,
}
"""By what sqlglot calls them."""
