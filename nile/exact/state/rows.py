"""A table that numbers the different rows it is shown and forgets those nobody counts any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array
from nile.exact.state.lent import in_lines, roomy
from nile.exact.state.words import Encoder

__all__ = ["RowTable", "Together", "grown", "kernels"]

kernels: Any = arrow.Late("nile.exact.state.rows_kernels")

Together: TypeAlias = Callable[[Sequence[Callable[[], object]]], None]
"""Makes several calls at once, by a thread each."""

_SMALL = 64
_MANY = 1 << 13
"""Rows from which on threads number them, or forget them, together."""
_USED, _FREE, _LIVE = range(3)
_SLACK = 4096  # values of text kept beyond twice the live rows before they are sorted out


def grown(array: Array, size: int, fill: Any = 0) -> Array:
    """The array with room for `size` along its first axis: at least doubled, `fill` in what is new."""
    if array.shape[0] >= size:
        return array
    wider = in_lines((max(size, 2 * array.shape[0]), *array.shape[1:]), fill, array.dtype)
    wider[: array.shape[0]] = array
    return wider


class RowTable:
    """Codes of rows: small whole numbers, equal exactly when the rows are, used again once released.

    A look-up is O(1); memory O(rows in use).  kinds: the columns' types; exact: floats compare by their bits.
    extra: words of the row beyond its columns, which `encode` leaves at 0.
    Whoever has a table holds its rows as rows (`columns`); codes are given anew when they are put back (`put`).
    """

    DERIVED: ClassVar = ("encoder", "extra", "kept", "hashes", "free", "index", "meta")

    def __init__(self, kinds: Sequence[Any], *, exact: bool = False, extra: int = 0) -> None:
        self.encoder = Encoder(kinds, exact=exact)
        width = self.encoder.width + extra
        self.extra = extra
        self.kept = np.zeros((_SMALL, width), np.int64)
        self.hashes = np.full(_SMALL, -1, np.int64)
        self.free = np.zeros(_SMALL, np.int64)
        self.index = np.zeros(4 * _SMALL, np.int64)
        self.meta = np.zeros(3, np.int64)

    def __len__(self) -> int:
        """Rows in use."""
        return int(self.meta[_LIVE])

    @property
    def room(self) -> int:
        """Codes are below this."""
        return int(self.kept.shape[0])

    def encode(self, columns: Sequence[Any]) -> Array:
        """Words of rows: int64 [n, width]."""
        words = self.encoder.encode(columns)
        return np.pad(words, ((0, 0), (0, self.extra))) if self.extra else words

    def codes(self, words: Array) -> Array:
        """int64 [n]: the code of each row of words."""
        codes = roomy(words.shape[0])
        done = 0
        while True:
            done = kernels.intern_words(
                words, done, codes, self.index, self.kept, self.hashes, self.free, self.meta
            )  # fmt: skip
            if done == words.shape[0]:
                return codes
            self.grow()

    @property
    def numbers(self) -> bool:
        """Whether `encode` numbers values, such as texts, which only one thread at a time may do."""
        return bool(self.encoder.values)

    def find(self, words: Array, codes: Array) -> None:
        """The code of each row of words, below 0 where it has none (int64 [n]): ~ its hash.  Threads may do parts of
        this at once."""
        kernels.find_words(words, codes, self.index, self.kept, self.hashes)

    def number(self, new: Sequence[tuple[Array, Array]], codes: Array, threads: int, together: Together) -> None:
        """Codes of rows that were not found: (which, int64 [m], their words).  Threads have a part of the index each,
        where there are many; there is room for as many more rows as there is by then."""
        many = sum(at.shape[0] for at, _ in new)
        room = min(self.index.shape[0] // 2 - len(self), int(self.meta[_FREE]) + self.room - int(self.meta[_USED]))
        each = min(room, many) // threads
        if threads > 1 and many >= _MANY and each:
            given = self._given(each * threads).reshape(threads, each)
            used = [0] * threads
            cuts = [k * self.index.shape[0] // threads for k in range(threads + 1)]

            def work(k: int) -> None:
                for at, words in new:
                    used[k] = kernels.intern_between(
                        cuts[k], cuts[k + 1], words, at, codes, given[k], used[k], self.index, self.kept, self.hashes
                    )

            together([partial(work, k) for k in range(threads)])
            self.meta[_LIVE] += sum(used)
            self._set_free([own[begin:] for own, begin in zip(given, used, strict=True)])
            new = [(at[left], words[left]) for at, words in new if (left := codes[at] < 0).any()]
        for at, words in new:
            codes[at] = self.codes(words)

    def _given(self, many: int) -> Array:
        """Codes that nobody has: int64 [many]."""
        free, used = int(self.meta[_FREE]), int(self.meta[_USED])
        again = min(free, many)
        self.meta[_FREE] -= again
        self.meta[_USED] += many - again
        return np.concatenate([self.free[free - again : free], np.arange(used, used + many - again)])

    def _set_free(self, each: Sequence[Array]) -> None:
        for codes in each:
            begin = int(self.meta[_FREE])
            self.free[begin : begin + codes.shape[0]] = codes
            self.meta[_FREE] += codes.shape[0]

    def release_together(self, codes: Array, threads: int, together: Together) -> None:
        """As `release`, by threads where they are many."""
        if threads > 1 and codes.shape[0] >= _MANY:
            out = [roomy(codes.shape[0]) for _ in range(threads)]
            told = [(0, 0)] * threads
            cuts = [k * self.index.shape[0] // threads for k in range(threads + 1)]

            def work(k: int) -> None:
                told[k] = kernels.release_between(cuts[k], cuts[k + 1], codes, self.index, self.hashes, out[k])

            together([partial(work, k) for k in range(threads)])
            self._set_free([own[:many] for own, (many, _) in zip(out, told, strict=True)])
            self.meta[_LIVE] -= sum(many for many, _ in told)
            codes = np.concatenate([own[own.shape[0] - left :] for own, (_, left) in zip(out, told, strict=True)])
        self.release(codes)

    def put(self, words: Array) -> bool:
        """Rows of words into an empty table, as codes 0 to n - 1; whether they were all different."""
        self.codes(words)
        return bool(len(self) == words.shape[0])

    def release(self, codes: Array) -> None:
        """Forget rows; a code may be named twice."""
        kernels.release_codes(codes, self.index, self.hashes, self.free, self.meta)
        if self.encoder.values:
            self.tidy()

    def tidy(self) -> None:
        """Drop values of text that no row has, where they are many."""
        for at, values in self.encoder.values.items():
            if len(values) > 2 * len(self) + _SLACK:
                self._sort_out(at)

    def columns(self, codes: Array) -> list[Any]:
        """The rows of codes, as Arrow columns."""
        return self.encoder.decode(self.kept.take(codes, axis=0))

    def live(self) -> Array:
        """Codes in use, ascending: int64."""
        return np.flatnonzero(self.hashes[: self.meta[_USED]] >= 0)

    def grow(self) -> None:
        """Have room for more rows, where there is none."""
        if self.meta[_FREE] == 0 and self.meta[_USED] == self.room:
            size = 2 * self.room
            self.kept = grown(self.kept, size)
            self.hashes = grown(self.hashes, size, -1)
            self.free = grown(self.free, size)
        if self.meta[_LIVE] >= self.index.shape[0] // 2:
            self.index = np.zeros(2 * self.index.shape[0], np.int64)
            kernels.build_index(self.index, self.kept, self.hashes, self.meta[_USED], False)

    def _sort_out(self, at: int) -> None:
        live = self.live()
        table = self.encoder.values[at].keep(self.kept[live, at])
        self.kept[live, at] = table[self.kept[live, at]]
        self.index[:] = 0
        kernels.build_index(self.index, self.kept, self.hashes, self.meta[_USED], True)

    @property
    def memory(self) -> int:
        """Bytes."""
        arrays = (self.kept, self.hashes, self.free, self.index)
        return sum(each.nbytes for each in arrays) + self.encoder.memory
