"""A stored relation that changes: rows come and go at instants, and a log of that is kept as a stream is.

The log is a live stream: the relation's columns, when (`_ts`) and whether a row came or went (`_sign`, 1 or -1); rows
are known by their values, of equal ones any goes.  So all that keeps a stream keeps a relation: stores, memory limits,
listeners.  Memory: the log, which a store moves to files, and the rows that hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock, get_ident
from typing import Any

import numpy as np

from nile.base.raw import RawBatch, check_columns
from nile.exact.pipeline.schedule import Clock, Delta
from nile.exact.pipeline.setops import Bag
from nile.pyramid.history.history import History
from nile.streams.live import SIGN, LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["TIME", "Versions", "live_stream_of", "log_schema"]

TIME = "_ts"
"""The column of a log that says when."""


def log_schema(columns: pa.Schema, where: str) -> pa.Schema:
    """The columns of the log of a relation.  Raises ConfigError."""
    taken = [name for name in columns.names if name in (TIME, SIGN) or columns.names.count(name) > 1]
    if taken or not columns.names:
        got = f"'{taken[0]}'" if taken else "none"
        raise ConfigError(
            f"{where}: needed columns of different names, none of them {TIME} or {SIGN}, which say what changes; got "
            f"{got}; name them otherwise"
        )
    return pa.schema([*columns, pa.field(TIME, pa.timestamp("ns")), pa.field(SIGN, pa.int8())])


class Versions:
    """The relation that a log tells of, as a source: its rows now, and every change.

    later: takes what makes a change seen, to be called when all of it is made; None: each row is seen as it comes.
    Until then other threads read the rows as they were before, and the thread that makes the change as they are.
    """

    def __init__(self, log: LiveStream, later: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.log = log
        self._later = later
        self._waiting: list[Delta] = []
        self._changer: int | None = None
        self._lock = Lock()
        self.name = log.name
        self.schema = pa.schema([field for field in log.schema if field.name not in (TIME, SIGN)])
        self._bag = Bag(Clock(), "union all", [], self.schema)
        self.rows = 0
        for ts, rows in log.kept(log.schema.names):
            self._waiting.append(self._delta(ts, rows))
            self._show()
        log.listeners.insert(0, self._arrived)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows that hold now."""
        check_columns(self.schema, columns, where=self.name)
        whole = self.contents().select(list(columns))
        for begin in range(0, whole.num_rows, rows):
            piece = whole.slice(begin, rows)
            yield RawBatch(piece, np.arange(begin + 1, begin + 1 + piece.num_rows, dtype=np.int64))

    def contents(self) -> pa.RecordBatch:
        """The rows that hold now, in the order they came."""
        with self._lock:
            if self._waiting and self._changer == get_ident():
                self._apply()
            return self._bag.contents()

    def changes(self, columns: Sequence[str]) -> tuple[np.ndarray[Any, Any], pa.Table]:
        """All changes so far: when (int64 [n] ns, not falling), and columns of the log."""
        parts = list(self.log.kept(list(columns)))
        schema = pa.schema([self.log.schema.field(name) for name in columns])
        ts = np.concatenate([np.zeros(0, np.int64), *(ts for ts, _ in parts)])
        return ts, pa.Table.from_batches([rows for _, rows in parts], schema)

    def forget(self, history: Callable[[str, pa.Schema], History]) -> None:
        """Write the log anew as the rows that hold now: what was before is known no more.  Cost: O(rows)."""
        rows = self.contents()
        fresh = history(self.log.name, self.log.schema)
        if rows.num_rows:
            ts = np.full(rows.num_rows, self.log.passed)
            signs = pa.array(np.ones(rows.num_rows, np.int8))
            rows = rows.append_column(TIME, pa.array(ts).cast(pa.timestamp("ns"))).append_column(SIGN, signs)
            fresh.append(ts, rows)
        self.log.without(np.arange(self.log.rows), fresh)

    def _arrived(self, _: str, batch: TupleBatch) -> None:
        assert batch.carried is not None
        delta = self._delta(batch.ts, batch.carried)
        with self._lock:
            first = not self._waiting
            self._waiting.append(delta)
            self._changer = get_ident()
        if self._later is None:
            self._show()
        elif first:
            self._later(self._show)

    def _delta(self, ts: np.ndarray[Any, Any], rows: pa.RecordBatch) -> Delta:
        sign = np.array(rows.column(rows.schema.get_field_index(SIGN)).to_numpy(zero_copy_only=False), np.int8)
        return Delta(ts, sign, rows.select(self.schema.names))

    def _show(self) -> None:
        """Let everybody see what has come."""
        with self._lock:
            self._apply()

    def _apply(self) -> None:
        for delta in self._waiting:
            self._bag.apply([delta])
            self.rows += int(delta.sign.sum())
        self._waiting.clear()
        self._changer = None


def live_stream_of(source: object) -> object:
    """The live stream behind a source: itself, or the log of a relation."""
    return source.log if isinstance(source, Versions) else source
