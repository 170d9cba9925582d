"""A leaf of a plan: a stream in its window (StreamScan with W-Expire).

What is above a stream and depends on the tuple alone is applied below W-Expire (`incoming`): a negative tuple is the
stored result, not a second evaluation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, merged
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.pipeline.sources.taken_back import without
from nile.exact.plan.algebra import Project, Range, Rows, Scan, Select
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import Calendar, after, joined, never, signs
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.line import Line
from nile.summaries.errors import ConfigError

__all__ = ["Stream"]


class Stream:
    """A stream in its window: W-Expire under `nta`; otherwise tuples with the time until which they hold.

    keep: hold the rows of the window also where no negative tuple will need them, for `contents`; go: whether anyone
    wants to know what leaves.
    """

    KIND: ClassVar = "stream"
    HELD: ClassVar = ("arrivals", "negative", "_expire", "_forever", "_now")
    DERIVED: ClassVar = ("clock", "schema", "window", "_keep", "_go", "_apart", "_leaves")

    def __init__(
        self, clock: Clock, scan: Scan, above: list[Select | Project], *, keep: bool = False, go: bool = True
    ) -> None:
        self.clock = clock
        self.arrivals = Incoming(scan, above)
        self.schema = self.arrivals.schema
        self.window = scan.window
        self.negative = 0
        self._keep = keep
        self._go = go
        self._expire: Calendar | Line = Calendar(self.schema)
        self._apart = False
        self._leaves = clock.negative and isinstance(self.window, Range)
        self._forever: list[Any] = []
        self._now = EARLIEST

    @property
    def may_line(self) -> bool:
        """Whether its rows wait to leave in the order they came, and nobody else asks for them."""
        return self.clock.negative and self._go and not self._keep and isinstance(self.window, Range)

    def straight(self, line: Line, to: int, before: int) -> tuple[Array, Any] | None:
        """(times, rows) of what comes up to `to`, for whoever keeps what waits to leave in a line; None: nobody may.

        Not with a time of `before` or later, nor once something was taken back.  Cost: O(rows that wait), the first
        time.
        """
        if self._expire is not line:
            if self.arrivals.stays(to, before) or self._apart:
                return None
            if isinstance(self._expire, Line) or not line.fill(self._expire):
                return None
            self._expire = line
        if line.encoder.values and line.is_wordy:
            return None
        self._now = to
        return self.arrivals.straight(to, before)

    def step(self, to: int) -> Delta:
        """Arrivals, and under `nta` negative tuples, up to `to`."""
        self._now = to
        raw, ordinals, ts, rows = self.arrivals.take(to)
        if isinstance(self.window, Rows):
            return self._rows(raw, ordinals, ts, rows)
        early = None
        if self.arrivals.back.first(to) is not None:
            ts, rows, early = self._taken_back(ts, rows, *self.arrivals.back.due(to))
        until = self._until(ts)
        if self._keep and rows.num_rows and not isinstance(self.window, Range):
            self._forever.append(rows)
        come = Delta(ts, signs(1, ts.shape[0]), rows, None if self.clock.negative else until)
        if not self._keep and not (self.clock.negative and self._go):
            return come
        calendar = self._calendar()
        calendar.add(until, rows)
        gone, leaving = calendar.pop(to)
        if not self.clock.negative:
            return come
        told = self._with(gone, leaving, come)
        return told if early is None else merged(early, told, self.schema, by_sign=True)

    def _calendar(self) -> Calendar:
        """What waits to leave, out of its line if it was in one."""
        if isinstance(self._expire, Line):
            self._expire, self._apart = self._expire.plain(), True
        return self._expire

    def _until(self, ts: Array) -> Array:
        return after(ts, self.window.ns) if isinstance(self.window, Range) else never(ts)

    def _taken_back(self, ts: Array, rows: Any, at: Array, since: Array, back: Any) -> tuple[Array, Any, Delta]:
        """(arrivals without those that go in the instant they come, what goes before its time).

        at, since, back: what is taken back: instants, times, rows.  What the window has let go of is gone already.
        """
        until = self._until(since)
        here = pa.array(since == at)
        stay = without(ts, rows, since[since == at], back.filter(here))
        goes = (since < at) & (at < until)
        at, since, until, back = at[goes], since[goes], until[goes], back.filter(pa.array(goes))
        self._calendar().add(until, back, np.full(until.shape[0], -1, np.int8))
        if self._forever:
            held = joined(self._forever, self.schema)
            times = np.zeros(held.num_rows, np.int64)
            self._forever = [held.filter(pa.array(without(times, held, np.zeros_like(since), back)))]
        self.negative += at.shape[0]
        return ts[stay], rows.filter(pa.array(stay)), Delta(at, np.full(at.shape[0], -1, np.int8), back)

    def _rows(self, raw: Array, ordinals: Array, ts: Array, rows: Any) -> Delta:
        """The window of the last n: tuple o leaves when tuple o + n arrives, whatever the scheduling."""
        assert isinstance(self.window, Rows)
        first = self.arrivals.taken - raw.shape[0]
        out = ordinals + self.window.n
        here = np.flatnonzero(out < self.arrivals.taken)
        passing = here[raw[out[here] - first] == ts[here]]  # never in a snapshot: gone in the instant it came
        if passing.shape[0]:
            stay = np.ones(ts.shape[0], bool)
            stay[passing] = False
            out, ts, rows = out[stay], ts[stay], rows.filter(pa.array(stay))
        calendar = self._calendar()
        calendar.add(out, rows)
        by, leaving = calendar.pop(self.arrivals.taken - 1)
        return self._with(raw[by - first], leaving, Delta(ts, np.ones(ts.shape[0], np.int8), rows))

    def _with(self, gone: Array, leaving: Any, come: Delta) -> Delta:
        if not gone.shape[0]:
            return come
        self.negative += gone.shape[0]
        return merged(Delta(gone, signs(-1, gone.shape[0]), leaving), come, self.schema, by_sign=True)

    def time(self) -> int:
        """GetTime: how far the stream is known."""
        return self._now

    def contents(self) -> Any:
        """The rows in the window."""
        held = isinstance(self.window, Rows) or (self.clock.negative and self._go and isinstance(self.window, Range))
        if not self._keep and not held:
            raise ConfigError(
                f"stream {self.arrivals.scan.name!r}: needed its rows kept for a snapshot; got none kept; make the "
                "pipeline with emit='snapshot'"
            )
        return joined([*self._forever, self._expire.contents()], self.schema)

    def capture(self) -> State:
        """What waits to be worked on, what waits to leave, and what never leaves."""
        return {
            "clock": self._now,
            "negative": self.negative,
            "arrivals": self.arrivals.capture(),
            "leaving": self._expire.capture(),
            "staying": joined(self._forever, self.schema),
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.negative = held.integer("negative", 0, MOST)
        self.arrivals.restore(held.part("arrivals"))
        self._calendar().restore(held.part("leaving"))
        rows = held.rows("staying", self.schema)
        self._forever = [rows] if rows.num_rows else []
        held.end()

    def next_leaving(self, n: int) -> int | None:
        """When about the n-th next tuple leaves, None if it is not known or later than all waiting."""
        return self._expire.nth(n) if self._leaves else None

    @property
    def memory(self) -> int:
        return self.arrivals.memory + self._expire.memory + int(sum(each.nbytes for each in self._forever))
