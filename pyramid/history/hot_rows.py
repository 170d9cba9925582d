"""Rows in memory: the newest of a stream, in order, as Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.summaries.heavy import pa

__all__ = ["HotRows", "Rows", "Tail", "alone"]

Array = np.ndarray[Any, Any]

PIECE = 4_096
"""Small batches are put together until they are so many rows."""
_LONG = 16_384
"""Rows of pieces that are put together no more: each time they are copied, into memory that is new."""
_LITTLE = 65_536
"""Bytes beyond a batch's own that do not matter."""


class Rows(ABC):
    """Rows first..first + tuples - 1 (ordinals) of a stream; never changes.  since, until: their first and last ts."""

    tier: str
    first: int
    tuples: int
    since: int
    until: int

    @property
    def end(self) -> int:
        """The ordinal after the last."""
        return self.first + self.tuples

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of anonymous memory held."""

    @property
    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def times(self, begin: int, end: int) -> Array:
        """ts of rows begin..end-1, counted from this part's first: int64 ns."""

    @abstractmethod
    def slice(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of rows begin..end-1, counted from this part's first."""

    @abstractmethod
    def take(self, rows: Array, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of some rows (int64 [n], ascending, counted from this part's first)."""

    def want(self, rows: Array, columns: Sequence[str]) -> None:  # noqa: B027
        """Have the disk bring what `take` of the same reads, where that is to be read: it comes meanwhile."""

    @abstractmethod
    def times_of(self, rows: Array) -> Array:
        """ts of some rows (int64 [n], ascending, counted from this part's first): int64 [n] ns."""

    @abstractmethod
    def before(self, ts: int, *, inclusive: bool) -> int:
        """How many rows have a ts less than `ts` (or not above it, when inclusive)."""


class HotRows(Rows):
    """Rows as one record batch and their times."""

    tier = "hot"

    def __init__(self, first: int, ts: Array, batch: pa.RecordBatch) -> None:
        self.first = first
        self.tuples = ts.shape[0]
        self.ts = ts
        self.batch = batch
        self.since, self.until = int(ts[0]), int(ts[-1])

    @property
    def nbytes(self) -> int:
        return int(self.ts.nbytes) + int(self.batch.nbytes)

    @property
    def stored_bytes(self) -> int:
        return 0

    def times(self, begin: int, end: int) -> Array:
        return self.ts[begin:end]

    def slice(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        return select(self.batch, columns).slice(begin, end - begin)

    def take(self, rows: Array, columns: Sequence[str]) -> pa.RecordBatch:
        return taken(select(self.batch, columns), rows)

    def times_of(self, rows: Array) -> Array:
        return self.ts[rows]

    def before(self, ts: int, *, inclusive: bool) -> int:
        return int(np.searchsorted(self.ts, ts, side="right" if inclusive else "left"))


def select(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a batch, in this order; none keep the number of rows."""
    if columns:
        return batch.select(list(columns))
    return pa.RecordBatch.from_struct_array(
        pa.array([{}], pa.struct([])).take(pa.array(np.zeros(len(batch), np.int64)))
    )


def taken(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """Some rows of a batch (int64 [n])."""
    return batch.take(pa.array(rows, pa.int64()))


def alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in memory of which it holds little else: a slice would keep all of what it was cut from."""
    if batch.num_rows < PIECE or batch.get_total_buffer_size() <= batch.nbytes + batch.nbytes // 8 + _LITTLE:
        return batch
    return together(batch.schema, [batch, batch.slice(0, 0)])


def together(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of many, in memory of its own."""
    if len(batches) == 1:
        batch = batches[0]
        if batch.get_total_buffer_size() <= 2 * batch.nbytes + _LITTLE:
            return batch
        batches = [batch, batch.slice(0, 0)]
    columns = [pa.concat_arrays([batch.column(i) for batch in batches]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Tail:
    """The newest rows, from `first` on: pieces that double in size up to `_LONG`, so that batches cost little."""

    def __init__(self, schema: pa.Schema, first: int) -> None:
        self._schema = schema
        self.first = first
        self.tuples = 0
        self._pieces: list[HotRows] = []
        self._waiting: list[tuple[Array, pa.RecordBatch]] = []
        self._waiting_rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        waiting = sum(int(ts.nbytes) + int(batch.get_total_buffer_size()) for ts, batch in self._waiting)
        return waiting + sum(piece.nbytes for piece in self._pieces)

    def append(self, ts: Array, batch: pa.RecordBatch) -> None:
        """Take the next rows, of a batch that stands `alone`."""
        if ts.shape[0] >= PIECE:
            self._flush()
        self._waiting.append((ts, batch))
        self._waiting_rows += ts.shape[0]
        self.tuples += ts.shape[0]
        if self._waiting_rows >= PIECE:
            self._flush()

    def parts(self) -> list[HotRows]:
        """All rows, as few parts."""
        self._flush()
        return list(self._pieces)

    def sealed(self) -> list[HotRows]:
        """All rows, as parts that stay as they are: long ones where they lie, shorter neighbours as one."""
        self._flush()
        runs: list[list[HotRows]] = []
        for piece in self._pieces:
            if runs and piece.tuples < _LONG and runs[-1][-1].tuples < _LONG:
                runs[-1].append(piece)
            else:
                runs.append([piece])
        return [self._joined(run) for run in runs]

    def _flush(self) -> None:
        if not self._waiting:
            return
        first = self.first + self.tuples - self._waiting_rows
        if len(self._waiting) == 1 and self._waiting_rows >= PIECE:
            piece = HotRows(first, *self._waiting[0])
        else:
            batch = together(self._schema, [batch for _, batch in self._waiting])
            piece = HotRows(first, np.concatenate([ts for ts, _ in self._waiting]), batch)
        at = len(self._pieces)
        size = piece.tuples
        while at and self._pieces[at - 1].tuples <= min(2 * size, _LONG - size):
            at -= 1
            size += self._pieces[at].tuples
        pieces = [*self._pieces[:at], self._joined([*self._pieces[at:], piece])]
        # At once: whoever only reads is interrupted anywhere, and has lost no rows and doubled none.
        self._pieces, self._waiting, self._waiting_rows = pieces, [], 0

    def _joined(self, pieces: list[HotRows]) -> HotRows:
        if len(pieces) == 1:
            return pieces[0]
        batch = together(self._schema, [piece.batch for piece in pieces])
        return HotRows(pieces[0].first, np.concatenate([piece.ts for piece in pieces]), batch)
