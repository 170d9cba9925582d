"""The rows of a table of sensors: each source's description, as it is now and as it was when a tuple arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nile.base.plain import plain_array
from nile.expressions.conditions import parse_condition
from nile.sensors.port import Port
from nile.sensors.queue import BUFFER
from nile.sensors.sensor import Sensor
from nile.streams.arrow import ArrowSource, rows_together
from nile.summaries.errors import ConfigError, SourceError
from nile.summaries.heavy import pa, pc

__all__ = ["TIME", "Rows", "SensorsSpec", "Table"]

TIME = "ts"
"""The implicit column of every table of sensors: when a tuple's value was taken, or received."""


@dataclass(frozen=True, slots=True)
class SensorsSpec:
    """What a table of sensors is.

    static: its columns, the stream's among them, whose values say where each source is found; stream: that column;
    fields: what a value has; kind: the class of its sources; lateness: ns that a tuple may lie behind the latest of
    the table; buffer: bytes of memory for rows that a query has not read yet; idle: ns of silence after which a
    standing query waits for the table no longer, None: it does.
    """

    name: str
    static: pa.Schema
    stream: str
    fields: pa.Schema
    kind: type[Sensor]
    lateness: int = 0
    buffer: int = BUFFER
    idle: int | None = None

    def check(self) -> None:
        """Raises ConfigError for names that come twice, and for streams without fields."""
        where = f"sensors '{self.name}'"
        names = [*self.static.names, *self.fields.names, TIME]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"{where}: needed one column of each name (there is always one called {TIME}); got '{twice}' twice; "
                "rename one"
            )
        if not self.fields.names:
            raise ConfigError(f"{where}: needed a stream with at least one field; got none; write STREAM(value DOUBLE)")

    @property
    def given(self) -> pa.Schema:
        """What sources give, as it waits for queries: version of the row (int64), ts (int64 ns), and where its source
        has got to with it, as JSON, in the last row of a read; then the fields."""
        return pa.schema([("version", pa.int64()), ("ts", pa.int64()), ("place", pa.string()), *self.fields])

    @property
    def schema(self) -> pa.Schema:
        """What a query sees: the static columns, the fields, the time."""
        return pa.schema([*self.static, *self.fields, pa.field(TIME, pa.timestamp("ns"))])


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows that there are or were, by number: a row that changes gets a new number.

    versions: static columns, [n]; current: the number of each row that there is now, by its identity.
    """

    versions: pa.RecordBatch
    current: Mapping[int, int]

    def now(self) -> pa.RecordBatch:
        """The rows that there are."""
        return self.versions.take(pa.array(self.current.values(), pa.int64()))


class Table:
    """A table of sensors: add, change and remove rows, also while queries run.  Made by CREATE SENSORS.

    changed: whom to tell of it; ports: the sources that run.  Every change costs O(rows).
    """

    def __init__(self, spec: SensorsSpec) -> None:
        spec.check()
        self.spec = spec
        self.rows = Rows(pa.RecordBatch.from_pylist([], schema=spec.static), {})
        self.changed: Callable[[], None] = lambda: None
        self.ports: Callable[[], Sequence[Port]] = list
        self._next = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<nile sensors '{self.spec.name}': {len(self)} rows>"

    def __len__(self) -> int:
        return len(self.rows.current)

    def add(self, rows: Any) -> int:
        """Add rows: dicts, a dict of columns, a table, a DataFrame; returns how many.  Missing columns are null.

        Raises SourceError.
        """
        new = self._typed(rows)
        with self._lock:
            versions, first = self._with(new)
            identities = range(self._next, self._next + new.num_rows)
            self._next += new.num_rows
            added = dict(zip(identities, range(first, versions.num_rows), strict=True))
            self.rows = Rows(versions, {**self.rows.current, **added})
        self.changed()
        return len(identities)

    def change(self, where: str | None = None, /, **values: Any) -> int:
        """Set columns of the rows that meet a condition; returns how many.  A source whose address changes restarts.

        Tuples that arrived before keep the row's old values.  Raises ExpressionError, UnknownColumn, SourceError.
        """
        unknown = next((name for name in values if name not in self.spec.static.names), None)
        if unknown is not None or not values:
            raise SourceError(
                f"sensors '{self.spec.name}', change: needed values for some of {', '.join(self.spec.static.names)}; "
                f"got {unknown or 'none'}"
            )
        with self._lock:
            chosen = self._chosen(where)
            old = self.rows.versions.take(pa.array(chosen.values(), pa.int64())).to_pylist()
            new = self._typed([{**row, **values} for row in old])
            versions, first = self._with(new)
            again = dict(zip(chosen, range(first, first + len(chosen)), strict=True))
            self.rows = Rows(versions, {**self.rows.current, **again})
        self.changed()
        return len(chosen)

    def remove(self, where: str | None = None) -> int:
        """Remove the rows that meet a condition (None: all); returns how many.  Their sources are closed."""
        with self._lock:
            chosen = self._chosen(where)
            left = {row: at for row, at in self.rows.current.items() if row not in chosen}
            self.rows = Rows(self.rows.versions, left)
        self.changed()
        return len(chosen)

    def sources(self) -> pa.Table:
        """Every source that a query reads, or did until the last one ended, in the order of rows.

        Its row's columns, its state ("starting", "open", "waiting" to be begun anew, "ended", "failed", "closed"), its
        last error, how often it was begun anew, and where its tuples went: in = applied + late + shed + rejected.
        """
        ports = self.ports()
        table = pa.Table.from_batches([self.rows.versions.take(pa.array([each.version for each in ports], pa.int64()))])
        table = table.append_column("state", pa.array([each.state for each in ports], pa.string()))
        table = table.append_column("error", pa.array([each.error for each in ports], pa.string()))
        table = table.append_column("restarts", pa.array([each.restarts for each in ports], pa.int64()))
        accounts = [each.accounting.as_dict() for each in ports]
        for name in ("tuples_in", "applied", "late", "shed", "rejected"):
            table = table.append_column(name, pa.array([each[name] for each in accounts], pa.int64()))
        return table

    def _chosen(self, where: str | None) -> dict[int, int]:
        current = self.rows.current
        if where is None:
            return dict(current)
        place = f"sensors '{self.spec.name}', where"
        condition = parse_condition(where, where=place)
        condition.check(self.spec.static, where=place)
        mask = pc.fill_null(condition.mask(self.rows.now()), False).to_numpy(zero_copy_only=False)
        return {row: at for (row, at), met in zip(current.items(), mask, strict=True) if met}

    def _with(self, new: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """All versions and these, and the number of the first of these."""
        old = self.rows.versions
        return pa.concat_batches([old, new]), old.num_rows

    def _typed(self, rows: Any) -> pa.RecordBatch:
        where = f"sensors '{self.spec.name}', rows"
        if isinstance(rows, list | tuple) and not rows:
            return pa.RecordBatch.from_pylist([], schema=self.spec.static)
        source = ArrowSource(rows_together(rows), name=where)
        unknown = next((name for name in source.schema.names if name not in self.spec.static.names), None)
        if unknown is not None:
            raise SourceError(f"{where}: needed columns among {', '.join(self.spec.static.names)}; got '{unknown}'")
        batches = [raw.batch for raw in source.batches(source.schema.names, 1 << 20)]
        return pa.concat_batches([self._columns(batch, where) for batch in batches]) if batches else self._typed([])

    def _columns(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        arrays = []
        for field in self.spec.static:
            at = batch.schema.get_field_index(field.name)
            try:
                array = pa.nulls(batch.num_rows, field.type) if at < 0 else plain_array(batch.column(at))
                arrays.append(array.cast(field.type))
            except pa.ArrowException as error:
                raise SourceError(
                    f"{where}: column '{field.name}' is {field.type}, got {batch.schema.field(at).type} that does not "
                    f"convert ({str(error).splitlines()[0]}); convert it first"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.spec.static)
