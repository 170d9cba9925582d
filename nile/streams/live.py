"""A live stream: tuples are pushed in, put in order, kept, and handed on to whoever listens.

    admitted: columns checked -> time and where        take: order (lateness) -> kept, and given to listeners

It is a source too: a query reads what is kept by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.base.cells import converted
from nile.base.plain import decoded_type, plain_schema
from nile.base.raw import RawBatch, check_columns
from nile.exact.state.lent import counted
from nile.expressions.conditions import Condition
from nile.pyramid.history.history import History
from nile.streams.accounting import Accounting
from nile.streams.arrow import ArrowSource, IterableSource, arrays_of, has_columns, rows_together
from nile.streams.live_state import Position, content_of, read_position
from nile.streams.manager import StreamManager, StreamSpec, TupleBatch
from nile.streams.order import CheckedOrder, RepairedOrder, Run
from nile.streams.quarantine import Admitted
from nile.summaries.errors import ConfigError, SourceError, UnknownColumn
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.summaries.envelope import Envelope

__all__ = ["Listener", "LiveStream"]

_ROWS = 131_072
SIGN = "_sign"
"""The column that tells rows that come (1) from rows that go (-1), in what standing queries emit."""


class Follower(Protocol):
    """Told of how far a stream has come, beside its tuples."""

    def advanced(self, now: int) -> None:
        """No tuple before `now` (ns) will come."""

    def ended(self) -> None:
        """No tuple will come."""


Listener = Callable[[str, TupleBatch], None]
"""Told of a stream's name and the tuples whose turn has come, all its columns carried."""


class LiveStream:
    """A stream that is pushed to.  Not safe for threads by itself: `nile.execution.live.live` holds one lock for all.

    schema: its columns; time: the event-time column; lateness: ns of disorder to repair, None: any disorder is an
    error; where: which rows belong to it; keep: ns of event time that later queries can still read, None: all.
    event_id: the column that tells events apart; what comes again within the lateness, with its id and time, is
    rejected.  idle: ns without a push after which the stream is silent (`nile.streams.idle`).  stamp: whether its time
    is when rows are pushed, by `clock` (ns since 1970), which is never taken to fall.  drops: whether columns that it
    does not have are dropped and counted; else rows that come with some are refused.
    history: where all of it is kept; None: a new one in memory.  With `keep` there is none.
    accounting: in = applied + late + shed + rejected at every moment; what still waits for its turn is not in yet.
    pushing: whether rows of a push still come.  base: the stream that this one is made of, with its tuples.  at_will:
    whether nobody waits for its next tuples: changes of a relation, which may never come.
    Raises UnknownColumn, SourceError, ExpressionError, ConfigError.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: str,
        *,
        lateness: int | None = None,
        where: Condition | None = None,
        keep: int | None = None,
        event_id: str | None = None,
        idle: int | None = None,
        stamp: bool = False,
        drops: bool = False,
        history: History | None = None,
        hasher: KeyHasher = PUBLIC,
    ) -> None:
        self.name = name
        self.schema = schema
        self.time = time
        self.keep = keep
        self.idle = idle
        self.stamp = stamp
        self.drops = drops
        self.clock: Callable[[], int] = time_ns
        self.silent = False
        if event_id is not None:
            check_columns(schema, [event_id], where=f"stream '{name}', event_id")
        spec = StreamSpec(name, self, time, time, where, lateness, tuple(schema.names), event_id)
        self._manager = StreamManager(spec)
        self._order = CheckedOrder(name) if lateness is None else RepairedOrder(lateness, 1)
        self.history = History(name, schema, hasher=hasher) if history is None and keep is None else history
        self._kept: list[TupleBatch] = []
        self._pushed = 0
        self._plain: bool | None = None
        self.listeners: list[Listener] = []
        self.followers: list[Follower] = []
        self.base: LiveStream | None = None
        self.passed: int | None = None
        self.closed = False
        self.pushing = False
        self.at_will = False

    @property
    def accounting(self) -> Accounting:
        """Where the tuples pushed so far went."""
        return self._manager.accounting

    @property
    def rows(self) -> int:
        """Tuples kept."""
        return sum(map(len, self._kept)) if self.history is None else self.history.tuples

    def late(self) -> pa.Table:
        """The tuples that came too late: row (from 1 in the order of pushing), ts, key (the time as it came)."""
        return self._manager.late()

    def quarantine(self) -> pa.Table:
        """The rejected rows: reason, row, raw."""
        return self._manager.quarantine()

    @property
    def pushed(self) -> int:
        """Rows pushed so far, those that still wait for their turn and those set aside too."""
        return self._pushed

    def admitted(self, data: Any) -> Iterator[Admitted]:
        """Rows that `take` can take: a record batch, a table, a DataFrame, a dict of columns, or an iterable of these.

        Columns may be in any order; each is converted to the stream's type or refused, and so is one that the stream
        does not have, unless it `drops` these.  Where
        `_sign` is no column of the stream, a row with another than 1 is refused: it would count as one that comes
        (`nile.execution.live.retracting` takes those with -1 apart before).
        Nothing changes, and all that is not ours (iterators, converters) runs here.
        Raises SourceError, UnknownColumn, ConfigError on a closed stream.
        """
        if self.closed:
            raise ConfigError(
                f"stream '{self.name}': needed an open stream to push to; got a closed one; make a new one"
            )
        if not (isinstance(data, list | tuple) and not data):
            yield from map(self._manager.admitted, self._rows(data))

    def admitted_raw(self, raw: RawBatch) -> Admitted:
        """As `admitted`, of rows with the stream's columns, numbered from 1, among them such as have none."""
        before = self._pushed
        malformed = [replace(bad, row=bad.row + before) for bad in raw.malformed]
        return self._manager.admitted(replace(raw, rows=raw.rows + before, malformed=malformed))

    @property
    def latest(self) -> int:
        """No tuple that was pushed so far, and is not late, is later than this, ns."""
        return int(self._order.position()[0])

    def check(self, parts: Sequence[Admitted]) -> None:
        """That these are in order.  Raises TimestampOrderError."""
        self._order.check([part.run for part in parts])

    def check_whole(self, what: str) -> None:
        """That no push further up is still reading rows for this stream.  Raises ConfigError."""
        if self.pushing:
            raise ConfigError(
                f"stream '{self.name}', {what}: needed a stream that no push is still reading rows for; got one from "
                "inside such a push (its iterator, or a callback between two of its batches); do it when that push is "
                "over"
            )

    def take(self, parts: Sequence[Admitted]) -> int:
        """Take in rows that have been admitted and checked; how many tuples' turn has come."""
        done = 0
        for part in parts:
            due = self._manager.take(part, self._order)
            self._manager.accounting.drop(part.raw.dropped, len(part.raw.rows))
            self._pushed += len(part.raw.rows) + len(part.raw.malformed)
            done += self._give(due) + self._give(self._order.due())
        return done

    def advance(self, now: int) -> int:
        """No tuple older than `now` (ns) will come; what does is late, or an error without a lateness."""
        self._order.advance(now)
        self.passed = now if self.passed is None else max(self.passed, now)
        done = self._give(self._order.due())
        for follower in self.followers:
            follower.advanced(now)
        return done

    def close(self) -> int:
        """No tuple will come: what waits for its turn gets it."""
        done = self._give(self._order.finish())
        for follower in self.followers:
            follower.ended()
        self.closed = True
        return done

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """What is kept, in order, as of now."""
        check_columns(self.schema, columns, where=self.name)
        start = 1
        for _, whole in self.kept(columns):
            for offset in range(0, whole.num_rows, rows):
                piece = whole.slice(offset, rows)
                yield RawBatch(piece, np.arange(start, start + piece.num_rows, dtype=np.int64))
                start += piece.num_rows

    def kept(self, columns: Sequence[str]) -> Iterator[tuple[np.ndarray[Any, Any], pa.RecordBatch]]:
        """What is kept, in order: (ts int64 [n] ns, columns)."""
        if self.history is not None:
            yield from self.history.batches(list(columns))
            return
        for batch in list(self._kept):
            assert batch.carried is not None
            yield batch.ts, batch.carried.select(list(columns))

    def arrived(self) -> Iterator[pa.RecordBatch]:
        """What has arrived and is not late: what is kept, then what waits for its turn, each in order."""
        for _, rows in self.kept(self.schema.names):
            yield rows
        waiting = self._order.waiting()
        if waiting is not None:
            assert waiting.carried is not None
            yield waiting.carried.select(self.schema.names)

    def let_go(self, waiting: np.ndarray[Any, Any]) -> None:
        """Forget rows that wait for their turn.  waiting: their places among these, int64 [n]."""
        self._order.let_go(waiting)

    def without(self, gone: np.ndarray[Any, Any], history: History | None) -> None:
        """Let go of kept rows for good.  gone: their places, ascending; history: one without them, or None."""
        if self.history is not None:
            assert history is not None
            self.history = history
            return
        kept, done = [], 0
        for batch in self._kept:
            low, high = np.searchsorted(gone, [done, done + len(batch)])
            done += len(batch)
            if low < high:
                stay = np.delete(np.arange(len(batch)), gone[low:high] - (done - len(batch)))
                assert batch.carried is not None
                at = pa.array(stay)
                batch = TupleBatch(batch.ordinal, batch.ts[stay], batch.key.take(at), batch.carried.take(at))
            if len(batch):
                kept.append(batch)
        self._kept = kept

    def content(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """What the stream remembers beside its history: JSON values and arrays for an envelope."""
        return content_of(
            Position(
                self._pushed, self.passed, self._manager.next_ordinal, self._order, self.accounting, self.late(),
                self.quarantine(), self._kept, self._events(),
            )
        )  # fmt: skip

    def go_on_from(self, envelope: Envelope) -> None:
        """Be where another stream of this definition, with this history, was.  Raises EnvelopeError."""
        events = self._events()
        found = read_position(
            envelope, self.schema, self._order, self.late().schema, self.quarantine().schema,
            None if events is None else events.schema,
        )  # fmt: skip
        self._pushed, self.passed, self._kept = found.pushed, found.passed, found.kept
        self._manager.go_on_from(found.ordinal, found.accounting, found.late, found.rejected)
        if found.events is not None:
            self._manager.distinct.go_on_from(found.events)

    def _events(self) -> pa.Table | None:
        """The events that may come again, of a stream that tells them apart."""
        name = self._manager.spec.event_id
        if name is None:
            return None
        assert isinstance(self._order, RepairedOrder)
        return self._manager.distinct.table(self._order.watermark, decoded_type(self.schema.field(name).type))

    def filled(self, last: int) -> None:
        """Be where pushing all rows that the history has, in order and the last of them at `last` (ns), would lead."""
        tuples = self.rows
        self._pushed, self.passed = tuples, last
        self._manager.go_on_from(tuples, Accounting(tuples, tuples), self.late(), self.quarantine())
        assert isinstance(self._order, CheckedOrder)
        self._order.go_on_from(last, tuples)

    def _rows(self, data: Any) -> Iterator[RawBatch]:
        before = self._pushed
        if (arrays := self._as_they_are(data)) is not None:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield RawBatch(batch, counted(before + 1, batch.num_rows))
            return
        where = f"stream '{self.name}', push"
        data = rows_together(data)
        try:
            made = ArrowSource if isinstance(data, dict) or has_columns(data) else IterableSource
            source = made(data, name=where)
        except TypeError:
            raise SourceError(
                f"{where}: needed a record batch, a table, a DataFrame or a dict of columns; got {type(data).__name__}"
            ) from None
        names = [name for name in self.schema.names if not (self.stamp and name == self.time)]
        signed = [SIGN] if SIGN in source.schema.names and SIGN not in self.schema.names else []
        beyond = tuple(name for name in source.schema.names if name not in self.schema.names and name != SIGN)
        if beyond and not self.drops:
            raise _unknown(beyond, [name for name in names if name not in source.schema.names], self.schema, where)
        check_columns(source.schema, names, where=where)
        for raw in source.batches([*names, *signed], _ROWS):
            if signed:
                _check_signs(raw, before, where)
            arrays = []
            given = dict(zip(names, raw.batch.columns, strict=False))
            for field in self.schema:
                array = given[field.name] if field.name in given else self._stamped(field.type, raw.batch.num_rows)
                try:
                    arrays.append(array if array.type == field.type else converted(array, field.type))
                except pa.ArrowException as error:
                    raise SourceError(
                        f"{where}: column '{field.name}' is {field.type}, got {array.type} that does not convert "
                        f"({str(error).splitlines()[0]}); convert it first"
                    ) from None
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield replace(raw, batch=batch, rows=raw.rows + before, dropped=beyond)

    def _as_they_are(self, data: Any) -> list[pa.Array] | None:
        """The columns of what is exactly the stream's, in types that nothing has to be done to; None: look closer."""
        if self.stamp:
            return None
        if self._plain is None:
            distinct = len(set(self.schema.names)) == len(self.schema)
            self._plain = distinct and plain_schema(self.schema).equals(self.schema)
        if not self._plain:
            return None
        if isinstance(data, pa.RecordBatch):
            return data.columns if 0 < data.num_rows <= _ROWS and data.schema.equals(self.schema) else None
        return arrays_of(data, self.schema, _ROWS) if type(data) is dict else None

    def _stamped(self, kind: pa.DataType, rows: int) -> pa.Array:
        """The time of rows that are pushed now, as the stream has times."""
        now = self.clock() if self.passed is None else max(self.clock(), self.passed)
        if pa.types.is_temporal(kind):
            value = pa.scalar(now, pa.timestamp("ns")).cast(kind, safe=False)
        else:
            value = pa.scalar(now // 10**9 if pa.types.is_integer(kind) else now / 1e9, kind)
        return pa.repeat(value, rows)

    def _give(self, run: Run | None) -> int:
        if run is None or not len(run):
            return 0
        batch = self._manager.batch(run)
        last = int(batch.ts[-1])
        self.passed = last if self.passed is None else max(self.passed, last)
        if self.history is not None:
            self.history.append(batch.ts, batch.carried)
        else:
            assert self.keep is not None
            self._kept.append(batch)
            while int(self._kept[0].ts[-1]) < last - self.keep:
                self._kept.pop(0)
            self._kept[0] = _from(self._kept[0], last - self.keep)
        for listener in list(self.listeners):
            listener(self.name, batch)
        return len(batch)


def _from(batch: TupleBatch, since: int) -> TupleBatch:
    """The tuples of a batch with ts >= since, without copying."""
    at = int(np.searchsorted(batch.ts, since, side="left"))
    if at == 0 or batch.carried is None:
        return batch
    return TupleBatch(batch.ordinal + at, batch.ts[at:], batch.key.slice(at), batch.carried.slice(at))


def _unknown(beyond: Sequence[str], missing: Sequence[str], schema: pa.Schema, where: str) -> UnknownColumn:
    """Columns that came and the stream does not have; missing: those that it has and that did not come."""
    near = get_close_matches(beyond[0], missing or schema.names, n=1)
    guess = f"did you mean '{near[0]}'?" if near else "leave them out, or make the stream with extra='drop'"
    return UnknownColumn(
        f"{where}: needed columns of the stream ({', '.join(schema.names)}); got {', '.join(map(repr, beyond))} too; "
        f"{guess}"
    )


def _check_signs(raw: RawBatch, before: int, where: str) -> None:
    """Raises SourceError for a row that does not come.  The signs are the last column."""
    signs = raw.batch.columns[-1].to_pylist()
    at = next((k for k, sign in enumerate(signs) if isinstance(sign, bool) or sign != 1), None)
    if at is not None:
        raise SourceError(
            f"{where}: needed rows that come, {SIGN} 1, or of a whole table go, -1; got {SIGN} {signs[at]!r} in row "
            f"{int(raw.rows[at]) + before}; fix it, or give the stream a column {SIGN}"
        )
