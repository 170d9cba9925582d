"""The stream manager: from a source's rows to a stream's tuples, typed, in order, every one accounted for.

    rows -> where (rows it does not select are no part of the stream) -> time and key -> order -> batches

A row is rejected, counted and kept for inspection when it has no columns, when a cell that `where` needs does not fit
its type, when `where` selects it and its time says nothing (see `times`) or its key does not fit. Null keys are tuples.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.durations import MAX_DURATION
from nile.base.plain import decoded
from nile.base.raw import RawBatch, check_columns
from nile.base.room import allowed_room
from nile.base.times import TIME_REASONS, check_time_type, event_times, instants
from nile.exact.state.columns import Columns, columns_of
from nile.exact.state.lent import lent, lent_together
from nile.expressions.conditions import Condition
from nile.streams.accounting import Accounting
from nile.streams.arrow import ArrowSource
from nile.streams.event_ids import DUPLICATE, Distinct, check_event_id, key_type_of
from nile.streams.files.coding import noted, part_of
from nile.streams.files.parquet import ParquetSource, is_kept
from nile.streams.files.pruning import Pruning, Test, batches_of, pruning_of
from nile.streams.order import CheckedOrder, Order, RepairedOrder, Run, joined
from nile.streams.quarantine import Admitted, Refused, refused_cells, refused_lines, refused_rows
from nile.streams.rowlog import RowLog
from nile.streams.source import CountedSource, open_source
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa, pc

_NO_ROWS = np.zeros(0, np.int64)
_LONG = 1 << 20
"""Rows of a file that are read at once where all of it is wanted."""
_SLOW = 0.05
"""Seconds of waiting for a source, from which on nothing that is in order waits for more of it."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What a stream is: a source, which columns are time and key, which rows belong to it.

    `source`: whatever `open_source` takes. `lateness`: nanoseconds of disorder to repair; None: any disorder is an
    error. `carry`: further columns that tuples keep; a cell that does not fit its column's type rejects the row, as in
    the key. `event_id`: one of `carry`, with a lateness; of tuples of one id and time only the first is applied.
    `hasher`: of its keys, wherever they are hashed. `threads`: how many its reading and its joins may use; None: all
    cores. `scratch`: the folder of files; None: the system's.
    """

    name: str
    source: Any
    time: str
    key: str
    where: Condition | None = None
    lateness: int | None = None
    carry: tuple[str, ...] = ()
    event_id: str | None = None
    hasher: KeyHasher = PUBLIC
    threads: int | None = None
    scratch: Path | None = None


@dataclass(frozen=True, slots=True)
class TupleBatch:
    """Consecutive tuples of one stream, in the total order (ts, arrival).

    `ordinal`: the place of the first one in the stream, from 0. `ts`: int64 nanoseconds, contiguous and writable.
    `key`: as many keys; may hold nulls, may be dictionary-encoded. `carried`: the columns of `StreamSpec.carry`,
    without dictionaries; None where there are none. `schema`: theirs, one object for all batches of a reading.
    `shared`: what `columns` has made.
    """

    ordinal: int
    ts: np.ndarray
    key: pa.Array
    carried: pa.RecordBatch | None = None
    schema: pa.Schema | None = field(default=None, repr=False, compare=False)
    shared: list[Columns] = field(default_factory=list, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def columns(self) -> Columns:
        """`carried`, made once for all who hear of the batch, after whom `shared` is cleared."""
        if not self.shared:
            self.shared.append(columns_of(self.carried, self.schema))
        return self.shared[0]


class StreamManager:
    """Reads one stream. About 25 million tuples per second where they arrive in order from Arrow."""

    def __init__(self, spec: StreamSpec) -> None:
        """Opens the source and checks the specification against its columns.

        Raises SourceMissing, SourceError, UnknownColumn, KeyTypeError, ExpressionError, ConfigError.
        """
        where = f"stream '{spec.name}'"
        if spec.lateness is not None and not 0 <= spec.lateness <= MAX_DURATION:
            raise ConfigError(f"{where}: needed a lateness of 0 to {MAX_DURATION} ns, got {spec.lateness}")
        self.spec = spec
        self.source = open_source(spec.source, name=where)
        schema = self.source.schema
        condition = spec.where.columns if spec.where else ()
        check_columns(schema, (spec.time, spec.key, *spec.carry), where=where)
        if spec.where:
            spec.where.check(schema, where=where)
        check_time_type(schema.field(spec.time).type, where=f"{where}: time column '{spec.time}'")
        self.key_type = key_type_of(schema.field(spec.key).type, f"{where}: key column '{spec.key}'")
        if spec.event_id is not None:
            check_event_id(schema.field(spec.event_id).type, where=f"{where}, event_id='{spec.event_id}'")
            if spec.lateness is None:
                raise ConfigError(
                    f"{where}, event_id: needed a lateness, within which an event may come again; got none; declare one"
                )
        self._columns = tuple(dict.fromkeys((spec.time, spec.key, *condition, *spec.carry)))
        self.threads, self.asked = spec.threads, None
        self._begin()

    threads: int | None
    """How many may decode columns of a file at once; None: as many as there are cores."""
    asked: Test | None
    """What is true of all rows whose values matter; of others their times and keys do."""
    accounting: Accounting
    """Where the tuples of the last reading went. Balanced at every moment."""
    _carried: pa.Schema

    @property
    def may_wait(self) -> bool:
        """Whether the source may still be making its rows: it cannot say how many there are."""
        return not isinstance(self.source, CountedSource) or self.source.rows is None

    def batches(self, rows: int = 65_536, *, at_once: bool = False) -> Iterator[TupleBatch]:
        """The stream's tuples in order, `rows` a batch (the last may be smaller).

        Of a source that was waited for, 50 ms or more for its next rows, what is in order comes at once, in smaller
        batches; at_once: also what comes first of a source that cannot say how much it has.  Which tuples come, and in
        which order, does not depend on how the source splits its rows.  Each call
        reads the source anew and starts the accounts anew.  Raises TimestampOrderError, SourceError.
        """
        if rows < 1:
            raise ConfigError(f"stream '{self.spec.name}': needed at least 1 row per batch, got {rows}")
        yield from self._batches(self.source, rows, at_once)

    def _batches(self, source: Any, rows: int, at_once: bool = False) -> Iterator[TupleBatch]:
        self._begin()
        late = self.spec.lateness
        order: Order = CheckedOrder(self.spec.name) if late is None else RepairedOrder(late, rows)
        waiting: list[Run] = []
        asked = time.monotonic()
        first = at_once and self.may_wait
        for raw in batches_of(source, self._columns, rows, self.threads, self._pruning()):
            slow, first = first or time.monotonic() - asked >= _SLOW, False
            due = self.take(self.admitted(raw, rows), order)
            if due is not None:
                waiting.append(due)
                yield from self._full(waiting, rows)
            if slow and (due := order.due()) is not None:
                waiting.append(due)
            if slow and any(map(len, waiting)):
                yield self.batch(joined(waiting))
                waiting = []
            asked = time.monotonic()
        due = order.finish()
        if due is not None:
            waiting.append(due)
            yield from self._full(waiting, rows)
        if waiting:
            yield self.batch(joined(waiting))

    def _pruning(self) -> Pruning | None:
        keep = (self.spec.time, self.spec.key, self.spec.event_id or self.spec.key)
        return pruning_of(self.source.schema, self.spec.where, self.asked, keep)

    @property
    def reads(self) -> str:
        """What `whole` reads: "Table" in memory, its times good and in order, what is "Kept", or the source's class."""
        if not (self.spec.where or self.spec.carry) and is_kept(self.source, self.spec.time, self.spec.key):
            return "Kept"
        return type(getattr(self.source, "file", self.source)).__name__ if self._in_order() is None else "Table"

    def _in_order(self) -> tuple[ArrowSource, np.ndarray] | None:
        """A table in memory and its times, where all of it is the stream's and in order."""
        spec, source = self.spec, self.source
        if spec.where is not None or spec.lateness is not None or not isinstance(source, ArrowSource):
            return None
        times = source.in_order(spec.time)
        return None if times is None else (source, times)

    def whole(self, rows: int = 65_536) -> Iterator[TupleBatch]:
        """As `batches`, for whoever takes the stream to its end: in batches of any length.

        Tables in memory come in the pieces that they are made of, and their times are looked at once for all readings.
        """
        known, spec = self._in_order(), self.spec
        if known is None and isinstance(self.source, ParquetSource) and allowed_room() is None:
            yield from self._whole_files(self.source, max(rows, _LONG))
            return
        if known is None:
            yield from self.batches(rows)
            return
        source, times = known
        self._begin()
        for piece in source.chunks(tuple(dict.fromkeys((spec.key, *spec.carry)))):
            key = piece.column(spec.key)
            if pa.types.is_dictionary(key.type) and len(key.dictionary) > rows:
                key = decoded(key)
            ts = times[self._next_ordinal : self._next_ordinal + len(piece)]
            yield self.batch(Run(ts, key, _NO_ROWS, _carried(piece, spec.carry) if spec.carry else None))

    def _whole_files(self, source: ParquetSource, rows: int) -> Iterator[TupleBatch]:
        """Files in long pieces: short ones cost more a row, and would be put together again.

        Times all good and in order, and keys of few bytes, are kept, and not read again while the files are unchanged.
        """
        spec, kind = self.spec, source.schema.field(self.spec.time).type
        if spec.key not in (*spec.carry, *(spec.where.columns if spec.where else ())):
            source = source.coded(spec.key)
        plain = spec.where is None and spec.lateness is None and pa.types.is_timestamp(kind)
        stamp = source.stamp if plain else None
        times, kept = source.times.get(spec.time, stamp), source.keys.get(spec.key, stamp)
        keeps_keys = stamp is not None and kept is None and spec.key != spec.time and self._pruning() is None
        keys: list[Any] | None = [] if keeps_keys else None
        if times is None:
            read = []
            for batch in self._batches(source, rows):
                read += [batch.ts] if stamp is not None else []
                keys = noted(keys, batch.key)
                yield batch
        else:
            self._begin()
            known = (spec.time,) if kept is None else (spec.time, spec.key)
            names = tuple(name for name in self._columns if name not in known or name in spec.carry)
            for at, columns in source.unchanged(stamp, names, rows, self.threads, self._pruning()):
                ts = times[at]
                if kept is not None:
                    key = part_of(kept, at.start or 0, len(ts))
                else:
                    key = columns.column(spec.key) if spec.key in names else instants(ts, kind)
                    keys = noted(keys, key)
                yield self.batch(Run(ts, key, _NO_ROWS, _carried(columns, spec.carry) if spec.carry else None))
        if stamp is None or self.accounting.rejected or source.stamp != stamp:
            return
        if times is None:
            source.times.put(spec.time, stamp, lent_together(read))
        if keys:
            source.keys.put(spec.key, stamp, pa.chunked_array(keys))

    def admitted(self, raw: RawBatch, largest_dictionary: int = 65_536) -> Admitted:
        """The rows that are tuples, and the broken ones; nothing changes before `take`."""
        self._refused.clear()
        run = self._admit(raw, largest_dictionary)
        refused = tuple(self._refused)
        self._refused.clear()
        return Admitted(raw, run, refused)

    def take(self, admitted: Admitted, order: Order) -> Run | None:
        """The tuples whose turn has come with these rows; broken, late and repeated ones are set aside and counted.

        Rows that break the order are refused whole: none of them is taken, counted or set aside.
        """
        self._refused[:] = admitted.refused
        run = admitted.run
        if self.spec.event_id is not None:
            assert isinstance(order, RepairedOrder)
            run = self._first_of_each(run, admitted.raw, *order.late(run.ts))
        due, late = order.push(run)
        for reasons, rows in self._refused:
            self.accounting.reject(reasons)
            self._rejected.append(rows)
        self._refused.clear()
        if late is not None:
            self._set_late(late)
        return due

    def batch(self, run: Run) -> TupleBatch:
        """Tuples whose turn has come, numbered and counted as applied."""
        ordinal = self._next_ordinal
        self._next_ordinal += len(run)
        self.accounting.apply(len(run))
        if run.carried is not None and not run.carried.schema.equals(self._carried):
            self._carried = run.carried.schema
        return TupleBatch(ordinal, lent(run.ts), run.key, run.carried, self._carried)

    def quarantine(self) -> pa.Table:
        """The rejected rows of the last reading: reason (text), row (int64, from 1 in the source), raw (text)."""
        return self._rejected.table()

    def late(self) -> pa.Table:
        """The late tuples of the last reading: row (int64, from 1 in the source), ts (timestamp[ns]), key."""
        return self._late.table()

    def go_on_from(self, ordinal: int, accounting: Accounting, late: pa.Table, rejected: pa.Table) -> None:
        """Be where another manager of the same stream was: the next ordinal, and all that was counted and set aside."""
        self._begin()
        self._next_ordinal = ordinal
        self.accounting = accounting
        for log, rows in ((self._late, late), (self._rejected, rejected)):
            for batch in rows.to_batches():
                log.append(batch)

    @property
    def next_ordinal(self) -> int:
        """How many tuples' turn has come."""
        return self._next_ordinal

    def _begin(self) -> None:
        self.accounting = Accounting()
        self.distinct = Distinct()
        self._next_ordinal = 0
        self._carried = pa.schema([])
        self._rejected = RowLog(pa.schema([("reason", pa.string()), ("row", pa.int64()), ("raw", pa.string())]))
        self._refused: list[Refused] = []
        self._late = RowLog(pa.schema([("row", pa.int64()), ("ts", pa.timestamp("ns")), ("key", self.key_type)]))

    def _full(self, waiting: list[Run], rows: int) -> Iterator[TupleBatch]:
        """Batches of exactly `rows` from the runs in `waiting`, which keeps the rest."""
        if sum(map(len, waiting)) < rows:
            return
        run = joined(waiting)
        stop = len(run) - len(run) % rows
        waiting[:] = [run.slice(stop, len(run))] if stop < len(run) else []
        for start in range(0, stop, rows):
            yield self.batch(run.slice(start, start + rows))

    def _admit(self, raw: RawBatch, largest_dictionary: int) -> Run:
        """The rows that are tuples; sets the broken ones aside."""
        spec = self.spec
        if raw.malformed:
            self._refused.append(refused_lines(raw))
        position = None
        if spec.where is not None:
            selected = pc.fill_null(spec.where.mask(raw.batch), False).to_numpy(zero_copy_only=False)
            broken = [name for name in spec.where.columns if name in raw.misfits]
            if broken:
                unknown = np.logical_or.reduce([raw.misfits[name] for name in broken])
                selected = selected & ~unknown
                self._reject_cells(raw, np.flatnonzero(unknown), broken)
            if not selected.all():
                position = np.flatnonzero(selected)
        time, key, rows = raw.batch.column(spec.time), raw.batch.column(spec.key), raw.rows
        carried = _carried(raw.batch, spec.carry) if spec.carry else None
        if position is not None:
            chosen = pa.array(selected)
            time, key, rows = time.filter(chosen), key.filter(chosen), rows[position]
            carried = None if carried is None else carried.filter(chosen)
        if pa.types.is_dictionary(key.type) and len(key.dictionary) > largest_dictionary:
            key = decoded(key)  # to merge or hash a large dictionary with every batch costs more than it saves
        times = event_times(time)
        ts, reason = times.ns, times.reason
        misfits = [name for name in dict.fromkeys((spec.time, spec.key, *spec.carry)) if name in raw.misfits]
        if reason is None and not misfits:
            return Run(ts, key, rows, carried)

        at = np.arange(len(raw.batch)) if position is None else position
        bad = np.zeros(len(at), bool) if reason is None else reason != 0
        misfit = np.zeros(len(at), bool)
        for name in misfits:
            misfit |= raw.misfits[name][at]
        self._reject_cells(raw, at[misfit], misfits)
        bad &= ~misfit
        if reason is not None and bad.any():
            reasons = [TIME_REASONS[code] for code in reason[bad]]
            self._refused.append(refused_rows(raw, at[bad], reasons))
        return Run(ts, key, rows, carried).where(~(bad | misfit))

    def _first_of_each(self, run: Run, raw: RawBatch, late: np.ndarray, watermark: int) -> Run:
        """The run without tuples that came before, which are set aside."""
        assert run.carried is not None
        again = self.distinct.repeated(run.ts, run.carried.column(self.spec.event_id), late, watermark)
        if not again.any():
            return run
        at = np.searchsorted(raw.rows, run.row[again])
        self._refused.append(refused_rows(raw, at, [DUPLICATE] * len(at)))
        return run.where(~again)

    def _reject_cells(self, raw: RawBatch, at: np.ndarray, columns: list[str]) -> None:
        if len(at):
            self._refused.append(refused_cells(raw, at, columns, self.spec.time))

    def _set_late(self, late: Run) -> None:
        self.accounting.arrive_late(len(late))
        key = late.key.cast(self.key_type)
        columns = [pa.array(late.row), pa.array(late.ts).cast(pa.timestamp("ns")), key]
        self._late.append(pa.RecordBatch.from_arrays(columns, names=["row", "ts", "key"]))


def _carried(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """The columns `names`, without dictionaries, which differ from batch to batch."""
    return pa.RecordBatch.from_arrays([decoded(batch.column(name)) for name in names], names=list(names))
