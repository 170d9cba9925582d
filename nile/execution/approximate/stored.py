"""Stored rows that tuples look up: what a join with a relation by its unique key is, tuple by tuple.

A star join (facts in a stream, what they are about in relations) has one output a tuple at most, so that a sample of
its tuples is one of its outputs, and an estimate over it is one over the join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.base.plain import decoded
from nile.operators.inputs.composing import put_together
from nile.streams.accounting import Accounting
from nile.summaries.errors import NotYet
from nile.summaries.hashing import KeyTable, key_words
from nile.summaries.heavy import pa
from nile.summaries.key_types import is_hashed, key_family

__all__ = ["StoredRows"]

Array = np.ndarray[Any, Any]
Read = Callable[[], tuple[pa.Table, dict[str, Accounting]]]
_MAKING = Lock()
_DENSE, _LEAST = 16, 1024
"""Numbers a row, and beside these, up to which they are places in a table: 3 ns a look-up, and no work to make it."""
_ROOM = 1 << 16
"""Keys without a row that are remembered, beside as many as there are rows, before they are forgotten."""


class StoredRows:
    """Rows found by a key, read when they are first asked for; `nile.expressions.tree.Rows`.

    name: for messages and plans; keys: the columns of the key, none where there is one row; unique: whether a key has
    one row at most, which is asked for where a column is; read: the rows, and of each relation what was read of it.
    Cost: some 20 ns a tuple and part of the key, and of the rows once.  Memory: the rows and some 28 bytes a key.
    """

    _last: tuple[list[pa.Array], Array] | None = None
    """The keys that were looked up last, and where their rows are: other columns are looked up by the same."""

    def __init__(self, name: str, keys: Sequence[str], unique: bool, read: Read) -> None:
        self.name = name
        self.accounting: dict[str, Accounting] = {}
        self._keys = tuple(keys)
        self._unique = unique
        self._read = read
        self._table: pa.Table | None = None
        self._codes = KeyTable()
        self._row_of = np.zeros(0, np.int64)
        self._kinds: list[pa.DataType | None] = []
        self._direct: tuple[int, Array] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For tasks of Spark: the rows as they are now."""
        self.check()
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_read", "_last")}

    def __str__(self) -> str:
        how = f"by {', '.join(self._keys)}" if self._keys else "as a whole"
        return f"tuples look {self.name} up {how}"

    def values(self, keys: Sequence[pa.Array], column: str | None, rows: int) -> pa.Array:
        """A column of the row of each key, null where there is none; None: whether there is one, as booleans.

        keys: of each part of the key an Arrow array [rows].  Raises NotYet where a key has several rows, and what
        reading raises.
        """
        with self._locked:
            table = self._rows()
            at = self._found(keys, rows)
        if column is None:
            return pa.array(at >= 0)
        return _plain(table.column(column)).take(pa.array(at, mask=at < 0))

    @property
    def _locked(self) -> Lock:
        """Its lock, which a copy makes for itself."""
        with _MAKING:
            lock: Lock = vars(self).setdefault("_lock", Lock())
            return lock

    def check(self) -> None:
        """Read the rows now.  Raises NotYet where a key that has to be unique has several rows."""
        with self._locked:
            table = self._rows()
            self._found([table.column(name) for name in self._keys], table.num_rows)

    def _rows(self) -> pa.Table:
        if self._table is None:
            table, self.accounting = self._read()
            self._table = table.combine_chunks()
            if self._unique and not self._keys and table.num_rows > 1:
                raise self._several(f"{table.num_rows:,} rows and no equal columns")
        return self._table

    def _found(self, keys: Sequence[pa.Array], rows: int) -> Array:
        """The row of each key, -1 where there is none: int64 [rows]."""
        assert self._table is not None
        if not self._keys:
            return np.full(rows, self._table.num_rows - 1, np.int64)
        plain = [_plain(each) for each in keys]
        if self._last is not None and all(map(_is_same, self._last[0], plain)):
            return self._last[1]
        kinds = [
            _compared(each.type, self._table.column(name).type) for each, name in zip(plain, self._keys, strict=True)
        ]
        if kinds != self._kinds or self._codes.known > 2 * self._row_of.shape[0] + _ROOM:
            self._index(kinds)
        at = self._direct_at(plain[0]) if self._direct is not None else self._coded_at(_one(plain, kinds))
        self._last = plain, at
        return at

    def _coded_at(self, keys: pa.Array) -> Array:
        codes = self._codes.encode(keys, where=self.name).codes.astype(np.int64)
        known = (codes >= 0) & (codes < self._row_of.shape[0])
        at: Array = np.full(codes.shape[0], -1, np.int64)
        at[known] = self._row_of[codes[known]]
        return at

    def _direct_at(self, keys: pa.Array) -> Array:
        assert self._direct is not None
        (low, rows), (words, valid) = self._direct, key_words(keys, where=self.name)
        place = words.view(np.uint64) - np.uint64(low % 2**64)  # below the first is far beyond the last
        found = rows[np.minimum(place, np.uint64(rows.shape[0] - 1)).view(np.int64)]
        return np.where(valid, found, -1) if valid.shape[0] else found

    def _index(self, kinds: list[pa.DataType | None]) -> None:
        """Number the rows' keys."""
        assert self._table is not None
        parts = [_plain(self._table.column(name)) for name in self._keys]
        self._codes, self._kinds, self._direct = KeyTable(), kinds, None
        if len(parts) == 1 and kinds[0] is None and not is_hashed(parts[0].type) and self._is_direct(parts[0]):
            return
        codes = self._codes.encode(_one(parts, kinds), where=self.name).codes
        self._row_of = np.zeros(self._codes.known, np.int64)
        some = np.flatnonzero(codes >= 0)[::-1]  # of equal ones the first
        self._row_of[codes[some]] = some
        if self._unique and some.shape[0] > self._codes.known:
            counts = np.bincount(codes[some])
            at = self._row_of[int(counts.argmax())]
            key = ", ".join(f"{name} = {self._table.column(name)[int(at)].as_py()!r}" for name in self._keys)
            raise self._several(f"{counts.max():,} rows with {key}")

    def _is_direct(self, keys: pa.Array) -> bool:
        """Whether keys are whole numbers near each other and none comes twice, which then are places in a table."""
        words, valid = key_words(keys, where=self.name)
        some = np.flatnonzero(valid) if valid.shape[0] else np.arange(words.shape[0])
        if not some.shape[0]:
            return False
        low, high = int(words[some].min()), int(words[some].max())
        if high - low >= _DENSE * words.shape[0] + _LEAST:
            return False
        rows = np.full(high - low + 2, -1, np.int64)
        rows[words[some] - low] = some
        if np.count_nonzero(rows >= 0) < some.shape[0]:
            return False
        self._direct = low, rows
        return True

    def _several(self, came: str) -> NotYet:
        return NotYet(
            f"approximate join with {self.name}: needed a relation with one row a key, which tuples look up; got "
            f"{came}; leave out WITH PREFERENCE, BUDGET and ERROR for the exact join, or join what a GROUP BY of its "
            "key makes of it"
        )


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same memory, which both keep."""

    def lies(array: pa.Array) -> list[Any]:
        buffers = [None if each is None else each.address for each in array.buffers()]
        return [array.type, len(array), array.offset, *buffers]

    return lies(one) == lies(other)


def _plain(column: Any) -> pa.Array:
    """A column as one array, decoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return decoded(column)


def _compared(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type in which keys of two types are compared; None: as they are."""
    families = {key_family(each, where="key") for each in (one, other)}
    numbers = all(each in ("integer", "uint64", "float") or each.startswith("decimal") for each in families)
    return pa.float64() if numbers and len(families) > 1 else None


def _one(parts: Sequence[pa.Array], kinds: Sequence[pa.DataType | None]) -> pa.Array:
    """The parts of a key as one."""
    alike = [part if kind is None else nearest(part, kind) for part, kind in zip(parts, kinds, strict=True)]
    return alike[0] if len(alike) == 1 else put_together(alike)
