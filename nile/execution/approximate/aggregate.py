"""Aggregates over one stream under a BUDGET or to an ERROR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nile.answers.aggregate_answer import AggregateAnswer
from nile.answers.aggregate_query import AggregateQuery
from nile.execution.approximate.join import aggregate_of, group_rows
from nile.execution.approximate.scope import Scope, Shape, condition_of, substituted
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.conditions import Value
from nile.expressions.tree import Column, Node, columns_of
from nile.preferences.budget import Budget
from nile.sql.plan import Query, Rows, Stream
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.heavy import pa

__all__ = ["StreamAggregate"]


class StreamAggregate:
    """SELECT aggregates FROM stream WHERE condition GROUP BY keys BUDGET or ERROR: Nile's estimates of the snapshot."""

    def __init__(self, engine: Any, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        """Raises NotYet for windows of rows and for desc and asc, whose tuples are no random sample."""
        assert isinstance(shape.core, Stream)
        assert shape.group is not None
        stream = shape.core
        if isinstance(stream.window, Rows):
            raise NotYet("approximate aggregates: ROWS windows have no operator yet; say WINDOW with a duration")
        if query.preference is not None and query.preference.kind != "weighted":
            raise NotYet(
                f"approximate aggregates: needed WITH PREFERENCE weighted (or none), a random sample; got "
                f"{query.preference.kind}, whose tuples are none; say weighted, or leave the preference out"
            )
        for name in ("guide", "output", "outlier_cap", "replay", "by"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"{name}: needed a join or a selection; got aggregates, which have none; leave it out"
                )
        self._group = shape.group
        self._stream = stream
        self._budget = budget
        self._error = query.error
        self._confidence = options.confidence
        alias = stream.alias
        condition = all_of(stream.where, shape.where)
        self._scope = Scope(engine, (replace(stream, where=None),))
        home: Any = self._scope
        aggregates = tuple(
            aggregate_of(each if each.argument is None else replace(each, argument=_own(each.argument, alias)))
            for each in shape.group.aggregates
        )
        by = []
        for item in shape.group.by:
            tree = _own(item.node, alias)
            by.append(Value(item.name, columns_of(tree), tree))
        conditions = () if condition is None else (condition_of(condition, alias),)
        made = AggregateQuery(home, alias, aggregates, (("", conditions),), tuple(by))
        if isinstance(stream.window, int):
            made = made.within(f"{stream.window} ns")
        own = {name: getattr(options, name) for name in ("method", "costs", "seed")}
        self.query = made.using(**{k: v for k, v in own.items() if v is not None}, **dict(options.using))
        self.query.plan(budget, **self._asked())

    def _asked(self) -> dict[str, Any]:
        asked: dict[str, Any] = {} if self._confidence is None else {"confidence": self._confidence}
        if self._error is not None:
            error, confidence, otherwise = self._error
            asked |= {"error": error, "confidence": confidence, "otherwise": otherwise}
        return asked

    def explain(self) -> str:
        """What it will do, in words."""
        return self.query.explain(self._budget, error=None if self._error is None else self._error[0])

    def run(self) -> AggregateAnswer:
        """Read the stream and answer.  Raises ErrorTargetMissed where the statement says ELSE REFUSE."""
        return self.query.run(self._budget, **self._asked())

    def found(self, answer: AggregateAnswer) -> Iterator[pa.RecordBatch]:
        """One row per group."""
        yield from group_rows(answer, self._group.fields)

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls the stream."""
        return (self._stream.alias,)


def _own(node: Node, alias: str) -> Node:
    """A tree over the stream's own columns."""
    prefix = f"{alias}."
    return substituted(node, {name: Column(name.removeprefix(prefix)) for name in columns_of(node)})
