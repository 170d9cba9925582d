"""Rows of Arrow as Python's values, as text in cells, and as Spark can take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nile.summaries.heavy import pa

__all__ = ["for_spark", "text", "tuples"]


def tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples of Python values."""
    columns = [_values(column) for column in batch.columns]
    return iter(zip(*columns, strict=True)) if columns else iter([()] * batch.num_rows)


def _values(column: pa.Array) -> list[Any]:
    """Python values; times with nanoseconds that Python has no type for are cut to microseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def for_spark(table: pa.Table) -> pa.Table:
    """A table whose times Spark can hold: in microseconds."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            micro = table.column(at).cast(pa.timestamp("us", field.type.tz), safe=False)
            table = table.set_column(at, field.name, micro)
    return table


def text(value: Any) -> str:
    """A value in a cell."""
    told = "NULL" if value is None else str(value)
    return told if len(told) <= 60 else told[:57] + "..."
