"""An expression, a duration and a budget as SQL that reads back as the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from nile.aggregates.catalogue import CATALOGUE
from nile.base.durations import format_duration
from nile.expressions import tree as nodes
from nile.expressions.lists.values import list_of
from nile.expressions.places import Fault
from nile.expressions.tokens import tokens_of
from nile.expressions.tree import Column, Node
from nile.sql.columns import SortKey
from nile.sql.cursor import is_reserved
from nile.sql.reading.clauses import CLAUSE_WORDS

__all__ = [
    "aggregate_text",
    "budget_text",
    "duration_text",
    "expression_text",
    "identifier",
    "key_text",
    "text_literal",
]

_TYPES: dict[nodes.Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}
_TYPES |= {list_of(kind): f"{name}[]" for kind, name in tuple(_TYPES.items())}
_BUDGETS = {
    "fraction": "",
    "share": " SHARE",
    "seconds": " SECONDS",
    "seconds_per_tuple": " SECONDS PER TUPLE",
    "outputs": " OUTPUTS",
}
_BITS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _ATOM = range(7)
_OPERATORS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}

Shown = Callable[[str], str]
"""How a column is written."""


def duration_text(ns: int) -> str:
    return f"'{format_duration(ns)}'"


def budget_text(unit: str, amount: float) -> str:
    """A budget as a statement says it."""
    if unit == "deadline":
        return f"BY DEADLINE {duration_text(round(1e9 * amount))}"
    return f"BUDGET {int(amount) if unit == 'outputs' else repr(amount)}{_BUDGETS[unit]}"


def expression_text(node: Node, shown: Shown) -> str:
    """The tree as SQL; columns as `shown` writes them."""
    return _text(node, shown)[0]


def aggregate_text(
    function: str,
    argument: Node | None,
    distinct: bool,
    fraction: float | None,
    shown: Shown,
    order: Sequence[SortKey] = (),
    where: Node | None = None,
    separator: str | None = None,
) -> str:
    """An aggregate as SQL."""
    inner = "*" if argument is None else expression_text(argument, shown)
    inner = f"DISTINCT {inner}" if distinct else inner
    if CATALOGUE[function].argument == "key":
        return f"{function}({inner}, {expression_text(order[0].node, shown)})"
    if separator is not None:
        inner += f", {text_literal(separator)}"
    if order:
        inner += " ORDER BY " + ", ".join(key_text(key, shown) for key in order)
    if where is not None:
        return f"{CATALOGUE[function].sql}({inner}) FILTER (WHERE {expression_text(where, shown)})"
    return f"{CATALOGUE[function].sql}({inner})" if fraction is None else f"{function}({inner}, {fraction})"


def key_text(key: SortKey, shown: Shown) -> str:
    """A key of ORDER BY as SQL."""
    text = expression_text(key.node, shown)
    return text + (" DESC" if key.descending else "") + ("" if key.nulls_last else " NULLS FIRST")


def _text(node: Node, shown: Shown) -> tuple[str, int]:
    """The SQL of a node and how tightly it binds."""

    def inner(child: Node, least: int) -> str:
        text, binds = _text(child, shown)
        return text if binds >= least else f"({text})"

    match node:
        case Column():
            return shown(node.name), _ATOM
        case nodes.Constant():
            return _constant(node)
        case nodes.Compare():
            return f"{inner(node.left, _SUM)} {node.operator} {inner(node.right, _SUM)}", _COMPARED
        case nodes.Between():
            low, high = inner(node.low, _SUM), inner(node.high, _SUM)
            return f"{inner(node.item, _SUM)} BETWEEN {low} AND {high}", _COMPARED
        case nodes.Logic():
            binds = _AND if node.operator == "AND" else _OR
            return f" {node.operator} ".join(inner(item, binds + 1) for item in node.items), binds
        case nodes.Not():
            return f"NOT {inner(node.item, _COMPARED)}", _NOT
        case nodes.IsNull():
            return f"{inner(node.item, _SUM)} IS NULL", _COMPARED
        case nodes.In():
            choices = ", ".join(inner(choice, _OR) for choice in node.choices)
            return f"{inner(node.item, _SUM)} IN ({choices})", _COMPARED
        case nodes.Like():
            return f"{inner(node.item, _SUM)} {_like(node)}", _COMPARED
        case nodes.Arithmetic():
            binds = _OPERATORS[node.operator]
            return f"{inner(node.left, binds)} {node.operator} {inner(node.right, binds + 1)}", binds
        case nodes.Call():
            if node.function == "concat":
                return " || ".join(inner(each, _ATOM) for each in node.arguments), _COMPARED
            return f"{node.function}({', '.join(inner(each, _OR) for each in node.arguments)})", _ATOM
        case nodes.Lookup():
            keys = ", ".join(inner(key, _OR) for key in node.keys)
            return f"{node.rows.name}[{keys}]{'' if node.column is None else '.' + node.column}", _ATOM
        case nodes.Case():
            branches = [f"WHEN {inner(when, _OR)} THEN {inner(then, _OR)}" for when, then in node.branches]
            return f"CASE {' '.join(branches)} ELSE {inner(node.default, _OR)} END", _ATOM
        case nodes.Cast():
            to = _BITS[node.bits] if node.kind == "integer" else _TYPES[node.kind]
            to = f"{_BITS[node.bits]}[]" if node.kind == "integer[]" else to
            return f"CAST({inner(node.item, _OR)} AS {to})", _ATOM


def _constant(node: nodes.Constant) -> tuple[str, int]:
    value = node.value
    if value is None:
        return (f"CAST(NULL AS {_TYPES[node.kind]})" if node.kind in _TYPES else "NULL"), _ATOM
    if isinstance(value, bool):
        return str(value).upper(), _ATOM
    if isinstance(value, str):
        return text_literal(value), _ATOM
    if node.kind == "interval":
        text = format_duration(abs(int(value)) * 1_000)
        return f"INTERVAL '{'-' if value < 0 else ''}{text}'", _ATOM
    if node.kind in ("timestamp", "date"):
        moment = datetime(1970, 1, 1) + timedelta(microseconds=int(value))
        shown = moment.isoformat(" ") if node.kind == "timestamp" else moment.date().isoformat()
        return f"{_TYPES[node.kind]} '{shown}'", _ATOM
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)", _ATOM
    return (repr(value), _ATOM) if math.copysign(1, value) > 0 else (repr(value), _SUM)


def _like(node: nodes.Like) -> str:
    needs_escape = any(piece.text is not None and set(piece.text) & set("%_") for piece in node.pattern)
    escape = "\\" if needs_escape else ""
    pattern = "".join(_piece(piece, escape) for piece in node.pattern)
    word = "ILIKE" if node.ignore_case else "LIKE"
    return f"{word} {text_literal(pattern)}" + (f" ESCAPE {text_literal(escape)}" if escape else "")


def _piece(piece: nodes.Piece, escape: str) -> str:
    if piece.text is None:
        return "%" if piece.any_length else "_"
    if not escape:
        return piece.text
    return "".join(escape + sign if sign in ("%", "_", escape) else sign for sign in piece.text)


def text_literal(text: str) -> str:
    """A text in single quotes."""
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=4096)
def identifier(name: str) -> str:
    """A name, in double quotes where it needs them."""
    try:
        tokens = tokens_of(name)
    except Fault:
        tokens = []
    bare = len(tokens) == 1 and tokens[0].kind == "VAR" and tokens[0].text == name
    if bare and not is_reserved(name) and name.upper() not in CLAUSE_WORDS and name.isascii():
        return name
    return '"' + name.replace('"', '""') + '"'
