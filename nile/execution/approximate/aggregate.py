"""Aggregates over one stream under a BUDGET or to an ERROR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nile.answers.aggregate_answer import AggregateAnswer
from nile.answers.bound_aggregate import BoundAggregate
from nile.execution.approximate.join import aggregate_of, group_rows
from nile.execution.approximate.join_terms import value_of
from nile.execution.approximate.shape import Shape
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.operators.inputs.home import Home
from nile.operators.inputs.pair_conditions import own_condition, own_tree
from nile.preferences.budget import Budget
from nile.sql.plan import Query, Stream
from nile.sql.windows import is_plain
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["StreamAggregate", "bound_aggregate"]


def bound_aggregate(query: Query, shape: Shape, options: Options) -> BoundAggregate:
    """SELECT aggregates FROM stream WHERE condition GROUP BY keys, bound.

    Raises NotYet for windows of rows and for desc and asc, whose tuples are no random sample.
    """
    assert isinstance(shape.core, Stream)
    assert shape.group is not None
    stream, alias = shape.core, shape.core.alias
    if not is_plain(stream.window):
        raise NotYet(
            "approximate aggregates: windows of ROWS, NOW and SLIDE have no operator yet; say WINDOW with a duration"
        )
    if query.preference is not None and query.preference.kind != "weighted":
        raise NotYet(
            f"approximate aggregates: needed WITH PREFERENCE weighted (or none), a random sample; got "
            f"{query.preference.kind}, whose tuples are not one; say weighted, or leave the preference out"
        )
    unused = ("guide", "output", "outlier_cap", "replay", "by")
    options.refuse(unused, "a join or a selection; got aggregates, which have none")
    condition = all_of(stream.where, shape.where)
    by = [(item.name, own_tree(item.node, alias)) for item in shape.group.by]
    bound = BoundAggregate(
        stream.name,
        tuple(
            aggregate_of(each if each.argument is None else replace(each, argument=own_tree(each.argument, alias)))
            for each in shape.group.aggregates
        ),
        (("", () if condition is None else (own_condition(condition, alias),)),),
        tuple(value_of(name, tree) for name, tree in by),
        window=stream.window,
    )
    return bound.using(**options.given("method", "costs", "seed"), **dict(options.using))


class StreamAggregate:
    """Aggregates of one stream: Nile's estimates of the snapshot."""

    def __init__(self, home: Home, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        """Raises what `bound_aggregate` and a plan raise."""
        assert shape.group is not None
        self._home = home
        self._group = shape.group
        self.bound = bound_aggregate(query, shape, options)
        asked: dict[str, Any] = options.given("confidence")
        if query.error is not None:
            asked |= dict(zip(("error", "confidence", "otherwise"), query.error, strict=True))
        self.plan = self.bound.plan(budget, **asked)
        self.aliases = (shape.core.alias,) if isinstance(shape.core, Stream) else ()

    def explain(self) -> str:
        """What it will do, in words."""
        return self.bound.explain(self._home, self.plan)

    def run(self) -> AggregateAnswer:
        """Read the stream and answer.  Raises ErrorTargetMissed where the statement says ELSE REFUSE."""
        return self.bound.answer(self._home, self.plan)

    def found(self, answer: AggregateAnswer) -> Iterator[pa.RecordBatch]:
        """One row per group."""
        yield from group_rows(answer, self._group.fields)
