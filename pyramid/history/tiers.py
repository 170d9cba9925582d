"""What moves where: from memory to files, from files to the lake, from many indices to few, and to the next process.

Source: DESIGN section 2, Key directory and tuple lists; promising tuples, section 3.5 (COLLAPSE).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.cold import ROLE as COLD
from nile.pyramid.history.cold import ColdSegment, archived
from nile.pyramid.history.cold_index import ColdIndex, ColdRows
from nile.pyramid.history.index_store import IndexStore
from nile.pyramid.history.keys import HotIndex, KeyIndex
from nile.pyramid.history.rows_file import StoredRows
from nile.pyramid.history.rows_store import RowStore
from nile.pyramid.history.warm_index import WarmIndex
from nile.summaries.errors import ConfigError, StoreCorrupt
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["Tiers"]

Array = np.ndarray[Any, Any]


class Tiers:
    """The rows and indices of one history, the limits they keep to, and the directory they go to."""

    def __init__(
        self,
        name: str,
        rows: RowStore,
        indices: dict[str, IndexStore],
        directory: StoreDirectory | None,
        memory: int | None,
        local: int | None,
        hasher: KeyHasher,
    ) -> None:
        self.name = name
        self.memory = memory
        self.local = local
        self._rows = rows
        self._indices = indices
        self._directory = directory
        self._hasher = hasher
        self._moment = threading.Lock()  # rows and their keys come, and an index is sealed, at once for who reads

    @property
    def _held(self) -> int:
        return self._rows.nbytes + sum(store.nbytes for store in self._indices.values())

    def append(self, ts: Array, batch: pa.RecordBatch) -> None:
        """Take rows of one segment."""
        with self._moment:
            for column, store in self._indices.items():
                store.open.append(batch.column(column), where=f"history of {self.name!r}, column {column!r}")
            self._rows.append(ts, batch)

    def seal(self) -> None:
        """A segment has ended."""
        self._rows.roll()
        if self._directory is not None:
            self._rows.write_ahead(self._directory)
        for store in self._indices.values():
            self._seal(store)

    def index(self, store: IndexStore) -> None:
        """Keep one more index store, brought up to the rows that are here."""
        where = f"history of {self.name!r}, column {store.column!r}"
        for _, batch in self._rows.batches([store.column], store.open.first, self._rows.tuples):
            done = 0
            while done < len(batch):
                n = min(len(batch) - done, store.room)
                store.open.append(batch.column(0).slice(done, n), where=where)
                done += n
                if not store.room:
                    self._seal(store)
                    self._shorten(store)
        self._indices[store.column] = store

    def _shorten(self, store: IndexStore) -> None:
        """Keep a store that is being filled, and is not among the others yet, within memory and short."""
        if self._directory is None:
            return
        room = None if self.memory is None else self.memory - self._held - store.nbytes
        store.collapse(self._directory, room)
        if room is not None and room < 0:
            while store.oldest_hot() is not None:
                store.evict(self._directory)
            store.collapse(self._directory, room)

    def indices(self, store: IndexStore) -> list[KeyIndex]:
        """See `History.indices`."""
        with self._moment:
            found = list(store.sealed)
            if store.open.tuples:
                found.append(self._built(store))
        return found

    def _built(self, store: IndexStore) -> HotIndex:
        """The open index as it is now."""
        opened = store.open
        if opened.built is not None:
            return opened.built
        ends = [opened.first, opened.first + opened.tuples - 1]
        since, until = (int(self._ts(row)) for row in ends)
        return opened.build(since, until)

    def _ts(self, row: int) -> int:
        parts = self._rows.parts()
        part = parts.found[int(parts.owners(np.array([row]))[0])][0]
        return int(part.times_of(np.array([row - part.first]))[0])

    def _seal(self, store: IndexStore) -> None:
        with self._moment:
            store.seal(self._built(store))
        if self._directory is None:
            store.collapse(None, None)

    def settle(self) -> None:
        """See `History.settle`."""
        directory = self._directory
        for store in self._indices.values():
            store.collapse(directory, None if self.memory is None else self.memory - self._held)
        if directory is None:
            return
        if self.memory is not None and self._held > self.memory:
            self._evict(directory, self.memory)
        self._rows.join(directory)
        if self.local is not None and self._indices:
            while self._local_bytes > self.local and (oldest := self._first_store.oldest_local()) is not None:
                self._cool(directory, oldest)

    def _evict(self, directory: StoreDirectory, memory: int) -> None:
        self._rows.release()
        for store in self._indices.values():
            store.release()
        target = memory // 2
        self._rows.evict(directory, self._held - target)
        while self._held > target:
            ends = [(end, column) for column, store in self._indices.items() if (end := store.oldest_hot())]
            if not ends:
                break
            self._indices[min(ends)[1]].evict(directory)
        for store in self._indices.values():
            store.collapse(directory, memory - self._held)

    @property
    def _local_bytes(self) -> int:
        return self._rows.local_bytes + sum(store.local_bytes for store in self._indices.values())

    @property
    def _first_store(self) -> IndexStore:
        return next(iter(self._indices.values()))

    def archive(self, old: Callable[[KeyIndex], bool]) -> int:
        """See `History.archive`."""
        if self._directory is None or not self._indices:
            missing = "a directory" if self._directory is None else "an indexed column to cluster by"
            raise ConfigError(f"history of {self.name!r}: needed {missing} for old rows; got none; give it one first")
        rows = 0
        while (oldest := self._first_store.oldest_local()) is not None and old(oldest):
            self._cool(self._directory, oldest)
            rows += oldest.tuples
        return rows

    def _cool(self, directory: StoreDirectory, index: KeyIndex) -> None:
        """Move the segment of an index, the oldest not in the lake, to the lake."""
        batches = self._rows.batches(self._rows.schema.names, index.first, index.end)
        described, *files = archived(directory, self.name, self._rows.schema, index, batches, self._hasher)
        segment = ColdSegment(directory, described, self._rows.schema, files)
        self._rows.cool(directory, ColdRows(segment))
        self._first_store.cool(directory, ColdIndex(segment, self._hasher))

    def stage(self, directory: StoreDirectory | None) -> tuple[dict[str, Any], list[StoredFile]]:
        """See `History.stage`."""
        if self._directory is None:
            self._directory = directory
        if self._directory is None or directory not in (None, self._directory):
            raise ConfigError(
                f"history of {self.name!r}: needed the directory it was made with; got "
                f"{'none' if directory is None else 'another'}; give it when the history is made"
            )
        rows = self._rows.stage(self._directory)
        indices = {column: store.stage(self._directory) for column, store in self._indices.items()}
        kept = {file.name: file for files in (rows, *indices.values()) for file in files}
        for part in self._rows.files:
            if isinstance(part, ColdRows):
                kept |= {file.name: file for file in part.segment.files}
        state = {
            "tuples": self._rows.tuples,
            "rows": [file.name for file in rows],
            "indices": {column: [file.name for file in files] for column, files in indices.items()},
        }
        return state, list(kept.values())

    def stored(self) -> tuple[dict[tuple[int, int], StoredFile], dict[str, dict[tuple[int, int], StoredFile]]]:
        """See `History.stored`."""
        rows = {(part.first, part.end): part.file for part in self._rows.files if isinstance(part, StoredRows)}
        indices = {column: {(index.first, index.end): index.file for index in store.sealed
                            if isinstance(index, WarmIndex)} for column, store in self._indices.items()}  # fmt: skip
        return rows, indices

    def restore(self, state: Mapping[str, Any], staged: Iterable[StoredFile]) -> None:
        """See `History.restore`.  Raises KeyError and the like for a state that is none."""
        directory = self._directory
        assert directory is not None
        held = {**directory.files(), **{file.name: file for file in staged}}
        tuples = int(state["tuples"])
        schema = self._rows.schema
        cold: dict[str, ColdSegment] = {}
        dropped = set(directory.state.get("lost", ()))  # by `nile store repair`: an index is made anew from its rows
        kept = {column: names for column, names in state["indices"].items() if dropped.isdisjoint(names)}
        for name in (*state["rows"], *(name for names in kept.values() for name in names)):
            if name not in held:
                raise StoreCorrupt(
                    f"{name}: needed this file of {self.name!r}; the store has none; see `nile store check`"
                )
            if held[name].role == COLD and name not in cold:
                cold[name] = ColdSegment(directory, held[name], schema)
        rows = [ColdRows(cold[name]) if name in cold else StoredRows(directory, held[name], schema)
                for name in state["rows"]]  # fmt: skip
        self._rows.restore(rows, tuples)
        for column, names in state["indices"].items():
            if schema.get_field_index(column) < 0:
                raise StoreCorrupt(f"history of {self.name!r}: needed its columns; got an index of {column!r}")
            store = IndexStore(column, schema.field(column).type, self._hasher, int(state["segment"]),
                               int(state["largest"]))  # fmt: skip
            if column in kept:
                store.restore(
                    [
                        ColdIndex(cold[name], self._hasher) if name in cold else WarmIndex(directory, held[name])
                        for name in names
                    ],
                    tuples,
                )
            self.index(store)
