"""What aggregates return: a row a query and group, and for every number what it is worth."""

from __future__ import annotations

import difflib
import math
import warnings
from typing import TYPE_CHECKING, Any

from nile.aggregating import Asked
from nile.operators.aggregate_estimates import Number
from nile.operators.aggregate_numbers import Numbers, meet, numbers_of
from nile.operators.aggregate_plan import AggregatePlan
from nile.operators.aggregate_run import AggregateFigures, AggregateRun
from nile.streams.accounting import Accounting
from preferences.budget import BudgetReport
from summaries.errors import ConfigError, CostWarning, ErrorTargetMissed, UnknownColumn
from summaries.estimate import Estimate
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pa = lazy("pyarrow")
    pl = lazy("polars")

__all__ = ["AggregateAnswer"]


class AggregateAnswer:
    """Aggregates of one query or of many standing ones, by group.

    A table with a row for every query (column `query`, when they are named) and group: for an aggregate `x`
    its value `x`, the interval `x_low` and `x_high`, and `x_certified`: whether that interval may be relied on.
    top_k gives a list of {value, count, low, high}.  Null: no tuple counts; a null that is not certified: none
    was seen.  notes: what to know before using the numbers.
    """

    def __init__(
        self, asked: Asked, plan: AggregatePlan, accounting: Accounting, *, stream: str = "", standing: bool = False
    ) -> None:
        self.plan = plan
        self.stream = stream
        self._asked = asked
        self._read = accounting
        self._standing = standing
        self._run = AggregateRun(plan, asked.data)
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._numbers = self._answer()
        self._take_notes()

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
        for q, scope in enumerate(data.scopes):
            if scope.empty:
                self.notes.append(f"{self._name(q)} is empty: {scope.empty}")
            if scope.covered < 1.0:
                self.notes.append(f"{self._name(q)}: the stream holds {scope.covered:.1%} of the window")
            evidence = run.evidence(q)
            if data.grouped and not evidence.is_complete:
                unseen = evidence.sample.unseen
                self.notes.append(
                    f"{self._name(q)}: groups of which no tuple was read are missing; they are among {unseen:,} tuples"
                )
        if run.spent > run.exact_cost * (1.0 + 1e-9):
            told = (
                f"{self._place}: this answer cost {run.spent:,.0f} units of the {self.plan.costs.name} table, the "
                f"plain exact one costs {run.exact_cost:,.0f}; run it without a budget, or with method='naive'"
            )
            self.warnings.append(told)
            warnings.warn(told, CostWarning, stacklevel=4)

    @property
    def _place(self) -> str:
        return f"aggregates over stream '{self.stream}'"

    def _name(self, q: int) -> str:
        name = self._asked.data.scopes[q].name
        return f"query '{name}'" if name else "the query"

    def __repr__(self) -> str:
        names = ", ".join(aggregate.name for aggregate in self._asked.data.aggregates)
        figures = self._run
        return f"<AggregateAnswer {names}: {len(self._numbers)} queries by {figures.method}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The standing queries, as they were named."""
        return tuple(scope.name for scope in self._asked.data.scopes)

    @property
    def is_exact(self) -> bool:
        """Whether every number is known."""
        return all(self._run.evidence(q).is_complete for q in range(len(self._numbers)))

    def groups(self, query: str | None = None) -> list[tuple[Any, ...]]:
        """The groups a query's answer has, as tuples of their values."""
        q = self._query(query)
        columns = [labels.to_pylist() for labels in self._asked.by.values()]
        return [tuple(column[g] for column in columns) for g in self._shown(q)]

    def value(self, name: str, *, query: str | None = None, group: Any = None) -> Any:
        """One value: int, float, list for top_k, None for null.  Raises UnknownColumn, ConfigError."""
        return self._number(name, query, group).value

    def estimate(self, name: str, *, query: str | None = None, group: Any = None) -> Estimate:
        """One number with its interval; a null is an Estimate of NaN.  group: one value, or a tuple of them.

        Raises UnknownColumn, ConfigError.
        """
        number = self._number(name, query, group)
        if isinstance(number.value, list):
            raise ConfigError(f"{self._place}: {name!r} is a list of estimates; use value({name!r})")
        return Estimate.exact(math.nan) if number.estimate is None else number.estimate

    def __getitem__(self, name: str) -> Estimate:
        """`estimate(name)` of an answer with one query and no groups."""
        return self.estimate(name)

    def to_arrow(self) -> pa.Table:
        """All rows.  Columns: query (when named), the groups, then four for every aggregate."""
        data = self._asked.data
        rows = [(q, g) for q in range(len(self._numbers)) for g in self._shown(q)]
        columns: dict[str, pa.Array] = {}
        if self._standing:
            columns["query"] = pa.array([data.scopes[q].name for q, _ in rows], pa.string())
        for name, labels in self._asked.by.items():
            columns[name] = labels.take(pa.array([g for _, g in rows], pa.int64()))
        for a, aggregate in enumerate(data.aggregates):
            numbers = [self._numbers[q][a][g] for q, g in rows]
            if aggregate.function == "top_k":
                columns[aggregate.name] = self._lists(numbers, data.of[a])
                continue
            estimates = [Estimate.exact(math.nan) if n.estimate is None else n.estimate for n in numbers]
            known = [n.value is not None for n in numbers]
            columns[aggregate.name] = _values([n.value for n in numbers])
            for end in ("low", "high"):
                ends = [getattr(e, end) if have else None for e, have in zip(estimates, known, strict=True)]
                columns[f"{aggregate.name}_{end}"] = pa.array(ends, pa.float64())
            columns[f"{aggregate.name}_certified"] = pa.array([e.certified for e in estimates], pa.bool_())
        return pa.table(columns)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame (Polars must be installed)."""
        return pl.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream interface: DuckDB, Polars, pandas and others read it."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that the stream still holds; the least over the queries."""
        return min((scope.covered for scope in self._asked.data.scopes), default=1.0)

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, as shares of what it costs to feed every tuple to every query."""
        asked = math.inf if self.plan.budget is None else self.plan.budget
        spent = self.figures.budget_spent
        return BudgetReport(asked=asked, spent=spent, unit="fraction", fraction=spent)

    @property
    def accounting(self) -> Accounting:
        """in = applied + late + shed + rejected; shed: tuples that no query ever looked at."""
        told = self._read + Accounting()
        told.shed_applied(self.figures.shed)
        told.check()
        return told

    @property
    def memory_bytes(self) -> int:
        """Bytes of cells and moments (0 without a grid)."""
        return 0 if self._run.grid is None else self._run.grid.nbytes

    @property
    def figures(self) -> AggregateFigures:
        """Which way was chosen, and what it cost."""
        return self._run.figures

    def _shown(self, q: int) -> list[int]:
        data = self._asked.data
        if not data.grouped:
            return [0]
        present = self._run.evidence(q).present
        return [g for g in range(data.groups) if present[g]]

    def _query(self, query: str | None) -> int:
        names = self.names
        if query is None:
            if len(names) == 1:
                return 0
            raise ConfigError(f"{self._place}: needed query=, one of {len(names)}; got none; name one")
        if query in names:
            return names.index(query)
        close = difflib.get_close_matches(str(query), names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {len(names)}"
        raise UnknownColumn(f"{self._place}: no query is named {query!r}; {hint}")

    def _number(self, name: str, query: str | None, group: Any) -> Number:
        data = self._asked.data
        names = [aggregate.name for aggregate in data.aggregates]
        if name not in names:
            close = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
            raise UnknownColumn(f"{self._place}: no aggregate is named {name!r}; {hint}")
        q = self._query(query)
        at = 0
        if data.grouped:
            wanted = group if isinstance(group, tuple) else (group,)
            columns = [labels.to_pylist() for labels in self._asked.by.values()]
            found = [g for g in self._shown(q) if tuple(column[g] for column in columns) == wanted]
            if not found:
                raise UnknownColumn(f"{self._place}: no group {group!r} in the answer; groups() lists them")
            at = found[0]
        elif group is not None:
            raise ConfigError(f"{self._place}: needed no group, the query has no by; got {group!r}; leave it out")
        return self._numbers[q][names.index(name)][at]

    def _lists(self, numbers: list[Number], m: int) -> pa.Array:
        labels = self._asked.labels[m]
        kind = pa.string() if labels is None else labels.type
        entry = pa.struct([("value", kind), ("count", pa.float64()), ("low", pa.float64()), ("high", pa.float64())])
        return pa.array([number.value for number in numbers], pa.list_(entry))


def _values(values: list[Any]) -> pa.Array:
    """Integers where all are (int64, or decimal beyond), doubles otherwise."""
    some = [value for value in values if value is not None]
    if some and all(isinstance(value, int) for value in some):
        fits = all(-(1 << 63) <= value < 1 << 63 for value in some)
        if fits:
            return pa.array(values, pa.int64())
        if all(abs(value) < 10**38 for value in some):
            return pa.array(values, pa.decimal128(38, 0))
    return pa.array([None if value is None else float(value) for value in values], pa.float64())
