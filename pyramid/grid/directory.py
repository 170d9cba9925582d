"""The key directory as a summary: exact counts per key, read off a store's tuple lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.exact import ExactCounter
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.grid import list_kernels
    from nile.pyramid.grid.store import TupleStore
else:
    list_kernels = lazy("nile.pyramid.grid.list_kernels")

__all__ = ["KeyDirectory"]

Array = np.ndarray[Any, Any]


class KeyDirectory(ExactCounter):
    """How often each key is in the tuple lists of a store, exactly: what guides a join without a sketch.

    A snapshot of counts by key hash, 16 bytes a distinct key; a linear summary like any other, so the
    directories of two streams, or of two parts of one, add and subtract.  Estimates are certified, on the
    count itself, with confidence 1.  Its byte form is of kind `directory`: read it with
    `KeyDirectory.from_bytes`, since the catalogue of a lower floor does not know it.
    Source: DESIGN section 2, Guide; the paper has no directory.
    """

    __slots__ = ()

    kind: ClassVar[str] = "directory"

    @classmethod
    def of(cls, store: TupleStore, key_hashes: Array, since: int | None = None) -> Self:
        """The tuples in lists that a query can still reach and that have ts >= `since` (ns; None: all of them).

        key_hashes: uint64 [keys], the hash of each code (`KeyTable.hashes`).  O(keys * log list).
        Raises ConfigError when there is not a hash for each key of the store.
        """
        if key_hashes.shape[0] < store.keys:
            raise ConfigError(
                f"directory: needed the hash of each of {store.keys} keys; got {key_hashes.shape[0]}; "
                "hand on the hashes of the key table that encoded this stream"
            )
        counts = np.zeros(store.keys, np.int64)
        lowest, highest = -(1 << 63), (1 << 63) - 1
        if since is None or since <= highest:
            list_kernels.counts_since(store.side, lowest if since is None else max(since, lowest), counts)
        present = np.flatnonzero(counts)
        directory = cls()
        directory.summarize(key_hashes[: store.keys][present], counts[present])
        return directory
