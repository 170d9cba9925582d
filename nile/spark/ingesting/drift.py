"""Schema drift: how an input's columns differ from the stream's, and what to do about it.

Four ways, each with a declared rule: `added` (stop | ignore), `dropped` (stop | null), `retyped` (stop | cast:
cells that do not fit the stream's type reject their row), `reordered` (stop | follow: columns go by name).
Without a rule any difference stops with a diff.  A type that holds every value of another (int32 in int64,
float32 in float64, text of any layout) is no drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from nile.summaries.errors import ConfigError, SchemaDrift
from nile.summaries.heavy import pa

__all__ = ["RULES", "Drift", "check_rules", "drift_of", "parse_type", "plain_schema", "widens"]

RULES: Mapping[str, tuple[str, ...]] = {
    "added": ("stop", "ignore"),
    "dropped": ("stop", "null"),
    "retyped": ("stop", "cast"),
    "reordered": ("stop", "follow"),
}
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class Drift:
    """What differs.  added, dropped: fields; retyped: (name, the stream's type, the input's);
    reordered: the common columns in the input's order, empty where that is the stream's.
    """

    added: tuple[pa.Field, ...]
    dropped: tuple[pa.Field, ...]
    retyped: tuple[tuple[str, pa.DataType, pa.DataType], ...]
    reordered: tuple[str, ...]

    def __str__(self) -> str:
        """The diff, a line a difference."""
        lines = [f"  + {field.name}: {field.type}  (added)" for field in self.added]
        lines += [f"  - {field.name}: {field.type}  (dropped)" for field in self.dropped]
        lines += [f"  ~ {name}: {stream} -> {found}  (retyped)" for name, stream, found in self.retyped]
        if self.reordered:
            lines.append(f"  order: {', '.join(self.reordered)}  (reordered)")
        return "\n".join(lines)

    def check(self, rules: Mapping[str, str], *, where: str, needed: tuple[str, ...]) -> None:
        """Raises SchemaDrift unless a rule allows every difference; the columns `needed` must be there."""
        open_kinds = [kind for kind in RULES if getattr(self, kind) and rules.get(kind, "stop") == "stop"]
        lost = [field.name for field in self.dropped if field.name in needed]
        if not open_kinds and not lost:
            return
        if lost:
            advice = f"the column '{lost[0]}' cannot be left out"
        else:
            allowed = ", ".join(f"{kind}={RULES[kind][1]}" for kind in open_kinds)
            advice = f"fix the input, or declare {allowed}"
        raise SchemaDrift(f"{where}: needed the columns of the stream; the input's differ; {advice}\n{self}")


def check_rules(rules: Mapping[str, str], *, where: str) -> dict[str, str]:
    """The rules, as a plain dict.  Raises ConfigError for one that there is not."""
    for kind, rule in rules.items():
        if kind not in RULES:
            raise ConfigError(f"{where}: drift: needed one of {', '.join(RULES)}; got '{kind}'")
        if rule not in RULES[kind]:
            raise ConfigError(f"{where}: drift: {kind}: needed {' or '.join(RULES[kind])}; got '{rule}'")
    return dict(rules)


def drift_of(stream: pa.Schema, found: pa.Schema, *, text: bool = False) -> Drift:
    """How `found`, the input's columns, differ from the stream's.

    text: the input has text cells (CSV, JSON) whose types were told from the first rows; whatever could be
    text, and numbers where others are wanted that fit, are judged cell by cell instead.
    """
    names = set(stream.names)
    common = [name for name in found.names if name in names]
    fits = _text_fits if text else widens
    return Drift(
        tuple(field for field in found if field.name not in names),
        tuple(field for field in stream if field.name not in found.names),
        tuple(
            (name, stream.field(name).type, found.field(name).type)
            for name in common
            if not fits(found.field(name).type, stream.field(name).type)
        ),
        tuple(common) if common != [name for name in stream.names if name in common] else (),
    )


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    types = pa.types
    one, two = _plain(narrow), _plain(wide)
    if one == two or types.is_null(one):
        return True
    if types.is_integer(one) and types.is_integer(two):
        unsigned = types.is_unsigned_integer(one)
        if types.is_unsigned_integer(two):
            return bool(unsigned and one.bit_width <= two.bit_width)
        return bool(one.bit_width < two.bit_width if unsigned else one.bit_width <= two.bit_width)
    if types.is_floating(one) and types.is_floating(two):
        return bool(one.bit_width <= two.bit_width)
    if types.is_timestamp(one) and types.is_timestamp(two):
        return bool(one.tz == two.tz and _UNITS.index(one.unit) <= _UNITS.index(two.unit))
    if types.is_decimal(one) and types.is_decimal(two):
        return bool(one.scale == two.scale and one.precision <= two.precision)
    return False


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as the lake keeps them: no dictionaries, one layout of text, text where all is null."""
    return pa.schema([pa.field(field.name, _kept(field.type)) for field in schema])


def parse_type(text: str, *, where: str) -> pa.DataType:
    """A column type as people write it: int64, double, string, date, timestamp[us], decimal(9, 2), ...

    Raises ConfigError.
    """
    name = text.strip().lower()
    simple = {
        "text": pa.string(), "string": pa.string(), "bool": pa.bool_(), "boolean": pa.bool_(),
        "date": pa.date32(), "double": pa.float64(), "float": pa.float32(), "float32": pa.float32(),
        "float64": pa.float64(), "int": pa.int64(), "integer": pa.int64(), "bytes": pa.binary(),
        "timestamp": pa.timestamp("us"),
    }  # fmt: skip
    simple |= {f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
    simple |= {f"timestamp[{unit}]": pa.timestamp(unit) for unit in _UNITS}
    simple |= {f"timestamp[{unit}, utc]": pa.timestamp(unit, "UTC") for unit in _UNITS}
    if name in simple:
        return simple[name]
    if name.startswith("decimal(") and name.endswith(")"):
        try:
            precision, scale = (int(part) for part in name[8:-1].split(","))
            if 1 <= precision <= 38 and 0 <= scale <= precision:
                return pa.decimal128(precision, scale)
        except ValueError:
            pass
    near = get_close_matches(name, simple, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "write int64, double, string, timestamp[us], decimal(9, 2), ..."
    raise ConfigError(f"{where}: needed a column type; got '{text}'; {hint}")


def _text_fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether cells typed as `found` may be cells of `wanted`; text could be anything."""
    types = pa.types
    if types.is_string(found) or types.is_string(wanted) or widens(found, wanted):
        return True
    if types.is_integer(found) or types.is_floating(found):
        return bool(types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted))
    return bool(types.is_timestamp(found) and (types.is_timestamp(wanted) or types.is_date(wanted)))


def _kept(kind: pa.DataType) -> pa.DataType:
    plain = _plain(kind)
    return pa.string() if pa.types.is_null(plain) else plain


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    return pa.date32() if types.is_date64(kind) else kind
