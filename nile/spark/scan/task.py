"""What a task of a scan does: reads a partition of the lake, joins it, and gives what the query selects of it.

A task gets the query and its wave's partitions with its closure, reads row groups itself (their digests are checked
before they are parsed), and gives Arrow streams as bytes: no row is pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.execution.approximate.shape import Shape
from nile.execution.progress.input import renamed
from nile.execution.progress.output import Found
from nile.execution.values import filtered
from nile.expressions.evaluate import evaluate_mask
from nile.expressions.tree import Node
from nile.pyramid.lake.part import TS, PartFile
from nile.spark.scan.groups import added, partial, thinned
from nile.spark.scan.partitions import Cell, Work
from nile.sql.plan import Stream
from nile.summaries.hashing import KeyTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import history_kernels
    from nile.spark.scan import kernels
else:
    kernels = lazy("nile.spark.scan.kernels")
    history_kernels = lazy("nile.pyramid.history.history_kernels")

__all__ = ["WAVE_ROWS", "ScanTask", "TaskSide"]

Array = np.ndarray[Any, Any]

WAVE_ROWS = "place bigint, outputs bigint, left bigint, right bigint, batch binary"
"""A row per batch found; the first of each place also says how many tuples of each side it answers for."""
CHUNK = 65_536
"""Pairs worked on at a time."""
_ALL = 1 << 62  # no window: more than any two times are apart


@dataclass(frozen=True, slots=True)
class TaskSide:
    """One side.

    path, schema: the stream's directory and columns.  registered: a condition over its own columns; where: the query's.
    """

    path: Path
    stream: Stream
    schema: pa.Schema
    key: str
    columns: tuple[str, ...]
    registered: Node | None
    where: Node | None
    since: int | None
    until: int | None


class _Read(NamedTuple):
    """Tuples of one side: columns as the plan names them, keys, times (ns); own: not read for the window alone."""

    rows: pa.RecordBatch
    key: pa.Array
    ts: Array
    own: int


class _Keyed(NamedTuple):
    """Tuples of one side by key: starts int64 [keys + 1] of each key's places, row of each place, times by place."""

    codes: Array
    starts: Array
    rows: Array
    ts: Array


class _Matches(NamedTuple):
    """Of every left tuple the places [begin, end) of its matches; rows: the right tuple at each place.

    counts: under asc, of the tuples of both sides, `in_window`.
    """

    begin: Array
    end: Array
    rows: Array
    counts: tuple[Array, ...]

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return int((self.end - self.begin).sum())

    def chunks(self) -> Iterator[tuple[Array, Array]]:
        """(left tuple, place) of every pair, by left tuple, CHUNK at a time."""
        upto = np.cumsum(self.end - self.begin)
        total = int(upto[-1]) if len(upto) else 0
        for first in range(0, total, CHUNK):
            number = np.arange(first, min(total, first + CHUNK))
            row = np.searchsorted(upto, number, side="right")
            yield row, self.end[row] - (upto[row] - number)


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The pairs, or of one side the rows, of some partitions.

    works: of the wave.  window: ns or None (0 of one side); cap: under asc, else None.  residual: what else must
    be true of a pair or row.  counts: only how many pairs there are is asked.  room: rows per partition gives at most,
    None: all.
    """

    sides: tuple[TaskSide, ...]
    window: int | None
    cap: int | None
    residual: Node | None
    shape: Shape
    counts: bool
    room: int | None
    works: tuple[Work, ...]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over places in `works`: WAVE_ROWS out, the first of each place tells its tuples."""
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from self._partition(place)

    def _partition(self, place: int) -> Iterator[pa.RecordBatch]:
        work = self.works[place]
        read = [self._read(side, cells, work) for side, cells in zip(self.sides, work.cells, strict=True)]
        own = [*(each.own for each in read), 0][:2]
        group = self.shape.group
        found: Iterable[tuple[pa.RecordBatch | None, int]]
        if self.counts:
            found = [(None, self._matches(read[0], read[1], work.begin).size)]
        elif group is not None:
            chunks = [chunk for chunk in self._chunks(read, work.begin) if chunk.num_rows]
            found = []
            whole = added(group, (partial(group, chunk) for chunk in chunks))
            if whole is not None:
                whole = thinned(whole)
                found = [(whole.combine_chunks().to_batches()[0], sum(chunk.num_rows for chunk in chunks))]
        else:
            found = self._rows(read, work.begin)
        for batch, size in found:
            yield _row(place, size, own, batch)
            own = [0, 0]
        if any(own):
            yield _row(place, 0, own, None)

    def _rows(self, read: Sequence[_Read], begin: int | None) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Batches of what the query selects, and how many rows each has."""
        made, room = Found(self.shape), self.room
        for chunk in self._chunks(read, begin):
            out = made.made(chunk).slice(0, room)
            if out.num_rows:
                yield out, out.num_rows
            if room is not None:
                room -= out.num_rows
                if room == 0:
                    return

    def _read(self, side: TaskSide, cells: Sequence[Cell], work: Work) -> _Read:
        """The tuples of a side that take part."""
        least = None if work.begin is None or self.window is None else work.begin - self.window
        bounds = [each for each in (side.since, least) if each is not None]
        since = max(bounds) if bounds else None
        parts, times = [], []
        for cell in cells:
            table = PartFile(side.path / cell.part.name, cell.part).read(side.columns, cell.low, cell.high, cell.groups)
            ts = table.column(TS).to_numpy()
            keep = np.ones(len(ts), np.bool_)
            if since is not None:
                keep &= ts >= since
            if side.until is not None:
                keep &= ts <= side.until
            if work.end is not None:
                keep &= ts < work.end
            parts.append(table if keep.all() else table.filter(pa.array(keep)))
            times.append(ts[keep])
        names = [name for name in side.columns if name != TS]
        ts = np.concatenate([np.zeros(0, np.int64), *times])
        own = len(ts) if work.begin is None else int((ts >= work.begin).sum())
        whole = pa.concat_tables(parts) if parts else side.schema.empty_table()
        plain = pa.RecordBatch.from_arrays([_array(whole.column(name)) for name in names], names=names)
        rows = renamed(side.stream, plain.columns, names)
        for condition, asked in ((side.registered, plain), (side.where, rows)):
            if condition is None or not len(ts):
                continue
            mask = evaluate_mask(condition, asked).fill_null(False)
            plain, rows, ts = plain.filter(mask), rows.filter(mask), ts[mask.to_numpy(zero_copy_only=False)]
        return _Read(rows, plain.column(names.index(side.key)), ts, own)

    def _chunks(self, read: Sequence[_Read], begin: int | None) -> Iterator[pa.RecordBatch]:
        """Pairs (of one side, rows) that meet all conditions, CHUNK at a time, as the plan names their columns."""
        if len(read) == 1:
            for at in range(0, read[0].rows.num_rows, CHUNK):
                yield self._kept(read[0].rows.slice(at, CHUNK))
            return
        left, right = read
        found = self._matches(left, right, begin)
        for row, place in found.chunks():
            match = found.rows[place]
            if self.cap is not None:
                later = right.ts[match] >= left.ts[row]
                keep = np.where(later, found.counts[1][match], found.counts[0][row]) <= self.cap
                row, match = row[keep], match[keep]
            taken = [each.rows.take(pa.array(at)) for each, at in ((left, row), (right, match))]
            columns = [column for each in taken for column in each.columns]
            names = [name for each in taken for name in each.schema.names]
            yield self._kept(pa.RecordBatch.from_arrays(columns, names=names))

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.residual is None else filtered(self.residual, batch)

    def _matches(self, left: _Read, right: _Read, begin: int | None) -> _Matches:
        table = KeyTable()
        codes = [table.encode(each.key).codes for each in (left, right)]
        one, other = (_keyed(c, each.ts, table.known) for c, each in zip(codes, (left, right), strict=True))
        window = _ALL if self.window is None else self.window
        floor = -(1 << 63) if begin is None else begin
        first, last = np.empty((2, len(codes[0])), np.int64)
        if self.cap is None:
            kernels.matches(codes[0], left.ts, floor, window, other.starts, other.ts, first, last)
            return _Matches(first, last, other.rows, ())
        late = int(self.sides[0].stream.position > self.sides[1].stream.position)
        counts = (_counted(one, other, window, late), _counted(other, one, window, 1 - late))
        kernels.rare_matches(codes[0], left.ts, counts[0], self.cap, floor, window, other.starts, other.ts, first, last)
        return _Matches(first, last, other.rows, counts)


def _keyed(codes: Array, ts: Array, keys: int) -> _Keyed:
    """A side's tuples by key, each key's in their order."""
    place = np.arange(keys, dtype=np.int64)
    starts = np.zeros(keys + 1, np.int64)
    history_kernels.count_entries(codes, place, starts)
    rows = np.empty(int(starts[-1]), np.uint32)
    history_kernels.rows_by_key(codes, place, starts[:-1].copy(), rows)
    return _Keyed(codes, starts, rows, ts[rows])


def _counted(own: _Keyed, other: _Keyed, window: int, late: int) -> Array:
    """`in_window` of every tuple of a side; 0 of those without a key."""
    by_place = np.empty(len(own.rows), np.int64)
    kernels.in_window(
        own.codes[own.rows], own.ts, window, own.starts, own.ts, other.starts, other.ts, late, by_place
    )  # fmt: skip
    counts = np.zeros(len(own.codes), np.int64)
    counts[own.rows] = by_place
    return counts


def _row(place: int, outputs: int, own: Sequence[int], batch: pa.RecordBatch | None) -> pa.RecordBatch:
    data = None
    if batch is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue().to_pybytes()
    counts = {"place": [place], "outputs": [outputs], "left": [own[0]], "right": [own[1]]}
    return pa.record_batch({**counts, "batch": pa.array([data], pa.binary())})


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
