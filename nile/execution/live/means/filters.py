"""What stands for the windows of DISTINCT, UNION, EXCEPT and INTERSECT where memory does not suffice: filters of times.

Each says of rows that come which of them are told, and how many are told wrongly or missed, from how full its cells
are at that tuple.  What it holds says too late when a value was last there, never too early.  So:

    DISTINCT, UNION   a row that is told is new; one that is new is missed if it seems to be there          misses
    EXCEPT            a row that is told is not on the right; misses as DISTINCT, and of rows that the
                      right blocks by mistake those that it does not let go of in time                      misses
    INTERSECT         a row that the other side seems to have is told                     wrong rows, and misses

With p how probably a value that is not there seems to be, one that is told stands for p / (1 - p) that are missed, and
one that is found not to be there for p / (1 - p) that seem to be (Horvitz and Thompson).
Source: STREAM (CIDR 2003), section 5.2.1: Bloom filters for duplicate elimination, set difference and intersection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import Distinct, Intersect, Minus, Plan, Project, Union
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State
from nile.execution.live.means.gate import MOST_LEVEL, hashed
from nile.execution.live.means.repeats import repeated
from nile.operators.aggregate.input import units
from nile.runtime.recent import CELL, Recent, cells_in
from nile.runtime.sides import Sides, Waiting
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

__all__ = ["Filter", "Verdict", "Windows", "filter_of"]

Array = np.ndarray[Any, Any]
Windows = Callable[[Array], Array]
"""How many windows a filter had told of before each of some instants (int64 [n]): float64 [n]."""
_SURE = 1.0 - 1e-6
"""The most that a value is taken to seem known: then what is told would stand for a million."""
_SEED = 17
_PLENTY = 32.0 * CELL
"""Of which 16 cells at least are left by rounding: with four hash functions one new value of 400 then seems known."""
_ROW = 160
"""Bytes of a row that waits, beside 16 for each of its columns."""
_SIDE = "\0side"


@dataclass(slots=True)
class Verdict:
    """Rows that are told at their times (int64 [n]), in time order, and what they are worth.

    missed, wrong: how many rows of the exact answer are expected not to be told, how many told not to be in it;
    squares: the variance of both together, but for what values that are drawn stand for; repeats: float64 [REPEATS], of
    these, as of `repeated`; slack: rows that may have been missed, or are told later; most: what one row stands for at
    most, beyond itself.
    """

    ts: Array
    rows: Any
    missed: float = 0.0
    wrong: float = 0.0
    squares: float = 0.0
    slack: float = 0.0
    most: float = 0.0
    repeats: Array | None = None


class Filter(Protocol):
    """In the place of what windows hold."""

    @property
    def memory(self) -> int:
        """Bytes."""

    def told(self, found: Changes | None, done: int, windows: Windows) -> Verdict:
        """What of rows that come is told, and what else is due up to an instant."""

    @property
    def cells(self) -> Recent | Sides:
        """All of them."""

    def capture(self) -> State:
        """All of it."""


class Standing(Protocol):
    """A pipeline whose state a filter takes the place of."""

    @property
    def done(self) -> int:
        """The instant up to which it has worked."""

    @property
    def result(self) -> Any:
        """The rows that stand in its answer."""

    @property
    def both_sides(self) -> tuple[Any, Array]:
        """Of a plan of two sides the rows that stand on either, and how often on each: int64 [n, 2]."""

    @property
    def in_windows(self) -> list[tuple[Array, Any]]:
        """Of each of its streams when the tuples in its window came (int64 [n]), and their rows."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a plan is told by a filter.

    front: what makes its rows, in time order; waiting: the state of a stream's tuples that wait, number k, as the front
    has it; made: from a pipeline as it stands, in so many bytes; restored: from a state; plenty: bytes for each tuple
    of the windows with which it misses next to nothing.
    """

    front: Callable[[], Pipeline]
    waiting: Callable[[State, int], State]
    made: Callable[[Standing, int], Filter]
    restored: Callable[[Held], Filter]
    plenty: float


def filter_of(plan: Plan, scheduling: Any, schema: Any, hasher: KeyHasher, window: int | None) -> Kind:
    """Of Distinct, Union, Minus and Intersect, none of them ALL, over streams with this window (ns)."""
    if isinstance(plan, Minus | Intersect):
        both = Union(_sided(plan.left, 0, schema), _sided(plan.right, 1, schema), all=True)
        excepts = isinstance(plan, Minus)
        return Kind(
            lambda: Pipeline(both, scheduling, "append"),
            lambda state, side: _waiting(state, side, schema),
            lambda pipeline, size: _Beside.made(pipeline, size, excepts, schema, hasher, window),
            lambda held: _Beside.restored(held, excepts, schema, hasher, window),
            math.inf if excepts else _PLENTY,
        )
    assert isinstance(plan, Distinct | Union)
    below = plan.input if isinstance(plan, Distinct) else Union(plan.left, plan.right, all=True)
    return Kind(
        lambda: Pipeline(below, scheduling, "append"),
        lambda state, _: state,
        lambda pipeline, size: _Newly.made(pipeline, size, schema, hasher, window),
        lambda held: _Newly(Recent.restored(held, window), schema, hasher),
        _PLENTY,
    )


def _with_side(rows: Any, side: int, schema: Any) -> Any:
    column = pa.array(np.full(rows.num_rows, side, np.int8))
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)


def _sided(plan: Plan, side: int, schema: Any) -> Plan:
    """Rows with the names of a schema, and the side that they come from."""
    wider = schema.append(pa.field(_SIDE, pa.int8()))
    return Project(plan, lambda rows: _with_side(rows, side, wider), wider)


def _waiting(state: State, side: int, schema: Any) -> State:
    """Tuples that wait, after one projection more."""
    counts, rows = state["counts"], state["rows"]
    wider = schema.append(pa.field(_SIDE, pa.int8()))
    return {**state, "counts": np.append(counts, counts[-1]), "rows": _with_side(rows, side, wider)}


def _hashes(rows: Any, hasher: KeyHasher) -> Array:
    return hashed(rows.columns, hasher, "rows of a set")


class _Newly:
    """Values that are new."""

    HELD: ClassVar = ("_recent",)
    DERIVED: ClassVar = ("schema", "_hasher")

    def __init__(self, recent: Recent, schema: Any, hasher: KeyHasher) -> None:
        self.schema = schema
        self._recent, self._hasher = recent, hasher

    @classmethod
    def made(cls, pipeline: Standing, size: int, schema: Any, hasher: KeyHasher, window: int | None) -> _Newly:
        rows = pipeline.result
        recent = Recent(window, cells_in(size), 2.0 * rows.num_rows)
        if window is None:
            recent.put(np.full(rows.num_rows, pipeline.done), _hashes(rows, hasher))
        else:
            parts = pipeline.in_windows
            ts = np.concatenate([at for at, _ in parts])
            order = np.argsort(ts, kind="stable")
            recent.put(ts[order], np.concatenate([_hashes(each, hasher) for _, each in parts])[order])
        return cls(recent, schema, hasher)

    def told(self, found: Changes | None, done: int, windows: Windows) -> Verdict:
        del done  # nothing comes but with a tuple
        if found is None:
            return _nothing(self.schema)
        fresh, seems = self._recent.put(found.ts, _hashes(found.rows, self._hasher))
        ts = found.ts[fresh]
        if not ts.shape[0]:
            return _nothing(self.schema)
        beyond = _beyond(seems[fresh])
        rows = pa.RecordBatch.from_arrays(found.rows.filter(pa.array(fresh)).columns, schema=self.schema)
        squares = (_again(windows, ts) * beyond * (beyond + 1.0)).sum()
        return Verdict(ts, rows, missed=beyond.sum(), squares=squares, most=beyond.max())

    @property
    def memory(self) -> int:
        return self._recent.memory

    @property
    def cells(self) -> Recent | Sides:
        return self._recent

    def capture(self) -> State:
        return self._recent.capture()


class _Beside:
    """Values of the left beside those of the right.

    size: bytes, of which of EXCEPT with windows half are for rows that wait; more of these than fit are thinned, each
    of the others standing for 2**level.
    """

    HELD: ClassVar = ("_sides", "_waits", "_level", "_room")
    DERIVED: ClassVar = ("schema", "_hasher", "_excepts")

    def __init__(self, sides: Sides, waits: Waiting | None, excepts: bool, schema: Any, hasher: KeyHasher) -> None:
        self.schema = schema
        self._sides, self._waits, self._excepts, self._hasher = sides, waits, excepts, hasher
        self._level = 0
        self._room = 0

    @classmethod
    def made(
        cls, pipeline: Standing, size: int, excepts: bool, schema: Any, hasher: KeyHasher, window: int | None
    ) -> _Beside:
        waits = Waiting(schema, window) if excepts and window is not None else None
        if window is None:
            rows, counts = pipeline.both_sides
            parts = [rows.filter(pa.array(counts[:, side] > 0)) for side in (0, 1)]
            came = [(np.full(each.num_rows, pipeline.done), each) for each in parts]
        else:
            came = pipeline.in_windows
        hashes = [_hashes(each, hasher) for _, each in came]
        most = max((np.unique(each).shape[0] for each in hashes), default=0)
        sides = Sides(window, cells_in(size // (2 if waits is None else 4)), 2.0 * most)
        ts = np.concatenate([at for at, _ in came])
        order = np.argsort(ts, kind="stable")
        side = np.repeat(np.arange(2, dtype=np.int8), [at.shape[0] for at, _ in came])
        sides.put(ts[order], side[order], np.concatenate(hashes)[order])
        out = cls(sides, waits, excepts, schema, hasher)
        if waits is not None:
            out._room = _power(size // 2 // (_ROW + 16 * len(schema)))
            waits.put(*_on_both(came, hashes, schema))
            out._thin()
        return out

    def told(self, found: Changes | None, done: int, windows: Windows) -> Verdict:
        if found is None:
            found = Changes(np.zeros(0, np.int64), np.zeros(0, np.int8), joined([], self._wider))
        ts, side = found.ts, found.rows.column(len(self.schema)).to_numpy()
        rows = pa.RecordBatch.from_arrays(found.rows.columns[:-1], schema=self.schema)
        hashes = _hashes(rows, self._hasher)
        if (ts[1:] == ts[:-1]).any():
            once = _once(ts, hashes, side)
            ts, side, rows, hashes = ts[once], side[once], rows.take(pa.array(once)), hashes[once]
        looked = self._sides.put(ts, side, hashes)
        if not self._excepts:
            out = looked.there & ~(~looked.new & looked.was)
            own = _beyond(looked.own)
            other = _beyond(np.where(looked.since == ts, 0.0, looked.other))  # what came at this instant is there
            out[out] = _firsts(ts[out], hashes[out])
            yes, no = out & looked.new, looked.new & ~looked.there
            apart = other * (1.0 + own)
            squares = (own * (own + 1.0))[yes] @ _again(windows, ts[yes])
            squares += (apart * (1.0 + own) * (1.0 + other))[no] @ _again(windows, ts[no])
            missed = own[yes].sum() - (other * own)[no].sum()
            most = max(own[yes].max(initial=0.0), apart[no].max(initial=0.0))
            wrong = float(other[no].sum())
            return Verdict(ts[out], rows.filter(pa.array(out)), missed, wrong, float(squares), most=most)
        left = side == 0
        out = left & looked.new & ~looked.there
        own, other = _beyond(looked.own[out]), _beyond(looked.other[out])
        told = Verdict(ts[out], rows.filter(pa.array(out)))
        if self._waits is None:  # what is blocked by mistake is for good
            own = (1.0 + own) * (1.0 + other) - 1.0
        else:
            told.slack = float(((1.0 + own) * other).sum())
        told.missed, told.most = float(own.sum()), float(own.max(initial=0.0))
        told.squares = float(_again(windows, told.ts) @ (own * (own + 1.0)))
        if self._waits is not None:
            waits = looked.there | ~left
            if self._level:
                waits &= self._drawn(hashes)
            begins = looked.there & (looked.new | ~left)
            part = rows.filter(pa.array(waits))
            worth = np.where(left, 1.0 + _beyond(looked.own), 1.0)[waits]
            at, back, which, stands = self._waits.come(
                ts[waits], side[waits], begins[waits], hashes[waits], looked.since[waits], worth, part, done
            )
            if at.shape[0]:
                beyond = stands * 2.0**self._level - 1.0
                told.missed += float(beyond.sum())
                told.repeats = repeated(which, beyond)
                told.most = max(told.most, float(beyond.max()))
                order = np.argsort(np.concatenate([told.ts, at]), kind="stable")
                told.rows = joined([told.rows, back], self.schema).take(pa.array(order))
                told.ts = np.concatenate([told.ts, at])[order]
            self._thin()
        return told

    def _drawn(self, hashes: Array) -> Array:
        return np.asarray(units(hashes, _SEED) < 2.0**-self._level)

    def _thin(self) -> None:
        while self._waits is not None and len(self._waits) > self._room and self._level < MOST_LEVEL:
            self._level += 1
            self._waits.keep(self._drawn)

    @property
    def _wider(self) -> Any:
        return self.schema.append(pa.field(_SIDE, pa.int8()))

    @property
    def cells(self) -> Recent | Sides:
        return self._sides

    @property
    def memory(self) -> int:
        return self._sides.memory + (0 if self._waits is None else self._waits.memory)

    def capture(self) -> State:
        state: State = {"sides": self._sides.capture(), "level": self._level, "room": self._room}
        return state if self._waits is None else {**state, "waits": self._waits.capture()}

    @classmethod
    def restored(cls, held: Held, excepts: bool, schema: Any, hasher: KeyHasher, window: int | None) -> _Beside:
        """Raises EnvelopeError."""
        waits = None
        if excepts and window is not None:
            waits = Waiting.restored(held.part("waits"), schema, window)
        made = cls(Sides.restored(held.part("sides"), window), waits, excepts, schema, hasher)
        made._level, made._room = held.integer("level", 0, MOST_LEVEL), held.integer("room", 0, 1 << 40)
        held.end()
        return made


def _nothing(schema: Any) -> Verdict:
    return Verdict(np.zeros(0, np.int64), joined([], schema))


def _beyond(seems: Array) -> Array:
    """How many of what seems to be there one stands for that does not: float64 [n]."""
    return np.asarray(1.0 / (1.0 - np.minimum(seems, _SURE)) - 1.0)


def _again(windows: Windows, ts: Array) -> Array:
    """A value that is missed once may be missed in every window."""
    return 2.0 * windows(ts) + 1.0 if ts.shape[0] else np.zeros(0)


def _power(number: int) -> int:
    """The greatest power of two that is not above a number, 1 at least."""
    return 1 << max(0, number.bit_length() - 1)


def _once(ts: Array, hashes: Array, side: Array) -> Array:
    """Where the first of each value of a side at an instant is, in their order."""
    order = np.lexsort((side, hashes, ts))
    a, b = order[:-1], order[1:]
    again = (ts[a] == ts[b]) & (hashes[a] == hashes[b]) & (side[a] == side[b])
    return np.sort(order[np.append(True, ~again)])


def _firsts(ts: Array, hashes: Array) -> Array:
    """Which are the first of their value at their instant: bool [n]."""
    first = np.zeros(ts.shape[0], bool)
    if ts.shape[0]:
        first[_once(ts, hashes, np.zeros(ts.shape[0], np.int8))] = True
    return first


def _on_both(
    came: Sequence[tuple[Array, Any]], hashes: Sequence[Array], schema: Any
) -> tuple[Array, Array, Array, Any]:
    """Of values that are on both sides: when last on the left, on the right (int64 [n]), hash (uint64 [n]), rows."""
    lasts = []
    for (ts, _), each in zip(came, hashes, strict=True):
        values, backwards = np.unique(each[::-1], return_index=True)
        at = each.shape[0] - 1 - backwards
        lasts.append((values, at, ts[at]))
    (values, at, left), (others, _, right) = lasts
    _, mine, theirs = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    rows = pa.RecordBatch.from_arrays(came[0][1].columns, schema=schema).take(pa.array(at[mine]))
    return left[mine], right[theirs], values[mine], rows
