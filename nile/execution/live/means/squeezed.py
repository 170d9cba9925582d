"""DISTINCT and UNION that only append, in less memory: what the windows hold gives way to a filter of last times.

While all fits, this is the exact pipeline.  `squeeze` puts what the windows hold into a filter of fixed size
(`nile.runtime.recent`) and lets it go.  From then on a value is told when the filter says it is new: never one that is
not, but one of those that are new is missed as often as others fill its cells.  How often that is is known tuple by
tuple, so that what is told stands for what is missed, too.  `refill` takes tuples in as before, beside the filter; once
they have filled the windows, all is exact again by itself.
Source: STREAM (CIDR 2003), section 5.2.1: Bloom filters for duplicate elimination.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.schedule import EARLIEST
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.plan.algebra import Distinct, Plan, Range, Union
from nile.exact.state.held import Held, State
from nile.execution.live.means.gate import hashed
from nile.runtime.recent import Recent
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

__all__ = ["Squeezed"]

Array = np.ndarray[Any, Any]
_SURE = 1.0 - 1e-6
"""The most that a value is taken to seem known: then what is told would stand for a million."""


class Squeezed(Pipeline):
    """A pipeline of Distinct, or of a Union of different rows, with emit `append`, whose streams have equal windows.

    worth: float64 [3], of all that filters told: what it stands for beyond itself, that squared, and the most of one.
    """

    HELD: ClassVar[tuple[str, ...]] = ("worth", "_recent", "_front", "_begun", "_since")
    DERIVED: ClassVar[tuple[str, ...]] = ("_hasher", "_asked")

    def __init__(self, plan: Plan, scheduling: Any, *, signed: bool, hasher: KeyHasher) -> None:
        super().__init__(plan, scheduling, "append", signed=signed)
        self._hasher = hasher
        self._asked = (plan, scheduling, signed)
        self.worth = np.zeros(3)
        self._recent: Recent | None = None
        self._front: Pipeline | None = None
        self._begun: int | None = None
        self._since: int | None = None
        """The last instant of which a tuple may be missing in what is taken in again; None: nothing is."""

    @property
    def squeezed(self) -> bool:
        """Whether a filter says what is new."""
        return self._recent is not None

    @property
    def refilling(self) -> bool:
        """Whether tuples are taken in beside the filter."""
        return self._since is not None

    @property
    def window(self) -> int | None:
        """ns; None without an end."""
        window = next(each.window for each in self._built.streams if isinstance(each, Stream))
        return window.ns if isinstance(window, Range) else None

    def squeeze(self, cells: int) -> None:
        """Let a filter of so many cells take the place of what is held.  Cost: O(tuples in the windows)."""
        streams = [each for each in self._built.streams if isinstance(each, Stream)]
        window, rows = self.window, self._root.contents()
        recent = Recent(window, cells, 2.0 * rows.num_rows)
        if window is None:
            recent.put(np.full(rows.num_rows, self.stages.done), self._hashes(rows))
        else:
            leaving = [each.capture()["leaving"] for each in streams]
            ts = np.concatenate([each["until"] - (window + 1) for each in leaving])
            hashes = np.concatenate([self._hashes(each["rows"]) for each in leaving])
            order = np.argsort(ts, kind="stable")
            recent.put(ts[order], hashes[order])
        self._front = self._made_front()
        for mine, other in zip(self._built.arrivals, self._front._built.arrivals, strict=True):
            other.restore(Held(mine.capture(), "tuples that wait"))
        self._front._last, self._front._passed = dict(self._last), dict(self._passed)
        self._front._clock.origin, self._front._advanced = self._clock.origin, self._advanced
        self._front.stages.resume(self.stages.done)
        self._recent, self._begun = recent, None
        self.let_go()

    def let_go(self) -> None:
        """Hold nothing beside the filter."""
        kept, (plan, scheduling, signed) = self._counts, self._asked
        Pipeline.__init__(self, plan, scheduling, "append", signed=signed)
        self._counts, self._since = kept, None

    def refill(self) -> None:
        """Take in what comes from now on, beside the filter."""
        if self._front is not None and self._since is None:
            self._since = max(EARLIEST, *self._front._last.values())

    def push(self, name: str, ts: Array, rows: Any) -> list[Changes]:
        if self._front is None:
            return super().push(name, ts, rows)
        found = self._front.push(name, ts, rows)
        if self._since is None:
            self._counts["tuples"] += ts.shape[0]
        else:
            self._beside(super().push, name, ts, rows)
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
        """Of rows that came those that are new."""
        out = []
        assert self._recent is not None
        assert self._front is not None
        for each in found:
            fresh, seems = self._recent.put(each.ts, self._hashes(each.rows))
            if not fresh.any():
                continue
            ts = each.ts[fresh]
            beyond = 1.0 / (1.0 - np.minimum(seems[fresh], _SURE)) - 1.0
            again = 2.0 * self._windows(ts) + 1.0  # a value that is missed once may be missed in every window
            self.worth[:2] += beyond.sum(), (again * beyond * (beyond + 1.0)).sum()
            self.worth[2] = max(self.worth[2], beyond.max())
            columns = each.rows.filter(pa.array(fresh)).columns
            rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            out.append(Changes(ts, np.ones(ts.shape[0], np.int8), rows))
            self._counts["changes"] += ts.shape[0]
        if self._since is not None and self._full(self._since):
            self._recent = self._front = self._since = None
        return out

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

    def _hashes(self, rows: Any) -> Array:
        return hashed(rows.columns, self._hasher, "rows of DISTINCT")

    def _made_front(self) -> Pipeline:
        """What rows are before it is asked whether they are new, in time order."""
        plan = self.plan
        assert isinstance(plan, Distinct | Union)
        below = plan.input if isinstance(plan, Distinct) else Union(plan.left, plan.right, all=True)
        return Pipeline(below, self.scheduling, "append")

    @property
    def reached(self) -> tuple[Any, ...]:
        return super().reached if self._front is None else (id(self), *self._front.reached)

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
        return 0 if self._recent is None or self._front is None else self._recent.memory + self._front.memory

    def capture(self) -> State:
        state = super().capture()
        if self._recent is None or self._front is None:
            return state
        filtered = {
            "recent": self._recent.capture(),
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
        self._recent = Recent.restored(held.part("recent"), self.window)
        self._front = self._made_front()
        self._front.restore(held.state("front"))
        self._begun, self._since = held.integer_or_none("begun"), held.integer_or_none("since")
        self.worth = held.array("worth", "float64", (3,)).copy()
        held.end()
