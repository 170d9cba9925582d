"""Columns in unnamed temporary files, which are mapped: pages of the system's cache, not memory of the process."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from nile.summaries.heavy import pa

__all__ = ["Columns", "can_map"]

Array = np.ndarray[Any, Any]
_MOST_TEXT = (1 << 31) - 1


def can_map(kind: pa.DataType) -> bool:
    """Whether values of a type can lie in a file as Arrow reads them: of one width, text or bytes."""
    return _is_text(kind) or (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


class Columns:
    """Batches of one schema, appended column by column; `mapped` gives all rows as one batch, whose memory is files.

    open_file: makes an empty file.  size: bytes written so far.  A row has a bit of memory for each column with nulls,
    and for each that is true or false.
    """

    def __init__(self, schema: pa.Schema, open_file: Callable[[], IO[bytes]]) -> None:
        self.schema = schema
        self._columns = [_Column(field.type, open_file) for field in schema]
        self._rows = 0

    @property
    def size(self) -> int:
        return sum(file.size for column in self._columns for file in column.files)

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows behind all others.  Raises OSError, and OverflowError for 2 GiB of a text with offsets of 32 bits."""
        for column, held in zip(self._columns, batch.columns, strict=True):
            column.add(held)
        self._rows += int(batch.num_rows)

    def mapped(self) -> pa.RecordBatch:
        """All rows; nothing can be added any more.  The files go with the last array over them."""
        columns = [column.mapped(self._rows) for column in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def close(self) -> None:
        """Let go of all files that are not mapped."""
        for column in self._columns:
            for file in column.files:
                file.close()


class _File:
    """A file that grows and is then mapped."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._file = open_file()
        self.size = 0

    def write(self, array: Array) -> None:
        part = np.ascontiguousarray(array)
        if part.nbytes:
            self._file.write(part.view(np.uint8).data)
            self.size += part.nbytes

    def mapped(self) -> Array:
        """All bytes: uint8 [size]."""
        if not self.size:
            self.close()
            return np.zeros(0, np.uint8)
        self._file.flush()
        memory = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ)
        self.close()
        return np.frombuffer(memory, np.uint8)

    def close(self) -> None:
        self._file.close()


class _Column:
    def __init__(self, kind: pa.DataType, open_file: Callable[[], IO[bytes]]) -> None:
        self.kind = kind
        self._open = open_file
        self._values = _File(open_file)
        self._offsets = _File(open_file) if _is_text(kind) else None
        self._valid: _File | None = None
        self._rows = 0

    @property
    def files(self) -> list[_File]:
        return [file for file in (self._values, self._offsets, self._valid) if file is not None]

    def add(self, column: pa.Array) -> None:
        n = len(column)
        if column.null_count and self._valid is None:
            self._valid = _File(self._open)
            for begin in range(0, self._rows, 1 << 20):
                self._valid.write(np.ones(min(1 << 20, self._rows - begin), np.uint8))
        if self._valid is not None:
            self._valid.write(column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
        if self._offsets is not None:
            self._add_text(column, self._offsets)
        elif pa.types.is_boolean(self.kind):
            self._values.write(column.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False))
        elif n:
            width = self.kind.bit_width // 8
            held = np.frombuffer(column.buffers()[1], np.uint8)
            self._values.write(held[column.offset * width : (column.offset + n) * width])
        self._rows += n

    def _add_text(self, column: pa.Array, offsets: _File) -> None:
        dtype = _offsets_of(self.kind)
        n = len(column)
        if not offsets.size:
            offsets.write(np.zeros(1, dtype))
        if not n:
            return
        _, places, data = column.buffers()
        ends = np.frombuffer(places, dtype, column.offset + n + 1)[column.offset :]
        first, last, base = int(ends[0]), int(ends[-1]), self._values.size
        if dtype.itemsize == 4 and base + last - first > _MOST_TEXT:
            raise OverflowError(f"2 GiB of {self.kind}")
        offsets.write((ends[1:].astype(np.int64) + (base - first)).astype(dtype))
        if last > first:
            self._values.write(np.frombuffer(data, np.uint8, last)[first:])

    def mapped(self, rows: int) -> pa.Array:
        bits = None
        if self._valid is not None:
            bits = pa.py_buffer(np.packbits(self._valid.mapped(), bitorder="little"))
        values = self._values.mapped()
        if pa.types.is_boolean(self.kind):
            values = np.packbits(values, bitorder="little")
        buffers = [bits, pa.py_buffer(values)]
        if self._offsets is not None:
            offsets = self._offsets.mapped() if self._offsets.size else np.zeros(8, np.uint8)
            buffers.insert(1, pa.py_buffer(offsets))
        return pa.Array.from_buffers(self.kind, rows, buffers)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def _offsets_of(kind: pa.DataType) -> np.dtype[Any]:
    return np.dtype("<i8" if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else "<i4")
