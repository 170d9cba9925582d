"""Texts that come piece by piece, of which each distinct one is held once."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.join.dense import FACTOR, coding_room
from nile.exact.join.shared import FACTORS, Texts
from nile.exact.state.arrow import in_place
from nile.exact.state.lent import roomy
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["MOST", "TextCoder"]

text_kernels, dense_kernels = lazy("nile.exact.join.text_kernels"), lazy("nile.exact.join.dense_kernels")

Array = np.ndarray[Any, Any]
_LEAST, _GROWTH = 14, 2
"""Binary logarithms of a table's first slots, and of how many times as many there are next."""
_ARENA = 1 << 18  # bytes
MOST = (1 << 31) - 1
"""Bytes that int32 tells the ends of."""


class TextCoder:
    """A column of text or bytes as a dictionary of its distinct values, in the order in which they come.

    kind: its type; rows: how many there are at most.  Cost: 20 to 30 ns a text, 30 to 60 more of a distinct one;
    memory: 4 bytes a text, and of each distinct one itself, 16 bytes and two to eight slots of 4.
    """

    def __init__(self, kind: Any, rows: int) -> None:
        self._kind = kind
        self._codes = roomy(rows, np.int32)
        self._rows = self.distinct = 0
        self._bits = _LEAST
        self._table, self._known = coding_room(_LEAST)
        self._ends, self._arena = np.zeros(self._known.shape[0], np.int64), roomy(_ARENA, np.uint8)
        self._alike = True

    distinct: int
    """How many distinct texts there are so far."""

    @property
    def codes(self) -> Array:
        """Of the texts so far: int32 [n], -1 for null."""
        return self._codes[: self._rows]

    def add(self, column: Any) -> None:
        """The next texts, an Arrow array of the type."""
        texts = Texts(column)
        words = np.empty(texts.size, np.int64)
        text_kernels.text_words(texts.data, texts.ends, texts.valid, FACTORS, words)
        self._code(words)
        begin, codes = 0, self._codes[self._rows : self._rows + texts.size]
        while begin < texts.size and self._alike:
            begin, self.distinct = text_kernels.hold_texts(
                texts.data, texts.ends, words, begin, self._ends, self._arena, self.distinct, codes
            )
            if begin < texts.size:
                held, size = int(self._ends[self.distinct]), int(texts.ends[begin + 1] - texts.ends[begin])
                self._alike = held + size > self._arena.shape[0]
                self._lengthen(held, size)
        self._rows += texts.size

    def _code(self, words: Array) -> None:
        """Write the codes of words over them."""
        begin = 0
        while begin < words.shape[0]:
            most = self._known.shape[0] - 1
            begin, count = dense_kernels.code_numbers(
                words, begin, self._table, 64 - self._bits, FACTOR, self._known, most, True, words
            )
            if begin < words.shape[0]:
                known, ends = self._known, self._ends
                self._bits += _GROWTH
                self._table, self._known = coding_room(self._bits)
                self._known[:count], self._known[-1] = known[:count], count
                dense_kernels.place_numbers(self._known, count, self._table, 64 - self._bits, FACTOR)
                self._ends = roomy(self._known.shape[0])
                self._ends[: ends.shape[0]] = ends

    def _lengthen(self, held: int, size: int) -> None:
        """Make room for one more text of so many bytes behind those that are held."""
        if held + size > self._arena.shape[0]:
            arena = roomy(max(2 * self._arena.shape[0], held + size), np.uint8)
            arena[:held] = self._arena[:held]
            self._arena = arena

    def column(self) -> Any:
        """All of them: an Arrow dictionary array, which holds this coder's memory.

        None where the type's offsets do not tell so many bytes, and where two texts have one hash.
        """
        count, codes = self.distinct, self.codes
        held = int(self._ends[count])
        large = pa.types.is_large_string(self._kind) or pa.types.is_large_binary(self._kind)
        if not self._alike or (held > MOST and not large):
            return None
        ends = self._ends[: count + 1].astype(np.int64 if large else np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._arena[:held])]
        values = pa.Array.from_buffers(self._kind, count, buffers)
        none = codes < 0
        indices = pa.array(codes, mask=none) if none.any() else in_place(codes, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, values, safe=False)
