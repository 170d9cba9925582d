"""Which Arrow types can be compared, ordered and added, and what two of them have in common."""

from __future__ import annotations

from typing import Any

from nile.base.plain import decoded_type
from nile.exact.state.arrow import pa

__all__ = ["added", "common", "comparable", "numeric", "ordered"]

_SHORT, _LONG = 38, 76  # digits of decimals of 128 and 256 bits


def comparable(kind: Any) -> bool:
    """Whether values of the type can be told equal: all but nested ones, lists of plain values aside."""
    kind = decoded_type(kind)
    return not pa.types.is_nested(kind) or (pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type))


def numeric(kind: Any) -> bool:
    """Whole numbers, floats and truth values: what can be added without loss of meaning."""
    types, kind = pa.types, decoded_type(kind)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind))


def ordered(kind: Any) -> bool:
    """Whether the type has a least and a greatest value."""
    return comparable(kind) and not pa.types.is_nested(decoded_type(kind))


def added(kind: Any) -> bool:
    """Whether a median of two values has a meaning: numbers, dates, times and durations."""
    kind = decoded_type(kind)
    return numeric(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def common(a: Any, b: Any) -> Any | None:
    """The type in which values of both compare, or None where they never do.

    Whole numbers: int64; floats: double, and so decimals beside them, as the doubles nearest to them; decimals: the
    digits of both on either side of the point; text: large_string; bytes: large_binary; dates and times: timestamp of
    the finer unit, both with or both without a zone.
    """
    a, b, types = decoded_type(a), decoded_type(b), pa.types
    if a == b or types.is_null(b):
        return a
    if types.is_null(a):
        return b
    text = (types.is_string, types.is_large_string, types.is_string_view)
    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    for tests, wide in (
        ((types.is_integer,), pa.int64()),
        ((types.is_floating,), pa.float64()),
        (text, pa.large_string()),
        (binary, pa.large_binary()),
        ((types.is_date,), pa.timestamp("ms")),
    ):
        if any(test(a) for test in tests) and any(test(b) for test in tests):
            return wide
    if any(map(types.is_decimal, (a, b))) and any(map(types.is_floating, (a, b))):
        return pa.float64()
    if types.is_decimal(a) and types.is_decimal(b):
        scale = max(a.scale, b.scale)
        digits = scale + max(a.precision - a.scale, b.precision - b.scale)
        return pa.decimal128(digits, scale) if digits <= _SHORT else pa.decimal256(min(digits, _LONG), scale)
    if types.is_timestamp(a) and types.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        units = ("s", "ms", "us", "ns")
        return pa.timestamp(units[max(units.index(a.unit), units.index(b.unit))], tz=a.tz)
    return None
