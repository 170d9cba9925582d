"""Values from one kind to another: columns into the few Arrow types that conditions compute in, and CAST.

integer int64, number float64, text string, boolean bool, timestamp and date timestamp[us] (timestamp[ns]
where the column has it), all in UTC. Times beyond a unit's range are clamped to its ends, which keeps order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.base.cells import BOOLEAN, INTEGER, NUMBER, NUMBER_WORD, TIMESTAMP, parse_cells
from nile.base.nearest import nearest
from nile.expressions.lists.values import Lists, element_kind, is_list
from nile.expressions.time_functions import time_text
from nile.expressions.tree import Kind
from nile.summaries.heavy import pa, pc

CAST_PATTERNS: dict[Kind, str] = {
    "integer": INTEGER,
    "number": f"{NUMBER}|{NUMBER_WORD}",
    "boolean": BOOLEAN,
    "timestamp": TIMESTAMP.replace("{1,9}", "{1,6}"),
    "date": TIMESTAMP.replace("{1,9}", "{1,6}"),
}
"""Which text (trimmed of white space) a CAST understands; all other text becomes null."""

MICROSECONDS_A_DAY = 86_400_000_000
_INT64 = np.iinfo(np.int64)


def leaf(column: pa.Array, kind: Kind) -> pa.Array:
    """A column as an array of the type its kind computes in."""
    if (kind == "number" and column.type == pa.float64()) or (kind == "integer" and column.type == pa.int64()):
        return column  # to cast it to its own type takes a call of a function
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_list(kind):
        lists = Lists.of(column)
        return Lists(leaf(lists.values, element_kind(kind)), lists.lengths, lists.valid).array()
    if kind == "integer":
        return column.cast(pa.int64())
    if kind == "number":
        return nearest(column, pa.float64(), safe=False)
    if kind == "text":
        return column.cast(pa.string())
    if kind == "timestamp":
        unit = column.type.unit
        if unit in ("us", "ns"):
            return column.cast(pa.timestamp(unit))
        ticks = column.cast(pa.timestamp(unit)).cast(pa.int64())
        return _scaled(ticks, 1_000_000 if unit == "s" else 1_000, "us")
    if kind == "date":
        days = column.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.int64())
        return _scaled(days, MICROSECONDS_A_DAY, "us")
    return column


def unsigned_leaf(column: pa.Array) -> pa.Array:
    """A column of whole numbers of 64 bits without a sign as what it is."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def cast_unsigned(value: pa.Array, wanted: Kind, bits: int) -> pa.Array:
    """CAST of whole numbers without a sign to text, or to an integer: null beyond its bits."""
    if wanted == "text":
        return value.cast(pa.string())
    fits = pc.less(value, pa.scalar(2 ** (bits - 1), pa.uint64()))
    return pc.if_else(fits, value, pa.scalar(None, pa.uint64())).cast(pa.int64())


def to_number(value: Any) -> Any:
    """A whole number (array or scalar) as a double, rounded to the nearest; a double as it is."""
    return value if value.type == pa.float64() else pc.cast(value, pa.float64(), safe=False)


def in_nanoseconds(value: Any) -> Any:
    """A timestamp array or scalar as timestamp[ns]."""
    if value.type == pa.timestamp("ns"):
        return value
    if isinstance(value, pa.Scalar):
        return in_nanoseconds(pa.array([value.as_py()], value.type))[0]
    return _scaled(value.cast(pa.int64()), 1_000, "ns")


def cast_values(value: Any, source: Kind, wanted: Kind, bits: int) -> Any:
    """CAST from one kind to another, null where impossible."""
    if isinstance(value, pa.Scalar):
        return _cast(pa.array([value.as_py()], value.type), source, wanted, bits)[0]
    return _cast(value, source, wanted, bits)


def _cast(value: pa.Array, source: Kind, wanted: Kind, bits: int) -> pa.Array:
    if is_list(wanted):
        lists = Lists.of(value)
        made = _cast(lists.values, element_kind(source), element_kind(wanted), bits)
        return Lists(made, lists.lengths, lists.valid).array()
    if wanted == "integer":
        return _to_integer(value, source, bits)
    if source == wanted:
        return value
    if source == "text":
        arrow = {"number": pa.float64(), "boolean": pa.bool_()}.get(wanted, pa.timestamp("us"))
        value = parse_cells(value, arrow)[0]
    if wanted == "number":
        return to_number(value)
    if wanted == "date":
        return _midnight(value)
    if wanted == "text" and source in ("timestamp", "date"):
        return time_text(value, date=source == "date")
    if wanted == "text" and source == "number":
        return pa.array([None if each is None else _shortest(each) for each in value.to_pylist()], pa.string())
    if wanted == "timestamp" or source == "text":
        return value
    return pc.cast(value, pa.string() if wanted == "text" else pa.bool_())


def _shortest(number: float) -> str:
    """The shortest text that reads as the same double, as DuckDB writes it."""
    return repr(number)


def _to_integer(value: pa.Array, source: Kind, bits: int) -> pa.Array:
    if source == "text":
        whole = parse_cells(value, pa.int64())[0]
    elif source == "number":
        # 2.0**63 itself is cut to the largest integer, as Java and so Spark do.
        inside = pc.less_equal(pc.abs(value), 2.0**63)  # false for NaN
        numbers = pc.if_else(inside, value, 0.0)
        nearest = np.rint(numbers.fill_null(0.0).to_numpy(zero_copy_only=False))  # a tie goes to the even one
        with np.errstate(invalid="ignore"):
            ticks = np.where(nearest >= 2.0**63, _INT64.max, nearest.astype(np.int64))
        whole = pa.array(ticks, mask=~pc.fill_null(inside, False).to_numpy(zero_copy_only=False))
    else:
        whole = value.cast(pa.int64())
    if bits == 64:
        return whole
    limit = 2 ** (bits - 1)
    fits = pc.and_(pc.greater_equal(whole, -limit), pc.less(whole, limit))
    return pc.if_else(fits, whole, pa.scalar(None, pa.int64()))


def _midnight(value: pa.Array) -> pa.Array:
    size = MICROSECONDS_A_DAY * (1_000 if value.type.unit == "ns" else 1)
    ticks = value.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days = ticks // size
    mask = value.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days * MICROSECONDS_A_DAY, mask=mask).cast(pa.timestamp("us"))


def _scaled(ticks: pa.Array, size: int, unit: str) -> pa.Array:
    """`ticks` times `size` as timestamps of `unit`, clamped to int64."""
    limit = _INT64.max // size
    whole = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    scaled = np.clip(whole, -limit, limit) * size
    scaled = np.where(whole > limit, _INT64.max, np.where(whole < -limit, _INT64.min + 1, scaled))
    mask = ticks.is_null().to_numpy(zero_copy_only=False)
    return pa.array(scaled, pa.int64(), mask=mask).cast(pa.timestamp(unit))
