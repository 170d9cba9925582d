"""A window of time that moves in steps: what holds between two multiples of the step is what held at the first.

A tuple comes at the first multiple at or after it, and leaves at the first at which it is older than the window; one
that no multiple would show never comes.  Cost: O(log n) a tuple; memory: what the window holds and what has yet to
come.  Source: CQL (CIDR 2003), section 2.1, with the slide of the STREAM prototype.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, merged
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.plan.algebra import Project, Scan, Select, Slide
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import NEVER, Calendar
from nile.exact.state.held import MOST, Held, State

__all__ = ["SlidingStream", "shown"]

_LEAVES = "\0leaves"


def shown(ts: Array, window: Slide) -> tuple[Array, Array]:
    """(when tuples come, when they leave): multiples of the step, int64 [n]; equal where a tuple never shows."""
    step = np.int64(window.step)
    late = ts > NEVER - window.ns - 2 * window.step
    known = np.where(late, 0, ts)
    come, leave = -((-known) // step) * step, ((known + window.ns) // step + 1) * step
    return np.where(late, ts, come), np.where(late, NEVER, np.maximum(come, leave))


class SlidingStream:
    """A stream in a window that moves in steps, with the selections and projections right above it."""

    KIND: ClassVar = "sliding"
    HELD: ClassVar = ("arrivals", "negative", "_coming", "_leaving", "_now")
    DERIVED: ClassVar = ("clock", "schema", "window")

    def __init__(self, clock: Clock, scan: Scan, above: list[Select | Project]) -> None:
        assert isinstance(scan.window, Slide)
        self.clock = clock
        self.arrivals = Incoming(scan, above)
        self.schema = self.arrivals.schema
        self.window = scan.window
        self.negative = 0
        self._coming = Calendar(self.schema.append(pa.field(_LEAVES, pa.int64())))
        self._leaving = Calendar(self.schema)
        self._now = EARLIEST

    def step(self, to: int) -> Delta:
        """What comes and, under `nta`, what goes at the multiples up to `to`."""
        self._now = to
        _, _, ts, rows = self.arrivals.take(to)
        come, leave = shown(ts, self.window)
        stay = come < leave
        waiting = rows.append_column(_LEAVES, pa.array(leave))
        self._coming.add(come[stay], waiting.filter(pa.array(stay)))
        early = self._taken_back(to)
        come, waiting = self._coming.pop(to)
        leave = waiting.column(waiting.num_columns - 1).to_numpy(zero_copy_only=False)
        rows = waiting.select(range(waiting.num_columns - 1))
        self._leaving.add(leave, rows)
        gone, leaving = self._leaving.pop(to)
        out = Delta(come, np.ones(come.shape[0], np.int8), rows, None if self.clock.negative else leave)
        if not self.clock.negative:
            return out
        self.negative += gone.shape[0]
        out = merged(Delta(gone, np.full(gone.shape[0], -1, np.int8), leaving), out, self.schema, by_sign=True)
        return merged(early, out, self.schema, by_sign=True)

    def _taken_back(self, to: int) -> Delta:
        """What is taken back up to `to`: it never comes, or goes before its time."""
        at, since, back = self.arrivals.back.due(to)
        come, leave = shown(since, self.window)
        never = (come >= at) & (come < leave)
        waiting = back.append_column(_LEAVES, pa.array(leave))
        self._coming.add(come[never], waiting.filter(pa.array(never)), np.full(int(never.sum()), -1, np.int8))
        goes = (come < at) & (at < leave)
        at, leave, back = at[goes], leave[goes], back.filter(pa.array(goes))
        sign = np.full(at.shape[0], -1, np.int8)
        self._leaving.add(leave, back, sign)
        self.negative += at.shape[0]
        return Delta(at, sign, back)

    def time(self) -> int:
        """GetTime: how far the stream is known."""
        return self._now

    def contents(self) -> Any:
        """The rows in the window as of the last multiple."""
        return self._leaving.contents()

    def capture(self) -> State:
        """What waits to be worked on, to come and to leave."""
        return {
            "clock": self._now,
            "negative": self.negative,
            "arrivals": self.arrivals.capture(),
            "coming": self._coming.capture(),
            "leaving": self._leaving.capture(),
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.negative = held.integer("negative", 0, MOST)
        self.arrivals.restore(held.part("arrivals"))
        self._coming.restore(held.part("coming"))
        self._leaving.restore(held.part("leaving"))
        held.end()

    def next_leaving(self, n: int) -> int | None:
        """When about the n-th next tuple leaves."""
        return self._leaving.nth(n) if self.clock.negative else None

    @property
    def memory(self) -> int:
        return self.arrivals.memory + self._coming.memory + self._leaving.memory
