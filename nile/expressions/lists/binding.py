"""Types of functions of lists: of which kind the elements are, over lists and elements together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nile.expressions.lists.functions import LISTS, OfLists
from nile.expressions.lists.values import element_kind, is_list, list_of
from nile.expressions.places import Fault
from nile.expressions.tree import Call, Cast, Constant, Kind, Node

__all__ = ["as_list", "bound_call"]

_ELEMENTS = ("boolean", "integer", "number", "text", "timestamp", "date", "null")


def bound_call(node: Call, bound: Sequence[Node], told: Callable[[Node], str]) -> Call:
    """A call of a function of lists over bound arguments.  told: what one is, for a message.  Raises Fault."""
    rule = LISTS[node.function]
    takes = _taken(rule, len(bound))
    kind: Kind = "null"
    for each, wanted in zip(bound, takes, strict=True):
        if wanted == "list" and not is_list(each.kind) and each.kind != "null":
            raise Fault(f"{node.function}() needs a list, got {told(each)}; write one such as [1, 2]")
        if wanted in ("list", "element"):
            kind = _common(kind, element_kind(each.kind) if is_list(each.kind) else each.kind, node, each, told)
        elif each.kind not in (wanted, "null"):
            what = "a whole number" if wanted == "integer" else "a text literal"
            raise Fault(f"{node.function}() needs {what}, got {told(each)}; CAST it")
    if rule.of and kind not in (*rule.of, "null"):
        what = "numbers" if "number" in rule.of else "truth values"
        raise Fault(f"{node.function}() needs a list of {what}, got {told(bound[0])}; CAST it")
    if kind == "null" and node.function != "list_value":
        kind = rule.of[0] if rule.of else "integer"
    if node.function == "array_to_string":
        kind = "text"
    arguments = tuple(_as(each, wanted, kind) for each, wanted in zip(bound, takes, strict=True))
    gives: Kind = list_of(kind) if rule.gives == "list" else kind if rule.gives == "element" else rule.gives
    return replace(node, arguments=arguments, kind=gives)


def _taken(rule: OfLists, count: int) -> Sequence[str]:
    """What so many arguments are."""
    if not rule.more:
        return rule.takes
    return [*rule.takes, *[rule.takes[-1]] * count][:count]


def _common(kind: Kind, other: Kind, node: Call, each: Node, told: Callable[[Node], str]) -> Kind:
    if other not in _ELEMENTS:
        raise Fault(f"{node.function}() cannot hold {told(each)}; a list is of numbers, texts, truth values or times")
    if kind == "null" or kind == other:
        return other
    if other == "null":
        return kind
    if {kind, other} <= {"integer", "number"}:
        return "number"
    if {kind, other} <= {"timestamp", "date"}:
        return "timestamp"
    raise Fault(f"{node.function}() needs elements of one kind, got {kind} beside {told(each)}; CAST one of them")


def _as(node: Node, wanted: str, kind: Kind) -> Node:
    if wanted == "list":
        return as_list(node, list_of(kind))
    if wanted != "element":
        return Constant(None, wanted) if node.kind == "null" else node  # type: ignore[arg-type]
    if node.kind == "null":
        return Constant(None, kind)
    if isinstance(node, Constant) and node.kind == "integer" and kind == "number":
        return Constant(None if node.value is None else float(node.value), "number")
    return node if node.kind == kind else Cast(node, kind)


def as_list(node: Node, kind: Kind) -> Node:
    """A list, or NULL, as one of the kind."""
    if node.kind == "null":
        return Constant(None, kind)
    if node.kind == kind:
        return node
    if node.kind == "null[]" and isinstance(node, Call) and node.function == "list_value":
        nothing = Constant(None, "integer" if kind == "null[]" else element_kind(kind))
        return replace(node, arguments=tuple(nothing for _ in node.arguments), kind=kind)
    bits = 0 if kind == "text[]" else 64
    return Cast(node, kind, bits)
