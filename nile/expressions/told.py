"""How messages tell values of the wrong kind, and what to do about them."""

from __future__ import annotations

from nile.expressions.lists.values import LIST_KINDS, is_list
from nile.expressions.tree import Column, Constant, Kind, Node

__all__ = ["KIND_NAMES", "describe", "hint", "remedy"]

_NUMERIC = ("integer", "number")
_TIMES = ("timestamp", "date")
KIND_NAMES: dict[Kind, str] = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "text": "text",
    "timestamp": "a timestamp",
    "date": "a date",
    "interval": "an interval",
    "null": "NULL",
    "other": "of a type that only IS NULL can use",
    **{kind: f"a list ({kind})" for kind in LIST_KINDS.values()},
}


def describe(node: Node) -> str:
    if isinstance(node, Column):
        return f"'{node.name}', which is {KIND_NAMES[node.kind]}"
    if isinstance(node, Constant) and node.kind in ("text", "integer", "number", "boolean"):
        return f"{str(node.value)[:40]!r}" if node.kind == "text" else str(node.value).lower()
    return KIND_NAMES[node.kind]


def remedy(node: Node) -> str:
    """What to do about a value of the wrong kind."""
    if is_list(node.kind):
        return "take an element, as in x[1], or unnest it"
    if node.kind == "other":
        return "take another column, or convert it where it comes from"
    return "CAST it" if node.kind != "interval" else "add it to a time"


def hint(kind: Kind, node: Node) -> str:
    if isinstance(node, Constant) and node.kind == "text" and kind in _NUMERIC:
        return "; write the number without quotes"
    if kind == "text" and node.kind in _NUMERIC:
        return "; write the number in quotes" if isinstance(node, Constant) else "; CAST one of them"
    if kind == "boolean" and node.kind in _NUMERIC:
        return "; write TRUE or FALSE"
    if kind in _TIMES and node.kind in _NUMERIC:
        return f"; write it as {kind.upper()} '2011-12-09'"
    return "; CAST one of them"
