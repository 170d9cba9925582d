"""The tuples of one place in a standing join: those that wait for their turn, and the columns of those it may need."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State
from nile.execution.reading import named_leaf, selected
from nile.execution.values import schema_of
from nile.operators.inputs.composing import put_together
from nile.sql.plan import Stream
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.heavy import pa

__all__ = ["JoinRows"]

Array = np.ndarray[Any, Any]
_FEW = 64


class JoinRows:
    """One stream of a statement.  live: its source; on: its key column, the columns of its key (`put_together`), or, as
    structs, those that are read.

    Tuples wait until all streams have passed them (`take`, `due`), get ordinals from 0 in their order, and are held
    until `let_go`.
    """

    def __init__(self, stream: Stream, on: str | tuple[str, ...], live: LiveStream, *, structs: bool = False) -> None:
        self._stream = stream
        self._structs = structs
        self.live = live
        self.alias = stream.alias
        self._on = on
        self.schema = schema_of(stream.fields)
        self._before = replace(live.accounting + Accounting(), dropped={})
        self._waiting: deque[tuple[Array, pa.RecordBatch]] = deque()
        self._held: deque[pa.RecordBatch] = deque()
        self._first = 0
        self._left_out = 0
        self.tuples = 0

    @property
    def accounting(self) -> Accounting:
        """Where tuples went that came since the query was asked, before any is shed; in: those its condition leaves."""
        now, before = self.live.accounting, self._before
        reasons = {
            reason: count - before.reasons.get(reason, 0)
            for reason, count in now.reasons.items()
            if count > before.reasons.get(reason, 0)
        }
        return Accounting(
            now.tuples_in - before.tuples_in - self._left_out,
            now.applied - before.applied - self._left_out,
            now.late - before.late,
            now.shed - before.shed,
            now.rejected - before.rejected,
            reasons,
        )

    def take(self, batch: TupleBatch) -> None:
        """Tuples have come; those that the statement's own condition leaves wait for their turn."""
        assert batch.carried is not None
        names = [name.removeprefix(f"{self.alias}.") for name in self.schema.names]
        ts, rows = selected(self._stream, batch.ts, named_leaf(self._stream, batch.carried.select(names)))
        self._left_out += len(batch) - rows.num_rows
        if rows.num_rows:
            self._waiting.append((ts, rows))

    def due(self, until: int) -> tuple[Array, pa.Array]:
        """(ts, key) of tuples up to `until`, both ends included, which are held from now on."""
        times, rows = [], []
        while self._waiting:
            ts, batch = self._waiting[0]
            n = int(np.searchsorted(ts, until, side="right"))
            if n < ts.shape[0]:
                if n:
                    self._waiting[0] = (ts[n:], batch.slice(n))
                    times.append(ts[:n])
                    rows.append(batch.slice(0, n))
                break
            self._waiting.popleft()
            times.append(ts)
            rows.append(batch)
        if not rows:
            return np.zeros(0, np.int64), self._keys_of(joined([], self.schema))
        due = _together(rows)
        self._held.append(due)
        self.tuples += due.num_rows
        return np.concatenate(times), self._keys_of(due)

    def waits_after(self, last: int | None) -> bool:
        """Whether what waits came no earlier than the newest tuple that has had its turn."""
        return last is None or not self._waiting or int(self._waiting[0][0][0]) >= last

    def let_go(self, first: int) -> None:
        """Tuples before ordinal `first` are not needed any more."""
        while self._held and self._first + self._held[0].num_rows <= first:
            self._first += self._held.popleft().num_rows

    def keys(self) -> pa.Array:
        """The keys of the tuples held."""
        return self._keys_of(joined(list(self._held), self.schema))

    def _keys_of(self, rows: pa.RecordBatch) -> pa.Array:
        names = (self._on,) if isinstance(self._on, str) else self._on
        columns = [rows.column(rows.schema.get_field_index(f"{self.alias}.{name}")) for name in names]
        if self._structs:
            return pa.StructArray.from_arrays(columns, list(names))
        return columns[0] if len(columns) == 1 else put_together(columns)

    def capture(self, first: int) -> State:
        """What waits, and the rows of tuples from ordinal `first` on."""
        held = joined(list(self._held), self.schema)
        ts = [ts for ts, _ in self._waiting]
        return {
            "before": self._before.as_dict(),
            "left_out": self._left_out,
            "tuples": self.tuples,
            "held": held.slice(first - self._first),
            "ts": np.concatenate([np.zeros(0, np.int64), *ts]),
            "waiting": joined([rows for _, rows in self._waiting], self.schema),
        }

    def restore(self, held: Held) -> None:
        """Be where another one was.  Raises EnvelopeError."""
        self._before = _accounting(held.part("before"))
        self._left_out = held.integer("left_out", 0, MOST)
        rows = held.rows("held", self.schema)
        self.tuples = held.integer("tuples", rows.num_rows, MOST)
        self._first = self.tuples - rows.num_rows
        ts = held.rising("ts")
        waiting = held.rows("waiting", self.schema, ts.shape[0])
        self._held = deque([rows] if rows.num_rows else [])
        self._waiting = deque([(ts, waiting)] if waiting.num_rows else [])
        held.end()

    def columns(self, ordinals: Array) -> tuple[dict[str, Any], Array]:
        """(columns by their names in the stream, places in them) of tuples that are held."""
        if len(self._held) > _FEW:  # joined in doubling steps: each row is copied a few times at most
            self._gather()
        table = pa.Table.from_batches(list(self._held), self.schema)
        names = [name.removeprefix(f"{self.alias}.") for name in self.schema.names]
        return dict(zip(names, table.columns, strict=True)), ordinals - self._first

    def _gather(self) -> None:
        """Join small neighbours, so that a take does not look through many pieces."""
        joined: list[pa.RecordBatch] = []
        for batch in self._held:
            joined.append(batch)
            while len(joined) > 1 and joined[-2].num_rows <= 2 * joined[-1].num_rows:
                last = joined.pop()
                joined[-1] = _together([joined[-1], last])
        self._held = deque(joined)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that wait or are held."""
        waiting = sum(ts.nbytes + rows.nbytes for ts, rows in self._waiting)
        return int(waiting + sum(batch.nbytes for batch in self._held))


def _accounting(held: Held) -> Accounting:
    names = ("tuples_in", "applied", "late", "shed", "rejected")
    reasons = held.state("reasons")
    inside = Held(reasons, "reasons of rejected tuples")
    given = {name: inside.integer(name, 0, MOST) for name in reasons}
    tuples_in, applied, late, shed, rejected = (held.integer(name, 0, MOST) for name in names)
    made = Accounting(tuples_in, applied, late, shed, rejected, given)
    held.end()
    return made


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
