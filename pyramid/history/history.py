"""The history of one stream: all its rows in order, and key indices over them, in tiers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.hot_rows import Rows, alone, taken
from nile.pyramid.history.index_store import IndexStore
from nile.pyramid.history.keys import KeyIndex
from nile.pyramid.history.rows_store import BATCH, RowStore
from nile.pyramid.history.tiers import Tiers
from nile.summaries.errors import ConfigError, NileError, StoreCorrupt, TimestampOrderError, UnknownColumn
from nile.summaries.hashing import KeyHasher, hash_keys
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["BATCH", "History", "plain_batch", "plain_schema"]

Array = np.ndarray[Any, Any]

SLICE = 256
SEGMENT = 131_072
LARGEST = 8_388_608


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema as a history keeps it: dictionaries decoded, views plain, no metadata."""
    return pa.schema([pa.field(field.name, _plain(field.type), field.nullable) for field in schema])


def plain_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of a schema, as a history of that (plain) schema keeps them."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


class History:
    """Rows of one stream, ordinals 0..tuples-1, all columns; for each indexed column key indices that cover them.

    Rows come in through `append`.  Every `segment` rows (a slice end, counted by ordinal, however batches are
    cut) an index is sealed; four adjacent ones of a size become one, up to `largest` rows.
    Threads may share it: changes take turns, and what is read is a picture of one moment, which stays readable and
    unchanged whatever comes later.
    directory: where it goes beyond memory, None: nowhere; then it stays in memory, whatever the limit.
    memory: anonymous bytes to stay below after each `settle`, None for no limit; local: bytes of files beside the
    lake, likewise.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        *,
        directory: StoreDirectory | None = None,
        indexed: Sequence[str] = (),
        memory: int | None = None,
        local: int | None = None,
        hasher: KeyHasher | None = None,
        segment: int = SEGMENT,
        largest: int = LARGEST,
    ) -> None:
        if segment % SLICE or segment <= 0 or largest < segment:
            raise ConfigError(
                f"history of {name!r}: needed a segment of whole slices ({SLICE} rows) and largest >= segment; got "
                f"segment {segment}, largest {largest}; {SEGMENT} and {LARGEST} are the defaults"
            )
        self.name = name
        self.schema = plain_schema(schema)
        self.hasher = hasher or KeyHasher()
        self._segment = segment
        self._largest = largest
        self._rows = RowStore(self.schema, largest)
        self._indices: dict[str, IndexStore] = {}
        self._changing = threading.RLock()
        self._tiers = Tiers(name, self._rows, self._indices, directory, memory, local, self.hasher)
        for column in indexed:
            self.index(column)

    def __repr__(self) -> str:
        return f"<history of {self.name}: {self.tuples} tuples, indexed by {', '.join(self._indices) or 'nothing'}>"

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns with key indices."""
        return tuple(self._indices)

    @property
    def tuples(self) -> int:
        """How many rows are kept."""
        return self._rows.tuples

    @property
    def segment(self) -> int:
        """Rows after which an index is sealed."""
        return self._segment

    @property
    def largest(self) -> int:
        """Rows of the longest index."""
        return self._largest

    def append(self, ts: Array, rows: pa.RecordBatch) -> None:
        """Take the next rows of the stream.  ts: int64 [n] ns, not decreasing; rows: their columns.

        Dictionaries are decoded.  Arrow's buffers of long batches are kept, those of short ones copied when there are
        some of these.  Raises ConfigError for times of another form or number or for columns that are not the
        history's, TimestampOrderError for a time before one already here; then nothing is taken.
        Cost: one hash a distinct value of a batch and indexed column, some 50 ns per row; every `segment` rows
        a counting sort.
        """
        with self._changing:
            batch = alone(given := self._checked(ts, rows))
            if batch is not given:
                ts = ts.copy()  # of the same slice
            done = 0
            while done < ts.shape[0]:
                n = min(ts.shape[0] - done, self._segment - self.tuples % self._segment)
                self._tiers.append(ts[done : done + n], batch.slice(done, n))
                done += n
                if self.tuples % self._segment == 0:
                    self._tiers.seal()

    def index(self, column: str) -> None:
        """Keep key indices of a column from now on, and make them for the rows that are here.

        Cost: one pass over the column.  Raises UnknownColumn, or KeyTypeError for a type that is no key.
        """
        with self._changing:
            if column in self._indices:
                return
            self._check_columns([column])
            kind = self.schema.field(column).type
            key_family(kind, where=f"history of {self.name!r}, column {column!r}")
            self._tiers.index(IndexStore(column, kind, self.hasher, self._segment, self._largest))

    def batches(
        self, columns: Sequence[str] | None = None, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Rows begin..end-1 in order, as (ts int64 [n], columns), at most `BATCH` rows at a time.

        columns: names, None for all.  Rows appended later are not seen.  Memory: one batch.
        """
        names = self._check_columns(self.schema.names if columns is None else columns)
        begin, end = self._range(begin, end)
        return self._rows.batches(names, begin, end)

    def between(self, since_ns: int | None = None, until_ns: int | None = None) -> tuple[int, int]:
        """The ordinals [begin, end) of the rows with since <= ts <= until (None: no bound).  A binary search."""
        begin = 0 if since_ns is None else self._before(since_ns, inclusive=False)
        end = self.tuples if until_ns is None else self._before(until_ns, inclusive=True)
        return begin, max(begin, end)

    def ts(self, ordinals: Array) -> Array:
        """The times of rows (int64 [n], any order): int64 [n] ns."""
        out = np.empty(ordinals.shape[0], np.int64)
        for part, rows, to in self._located(ordinals):
            out[to] = part.times_of(rows)
        return out

    def take(self, ordinals: Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of rows (int64 [n], any order, repeats allowed), in the order asked."""
        names = self._check_columns(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        located = list(self._located(ordinals))
        for part, rows, _ in located:  # the disk brings the pages of all while the first are looked at
            part.want(rows, names)
        found = [(part.take(rows, names), to) for part, rows, to in located]
        if not found:
            return schema.empty_table()
        table = pa.Table.from_batches([batch for batch, _ in found], None if names else found[0][0].schema)
        places = np.concatenate([to for _, to in found])
        if (places[1:] > places[:-1]).all():
            return table
        back = np.empty(places.shape[0], np.int64)
        back[places] = np.arange(places.shape[0])
        return pa.Table.from_batches([taken(table.combine_chunks().to_batches()[0], back)])

    def hashes(self, column: str, begin: int = 0, end: int | None = None) -> Array:
        """The key hash of rows begin..end-1: uint64, 0 for null.  Cost: reads the column, a hash a distinct value."""
        parts = [
            hash_keys(batch.column(0), self.hasher, where=f"history of {self.name!r}, column {column!r}")
            for _, batch in self.batches([column], begin, end)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

    def indices(self, column: str) -> list[KeyIndex]:
        """The key indices of a column, oldest first; together they cover rows 0..tuples-1 exactly once.

        The list is the caller's: what it holds stays readable and unchanged whatever the history does later.
        Raises UnknownColumn for a column that is not indexed.
        """
        if column not in self._indices:
            self._check_columns([column])
            raise UnknownColumn(
                f"history of {self.name!r}: needed a column with key indices "
                f"({', '.join(self._indices) or 'none is'}); got {column!r}; "
                f"CREATE SUMMARY on it, or call index({column!r})"
            )
        return self._tiers.indices(self._indices[column])

    def settle(self) -> None:
        """Move between tiers and collapse: few indices, few files, memory and local files within their limits.

        Indices of a size collapse by fours, in memory where that fits.  Above the limit the oldest rows go to
        files, half the limit of them, then the oldest indices; above `local` the oldest segments go to the lake.
        Nothing is durable before the next commit of the directory.  Cost: what `append` put off, some 0.3 us a row
        in all.  Raises StoreWriteError: then all rows are still here, and it may be called again.
        """
        with self._changing:
            self._tiers.settle()

    def archive(self, before_ns: int) -> int:
        """Move to the lake all segments whose rows are older than `before_ns`; how many rows went.

        A segment is as long as an index of the first indexed column, by which it is clustered, and the newest rows
        belong to none yet.  Cost: about 1 us a row, memory for some 300,000 rows.  Raises ConfigError without a
        directory or an indexed column, or for columns that Parquet does not take; StoreWriteError.
        """
        with self._changing:
            return self._tiers.archive(lambda index: index.until < before_ns)

    def stage(self, directory: StoreDirectory | None = None) -> tuple[dict[str, Any], list[StoredFile]]:
        """Write what no file has yet; what `restore` needs (JSON values), and all files a commit has to keep.

        Cost: about 0.5 us a row that came since the last time, and an fsync a file.  Raises StoreWriteError; then
        nothing is lost, and it may be called again.  Raises ConfigError without a directory, and for another than
        the one the history was made with.
        """
        with self._changing:
            state, files = self._tiers.stage(directory)
        return {"segment": self._segment, "largest": self._largest, **state}, files

    def stored(self) -> tuple[dict[tuple[int, int], StoredFile], dict[str, dict[tuple[int, int], StoredFile]]]:
        """Files of the store by what they hold, rows from..to-1: those of rows, and by column those of indices."""
        return self._tiers.stored()

    @classmethod
    def restore(
        cls,
        name: str,
        schema: pa.Schema,
        *,
        state: Mapping[str, Any],
        directory: StoreDirectory,
        staged: Iterable[StoredFile] = (),
        memory: int | None = None,
        local: int | None = None,
        hasher: KeyHasher | None = None,
    ) -> History:
        """The history that `stage` described: maps its files and reads none, but for the keys of the last rows.

        staged: those of its files that no commit of the directory has kept yet.
        Cost: about 0.2 ms per file, and one pass over the keys of less than a segment.  Raises StoreCorrupt when files
        are not there or not those of the state.
        """
        try:
            segment, largest = (int(state[key]) for key in ("segment", "largest"))
            history = cls(name, schema, directory=directory, memory=memory, local=local, hasher=hasher,
                          segment=segment, largest=largest)  # fmt: skip
            history._tiers.restore(state, staged)
            for column in history.indexed:
                history.indices(column)  # the keys of the last rows were just read: their index is made with them
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, NileError):
                raise
            raise StoreCorrupt(
                f"history of {name!r}: needed its state; got one without {error}; see `nile store check`"
            ) from None
        return history

    @property
    def limit(self) -> int | None:
        """The anonymous bytes to stay below; may be set anew."""
        return self._tiers.memory

    @limit.setter
    def limit(self, memory: int | None) -> None:
        self._tiers.memory = memory

    @property
    def memory(self) -> int:
        """Anonymous bytes held: rows, key codes and indices in memory."""
        return self._rows.nbytes + sum(store.nbytes for store in list(self._indices.values()))

    def info(self) -> list[dict[str, Any]]:
        """Every stretch of rows and every index: kind, tier, first ordinal, tuples, bytes, since and until (ns)."""
        rows = [_described("rows", None, part) for part, _, _ in self._rows.parts().found]
        indices = [_described("index", column, index) for column in self.indexed for index in self.indices(column)]
        return rows + indices

    def _located(self, ordinals: Array) -> Iterator[tuple[Rows, Array, Array]]:
        """Each part that holds some of the rows: these, ascending, from its first, and their places in `ordinals`."""
        if not ordinals.shape[0]:
            return
        if int(ordinals.min()) < 0 or int(ordinals.max()) >= self.tuples:
            raise IndexError(
                f"history of {self.name!r}: needed ordinals from 0 to {self.tuples - 1}; got "
                f"{int(ordinals.min())} to {int(ordinals.max())}"
            )
        order = np.argsort(ordinals, kind="stable")
        ascending = ordinals[order]
        parts = self._rows.parts()
        owner = parts.owners(ascending)
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1, [ascending.shape[0]]])
        for low, high in itertools.pairwise(cuts):
            part = parts.found[int(owner[low])][0]
            yield part, ascending[low:high] - part.first, order[low:high]

    def _before(self, ts: int, *, inclusive: bool) -> int:
        """How many rows have a ts less than `ts` (or not above it)."""
        parts = self._rows.parts()
        at = int(np.searchsorted(parts.untils, ts, side="right" if inclusive else "left"))
        if at == parts.untils.shape[0]:
            return self.tuples
        part = parts.found[at][0]
        return part.first + part.before(ts, inclusive=inclusive)

    def _range(self, begin: int, end: int | None) -> tuple[int, int]:
        end = self.tuples if end is None else end
        if not 0 <= begin <= self.tuples or end > self.tuples:
            raise IndexError(
                f"history of {self.name!r}: needed ordinals within 0 to {self.tuples}; got {begin} to {end}"
            )
        return begin, end

    def _check_columns(self, columns: Sequence[str]) -> list[str]:
        for column in columns:
            if self.schema.get_field_index(column) < 0:
                raise UnknownColumn(
                    f"history of {self.name!r}: needed one of {', '.join(self.schema.names)}; got {column!r}; "
                    "name one of these"
                )
        return list(columns)

    def _checked(self, ts: Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        where = f"history of {self.name!r}"
        if ts.dtype != np.int64 or ts.ndim != 1 or ts.shape[0] != len(rows):
            raise ConfigError(
                f"{where}: needed times as int64 [{len(rows)}], a row each; got {ts.dtype} {list(ts.shape)}; "
                "take them from the column of the batch"
            )
        if rows.schema.names != self.schema.names:
            raise ConfigError(
                f"{where}: needed the columns {', '.join(self.schema.names)}; got {', '.join(rows.schema.names)}; "
                "select these, in this order"
            )
        if ts.shape[0] and (int(ts[0]) < self._rows.last_ts or (ts[1:] < ts[:-1]).any()):
            worst = int(ts[0]) if int(ts[0]) < self._rows.last_ts else int(ts[1:][ts[1:] < ts[:-1]][0])
            raise TimestampOrderError(
                f"{where}: needed times that never decrease; got {worst} ns after a later one; order the batch first"
            )
        if rows.schema.equals(self.schema, check_metadata=True):
            return rows
        if plain_schema(rows.schema).types != self.schema.types:
            raise ConfigError(
                f"{where}: needed columns of types {', '.join(map(str, self.schema.types))}; got "
                f"{', '.join(map(str, rows.schema.types))}; cast them"
            )
        return plain_batch(rows, self.schema)


def _described(kind: str, column: str | None, part: Rows | KeyIndex) -> dict[str, Any]:
    return {
        "kind": kind,
        "column": column,
        "tier": part.tier,
        "first": part.first,
        "tuples": part.tuples,
        "memory": part.nbytes,
        "stored": part.stored_bytes,
        "since": part.since,
        "until": part.until,
    }
