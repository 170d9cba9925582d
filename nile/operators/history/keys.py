"""The keys that a join over histories asks for: distinct values of the probing tuples, in order of hash."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.key_pages import Keys
from nile.summaries.hashing import KeyHasher, KeyTable, hash_order
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import history_kernels
    from nile.pyramid.history.heavy import HeavyKeys
    from nile.pyramid.history.keys import KeyIndex, Within
else:
    history_kernels = lazy("nile.pyramid.history.history_kernels")

__all__ = ["ProbeKeys"]

Array = np.ndarray[Any, Any]
_BYTES = ("text", "bytes")


class ProbeKeys:
    """Distinct keys of some tuples, ascending by hash, and which tuples have each.

    hashes: uint64 [k]; values: Arrow [k]; rows: int64 [k], tuples of each; ordinals: int64 [sum of rows], grouped by
    key and ascending in it; starts: int64 [k + 1] into it.  Tuples with a null key are not here.
    """

    def __init__(self, column: pa.Array, ordinals: Array, hasher: KeyHasher) -> None:
        """column: the tuples' keys [n]; ordinals: int64 [n], ascending.  O(n + k log k)."""
        table = KeyTable(hasher)
        codes = table.encode(column).codes
        known = table.hashes()
        self._order = hash_order(known)
        rank = np.empty_like(self._order)
        rank[self._order] = np.arange(self._order.shape[0])
        self.hashes: Array = known[self._order]
        self.starts: Array = np.zeros(known.shape[0] + 1, np.int64)
        history_kernels.count_entries(codes, rank, self.starts)
        self.rows: Array = np.diff(self.starts)
        grouped = np.empty(int(self.starts[-1]), np.uint32)
        history_kernels.rows_by_key(codes, rank, self.starts[:-1].copy(), grouped)
        self.ordinals: Array = ordinals[grouped]
        self.values = table.values().take(pa.array(self._order)) if known.shape[0] else column.slice(0, 0)
        self._keys = Keys(self.values)
        self._table: KeyTable | None = table
        self._hasher = hasher
        self._told_by_hash = _told_by_hash(table.family or key_family(column.type, where="key"), hasher)

    @classmethod
    def of_index(cls, found: Within, hasher: KeyHasher) -> ProbeKeys:
        """The keys of rows that an index tells, made with the same hasher: nothing is hashed or sorted.  O(1)."""
        made = cls.__new__(cls)
        made._table, made._hasher, made._order = None, hasher, np.arange(found.hashes.shape[0])
        made.hashes, made.values, made.starts, made.ordinals = found
        made.rows, made._keys = np.diff(made.starts), Keys(made.values)
        made._told_by_hash = _told_by_hash(key_family(found.values.type, where="key"), hasher)
        return made

    def chosen(self, at: Array) -> ProbeKeys:
        """Those of them at int64 [m], ascending, and their tuples."""
        made, which = copy(self), np.zeros(len(self), bool)
        which[at] = True
        made.hashes, made.rows = self.hashes[at], self.rows[at]
        made._order = np.arange(at.shape[0]) if self._table is None else self._order[at]
        made.starts = np.concatenate([[0], np.cumsum(made.rows)])
        made.ordinals = self.ordinals[np.repeat(which, self.rows)]
        made.values = self.values.take(pa.array(at))
        made._keys = Keys(made.values)
        return made

    def __len__(self) -> int:
        return int(self.hashes.shape[0])

    def same(self, which: Array, index: KeyIndex | HeavyKeys, kind: pa.DataType, entries: Array) -> Array:
        """Whether the key which[i] (int64 [n]) is that of entries[i] of an index of `kind` (of its list of heavy keys:
        of the places entries[i] in it): bool [n], by value."""
        if self._told_by_hash:
            return np.ones(which.shape[0], bool)
        if kind == self.values.type and not pa.types.is_decimal(kind):
            return index.same(entries, self._keys, which)
        if self._table is None:  # its codes are the places of the values, which are distinct
            self._table = KeyTable(self._hasher)
            self._table.encode(self.values)
        alike: Array = self._table.encode(index.values(entries)).codes == self._order[which]
        return alike


def _told_by_hash(family: str, hasher: KeyHasher) -> bool:
    """Whether equal hashes are equal keys: those of fixed width without a secret are a bijection of the key's bits."""
    return not hasher.secret and family not in _BYTES and not family.startswith("decimal")
