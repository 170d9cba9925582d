"""The rows of a stream that can still be named, by ordinal: first in, first out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.words import Encoder

__all__ = ["Ring"]

_LEAST = 64
_SLACK = 4096  # values of text kept beyond twice the rows before they are sorted out


class Ring:
    """Rows with their times and key codes, at ordinal & (size - 1), a power of two; memory O(held).

    oldest, newest: ordinals from the first held to one past the last; whoever lets go moves oldest on.
    """

    HELD: ClassVar = ("words", "ts", "oldest", "newest")
    DERIVED: ClassVar = ("schema", "encoder", "codes", "before", "_looked", "_null")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.encoder = Encoder(schema.types, exact=True)
        self.words = np.zeros((_LEAST, self.encoder.width), np.int64)
        self.ts = np.zeros(_LEAST, np.int64)
        self.codes = np.zeros(_LEAST, np.int64)
        self.before = np.full(_LEAST, -1, np.int64)  # the key's row before, for whoever chains them
        self.oldest = 0
        self.newest = 0
        self._looked = self._null = 0  # ordinals: looked at for nulls up to the first, none from the second on

    @property
    def mask(self) -> int:
        return int(self.ts.shape[0]) - 1

    def held(self) -> Array:
        """Ordinals, ascending."""
        return np.arange(self.oldest, self.newest)

    def add(self, ts: Array, columns: Sequence[Any], codes: Array) -> None:
        """Rows that come next."""
        self.add_words(ts, self.encoder.encode(columns, ts.shape[0]), codes)

    def add_words(self, ts: Array, words: Array, codes: Array) -> None:
        """As `add`, the rows as words."""
        n = ts.shape[0]
        self.room(self.newest - self.oldest + n)
        mask = self.mask
        begin = self.newest & mask
        at: Any = slice(begin, begin + n)
        if begin + n > mask + 1:  # round the end
            at = (self.newest + np.arange(n)) & mask
        self.words[at] = words
        self.ts[at], self.codes[at] = ts, codes
        self.newest += n

    def columns(self, ordinals: Array) -> list[Any]:
        """Rows by ordinal, as Arrow columns."""
        return self.encoder.decode(self.words.take(ordinals & self.mask, axis=0))

    def rows(self, ordinals: Array) -> Any:
        """Rows by ordinal, as a RecordBatch."""
        return pa.RecordBatch.from_arrays(self.columns(ordinals), schema=self.schema)

    def begin_at(self, ordinal: int) -> None:
        """Hold nothing; what comes next has numbers from this on."""
        self.oldest = self.newest = ordinal
        self._looked = self._null = 0

    def has_nulls(self) -> bool:
        """Whether any row held has one.  Each row is looked at once; one that has left since may still count."""
        if self._looked < self.newest:
            begin = max(self._looked, self.oldest)
            n, first, mask = self.newest - begin, begin & self.mask, self.mask
            at: Any = slice(first, first + n) if first + n <= mask + 1 else (begin + np.arange(n)) & mask
            null = self.words[at, self.encoder.mask :]
            if null.any():
                self._null = begin + int(np.flatnonzero(null.any(axis=1))[-1]) + 1
            self._looked = self.newest
        return self._null > self.oldest

    def forget(self) -> None:
        """Let go of room after most rows have left, and of values of text that no held row has, where they are many."""
        held = self.newest - self.oldest
        if (size := self.ts.shape[0]) > 8 * _LEAST and size > 8 * held:
            self._resize(max(2 * held, _LEAST))
        for word, values in self.encoder.values.items():
            if len(values) > 2 * (self.newest - self.oldest) + _SLACK:
                at = self.held() & self.mask
                table = values.keep(self.words[at, word])
                self.words[at, word] = table[self.words[at, word]]

    def capture(self, since: int | None = None, *, first: int | None = None) -> State:
        """The rows held, or those of a time of `since` or later, or those from the ordinal `first` on."""
        held = self.held() if first is None else np.arange(first, self.newest)
        if since is not None:
            held = held[int(np.searchsorted(self.ts[held & self.mask], since)) :]
        return {"newest": self.newest, "ts": self.ts[held & self.mask], "rows": self.rows(held)}

    def restore(self, held: Held, codes: Callable[[Any], Array]) -> None:
        """Put captured rows into an empty ring; codes: of the keys of rows.  Raises EnvelopeError."""
        ts = held.rising("ts")
        newest = held.integer("newest", ts.shape[0], MOST)
        rows = held.rows("rows", self.schema, ts.shape[0])
        held.end()
        self.begin_at(newest - ts.shape[0])
        self.add(ts, rows.columns, codes(rows))

    def room(self, need: int) -> None:
        """Have room for so many rows."""
        if need > self.ts.shape[0]:
            self._resize(need)

    def _resize(self, need: int) -> None:
        old, held = self.mask, self.held()
        size = 1 << (need - 1).bit_length()
        for name in ("words", "ts", "codes", "before"):
            ring = getattr(self, name)
            wider = np.zeros((size, *ring.shape[1:]), np.int64)
            wider[held & (size - 1)] = ring[held & old]
            setattr(self, name, wider)

    @property
    def memory(self) -> int:
        arrays = (self.words, self.ts, self.codes, self.before)
        return int(sum(each.nbytes for each in arrays)) + self.encoder.memory
