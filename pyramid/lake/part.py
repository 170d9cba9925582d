"""One file of the lake: rows of consecutive ordinals, clustered by the bucket of their key.

A file holds the rows of one time range, sorted by (bucket, ordinal), where bucket = the top `bits` bits of
the key's hash (`nile.summaries.hashing`; null keys hash to 0).  Three columns stand before the user's: `_ordinal`
int64 (the tuple's place in its stream), `_ts` int64 (event time, ns) and `_bucket` int32.  Row groups are
small, so a range of buckets is a few row groups.  Parquet does not notice flipped bits, and a mutated footer
can crash its reader: the digests of the footer and of every column chunk are kept outside, in the lake's
manifest, and checked before the bytes are parsed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nile.summaries.errors import KeyTypeError, StoreCorrupt, StoreWriteError
from nile.summaries.hashing import KeyHasher, hash_keys
from nile.summaries.heavy import pa, pq

__all__ = [
    "BUCKET",
    "ORDINAL",
    "OWN",
    "TS",
    "Part",
    "PartFile",
    "buckets_of",
    "pack_parts",
    "unpack_parts",
    "unwritten",
    "write_part",
]

Array = np.ndarray[Any, Any]
ORDINAL, TS, BUCKET = "_ordinal", "_ts", "_bucket"
OWN = (ORDINAL, TS, BUCKET)
MAX_BITS = 16
_MAGIC = b"PAR1"
_TAIL = 8  # the footer's length and the magic, at the very end


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What the manifest knows of a file, so that none has to be opened to be chosen.

    name: path from the stream's directory.  rows, bytes.  first, last: ordinals.  since, until: event times,
    ns.  low, high: buckets.  All ends are inside.  footer: bytes of the Parquet footer; footer_digest: of
    these, hex.  group_rows int64[g], group_low and group_high int32[g]: rows and buckets of each row group.
    digests uint64[g, c]: of each column chunk, the three own columns first.
    """

    name: str
    rows: int
    bytes: int
    first: int
    last: int
    since: int
    until: int
    low: int
    high: int
    footer: int
    footer_digest: str
    group_rows: Array
    group_low: Array
    group_high: Array
    digests: Array

    def named(self, name: str) -> Part:
        """The same file under another name."""
        return replace(self, name=name)

    def groups(self, low: int, high: int) -> list[int]:
        """The row groups that may hold rows of the buckets [low, high]."""
        return [int(g) for g in np.flatnonzero((self.group_high >= low) & (self.group_low <= high))]


_NUMBERS = ("rows", "bytes", "first", "last", "since", "until", "low", "high", "footer")
_ARRAYS = {"group_rows": np.int64, "group_low": np.int32, "group_high": np.int32, "digests": np.uint64}


def pack_parts(parts: Sequence[Part]) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Parts as JSON values and four arrays, for an envelope."""
    listed = [
        {"name": part.name, "footer_digest": part.footer_digest, "groups": len(part.group_rows)}
        | {name: getattr(part, name) for name in _NUMBERS}
        | {"columns": part.digests.shape[1]}
        for part in parts
    ]
    arrays = {
        name: np.concatenate([np.zeros(0, kind), *(getattr(part, name).ravel() for part in parts)])
        for name, kind in _ARRAYS.items()
    }
    return listed, arrays


def unpack_parts(listed: Sequence[Mapping[str, Any]], arrays: Mapping[str, Array]) -> list[Part]:
    """The inverse of `pack_parts`.  Raises KeyError, TypeError or ValueError for what that never gave."""
    parts, group, chunk = [], 0, 0
    for entry in listed:
        groups, columns = int(entry["groups"]), int(entry["columns"])
        within = slice(group, group + groups)
        digests = arrays["digests"][chunk : chunk + groups * columns].reshape(groups, columns)
        group, chunk = group + groups, chunk + groups * columns
        numbers = {name: int(entry[name]) for name in _NUMBERS}
        part = Part(
            name=str(entry["name"]),
            footer_digest=str(entry["footer_digest"]),
            group_rows=arrays["group_rows"][within],
            group_low=arrays["group_low"][within],
            group_high=arrays["group_high"][within],
            digests=digests,
            **numbers,
        )
        if len(part.group_high) != groups or int(part.group_rows.sum()) != part.rows:
            raise ValueError(f"{part.name} has {part.rows} rows and row groups of {int(part.group_rows.sum())}")
        parts.append(part)
    return parts


def buckets_of(keys: pa.Array, bits: int, *, hasher: KeyHasher | None = None, where: str = "lake") -> Array:
    """The bucket of every key: the top `bits` (1 to 16) bits of its hash.  uint16 [n].  Raises KeyTypeError."""
    hashes = hash_keys(keys, hasher, where=where)
    return (hashes >> np.uint64(64 - bits)).astype(np.uint16)


def write_part(
    path: Path,
    ordinals: Array,
    ts: Array,
    rows: pa.RecordBatch | pa.Table,
    key: str,
    *,
    bits: int = 12,
    group_rows: int = 65_536,
    name: str | None = None,
    hasher: KeyHasher | None = None,
    sync: bool = True,
) -> Part:
    """Writes rows in any order as one file of the lake at `path`, which must not exist in a manifest yet.

    ordinals, ts: int64 [n], n >= 1.  rows: the user's columns, n rows, none of them nested.  key: the
    clustering column.  name: what the Part is called (default: `path`'s own).  hasher: of keyed hashes.
    sync: the bytes are on the disk when it returns (not yet the directory's entry for them).
    Cost: one sort of 16-bit buckets, one copy of the rows, the encoding: about 2 million rows of four
    columns a second.  Raises KeyTypeError (a key or column type that has no place here), StoreWriteError.
    """
    table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
    for column in table.schema:
        if pa.types.is_nested(column.type) or column.name in OWN:
            raise KeyTypeError(
                f"lake: column '{column.name}': needed plain columns not called {', '.join(OWN)}; got {column.type}; "
                "flatten or rename it"
            )
    table = table.combine_chunks()
    if len(ordinals) > 1 and not (ordinals[1:] > ordinals[:-1]).all():
        order = np.argsort(ordinals, kind="stable")
        ordinals, ts, table = ordinals[order], ts[order], table.take(pa.array(order))
    buckets = _bucketed(table.column(key), bits, hasher)
    order = np.argsort(buckets, kind="stable")  # of 16-bit numbers: a radix sort
    buckets = buckets[order].astype(np.int32)
    own = [pa.array(ordinals[order]), pa.array(ts[order]), pa.array(buckets)]
    sorted_rows = table.take(pa.array(order))
    whole = pa.table([*own, *sorted_rows.columns], names=[*OWN, *table.schema.names])
    try:
        _write(path, whole, group_rows)
        if sync:
            _sync(path)
        data = np.memmap(path, np.uint8, "r")
    except OSError as error:
        raise unwritten(path, error) from None
    footer = _footer_length(data.data, str(path))
    metadata = pq.read_metadata(path)
    digests = [
        [_digest64(data.data[begin:end]) for begin, end in _chunks(metadata, group)]
        for group in range(metadata.num_row_groups)
    ]
    edges = np.arange(0, len(buckets), group_rows)
    ends = np.minimum(edges + group_rows, len(buckets))
    return Part(
        name=name or path.name,
        rows=len(buckets),
        bytes=len(data),
        first=int(ordinals[0]),
        last=int(ordinals[-1]),
        since=int(ts.min()),
        until=int(ts.max()),
        low=int(buckets[0]),
        high=int(buckets[-1]),
        footer=footer,
        footer_digest=_digest(data.data[len(data) - footer :]),
        group_rows=(ends - edges).astype(np.int64),
        group_low=buckets[edges],
        group_high=buckets[ends - 1],
        digests=np.array(digests, np.uint64).reshape(len(edges), whole.num_columns),
    )


class PartFile:
    """A file of the lake, open for reading.  Nothing of it is parsed before its digest agrees.

    The file is mapped: what is not read costs nothing, and it stays readable while this is held, even if
    another process removes its name.
    """

    def __init__(self, path: Path, part: Part) -> None:
        """Checks length and footer.  Raises StoreCorrupt naming the file."""
        self.path, self.part = path, part
        try:
            length = os.stat(path).st_size
        except OSError as error:
            _corrupt(path, "a readable file", str(error))
        if length != part.bytes:
            _corrupt(path, f"{part.bytes:,} bytes", f"{length:,}")
        try:
            self._buffer = pa.memory_map(str(path)).read_buffer()
        except OSError as error:
            _corrupt(path, "a readable file", str(error))
        self._bytes = memoryview(self._buffer)
        if _digest(self._bytes[length - part.footer :]) != part.footer_digest:
            _corrupt(path, "the footer that was written", "other bytes")
        self._file = pq.ParquetFile(pa.BufferReader(self._buffer))
        self.columns: tuple[str, ...] = tuple(self._file.schema_arrow.names)
        self._checked = np.zeros(part.digests.shape, np.bool_)
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self._reading = threading.Lock()  # a reader of Arrow's is for one thread at a time

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file, the three own ones first."""
        return self._file.schema_arrow.remove_metadata()

    def bytes_of(self, groups: Sequence[int], columns: Sequence[str]) -> int:
        """How many bytes of the file reading these columns of these row groups takes."""
        at = [self.columns.index(name) for name in columns]
        spans = [self._span(group) for group in groups]
        return sum(span[column][1] - span[column][0] for span in spans for column in at)

    def check(self, groups: Sequence[int], columns: Sequence[int]) -> None:
        """Compares column chunks with their digests, each once.  Raises StoreCorrupt."""
        for group in groups:
            missing = [column for column in columns if not self._checked[group, column]]
            if not missing:
                continue
            spans = self._span(group)
            for column in missing:
                begin, end = spans[column]
                if _digest64(self._bytes[begin:end]) != int(self.part.digests[group, column]):
                    _corrupt(
                        self.path,
                        f"column '{self.columns[column]}' of row group {group} as it was written",
                        "other bytes",
                    )
                self._checked[group, column] = True

    def read(
        self,
        columns: Sequence[str],
        low: int = 0,
        high: int = (1 << MAX_BITS) - 1,
        groups: Sequence[int] | None = None,
    ) -> pa.Table:
        """The rows of the buckets [low, high] (default: all), by (bucket, ordinal), only `columns`.

        groups: only of these row groups, ascending.  Cost: the row groups that touch the range, about 65,536 rows
        each.  Raises StoreCorrupt, KeyError.
        """
        groups = self.part.groups(low, high) if groups is None else groups
        cut = any(self.part.group_low[g] < low or self.part.group_high[g] > high for g in groups)
        wanted = list(columns) + ([BUCKET] if cut and BUCKET not in columns else [])
        unknown = [name for name in wanted if name not in self.columns]
        if unknown:
            raise KeyError(f"{self.path}: no column {unknown[0]!r}; it has {', '.join(self.columns)}")
        at = [self.columns.index(name) for name in wanted]
        self.check(groups, at)
        # By place, not by name: Parquet would take 'a' for a prefix of 'a.b'.
        with self._reading:
            table = self._file.reader.read_row_groups(groups, column_indices=sorted(at), use_threads=False)
        if cut:
            buckets = table.column(BUCKET).to_numpy()
            begin, end = np.searchsorted(buckets, low, "left"), np.searchsorted(buckets, high, "right")
            table = table.slice(int(begin), int(end - begin))
        return table.select(list(columns)).replace_schema_metadata(None)

    def verify(self) -> None:
        """Compares every byte that holds data with its digest.  Raises StoreCorrupt."""
        self.check(range(len(self.part.group_rows)), range(len(self.columns)))

    def _span(self, group: int) -> list[tuple[int, int]]:
        if group not in self._spans:
            self._spans[group] = _chunks(self._file.metadata, group)
        return self._spans[group]


def _bucketed(keys: pa.ChunkedArray, bits: int, hasher: KeyHasher | None) -> Array:
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"a lake has 1 to {MAX_BITS} bits of buckets, not {bits}")
    chunks = [buckets_of(chunk, bits, hasher=hasher) for chunk in keys.chunks]
    return np.concatenate([np.zeros(0, np.uint16), *chunks])


def _write(path: Path, whole: pa.Table, group_rows: int) -> None:
    delta = {ORDINAL: "DELTA_BINARY_PACKED", TS: "DELTA_BINARY_PACKED"}
    pq.write_table(
        whole,
        path,
        row_group_size=group_rows,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in whole.schema.names if name not in delta],
        column_encoding=delta,
        store_schema=True,
        write_statistics=True,
    )


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _footer_length(data: memoryview, where: str) -> int:
    tail = bytes(data[len(data) - _TAIL :])
    if tail[4:] != _MAGIC:
        raise StoreWriteError(f"{where}: needed a Parquet file; got other bytes at its end; write it again")
    return int.from_bytes(tail[:4], "little") + _TAIL


def _chunks(metadata: Any, group: int) -> list[tuple[int, int]]:
    """Begin and end of every column chunk of a row group."""
    row_group = metadata.row_group(group)
    spans = []
    for column in range(metadata.num_columns):
        chunk = row_group.column(column)
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page:
            begin = min(begin, chunk.dictionary_page_offset)
        spans.append((begin, begin + chunk.total_compressed_size))
    return spans


def _digest(data: memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _digest64(data: memoryview) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def unwritten(path: Path, error: OSError, what: str = "a part of the lake") -> StoreWriteError:
    """The error for a file of the lake that the file system does not take."""
    limited = error.errno == errno.EFBIG
    mend = "raise the size that a file may have (ulimit -f)" if limited else "make room or mend the disk"
    return StoreWriteError(f"{path}: needed to write {what}; got: {error}; {mend}, then run it again")


def _corrupt(path: Path, needed: str, came: str) -> NoReturn:
    raise StoreCorrupt(
        f"{path}: needed {needed}; got {came}; it changed since it was written: copy it back, or build the lake again"
    )
