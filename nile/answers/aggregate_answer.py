"""What aggregates return: a row per query and group, and an interval for every number."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.answers.aggregate_table import AggregateTable
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.figures import AggregateFigures
from nile.operators.aggregate.numbers import Numbers, meet, numbers_of
from nile.operators.aggregate.plan import AggregatePlan
from nile.operators.aggregate.run import AggregateRun
from nile.operators.drive.clock import Clock
from nile.operators.inputs.aggregating import Asked
from nile.operators.inputs.whole import Whole
from nile.operators.strategies.distinct import groups_told
from nile.operators.strategies.least import too_little
from nile.operators.strategies.machine_prices import machine_prices
from nile.preferences.budget import BudgetReport
from nile.report.accuracy.reporting import Wanted
from nile.streams.accounting import Accounting
from nile.summaries.errors import CostWarning, ErrorTargetMissed
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.report.accuracy import aggregates
    from nile.report.accuracy.report import AccuracyReport
else:
    aggregates = lazy("nile.report.accuracy.aggregates")

__all__ = ["AggregateAnswer", "WholeAggregates"]

_IN_WHOLE = "the budget pays for a look at every tuple: this is the exact answer"


class AggregateAnswer(AggregateTable):
    """Aggregates of one query or of many standing ones, by group.

    notes: what to know before using the numbers; warnings: costs; met: with an error target, whether each query
    came within it.  Raises BudgetError where time is over before all groups can be told, as many as there are.
    """

    _hidden: tuple[str, ...] = ()
    """Which groups a sample hides, of each query that has such."""

    def __init__(
        self,
        asked: Asked,
        plan: AggregatePlan,
        accounting: Accounting,
        *,
        stream: str = "",
        standing: bool = False,
        clock: Clock | None = None,
    ) -> None:
        data = asked.data
        super().__init__(
            f"aggregates over stream '{stream}'",
            data.aggregates,
            [asked.labels[m] if m >= 0 else None for m in data.of],
            asked.by,
            [scope.name for scope in data.scopes],
            standing=standing,
        )
        self._plan = plan
        self._asked = asked
        self._read = accounting
        self._stream = stream
        limit, self._clock = plan.limit, clock or Clock(plan.limit)
        groups = data.groups * len(data.scopes) * len(data.aggregates) if data.grouped else 0
        owed = groups * machine_prices().group / 1e9
        left = None if limit is None else lambda: limit.amount - owed - self._seconds
        if limit is not None and groups and self._seconds + owed > limit.amount:
            loading = self._clock.loading
            raise too_little(1e9 * (self._seconds + owed) - loading, data.n, limit, loading=loading)
        each = machine_prices().estimating([aggregate.function for aggregate in data.aggregates]) / 1e9
        self._run = AggregateRun(plan, asked.data, left, each)
        self.notes: list[str] = []
        self._costly: tuple[str, ...] = ()
        self._numbers = self._answer()
        self._take_notes()
        self._took, self._cpu = self._seconds, self._clock.cpu / 1e9

    @property
    def _seconds(self) -> float:
        return self._clock.elapsed / 1e9

    @property
    def plan(self) -> AggregatePlan:
        """What was asked, checked and complete."""
        return self._plan

    @property
    def warnings(self) -> tuple[str, ...]:
        """That the answer cost more than the plain exact way, where it did, and that groups are missing."""
        return (*self._costly, *self._hidden)

    def again(self, budget: float | None, *, seed: int | None = None, method: str | None = None) -> AggregateAnswer:
        """The same aggregates of what was read, under a fraction of the exact work (None: all of it)."""
        plan = self.plan
        plan = replace(
            plan,
            budget=budget,
            target=None,
            limit=None,
            seed=plan.seed if seed is None else seed,
            method=method or plan.method,
        )
        asked = self._asked if self._asked.coded is None else self._asked.coded()
        return AggregateAnswer(asked, plan, self._read, stream=self._stream, standing=self._standing)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`: against every tuple fed to every query."""
        plan = self.plan
        wanted.refuse_exact(plan.is_exact, plan.budget)
        names = ", ".join(aggregate.text for aggregate in self._aggregates)
        asked = {
            "method": "nile", "guide": plan.method, "structure": None, "preference": "weighted", "seed": plan.seed,
            "output": "numbers", "costs": plan.costs.name, "replay": "none",
        }  # fmt: skip
        return aggregates.aggregate_accuracy(
            self, wanted, wanted.query or f"{names} over stream {self._stream}",
            exact=self.again(None, method="naive"),
            again=lambda budget, seed: self.again(budget, seed=seed),
            asked_of=asked,
            own=None if plan.is_exact else plan.budget if plan.budget and not plan.target else self.budget.fraction,
        )  # fmt: skip

    def _answer(self) -> list[Numbers]:
        run, target, labels = self._run, self.plan.target, self._asked.labels
        queries = range(len(run.readers))
        if target is None or run.method == "naive":
            self.met: list[bool] | None = None if target is None else [True for _ in queries]
            return [numbers_of(run, q, labels, self.plan.confidence) for q in queries]
        numbers, self.met = meet(run, target, labels)
        if all(self.met):
            return numbers
        missed = [self._name(q) for q in queries if not self.met[q]]
        told = (
            f"{self._place}: needed an error of at most {target.error:g} at confidence {target.confidence:g}; got "
            f"it for {len(queries) - len(missed)} of {len(queries)} queries at a cost of {run.spent:,.0f} (exact: "
            f"{run.exact_cost:,.0f}), not for {', '.join(missed[:3])}{' and others' if len(missed) > 3 else ''}"
        )
        if target.otherwise == "refuse":
            raise ErrorTargetMissed(f"{told}; allow more budget or error, or say otherwise='exact'")
        if target.otherwise == "exact":
            run.finish_exactly()
            self.met = [True for _ in queries]
            self.notes.append(f"{told}; so it was answered exactly")
            return [numbers_of(run, q, labels, self.plan.confidence) for q in queries]
        self.notes.append(f"{told}; `met` says which")
        return numbers

    def _take_notes(self) -> None:
        run, data = self._run, self._asked.data
        if run.note:
            self.notes.append(run.note)
        if (drawn := data.drawn) is not None and drawn.at is None:
            self.notes.append(_IN_WHOLE)
        elif drawn is not None and drawn.note:
            self._costly = (drawn.note,)
        for q, scope in enumerate(data.scopes):
            if scope.empty:
                self.notes.append(f"{self._name(q)} is empty: {scope.empty}")
            if scope.covered < 1.0:
                self.notes.append(f"{self._name(q)}: the stream holds {scope.covered:.1%} of the window")
            evidence = run.evidence(q)
            if data.grouped and not evidence.is_complete:
                unseen, sample = evidence.sample.unseen, evidence.sample
                share = float(sample.drawn.sum()) / max(1.0, float(sample.size.sum()))
                met = np.bincount(data.group[evidence.at], minlength=data.groups)
                if not evidence.known.cells.shape[0] and (told := groups_told(met, share)):
                    self._hidden = (*self._hidden, f"{self._name(q)}: {told}")
                self.notes.append(
                    f"{self._name(q)}: groups of which no tuple was read are missing; they are among {unseen:,} tuples"
                )
        limit = self.plan.limit
        if limit is not None and self._seconds > limit.amount:
            self._costly = (
                f"{self._place}: needed {limit}; took {self._seconds:.3g} seconds, most of them to read the stream; "
                "allow more, or ask a stream that is kept",
            )
            warnings.warn(self._costly[0], CostWarning, stacklevel=4)
        if limit is None and run.spent > run.exact_cost * (1.0 + 1e-9):
            told = (
                f"{self._place}: this answer cost {run.spent:,.0f} units of the {self.plan.costs.name} table, the "
                f"plain exact one costs {run.exact_cost:,.0f}; run it without a budget, or with method='naive'"
            )
            self._costly = (told,)
            warnings.warn(told, CostWarning, stacklevel=4)

    def _name(self, q: int) -> str:
        name = self._asked.data.scopes[q].name
        return f"query '{name}'" if name else "the query"

    def __repr__(self) -> str:
        names = ", ".join(aggregate.name for aggregate in self._asked.data.aggregates)
        figures = self._run
        return f"<AggregateAnswer {names}: {len(self._numbers)} queries by {figures.method}>"

    @property
    def is_exact(self) -> bool:
        """Whether every number is known."""
        return self._run.is_exact

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that the stream still holds; the least over the queries."""
        return min((scope.covered for scope in self._asked.data.scopes), default=1.0)

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, as shares of what it costs to feed every tuple to every query, or in seconds."""
        figures, whole = self.figures, self.figures.exact_cost or 1.0
        parts = {"summary": figures.spent_summary / whole, "tuples": (figures.spent - figures.spent_summary) / whole}
        share, cpu = figures.budget_spent, self._cpu
        if (limit := self.plan.limit) is not None:
            return BudgetReport(limit.amount, self._took, limit.unit, share, False, cpu, parts)
        asked = math.inf if self.plan.budget is None else self.plan.budget
        granted = None if self.plan.budget is None else figures.granted / whole
        return BudgetReport(asked, share, "fraction", share, cpu_seconds=cpu, parts=parts, granted=granted)

    @property
    def accounting(self) -> Accounting:
        """in = applied + late + shed + rejected; shed: tuples that no query ever looked at."""
        told = self._read + Accounting()
        told.shed_applied(self.figures.shed)
        told.check()
        return told

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """Of the one stream."""
        return (self.accounting,)

    @property
    def memory_bytes(self) -> int:
        """Bytes of cells and moments (0 without a grid)."""
        return 0 if self._run.grid is None else self._run.grid.nbytes

    @property
    def figures(self) -> AggregateFigures:
        """Which method was chosen, and what it cost."""
        return self._run.figures

    def _shown(self, q: int) -> list[int]:
        data = self._asked.data
        if not data.grouped:
            return [0]
        present = self._run.evidence(q).present
        return [g for g in range(data.groups) if present[g]]


class WholeAggregates(AggregateAnswer):
    """Aggregates that a fraction pays for in whole, worked out by columns; what operators tell is made when asked for.

    every: all that was read as the input of a run, which figures are of; coded: the same for runs under other budgets.
    """

    def __init__(
        self,
        whole: Whole,
        every: Callable[[], Asked],
        coded: Callable[[], Asked],
        stream: str,
        aggregates: tuple[Aggregate, ...],
        plan: AggregatePlan,
        accounting: Accounting,
        clock: Clock,
    ) -> None:
        place = f"aggregates over stream '{stream}'"
        AggregateTable.__init__(self, place, aggregates, [None for _ in aggregates], whole.by, [""], standing=False)
        self._whole, self._every, self._plan = whole, every, plan
        self._again = coded
        self._read, self._stream, self._clock = accounting, stream, clock
        self.met = None
        self._costly = ()
        self.notes = [_IN_WHOLE]
        if whole.covered < 1.0:
            self.notes.append(f"the query: the stream holds {whole.covered:.1%} of the window")
        self._took, self._cpu = self._seconds, clock.cpu / 1e9

    @cached_property
    def _asked(self) -> Asked:  # type: ignore[override]
        asked = self._every()
        asked.coded = self._again
        return asked

    @cached_property
    def _run(self) -> AggregateRun:  # type: ignore[override]
        return AggregateRun(self._plan, self._asked.data)

    @property
    def is_exact(self) -> bool:
        """Every number is known."""
        return True

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that the stream still holds."""
        return self._whole.covered

    @property
    def budget(self) -> BudgetReport:
        """All of the work was asked for by what costs no more than was granted."""
        asked, parts = self.plan.budget or 0.0, {"summary": 0.0, "tuples": 1.0}
        return BudgetReport(asked, 1.0, "fraction", 1.0, cpu_seconds=self._cpu, parts=parts, granted=1.0)

    @property
    def accounting(self) -> Accounting:
        """in = applied + late + rejected."""
        return self._read + Accounting()

    @property
    def memory_bytes(self) -> int:
        """No cell is kept."""
        return 0

    def to_arrow(self) -> pa.Table:
        """All rows."""
        columns = dict(self._by)
        whole = self._whole
        for aggregate, values, number in zip(self._aggregates, whole.values, whole.numbers, strict=True):
            ends = values.cast(pa.float64(), safe=False) if number else pa.nulls(len(values), pa.float64())
            columns[aggregate.name] = values
            columns[f"{aggregate.name}_low"] = columns[f"{aggregate.name}_high"] = ends
            columns[f"{aggregate.name}_certified"] = pa.repeat(True, len(values))
        return pa.table(columns)

    def __repr__(self) -> str:
        names = ", ".join(aggregate.name for aggregate in self._aggregates)
        return f"<AggregateAnswer {names}: 1 queries by naive>"

    def _shown(self, q: int) -> list[int]:  # noqa: ARG002
        return list(range(len(self._whole.values[0])))

    def _told(self, q: int, a: int, g: int) -> Number:  # noqa: ARG002
        value = self._whole.values[a][g].as_py()
        return Number(value, Estimate.exact(float(value)) if self._whole.numbers[a] and value is not None else None)
