"""Rows and key index of a cold segment, with the behaviour of the warm ones and at the cost of decoding Parquet."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nile.pyramid.history.cold import BITS, ColdSegment
from nile.pyramid.history.hot_rows import Rows, select
from nile.pyramid.history.key_digest import KeyDigest
from nile.pyramid.history.keys import Cell, Found, KeyIndex, Part
from nile.pyramid.history.opened import OpenIndex
from nile.pyramid.lake.key_sketch import IndexSketch
from nile.pyramid.lake.part import ORDINAL, TS
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

__all__ = ["ColdIndex", "ColdRows"]

Array = np.ndarray[Any, Any]

_LOAD = 1 << 19  # tuples decoded at a time
_CACHE = 1 << 19  # tuples of cells kept


class _Loaded(NamedTuple):
    """A cell as decoded: hashes uint64 [k]; starts int64 [k + 1]; rows int64 [starts[k]] from the segment's first;
    values Arrow [k]."""

    hashes: Array
    starts: Array
    rows: Array
    values: pa.Array


class ColdIndex(KeyIndex):
    """A key index whose cells are in the lake.  Entries and places are numbered as they were in the warm tier.

    Memory: the digest is mapped; the last cells read are kept, up to half a million tuples.
    """

    tier = "cold"

    def __init__(self, segment: ColdSegment, hasher: KeyHasher) -> None:
        s = self.segment = segment
        super().__init__(s.column, s.first, s.tuples, s.since, s.until, s.buckets, s.keyed, s.keys)
        self._hasher = hasher
        self._summary: KeyDigest | IndexSketch | None = None
        self._cells: dict[int, _Loaded] = {}
        self._kept = 0
        self._keeping = threading.Lock()
        self._read_bytes = 0

    @property
    def summary(self) -> KeyDigest | IndexSketch:
        if self._summary is None:
            self._summary = self.segment.summary()
        return self._summary

    @property
    def entry_edges(self) -> Array:
        return self.segment.edges

    @property
    def nbytes(self) -> int:
        return sum(
            int(cell.hashes.nbytes + cell.starts.nbytes + cell.rows.nbytes + cell.values.nbytes)
            for cell in list(self._cells.values())
        )

    @property
    def stored_bytes(self) -> int:
        return self.segment.file.length

    @property
    def bytes_read(self) -> int:
        """Compressed bytes decoded so far."""
        return self._read_bytes

    def cell_tuples(self) -> Array:
        counts: Array = np.diff(self.segment.weights)
        return counts

    def cell(self, bucket: int) -> Cell:
        self._check_bucket(bucket)
        self.reads += 1
        loaded = self._load([bucket])[bucket]
        found = Cell(
            self, loaded.hashes, loaded.starts, int(self.segment.edges[bucket]), int(self.segment.weights[bucket])
        )
        found.__dict__["positions"] = loaded.rows + self.first
        found.__dict__["values"] = loaded.values
        return found

    def look_up(self, hashes: Array) -> Found:
        found = Found(*(np.zeros(hashes.shape[0], np.int64) for _ in range(4)))
        owner = self.bucket_of(hashes)
        needed = np.unique(owner)
        self.reads += int(needed.shape[0])
        order = np.argsort(owner, kind="stable")
        cuts = np.searchsorted(owner[order], needed)[1:]
        which = dict(zip(needed.tolist(), np.split(order, cuts), strict=False))
        for buckets in self._portions(needed):
            for bucket, cell in self._load(buckets).items():
                at = which[bucket]
                low = np.searchsorted(cell.hashes, hashes[at], side="left")
                high = np.searchsorted(cell.hashes, hashes[at], side="right")
                found.entry[at] = low + self.segment.edges[bucket]
                found.entries[at] = high - low
                found.begin[at] = cell.starts[low] + self.segment.weights[bucket]
                found.end[at] = cell.starts[high] + self.segment.weights[bucket]
        return found

    def ordinals(self, begin: int, end: int) -> Array:
        return self._rows(begin, end) + self.first

    def _rows(self, begin: int, end: int) -> Array:
        weights = self.segment.weights
        if begin == end:
            return np.zeros(0, np.int64)
        low = int(np.searchsorted(weights, begin, side="right")) - 1
        high = int(np.searchsorted(weights, end, side="left"))
        pieces = []
        for buckets in self._portions(np.arange(low, high)):
            for bucket, cell in self._load(buckets).items():
                base = int(weights[bucket])
                pieces.append(cell.rows[max(begin - base, 0) : max(end - base, 0)])
        return np.concatenate(pieces)

    def values(self, entries: Array) -> pa.Array:
        kind = self.segment.schema.field(self.column).type
        owner = np.searchsorted(self.segment.edges, entries, side="right") - 1
        needed = np.unique(owner)
        parts: list[pa.Array] = []
        places: list[Array] = []
        for buckets in self._portions(needed):
            for bucket, cell in self._load(buckets).items():
                at = np.flatnonzero(owner == bucket)
                parts.append(cell.values.take(pa.array(entries[at] - self.segment.edges[bucket])))
                places.append(at)
        if not parts:
            return pa.array([], kind)
        back = np.empty(entries.shape[0], np.int64)
        back[np.concatenate(places)] = np.arange(entries.shape[0])
        return pa.concat_arrays(parts).take(pa.array(back))

    def part(self, low: int, high: int, buckets: int) -> Part:
        scale = self.buckets // buckets
        cells = list(self._load(list(range(low * scale, high * scale)), keep=False).values())
        counts = np.concatenate([np.diff(cell.starts) for cell in cells])
        return Part(
            np.concatenate([cell.hashes for cell in cells]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            lambda: np.concatenate([cell.rows for cell in cells]).astype(np.uint32),
            lambda: pa.concat_arrays([cell.values for cell in cells]),
        )

    def release(self) -> None:
        """Forget the cells read last."""
        with self._keeping:
            self._cells, self._kept = {}, 0

    def _portions(self, buckets: Array) -> list[list[int]]:
        """The same buckets, ascending, about `_LOAD` tuples at a time."""
        tuples = self.cell_tuples()[buckets]
        number = np.cumsum(tuples) // _LOAD
        return [part.tolist() for part in np.split(buckets, np.flatnonzero(np.diff(number)) + 1) if part.shape[0]]

    def _load(self, buckets: Sequence[int], *, keep: bool = True) -> dict[int, _Loaded]:
        """Cells by bucket, ascending: those kept, and the others from the lake."""
        with self._keeping:
            cells = {bucket: self._cells[bucket] for bucket in buckets if bucket in self._cells}
        missing = [bucket for bucket in buckets if bucket not in cells]
        if missing:
            cells |= self._decoded(missing)
        if keep:
            with self._keeping:
                self._keep({bucket: cells[bucket] for bucket in missing})
        return {bucket: cells[bucket] for bucket in buckets}

    def _keep(self, fresh: dict[int, _Loaded]) -> None:
        for bucket, cell in fresh.items():
            if bucket in self._cells:
                continue  # another reader was faster
            while self._cells and self._kept + cell.rows.shape[0] > _CACHE:
                self._kept -= self._cells.pop(next(iter(self._cells))).rows.shape[0]
            if cell.rows.shape[0] <= _CACHE:
                self._cells[bucket] = cell
                self._kept += cell.rows.shape[0]

    def _decoded(self, buckets: Sequence[int]) -> dict[int, _Loaded]:
        scale = (1 << BITS) // self.buckets
        ranges = [(bucket * scale, (bucket + 1) * scale - 1) for bucket in buckets]
        table = self.segment.read(ranges, [ORDINAL, self.column], self._count)
        kind = self.segment.schema.field(self.column).type
        opened = OpenIndex(self.column, kind, 0, self._hasher)
        rows = np.zeros(0, np.int64)
        if table is not None and len(table):
            ordinals = table.column(0).to_numpy()
            order = np.argsort(ordinals, kind="stable")
            rows = ordinals[order] - self.first
            keys = table.column(1).combine_chunks().take(pa.array(order))
            opened.append(keys if keys.type == kind else keys.cast(kind), where=f"column {self.column!r}")
        built = opened.build(0, 0)
        found = {}
        for bucket in buckets:
            bounds = np.array([bucket, bucket + 1], np.uint64) << np.uint64(self.shift & 63)
            low = 0 if bucket == 0 else int(np.searchsorted(built.hashes, bounds[0]))
            high = built.keys if bucket == self.buckets - 1 else int(np.searchsorted(built.hashes, bounds[1]))
            begin, end = int(built.starts[low]), int(built.starts[high])
            cell = _Loaded(built.hashes[low:high].copy(), built.starts[low : high + 1] - begin,
                           rows[built.rows[begin:end]], built.entry_values.slice(low, high - low))  # fmt: skip
            expected = self.segment.edges[bucket + 1] - self.segment.edges[bucket], self.cell_tuples()[bucket]
            if (high - low, end - begin) != expected:
                self.segment.pages.corrupt(f"cell {bucket}", "{} keys of {} rows".format(*expected),
                                           f"{high - low} of {end - begin} in the lake")  # fmt: skip
            found[bucket] = cell
        return found

    def _count(self, n: int) -> None:
        self._read_bytes += n


class _Decoded:
    """Columns of one part by name, rows in order; ORDINAL: the order instead."""

    def __init__(self, part: int) -> None:
        self.part = part
        self.columns: dict[str, pa.Array] = {}


class ColdRows(Rows):
    """The rows of a cold segment.  Reading some decodes the asked columns of the parts they lie in.

    Memory: the columns asked so far of the part read last.
    """

    tier = "cold"

    def __init__(self, segment: ColdSegment) -> None:
        self.segment = segment
        self.first, self.tuples = segment.first, segment.tuples
        self.since, self.until = segment.since, segment.until
        self._last = _Decoded(-1)

    @property
    def nbytes(self) -> int:
        return sum(int(column.nbytes) for column in list(self._last.columns.values()))

    @property
    def stored_bytes(self) -> int:
        return self.segment.stored_bytes - self.segment.file.length

    def times(self, begin: int, end: int) -> Array:
        pieces = [self._part(p, (TS,)).column(0).to_numpy()[low:high] for p, low, high in self._cut(begin, end)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def slice(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        return self._joined(
            [self._named(p, columns).slice(low, high - low) for p, low, high in self._cut(begin, end)], columns
        )

    def take(self, rows: Array, columns: Sequence[str]) -> pa.RecordBatch:
        return self._joined([self._named(p, columns).take(pa.array(at)) for p, at in self._by_part(rows)], columns)

    def times_of(self, rows: Array) -> Array:
        pieces = [self._part(p, (TS,)).column(0).to_numpy()[at] for p, at in self._by_part(rows)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def before(self, ts: int, *, inclusive: bool) -> int:
        for p, part in enumerate(self.segment.parts):
            if part.until > ts or (part.until == ts and not inclusive):
                times = self._part(p, (TS,)).column(0).to_numpy()
                return int(self.segment.firsts[p]) + int(
                    np.searchsorted(times, ts, side="right" if inclusive else "left")
                )
        return self.tuples

    def release(self) -> None:
        """Forget the part read last."""
        self._last = _Decoded(-1)

    def _cut(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        found = []
        for p, part in enumerate(self.segment.parts):
            base = int(self.segment.firsts[p])
            low, high = max(begin - base, 0), min(end - base, part.rows)
            if low < high:
                found.append((p, low, high))
        return found

    def _by_part(self, rows: Array) -> list[tuple[int, Array]]:
        owner = np.searchsorted(self.segment.firsts, rows, side="right") - 1
        pieces = np.split(rows, np.flatnonzero(np.diff(owner)) + 1)
        return [
            (p, piece - self.segment.firsts[p])
            for piece in pieces
            if piece.shape[0]
            for p in (int(np.searchsorted(self.segment.firsts, piece[0], side="right")) - 1,)
        ]

    def _named(self, p: int, columns: Sequence[str]) -> pa.RecordBatch:
        return select(self._part(p, tuple(columns) or (TS,)), columns)

    def _part(self, p: int, columns: tuple[str, ...]) -> pa.RecordBatch:
        """Columns of a part, rows in order."""
        last = self._last
        if last.part != p:
            last = self._last = _Decoded(p)
        missing = [name for name in (ORDINAL, *columns) if name not in last.columns]
        if missing:
            table = self.segment.part(p).read(missing)
            for name, column in zip(missing, table.columns, strict=True):
                plain = column.combine_chunks()
                if name == ORDINAL:
                    last.columns[ORDINAL] = pa.array(np.argsort(plain.to_numpy(), kind="stable"))
                    continue
                kind = pa.int64() if name == TS else self.segment.schema.field(name).type
                plain = plain.take(last.columns[ORDINAL])
                last.columns[name] = plain if plain.type == kind else plain.cast(kind)
        fields = [pa.field(name, pa.int64()) if name == TS else self.segment.schema.field(name) for name in columns]
        return pa.RecordBatch.from_arrays([last.columns[name] for name in columns], schema=pa.schema(fields))

    def _joined(self, parts: list[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
        if len(parts) == 1:
            return parts[0]
        if not columns:
            return select(pa.record_batch({"": np.zeros(sum(len(part) for part in parts), np.int8)}), ())
        schema = pa.schema([self.segment.schema.field(name) for name in columns])
        if not parts:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        return pa.Table.from_batches(parts, schema).combine_chunks().to_batches()[0]
