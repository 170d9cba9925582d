"""Aggregates over a stream as a Python object: frozen, cheap, nothing read until it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from nile.aggregates.asked import Aggregate, read_aggregates
from nile.answers.aggregate_answer import AggregateAnswer
from nile.base.durations import format_duration, parse_duration
from nile.expressions.conditions import Condition, Value, parse_value
from nile.operators.aggregate.plan import AggregatePlan
from nile.operators.aggregate.scope import instant, read_conditions
from nile.operators.inputs.aggregating import Asked, prepare
from nile.operators.inputs.home import Home
from nile.preferences.budget import Budget
from nile.preferences.error_target import ErrorTarget
from nile.streams.accounting import Accounting
from nile.summaries.costs import cost_table
from nile.summaries.errors import BudgetError, ConfigError, ExpressionError

__all__ = ["AggregateQuery", "aggregate_query"]

_OPTIONS = ("method", "borders", "costs", "seed", "buckets", "zone")


@dataclass(frozen=True, slots=True)
class AggregateQuery:
    """Aggregates over a registered stream, for one query or for hundreds of standing ones.

    Made by `Database.aggregate`; each method returns a changed copy.  between: moments in ns, ends included.
    """

    database: Home = field(repr=False)
    stream: str
    aggregates: tuple[Aggregate, ...]
    queries: tuple[tuple[str, tuple[Condition, ...]], ...]
    by: tuple[Value, ...] = ()
    interval: tuple[int | None, int | None] = (None, None)
    window: int | None = None
    costs: str = "engine"
    options: tuple[tuple[str, Any], ...] = ()

    def within(self, window: str | float | timedelta | None) -> AggregateQuery:
        """WINDOW: only tuples at most this much older than the last one, both ends included; None: all."""
        return replace(self, window=None if window is None else parse_duration(window, where="window"))

    def between(self, begin: Any, end: Any) -> AggregateQuery:
        """Only tuples of this time range, both ends included; None leaves an end open.

        begin, end: ISO text, a datetime or date (UTC without zone), or seconds since 1970.  Raises ConfigError.
        """
        ends = [None if at is None else instant(at, where="between") for at in (begin, end)]
        return replace(self, interval=(ends[0], ends[1]))

    def using(self, **options: Any) -> AggregateQuery:
        """method, one of AGGREGATE_METHODS; borders ("auto", "learned", "predicates"); costs ("engine", "memory");
        seed, buckets, zone.

        Raises ConfigError for anything else.
        """
        kept = dict(self.options)
        changed = self
        for name, value in options.items():
            if name not in _OPTIONS:
                raise ConfigError(
                    f"aggregate option: needed one of {', '.join(_OPTIONS)}; got {name!r}; check the spelling"
                )
            if name == "costs":
                changed = replace(changed, costs=value)
            else:
                kept[name] = value
        return replace(changed, options=tuple(kept.items()))

    def plan(
        self,
        budget: Budget | float | None = None,
        *,
        error: float | None = None,
        confidence: float = 0.95,
        otherwise: str = "flag",
    ) -> AggregatePlan:
        """The checked plan that `run` would follow.  Raises BudgetError, ConfigError."""
        given: Mapping[str, Any] = dict(self.options)
        if budget is not None and not isinstance(budget, Budget):
            budget = Budget(budget)
        if budget is not None and budget.fraction is None:
            raise BudgetError(
                f"aggregates: needed a budget as a fraction of the exact work; got one of {budget}; "
                "write Budget(fraction=0.1), or ask for an error"
            )
        target = None if error is None else ErrorTarget(error, confidence, otherwise)
        return AggregatePlan(
            budget=None if budget is None else budget.fraction,
            target=target,
            confidence=confidence,
            costs=cost_table(self.costs),
            **given,
        )

    def run(
        self,
        budget: Budget | float | None = None,
        *,
        error: float | None = None,
        confidence: float = 0.95,
        otherwise: str = "flag",
    ) -> AggregateAnswer:
        """Read the stream and answer.

        budget: a Budget or a fraction of what it costs to feed every tuple to every query; None: the exact
        answer.  error: instead, or with the budget as a limit, how far a number may be off, as a share of it;
        as little is read as that takes.  confidence: of the intervals.  otherwise: what to do when the error
        cannot be met within the budget: "flag", "refuse" or "exact".
        Warns (CostWarning), with both costs, when the answer cost more than the plain exact way.
        Raises BudgetError, ConfigError, ErrorTargetMissed, KeyTypeError, SourceError, TimestampOrderError.
        """
        plan = self.plan(budget, error=error, confidence=confidence, otherwise=otherwise)
        asked, accounting = self.load()
        return AggregateAnswer(asked, plan, accounting, stream=self.stream, standing=self._standing)

    def load(self) -> tuple[Asked, Accounting]:
        """The stream read and everything evaluated, for several runs: `AggregateAnswer(asked, plan, accounting)`."""
        time = self.database.time_column(self.stream)
        names = [name for aggregate in self.aggregates for name in aggregate.columns]
        names += [name for value in self.by for name in value.columns]
        names += [name for _, conditions in self.queries for condition in conditions for name in condition.columns]
        columns = self.database.load_columns(self.stream, tuple(dict.fromkeys(names)))
        asked = prepare(
            columns, self.aggregates, self.queries, self.by, time=time, between=self.interval, window=self.window,
            where=f"aggregates over stream '{self.stream}'",
        )  # fmt: skip
        return asked, columns.accounting

    @property
    def _standing(self) -> bool:
        return len(self.queries) > 1 or self.queries[0][0] != ""

    def explain(self, budget: Budget | float | None = None, *, error: float | None = None) -> str:
        """The plan in words, without running it."""
        plan = self.plan(budget, error=error)
        told = ", ".join(f"{aggregate.name} = {aggregate.text}" for aggregate in self.aggregates)
        how = "exactly" if plan.is_exact else f"budget {plan.budget:g} of the naive cost" if plan.budget else "no limit"
        lines = [
            f"aggregate {self.stream}: {told}",
            f"  {len(self.queries)} standing queries" if self._standing else "  one query",
            f"  {how} ({plan.costs.name} table); method {plan.method}, borders {plan.borders}",
        ]
        if plan.target is not None:
            lines.append(
                f"  error {plan.target.error:g} at confidence {plan.target.confidence:g}, otherwise "
                f"{plan.target.otherwise}"
            )
        if self.by:
            lines.append(f"  by {', '.join(value.text for value in self.by)}")
        if self.window is not None:
            lines.append(f"  over the latest {format_duration(self.window)}")
        return "\n".join(lines)


def aggregate_query(
    database: Home,
    stream: str,
    aggregates: Mapping[str, str],
    *,
    where: str | None,
    predicates: Mapping[str, str] | None,
    by: str | Sequence[str] | None,
    window: str | float | timedelta | None,
    between: tuple[Any, Any] | None,
) -> AggregateQuery:
    """The body of `Database.aggregate`: everything checked against the stream's columns."""
    place = f"aggregates over stream '{stream}'"
    schema = database.schema(stream)
    read = read_aggregates(aggregates, where=place)
    for aggregate in read:
        aggregate.check(schema, where=place)
    groups = _read_by(by, schema, place)
    taken = [value.text for value in groups] + [aggregate.name for aggregate in read]
    queries = read_conditions(predicates, where, schema, place=place)
    if predicates is not None:
        taken.append("query")
    if len(set(taken)) < len(taken):
        raise ConfigError(f"{place}: needed a different name for each column of the answer; got {taken}; rename one")
    query = AggregateQuery(database=database, stream=stream, aggregates=read, queries=queries, by=groups)
    if window is not None:
        query = query.within(window)
    if between is None:
        return query
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise ConfigError(f"{place}: between needs (begin, end); got {between!r}; None leaves an end open")
    return query.between(*between)


def _read_by(by: str | Sequence[str] | None, schema: Any, place: str) -> tuple[Value, ...]:
    names = [] if by is None else [by] if isinstance(by, str) else list(by)
    values = []
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{place}, by: needed columns or expressions as text; got {name!r}; quote it")
        # A column whose name is no plain word needs no quotes here: it is the whole text.
        text = '"' + name.replace('"', '""') + '"' if name in schema.names else name
        value = parse_value(text, where=f"{place}, by")
        if value.kind(schema, where=f"{place}, by") == "other":
            raise ExpressionError(
                f"{place}, by: needed a plain type to group by; got {name!r}, which is nested; name another"
            )
        values.append(Value(name, value.columns, value.tree))
    return tuple(values)
