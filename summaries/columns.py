"""Columns of Arrow as plain arrays and back, for the byte form of what holds rows.

The form is canonical: equal rows give equal arrays, whatever offset, padding or dictionary the columns had, and
whatever stood under a null.  Of a column `c`:

    c.valid     uint8 [ceil(n / 8)]      bits from the lowest, 1 = a value; only where there is a null
    c.values    [n] or [n, words]        numbers, times (whole units), decimals (64-bit words, lowest first), bools
                                         (uint8), half floats (uint16 of their bits), bytes of one width (uint8)
    c.offsets   int32 or int64 [n + 1]   of text, bytes and lists, from 0
    c.bytes     uint8                    of text and bytes
    c.k...                               the k-th child of a struct, a list or a map

Dictionaries and runs are written out as their values.  Text is not looked into: bytes that are not UTF-8 come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from nile.summaries.errors import EnvelopeError
from nile.summaries.heavy import pa, pc
from nile.summaries.schemas import no_form

__all__ = ["decode", "encode"]

Array = np.ndarray[Any, Any]

_MAX_ROWS = 1 << 48


def encode(batch: pa.RecordBatch, where: str = "rows") -> dict[str, Array]:
    """The arrays of a batch: `rows` (int64 [1], their number), and those of column i under the name `i`.

    Numbers without nulls are views of the batch; the rest is copied.  Raises EnvelopeError for a type without a byte
    form (unions, extension types).
    """
    out: dict[str, Array] = {"rows": np.array([batch.num_rows], np.int64)}
    for i, column in enumerate(batch.columns):
        _encode(column, str(i), out, f"{where}, column {batch.schema.names[i]!r}")
    return out


def decode(arrays: Mapping[str, Array], schema: pa.Schema, where: str = "rows") -> pa.RecordBatch:
    """The batch that `encode` took apart, over the same memory where it can be.

    Nothing is believed: raises EnvelopeError for an array that is missing, too many, of another dtype or length, and
    for offsets or codes that point outside.
    """
    reader = _Reader(arrays, where)
    rows = int(reader.take("rows", np.dtype(np.int64), (1,))[0])
    if not 0 <= rows < _MAX_ROWS:
        reader.refuse("a number of rows of 0 or more", str(rows))
    columns = [reader.column(str(i), field.type, rows) for i, field in enumerate(schema)]
    if reader.left:
        reader.refuse("only the arrays of its columns", ", ".join(sorted(reader.left)[:3]))
    if not columns:
        empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        return pa.RecordBatch.from_struct_array(empty)
    return pa.RecordBatch.from_arrays(columns, schema=schema.remove_metadata())


def words_of(kind: pa.DataType) -> tuple[np.dtype[Any], int]:
    """(dtype, how many for one value) of a type of one width; (_, 0) for other types."""
    types = pa.types
    if types.is_fixed_size_binary(kind):
        return np.dtype(np.uint8), kind.byte_width
    if types.is_decimal(kind):
        width = kind.byte_width
        return (np.dtype(f"<i{width}"), 1) if width <= 8 else (np.dtype("<i8"), width // 8)
    if types.is_interval(kind):
        return np.dtype("<i8"), 2
    if types.is_float16(kind):
        return np.dtype("<u2"), 1
    if types.is_integer(kind) or types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).newbyteorder("<"), 1
    if types.is_temporal(kind):
        return np.dtype(f"<i{kind.bit_width // 8}"), 1
    return np.dtype(np.uint8), 0


def _encode(column: pa.Array, name: str, out: dict[str, Array], where: str) -> None:
    kind, types, n = column.type, pa.types, len(column)
    if isinstance(kind, pa.BaseExtensionType) or types.is_union(kind):
        no_form(kind, where)
    if types.is_null(kind):
        return
    if types.is_dictionary(kind):
        _encode(column.dictionary_decode(), name, out, where)
        return
    if types.is_run_end_encoded(kind):
        _encode(pc.run_end_decode(column), name, out, where)
        return
    if types.is_string_view(kind) or types.is_binary_view(kind):
        column = column.cast(pa.large_string() if types.is_string_view(kind) else pa.large_binary())
        kind = column.type
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        out[f"{name}.valid"] = np.packbits(valid, bitorder="little")
    if types.is_struct(kind):
        for k, child in enumerate(column.flatten()):
            _encode(child, f"{name}.{k}", out, where)
    elif _is_text(kind):
        _encode_text(column.fill_null(b"" if _is_bytes(kind) else "") if valid is not None else column, name, out)
    elif types.is_nested(kind):
        _encode_lists(column, valid, name, out, where)
    elif types.is_boolean(kind):
        out[f"{name}.values"] = column.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    else:
        dtype, width = words_of(kind)
        shape = (n, width) if width != 1 else (n,)
        held = column.buffers()[1]
        values = np.zeros(shape, dtype)
        if held is not None and n and width:
            first = column.offset * width
            values = np.frombuffer(held, dtype, (column.offset + n) * width)[first:].reshape(shape)
        if valid is not None:
            values = values.copy()
            values[~valid] = 0
        out[f"{name}.values"] = values


def _encode_text(column: pa.Array, name: str, out: dict[str, Array]) -> None:
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    dtype = np.dtype("<i8") if large else np.dtype("<i4")
    n = len(column)
    _, offsets, data = column.buffers()
    if n == 0 or offsets is None:
        out[f"{name}.offsets"], out[f"{name}.bytes"] = np.zeros(n + 1, dtype), np.zeros(0, np.uint8)
        return
    ends = np.frombuffer(offsets, dtype, column.offset + n + 1)[column.offset :]
    first, last = int(ends[0]), int(ends[-1])
    out[f"{name}.offsets"] = ends - ends[0] if first else ends
    out[f"{name}.bytes"] = np.zeros(0, np.uint8) if last == first else np.frombuffer(data, np.uint8, last)[first:]


def _encode_lists(column: pa.Array, valid: Array | None, name: str, out: dict[str, Array], where: str) -> None:
    """The children of lists that are not null, one list after another."""
    kind, n = column.type, len(column)
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        at = (column.offset + np.arange(n))[:, None] * width + np.arange(width)
        hidden = None if valid is None else np.repeat(~valid, width)
        _encode(_taken(column.values, at.reshape(-1), hidden), f"{name}.0", out, where)
        return
    starts = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    if _is_list_view(kind):
        starts, sizes = starts[:n], column.sizes.to_numpy(zero_copy_only=False).astype(np.int64)[:n]
    else:
        starts, sizes = starts[:-1], np.diff(starts)
    if valid is not None:
        sizes = np.where(valid, sizes, 0)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    at = np.arange(int(ends[-1])) + np.repeat(starts - ends[:-1], sizes)
    out[f"{name}.offsets"] = ends.astype(_offsets_of(kind))
    _encode(_taken(column.values, at, None), f"{name}.0", out, where)


def _taken(values: pa.Array, at: Array, hidden: Array | None) -> pa.Array:
    """The values at `at`, null where `hidden`."""
    try:
        return values.take(pa.array(at, pa.int64(), mask=hidden))
    except pa.ArrowNotImplementedError:  # views and runs, alone or in a struct, know no `take`
        nothing = pa.nulls(1, values.type)
        lost = np.zeros(at.shape[0], bool) if hidden is None else hidden
        parts = [nothing if gone else values.slice(int(k), 1) for k, gone in zip(at, lost, strict=True)]
        return pa.concat_arrays(parts) if parts else values.slice(0, 0)


class _Reader:
    """Takes arrays by name, each once, and builds columns over them."""

    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        self._arrays = arrays
        self._where = where
        self.left = set(arrays)

    def refuse(self, needed: str, came: str) -> NoReturn:
        raise EnvelopeError(f"{self._where}: needed {needed}; got {came}; the bytes are not what Nile wrote")

    def take(self, name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Array:
        array = self._arrays.get(name)
        if array is None:
            self.refuse(f"an array {name!r}", "none")
        self.left.discard(name)
        fits = array.ndim == len(shape) and all(w in (None, h) for w, h in zip(shape, array.shape, strict=True))
        if array.dtype != dtype or not fits:
            self.refuse(f"an array {name!r} of {dtype} and shape {shape}", f"{array.dtype} of shape {array.shape}")
        return np.ascontiguousarray(array)

    def column(self, name: str, kind: pa.DataType, n: int) -> pa.Array:
        """The column of n values under a name."""
        types = pa.types
        if isinstance(kind, pa.BaseExtensionType) or types.is_union(kind):
            no_form(kind, self._where)
        if types.is_null(kind):
            return pa.nulls(n)
        if types.is_dictionary(kind):
            return self._dictionary(self.column(name, kind.value_type, n), kind)
        if types.is_run_end_encoded(kind):
            return pc.run_end_encode(self.column(name, kind.value_type, n), run_end_type=kind.run_end_type)
        if types.is_string_view(kind) or types.is_binary_view(kind):
            wide = pa.large_string() if types.is_string_view(kind) else pa.large_binary()
            return self.column(name, wide, n).cast(kind)
        bits = None
        if f"{name}.valid" in self.left:
            packed = self.take(f"{name}.valid", np.dtype(np.uint8), (-(-n // 8),))
            if n % 8 and int(packed[-1]) >> n % 8:
                self.refuse(f"zeros behind bit {n} of {name + '.valid'!r}", "a one")
            bits = pa.py_buffer(packed)
        if types.is_struct(kind):
            children = [self.column(f"{name}.{k}", kind.field(k).type, n) for k in range(kind.num_fields)]
            return pa.Array.from_buffers(kind, n, [bits], children=children)
        if types.is_fixed_size_list(kind):
            child = self.column(f"{name}.0", kind.value_type, n * kind.list_size)
            return pa.Array.from_buffers(kind, n, [bits], children=[child])
        if types.is_nested(kind) or _is_text(kind):
            return self._varied(name, kind, n, bits)
        return self._fixed(name, kind, n, bits)

    def _varied(self, name: str, kind: pa.DataType, n: int, bits: Any) -> pa.Array:
        """Text, bytes, lists and maps: what has offsets."""
        offsets = self.take(f"{name}.offsets", _offsets_of(kind), (n + 1,))
        end = int(offsets[-1])
        if offsets[0] != 0 or not 0 <= end < _MAX_ROWS or bool((offsets[1:] < offsets[:-1]).any()):
            self.refuse(f"offsets {name + '.offsets'!r} that rise from 0", f"{int(offsets[0])} to {end}, or a fall")
        if _is_text(kind):
            data = self.take(f"{name}.bytes", np.dtype(np.uint8), (end,))
            return pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])
        if _is_list_view(kind):
            starts, sizes = pa.py_buffer(offsets[:-1].copy()), pa.py_buffer(np.diff(offsets))
            child = self.column(f"{name}.0", kind.value_type, end)
            return pa.Array.from_buffers(kind, n, [bits, starts, sizes], children=[child])
        inner = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        child = self.column(f"{name}.0", inner, end)
        return pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(offsets)], children=[child])

    def _fixed(self, name: str, kind: pa.DataType, n: int, bits: Any) -> pa.Array:
        if pa.types.is_boolean(kind):
            values = self.take(f"{name}.values", np.dtype(np.uint8), (n,))
            if values.max(initial=0) > 1:
                self.refuse(f"only 0 and 1 in {name + '.values'!r}", str(int(values.max())))
            values = np.packbits(values, bitorder="little")
        else:
            dtype, width = words_of(kind)
            values = self.take(f"{name}.values", dtype, (n, width) if width != 1 else (n,))
        return pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(values)])

    def _dictionary(self, values: pa.Array, kind: pa.DictionaryType) -> pa.Array:
        try:
            found = values.dictionary_encode()
            return pa.DictionaryArray.from_arrays(
                found.indices.cast(kind.index_type), found.dictionary, ordered=kind.ordered
            )
        except pa.ArrowException as error:
            self.refuse(f"values that {kind} can number", str(error).splitlines()[0])


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)) or _is_bytes(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _offsets_of(kind: pa.DataType) -> np.dtype[Any]:
    types = pa.types
    tests = (types.is_large_string, types.is_large_binary, types.is_large_list, types.is_large_list_view)
    return np.dtype("<i8") if any(test(kind) for test in tests) else np.dtype("<i4")
