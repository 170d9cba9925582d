"""Attributes that are no single column: expressions over a stream's columns, and sets of two and more.

Each is called by the texts of its parts ("lower(k)", "a, b"), and computed of columns like one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from nile.expressions.conditions import Value, parse_value
from nile.expressions.tree import Constant
from nile.summaries.errors import ExpressionError
from nile.summaries.heavy import pa, pc

__all__ = ["columns_of_parts", "computed", "computed_types", "constant_of"]


@lru_cache(maxsize=256)
def _values(parts: tuple[str, ...]) -> tuple[Value, ...]:
    return tuple(parse_value(text, where="attribute") for text in parts)


def columns_of_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """The columns that the parts of an attribute are computed of, each once."""
    return tuple(dict.fromkeys(name for value in _values(tuple(parts)) for name in value.columns))


def computed(parts: Sequence[str], batch: pa.RecordBatch, *, where: str) -> pa.Array:
    """The attribute of each row.  batch: with the columns of its parts.

    Of one part its value; of several one text, "length:value" of each, so that two are equal where all parts are; null
    where one of them is.  Raises ExpressionError for parts that cannot be computed of such columns, or not be compared.
    """
    told = [value.of(batch, where=where) for value in _values(tuple(parts))]
    return told[0] if len(told) == 1 else _together(told, parts, where)


def computed_types(parts: Sequence[str], schema: pa.Schema, *, where: str) -> tuple[pa.DataType, ...]:
    """The type of each part over such columns.  Raises ExpressionError, UnknownColumn."""
    none = pa.RecordBatch.from_pylist([], schema=schema)
    told = [value.of(none, where=where) for value in _values(tuple(parts))]
    if len(told) > 1:
        _together(told, parts, where)
    return tuple(each.type for each in told)


def constant_of(constants: Sequence[Constant], types: Sequence[pa.DataType]) -> str | None:
    """What an attribute of several parts is where each of them equals a constant; None: nothing, or not a text."""
    made = []
    for constant, kind in zip(constants, types, strict=True):
        text = pa.types.is_string(kind)
        if text != isinstance(constant.value, str) or pa.types.is_boolean(kind) != isinstance(constant.value, bool):
            return None
        if constant.value is None or pa.types.is_temporal(kind):
            return None
        try:
            made.append(pa.array([constant.value], kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return None
    told: str = _together(made, [""] * len(made), "")[0].as_py()
    return told


def _together(told: Sequence[pa.Array], parts: Sequence[str], where: str) -> pa.Array:
    texts = [_text(each, part, where) for each, part in zip(told, parts, strict=True)]
    lengths = [pc.binary_length(text).cast(pa.string()) for text in texts]
    sized = [pc.binary_join_element_wise(n, text, ":") for n, text in zip(lengths, texts, strict=True)]
    return pc.binary_join_element_wise(*sized, "")


def _text(values: pa.Array, part: str, where: str) -> pa.Array:
    """Values as texts that are equal where these are."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_floating(kind):
        return pc.add(values.cast(pa.float64()), 0.0).cast(pa.string())  # -0.0 is 0.0
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(pa.string())
    raise ExpressionError(
        f"{where}: needed numbers, texts, booleans or times in a set of attributes; got {kind} of {part}; leave it out"
    )
