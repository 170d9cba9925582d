"""The keys of some entries as a page: text and bytes so that they can be compared where they lie, others as Arrow."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.heavy import pa, pc
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import key_kernels
else:
    key_kernels = lazy("nile.pyramid.history.key_kernels")

__all__ = ["Keys", "is_text", "text_page", "text_parts", "unpacked_text"]

Array = np.ndarray[Any, Any]


def is_text(kind: pa.DataType) -> bool:
    """Whether keys of this type are pages of text: where each begins (uint32 [m + 1], from 0), then their bytes."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


class Keys:
    """Keys to compare others with: Arrow [n], no nulls."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @cached_property
    def text(self) -> tuple[Array, Array] | None:
        """Their `text_parts`, made once; None: they are no text."""
        return text_parts(self.values) if is_text(self.values.type) else None

    def same(self, at: Array, others: Keys, which: Array) -> Array:
        """Whether key at[i] is the key which[i] of others, of one type: bool [n], by value.  There is one NaN, equal
        to itself; text is not copied."""
        if self.text is not None and others.text is not None:
            out = np.empty(at.shape[0], np.bool_)
            key_kernels.same_text(*self.text, at, *others.text, which, out)
            return out
        own, keys = self.values.take(pa.array(at)), others.values.take(pa.array(which))
        equal = pc.equal(own, keys)
        if pa.types.is_floating(own.type) and pa.types.is_floating(keys.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(own), pc.is_nan(keys)))
        found: Array = equal.to_numpy(zero_copy_only=False)
        return found


def text_parts(column: pa.Array) -> tuple[Array, Array]:
    """Text or bytes without nulls as (starts int64 [n + 1], bytes uint8); bytes before the first start are skipped."""
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    starts = np.zeros(1, np.int64)
    if len(wide):
        starts = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return starts, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def text_page(column: pa.Array) -> bytes:
    """The page of text keys."""
    starts, data = text_parts(column)
    low, high = int(starts[0]), int(starts[-1])
    return (starts - low).astype("<u4").tobytes() + data[low:high].tobytes()


def unpacked_text(page: memoryview, kind: pa.DataType, rows: int, *, look: bool) -> pa.Array:
    """The keys of a page of text, Arrow [rows] over the same memory.  Raises ValueError for what is none.

    look: into the text too.
    """
    size = 4 * (rows + 1)
    if len(page) < size:
        raise ValueError(f"a page of {len(page)} bytes")
    starts = np.frombuffer(page[:size], "<u4")
    if starts[0] != 0 or int(starts[-1]) != len(page) - size or (starts[1:] < starts[:-1]).any():
        raise ValueError("starts that do not rise to the end of the page")
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offsets = starts.astype(np.int64) if wide else starts
    made = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(page[size:])])
    made.validate(full=look)
    return made
