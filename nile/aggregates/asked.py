"""What can be asked of many tuples at once: `sum(price * quantity)` as text, read and checked.

Names and meanings are DuckDB's.  Nulls do not count; NaN is the largest number; without a tuple a count is 0
and everything else is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from nile.aggregates.catalogue import ALIASES, CATALOGUE, COLLECTED, general, kept_in
from nile.expressions.conditions import Value, parse_value
from nile.expressions.reading import Resolve
from nile.summaries.errors import ConfigError, ExpressionError, KeyTypeError
from nile.summaries.heavy import pa

__all__ = ["DISTRIBUTION", "MOMENT", "SETS", "Aggregate", "read_aggregates"]

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_DISTINCT = re.compile(r"\s*distinct\b(.*)", re.DOTALL | re.IGNORECASE)

MOMENT = kept_in("count", "total", "squares", "low", "high")
"""Answered from counters of whole cells."""
DISTRIBUTION = tuple(name for name in CATALOGUE if name not in (*MOMENT, *COLLECTED))
"""Need tuples, or sketches of them."""
SETS = tuple(name for name, kind in CATALOGUE.items() if kind.is_set)
"""Of these, those that sketches of distinct values answer."""

_KNOWN = tuple(name for name in (*CATALOGUE, *ALIASES) if ALIASES.get(name, name) not in COLLECTED)
_NUMBERS = ("integer", "number")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate.  name: of its column in the answer; text: as written; function: its name in the catalogue.

    value: what it is of, None for count(*).  argument: the quantile in [0, 1], or k of top_k, else None.
    """

    name: str
    text: str
    function: str
    value: Value | None
    argument: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return () if self.value is None else self.value.columns

    def check(self, schema: pa.Schema, *, where: str) -> None:
        """Raises UnknownColumn, ExpressionError, or KeyTypeError where numbers are needed and there are none."""
        if self.value is None:
            return
        place = f"{where}, '{self.name}'"
        kind = self.value.kind(schema, where=place)
        if CATALOGUE[self.function].takes != "number":
            if kind == "other":
                raise KeyTypeError(
                    f"{place}: {self.function} needs numbers, text, times or booleans; got {self.value.text!r}, which "
                    f"is {_types(self.value, schema)}; name another column, or convert it where it comes from"
                )
        elif kind not in _NUMBERS:
            raise KeyTypeError(
                f"{place}: {self.function} needs a number; got {self.value.text!r}, which is "
                f"{_types(self.value, schema)}; "
                "name a numeric column or CAST it"
            )


def _types(value: Value, schema: pa.Schema) -> str:
    """The types of the columns that a value is made of, for a message."""
    return ", ".join(str(schema.field(column).type) for column in value.columns) or "a constant"


def read_aggregates(
    aggregates: Mapping[str, str], *, where: str, resolve: Resolve | None = None
) -> tuple[Aggregate, ...]:
    """{name: text} as Aggregates; resolve: as of `parse_value`.  Raises ConfigError, ExpressionError."""
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise ConfigError(
            f"{where}: needed aggregates as {{name: text}}; got {aggregates!r}; "
            "write {'revenue': 'sum(price * quantity)', 'n': 'count(*)'}"
        )
    return tuple(_read(name, text, where, resolve) for name, text in aggregates.items())


def _read(name: str, text: str, where: str, resolve: Resolve | None) -> Aggregate:
    if not isinstance(name, str) or not isinstance(text, str) or not name:
        raise ConfigError(f"{where}: needed a name and an aggregate as text; got {name!r}: {text!r}; quote both")
    place = f"{where}, '{name}'"
    call = _CALL.fullmatch(text)
    if call is None:
        raise ExpressionError(f"{place}: needed an aggregate such as avg(price); got {text[:80]!r}; call a function")
    spelt, inner = call[1].lower(), call[2].strip()
    function = ALIASES.get(spelt, spelt)
    arguments = _split(inner)
    distinct = _DISTINCT.fullmatch(arguments[0]) if arguments else None
    if distinct is not None:
        if function != "count":
            raise ExpressionError(f"{place}: DISTINCT goes with count; got {text[:80]!r}; drop it")
        function, arguments[0] = "count_distinct", distinct[1].strip()
    kind = CATALOGUE.get(function)
    if kind is not None and kind.is_collected:
        raise ExpressionError(
            f"{place}: needed an aggregate of values in no order; got {spelt}(); ask SQL: SELECT {spelt}(...) FROM ..."
        )
    if kind is None:
        near = get_close_matches(spelt, _KNOWN, n=1)
        hint = f"did you mean {near[0]}()?" if near else "name one of these"
        raise ExpressionError(f"{place}: needed one of {', '.join(sorted(_KNOWN))}; got {spelt}(); {hint}")
    if function == "count" and arguments in ([], ["*"]):
        return Aggregate(name, text, "count", None)
    argument = kind.share
    if kind.argument is None:
        _expect(place, text, arguments, 1, f"{spelt}(price)")
    else:
        _expect(place, text, arguments, 2, "top_k(item_id, 5)" if kind.argument == "k" else f"{spelt}(price, 0.9)")
        argument = _argument(place, function, arguments[1])
    value = parse_value(arguments[0], where=place, resolve=resolve)
    return Aggregate(name, text, general(function)[0], value, argument)


def _expect(place: str, text: str, arguments: list[str], count: int, example: str) -> None:
    if len(arguments) != count:
        raise ExpressionError(f"{place}: needed {count} argument(s); got {text[:80]!r}; write {example}")


def _argument(place: str, function: str, text: str) -> float:
    if function == "top_k":
        if text.isdecimal() and 1 <= int(text) <= 10_000:
            return int(text)
        raise ExpressionError(f"{place}: top_k needs a whole number, 1 to 10000; got {text!r}; write top_k(item_id, 5)")
    try:
        share = float(text)
    except ValueError:
        share = float("nan")
    if not 0.0 <= share <= 1.0:
        raise ExpressionError(f"{place}: {function} needs a share from 0 to 1; got {text!r}; 0.5 is the median")
    return share


def _split(text: str) -> list[str]:
    """Arguments at top-level commas; commas within parentheses and quotes are not."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return [part for part in parts if part] if len(parts) == 1 else parts
