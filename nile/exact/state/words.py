"""Rows of Arrow columns as words of 64 bits, and back: equal words are equal rows.

Design: whole numbers, times and floats are one word each, decimals two; text, bytes and what else there is become
the number of the value in a list that is kept beside.  A last word (one for 63 columns) says which are null.
With `exact` a float keeps its bits; without, -0.0 is 0.0 and all NaN are one, as keys compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nile.base.plain import decoded_type
from nile.exact.state.arrow import Array, in_place, pa, pc
from nile.exact.state.lent import lent, roomy
from nile.exact.state.numbered import Values

__all__ = ["Encoder"]

_MASKED = 63
_VIEWS = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}


class Encoder:
    """Columns of given types to words and back.

    width: words of a row; first: the first word of each column; mask: the first word that says which are null.
    """

    DERIVED: ClassVar = ("kinds", "exact", "values", "first", "mask", "_direct", "_wide", "is_plain", "width")

    def __init__(self, kinds: Sequence[Any], *, exact: bool) -> None:
        self.kinds = tuple(kinds)
        self.exact = exact
        self.values: dict[int, Values] = {}  # by word
        self.first: list[int] = []
        at = 0
        for kind in self.kinds:
            self.first.append(at)
            if _listed(kind):
                self.values[at] = Values(decoded_type(kind))
            at += 2 if pa.types.is_decimal128(kind) else 1
        self.mask = at
        self._direct = [pa.types.is_int64(kind) or pa.types.is_float64(kind) for kind in self.kinds]
        self._wide = [numbers or _wide(kind) for numbers, kind in zip(self._direct, self.kinds, strict=True)]
        self.is_plain = all(self._wide)
        """Whether words are columns as they are, where nothing is null."""
        self.width = at + max(1, -(-len(self.kinds) // _MASKED))

    def encode(self, columns: Sequence[Any], n: int | None = None, out: Array | None = None) -> Array:
        """int64 [n, width], row after row.  n: how many, where there may be no columns; out: where they are written."""
        if n is None:
            n = len(columns[0]) if columns else 0
        words = out
        if words is None:
            words = roomy(n * self.width).reshape(n, self.width)  # of large zeros the system would clear the pages
        words[:] = 0
        if n and len(columns) == 1 and self._direct[0] and not columns[0].null_count:
            numbers = columns[0].to_numpy(zero_copy_only=False)
            if numbers.dtype == np.int64 or (self.exact and numbers.dtype == np.float64):
                words[:, 0] = numbers.view(np.int64)
                return words
        for i, (kind, column) in enumerate(zip(self.kinds, columns, strict=True)):
            at = self.first[i]
            if n and self._direct[i] and not column.null_count:
                numbers = column.to_numpy(zero_copy_only=False)
                if numbers.dtype == np.int64:
                    words[:, at] = numbers
                    continue
                if numbers.dtype == np.float64 and self.exact:
                    words[:, at] = numbers.view(np.int64)
                    continue
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                words[:, self.mask + i // _MASKED] |= nulls.astype(np.int64) << (i % _MASKED)
            if pa.types.is_null(column.type):
                continue
            if at in self.values:
                words[:, at] = self.values[at].numbers(column)
            elif pa.types.is_decimal128(kind):
                words[:, at : at + 2] = _decimals(column)
            else:
                words[:, at] = _numbers(column, self.exact)
        return words

    def numbers(self, column: Any) -> Array:
        """The words of the one column, numbers whose nulls nobody looks at: int64 [n], only to be read."""
        if self._direct[0] and self.exact and not column.null_count and len(column):
            numbers = column.to_numpy(zero_copy_only=False)
            if numbers.dtype in (np.int64, np.float64):
                return lent(numbers.view(np.int64))
        return np.ascontiguousarray(self.encode([column])[:, 0])

    def decode(self, words: Array) -> list[Any]:
        """The columns of rows of words."""
        some = bool(words[:, self.mask :].any())
        beside = [words[:, at] for at in range(self.width if some else self.mask)]
        return [self.column(i, beside, some=some) for i in range(len(self.kinds))]

    def column(self, i: int, words: Sequence[Array], *, some: bool) -> Any:
        """One column of rows that are given word beside word, int64 [n] each; some: whether anything may be null, and
        the last words are needed.  Threads may make several columns of one encoder at once."""
        kind, at = self.kinds[i], self.first[i]
        column = words[at]
        if self._wide[i] and not some:
            return in_place(np.ascontiguousarray(column), kind)
        hidden = None
        if some:
            nulls = (words[self.mask + i // _MASKED] >> (i % _MASKED)) & 1 == 1
            hidden = nulls if nulls.any() else None
        if pa.types.is_null(kind):
            return pa.nulls(column.shape[0])
        if at in self.values:
            return self.values[at].array.take(pa.array(column, mask=hidden)).cast(kind)
        if pa.types.is_decimal128(kind):
            pairs = np.stack((column, words[at + 1]), axis=1)
            bits = None if hidden is None else pa.array(~hidden).buffers()[1]
            return pa.Array.from_buffers(kind, column.shape[0], [bits, pa.py_buffer(pairs)])
        return from_numbers(column, kind, hidden)

    def valid(self, words: Array, column: int) -> Array:
        """Which rows have a value in a column: bool [n].  words: int64 [width, n], word after word."""
        there: Array = (words[self.mask + column // _MASKED] >> (column % _MASKED)) & 1 == 0
        return there

    def nulls(self, words: Array) -> Array:
        """Rows with a null: bool [n]."""
        found: Array = words[:, self.mask :].any(axis=1)
        return found

    @property
    def memory(self) -> int:
        return sum(each.memory for each in self.values.values())


def _listed(kind: Any) -> bool:
    types = pa.types
    small = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)
    timed = types.is_temporal(kind) and not types.is_interval(kind)
    return not (small or timed or types.is_decimal128(kind))


def _wide(kind: Any) -> bool:
    """Whether a word is what Arrow holds of a value, beside whole numbers and doubles."""
    types = pa.types
    return types.is_uint64(kind) or (types.is_temporal(kind) and not types.is_interval(kind) and kind.bit_width == 64)


def _decimals(column: Any) -> Array:
    data = column.fill_null(0) if column.null_count else column
    raw = np.frombuffer(data.buffers()[1], np.int64)
    return raw.reshape(-1, 2)[data.offset : data.offset + len(data)]


def _numbers(column: Any, exact: bool) -> Array:
    """A column of numbers or times as int64: the value, or the bits of a double."""
    types, kind = pa.types, column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_temporal(kind):
        column = column.view(getattr(pa, _VIEWS[kind.bit_width])())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64)
        if not exact:
            numbers = numbers + 0.0
            numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.int64)
    return numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)


def from_numbers(numbers: Array, kind: Any, nulls: Array | None = None) -> Any:
    """int64 [n], as `_numbers` makes it, as an Arrow array of a type of numbers or times; nulls: bool [n] or None."""
    types = pa.types
    numbers = np.ascontiguousarray(numbers)
    if types.is_floating(kind):
        doubles = numbers.view(np.float64)
        if types.is_float16(kind):
            return pa.array(doubles.astype(np.float16), kind, mask=nulls)
        return pa.array(doubles, pa.float64(), mask=nulls).cast(kind, safe=False)
    if types.is_boolean(kind):
        return pa.array(numbers != 0, mask=nulls)
    if types.is_uint64(kind):
        return pa.array(numbers.view(np.uint64), mask=nulls)
    if types.is_temporal(kind):
        width = _VIEWS[kind.bit_width]
        return pa.array(numbers.astype(width), mask=nulls).view(kind)
    return pa.array(numbers.astype(kind.to_pandas_dtype(), copy=False), kind, mask=nulls)
