"""What expressions may be made of: sqlglot's classes and words by name, and what Nile calls them."""

from __future__ import annotations

from collections.abc import Mapping

from nile.expressions.tree import Comparison, Function, Kind, Operator

__all__ = [
    "ALLOWED",
    "ARGUMENTS",
    "CALLED",
    "COMPARISONS",
    "FUNCTIONS",
    "NAMED",
    "OPERATORS",
    "PARTS",
    "SPELLING",
    "TYPES",
    "UNITS",
]

COMPARISONS: Mapping[str, Comparison] = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
OPERATORS: Mapping[str, Operator] = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
FUNCTIONS: Mapping[str, Function] = {
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
NAMED: Mapping[str, tuple[Function, tuple[str, ...]]] = {
    "Lower": ("lower", ("this",)),
    "Upper": ("upper", ("this",)),
    "Length": ("length", ("this",)),
    "Reverse": ("reverse", ("this",)),
    "Trim": ("trim", ("this", "expression")),
    "Replace": ("replace", ("this", "expression", "replacement")),
    "Split": ("string_split", ("this", "expression")),
    "SplitPart": ("split_part", ("this", "delimiter", "part_index")),
    "StrPosition": ("strpos", ("this", "substr")),
    "StartsWith": ("starts_with", ("this", "expression")),
    "EndsWith": ("ends_with", ("this", "expression")),
    "Contains": ("contains", ("this", "expression")),
    "Left": ("left", ("this", "expression")),
    "Right": ("right", ("this", "expression")),
    "Repeat": ("repeat", ("this", "times")),
    "Pad": ("rpad", ("this", "expression", "fill_pattern")),
    "RegexpLike": ("regexp_matches", ("this", "expression")),
    "RegexpExtract": ("regexp_extract", ("this", "expression", "group")),
    "RegexpReplace": ("regexp_replace", ("this", "expression", "replacement", "modifiers")),
    "Sign": ("sign", ("this",)),
    "Pow": ("power", ("this", "expression")),
    "Exp": ("exp", ("this",)),
    "Ln": ("ln", ("this",)),
    "Quarter": ("quarter", ("this",)),
    "Week": ("week", ("this",)),
    "DayOfYear": ("dayofyear", ("this",)),
    "DayOfWeek": ("dayofweek", ("this",)),
    "DayOfWeekIso": ("isodow", ("this",)),
    "TimeToUnix": ("epoch", ("this",)),
    "IntDiv": ("divide", ("this", "expression")),
    "Cbrt": ("cbrt", ("this",)),
    "Trunc": ("trunc", ("this",)),
    "Sin": ("sin", ("this",)),
    "Cos": ("cos", ("this",)),
    "Tan": ("tan", ("this",)),
    "Asin": ("asin", ("this",)),
    "Acos": ("acos", ("this",)),
    "Atan": ("atan", ("this",)),
    "Atan2": ("atan2", ("this", "expression")),
    "Degrees": ("degrees", ("this",)),
    "Radians": ("radians", ("this",)),
    "IsNan": ("isnan", ("this",)),
    "IsInf": ("isinf", ("this",)),
    "WeekOfYear": ("week", ("this",)),
    "Dayname": ("dayname", ("this",)),
    "Monthname": ("monthname", ("this",)),
    "LastDay": ("last_day", ("this",)),
    "TimeToStr": ("strftime", ("this", "format")),
    "StrToTime": ("strptime", ("this", "format")),
    "MD5": ("md5", ("this",)),
    "SHA2": ("sha256", ("this",)),
    "Unicode": ("unicode", ("this",)),
    "Translate": ("translate", ("this", "from_", "to")),
}
"""Plain functions as sqlglot calls them, and their arguments."""
CALLED: Mapping[str, Function] = {
    **{
        name: name
        for name in (
            "date_sub", "divide", "epoch_ns", "epoch_us", "gcd", "isfinite", "lcm", "microsecond", "millisecond",
            "sha256", "strlen",
        )
    },
    "datesub": "date_sub",
    "ord": "unicode",
    "prefix": "starts_with",
    "suffix": "ends_with",
    "try_strptime": "strptime",
    "weekday": "dayofweek",
}  # fmt: skip
"""Plain functions that sqlglot knows nothing of, and what they are in the table."""
PARTS: Mapping[str, Function] = {
    **{
        name: name
        for name in (
            "year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond",
            "epoch", "isodow",
        )
    },
    **{f"{name}s": name for name in ("hour", "minute", "second", "millisecond", "microsecond")},
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
    "doy": "dayofyear",
    "dayofyear": "dayofyear",
}  # fmt: skip
"""What extract takes out of a time."""
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
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
SPELLING = {
    "null_if_pos_overflow",
    "single_replace",
    "typed",
    "safe",
    "is_nvl",
    "is_null",
    "binary",
    "encoding",
    "ignore_nulls",
}
_SOME = ("lower", "upper", "split_part", "regexp_extract", "abs", "coalesce", "round", "date_trunc")
ALLOWED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL, CASE, + - * / %, ||, CAST, functions such as "
    f"{', '.join(_SOME)}, extract, and literals"
)
