"""Plain functions as sqlglot parses them: their names, their arguments, and what their literals must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nile.expressions.allowed import NAMED
from nile.expressions.functions import Literal, regex_fault
from nile.expressions.places import Fault
from nile.expressions.time_functions import format_fault
from nile.expressions.tokens import own_start, sql_of, start_of
from nile.expressions.tree import Constant, Node

__all__ = ["called", "check_literal"]


def called(node: Any, only: Callable[..., Any]) -> tuple[str, list[Any]]:
    """(name in the table, arguments) of a call.  only: refuses other arguments than those named.  Raises Fault."""
    if type(node).__name__ == "Log":
        return _logarithm(node, only("this", "expression"))
    name, arguments = NAMED[type(node).__name__]
    only(*arguments, "position", "is_left", "length")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), name)
    name = "lpad" if node.args.get("is_left") else name
    given = [node.args[each] for each in arguments if node.args.get(each) is not None]
    if name == "regexp_extract" and len(given) == 3 and own_start(given[2]) is None:
        given.pop()  # sqlglot's own 0
    return name, given


def _logarithm(node: Any, first: Any) -> tuple[str, list[Any]]:
    """log(x) and log10(x) of base 10, log2(x)."""
    if node.args.get("expression") is None:
        return "log10", [first]
    base = str(first.this) if type(first).__name__ == "Literal" else ""
    if base not in ("10", "2"):
        raise Fault(
            "needed log10(), log2() or ln(); got a logarithm of another base; divide ln(x) by ln(b)", start_of(node)
        )
    return f"log{base}", [node.expression]


def check_literal(name: str, written: Any, value: Node, wanted: Literal) -> None:
    """Raises Fault where an argument is not the literal that a function needs."""
    held = value.value if isinstance(value, Constant) and value.kind == wanted.kind else None
    size = len(held) if isinstance(held, str) else held
    fits = isinstance(size, int) and wanted.least <= size <= wanted.most and (wanted.zero or size != 0)
    if not fits or (wanted.only and held not in wanted.only):
        if wanted.only:
            what = f"one of {', '.join(map(repr, wanted.only))}"
        elif wanted.kind == "text":
            what = f"a text literal of {wanted.least} to {wanted.most} characters"
        elif wanted.kind == "interval":
            what = "an interval such as INTERVAL '10 minutes'"
        else:
            what = f"a whole number from {wanted.least} to {wanted.most}{'' if wanted.zero else ' but 0'}"
        raise Fault(f"needed {what} in {name}(); got {sql_of(written)}", start_of(written))
    fault = regex_fault(str(held)) if wanted.regex else None
    if fault is not None:
        raise Fault(f"needed a regular expression (RE2) in {name}(); got one with {fault}", start_of(written))
    fault = format_fault(str(held), parsed=wanted.form == "strptime") if wanted.form else None
    if fault is not None:
        raise Fault(f"needed a format of times in {name}(); got one with {fault}", start_of(written))
