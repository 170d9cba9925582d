"""Batches as a table, with slices that lie one after the other in the same memory joined again, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nile.summaries.heavy import pa

__all__ = ["contiguous"]


def contiguous(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches as one table.  Columns of slices of one array become that array (or the part of it).

    What streams through a query in pieces of 65,536 rows and is not changed comes out in one piece, in the buffers
    it came in.  O(batches x columns).
    """
    if len(batches) < 2:
        return pa.Table.from_batches(list(batches), schema)
    columns = []
    for at, field in enumerate(schema):
        chunks = [batch.column(at) for batch in batches]
        columns.append(pa.chunked_array(_joined(chunks), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _joined(chunks: list[Any]) -> list[Any]:
    if pa.types.is_nested(chunks[0].type) or pa.types.is_dictionary(chunks[0].type):
        return chunks
    out: list[Any] = []
    begin = 0
    places = [_place(chunk) for chunk in chunks]
    for at in range(1, len(chunks) + 1):
        before = chunks[at - 1]
        if at < len(chunks) and places[at] == places[at - 1] and chunks[at].offset == before.offset + len(before):
            continue
        out.append(_run(chunks[begin:at]))
        begin = at
    return out


def _place(chunk: Any) -> tuple[int, ...]:
    return tuple(0 if buffer is None else buffer.address for buffer in chunk.buffers())


def _run(chunks: list[Any]) -> Any:
    if len(chunks) == 1:
        return chunks[0]
    first = chunks[0]
    length = sum(len(chunk) for chunk in chunks)
    nulls = sum(chunk.null_count for chunk in chunks)
    return pa.Array.from_buffers(first.type, length, first.buffers(), null_count=nulls, offset=first.offset)
