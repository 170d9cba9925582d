"""Approximate answers: WITH PREFERENCE, BUDGET and ERROR, by the operators that the Python queries also run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nile.answers.answer import Answer
from nile.answers.join_answer import ComingAnswer
from nile.answers.progress import Run
from nile.answers.selection_answer import SelectionAnswer
from nile.execution.approximate.aggregate import StreamAggregate
from nile.execution.approximate.join import ApproximateHome, JoinAggregate, PreferredJoin
from nile.execution.approximate.lookups import Lookups
from nile.execution.approximate.selection import PreferredSelection
from nile.execution.approximate.shape import Shape, shape_of
from nile.execution.approximate.stored import StoredRows
from nile.execution.approximate.topped import numbers_shown, within
from nile.execution.exact.relational import Relational
from nile.execution.options import Options
from nile.execution.values import filtered, maker, schema_of
from nile.operators.common.total_bounds import TotalBounds
from nile.operators.drive.clock import timed
from nile.preferences.budget import BudgetReport
from nile.sql.plan import Filter, Group, Join, Limit, Preference, Project, Query, Sort, walk
from nile.streams.accounting import Accounting
from nile.summaries.errors import BudgetError, ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["ApproximateRun", "Prepared", "approximate", "is_approximate"]

WEIGHT = "_weight"


class Operator(Protocol):
    """An approximate operator, asked of a query: checked, nothing read."""

    def explain(self) -> str:
        """What it will do, in words."""

    def run(self) -> Answer:
        """Read the streams and prepare the answer."""

    def found(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """What the answer holds, as the columns of the plan below its projections."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls its streams."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An approximate query that has been checked.

    weighted: rows carry `_weight`, 1 / inclusion probability; stored: rows of relations that tuples look up.
    """

    query: Query
    shape: Shape
    operator: Operator
    schema: pa.Schema
    weighted: bool
    stored: tuple[StoredRows, ...] = ()

    def start(self) -> ApproximateRun:
        """A run that has read nothing yet."""
        return ApproximateRun(self)

    def answer(self) -> Any:
        """The operator's answer.  Raises NotYet where a tuple has several rows of a relation that it looks up."""
        answer = self.operator.run()
        for rows in self.stored:
            rows.check()  # a LEFT JOIN of whose columns none is looked at has outputs by it, too
        return answer

    def selected(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the operator found, through the selections and projections above it, weights beside them."""
        steps = [(step, maker(step.items) if isinstance(step, Project) else None) for step in self.shape.above[::-1]]
        for given in found:
            batch = given
            for step, make in steps:
                if isinstance(step, Filter):
                    batch = filtered(step.condition, batch)
                elif make is not None:
                    made = make(batch)
                    batch = made.append_column(WEIGHT, batch.column(WEIGHT)) if self.weighted else made
            yield batch


def is_approximate(query: Query, options: Options) -> bool:
    """Whether a query says, or is given, a preference, a budget or an error."""
    return bool(query.preference or query.budget or query.error or options.budget is not None)


def approximate(engine: ApproximateHome, query: Query, options: Options, *, standing: bool = False) -> Prepared:
    """A query WITH PREFERENCE, BUDGET or ERROR, checked.  Raises NotYet, ConfigError, BudgetError.

    standing: whether it stays, and tells outputs as tuples come.
    """
    grouped = any(isinstance(each, Group) for each in walk(query.plan))
    lookups = Lookups(engine, query.plan, settled=not grouped and (standing or query.windowed))
    query = replace(query, plan=lookups.plan)
    shape = shape_of(query.plan)
    budget = options.with_budget(query.budget)
    join = isinstance(shape.core, Join)
    if shape.group is None and query.error is not None:
        raise ConfigError("ERROR: needed a query of aggregates, whose numbers can be off; got rows; say BUDGET")
    if query.preference is None and join and shape.group is not None and (budget or query.error):
        query = replace(query, preference=Preference("weighted", ()))  # numbers are asked for: a random sample
    if query.preference is None and (shape.group is None or join):
        raise BudgetError(
            "BUDGET: needed WITH PREFERENCE, which says what to find first; got none, which asks for the exact answer; "
            "say WITH PREFERENCE desc, or leave the budget out"
        )
    operator: Operator
    if shape.group is not None:
        make: Callable[..., Operator] = JoinAggregate if join else StreamAggregate
        operator = make(engine, query, shape, budget, options)
    else:
        make = PreferredJoin if join else PreferredSelection
        operator = make(engine, query, shape, budget, options)
    weighted = bool(join and shape.group is None and query.preference and query.preference.kind == "weighted")
    fields = list(schema_of(query.plan.fields))
    schema = pa.schema([*fields, *([pa.field(WEIGHT, pa.float64())] if weighted else [])])
    return Prepared(query, shape, operator, schema, weighted, tuple(lookups.rows))


class ApproximateRun(Run):
    """One run.  answer: the operator's own, once it has begun."""

    def __init__(self, prepared: Prepared) -> None:
        self.schema = prepared.schema
        self._prepared = prepared
        self._rows = 0
        self.answer: Any = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as they are found."""
        prepared = self._prepared
        self.answer = prepared.answer()
        found = prepared.selected(prepared.operator.found(self.answer))
        for step in prepared.shape.top[::-1]:
            found = self._topped(step, found)
        clock = getattr(self.answer, "clock", None)
        try:
            for batch in timed((batch for batch in found if batch.num_rows), clock):
                self._rows += batch.num_rows
                yield batch
        finally:
            if isinstance(self.answer, ComingAnswer):
                self.answer.close()

    def _topped(self, step: Sort | Limit, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if isinstance(step, Sort):
            every = pa.Table.from_batches(list(found), self.schema).combine_chunks().to_batches()
            if every:
                yield Relational.ordered(step, every[0])
            return
        skip, room = step.offset, step.count
        for batch in found:
            gone = min(skip, batch.num_rows)
            skip -= gone
            part = batch.slice(gone, room)
            room = None if room is None else room - part.num_rows
            yield part
            if room == 0:
                return

    @property
    def _answer(self) -> Answer:
        answer: Answer = self.answer
        return answer

    @property
    def accounting(self) -> dict[str, Accounting]:
        """in = applied + late + shed + rejected, of each alias."""
        told = dict(zip(self._prepared.operator.aliases, self._answer.accounts, strict=True))
        return told | {alias: one for rows in self._prepared.stored for alias, one in rows.accounting.items()}

    @property
    def memory(self) -> int:
        """Bytes held by summaries, directories and tuple lists."""
        return self._answer.memory_bytes

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent."""
        return self._answer.budget

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that was still held."""
        return self._answer.coverage

    @property
    def estimate(self) -> Estimate | None:
        """How many outputs the exact answer has; of one aggregate alone, that number.

        A group that was found is one of the exact answer, but for conditions on numbers; others may not have been.
        """
        found, shape = self._answer.overall, self._prepared.shape
        if shape.group is not None:
            if found is not None or not shape.group.by or self._answer.is_exact:
                return found
            found = Estimate.between(math.inf, 0.0, math.inf)
        elif not isinstance(self._answer, SelectionAnswer):
            return found
        assert found is not None
        rows, high = float(self._rows), float(found.high)
        for step in shape.top[::-1]:
            if isinstance(step, Limit):
                high = max(0.0, min(high - step.offset, math.inf if step.count is None else float(step.count)))
        above = shape.above[::-1]
        if shape.group is None:  # conditions right above the stream are the selection's
            while above and isinstance(above[0], Filter):
                above = above[1:]
            if not any(isinstance(step, Filter) for step in above):
                return Estimate.exact(high)
            return Estimate.between(rows, rows, high)
        low = 0.0 if any(isinstance(step, Filter) for step in above) else rows
        return Estimate.between(rows, low, high)

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        """Of aggregates: each number with its interval, by column, one per row; {} of rows."""
        shape = self._prepared.shape
        return {} if shape.group is None else numbers_shown(shape, self._answer, self.schema)[1]

    @property
    def bounds(self) -> TotalBounds | None:
        """Of the outputs of a join, where they are the rows: how many there are, by sketches of all tuples."""
        return self._answer.bounds if self._has_pairs else None

    @property
    def _has_pairs(self) -> bool:
        shape = self._prepared.shape
        return shape.group is None and not any(isinstance(step, Filter) for step in shape.above)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the rows are used."""
        return self._answer.warnings

    def worth(self) -> str:
        """What the answer is worth, in a few words."""
        spent = self.budget
        parts = [f"spent {spent.fraction:.3g} of the exact work"]
        estimate = self.estimate
        if estimate is not None and estimate.low < estimate.high:
            high = "?" if estimate.high == float("inf") else f"{estimate.high:,.6g}"
            parts.append(f"estimate {estimate.value:,.6g}, from {estimate.low:,.6g} to {high}")
            if self._has_pairs and (bounds := self._answer.bounds_at_once) is not None:
                parts.append(f"by sketches {bounds.words}")
        if self._prepared.shape.group is not None and (estimate is None or self._answer.overall is None):
            parts += [f"{name} {told}" for name, each in self.estimates.items() if (told := within(each))]
        if self.coverage < 1.0:
            parts.append(f"coverage {self.coverage:.3g}")
        return ", ".join(parts)
