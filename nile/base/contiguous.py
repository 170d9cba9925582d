"""Columns in memory: contiguous slices joined without a copy, and rows gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nile.base.pages import page_pool
from nile.summaries.heavy import pa

__all__ = ["contiguous", "counts_rows", "gathered", "in_one", "taken", "taker", "words_of"]

_LOOK = 65_536  # 512 KiB, which stay in a core's cache


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
        columns.append(pa.chunked_array(in_one(chunks), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def in_one(chunks: list[Any]) -> list[Any]:
    """Arrays of one type, with those that are parts of one array, one after the other, joined without a copy."""
    if not chunks or pa.types.is_nested(chunks[0].type) or pa.types.is_dictionary(chunks[0].type):
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


def taker(column: Any) -> Callable[[Any], Any]:
    """What takes some of the rows of an Arrow array: of at, int64 [m], each below its length.  O(m).

    Of a dictionary it takes values.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return lambda at: column.dictionary.take(column.indices.take(pa.array(at)))
    # Of eight bytes each numpy takes a third faster.
    if not len(column) or column.null_count or not _of_words(kind):
        return lambda at: column.take(pa.array(at))
    words = _words(column)

    def taken(at: Any) -> Any:
        if not at.shape[0]:
            return column.slice(0, 0)
        # In memory of Arrow's pools, which keep what was freed for the next one.
        size = 8 * at.shape[0]
        room = pa.allocate_buffer(size, memory_pool=page_pool(size))
        words.take(at, out=np.frombuffer(room, np.int64), mode="clip")  # any other mode copies `out` first
        return pa.Array.from_buffers(kind, at.shape[0], [None, room], 0)

    return taken


def taken(column: Any, at: Any) -> Any:
    """Some of the rows of an Arrow array: at, int64 [m], each below its length.  O(m)."""
    return taker(column)(at)


def gathered(words: Any, kind: Any, take: Callable[[Any], Any], at: Any) -> Any:
    """What is taken, or the same from words of eight bytes each, [m], or as an array, where known.  No copy of it."""
    if words is None:
        return take(at)
    if isinstance(words, pa.Array):
        return words
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)])


def counts_rows(column: Any) -> bool:
    """Whether the rows of an Arrow array are int64 0, 1, 2, ..., so that a place in it is its value.

    O(rows), of any other column O(1) mostly.
    """
    if column.type != pa.int64() or column.null_count or not len(column):
        return False
    words = _words(column)
    if words[0] or words[-1] != len(column) - 1:
        return False
    # So many different whole numbers, from the first of these to the last one.
    rises = (
        words[at + 1 : at + 1 + _LOOK] > words[at : min(at + _LOOK, len(words) - 1)]
        for at in range(0, len(words) - 1, _LOOK)
    )
    return all(bool(each.all()) for each in rises)


def words_of(column: Any) -> Any:
    """The values of an Arrow array, anything for null: int64 [n], shared; None unless they have eight bytes each."""
    return _words(column) if _of_words(column.type) else None


def _of_words(kind: Any) -> bool:
    return bool(pa.types.is_primitive(kind) and kind.bit_width == 64)


def _words(column: Any) -> Any:
    """The values of an Arrow array of eight bytes each: int64 [n], shared."""
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
