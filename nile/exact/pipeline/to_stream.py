"""Streams of relations, and streams that subqueries give in windows of their own.

ISTREAM is what a relation gained at an instant, DSTREAM what it lost, RSTREAM what it has wherever that changes; each
is the difference of two bags, so a row that goes and comes in one instant is neither.  Cost: O(1) a change, of RSTREAM
the rows that hold; memory: the different rows that hold.  Source: CQL (CIDR 2003), sections 2.1 and 2.2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateless, empty
from nile.exact.pipeline.setops import Bag
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.pipeline.sources.partitioned import PartitionedStream
from nile.exact.pipeline.sources.sliding import SlidingStream
from nile.exact.plan.algebra import Project, Rows, Sample, Scan, Select, Slide, ToStream, Unbounded, Windowed
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State

__all__ = ["Sampling", "Streaming", "WindowedStream"]


class Streaming:
    """What a relation gains, loses or has, as new tuples."""

    KIND: ClassVar = "to stream"
    HELD: ClassVar = ("_bag",)
    DERIVED: ClassVar = ("plan", "below", "schema", "_is_itself")

    def __init__(self, clock: Clock, plan: ToStream, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self.schema = below.schema
        self._bag = Bag(clock, "union all", [below], below.schema)
        base = plan.input
        while isinstance(base, Select | Project):
            base = base.input
        self._is_itself = plan.kind == "istream" and isinstance(base, Scan) and isinstance(base.window, Unbounded)

    def step(self, to: int) -> Delta:
        """The tuples up to `to`, all of sign 1."""
        if self._is_itself:  # of a stream of which all is kept, what it gains is what comes
            delta = self.below.step(to)
            return Delta(delta.ts, delta.sign, delta.rows)
        before = self._bag.contents() if self.plan.kind == "rstream" else None
        delta = self._bag.step(to)
        if not len(delta):
            return empty(self.schema)
        if before is not None:
            return self._whole(before, delta)
        yes = delta.sign > 0 if self.plan.kind == "istream" else delta.sign < 0
        return Delta(delta.ts[yes], np.ones(int(yes.sum()), np.int8), delta.rows.filter(pa.array(yes)))

    def _whole(self, before: Any, delta: Delta) -> Delta:
        """All rows at each instant of a step.  before: those at its begin."""
        bag = Bag(Clock(), "union all", [_Nothing(self.schema)], self.schema)
        ones = np.ones(before.num_rows, np.int8)
        bag.apply([Delta(np.zeros(before.num_rows, np.int64), ones, before)])
        bounds = [0, *(np.flatnonzero(np.diff(delta.ts)) + 1).tolist(), len(delta)]
        times, parts = [], []
        for begin, end in pairwise(bounds):
            bag.apply([Delta(delta.ts[begin:end], delta.sign[begin:end], delta.rows.slice(begin, end - begin))])
            parts.append(bag.contents())
            times.append(np.full(parts[-1].num_rows, delta.ts[begin], np.int64))
        ts = np.concatenate(times)
        return Delta(ts, np.ones(ts.shape[0], np.int8), joined(parts, self.schema))

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time() if self._is_itself else self._bag.time()

    def contents(self) -> Any:
        """A stream has none."""
        return joined([], self.schema)

    def capture(self) -> State:
        """The relation as it was told last."""
        return {"relation": self._bag.capture()}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._bag.restore(held.part("relation"))
        held.end()

    @property
    def memory(self) -> int:
        return self._bag.memory


class Sampling:
    """Tuples of a stream, each with one probability."""

    KIND: ClassVar = "sample"
    HELD: ClassVar = ("_number",)
    DERIVED: ClassVar = ("plan", "below", "schema")

    def __init__(self, plan: Sample, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self.schema = below.schema
        self._number = 0

    def step(self, to: int) -> Delta:
        """The tuples up to `to` that are taken."""
        delta = self.below.step(to)
        number = self._number + np.arange(len(delta))
        self._number += len(delta)
        yes = drawn(number, self.plan.seed) < self.plan.share
        return Delta(delta.ts[yes], delta.sign[yes], delta.rows.filter(pa.array(yes)))

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    def contents(self) -> Any:
        """A stream has none."""
        return joined([], self.schema)

    def capture(self) -> State:
        """How many tuples there were."""
        return {"number": self._number}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._number = held.integer("number", 0, MOST)
        held.end()

    @property
    def memory(self) -> int:
        return self.below.memory


def drawn(number: Array, seed: int) -> Array:
    """A number in [0, 1) for each tuple's number: float64 [n].  Source: splitmix64 (Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        x = (number.astype(np.uint64) + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    share: Array = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return share


class _Nothing(Stateless):
    """An input that a bag is handed the changes of."""

    KIND: ClassVar = "nothing"
    DERIVED: ClassVar = ("schema",)
    memory = 0

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def step(self, to: int) -> Delta:  # noqa: ARG002
        return empty(self.schema)

    def time(self) -> int:
        return 0

    def contents(self) -> Any:
        return joined([], self.schema)


class WindowedStream:
    """A stream that a query gives, in its window: as a stream that is pushed, whose tuples come from below."""

    KIND: ClassVar = "windowed"
    HELD: ClassVar = ("stream",)
    DERIVED: ClassVar = ("below", "schema")

    def __init__(self, clock: Clock, plan: Windowed, below: Operator, *, keep: bool, go: bool) -> None:
        self.below = below
        self.schema = below.schema
        scan = Scan("", below.schema, plan.window, plan.position)
        self.stream: Stream | PartitionedStream | SlidingStream
        if isinstance(plan.window, Rows) and plan.window.by:
            self.stream = PartitionedStream(clock, scan)
        elif isinstance(plan.window, Slide):
            self.stream = SlidingStream(clock, scan, [])
        else:
            self.stream = Stream(clock, scan, [], keep=keep, go=go)

    def step(self, to: int) -> Delta:
        """What comes to the window and goes from it up to `to`."""
        came = self.below.step(to)
        if len(came):
            self.stream.arrivals.push(came.ts, came.rows)
        return self.stream.step(to)

    def time(self) -> int:
        """GetTime."""
        return self.stream.time()

    def contents(self) -> Any:
        """The rows in the window."""
        return self.stream.contents()

    def capture(self) -> State:
        """What the window holds."""
        return {"stream": self.stream.capture()}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self.stream.restore(held.part("stream"))
        held.end()

    @property
    def memory(self) -> int:
        return self.below.memory + self.stream.memory
