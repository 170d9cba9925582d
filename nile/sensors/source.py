"""A table of sensors as a query reads it: its static rows, or a stream of its sources' values."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.raw import RawBatch, check_columns
from nile.expressions.tree import Logic, Node, columns_of, conjunction, conjuncts
from nile.sensors.manager import SensorManager
from nile.sensors.queue import Queue
from nile.sensors.scan import Scan, chosen
from nile.sensors.table import TIME, SensorsSpec, Table
from nile.streams.arrow import ArrowSource
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["SensorsSource"]

_GATHER = 0.055
"""Seconds of gathering rows for a reader: from 50 ms on, what there is is given on at once, not in full batches."""


_BEFORE = 3
"""Columns of what waits for queries before the fields (`SensorsSpec.given`)."""


class _Held:
    """What a reading holds while it goes on, and nobody else does."""


@dataclass(frozen=True, slots=True)
class SensorsSource:
    """The source of a table of sensors, or of those of its rows that meet a condition.

    Reading it opens the sources of these rows, ends when all of them have, and closes them when the reader stops.
    """

    table: Table
    manager: SensorManager
    condition: Node | None = None

    @classmethod
    def of(cls, spec: SensorsSpec) -> SensorsSource:
        """A new table without rows.  Raises ConfigError."""
        table = Table(spec)
        return cls(table, SensorManager(table))

    @property
    def name(self) -> str:
        return f"sensors '{self.table.spec.name}'"

    @property
    def schema(self) -> pa.Schema:
        return self.table.spec.schema

    @property
    def static(self) -> tuple[str, ...]:
        """The columns that no source has to be opened for."""
        return tuple(self.table.spec.static.names)

    def stored(self) -> ArrowSource:
        """The rows as they are now, static columns only."""
        return ArrowSource(self.table.rows.now(), name=self.name)

    def narrowed(self, conditions: Sequence[Node | None]) -> SensorsSource:
        """Only rows for which a tuple may meet one of these conditions, as far as static columns say."""
        own = [self._static_part(each) for each in conditions]
        if not own or any(each is None for each in own):
            return self
        met = [each for each in own if each is not None]
        condition = met[0] if len(met) == 1 else Logic("OR", tuple(met))
        return SensorsSource(self.table, self.manager, condition)

    def counts(self) -> tuple[int, int]:
        """How many rows this reads the sources of, and how many there are."""
        rows = self.table.rows
        mask = chosen(rows, self.condition)
        return sum(bool(mask[at]) for at in rows.current.values()), len(rows.current)

    def scan(self, places: Mapping[str, Any] | None = None) -> Scan:
        """One reading, which has not begun; who keeps it can end it from another thread: `manager.close`.

        places: where sources go on that it begins, by address.
        """
        spec = self.table.spec
        return Scan(self.condition, Queue(spec.given, spec.buffer, where=self.name), places)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """What the sources give, as it comes.  Raises SourceError where every one of them failed."""
        return self.read(self.scan(), columns, rows)

    def read(self, scan: Scan, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """As `batches`, by a reading that somebody else may end."""
        start = 1
        for batch, _ in self.placed(scan, columns, rows):
            for at in range(0, max(batch.num_rows, 1), rows):
                piece = batch.slice(at, rows)
                yield RawBatch(piece, np.arange(start, start + piece.num_rows, dtype=np.int64))
                start += piece.num_rows

    def placed(self, scan: Scan, columns: Sequence[str], rows: int) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        """The same, each batch with where its sources are then, by address: those that tell it.

        What one call of a source gave is never parted, so rows that have been taken and places belong together; a batch
        may have more than `rows`.
        """
        check_columns(self.schema, columns, where=self.name)
        held = _Held()
        # Ctrl-C may come anywhere, before `try` and in `finally` too: then the reading ends with this frame.
        left = weakref.finalize(held, self.manager.close, scan)
        left.atexit = False
        given = 0
        try:
            self.manager.open(scan)
            for batch in _gathered(scan, rows):
                given += batch.num_rows
                yield self._with_static(batch, columns), self._places(batch)
            failed = [port for port in scan.past.values() if port.state == "failed"]
            if failed and len(failed) == len(scan.past) and not given:
                raise SourceError(
                    f"{self.name}: needed one source that gives something; got errors from all {len(failed)}, the "
                    f"first from {failed[0].address!r}: {failed[0].error}; db.sensors(name).sources() has all"
                )
        finally:
            self.manager.close(scan)
            left.detach()

    def _static_part(self, condition: Node | None) -> Node | None:
        known = set(self.static)
        return conjunction([each for each in conjuncts(condition) if known.issuperset(columns_of(each))])

    def _places(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """The last place of each source in a batch, by its address."""
        places = batch.column(2)
        if places.null_count == len(places):
            return {}
        marked = batch.select([0, 2]).filter(places.is_valid())
        addresses = self.table.rows.versions.column(self.table.spec.stream).take(marked.column(0))
        told = dict(zip(addresses.to_pylist(), marked.column(1).to_pylist(), strict=True))
        return {address: json.loads(place) for address, place in told.items() if address is not None}

    def _with_static(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        spec = self.table.spec
        static = [name for name in columns if name in spec.static.names]
        rows = self.table.rows.versions.select(static).take(batch.column(0)) if static else None
        arrays = []
        for name in columns:
            if name == TIME:
                arrays.append(batch.column(1).view(pa.timestamp("ns")))
            elif rows is not None and name in spec.static.names:
                arrays.append(rows.column(static.index(name)))
            else:
                arrays.append(batch.column(_BEFORE + spec.fields.names.index(name)))  # a field may be called version
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _gathered(scan: Scan, rows: int) -> Iterator[pa.RecordBatch]:
    """What comes in a query's queue, until its end: so many rows at once, or what came in 55 ms.

    Where nothing came in 55 ms after a full batch, an empty one says so: who reads may have kept back the rest of it.
    """
    parts: list[pa.RecordBatch] = []
    begun, last = time.monotonic(), None
    while True:
        left = begun + _GATHER - time.monotonic()
        batch = scan.queue.take(left) if left > 0 else None
        if batch is not None:
            parts.append(batch)
        elif left > 0 and not scan.queue.ended:
            continue
        if batch is None or sum(part.num_rows for part in parts) >= rows:
            if parts:
                last = pa.concat_batches(parts)
                yield last
                last = last if batch is not None else None
            elif last is not None and not scan.queue.ended:
                yield last.slice(0, 0)
                last = None
            elif scan.queue.ended:
                return
            parts, begun = [], time.monotonic()
