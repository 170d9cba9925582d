"""The cold tier: a segment's rows as Parquet of the lake, and what stays in the store to find them.

A segment goes to `lake/<stream>/day=.../` in files of `nile.pyramid.lake.part`: at most `PART_ROWS` rows of one time
range each, clustered by the bucket of the key column, `_ordinal` and `_ts` beside the user's columns.  The store
keeps a file of pages for it: the digests of those files, that of its keys, and the entries and tuples of every cell, so
that `upper`, `estimate` and `cell_tuples` cost what they cost in the warm tier.  Reading a cell reads the row groups
it lies in. Cold segments are never rewritten.  Source: DESIGN section 2, Key directory and tuple lists.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from nile.pyramid.history.hot_rows import together
from nile.pyramid.history.key_digest import Digesting, KeyDigest, StoredSummary
from nile.pyramid.history.keys import KeyIndex
from nile.pyramid.history.pages import PageFile, PageWriter, blocks
from nile.pyramid.history.warm_index import bounds_of
from nile.pyramid.lake.key_sketch import IndexSketch
from nile.pyramid.lake.layout import DAY, range_name
from nile.pyramid.lake.part import Part, PartFile, pack_parts, unpack_parts, write_part
from nile.summaries.errors import ConfigError, EnvelopeError, KeyTypeError, StoreCorrupt
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["BITS", "ROLE", "ColdSegment", "archived"]

Array = np.ndarray[Any, Any]

ROLE = "history-cold"
KIND = "history-cold"
BITS = 12
PART_ROWS = 262_144
GROUP_ROWS = 8_192
"""A part's row group covers a 32nd of the buckets: reading a cell decodes so many rows of each part of its segment."""
_RANGES = 64  # time ranges of a segment, at most
_OPEN = 64  # parts kept open
_FAR = (1 << 63) - 1


def archived(
    directory: StoreDirectory,
    stream: str,
    schema: pa.Schema,
    index: KeyIndex,
    rows: Iterable[tuple[Array, pa.RecordBatch]],
    hasher: KeyHasher,
) -> list[StoredFile]:
    """Write a segment to the lake: the file that describes it first, then its Parquet files.

    rows: (ts, all columns) of the rows that `index` covers, in order.  Memory: some 4 times `PART_ROWS` rows.
    Raises StoreWriteError, and ConfigError for columns that Parquet does not take.
    """
    files: list[StoredFile] = []
    try:
        parts = list(_written(directory, stream, schema, index, rows, hasher, files))
        return [directory.stage(ROLE, blocks(_description(schema, index, parts))), *files]
    except (KeyTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        directory.discard(files)
        raise ConfigError(
            f"history of {stream!r}: needed columns that Parquet takes to move old rows to the lake; got {error}; "
            "leave such columns out, or do without archive and local"
        ) from None
    except BaseException:
        directory.discard(files)
        raise


def _written(
    directory: StoreDirectory,
    stream: str,
    schema: pa.Schema,
    index: KeyIndex,
    rows: Iterable[tuple[Array, pa.RecordBatch]],
    hasher: KeyHasher,
    files: list[StoredFile],
) -> Iterator[Part]:
    """Write the Parquet files, which are added to `files` as they come."""
    folder = "lake/" + quote(stream, safe=",").replace("~", "%7E").replace(".", "%2E")
    span = max(1, -(-(index.until - index.since + 1) // (_RANGES * DAY))) * DAY
    first = index.first
    for ts, batch in _stretches(rows, schema, span):
        where = f"{folder}/{range_name(int(ts[0]), span)}"
        ordinals = np.arange(first, first + ts.shape[0])
        first += ts.shape[0]
        with directory.stage_path(ROLE, suffix=".parquet", folder=where) as staged:
            part = write_part(staged.path, ordinals, ts, batch, index.column, bits=BITS, group_rows=GROUP_ROWS,
                              hasher=hasher, sync=False)  # fmt: skip
        files.append(staged.file)
        yield replace(part, name=staged.file.name)


def _stretches(
    rows: Iterable[tuple[Array, pa.RecordBatch]], schema: pa.Schema, span: int
) -> Iterator[tuple[Array, pa.RecordBatch]]:
    """The same rows, cut where a time range ends and after `PART_ROWS`."""
    times: list[Array] = []
    batches: list[pa.RecordBatch] = []
    held = 0
    for ts, batch in rows:
        at = 0
        while at < ts.shape[0]:
            here = int(times[0][0]) if times else int(ts[at])
            after = here - here % span + span
            n = min(int(np.searchsorted(ts[at:], after)), PART_ROWS - held) if after <= _FAR else PART_ROWS - held
            n = min(n, ts.shape[0] - at)
            if n:
                times.append(ts[at : at + n])
                batches.append(batch.slice(at, n))
                held += n
                at += n
            if held == PART_ROWS or (at < ts.shape[0] and held):
                yield np.concatenate(times), together(schema, batches)
                times, batches, held = [], [], 0
    if held:
        yield np.concatenate(times), together(schema, batches)


def _description(schema: pa.Schema, index: KeyIndex, parts: Sequence[Part]) -> Iterator[Any]:
    listed, arrays = pack_parts(parts)
    writer = PageWriter()
    yield writer.start()
    yield from writer.page(json.dumps(listed, separators=(",", ":")).encode("ascii"))
    digest = _digest(index)
    told, levels = digest.told(writer.pages)
    yield from writer.page(digest.page())
    counts = np.diff(index.entry_edges)
    params = {
        "column": index.column, "schema": schema_to_json(schema), "first": index.first, "tuples": index.tuples,
        "since": index.since, "until": index.until, "buckets": index.buckets,
        "keys": int(counts.sum()), "keyed": index.keyed, **told,
    }  # fmt: skip
    weights = np.concatenate([np.zeros(1, np.int64), np.cumsum(index.cell_tuples())])
    arrays = {f"part.{name}": array for name, array in arrays.items()}
    yield writer.finish(KIND, params, {**arrays, **levels, "edges": index.entry_edges, "weights": weights})


def _digest(index: KeyIndex) -> KeyDigest:
    """The digest of an index, made where its file is of before there was one."""
    if isinstance(index.summary, KeyDigest):
        return index.summary
    digesting = Digesting(index.keys)
    for bucket in range(index.buckets):
        part = index.part(bucket, bucket + 1, index.buckets)
        digesting.add(part.hashes, np.diff(part.starts))
    return digesting.digest()


class ColdSegment:
    """What the store knows of a segment in the lake, and its Parquet files, opened when they are read."""

    def __init__(
        self, directory: StoreDirectory, file: StoredFile, schema: pa.Schema, staged: Sequence[StoredFile] = ()
    ) -> None:
        """staged: its Parquet files, when they are not committed yet.  Raises StoreCorrupt."""
        self.file = file
        self.schema = schema
        self._directory = directory
        self.pages = PageFile(directory.map(file), KIND, file.name)
        footer = self.pages.footer
        try:
            column = footer.params.get("column")
            if not isinstance(column, str) or schema.get_field_index(column) < 0:
                footer.refuse("parameter 'column' must be one of the schema's", repr(column)[:60])
            if schema_from_json(footer.params.get("schema"), file.name) != schema:
                footer.refuse(f"columns {', '.join(schema.names)} of their types", "others")
            self.column = column
            self.tuples = footer.integer("tuples", 1, (1 << 32) - 1)
            self.first = footer.integer("first", 0, (1 << 62) - self.tuples)
            self.since, self.until = (footer.integer(name, -_FAR - 1, _FAR) for name in ("since", "until"))
            self.keyed = footer.integer("keyed", 0, self.tuples)
            self.keys = footer.integer("keys", 0, self.keyed)
            self.buckets = footer.integer("buckets", 1, 1 << BITS)
            if self.buckets & (self.buckets - 1):
                footer.refuse("buckets as a power of two", f"{self.buckets}")
            self._summary = StoredSummary(self.pages, self.keys, 1)
            self.edges = bounds_of(footer, "edges", self.buckets, self.keys)
            self.weights = bounds_of(footer, "weights", self.buckets, self.keyed)
        except EnvelopeError as error:
            raise StoreCorrupt(f"{error}; `nile store check` lists what else is damaged") from None
        arrays = {name[5:]: array for name, array in footer.arrays.items() if name.startswith("part.")}
        try:
            self.parts = unpack_parts(json.loads(bytes(self.pages.page(0))), arrays)
        except (KeyError, TypeError, ValueError) as error:
            self.pages.corrupt("page 0", "the Parquet files of the segment", f"{type(error).__name__}: {error}")
        reached = self.first
        for part in self.parts:
            if part.first != reached or part.last != reached + part.rows - 1:
                self.pages.corrupt("page 0", f"rows from {reached} on", f"{part.first} to {part.last}")
            reached += part.rows
        if reached != self.first + self.tuples:
            self.pages.corrupt("page 0", f"{self.tuples} rows", f"{reached - self.first}")
        self.firsts = np.array([part.first - self.first for part in self.parts], np.int64)
        held = {file.name: file for file in staged} or directory.files()
        gone = [part.name for part in self.parts if part.name not in held]
        if gone:
            raise StoreCorrupt(
                f"{gone[0]}: needed this file of old rows; it is not in the store; see `nile store check`"
            )
        self.files: tuple[StoredFile, ...] = (file, *(held[part.name] for part in self.parts))
        self._open: dict[int, PartFile] = {}
        self._opening = threading.Lock()

    @property
    def stored_bytes(self) -> int:
        """Bytes of Parquet, and of the file in the store."""
        return self.file.length + sum(part.bytes for part in self.parts)

    def summary(self) -> KeyDigest | IndexSketch:
        """What it tells of its keys before any is read."""
        return self._summary.read()

    def part(self, number: int) -> PartFile:
        """A Parquet file, open.  Raises StoreCorrupt."""
        with self._opening:
            found = self._open.pop(number, None)
            if found is None:
                part = self.parts[number]
                found = PartFile(self._directory.location(self.files[number + 1]), part)
                if len(self._open) >= _OPEN:
                    del self._open[next(iter(self._open))]
            self._open[number] = found
        return found

    def read(self, ranges: Sequence[tuple[int, int]], columns: Sequence[str], count: Callable[[int], None]) -> pa.Table:
        """Columns of the rows in ranges of the lake's buckets (ascending, both ends in), by nothing; count: bytes.

        Rows of neighbouring buckets come too.  Each row group is read once.
        """
        tables = []
        for number, part in enumerate(self.parts):
            for low, high, groups in _joined(part, ranges):
                file = self.part(number)
                count(file.bytes_of(groups, columns))
                tables.append(file.read(columns, low, high))
        return pa.concat_tables(tables) if tables else None


def _joined(part: Part, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[int]]]:
    """Ranges of buckets and their row groups, those that share a group made one."""
    found: list[tuple[int, int, list[int]]] = []
    for low, high in ranges:
        groups = part.groups(low, high)
        if not groups:
            continue
        if found and groups[0] <= found[-1][2][-1]:
            before = found.pop()
            found.append((before[0], high, sorted({*before[2], *groups})))
        else:
            found.append((low, high, groups))
    return found
