"""A stream of the lake in order: its files hold consecutive tuples, but inside they are clustered by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.history.history import plain_batch
from nile.pyramid.lake.lake import ORDINAL, TS, Part, PartFile
from nile.summaries.errors import StoreCorrupt
from nile.summaries.heavy import pa

__all__ = ["InOrder", "Rows", "Taking", "parts_between", "spans_of"]

Array = np.ndarray[Any, Any]
Rows = tuple[Array, "pa.RecordBatch"]


def parts_between(parts: Sequence[Part], begin: int, end: int) -> list[Part]:
    """The parts that may hold tuples begin..end-1."""
    return [part for part in parts if part.first < end and part.last >= begin]


def spans_of(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts in order, those together that share a range of ordinals."""
    spans: list[list[Part]] = []
    reached = -1
    for part in sorted(parts, key=lambda one: (one.first, one.last)):
        if part.first > reached:
            spans.append([])
        spans[-1].append(part)
        reached = max(reached, part.last)
    return spans


class Taking:
    """Consecutive tuples, to be taken a run at a time.  pieces: (ts int64 [n] ns, columns), of any lengths."""

    def __init__(self, pieces: Iterator[Rows]) -> None:
        self._pieces = pieces
        self._rest: Rows | None = None

    def take(self, rows: int) -> Iterator[Rows]:
        """The next `rows` tuples."""
        while rows > 0:
            ts, batch = self._rest or next(self._pieces)
            n = min(rows, ts.shape[0])
            self._rest = (ts[n:], batch.slice(n)) if n < ts.shape[0] else None
            yield ts[:n], batch.slice(0, n)
            rows -= n


class InOrder(Taking):
    """Tuples begin..end-1 of a stream, some columns, in order.

    stream: its directory; parts: at least those that hold them; schema: of the columns, plain.
    Memory: the parts of one range of ordinals, 2 million rows where `ingest` wrote them.  Each is read once.
    Raises StoreCorrupt, naming the file, for bytes that are not those written or tuples that are not there.
    """

    def __init__(self, stream: Path, parts: Sequence[Part], schema: pa.Schema, begin: int, end: int) -> None:
        self._stream, self._schema = stream, schema
        self._begin, self._end = begin, end
        super().__init__(self._read(parts_between(parts, begin, end)))

    def _read(self, parts: Sequence[Part]) -> Iterator[Rows]:
        at = self._begin
        for span in spans_of(parts):
            end = min(self._end, max(part.last for part in span) + 1)
            ts, table = self._ordered(span, at, end)
            done = 0
            for batch in table.to_batches():
                yield ts[done : done + len(batch)], plain_batch(batch, self._schema)
                done += len(batch)
            at = end
        if at < self._end:
            self._incomplete(self._stream, at)

    def _ordered(self, span: Sequence[Part], begin: int, end: int) -> tuple[Array, pa.Table]:
        """Tuples begin..end-1, all of which the parts of a span hold."""
        tables = [self._inside(part, begin, end) for part in span]
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        table = table.combine_chunks()
        at = table.column(0).to_numpy() - begin
        order = np.full(end - begin, -1, np.int64)
        order[at] = np.arange(at.shape[0])
        if at.shape[0] != end - begin or (order < 0).any():
            self._incomplete(self._stream / span[0].name, begin + int(np.argmin(order)))
        ts: Array = table.column(1).to_numpy()[order]
        return ts, table.select(range(2, table.num_columns)).take(pa.array(order)).combine_chunks()

    def _inside(self, part: Part, begin: int, end: int) -> pa.Table:
        table = PartFile(self._stream / part.name, part).read([ORDINAL, TS, *self._schema.names])
        if part.first >= begin and part.last < end:
            return table
        ordinals = table.column(0).to_numpy()
        return table.filter(pa.array((ordinals >= begin) & (ordinals < end)))

    def _incomplete(self, where: Path, ordinal: int) -> None:
        raise StoreCorrupt(
            f"{where}: needed tuple {ordinal:,} of the stream; it is in no file, or in two; copy the lake's files back"
        )
