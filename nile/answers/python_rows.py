"""Rows of Arrow as Python's values, as text in cells, and as Spark can take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nile.summaries.heavy import pa

__all__ = ["for_spark", "rows", "text", "tuples"]


def tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples of Python values."""
    columns = [_values(column) for column in batch.columns]
    return iter(zip(*columns, strict=True)) if columns else iter([()] * batch.num_rows)


def _values(column: pa.Array) -> list[Any]:
    """Python values; times with nanoseconds that Python has no type for are cut to microseconds."""
    kind = _micro(column.type)
    if kind != column.type:
        column = column.cast(kind, safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _micro(kind: pa.DataType) -> pa.DataType:
    """A type with microseconds where it has nanoseconds, in lists too."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_micro(kind.value_type)))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    return pa.time64("us") if pa.types.is_time64(kind) else kind


def rows(data: pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of an Arrow batch, a table or batches, as dicts; times are datetimes, cut to microseconds.

    Arrow's own `to_pylist` needs pandas for times that have nanoseconds, such as `_ts` where a row leaves a window.
    """
    batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches() if isinstance(data, pa.Table) else data
    return [dict(zip(batch.schema.names, row, strict=True)) for batch in batches for row in tuples(batch)]


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
