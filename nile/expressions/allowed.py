"""What expressions may be made of: sqlglot's classes and words by name, and what Nile calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from nile.expressions.tree import Comparison, Function, Kind, Operator

__all__ = ["ALLOWED", "ARGUMENTS", "COMPARISONS", "FUNCTIONS", "OPERATORS", "PARTS", "SPELLING", "TYPES", "UNITS"]

COMPARISONS: Mapping[str, Comparison] = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
OPERATORS: Mapping[str, Operator] = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
FUNCTIONS: Mapping[str, Function] = {
    "Lower": "lower",
    "Upper": "upper",
    "Length": "length",
    "Abs": "abs",
    "Coalesce": "coalesce",
    "Floor": "floor",
    "Ceil": "ceil",
    "Sqrt": "sqrt",
    "Nullif": "nullif",
    "Greatest": "greatest",
    "Least": "least",
    "Year": "year",
    "Month": "month",
    "Day": "day",
    "DayOfMonth": "day",
    "Hour": "hour",
    "Minute": "minute",
    "Second": "second",
}
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "coalesce": ("this", "expressions"),
    "greatest": ("this", "expressions"),
    "least": ("this", "expressions"),
    "nullif": ("this", "expression"),
}
PARTS: tuple[Function, ...] = ("year", "month", "day", "hour", "minute", "second")
UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
TYPES: Mapping[str, tuple[Kind, int]] = {
    "TINYINT": ("integer", 8),
    "SMALLINT": ("integer", 16),
    "INT": ("integer", 32),
    "BIGINT": ("integer", 64),
    "DOUBLE": ("number", 64),
    "TEXT": ("text", 0),
    "VARCHAR": ("text", 0),
    "BOOLEAN": ("boolean", 0),
    "TIMESTAMP": ("timestamp", 0),
    "TIMESTAMPNTZ": ("timestamp", 0),
    "TIMESTAMPTZ": ("timestamp", 0),
    "DATE": ("date", 0),
}
# Arguments that only say how the text was spelt, or how another engine would divide.
SPELLING = {"typed", "safe", "is_nvl", "is_null", "binary", "encoding", "ignore_nulls"}
ALLOWED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL, CASE, + - * / %, ||, CAST, "
    f"{', '.join(name for name in get_args(Function) if name != 'concat')}, extract, and literals"
)
