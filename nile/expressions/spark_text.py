"""A condition as Spark SQL, so that Spark selects the same rows as `evaluate`.

Spark 4 raises on overflow, division by zero and impossible casts (ANSI mode); the try_ functions used here
give null in either mode. Literals are typed (5L, 2.5D) and backslashes doubled, so that no setting of the
parser changes them. Times are UTC: the session's time zone must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from nile.expressions import tree as nodes
from nile.expressions.convert import CAST_PATTERNS
from nile.expressions.evaluate import lower_text
from nile.expressions.functions import PLAIN
from nile.expressions.lists.functions import LISTS
from nile.expressions.lists.values import is_list
from nile.expressions.tree import Column, Node, parts_of, whole_numbers
from nile.summaries.errors import ExpressionError, NotYet

_TYPES: dict[nodes.Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "STRING",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "%": "try_mod"}
_UNTYPED = ("lower", "upper", "length", "concat", "substring")
_FINITE = "1.7976931348623157E308D"
_WHITE = " \t\n\x0b\f\r"


def needs_types(node: Node) -> bool:
    """Whether the Spark text depends on the types of columns, so that the tree must be bound first."""
    return any(
        isinstance(part, (nodes.Arithmetic, nodes.Cast, nodes.Case))
        or (isinstance(part, nodes.Call) and part.function not in _UNTYPED)
        for part in parts_of(node)
    )


def spark_text(node: Node) -> str:
    """The Spark SQL of a tree: bound, or one for which `needs_types` is false. Compounds are in parentheses."""
    match node:
        case Column():
            return _column(node)
        case nodes.Constant():
            return _constant(node)
        case nodes.Compare():
            left, right = _comparable(node.left, node.right)
            return f"({left} {node.operator} {right})"
        case nodes.Between():
            item, low, high = _comparable(node.item, node.low, node.high)
            return f"({item} BETWEEN {low} AND {high})"
        case nodes.Logic():
            return "(" + f" {node.operator} ".join(map(spark_text, node.items)) + ")"
        case nodes.Not():
            return f"(NOT {spark_text(node.item)})"
        case nodes.IsNull():
            return f"({spark_text(node.item)} IS NULL)"
        case nodes.In():
            item, *choices = _comparable(node.item, *node.choices)
            return f"({item} IN ({', '.join(choices)}))"
        case nodes.Like():
            item = spark_text(node.item)
            return f"({f'lower({item})' if node.ignore_case else item} LIKE {_pattern(node)})"
        case nodes.Arithmetic():
            return _arithmetic(node)
        case nodes.Call():
            return _call(node)
        case nodes.Cast():
            return _cast(node)
        case nodes.Case():
            branches = [f"WHEN {spark_text(when)} THEN {spark_text(then)}" for when, then in node.branches]
            return f"(CASE {' '.join(branches)} ELSE {spark_text(node.default)} END)"
        case nodes.Lookup():
            raise NotYet(
                f"Spark text: needed columns of one source; got {node.rows.name}, whose rows are looked up; join them "
                "in a statement of engine='spark'"
            )


def _comparable(*items: Node) -> list[str]:
    """What is compared; whole numbers without a sign, which Spark has as decimals, as they are."""
    whole = nodes.are_whole(items)
    return [_name(each) if whole and isinstance(each, Column) and each.unsigned else spark_text(each) for each in items]


def _name(node: Column) -> str:
    return "`" + node.name.replace("`", "``") + "`"


def _column(node: Column) -> str:
    name = _name(node)
    if node.native or node.kind not in ("integer", "number"):
        return name
    return f"CAST({name} AS {_TYPES[node.kind]})"


def _constant(node: nodes.Constant) -> str:
    value = node.value
    if value is None:
        return f"CAST(NULL AS {_TYPES[node.kind]})" if node.kind in _TYPES else "NULL"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if node.kind == "interval":
        seconds, micros = divmod(abs(int(value)), 1_000_000)
        return f"INTERVAL '{'-' if value < 0 else ''}{seconds}.{micros:06d}' SECOND"
    if node.kind in ("timestamp", "date"):
        moment = datetime(1970, 1, 1) + timedelta(microseconds=int(value))
        shown = moment.isoformat(" ", "microseconds") if node.kind == "timestamp" else moment.date().isoformat()
        return f"{_TYPES[node.kind]} '{shown}'"
    if nodes.is_beyond(node):
        return f"{value}BD"
    if isinstance(value, int):
        return f"({value}L)" if value < 0 else f"{value}L"
    if not math.isfinite(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
    text = repr(value).upper() + "D"
    return f"({text})" if text.startswith("-") else text


def quoted(text: str) -> str:
    """A Spark string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _pattern(node: nodes.Like) -> str:
    """The pattern with Spark's default escape character, the backslash."""
    return quoted("".join(_piece(piece, node.ignore_case) for piece in node.pattern))


def _piece(piece: nodes.Piece, lower: bool) -> str:
    if piece.text is None:
        return "%" if piece.any_length else "_"
    text = (lower_text(piece.text) if lower else piece.text) or ""
    return "".join("\\" + character if character in "\\%_" else character for character in text)


def _arithmetic(node: nodes.Arithmetic) -> str:
    left, right = spark_text(node.left), spark_text(node.right)
    if node.kind != "timestamp" and node.left.kind in ("timestamp", "date"):
        raise ExpressionError(
            "needed arithmetic that Spark knows alike; got the difference of two times; compare the times, or leave "
            "it to a query over what Spark wrote"
        )
    if node.operator == "/":
        return f"try_divide(CAST({left} AS DOUBLE), CAST({right} AS DOUBLE))"
    if node.kind == "timestamp":
        return f"({left} {node.operator} {right})"
    return f"{_TRY[node.operator]}({left}, {right})"


def _call(node: nodes.Call) -> str:
    arguments = ", ".join(map(spark_text, node.arguments))
    if node.function in LISTS or is_list(node.kind) or any(is_list(each.kind) for each in node.arguments):
        raise ExpressionError(
            f"{node.function}(): needed a function that Spark knows alike; got one of lists; leave it to a query over "
            "what Spark wrote"
        )
    if node.function in PLAIN and node.function not in _UNTYPED:
        raise ExpressionError(
            f"{node.function}(): needed a function that Spark knows alike; got one that is not there yet; "
            "leave it to a query over what Spark wrote"
        )
    if node.function == "length":
        return f"CAST(length({arguments}) AS BIGINT)"
    first = spark_text(node.arguments[0])
    if node.function == "concat":
        return "(" + " || ".join(map(spark_text, node.arguments)) + ")"
    if node.function in ("year", "month", "day", "hour", "minute", "second"):
        return f"CAST({node.function}({first}) AS BIGINT)"
    if node.function == "date_trunc":
        return f"date_trunc({first}, CAST({spark_text(node.arguments[1])} AS TIMESTAMP))"
    if node.function == "substring":
        return f"substring({', '.join([first, *map(str, whole_numbers(node.arguments[1:]))])})"
    if node.function in ("round", "floor", "ceil", "sqrt"):
        return first if node.kind == "integer" else _once(first, _ROUNDED[node.function](node))
    if node.function == "abs" and node.kind == "integer":
        # abs() of the smallest integer raises in ANSI mode, and naming the argument twice would let
        # nested calls grow without bound: a lambda names it once.
        return f"transform(array({arguments}), v -> if(v < 0L, try_subtract(0L, v), v))[0]"
    return f"{node.function}({arguments})"


def _once(item: str, body: str) -> str:
    """A lambda's body over `item`, which it calls v: named once, so that nested calls do not grow without bound."""
    return f"transform(array({item}), v -> {body})[0]"


def _round(node: nodes.Call) -> str:
    digits = sum(whole_numbers(node.arguments[1:]))
    if not digits:
        return "if(abs(v) < 4503599627370496D, round(v), v)"
    size = f"1E{abs(digits)}D"
    there, back = ("*", "/") if digits > 0 else ("/", "*")
    scaled = f"(v {there} {size})"
    whole = f"if(abs({scaled}) < 4503599627370496D, round({scaled}), {scaled})"
    result = f"({whole} {back} {size})"
    return f"if(abs({scaled}) <= {_FINITE} AND abs({result}) <= {_FINITE}, {result}, v)"


_ROUNDED: dict[str, Callable[[nodes.Call], str]] = {
    "round": _round,
    "floor": lambda _: "if(abs(v) < 4503599627370496D, CAST(floor(v) AS DOUBLE), v)",
    "ceil": lambda _: "if(abs(v) < 4503599627370496D, CAST(ceil(v) AS DOUBLE), v)",
    "sqrt": lambda _: "if(v < 0D, CAST(NULL AS DOUBLE), sqrt(v))",
}


def _cast(node: nodes.Cast) -> str:
    unsigned = isinstance(node.item, Column) and node.item.unsigned and node.kind == "integer"
    item = _name(node.item) if unsigned and isinstance(node.item, Column) else spark_text(node.item)
    if node.kind == "text" and node.item.kind in ("number", "timestamp", "date"):
        raise ExpressionError(
            f"needed a CAST that Spark knows alike; got a {node.item.kind} as text; compare the {node.item.kind} itself"
        )
    if node.item.kind == "text" and node.kind != "text":
        # In Java "$" also matches before a last line end; "\\z" does not.
        pattern = quoted(CAST_PATTERNS[node.kind].replace("$", "\\z"))
        item = f"regexp_extract(trim(BOTH {quoted(_WHITE)} FROM {item}), {pattern}, 0)"
        if node.kind == "date":
            item = f"try_cast({item} AS TIMESTAMP)"
    if node.kind == "integer":
        if node.item.kind == "number" and not unsigned:
            item = f"rint({item})"
        whole = f"try_cast({item} AS {_INTEGERS[node.bits]})"
        return whole if node.bits == 64 else f"CAST({whole} AS BIGINT)"
    return f"try_cast({item} AS {_TYPES[node.kind]})"
