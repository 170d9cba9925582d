"""Rows in an order, however many: what memory holds is sorted and written, and sorted runs are merged.

Source: external merge sort (Knuth, The Art of Computer Programming 3, section 5.4), by blocks: of what is in memory of
all runs that is put out which no row on disk can come before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.spill import Spill, Spills
from nile.summaries.heavy import pa

__all__ = ["AT_ONCE", "CODES", "Sorter", "by_number", "footprint", "together"]

Array = np.ndarray[Any, Any]
Order = Callable[[pa.RecordBatch], Array]
AT_ONCE = 65_536
"""Rows of a batch that is put out."""
CODES = 64
"""Bytes a row, beside its own, that codes and places take while rows are sorted or told equal."""
_RUNS = 32
"""Runs that are merged at once."""
_STEP = 128
"""Of how many rows in memory one is looked at first, to see which of them can go."""


def footprint(batch: pa.RecordBatch) -> int:
    """Bytes that work on a batch takes."""
    return int(batch.nbytes) + CODES * int(batch.num_rows)


def together(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows in one batch."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


@dataclass(slots=True)
class _Run:
    """Rows in order on disk.  level: how often they have been merged; held: the next of them, in memory."""

    spill: Spill
    level: int
    held: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Have rows in memory; whether there are any."""
        while (self.held is None or not self.held.num_rows) and len(self.spill):
            self.held = self.spill.pop()
        return self.held is not None and self.held.num_rows > 0


class Sorter:
    """Takes rows and gives them in order, of equals that which came first.

    order: the places of a batch's rows in order, of equals that which came first; share: bytes of memory that rows may
    take while they are worked on; most: how many are wanted from the front, None for all.
    Cost: O(n log n), of n rows beyond memory each written once and once more for every factor of 32 beyond 32 shares.
    """

    def __init__(self, spills: Spills, schema: pa.Schema, order: Order, share: int, most: int | None = None) -> None:
        self._spills = spills
        self._schema = schema
        self._order = order
        self._share = share
        self._most = most
        self._waiting: list[pa.RecordBatch] = []
        self._taken = 0
        self._runs: list[_Run] = []
        self._rows_at_once = AT_ONCE

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows behind all others.  Raises MemoryRefused where the disk is full."""
        self._waiting.append(batch)
        self._taken += footprint(batch)
        if self._taken > self._share:
            self._put_by()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows in order; ask once."""
        if not self._runs:
            yield from _pieces(self._sorted())
            return
        if self._waiting:
            self._write(_pieces(self._sorted(), self._piece()), 0)
        while len(self._runs) > _RUNS:
            self._merge(len(self._runs) - _RUNS)
        left = self._most
        for batch in self._merged(self._runs):
            part = batch.slice(0, left)
            left = None if left is None else left - part.num_rows
            yield part
            if left == 0:
                return

    def _sorted(self) -> pa.RecordBatch:
        batch = together(self._waiting, self._schema)
        self._waiting, self._taken = [], 0
        return batch.take(pa.array(self._order(batch)[: self._most]))

    def _put_by(self) -> None:
        """What waits, in order: kept where few rows of it are wanted, else on disk."""
        rows = self._sorted()
        if self._most is not None and footprint(rows) <= self._share // 4:
            self._waiting, self._taken = [rows], footprint(rows)
            return
        self._write(_pieces(rows, self._piece(rows)), 0)
        while len(self._runs) >= _RUNS and self._runs[-_RUNS].level == self._runs[-1].level:
            self._merge(_RUNS - 1)

    def _piece(self, rows: pa.RecordBatch | None = None) -> int:
        """Rows of a run that are read at once: of all runs together a share."""
        if rows is not None and rows.num_rows:
            a_row = max(1, footprint(rows) // rows.num_rows)
            self._rows_at_once = int(np.clip(self._share // _RUNS // a_row, 16, AT_ONCE))
        return self._rows_at_once

    def _write(self, batches: Iterator[pa.RecordBatch], level: int) -> None:
        spill = self._spills.new(self._schema)
        for batch in batches:
            self._spills.put(spill, batch)
        self._runs.append(_Run(spill, level))

    def _merge(self, more: int) -> None:
        """The last run and so many before it become one (at most `_RUNS` together)."""
        count = min(more + 1, _RUNS)
        runs, self._runs = self._runs[-count:], self._runs[:-count]
        level = max(run.level for run in runs) + 1
        pieces = (part for batch in self._merged(runs) for part in _pieces(batch, self._piece()))
        self._write(pieces, level)

    def _merged(self, runs: list[_Run]) -> Iterator[pa.RecordBatch]:
        runs = [run for run in runs if run.fill()]
        while len(runs) > 1:
            yield from _pieces(self._next(runs))
            runs = [run for run in runs if run.fill()]
        for run in runs:
            while run.fill():
                assert run.held is not None
                yield run.held
                run.held = None

    def _next(self, runs: Sequence[_Run]) -> pa.RecordBatch:
        """The rows in memory, in order, that no row on disk comes before."""
        held = [run.held for run in runs if run.held is not None]
        ends = [(k, each.num_rows) for k, (run, each) in enumerate(zip(runs, held, strict=True)) if len(run.spill)]
        if not ends:
            for run in runs:
                run.held = None
            rows = together(held, self._schema)
            return rows.take(pa.array(self._order(rows)))
        tails = together([held[k].slice(n - 1) for k, n in ends], self._schema)
        last = ends[int(self._order(tails)[0])][0]  # whose end is least: behind it nothing is known
        chosen = self._candidates(held, last)
        rows = together([each.slice(0, n) for each, n in zip(held, chosen, strict=True)], self._schema)
        order = self._order(rows)
        begins = np.cumsum([0, *chosen])
        end = int(np.flatnonzero(order == begins[last + 1] - 1)[0]) + 1
        gone = np.searchsorted(np.sort(order[:end]), begins)
        for run, each, count in zip(runs, held, np.diff(gone).tolist(), strict=True):
            run.held = each.slice(count)
        return rows.take(pa.array(order[:end]))

    def _candidates(self, held: Sequence[pa.RecordBatch], last: int) -> list[int]:
        """How many rows of each run may come before the end of one, by every 128th of them."""
        places = [np.append(np.arange(_STEP - 1, each.num_rows - 1, _STEP), each.num_rows - 1) for each in held]
        probes = together([each.take(pa.array(at)) for each, at in zip(held, places, strict=True)], self._schema)
        begins = np.cumsum([0, *(at.shape[0] for at in places)])
        order = self._order(probes)
        end = int(np.flatnonzero(order == begins[last + 1] - 1)[0]) + 1
        before = np.diff(np.searchsorted(np.sort(order[:end]), begins))
        counts = []
        for each, at, count in zip(held, places, before.tolist(), strict=True):
            counts.append(int(at[count]) if count < at.shape[0] else each.num_rows)
        return counts


def by_number(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, at: int, spills: Spills, share: int
) -> Iterator[pa.RecordBatch]:
    """Rows by the whole numbers in one of their columns, the `at`-th."""

    def order(batch: pa.RecordBatch) -> Array:
        return np.argsort(batch.column(at).to_numpy(zero_copy_only=False), kind="stable")

    sorter = Sorter(spills, schema, order, share)
    for batch in batches:
        sorter.add(batch)
    yield from sorter.rows()


def _pieces(rows: pa.RecordBatch, size: int = AT_ONCE) -> Iterator[pa.RecordBatch]:
    for begin in range(0, rows.num_rows, size):
        yield rows.slice(begin, size)
