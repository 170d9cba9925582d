"""Rows on disk: a file of pages, 2,048 rows of one column each, in the order of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.hot_rows import Rows, select, together
from nile.pyramid.history.pages import PageFile, PageWriter, packed_batch
from nile.summaries.errors import EnvelopeError, StoreCorrupt
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["CHUNK", "KIND", "StoredRows", "rows_file"]

Array = np.ndarray[Any, Any]

KIND = "history-rows"
CHUNK = 2_048
"""Rows of a page: some 1 to 20 KB a column, so that one row costs a checksum of some 2 to 40 us a column."""


def rows_file(first: int, schema: pa.Schema, rows: Iterable[tuple[Array, pa.RecordBatch]]) -> Iterator[Any]:
    """The bytes of a file of the rows from ordinal `first` on, in order, as pieces to write.

    rows: (ts int64 [n] ns, columns [n]) in any lengths.  Memory: one page of each column and 64 bytes per page.
    Pages are packed with LZ4 where that saves a tenth.  Equal rows are equal bytes.
    """
    writer = PageWriter()
    yield writer.start()
    tuples, starts, last = 0, [], 0
    every = pa.array(np.arange(CHUNK))
    singles = [pa.schema([field]) for field in schema]
    for ts, batch in _chunks(rows, schema):
        starts.append(int(ts[0]))
        last = int(ts[-1])
        tuples += ts.shape[0]
        yield from writer.page(ts.astype("<i8", copy=False), squeeze=True)
        for column, single in zip(batch.columns, singles, strict=True):
            page = pa.RecordBatch.from_arrays([_alone(column, every)], schema=single)
            yield from writer.page(packed_batch(page), squeeze=True)
    params = {"first": first, "tuples": tuples, "until": last, "schema": schema_to_json(schema)}
    yield writer.finish(KIND, params, {"starts": np.array(starts, np.int64)})


def _alone(column: pa.Array, every: pa.Array) -> pa.Array:
    """The column such that no byte of its message depends on what it was cut from: neighbours, what is under a null."""
    if len(column) == CHUNK and not column.null_count and pa.types.is_primitive(column.type):
        return column  # whole words, all of them values
    return column.take(every[: len(column)])


def _chunks(rows: Iterable[tuple[Array, pa.RecordBatch]], schema: pa.Schema) -> Iterator[tuple[Array, pa.RecordBatch]]:
    """The same rows, `CHUNK` at a time."""
    times: list[Array] = []
    batches: list[pa.RecordBatch] = []
    held = 0
    for ts, batch in rows:
        at = 0
        while at < ts.shape[0]:
            n = min(CHUNK - held, ts.shape[0] - at)
            times.append(ts[at : at + n])
            batches.append(batch.slice(at, n))
            held += n
            at += n
            if held == CHUNK:
                yield _one(times, batches, schema)
                times, batches, held = [], [], 0
    if held:
        yield _one(times, batches, schema)


def _one(times: list[Array], batches: list[pa.RecordBatch], schema: pa.Schema) -> tuple[Array, pa.RecordBatch]:
    if len(times) == 1:
        return times[0], batches[0]
    return np.concatenate(times), together(schema, batches)


class StoredRows(Rows):
    """Rows in a mapped file.  Reading some checks and unpacks the pages they are in: about 1 ns a byte and column."""

    tier = "warm"

    def __init__(self, directory: StoreDirectory, file: StoredFile, schema: pa.Schema) -> None:
        self.file = file
        self._schema = schema
        self._pages = PageFile(directory.map(file), KIND, file.name)
        footer = self._pages.footer
        try:
            self.tuples = footer.integer("tuples", 1, 1 << 48)
            self.first = footer.integer("first", 0, (1 << 62) - self.tuples)
            self.until = footer.integer("until", -(1 << 63), (1 << 63) - 1)
            self._starts = footer.array("starts", "<i8", (-(-self.tuples // CHUNK),))
            if schema_from_json(footer.params.get("schema"), file.name) != schema:
                footer.refuse(f"columns {', '.join(schema.names)} of their types", "others")
        except EnvelopeError as error:
            raise StoreCorrupt(f"{error}; `nile store check` lists what else is damaged") from None
        if self._pages.pages != self._starts.shape[0] * (len(schema) + 1):
            self._pages.corrupt("footer", "a page for each column and chunk", f"{self._pages.pages} pages")
        self.since = int(self._starts[0])

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def stored_bytes(self) -> int:
        return self.file.length

    @property
    def bytes_read(self) -> int:
        """Bytes checked so far."""
        return self._pages.bytes_read

    def times(self, begin: int, end: int) -> Array:
        return _joined([self._times(c)[low:high] for c, low, high in _cut(begin, end)])

    def slice(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        parts = [self._batch(c, columns).slice(low, high - low) for c, low, high in _cut(begin, end)]
        return self._together(parts, columns)

    def take(self, rows: Array, columns: Sequence[str]) -> pa.RecordBatch:
        parts = [self._batch(c, columns).take(pa.array(inner)) for c, inner in _by_chunk(rows)]
        return self._together(parts, columns)

    def want(self, rows: Array, columns: Sequence[str]) -> None:
        at = np.array([self._schema.get_field_index(name) + 1 for name in columns], np.int64)
        pages = np.unique(rows // CHUNK)[:, None] * (len(self._schema) + 1) + at
        self._pages.want(pages.ravel())

    def times_of(self, rows: Array) -> Array:
        return _joined([self._times(c)[inner] for c, inner in _by_chunk(rows)])

    def before(self, ts: int, *, inclusive: bool) -> int:
        side = "right" if inclusive else "left"
        chunk = int(np.searchsorted(self._starts, ts, side=side)) - 1  # type: ignore[call-overload]
        if chunk < 0:
            return 0
        return chunk * CHUNK + int(np.searchsorted(self._times(chunk), ts, side=side))  # type: ignore[call-overload]

    def _rows_of(self, chunk: int) -> int:
        return min(CHUNK, self.tuples - chunk * CHUNK)

    def _times(self, chunk: int) -> Array:
        return self._pages.numbers(chunk * (len(self._schema) + 1), "<i8", self._rows_of(chunk))

    def _batch(self, chunk: int, columns: Sequence[str]) -> pa.RecordBatch:
        rows = self._rows_of(chunk)
        if not columns:
            return select(pa.record_batch({"": np.zeros(rows, np.int8)}), ())
        found = []
        for name in columns:
            i = self._schema.get_field_index(name)
            single = pa.schema([self._schema.field(i)])
            found.append(self._pages.batch(chunk * (len(self._schema) + 1) + 1 + i, single, rows).column(0))
        return pa.RecordBatch.from_arrays(found, schema=pa.schema([self._schema.field(name) for name in columns]))

    def _together(self, parts: list[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
        if len(parts) == 1:
            return parts[0]
        schema = pa.schema([self._schema.field(name) for name in columns])
        if not parts:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        if not columns:
            return select(pa.record_batch({"": np.zeros(sum(len(part) for part in parts), np.int8)}), ())
        return together(schema, parts)


def _joined(parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _cut(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The chunks of rows begin..end-1, and which of their rows."""
    for chunk in range(begin // CHUNK, -(-end // CHUNK)):
        base = chunk * CHUNK
        yield chunk, max(begin - base, 0), min(end - base, CHUNK)


def _by_chunk(rows: Array) -> Iterator[tuple[int, Array]]:
    """Ascending rows as (chunk, rows inside it)."""
    chunks = rows // CHUNK
    edges = np.flatnonzero(np.diff(chunks)) + 1
    for part in np.split(rows, edges):
        if part.shape[0]:
            chunk = int(part[0]) // CHUNK
            yield chunk, part - chunk * CHUNK
