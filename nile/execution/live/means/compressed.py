"""Standing DISTINCT and sets that only append, inside the bounds of their database: exact, or by a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.exact.state import held as holding
from nile.exact.state.held import Held, State
from nile.execution.choice import Choice
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.gate import Gate
from nile.execution.live.means.given import LEAST, SAFE, Cost, Point
from nile.execution.live.means.repeats import varied
from nile.execution.live.means.squeezed import MOST, REPEATS, Squeezed, worth_of
from nile.execution.live.means.weighed_intervals import CONFIDENCE, Precision, counted
from nile.execution.live.means.weighing import Weighed
from nile.execution.live.running import Running
from nile.runtime.recent import CELL
from nile.sql.plan import Distinct, Filter, Plan, Project, Query, SetOperation, Stream, leaves_of
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["CompressedSubscription", "Narrow", "compressed"]

Array = np.ndarray[Any, Any]
_PART = 2.0
"""A filter takes this part of what its plan may hold: the rest is for all that the windows hold, once that fits."""
_STEPS = 3
"""Of twice or half the cells that its curve has."""
_HALVINGS = 2
"""How often a filter is halved to make room for that."""
_CELLS = 8
"""A tuple that was held, where only CPU time is bounded."""
_BYTES = 256.0
"""Of a tuple, where nobody knows."""


def compressed(query: Query, choice: Choice, live: Mapping[str, object]) -> Weighed | None:
    """What of a query a filter of last times may stand for; None: nothing.

    That is DISTINCT, UNION, EXCEPT and INTERSECT, none of them ALL, of live streams with equal windows of time, or
    none, under `append` and projections alone: with emit `changes` it would have to be told which values leave, which
    a filter does not know, ALL counts equal rows, and above other operators what it misses might make more output.
    """
    plan = query.plan
    while isinstance(plan, Project):
        plan = plan.input
    leaves = leaves_of(plan)
    streams = [leaf for leaf in leaves if isinstance(leaf, Stream) and leaf.name in live]
    if choice.emit != "append" or choice.scheduling != "nta" or len(streams) < len(leaves) or not _told_apart(plan):
        return None
    windows = {leaf.window for leaf in streams}
    if len(windows) != 1 or not isinstance(window := windows.pop(), int | None):
        return None
    return Weighed(query, "values", len(query.plan.fields), window, {})


def _told_apart(plan: Plan) -> bool:
    if isinstance(plan, SetOperation):
        sides = (plan.left, plan.right)
        return not plan.all and all(map(_chain, sides))
    return isinstance(plan, Distinct) and _chain(plan.input)


def _chain(plan: Plan) -> bool:
    while isinstance(plan, Filter | Project):
        plan = plan.input
    return isinstance(plan, Stream)


class Narrow(Gate):
    """In front of a plan that takes all tuples in, but may hold a filter in the place of them.

    level: 1 while it does.
    """

    pipeline: Callable[[], Squeezed]
    room: Callable[..., float]
    fits: Callable[[Gate, str, int, float, int], bool]
    lends: Callable[[Gate], int]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._each = _BYTES
        self._doubled = 0
        """How often its filter was doubled by what it was given; below 0: halved, for others."""

    def twin(self) -> Gate:
        other = super().twin()
        assert isinstance(other, Narrow)
        other._each, other.room, other.fits, other.lends = self._each, self.room, self.fits, self.lends
        other._doubled = other.doublings = self._doubled
        return other

    def alike(self, other: Gate) -> bool:
        assert isinstance(other, Narrow)
        mine, theirs = (self._each, self._doubled), (other._each, other._doubled)
        return super().alike(other) and (not self.level or mine == theirs)

    @property
    def level(self) -> int:
        return int(self.pipeline().squeezed)

    @property
    def apart(self) -> int:
        return self.pipeline().apart

    def let_in(self, name: str, batch: TupleBatch) -> tuple[Array, pa.RecordBatch]:
        """All tuples of a batch, after it is decided what holds them."""
        rows, n = batch.carried, len(batch)
        assert rows is not None
        if not n:
            return batch.ts, rows
        pipeline, ledger, at = self.pipeline(), self._ledgers[name], int(batch.ts[-1])
        self.note(name, batch)
        if not pipeline.squeezed:
            if self.ask(self, name, n):
                held = self.held()
                self._each = pipeline.exactly / held if held else _BYTES
                pipeline.squeeze(int(self._size(held, n)))
                self._forgotten()
        elif self._makes_room(name, n):
            pipeline.refill()
        elif pipeline.refilling:
            pipeline.let_go()
            self._forgotten()
        else:
            self._fit(n)
        ledger.add(at, n, n, 0)
        if pipeline.squeezed and not pipeline.refilling:
            ledger.took_in[-1] = 0
        self.filled()
        return batch.ts, rows

    def _fit(self, tuples: int) -> None:
        """Let the filter be as large as it may be, of the batch as in `_size`."""
        pipeline = self.pipeline()
        if pipeline.plenty < math.inf and 2 * (self.cells - self.lent) <= self._size(0, tuples):
            if self._doubled > 0:  # more comes than when it was made, or others have left room
                self._doubled -= 1
                self.doublings = max(0, self.doublings - 1)
            else:
                pipeline.double()
        asked = self.lends(self)
        while self._doubled < asked:
            pipeline.double()
            self._doubled += 1
        while self._doubled > asked and pipeline.halve():
            self._doubled -= 1
        self.doublings = self._doubled  # there may be as few cells as there can be

    def _makes_room(self, name: str, tuples: int) -> bool:
        """Whether all tuples of the windows find room beside the filter, which may become smaller for that."""
        pipeline, each = self.pipeline(), self._each
        own = self.apart - self.lent
        least = own - int((self.cells - self.lent) * (1.0 - 0.5**_HALVINGS))
        if not self.fits(self, name, tuples, each, least if not pipeline.refilling else own):
            return False
        while self._doubled > 0 and pipeline.halve():
            self._doubled -= 1
        self.doublings = self._doubled = 0
        while not self.fits(self, name, tuples, each, self.apart) and self.apart > least and pipeline.halve():
            pass
        return True

    def _size(self, held: int, tuples: int) -> float:
        """Bytes of a filter, which takes no more than is of use: the rest is for others.  tuples: the batch's."""
        room = self.room(self, tuples, _PART * self.pipeline().plenty)
        return CELL * _CELLS * max(held, 1) if room == math.inf else room / _PART

    @property
    def cells(self) -> int:
        return self.pipeline().cells

    @property
    def lent(self) -> int:
        own = self.cells << -self._doubled if self._doubled < 0 else self.cells >> self._doubled
        return self.cells - own

    @property
    def how(self) -> Any:
        pipeline = self.pipeline()
        return pipeline.squeezed, pipeline.refilling, self.cells, self.last_level

    @property
    def wanting(self) -> bool:
        pipeline = self.pipeline()
        return pipeline.squeezed and not pipeline.refilling and self.made.window is not None

    def in_equal_parts(self, cost: Cost) -> float:
        """Until all it would hold finds room beside its filter."""
        del cost
        own = self.cells - self.lent
        return self.many * self._each / SAFE - self.bytes - (1.0 - 0.5**_HALVINGS) * own

    def curve(self, cost: Cost) -> list[Point]:
        """By how often a new value seems known; fewer cells, too, where that is no more often."""
        del cost
        if not self.wanting or self.pipeline().plenty == math.inf:
            return [Point(0.0, 0.0)]  # what EXCEPT misses, it misses of those that wait
        full, hashes = self.pipeline().full
        errors = {k: float((1.0 - (1.0 - full) ** 0.5**k) ** hashes) for k in range(-_STEPS, _STEPS + 1)}
        points = [Point(self.cells * (2.0**k - 1.0), error, k) for k, error in errors.items()]
        return [points.pop(_STEPS), *(each for each in points if each.error <= errors[0] + LEAST)]

    def first(self, points: Sequence[Point], to: Point) -> Point:
        del points
        return to

    def take(self, to: Point) -> None:
        self.doublings += to.steps

    def stay(self) -> None:
        """Nothing: it goes by no part."""

    @property
    def extra(self) -> float:
        return float(self.lent)

    @property
    def reserved(self) -> float:
        return float(self.cells * (2 ** max(0, self.doublings - self._doubled) - 1))

    def give_back(self) -> None:
        self.doublings = min(self.doublings, 0)

    def limited(self, limit: float) -> float:
        return limit

    def settle(self) -> None:
        """Nothing."""

    def shrink(self) -> None:
        """Nothing: cells are halved before the next batch."""

    def _forgotten(self) -> None:
        """Nothing is held of what was let in."""
        for each in self._ledgers.values():
            each.took_in = [0] * len(each.took_in)
        self.peak = self.tables = self.grown = self.bytes = self.tables_before = self.held_before = 0
        self.jumps, self.marks = [], []


class CompressedSubscription(BoundedSubscription):
    """A standing DISTINCT, UNION, EXCEPT or INTERSECT of a database with bounds, with emit `append`.

    Made by `Database.subscribe`.  While state does not suffice, filters of last times tell which rows come: some are
    missed, and of INTERSECT some are wrong; `precision` says how many, `estimate` how many there are in the exact
    answer, with its interval.  Exact again once a window has passed in which all fitted; queries without a WINDOW stay
    approximate.
    """

    _base: Array

    def _prepare(self, plan: Running) -> None:
        was = plan.pipeline
        plan.run_by(partial(Squeezed, was.plan, was.scheduling, signed=was.signed, hasher=self._hasher))
        self._base = np.zeros(MOST)
        names = {leaf.name: leaf.position for leaf in leaves_of(self._made.query.plan) if isinstance(leaf, Stream)}
        gate = Narrow(self._made, names, self._hasher, self._level)
        gate.room, gate.fits, gate.lends = self._means.room, self._means.fits, self._means.lends
        self._attach(plan, gate)

    def _attach(self, plan: Running, gate: Gate) -> None:
        assert isinstance(gate, Narrow)
        gate.pipeline = partial(_pipeline, plan)
        super()._attach(plan, gate)
        gate.memory = partial(_exactly, plan)

    @property
    def _worth(self) -> Array:
        """Of its outputs so far what filters told that they are worth: float64 [MOST]."""
        return np.asarray(_pipeline(self._plan).worth[:MOST] - self._base)

    def join(self, other: ExactSubscription) -> bool:
        before = [(each, each._worth) for each in self._plan.readers]
        if not super().join(other):
            return False
        for each, worth in before:
            each._base = _pipeline(each._plan).worth[:MOST] - worth
        return True

    def _alone(self) -> None:
        worth = self._worth
        super()._alone()
        self._base = _pipeline(self._plan).worth[:MOST] - worth

    def _counted(self, state: State) -> list[tuple[Any, str]]:
        """Of the whole plan alone: its operators begin to count anew when a filter takes their place."""
        return [(where, name) for where, name in super()._counted(state) if where is state]

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has so far; at least those there are, where none can be wrong."""
        with self._lock:
            worth = self._worth
            missed, wrong, squares, slack = worth[: REPEATS.start]
            squares += varied(worth[REPEATS])
            if not (missed or wrong or squares or slack):
                return Estimate.exact(float(self.outputs))
            value = max(0.0, self.outputs + float(missed - wrong + slack / 2.0))
            least = 0.0 if wrong else float(self.outputs)
            most = float(_pipeline(self._plan).worth[MOST])
            low, high = counted(np.array([value]), np.array([squares]), most)
            half = float(slack) / 2.0
            low_end, high_end = math.floor(float(low[0]) - half), math.ceil(float(high[0]) + half)  # whole outputs
            return Estimate(value, max(float(low_end), least), float(high_end), CONFIDENCE, False)

    @property
    def precision(self) -> Precision:
        """Of all outputs so far: the share of them that is expected to be wrong, and of the exact ones to be missed."""
        with self._lock:
            missed, wrong, _, slack = self._worth[: REPEATS.start]
            told = float(self.outputs)
            right = max(0.0, told - float(wrong))
            missed = max(0.0, float(missed + slack / 2.0))
            return Precision(1.0 - right / told if told else 0.0, missed / (right + missed) if missed else 0.0)

    def intervals(self) -> pa.Table:
        """The rows as they stand, all of them `certain`.  Raises ConfigError while a filter stands for them."""
        if self.approximate:
            raise ConfigError(
                "intervals: needed a query that holds its rows; got DISTINCT or a set with emit='append' beyond its "
                "bounds, of which a filter holds when values last came; read estimate, for outputs so far"
            )
        return super().intervals()

    def capture(self) -> State:
        with self._lock:
            gate = self.gate
            assert isinstance(gate, Narrow)
            means = {
                "worth": np.append(self._worth, _pipeline(self._plan).worth[MOST]),
                "each": np.array([gate._each]),
                "peak": gate.peak,
                "doubled": gate._doubled,
                "gate": self._gate_state(),
            }
            return {**ExactSubscription.capture(self), "means": means}

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        part, gate = held.part("means"), self.gate
        assert isinstance(gate, Narrow)
        worth = worth_of(part)
        gate._each = float(part.array("each", "float64", (1,))[0])
        gate.peak = part.integer("peak", 0, holding.MOST)
        if part.has("doubled"):  # written since filters may be given more
            gate._doubled = gate.doublings = part.integer("doubled", -40, 40)
        gate.restore(part.part("gate"))
        part.end()
        ExactSubscription._go_on_from(self, held)
        pipeline = _pipeline(self._plan)
        if not pipeline.squeezed:
            pipeline.worth = worth.copy()
        self._base = pipeline.worth[:MOST] - worth[:MOST]
        gate.resumed()


def _pipeline(plan: Running) -> Squeezed:
    assert isinstance(plan.pipeline, Squeezed)
    return plan.pipeline


def _exactly(plan: Running) -> int:
    return _pipeline(plan).exactly
