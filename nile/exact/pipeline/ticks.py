"""Tumbling and hopping windows, and what is output when one ends or at regular instants.

A row of a tumbling or hopping window is one row for each window that its time is in; where windows close, each goes
when its window ends, and so does what was made of it: what goes at the end of its own window is final.  Cost: O(1) a
row and window; memory: the rows of open windows, or the changes since the last tick.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Above, Clock, Delta, Operator, empty, merged
from nile.exact.plan.algebra import Every, Hop, OnClose
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import NEVER, Calendar, joined
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable

__all__ = ["Closing", "Hopping", "Ticking"]

_US = 1_000


class Hopping:
    """Rows with the bounds of their windows."""

    KIND: ClassVar = "hop"
    HELD: ClassVar = ("_closing",)
    DERIVED: ClassVar = ("clock", "plan", "below", "schema")

    def __init__(self, clock: Clock, plan: Hop, below: Operator) -> None:
        self.clock = clock
        self.plan = plan
        self.below = below
        self.schema = plan.schema
        self._closing = Calendar(plan.schema)

    def step(self, to: int) -> Delta:
        """Rows of windows that come and, where windows close, go up to `to`."""
        delta = self.below.step(to)
        rows, at, ends = self.plan.spread(delta.rows)
        ts, sign = delta.ts[at], delta.sign[at]
        if not self.plan.closes:
            until, times = (None if each is None else each[at] for each in (delta.until, delta.times))
            return Delta(ts, sign, rows, until, times)
        open_still = ts < ends  # what goes was taken back: the streams below have no window of their own
        ts, sign, ends, rows = ts[open_still], sign[open_still], ends[open_still], rows.filter(pa.array(open_still))
        come = Delta(ts, sign, rows, None if self.clock.negative else ends)
        self._closing.add(ends, rows, sign)
        gone, leaving = self._closing.pop(to)
        if not self.clock.negative:
            return come
        return merged(Delta(gone, np.full(gone.shape[0], -1, np.int8), leaving), come, self.schema, by_sign=True)

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    def contents(self) -> Any:
        """The rows of windows that hold."""
        return self._closing.contents() if self.plan.closes else self.plan.spread(self.below.contents())[0]

    def capture(self) -> State:
        """The rows of windows that have yet to close."""
        return {"closing": self._closing.capture()}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._closing.restore(held.part("closing"))
        held.end()

    @property
    def memory(self) -> int:
        return self.below.memory + self._closing.memory


class Closing(Above):
    """Rows at the end of the window that they are of, as they are then."""

    KIND: ClassVar = "closing"
    DERIVED: ClassVar = ("plan", "below", "schema", "_at")

    def __init__(self, plan: OnClose, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self._at = below.schema.get_field_index(plan.end)
        self.schema = plan.schema

    def step(self, to: int) -> Delta:
        """The rows whose windows end up to `to`."""
        delta = self.below.step(to)
        if not len(delta):
            return empty(self.schema)
        ends = delta.rows.column(self._at).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) * _US
        yes = (delta.sign < 0) & (ends == delta.ts)
        rows = delta.rows.filter(pa.array(yes))
        columns = [column for at, column in enumerate(rows.columns) if at != self._at]
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Delta(delta.ts[yes], np.ones(made.num_rows, np.int8), made)

    def contents(self) -> Any:
        """What was told is not kept."""
        return joined([], self.schema)


class Ticking:
    """What changes between two ticks, told at the later one: a row that comes and goes between them is not told."""

    KIND: ClassVar = "ticking"
    HELD: ClassVar = ("_waiting",)
    DERIVED: ClassVar = ("plan", "below", "schema", "_table")

    def __init__(self, plan: Every, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self.schema = below.schema
        self._table = RowTable(below.schema.types, exact=True)
        self._waiting = empty(below.schema)

    def step(self, to: int) -> Delta:
        """The changes as of the ticks up to `to`."""
        delta = self.below.step(to)
        tick = -((-np.minimum(delta.ts, NEVER - self.plan.step)) // self.plan.step) * self.plan.step
        waiting = Delta(
            np.concatenate([self._waiting.ts, tick]),
            np.concatenate([self._waiting.sign, np.sign(delta.sign).astype(np.int8)]),
            joined([self._waiting.rows, delta.rows], self.schema),
        )
        due = waiting.ts <= to
        self._waiting = _part(waiting, ~due)
        return self._net(_part(waiting, due))

    def _net(self, delta: Delta) -> Delta:
        if not len(delta):
            return empty(self.schema)
        codes = self._table.codes(self._table.encode(delta.rows.columns))
        both, place = np.unique(np.stack([delta.ts, codes], axis=1), axis=0, return_inverse=True)
        net = np.zeros(both.shape[0], np.int64)
        np.add.at(net, place.reshape(-1), delta.sign.astype(np.int64))
        turn = np.lexsort((net > 0, both[:, 0]))
        turn = turn[net[turn] != 0]
        often = np.abs(net[turn])
        which = np.repeat(turn, often)
        rows = pa.RecordBatch.from_arrays(self._table.columns(both[which, 1]), schema=self.schema)
        self._table.release(codes)
        return Delta(both[which, 0], np.sign(net[which]).astype(np.int8), rows)

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    def contents(self) -> Any:
        """As of now, not of the last tick."""
        return self.below.contents()

    def capture(self) -> State:
        """What waits for its tick."""
        return {"ts": self._waiting.ts, "sign": self._waiting.sign, "rows": self._waiting.rows}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        ts = held.array("ts", "int64", (None,))
        sign = held.array("sign", "int8", ts.shape)
        self._waiting = Delta(ts.copy(), sign.copy(), held.rows("rows", self.schema, ts.shape[0]))
        held.end()

    @property
    def memory(self) -> int:
        waiting = self._waiting
        return int(self.below.memory + waiting.ts.nbytes + waiting.sign.nbytes + waiting.rows.nbytes)


def _part(delta: Delta, yes: Array) -> Delta:
    return Delta(delta.ts[yes], delta.sign[yes], delta.rows.filter(pa.array(yes)), delta.until, delta.times)
