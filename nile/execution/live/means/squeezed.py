"""DISTINCT, UNION, EXCEPT and INTERSECT that only append, in less memory: filters in the place of what windows hold.

While all fits, this is the exact pipeline.  `squeeze` puts what the windows hold into a filter of fixed size
(`nile.execution.live.means.filters`) and lets it go.  From then on the filter says what is told, and what that is worth
is known tuple by tuple, so that what is told stands for what is missed, too.  `refill` takes tuples in as before,
beside the filter; once they have filled the windows, all is exact again by itself.
Source: STREAM (CIDR 2003), section 5.2.1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.schedule import EARLIEST
from nile.exact.pipeline.setops import Bag
from nile.exact.pipeline.sources.incoming import Named
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.plan.algebra import Plan, Range
from nile.exact.state.held import Held, State
from nile.execution.live.means.filters import Filter, Verdict, filter_of
from nile.execution.live.means.repeats import REPEATS as CELLS
from nile.summaries.hashing import KeyHasher

__all__ = ["MOST", "REPEATS", "WORTH", "Squeezed", "worth_of"]

Array = np.ndarray[Any, Any]
_PLAIN = 4
REPEATS = slice(_PLAIN, _PLAIN + CELLS)
MOST = _PLAIN + CELLS
WORTH = MOST + 1
"""Places in `worth`, as of `Verdict`: missed, wrong, squares, slack, the cells of repeats, most; all but this are sums.
"""


class Squeezed(Pipeline):
    """A pipeline of Distinct, or of a Union, Minus or Intersect of different rows, with emit `append`, whose streams
    have equal windows.

    worth: float64 [WORTH], of all that filters told.
    """

    HELD: ClassVar[tuple[str, ...]] = ("worth", "_filter", "_front", "_begun", "_since")
    DERIVED: ClassVar[tuple[str, ...]] = ("_asked", "_kind")

    def __init__(self, plan: Plan, scheduling: Any, *, signed: bool, hasher: KeyHasher) -> None:
        super().__init__(plan, scheduling, "append", signed=signed)
        self._asked = (plan, scheduling, signed)
        self.worth = np.zeros(WORTH)
        self._kind = filter_of(plan, scheduling, self.schema, hasher, self.window)
        self._filter: Filter | None = None
        self._front: Pipeline | None = None
        self._begun: int | None = None
        self._since: int | None = None
        """The last instant of which a tuple may be missing in what is taken in again; None: nothing is."""

    @property
    def squeezed(self) -> bool:
        """Whether a filter says what is told."""
        return self._filter is not None

    @property
    def refilling(self) -> bool:
        """Whether tuples are taken in beside the filter."""
        return self._since is not None

    @property
    def window(self) -> int | None:
        """ns; None without an end."""
        window = next(each.window for each in self._built.streams if isinstance(each, Stream))
        return window.ns if isinstance(window, Range) else None

    @property
    def done(self) -> int:
        """As of `Standing`."""
        return self.stages.done

    @property
    def result(self) -> Any:
        """As of `Standing`."""
        return self._root.contents()

    @property
    def both_sides(self) -> tuple[Any, Array]:
        """As of `Standing`."""
        bag = self._root.operator
        assert isinstance(bag, Bag)
        held = bag.captured()
        return held["rows"], held["counts"]

    @property
    def in_windows(self) -> list[tuple[Array, Any]]:
        """As of `Standing`."""
        back = (self.window or 0) + 1
        leaving = [each.capture()["leaving"] for each in self._built.streams if isinstance(each, Stream)]
        return [(each["until"] - back, each["rows"]) for each in leaving]

    def squeeze(self, size: int) -> None:
        """Let a filter of so many bytes take the place of what is held.  Cost: O(tuples in the windows)."""
        made = self._kind.made(self, size)
        front = self._kind.front()
        for side, (mine, other) in enumerate(zip(self._built.arrivals, front._built.arrivals, strict=True)):
            other.restore(Held(self._kind.waiting(mine.capture(), side), "tuples that wait"))
        front._last, front._passed = dict(self._last), dict(self._passed)
        front._clock.origin, front._advanced = self._clock.origin, self._advanced
        front.stages.resume(self.stages.done)
        self._filter, self._front, self._begun = made, front, None
        self.let_go()

    @property
    def cells(self) -> int:
        """Bytes of the filter's cells."""
        return 0 if self._filter is None else self._filter.cells.memory

    def halve(self) -> bool:
        """Go on with half the cells; False: there are as few as may be.  Cost: O(cells)."""
        return self._filter is not None and self._filter.cells.halve()

    def double(self) -> None:
        """Go on with twice the cells.  Cost: O(cells)."""
        if self._filter is not None:
            self._filter.cells.double()

    @property
    def plenty(self) -> float:
        """Bytes of a filter for each tuple of the windows, of which more make it no more precise."""
        return self._kind.plenty

    @property
    def full(self) -> tuple[float, int]:
        """(the share of the filter's cells that are of values in the windows, how many cells a value has)."""
        return (0.0, 1) if self._filter is None else self._filter.cells.full

    def let_go(self) -> None:
        """Hold nothing beside the filter."""
        kept, origin, (plan, scheduling, signed) = self._counts, self._clock.origin, self._asked
        Pipeline.__init__(self, plan, scheduling, "append", signed=signed)
        self._counts, self._since, self._clock.origin = kept, None, origin

    def refill(self) -> None:
        """Take in what comes from now on, beside the filter."""
        if self._front is not None and self._since is None:
            self._since = max(EARLIEST, *self._front._last.values())

    def push(
        self, name: str, ts: Array, rows: Any, now: int | None = None, named: Named | None = None
    ) -> list[Changes]:
        if self._front is None:
            return super().push(name, ts, rows, now, named)
        found = self._front.push(name, ts, rows, now, named)
        if self._since is None:
            self._counts["tuples"] += ts.shape[0]
        else:
            self._beside(super().push, name, ts, rows, now, named)
        return self._told(found)

    def advance(self, now: int, *, certain: bool = True) -> list[Changes]:
        if self._front is None:
            return super().advance(now, certain=certain)
        found = self._front.advance(now, certain=certain)
        if self._since is not None:
            self._beside(super().advance, now, certain=certain)
        return self._told(found)

    def finish(self, at: int | None = None) -> list[Changes]:
        if self._front is None:
            return super().finish(at)
        found = self._front.finish(at)
        self._beside(super().finish, at)
        return self._told(found)

    def _beside(self, work: Any, *given: Any, **named: Any) -> None:
        """What is told of it, the filter tells."""
        before = self._counts["changes"]
        work(*given, **named)
        self._counts["changes"] = before

    def _told(self, found: list[Changes]) -> list[Changes]:
        """Of rows that came those that a filter tells, and those that come because others have left."""
        assert self._filter is not None
        assert self._front is not None
        out = []
        for each in (*found, None):
            verdict = self._filter.told(each, self._front.stages.done if each is None else _before(each), self._windows)
            self._count(verdict)
            if n := verdict.ts.shape[0]:
                out.append(Changes(verdict.ts, np.ones(n, np.int8), verdict.rows))
                self._counts["changes"] += n
        if self._since is not None and self._full(self._since):
            self._filter = self._front = self._since = None
        return out

    def _count(self, verdict: Verdict) -> None:
        self.worth[:_PLAIN] += verdict.missed, verdict.wrong, verdict.squares, verdict.slack
        if verdict.repeats is not None:
            self.worth[REPEATS] += verdict.repeats
        self.worth[MOST] = max(self.worth[MOST], verdict.most)

    def _windows(self, ts: Array) -> Array:
        """How many windows the filter had told of before: float64 [n]."""
        window = self.window
        self._begun = int(ts[0]) if self._begun is None else self._begun
        return np.zeros(ts.shape[0]) if window is None else (ts - self._begun) // max(window, 1)

    def _full(self, since: int) -> bool:
        """Whether all that the windows hold has been taken in again."""
        window = self.window
        assert self._front is not None
        level = self.stages.done == self._front.stages.done and self._passed == self._front._passed
        return level and window is not None and self.stages.done > since + window + 1

    @property
    def reached(self) -> tuple[Any, ...]:
        return super().reached if self._front is None else (*super().reached, *self._front.reached)

    def open_from(self, name: str) -> int | None:
        return super().open_from(name) if self._front is None else self._front.open_from(name)

    @property
    def memory(self) -> int:
        return self.exactly + self.apart

    @property
    def exactly(self) -> int:
        """Bytes of what is held exactly."""
        return int(super().memory)

    @property
    def apart(self) -> int:
        """Bytes of the filter, and of tuples that wait for it."""
        return 0 if self._filter is None or self._front is None else self._filter.memory + self._front.memory

    def capture(self) -> State:
        state = super().capture()
        if self._filter is None or self._front is None:
            return state
        filtered = {
            "recent": self._filter.capture(),
            "front": self._front.capture(),
            "begun": self._begun,
            "since": self._since,
            "worth": self.worth.copy(),
        }
        return {**state, "squeezed": filtered}

    def restore(self, state: State) -> None:
        super().restore({name: each for name, each in state.items() if name != "squeezed"})
        if "squeezed" not in state:
            return
        held = Held(Held(state, "state of a query").state("squeezed"), "state of a filter")
        self._filter = self._kind.restored(held.part("recent"))
        self._front = self._kind.front()
        self._front.restore(held.state("front"))
        self._begun, self._since = held.integer_or_none("begun"), held.integer_or_none("since")
        self.worth = worth_of(held)
        held.end()


def worth_of(held: Held) -> Array:
    """What a state says of what filters told: float64 [WORTH].  Raises EnvelopeError."""
    worth = held.array("worth", "float64", (None,))
    if worth.shape == (3,):  # before there were two sides: missed, squares, most
        worth = np.array([worth[0], 0.0, worth[1], 0.0, worth[2]])
    if worth.shape == (_PLAIN + 1,):  # before it was known how often values were told
        worth = np.insert(worth, _PLAIN, np.zeros(CELLS))
    if worth.shape != (WORTH,):
        held.refuse(f"{WORTH} numbers of what was told", worth)
    return np.array(worth)


def _before(changes: Changes) -> int:
    """The instant before the last of them, of which more may come."""
    return int(changes.ts[-1]) - 1
