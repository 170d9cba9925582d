"""The index of rows that are still coming in: codes by row, sorted by key when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.keys import HotIndex
from nile.summaries.hashing import KeyHasher, KeyTable, hash_order
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import history_kernels
else:
    history_kernels = lazy("nile.pyramid.history.history_kernels")

__all__ = ["OpenIndex"]

Array = np.ndarray[Any, Any]


class OpenIndex:
    """One column's key codes from row `first` on: 4 bytes per row, 28 and the value a distinct key."""

    def __init__(self, column: str, kind: pa.DataType, first: int, hasher: KeyHasher) -> None:
        self.column = column
        self.kind = kind
        self.first = first
        self.tuples = 0
        self._table = KeyTable(hasher)
        self._codes = np.empty(1024, np.int32)
        self._built: HotIndex | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        built = 0 if self._built is None else self._built.nbytes
        return int(self._codes.nbytes) + self._table.nbytes + built

    @property
    def codes(self) -> Array:
        """The key code of every row so far: int32 [tuples], -1 null."""
        return self._codes[: self.tuples]

    @property
    def keys(self) -> KeyTable:
        """What the codes stand for, in order of first appearance."""
        return self._table

    @property
    def built(self) -> HotIndex | None:
        """The index of all rows so far, if somebody asked for it since the last came."""
        return self._built

    def append(self, column: pa.Array, where: str) -> None:
        """Take the next rows' keys.  Cost: one hash a distinct value, some 20 ns per row."""
        codes = self._table.encode(column, where=where).codes
        need = self.tuples + codes.shape[0]
        if need > self._codes.shape[0]:
            bigger = np.empty(max(need, 2 * self._codes.shape[0]), np.int32)
            bigger[: self.tuples] = self._codes[: self.tuples]
            self._codes = bigger
        self._codes[self.tuples : need] = codes
        self.tuples = need
        self._built = None

    def build(self, since: int, until: int) -> HotIndex:
        """The index of all rows so far, whose ts lie in [since, until].  Kept until the next row comes.

        Cost: a counting sort, about 4 ns per row, and a sort of the distinct keys.
        """
        if self._built is None:
            table = self._table
            order = hash_order(table.hashes())
            keys = order.shape[0]
            place = np.empty(keys, np.int64)
            place[order] = np.arange(keys)
            codes = self._codes[: self.tuples]
            starts = np.zeros(keys + 1, np.int64)
            history_kernels.count_entries(codes, place, starts)
            rows = np.empty(int(starts[-1]), np.uint32)
            history_kernels.rows_by_key(codes, place, starts[:-1].copy(), rows)
            values = table.values().take(pa.array(order)) if keys else pa.nulls(0, self.kind)
            if values.type != self.kind:
                values = values.cast(self.kind)
            self._built = HotIndex(
                self.column,
                self.first,
                self.tuples,
                since,
                until,
                hashes=table.hashes()[order],
                starts=starts,
                rows=rows,
                keys=values,
            )
        return self._built
