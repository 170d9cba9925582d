"""Aggregates over a stream as a Python object: immutable and cheap; nothing is read until it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from nile.aggregates.asked import read_aggregates
from nile.answers.aggregate_answer import AggregateAnswer
from nile.answers.bound_aggregate import BoundAggregate
from nile.base.budgets import GivenBudget
from nile.base.durations import parse_duration
from nile.base.names import names_given
from nile.expressions.conditions import Value, parse_value
from nile.operators.aggregate.plan import AggregatePlan
from nile.operators.aggregate.scope import instant, read_conditions
from nile.operators.inputs.aggregating import Asked
from nile.operators.inputs.home import Home
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError, ExpressionError

__all__ = ["AggregateQuery", "aggregate_query"]


@dataclass(frozen=True, slots=True)
class AggregateQuery:
    """Aggregates over a registered stream, for one query or for hundreds of standing ones.

    Made by `Database.aggregate`; each method returns a modified copy.  bound: the bound aggregates, as SQL gives them.
    """

    database: Home = field(repr=False)
    bound: BoundAggregate

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.bound}>"

    def within(self, window: str | float | timedelta | None) -> Self:
        """WINDOW: only tuples at most this much older than the last one, both ends included; None: all."""
        length = None if window is None else parse_duration(window, where="window", least=0)
        return replace(self, bound=replace(self.bound, window=length))

    def between(self, begin: Any, end: Any) -> Self:
        """Only tuples of this time range, both ends included; None leaves an end open.

        begin, end: ISO text, a datetime or date (UTC without zone), or seconds since 1970.  Raises ConfigError.
        """
        ends = [None if at is None else instant(at, where="between") for at in (begin, end)]
        return replace(self, bound=replace(self.bound, interval=(ends[0], ends[1])))

    def using(self, **options: Any) -> Self:
        """method, one of AGGREGATE_METHODS; borders ("auto", "learned", "predicates"); costs ("engine", "memory");
        seed, buckets, zone.

        Raises ConfigError for anything else.
        """
        return replace(self, bound=self.bound.using(**options))

    def plan(
        self,
        budget: GivenBudget | None = None,
        *,
        error: float | None = None,
        confidence: float = 0.95,
        otherwise: str = "flag",
    ) -> AggregatePlan:
        """The checked plan that `run` would follow.  Raises BudgetError, ConfigError."""
        return self.bound.plan(budget, error=error, confidence=confidence, otherwise=otherwise)

    def run(
        self,
        budget: GivenBudget | None = None,
        *,
        error: float | None = None,
        confidence: float = 0.95,
        otherwise: str = "flag",
    ) -> AggregateAnswer:
        """Read the stream and answer.

        budget: a Budget or a fraction of what it costs to feed every tuple to every query; None: the exact
        answer.  error: instead, or with the budget as a limit, the relative error allowed;
        no more is read than that takes.  confidence: of the intervals.  otherwise: what to do when the error
        cannot be met within the budget: "flag", "refuse" or "exact".
        Warns (CostWarning), with both costs, when the answer cost more than the plain exact way.
        Raises BudgetError, ConfigError, ErrorTargetMissed, KeyTypeError, SourceError, TimestampOrderError.
        """
        return self.bound.answer(
            self.database, self.plan(budget, error=error, confidence=confidence, otherwise=otherwise)
        )

    def load(self) -> tuple[Asked, Accounting]:
        """The stream read and everything evaluated, for several runs: `AggregateAnswer(asked, plan, accounting)`."""
        return self.bound.load(self.database)

    def explain(self, budget: GivenBudget | None = None, *, error: float | None = None) -> str:
        """The plan in words, without running it."""
        return self.bound.explain(self.database, self.plan(budget, error=error))


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
    query = AggregateQuery(database, BoundAggregate(stream, read, queries, groups))
    if window is not None:
        query = query.within(window)
    if between is None:
        return query
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise ConfigError(f"{place}: between needs (begin, end); got {between!r}; None leaves an end open")
    return query.between(*between)


def _read_by(by: str | Sequence[str] | None, schema: Any, place: str) -> tuple[Value, ...]:
    values = []
    for name in names_given(by, where=f"{place}, by"):
        # A column whose name is no plain word needs no quotes here: it is the whole text.
        text = '"' + name.replace('"', '""') + '"' if name in schema.names else name
        value = parse_value(text, where=f"{place}, by")
        if value.kind(schema, where=f"{place}, by") == "other":
            raise ExpressionError(
                f"{place}, by: needed a plain type to group by; got {name!r}, which is nested; name another"
            )
        values.append(Value(name, value.columns, value.tree))
    return tuple(values)
