"""Exact standing queries that stay inside the bounds of their database: sampled while they must, exact again after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.tail import Passed
from nile.exact.state.held import MOST, Held, State
from nile.execution.choice import Choice
from nile.execution.exact.run import changed, output_schema
from nile.execution.live.chosen import Sought
from nile.execution.live.commits import Commits
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounds import Means
from nile.execution.live.means.gate import MOST_LEVEL, Gate, hashed
from nile.execution.live.means.weighed_intervals import CONFIDENCE, counted, interval, totalled, values_told
from nile.execution.live.means.weighing import GROUPS, Weighed
from nile.execution.live.running import Running
from nile.preferences.budget import BudgetReport
from nile.sql.plan import Query, Stream, leaves_of
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["BoundedSubscription"]

Array = np.ndarray[Any, Any]


class BoundedSubscription(ExactSubscription):
    """A standing query of a database with bounds (`nile.connect(memory=, cpu=)`).  Made by `Database.subscribe`.

    It is the exact query, output for output, as long as state and time suffice.  Where they do not, a sample of what
    comes is taken in and counts and sums are scaled up by what each tuple stands for; `approximate` says so,
    `intervals()` gives the rows as they stand with the interval of each number, `estimate` that of a single number, of
    outputs so far, or of rows of DISTINCT and sets.  Once the last tuple of a sample has left the windows all is exact
    again by itself; queries without a WINDOW stay approximate.
    """

    def __init__(
        self,
        names: Any,
        query: Query,
        choice: Choice,
        live: dict[str, LiveStream],
        commits: Commits,
        callback: Callable[[pa.RecordBatch], None] | None,
        state: Mapping[str, Any] | None,
        made: Weighed,
        means: Means,
    ) -> None:
        self._made, self._means, self._hasher = made, means, names.hasher
        self._asked = query
        self._total = np.zeros(2)
        self._groups = np.zeros(GROUPS)
        self._worst = 0
        self._beside: dict[str, tuple[int, int]] = {}
        super().__init__(names, made.query, choice, live, commits, callback, state, None)
        self.query = query
        self.ending.append(self._leave)

    def _output_schema(self, query: Query, choice: Choice) -> pa.Schema:
        del query  # has hidden columns
        return output_schema(self._asked, choice.emit)

    def _prepare(self, plan: Running) -> None:
        leaves = [leaf for leaf in leaves_of(self._made.query.plan) if isinstance(leaf, Stream)]
        self._attach(plan, Gate(self._made, {leaf.name: leaf.position for leaf in leaves}, self._hasher, self._level))

    @property
    def admitted(self) -> dict[str, tuple[int, int]]:
        """Of each stream (tuples that it brought to this query, those that were let in)."""
        gate = self.gate
        return {name: (gate.came[name] + came, gate.took[name] + took) for name, (came, took) in self._beside.items()}

    def _level(self, gate: Gate, name: str, tuples: int) -> int:
        return self._means.level(gate, name, tuples)

    def _attach(self, plan: Running, gate: Gate) -> None:
        plan.gate = gate
        self._beside = self._beside or dict.fromkeys(gate.came, (0, 0))
        gate.memory, gate.groups, gate.compact = partial(_memory, plan), partial(_rows, plan), plan.compact
        self._means.add(gate)

    @property
    def gate(self) -> Gate:
        """Of the plan that it runs on."""
        gate = self._plan.gate
        assert isinstance(gate, Gate)
        return gate

    def _leave(self) -> None:
        if not self._plan.readers:
            self._means.remove(self.gate)

    @property
    def shape(self) -> object:
        return "bounded", super().shape

    def join(self, other: ExactSubscription) -> bool:
        """As of any exact query, while both are exact or, as after a restart, have drawn the same."""
        if not isinstance(other, BoundedSubscription) or self._plan is other._plan:
            return super().join(other)
        mine, theirs, readers = self.gate, other.gate, list(self._plan.readers)
        if not mine.alike(theirs) or not super().join(other):
            return False
        for each in readers:
            each._beside = {
                name: (came + mine.came[name] - theirs.came[name], took + mine.took[name] - theirs.took[name])
                for name, (came, took) in each._beside.items()
            }
        self._means.remove(mine)
        theirs.weight = max(mine.weight, theirs.weight)
        return True

    def _alone(self) -> None:
        shared, gate = self._plan, self.gate
        super()._alone()
        if self._plan is not shared:
            self._attach(self._plan, gate.twin())

    def takes_nothing_back(self) -> str | None:
        return "one of a database with bounds on memory or CPU, whose samples do not tell whether a tuple was in them"

    @property
    def approximate(self) -> bool:
        """Whether of some tuples in its windows only a sample was taken in: what it tells now is no exact answer."""
        with self._lock:
            return self.gate.level > 0

    @property
    def weight(self) -> float:
        """How much more memory and CPU time than a query of weight 1 it may have when there is too little for all."""
        return self.gate.weight

    @weight.setter
    def weight(self, value: float) -> None:
        with self._lock:
            self.gate.weight = float(value)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each live stream: in = applied + late + shed + rejected; shed: tuples that no sample took."""
        with self._lock:
            told = {}
            for name, (came, took) in self.admitted.items():
                told[name] = self._streams[name].accounting + Accounting()
                told[name].shed_applied(came - took)
                told[name].check()
            return told

    @property
    def budget(self) -> BudgetReport:
        """All of it asked; spent: the share of the tuples so far that was taken in."""
        with self._lock:
            came, took = map(sum, zip(*self.admitted.values(), strict=True))
            share = took / came if came else 1.0
            return BudgetReport(1.0, share, "fraction", share)

    @property
    def estimate(self) -> Estimate:
        """Of one number without groups: what it is; of DISTINCT and sets: how many rows; else outputs so far."""
        with self._lock:
            made, level = self._made, self.gate.level
            if made.drawn == "values":
                return self._rows_told(level)
            if made.grouped:
                return self._single(level)
            value, excess = float(self._total[0]), 2.0**self._worst - 1.0
            if not self._worst:
                return Estimate.exact(float(self.outputs))
            if made.drawn == "tuples":
                low, high = counted(self._total[:1], self._total[1:], excess)
            else:
                reach = totalled(self._groups[None, :], excess)
                low, high = np.maximum(self._total[:1] - reach, 0.0), self._total[:1] + reach
            if math.isnan(low[0]):
                return Estimate.guess(value)
            return Estimate(value, float(low[0]), float(high[0]), CONFIDENCE, False)

    def _single(self, level: int) -> Estimate:
        made = self._made
        if not level:
            return super().estimate if made.by or len(made.told) != 1 else Estimate.exact(self._only()[0])
        if made.by or len(made.told) != 1:
            return Estimate.guess(math.nan)
        value, low, high = self._only()
        return Estimate.guess(value) if math.isnan(low) else Estimate(value, low, high, CONFIDENCE, False)

    def _only(self) -> tuple[float, float, float]:
        rows = self._standing()
        (told,) = self._made.told
        found = interval(told, rows, self.gate.level, grouped=False) if rows.num_rows else None
        if found is None or not rows.num_rows:
            return math.nan, math.nan, math.nan
        value = rows.column(told.column)[0].as_py()
        return math.nan if value is None else float(value), float(found[0][0]), float(found[1][0])

    def _rows_told(self, level: int) -> Estimate:
        rows = self._standing()
        hashes = self._hashes(rows)
        return values_told(hashes, self.gate.below(hashes, level), level)

    def _hashes(self, rows: pa.RecordBatch) -> Array:
        return hashed(rows.columns, self._hasher, "rows")

    def _standing(self) -> pa.RecordBatch:
        """The rows as they stand, with hidden columns."""
        rows = self._plan.pipeline.snapshot().combine_chunks().to_batches()
        made = [self._tail.contents(batch) for batch in rows]
        if not made:
            schema = self._made.query.plan.fields
            return pa.RecordBatch.from_pylist([], pa.schema([(field.name, field.type) for field in schema]))
        return made[0]

    def intervals(self) -> pa.Table:
        """The rows as they stand, and of every number its interval: `x_low` and `x_high` beside an aggregate `x`.

        95 %, of each number alone; null where nothing is known; equal to the number where that is exact.  Of DISTINCT
        and sets `certain`: whether the row is in the exact answer for sure.  Raises ConfigError of a query that keeps
        no rows.  Cost: O(rows).
        """
        with self._lock:
            rows, level = self._standing(), self.gate.level
            table = pa.Table.from_batches([rows.select(list(range(self._made.shown)))])
            if self._made.drawn == "values":
                sure = self.gate.below(self._hashes(rows), level) if level else np.ones(rows.num_rows, bool)
                return table.append_column("certain", pa.array(sure))
            for told in self._made.told:
                ends = interval(told, rows, level, grouped=self._made.by > 0)
                name = table.column_names[told.column]
                for what, end in zip(("low", "high"), ends or (), strict=False):
                    table = table.append_column(f"{name}_{what}", pa.array(end, mask=np.isnan(end)))
            return table

    def _work(self, step: Callable[..., None], *given: Any) -> None:
        begun = self._means.meter()
        gate = self.gate
        super()._work(step, *given)
        self._means.spent(gate, self._means.meter() - begun)

    def _arrived(self, name: str, batch: TupleBatch) -> None:
        if self._seen is not None:
            self._seen[name] += len(batch)
        self._step(lambda: self._let_in(name, batch))
        self._progress()

    def _let_in(self, name: str, batch: TupleBatch) -> list[Changes]:
        ts, rows = self.gate.let_in(name, batch)
        return self._plan.push(name, ts, rows) if len(ts) else []

    def _progress(self) -> None:
        super()._progress()
        if (at := self._passed()) is not None:
            self.gate.passed(at)
        self._worst = max(self._worst, self.gate.level)

    @property
    def sought(self) -> tuple[Sought, ...]:
        """None: what is let in is counted tuple by tuple."""
        return ()

    def _formed(self, found: Sequence[Changes], selected: bool = False) -> tuple[Passed, list[pa.RecordBatch]]:
        passed = self._tail.passed(found, selected=selected)
        shown = list(range(self._made.shown))
        told = [Changes(each.ts, each.sign, each.rows.select(shown), each.gone) for each in passed.changes]
        return passed, [changed(each, self.schema, self.choice.emit) for each in told]

    def _given(self, passed: Passed, batches: list[pa.RecordBatch]) -> None:
        if self._made.weight is not None:
            for each in passed.changes:
                shown = self._made.shown
                weight = each.rows.column(shown).to_numpy().astype(np.float64)
                self._total += weight.sum(), (weight * (weight - 1.0)).sum()
                if self._made.group is not None:
                    group = each.rows.column(shown + 1).to_numpy()
                    many = group >= 0
                    self._groups += np.bincount(group[many], weights=weight[many], minlength=GROUPS)
        super()._given(passed, batches)

    def capture(self) -> State:
        with self._lock:
            means = {
                "worst": self._worst,
                "total": self._total.copy(),
                "groups": self._groups.copy(),
                "peak": self.gate.peak,
                "gate": self._gate_state(),
            }
            return {**super().capture(), "means": means}

    def _gate_state(self) -> State:
        """Of its gate, as if nobody else had come through it."""
        state = self.gate.capture()
        for name, (came, took) in self.admitted.items():
            state[name] |= {"came": came, "took": took}
        return state

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        part = held.part("means")
        self._worst = part.integer("worst", 0, MOST_LEVEL)
        self._total = np.array(part.array("total", "float64", (2,)))
        self._groups = np.array(part.array("groups", "float64", (GROUPS,)))
        self.gate.peak = part.integer("peak", 0, MOST)
        self.gate.restore(part.part("gate"))
        part.end()
        super()._go_on_from(held)
        self.gate.resumed()


def _rows(plan: Running) -> int:
    root = plan.pipeline.operators[0]
    return int(root.positive - root.negative)


def _memory(plan: Running) -> int:
    return int(plan.pipeline.memory)
