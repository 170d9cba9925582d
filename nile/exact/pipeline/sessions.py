"""When the session of each tuple began, of streams whose tuples only come.

A session is a run of tuples of one key without a gap; later tuples extend it, and leave where it began as it is.  So
what is counted by key and beginning changes by one row a tuple, however long the session is.  Cost: O(log n) a tuple of
n at once; memory: the keys whose sessions may go on.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Delta, Operator
from nile.exact.plan.algebra import Opened
from nile.exact.state.arrow import Array, pa
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["Opening"]

_SLACK = 4096
"""Keys beyond twice those that were left last time, before keys whose sessions have ended are forgotten."""


_NEVER = np.iinfo(np.int64).min
"""The last time of a key without a session."""


class Opening:
    """Tuples beside the beginning of their sessions."""

    KIND: ClassVar = "sessions"
    HELD: ClassVar = ("_table", "_last", "_start")
    DERIVED: ClassVar = ("plan", "below", "schema", "_left")

    def __init__(self, plan: Opened, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self.schema = plan.schema
        self._table = RowTable(plan.kinds.types or [pa.int8()])
        self._last = np.full(1, _NEVER, np.int64)  # of each key, ns
        self._start = np.zeros(1, np.int64)
        self._left = 0

    def step(self, to: int) -> Delta:
        """The tuples up to `to`."""
        delta = self.below.step(to)
        starts = self._starts(delta) if len(delta) else np.zeros(0, np.int64)
        if len(self._table) > 2 * self._left + _SLACK:
            self._forget(to)
        begun = pa.array(starts // 1_000).cast(pa.timestamp("us"))
        rows = pa.RecordBatch.from_arrays([*delta.rows.columns, begun], schema=self.schema)
        return Delta(delta.ts, delta.sign, rows)

    def _starts(self, delta: Delta) -> Array:
        codes = self._table.codes(self._table.encode(self._keys(delta.rows)))
        room = self._table.room
        self._last, self._start = grown(self._last, room, _NEVER), grown(self._start, room)
        order = np.argsort(codes, kind="stable")
        key, ts = codes[order], delta.ts[order]
        first = np.ones(key.shape[0], np.bool_)
        first[1:] = key[1:] != key[:-1]
        before = np.empty_like(ts)
        before[1:] = ts[:-1]
        before[first] = self._last[key[first]]
        new = before <= ts - self.plan.gap
        start = np.where(new, ts, self._start[key])
        place = np.maximum.accumulate(np.where(new | first, np.arange(key.shape[0]), 0))
        start = start[place]
        last = np.append(first[1:], True)
        self._last[key[last]], self._start[key[last]] = ts[last], start[last]
        starts = np.empty_like(start)
        starts[order] = start
        return starts

    def _keys(self, rows: Any) -> list[Any]:
        if self.plan.kinds:
            return list(self.plan.keys(rows).columns)
        return [pa.array(np.zeros(rows.num_rows, np.int8))]

    def _forget(self, to: int) -> None:
        """Let go of keys whose next tuple begins a session anyway."""
        live = self._table.live()
        over = live[self._last[live] <= to - self.plan.gap]
        self._last[over] = _NEVER
        self._table.release(over)
        self._left = len(self._table)

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    def contents(self) -> Any:
        """What has come is not kept."""
        raise NotImplementedError

    def capture(self) -> State:
        """The keys whose sessions may go on, when their last tuple came, and when they began."""
        live = self._table.live()
        rows = pa.RecordBatch.from_arrays(self._table.columns(live), names=[f"k{at}" for at in range(self._width)])
        return {"keys": rows, "last": self._last[live], "start": self._start[live]}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        kinds = self.plan.kinds.types or [pa.int8()]
        rows = held.rows("keys", pa.schema([(f"k{at}", kind) for at, kind in enumerate(kinds)]))
        last = held.array("last", "int64", (rows.num_rows,))
        start = held.array("start", "int64", (rows.num_rows,))
        codes = self._table.codes(self._table.encode(rows.columns))
        if len(self._table) != rows.num_rows:
            held.refuse("keys that differ", "one of them twice")
        self._last, self._start = grown(self._last, self._table.room, _NEVER), grown(self._start, self._table.room)
        self._last[codes], self._start[codes] = last, start
        held.end()

    @property
    def _width(self) -> int:
        return len(self.plan.kinds.types or [0])

    @property
    def memory(self) -> int:
        return int(self.below.memory + self._table.memory + self._last.nbytes + self._start.nbytes)
