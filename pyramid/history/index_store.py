"""All key indices of one column, oldest first, and the rows that have none yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.cold_index import ColdIndex
from nile.pyramid.history.key_digest import distinct
from nile.pyramid.history.keys import HotIndex, KeyIndex
from nile.pyramid.history.merge import distinct_hashes, merge_hot, merged_parts
from nile.pyramid.history.opened import OpenIndex
from nile.pyramid.history.pages import blocks
from nile.pyramid.history.rows_store import forget
from nile.pyramid.history.warm_index import WarmIndex
from nile.pyramid.history.zone_file import zone_file
from nile.summaries.errors import StoreCorrupt
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["RATE", "ROLE", "IndexStore"]

Array = np.ndarray[Any, Any]

ROLE = "history-zone"
RATE = 4


class IndexStore:
    """Sealed indices of `segment` rows and, `RATE` by `RATE`, of longer runs, up to `largest`; and an open one."""

    def __init__(self, column: str, kind: pa.DataType, hasher: KeyHasher, segment: int, largest: int) -> None:
        self.column = column
        self.kind = kind
        self.sealed: list[KeyIndex] = []
        self._hasher = hasher
        self._segment = segment
        self._largest = largest
        self._files: dict[int, StoredFile] = {}  # of indices that are in memory as well, by first row
        self.open = OpenIndex(column, kind, 0, hasher)

    @property
    def room(self) -> int:
        """Rows until the open index is sealed."""
        return self._segment - self.open.tuples

    @property
    def nbytes(self) -> int:
        """Anonymous bytes held."""
        return self.open.nbytes + sum(index.nbytes for index in self.sealed)

    def seal(self, built: HotIndex) -> None:
        """The open index changes no more: this is what it became."""
        self.sealed.append(built)
        self.open = OpenIndex(self.column, self.kind, self.sealed[-1].end, self._hasher)

    def oldest_hot(self) -> int | None:
        """The end of the oldest sealed index in memory, None when there is none."""
        return next((index.end for index in self.sealed if isinstance(index, HotIndex)), None)

    def evict(self, directory: StoreDirectory) -> None:
        """The oldest index in memory (there is one) is mapped from its file from now on."""
        at, index = next((at, index) for at, index in enumerate(self.sealed) if isinstance(index, HotIndex))
        self.sealed[at] = WarmIndex(directory, self._written(directory, index))
        self._files.pop(index.first)

    def stage(self, directory: StoreDirectory) -> list[StoredFile]:
        """Write the sealed indices that have no file; all files."""
        return [self._file(directory, index) for index in self.sealed]

    def _file(self, directory: StoreDirectory, index: KeyIndex) -> StoredFile:
        if isinstance(index, ColdIndex):
            return index.segment.file
        if isinstance(index, HotIndex):
            return self._written(directory, index)
        assert isinstance(index, WarmIndex)
        return index.file

    @property
    def local_bytes(self) -> int:
        """Bytes of files of indices that are not in the lake."""
        return sum(index.stored_bytes for index in self.sealed if not isinstance(index, ColdIndex))

    def oldest_local(self) -> KeyIndex | None:
        """The oldest sealed index that is not in the lake."""
        return next((index for index in self.sealed if not isinstance(index, ColdIndex)), None)

    def cool(self, directory: StoreDirectory, index: ColdIndex) -> None:
        """The index over these rows, the oldest that was not, is in the lake now."""
        at = next(at for at, old in enumerate(self.sealed) if old.first == index.first)
        old = self.sealed[at]
        self.sealed[at] = index
        gone = [old.file] if isinstance(old, WarmIndex) else []
        forget(directory, [*gone, *([self._files.pop(index.first)] if index.first in self._files else [])])

    def release(self) -> None:
        """Forget the cells of old rows read last."""
        for index in self.sealed:
            if isinstance(index, ColdIndex):
                index.release()

    def collapse(self, directory: StoreDirectory | None, room: int | None) -> None:
        """Merge `RATE` adjacent indices of one size, the oldest first, as long as there are any.

        So what is left depends on how many rows there are, not on when this was called: `layout.index_runs`.
        room: anonymous bytes that may be added, None for any number.  Indices in memory become one in memory
        where that is allowed, else one file, written a stretch of hashes at a time.
        """
        while (at := self._mergeable()) is not None:
            children = self.sealed[at : at + RATE]
            hot = all(isinstance(index, HotIndex) for index in children)
            if directory is None or (hot and (room is None or 2 * sum(index.nbytes for index in children) <= room)):
                merged: KeyIndex = merge_hot(children)
            else:
                merged = self._merge_to_file(directory, children)
            self.sealed[at : at + RATE] = [merged]
            gone = [index.file for index in children if isinstance(index, WarmIndex)]
            gone += [self._files.pop(index.first) for index in children if index.first in self._files]
            if directory is not None:
                forget(directory, gone)

    def _mergeable(self) -> int | None:
        """Where the oldest indices that can become one begin."""
        for at in range(len(self.sealed) - RATE + 1):
            size = self.sealed[at].tuples
            if RATE * size <= self._largest and all(
                index.tuples == size and not isinstance(index, ColdIndex) for index in self.sealed[at : at + RATE]
            ):
                return at
        return None

    def restore(self, indices: Sequence[KeyIndex], tuples: int) -> None:
        """Take over the indices of a store, oldest first, of at most `tuples` rows.  Raises StoreCorrupt for a gap."""
        reached = 0
        for index in indices:
            if index.column != self.column or index.first != reached or index.end > tuples:
                raise StoreCorrupt(
                    f"history: needed the index of {self.column!r} from row {reached} on, within {tuples}; "
                    f"got {index!r}; see `nile store check`"
                )
            reached = index.end
            self.sealed.append(index)
        self.open = OpenIndex(self.column, self.kind, reached, self._hasher)

    def _written(self, directory: StoreDirectory, index: HotIndex) -> StoredFile:
        file = self._files.get(index.first)
        if file is None:
            part, keys = index.part(0, 1, 1), distinct(index.hashes)
            parts = zone_file(self.column, self.kind, index.first, index.tuples, index.since, index.until, [part], keys)
            file = self._files[index.first] = directory.stage(ROLE, blocks(parts))
        return file

    def _merge_to_file(self, directory: StoreDirectory, children: Sequence[KeyIndex]) -> WarmIndex:
        first, last = children[0], children[-1]
        keys = distinct_hashes(children)
        parts = merged_parts(children)
        tuples = last.end - first.first
        pieces = zone_file(self.column, self.kind, first.first, tuples, first.since, last.until, parts, keys)
        return WarmIndex(directory, directory.stage(ROLE, blocks(pieces)))
