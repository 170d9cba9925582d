"""Selections WITH PREFERENCE over one stream: its columns taken for the tuples that were found."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nile.answers.selection_answer import SelectionAnswer
from nile.answers.selection_query import SelectionQuery
from nile.execution.approximate.scope import Scope, Shape, condition_of
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.conditions import Condition
from nile.expressions.tree import Constant
from nile.operators.inputs.joining import load_stream
from nile.operators.inputs.selecting import Selectable
from nile.preferences.budget import Budget
from nile.preferences.clock import retime
from nile.sql.plan import Filter, Query, Rows, Stream
from nile.summaries.errors import ConfigError, CostWarning, NotYet
from nile.summaries.heavy import pa

__all__ = ["PreferredSelection"]

_NAME = "the query"


class PreferredSelection:
    """SELECT columns FROM stream WHERE condition WITH PREFERENCE kind column."""

    def __init__(self, engine: Any, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        """Raises NotYet for a window of rows, ConfigError for a preference that names no single column."""
        assert isinstance(shape.core, Stream)
        assert query.preference is not None
        self._stream = shape.core
        self._budget = budget
        self._summaries = [name for _, name in query.summaries]
        if isinstance(self._stream.window, Rows):
            raise NotYet("approximate selection: ROWS windows have no operator yet; say WINDOW with a duration")
        terms = {term.column for term in query.preference.terms}
        if len(terms) != 1:
            raise ConfigError(
                "WITH PREFERENCE: needed the one column whose values are summarised, for a selection; got "
                f"{', '.join(sorted(terms)) or 'none'}; write WITH PREFERENCE {query.preference.kind} column"
            )
        if query.preference.fade != 1.0:
            raise NotYet("approximate selection: FADE FACTOR has no operator yet; leave it out")
        column = terms.pop()
        self._on = column.removeprefix(f"{self._stream.alias}.")
        condition = self._stream.where
        for step in shape.above[::-1]:
            if not isinstance(step, Filter):
                break
            condition = all_of(condition, step.condition)
        tree = Constant(True, "boolean")
        asked = Condition("true", (), tree) if condition is None else condition_of(condition, self._stream.alias)
        self._scope = Scope(engine, (replace(self._stream, where=None),))
        home: Any = self._scope
        made = SelectionQuery(home, self._stream.alias, self._on, ((_NAME, asked),))
        if isinstance(self._stream.window, int):
            made = made.within(f"{self._stream.window} ns")
        by = options.by or ("value" if query.preference.terms[0].by == "value" else "share")
        made = made.prefer(query.preference.kind, by=by)
        if options.replay is not None:
            mean = {} if options.replay_mean is None else {"mean": options.replay_mean}
            made = made.replayed(options.replay, **mean)
        own = {name: getattr(options, name) for name in ("method", "costs", "seed", "output")}
        for name in ("guide", "outlier_cap"):
            if getattr(options, name) is not None:
                raise ConfigError(f"{name}: needed a join; got a selection, which has none; leave it out")
        self.query = made.using(**{k: v for k, v in own.items() if v is not None}, **dict(options.using))
        self.query.plan(budget)

    def explain(self) -> str:
        """What it will do, in words."""
        plan = self.query.plan(self._budget)
        budget = "no limit" if plan.budget is None else str(plan.budget)
        lines = [
            f"standing selection of {self._stream.name} on {self._on}: by {plan.method}, {plan.preference} first, "
            f"regions by {plan.promise}",
            f"  budget {budget} ({plan.costs.name} table); output {plan.output}",
        ]
        if self._summaries:
            lines.append(
                f"  {', '.join(self._summaries)}: for joins; a selection keeps value-ordered buckets of its own"
            )
        return "\n".join(lines)

    def _carry(self) -> tuple[str, ...]:
        own = [field.name.removeprefix(f"{self._stream.alias}.") for field in self._stream.fields]
        names = dict.fromkeys([*own, *self.query.predicates[0][1].columns])
        return tuple(name for name in names if name != self._on)

    def run(self) -> SelectionAnswer:
        """Read the stream and prepare the answer."""
        query = self.query
        loaded = load_stream(self._scope.manager(query.stream, self._on, self._carry()))
        if query.pace.replay == "exponential":
            seed = int(dict(query.options).get("seed", 0))
            loaded = replace(loaded, ts=retime(len(loaded), query.pace.mean, seed, query.pace.bursts))
        answer = SelectionAnswer(Selectable(loaded, self._on, query.predicates), query.plan(self._budget))
        self._held = loaded.carried
        if answer.cost_warning is not None:
            warnings.warn(answer.cost_warning, CostWarning, stacklevel=2)
        return answer

    def found(self, answer: SelectionAnswer) -> Iterator[pa.RecordBatch]:
        """The tuples found, with the stream's columns."""
        for batch in answer.batches():
            at = batch.column("ordinal")
            arrays, names = [], []
            for field in self._stream.fields:
                name = field.name.removeprefix(f"{self._stream.alias}.")
                column = batch.column(name) if name == self._on else self._column(name).take(at)
                arrays.append(column if column.type == field.type else column.cast(field.type))
                names.append(field.name)
            if not arrays:
                arrays, names = [at], ["_"]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, name: str) -> pa.Array:
        assert self._held is not None  # a batch of tuples found means that tuples were read
        return self._held.column(name)

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls the stream."""
        return (self._stream.alias,)
