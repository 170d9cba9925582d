"""Which columns can be keys, which of them compare, and their values as words or bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.errors import KeyTypeError
from nile.summaries.heavy import pa

__all__ = [
    "dictionary_of", "is_hashed", "key_family", "kind_of_answers", "strings_of", "unfit", "widest", "words_of",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_CANONICAL_NAN = np.array([np.nan]).view(np.int64)[0]


def key_family(kind: pa.DataType, *, where: str) -> str:
    """Which keys compare with which: all integer widths are one family, all float widths another.

    Raises KeyTypeError for types that cannot be keys (lists, structs, maps, unions).
    """
    types = pa.types
    if types.is_dictionary(kind):
        return key_family(kind.value_type, where=where)
    if types.is_uint64(kind):
        return "uint64"
    for family, test in (
        ("integer", types.is_integer),
        ("float", types.is_floating),
        ("boolean", types.is_boolean),
        ("date", types.is_date),
        ("time", types.is_time),
        ("duration", types.is_duration),
        ("null", types.is_null),
    ):
        if test(kind):
            return family
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with time zone"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return "bytes"
    if types.is_decimal(kind):
        return f"decimal of scale {kind.scale}"
    raise KeyTypeError(
        f"{where}: a join key must be a number, text, bytes, boolean, date or time; got {kind}; "
        "choose another column or derive one"
    )


def words_of(column: pa.Array, family: str) -> Array:
    """The values of a fixed-width column as int64 bit patterns, equal exactly when the keys are equal."""
    if family == "boolean":
        column = column.cast(pa.int8())
    elif family == "float":
        column = column.cast(pa.float64())
    elif family in ("date", "time", "duration") or family.startswith("timestamp"):
        column = column.cast(widest(family, column.type)).view(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    if family == "float":
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):  # a signalling NaN is as good as another
            bits: Array = np.add(values, 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
        bits[np.isnan(values)] = _CANONICAL_NAN
        return bits
    words: Array = np.ascontiguousarray(column.to_numpy(zero_copy_only=False))
    return words.view(np.int64) if family == "uint64" else words.astype(np.int64, copy=False)


def widest(family: str, kind: pa.DataType) -> pa.DataType:
    """The type that holds every key of the family of `kind`: all units, widths and precisions."""
    if family.startswith("timestamp"):
        return pa.timestamp("ns", tz=kind.tz)
    if family.startswith("decimal"):
        return pa.decimal256(76, kind.scale)
    return {
        "integer": pa.int64(),
        "uint64": pa.uint64(),
        "float": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date64(),
        "time": pa.time64("ns"),
        "duration": pa.duration("ns"),
        "text": pa.large_string(),
        "bytes": pa.large_binary(),
    }[family]


def kind_of_answers(kind: pa.DataType) -> pa.DataType:
    """The type answers carry: no dictionary; views, which few functions take, become plain text or bytes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def strings_of(column: pa.Array) -> tuple[Array, Array]:
    """A text, bytes or decimal column without nulls as (uint8 data, int64 or int32 offsets), text and bytes where they
    lie."""
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.decimal256(76, kind.scale))
        width = 32
        raw = np.frombuffer(column.buffers()[1], np.uint8)
        data = raw[column.offset * width : (column.offset + len(column)) * width]
        return data, np.arange(0, (len(column) + 1) * width, width, dtype=np.int64)
    narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not (narrow or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        column = column.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = column.buffers()
    whole: Any = np.int32 if narrow else np.int64
    ends: Array = np.zeros(column.offset + 1, whole) if not len(column) else np.frombuffer(offsets_buffer, whole)
    offsets = ends[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    if data.shape[0] == 0:
        data = np.zeros(1, np.uint8)
    return data, np.ascontiguousarray(offsets)


def dictionary_of(column: pa.Array) -> pa.Array:
    """A text, bytes or decimal column as a dictionary array; Arrow cannot encode narrow decimals."""
    if pa.types.is_decimal(column.type):
        column = column.cast(widest("decimal", column.type))
    return column.dictionary_encode()


def is_hashed(kind: pa.DataType) -> bool:
    """Whether the words of `nile.summaries.hashing.key_words` are hashes, which different keys may share."""
    family = key_family(kind, where="key")
    return family in ("text", "bytes") or family.startswith("decimal")


def unfit(where: str, kind: pa.DataType, error: Exception) -> KeyTypeError:
    """What to say of times beyond int64 nanoseconds."""
    return KeyTypeError(
        f"{where}: keys of this type need to fit int64 nanoseconds (years 1677 to 2262); "
        f"got {kind} beyond ({error}); make such keys null, or cast them to numbers"
    )
