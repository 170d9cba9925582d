"""How operators are scheduled, and what they pass to each other.

An operator is asked to come up to an instant (`step`) and returns all its changes up to it; with nothing to do it
hands control back with none, so nothing ever blocks (STEAM, section 6.1).  Changes are in time order, and within one
instant what goes comes before what comes.  The three schedulings differ in who removes a tuple that has expired:

- `nta`: W-Expire below sends a negative tuple through the whole pipeline;
- `tpa`: a tuple carries the time until which it holds (minTS + window of its source, the least over its sources;
  the paper's tuple-order for several windows), every stateful operator expires its own, as far as the clocks of
  those below (GetTime) allow, and only tuples that are invalid before their time are sent;
- `ita`: as tpa without probing: an operator learns of time only from tuples that arrive at it.

Source: negative tuples, sections 3.1, 3.2 and 6 (ITA).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import made
from nile.exact.state.expire import NEVER, Calendar, joined, never, nothing, signs
from nile.exact.state.held import Held, State
from nile.exact.state.rows import kernels

__all__ = [
    "Above", "Changes", "Clock", "Delta", "Operator", "Stateful", "Stateless", "empty", "interleaved", "merged",
    "until_of",
]  # fmt: skip

EARLIEST = np.iinfo(np.int64).min
_NO_TIMES = np.zeros(0, np.int64)


class Changes:
    """Changes: ts int64 [n] ns, not decreasing; sign int8 [n], +1 added and -1 removed; rows RecordBatch [n] or the
    `Columns` of one.  Only to be read.

    gone: how many go; -1: nobody has counted, which is done when somebody asks; counted: what is known of it.
    """

    __slots__ = ("counted", "given", "sign", "ts")

    def __init__(self, ts: Array, sign: Array, rows: Any, gone: int = -1) -> None:
        self.ts = ts
        self.sign = sign
        self.given = rows
        self.counted = gone

    @property
    def gone(self) -> int:
        """Rows that go, counted once.  Who has little time looks at `counted` first."""
        if self.counted < 0:
            self.counted = int(np.count_nonzero(self.sign < 0))
        return self.counted

    @property
    def rows(self) -> Any:
        """The rows as a RecordBatch, made when it is first asked for."""
        self.given = made(self.given)
        return self.given

    def __len__(self) -> int:
        return int(self.ts.shape[0])


class Delta(Changes):
    """Changes on their way between operators.  until: int64 [n], when they expire, or None, they do not.

    times: int64 [n], how many rows that are alike to whoever asked so (`Reader.once`) each stands for; None for one.
    """

    __slots__ = ("times", "until")

    def __init__(
        self, ts: Array, sign: Array, rows: Any, until: Array | None = None, times: Array | None = None, gone: int = -1
    ) -> None:
        self.ts = ts  # as above: a call to there costs as much
        self.sign = sign
        self.given = rows
        self.counted = gone
        self.until = until
        self.times = times

    def made_into(self, rows: Any) -> Delta:
        """The same with other rows, one for one."""
        return Delta(self.ts, self.sign, rows, self.until, self.times, self.counted)

    def standing_for(self, times: Array) -> Delta:
        """The same, of which each row stands for so many."""
        return Delta(self.ts, self.sign, self.given, self.until, times, self.counted)

    @property
    def weight(self) -> Array:
        """How many rows come with each, negative: go: int64 [n]."""
        sign = np.sign(self.sign).astype(np.int64)
        return sign if self.times is None else sign * self.times


@dataclass
class Clock:
    """What all operators of a pipeline share: the scheduling, and the pipeline's first instant.

    origin: when stored rows and the row of a group without keys appear; None before it is known.
    threads: that an operator may work on, None for all cores; what comes out does not depend on it.
    """

    HELD: ClassVar = ("origin",)
    DERIVED: ClassVar = ("scheduling", "threads")

    scheduling: str = "nta"
    origin: int | None = None
    threads: int | None = 1

    @property
    def negative(self) -> bool:
        """Whether negative tuples go through the pipeline."""
        return self.scheduling == "nta"


def empty(schema: Any) -> Delta:
    """Nothing to do."""
    return Delta(_NO_TIMES, signs(1, 0), nothing(schema))


def interleaved(a: Delta, b: Delta, *, by_sign: bool) -> Array:
    """Which row of a then b is next in time order: int64; of one instant, `by_sign`, what goes first, then a's."""
    order = np.empty(len(a) + len(b), np.int64)
    kernels.merge_order(a.ts, a.sign, b.ts, b.sign, by_sign, order)
    return order


def merged(a: Delta, b: Delta, schema: Any, *, by_sign: bool) -> Delta:
    """Both in time order; of one instant, `by_sign`, what goes first, then a before b."""
    if not b.ts.shape[0]:
        return a
    if not a.ts.shape[0]:
        return b
    if a.until is None and b.until is None:
        if a.ts[-1] < b.ts[0]:
            return _after(a, b, schema)
        if b.ts[-1] < a.ts[0]:
            return _after(b, a, schema)
    order = interleaved(a, b, by_sign=by_sign)
    rows = joined([a.rows, b.rows], schema).take(pa.array(order))
    until = None
    if a.until is not None or b.until is not None:
        until = np.concatenate([never(each.ts) if each.until is None else each.until for each in (a, b)])[order]
    return Delta(np.concatenate([a.ts, b.ts])[order], np.concatenate([a.sign, b.sign])[order], rows, until)


def _after(a: Delta, b: Delta, schema: Any) -> Delta:
    ts, sign = np.concatenate((a.ts, b.ts)), np.concatenate((a.sign, b.sign))
    return Delta(ts, sign, joined([a.rows, b.rows], schema))


class Operator(Protocol):
    """One node of the pipeline at work."""

    schema: Any
    KIND: ClassVar[str]
    """What a captured state calls it."""

    def step(self, to: int) -> Delta:
        """Everything that changes up to and at the instant `to`."""

    def time(self) -> int:
        """GetTime: the instant up to which the operator has worked; those above may expire that far."""

    def contents(self) -> Any:
        """The rows that hold now: a RecordBatch.  Raises ConfigError where the operator did not keep them."""

    @property
    def memory(self) -> int:
        """Bytes of state, of those below as well."""

    def capture(self) -> State:
        """What this operator holds, without those below: see `nile.exact.state.held`."""

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""


class Stateless:
    """An operator that holds nothing of its own, or nothing between two steps."""

    def capture(self) -> State:
        """Nothing."""
        return {}

    def restore(self, held: Held) -> None:
        """Nothing."""
        held.end()


class Above(Stateless):
    """One that stands on one other, whose clock it has."""

    below: Operator

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    @property
    def memory(self) -> int:
        """That of the operator below."""
        return self.below.memory


class Stateful(ABC):
    """An operator with state: what its inputs send and, where no negative tuples come, what expires here.

    Subclasses say in `apply` what signed tuples do; a sign of -2 (2) is a tuple that leaves (returns) by its own
    time, which those above know without being told.
    """

    KIND: ClassVar[str]
    HELD: ClassVar[tuple[str, ...]] = ("_local_clock", "_waiting")
    DERIVED: ClassVar[tuple[str, ...]] = ("clock", "inputs", "schema")

    def __init__(self, clock: Clock, inputs: Sequence[Operator], schema: Any) -> None:
        self.clock = clock
        self.inputs = tuple(inputs)
        self.schema = schema
        self._waiting = [Calendar(each.schema) for each in inputs]
        self._local_clock = EARLIEST

    @abstractmethod
    def apply(self, deltas: list[Delta]) -> Delta:
        """Change the state by the signed tuples of each input, in order, and return the signed output."""

    @abstractmethod
    def contents(self) -> Any:
        """The rows that hold now."""

    def step(self, to: int) -> Delta:
        """All changes up to and at `to`."""
        deltas = [each.step(to) for each in self.inputs]
        if self.clock.negative:
            self._local_clock = to
            return self.apply(deltas)
        arrived = [int(each.ts[-1]) for each in deltas if len(each)]
        if self.clock.scheduling == "tpa":
            self._local_clock = min([each.time() for each in self.inputs], default=to)
        elif arrived:
            self._local_clock = max(self._local_clock, *arrived)
        out = self.apply([self._expired(i, each) for i, each in enumerate(deltas)])
        if self.clock.scheduling == "ita" and len(out):
            return Delta(self._late(out.ts, deltas), out.sign, out.rows, out.until)
        return out

    def time(self) -> int:
        """GetTime."""
        return self._local_clock

    def capture(self) -> State:
        """What the operator holds: its clock, what waits to expire, and what `captured` says."""
        waiting = [] if self.clock.negative else [each.capture() for each in self._waiting]
        return {"clock": self._local_clock, "waiting": waiting, **self.captured()}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._local_clock = held.integer("clock")
        parts = held.parts("waiting", 0 if self.clock.negative else len(self._waiting))
        for each, part in zip(self._waiting, parts, strict=False):
            each.restore(part)
        self.restored(held)
        held.end()

    @abstractmethod
    def captured(self) -> State:
        """The operator's own tables."""

    @abstractmethod
    def restored(self, held: Held) -> None:
        """Put the operator's own tables back.  Raises EnvelopeError."""

    def _expired(self, i: int, delta: Delta) -> Delta:
        """The input with what expires here up to the local clock.

        What comes after its time, as operators below that learn of time late may send it, never holds here: it would
        go before it came.
        """
        waiting = self._waiting[i]
        if self.clock.scheduling == "ita" and delta.until is not None:
            holds = delta.until > delta.ts
            if not holds.all():
                rows = delta.rows.filter(pa.array(holds))
                delta = Delta(delta.ts[holds], delta.sign[holds], rows, delta.until[holds])
        if delta.until is not None:
            waiting.add(delta.until, delta.rows, delta.sign)
        until, rows = waiting.pop(self._local_clock)
        gone = Delta(until, np.full(until.shape[0], -2, np.int8), rows, until)
        return merged(gone, delta, self.inputs[i].schema, by_sign=self.clock.scheduling == "tpa")

    def _late(self, ts: Array, deltas: list[Delta]) -> Array:
        """When an input-triggered operator gets to say what happened at `ts`: at its next input."""
        inputs = np.unique(np.concatenate([each.ts for each in deltas]))
        late: Array = inputs[np.minimum(np.searchsorted(inputs, ts), inputs.shape[0] - 1)]
        return late

    @property
    def memory(self) -> int:
        """Bytes of state, of those below as well."""
        return self.own + sum(each.memory for each in self.inputs) + sum(each.memory for each in self._waiting)

    @property
    @abstractmethod
    def own(self) -> int:
        """Bytes of this operator's own tables."""


def until_of(delta: Delta) -> Array:
    """The time until which each row holds, NEVER where it is not known."""
    return np.full(len(delta), NEVER, np.int64) if delta.until is None else delta.until
