"""Different values of text, bytes and what else is no number, numbered from 0 in the order they came.

Text and bytes are looked up by a hash of their bytes, in a table over the Arrow array that holds them; other types
(wide decimals, bytes of one width, intervals) in a dict.
"""

from __future__ import annotations

import math
from itertools import count, repeat
from typing import Any, ClassVar

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa

__all__ = ["Values"]

kernels: Any = arrow.Late("nile.exact.state.numbered_kernels")

_LEAST = 256


class Values:
    """Different values of one type and their numbers.  A look-up is O(bytes of the value); memory O(values)."""

    DERIVED: ClassVar = ("kind", "array", "_texts", "_number", "_hashes", "_index", "_parts")

    def __init__(self, kind: Any) -> None:
        types = pa.types
        self.kind = pa.large_string() if types.is_string_view(kind) else kind
        self.kind = pa.large_binary() if types.is_binary_view(kind) else self.kind
        texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        self._texts = any(test(self.kind) for test in texts)
        self._number: dict[Any, int] = {}
        self.array: Any
        self._hashes: Array
        self._index: Array
        self._parts: tuple[Array, Array]
        self._hold(pa.array([], self.kind), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.array)

    def numbers(self, column: Any) -> Array:
        """int64 [n], 0 for null.  One dictionary encoding, and one look-up for each different value."""
        if len(column) == 0:
            return np.zeros(0, np.int64)
        if pa.types.is_list(self.kind):
            return self._of_lists(column)
        encoded = column.cast(self.kind).dictionary_encode()
        table = self._known(encoded.dictionary)
        return table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]

    def take(self, numbers: Array) -> Any:
        """The values of numbers."""
        return self.array.take(pa.array(numbers))

    def keep(self, numbers: Array) -> Array:
        """Forget all values but those numbered; returns the new number of each old one (-1: forgotten)."""
        live = np.unique(numbers)
        table = np.full(len(self.array), -1, np.int64)
        table[live] = np.arange(live.shape[0])
        self._hold(self.take(live), self._hashes[live] if self._texts else self._hashes)
        if not self._texts:
            lists = pa.types.is_list(self.kind)
            self._number = {
                value: i for i, value in enumerate(_tuples(self.array) if lists else self.array.to_pylist())
            }
        return table

    def _of_lists(self, column: Any) -> Array:
        """The numbers of lists, which Arrow does not tell apart: as tuples, one by one."""
        numbers, fresh = np.zeros(len(column), np.int64), list[int]()
        for at, value in enumerate(_tuples(column)):
            if value is None:
                continue
            number = self._number.setdefault(value, len(self._number))
            if number == len(self) + len(fresh):
                fresh.append(at)
            numbers[at] = number
        if fresh:
            self.array = pa.concat_arrays([self.array, column.take(pa.array(fresh)).cast(self.kind)])
        return numbers

    def _known(self, distinct: Any) -> Array:
        """The numbers of different values, new ones given to those that have none; and a last 0."""
        table = np.zeros(len(distinct) + 1, np.int64)
        hashes = self._hashes
        if self._texts:
            hashes = np.empty(len(distinct), np.int64)
            kernels.find_texts(*_parts_of(distinct), *self._parts, self._hashes, self._index, hashes, table)
        else:
            values = distinct.to_pylist()
            table[:-1] = np.fromiter(map(self._number.get, values, repeat(-1)), np.int64, len(values))
        new = np.flatnonzero(table < 0)
        if new.shape[0]:
            first = len(self)
            table[new] = np.arange(first, first + new.shape[0])
            fresh = distinct if new.shape[0] == len(distinct) else distinct.take(pa.array(new))
            array = pa.concat_arrays([self.array, fresh]) if first else fresh
            if self._texts:
                self._hold(array, np.concatenate([self._hashes, hashes[new]]), first)
            else:
                self.array = array
                self._number.update(zip(fresh.to_pylist(), count(first), strict=False))
        return table

    def _hold(self, array: Any, hashes: Array, first: int = 0) -> None:
        """Values with their hashes, of which those before `first` are in the index."""
        self.array, self._hashes = array, hashes
        if not self._texts:
            return
        self._parts = _parts_of(array)
        if not first or 2 * len(array) > self._index.shape[0]:
            first = 0
            self._index = np.zeros(max(_LEAST, 1 << (4 * len(array)).bit_length()), np.int64)
        kernels.index_texts(hashes, self._index, first)

    @property
    def memory(self) -> int:
        """Bytes, about: the values, and of text a hash and its places in the table; of others a dict besides."""
        if self._texts:
            return int(self.array.nbytes + self._parts[0].nbytes + self._hashes.nbytes + self._index.nbytes)
        return int(2 * self.array.nbytes + 120 * len(self._number))


def _tuples(column: Any) -> list[Any]:
    """Lists as what Python tells apart: tuples, in which NaN is one value."""
    if pa.types.is_temporal(column.type.value_type):
        column = column.cast(pa.list_(pa.int64() if column.type.value_type.bit_width == 64 else pa.int32()))
    plain = pa.types.is_floating(column.type.value_type)
    found = column.to_pylist()
    if plain:
        found = [None if each is None else [math.nan if v != v else v for v in each] for each in found]
    return [None if each is None else tuple(each) for each in found]


def _parts_of(array: Any) -> tuple[Array, Array]:
    """(offsets int64 [n + 1], bytes) of text or bytes; the bytes are those of the array."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    ends = np.zeros(len(array) + 1, np.int64)
    if len(array):
        ends[:] = np.frombuffer(offsets, np.int64 if large else np.int32, array.offset + len(array) + 1)[array.offset :]
    return ends, np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
