"""Aggregates over a join, of expressions over the columns of all its streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.aggregates.asked import MOMENT, Aggregate, read_aggregates
from nile.answers.aggregate_table import AggregateTable
from nile.answers.join_counting import available, counted_numbers
from nile.answers.tabular import Members
from nile.base.names import names_given
from nile.expressions.conditions import Value, parse_value
from nile.operators.aggregate.distribution import estimate_distribution
from nile.operators.aggregate.estimates import Number, estimate_moment
from nile.operators.aggregate.evidence import Evidence, no_cells
from nile.operators.aggregate.input import AggregateInput, Measure
from nile.operators.aggregate.ordered import Ordered
from nile.operators.aggregate.weighted import WeightedOutputs, weighted_numbers
from nile.operators.inputs.aggregating import grouped, measure_of
from nile.operators.inputs.loading import Columns
from nile.operators.inputs.pair_conditions import StreamNames
from nile.operators.strategies.distinct import groups_told
from nile.preferences.budget import BudgetReport
from nile.preferences.clock import Pace
from nile.preferences.key_sample import KeySample
from nile.report.accuracy.reporting import Wanted
from nile.report.records import asked_of
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.answers.join_outputs import JoinOutputs
    from nile.operators.common.plan import JoinPlan
    from nile.report.accuracy import aggregates as accuracy
    from nile.report.accuracy.report import AccuracyReport
else:
    accuracy = lazy("nile.report.accuracy.aggregates")

__all__ = ["JoinAggregateAnswer", "aggregate_of_outputs", "columns_of_aggregates", "read_join_aggregates"]

Array = np.ndarray[Any, Any]
_PLACE = "aggregates over a join"


class JoinAggregateAnswer(AggregateTable):
    """Aggregates of a join's outputs, by group.  answer: the join's own answer, with its pairs; notes: what to know."""

    def __init__(
        self,
        answer: JoinOutputs[Any],
        aggregates: tuple[Aggregate, ...],
        by: tuple[Value, ...],
        aliases: tuple[str, ...],
        confidence: float = 0.95,
    ) -> None:
        self.answer = answer
        self._of = (aggregates, by, aliases, confidence)
        self.notes: list[str] = []
        self._hidden: tuple[str, ...] = ()
        if answer.clock is None:
            self._aggregate()
        else:
            answer.clock.during(self._aggregate)

    def _aggregate(self) -> None:
        answer, (aggregates, by, aliases, confidence) = self.answer, self._of
        plan = answer.plan
        whole = plan.is_exact and plan.preference != "asc"
        if whole and (counted := counted_numbers(answer, aggregates, by, aliases)) is not None:
            self._groups, groups_by, numbers, kinds = counted
            super().__init__(_PLACE, aggregates, kinds, groups_by, [""], standing=False)
            self._numbers = [numbers]
            return
        found = answer.members()
        if answer.clock is not None:
            answer.clock.owed = 0.0
        self._outputs = float(found.weight.shape[0])
        batch = _member_columns(found, aliases, columns_of_aggregates(aggregates, by))
        columns = Columns("join", found.streams[0].ts[found.ordinal[0]], batch, Accounting(), found.streams[0].hasher)
        group, groups, labels_by = grouped(by, columns, _PLACE)
        measures: list[Measure | None] = []
        labels: list[pa.Array | Ordered | None] = []
        for aggregate in aggregates:
            if aggregate.value is None:
                measures.append(None)
                labels.append(None)
                continue
            measure, label = measure_of(aggregate.value, columns, aggregate.function, where=_PLACE)
            measures.append(measure)
            labels.append(label)
        super().__init__(_PLACE, aggregates, labels, labels_by, [""], standing=False)
        self._groups = groups
        if whole:
            self._numbers = [_exact(aggregates, measures, labels, columns, group, groups, bool(by))]
            return
        drawn = answer.random_sample()
        random = drawn is not None
        sample = drawn or KeySample(found.weight, np.ones(len(columns)), found.key)
        outputs = WeightedOutputs(sample=sample, group=group.astype(np.int64), groups=groups, random=random)
        self._numbers = [
            [
                weighted_numbers(aggregate, measure, outputs, confidence, label)
                for aggregate, measure, label in zip(aggregates, measures, labels, strict=True)
            ]
        ]
        self.notes.append(
            "outputs are a random sample; intervals are not certified, since outputs of one key are not independent"
            if random
            else f"the outputs found were picked by preference ({plan.preference}), which is not a random sample"
        )
        if by:
            self.notes.append("groups of which no output was found are missing")
            share = len(columns) / max(1.0, float(found.weight.sum()))
            if random and (told := groups_told(np.bincount(group, minlength=groups), share)):
                self._hidden = (told,)

    @property
    def table_numbers(self) -> list[list[Number]]:
        """Every aggregate for every group: [aggregate][group]."""
        (own,) = self._numbers
        return own

    def again(self, answer: JoinOutputs[Any]) -> JoinAggregateAnswer:
        """The same aggregates over another answer to the same join."""
        aggregates, by, aliases, confidence = self._of
        return JoinAggregateAnswer(answer, aggregates, by, aliases, confidence)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`: against the same aggregates over every output of the join."""
        answer, plan = self.answer, self.answer.plan
        wanted.refuse_exact(plan.is_exact, plan.budget)
        spec = replace(plan.spec, forgetting=False)
        whole = answer.again(1.0, preference="desc", method="nile", pace=Pace(), spec=spec)
        return accuracy.aggregate_accuracy(
            self, wanted, wanted.query or f"{', '.join(each.text for each in self._aggregates)} over {answer!r}",
            exact=self.again(whole),
            again=lambda budget, seed: self.again(answer.again(budget, seed=seed)),
            asked_of=asked_of(plan),
            own=None if plan.is_exact or plan.budget.fraction is None else plan.budget.fraction,
        )  # fmt: skip

    def __repr__(self) -> str:
        names = ", ".join(aggregate.name for aggregate in self._aggregates)
        return f"<JoinAggregateAnswer {names}: {self._groups} rows>"

    def _shown(self, q: int) -> list[int]:  # noqa: ARG002
        return list(range(self._groups))

    @property
    def plan(self) -> JoinPlan:
        """Of the join."""
        return self.answer.plan

    @property
    def coverage(self) -> float:
        """As of the join's answer."""
        return self.answer.coverage

    @property
    def is_exact(self) -> bool:
        """Whether all outputs of the join were found, so that no group is missing and every number is known.

        Under asc they are outliers alone, however many others there are.
        """
        plan = self.answer.plan
        if plan.is_exact or plan.preference == "asc":
            return plan.preference != "asc"
        pairs = self.answer.overall
        return pairs.certified and pairs.high == self._outputs

    @property
    def strategy(self) -> str:
        """The contestants of the join, as `JoinAnswer.strategy` tells them."""
        return getattr(self.answer, "strategy", "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of the join's answer."""
        return (*self.answer.warnings, *self._hidden)

    @property
    def figures(self) -> Any:
        """As of the join's answer."""
        return self.answer.figures

    @property
    def memory_bytes(self) -> int:
        """As of the join's answer."""
        return self.answer.memory_bytes

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """As of the join's answer."""
        return self.answer.accounts

    @property
    def budget(self) -> BudgetReport:
        """As of the join's answer: aggregating is charged to the emit of each output."""
        return self.answer.budget

    @property
    def accounting(self) -> dict[str, Accounting]:
        """As of the join's answer, for each side."""
        return self.answer.accounting


def columns_of_aggregates(aggregates: Sequence[Aggregate], by: Sequence[Value]) -> tuple[str, ...]:
    names = [name for aggregate in aggregates for name in aggregate.columns]
    return tuple(dict.fromkeys(names + [name for value in by for name in value.columns]))


def aggregate_of_outputs(
    answer: JoinOutputs[Any],
    aliases: tuple[str, ...],
    key: str,
    aggregates: Mapping[str, str],
    by: str | Sequence[str] | None,
) -> JoinAggregateAnswer:
    """Aggregates of an answer of streams called `aliases`, joined on `key`."""
    schemas = tuple(available(side, key).schema for side in answer.streams)
    read, groups = read_join_aggregates(aggregates, by, aliases, schemas)
    return JoinAggregateAnswer(answer, read, groups, aliases)


def read_join_aggregates(
    aggregates: Mapping[str, str],
    by: str | Sequence[str] | None,
    aliases: tuple[str, ...],
    schemas: Sequence[pa.Schema],
) -> tuple[tuple[Aggregate, ...], tuple[Value, ...]]:
    """Aggregates and groups over columns "alias.column", checked against the columns of the streams."""
    names = StreamNames(_PLACE, aliases, tuple(schemas), _PLACE)
    schema = pa.schema(
        [
            pa.field(f"{alias}.{column.name}", column.type)
            for alias, fields in zip(aliases, schemas, strict=True)
            for column in fields
        ]
    )
    read = read_aggregates(aggregates, where=_PLACE, resolve=names.resolve)
    for aggregate in read:
        aggregate.check(schema, where=_PLACE)
    groups = []
    for text in names_given(by, where=f"{_PLACE}, by"):
        value = parse_value(text, where=f"{_PLACE}, by", resolve=names.resolve)
        value.kind(schema, where=f"{_PLACE}, by")
        groups.append(value)
    taken = [value.text for value in groups] + [aggregate.name for aggregate in read]
    if len(set(taken)) < len(taken):
        raise ConfigError(f"{_PLACE}: needed a different name for each column of the answer; got {taken}; rename one")
    return read, tuple(groups)


def _member_columns(found: Members, aliases: tuple[str, ...], needed: Sequence[str]) -> pa.RecordBatch:
    """The needed columns ("alias.column") for every output."""
    arrays, names = [], []
    for alias, side, at in zip(aliases, found.streams, found.ordinal, strict=True):
        prefix = f"{alias}."
        own = [name.removeprefix(prefix) for name in needed if name.startswith(prefix)]
        for column in own:
            held = side.carried
            if held is not None and column in held.schema.names:
                values = held.column(held.schema.get_field_index(column))
            else:
                values = available(side, column).column(column)
            arrays.append(values.take(pa.array(at)))
            names.append(prefix + column)
    if not arrays:
        return pa.RecordBatch.from_arrays([pa.nulls(found.key.shape[0])], names=["_"])
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _exact(
    aggregates: tuple[Aggregate, ...],
    measures: Sequence[Measure | None],
    labels: Sequence[pa.Array | Ordered | None],
    columns: Columns,
    group: Array,
    groups: int,
    by: bool,
) -> list[list[Number]]:
    """Every output is there: what aggregates over a stream that was read to its end would be."""
    n = len(columns)
    kept = [measure for measure in measures if measure is not None]
    of, at = [], 0
    for measure in measures:
        of.append(-1 if measure is None else at)
        at += measure is not None
    data = AggregateInput(columns.ts, aggregates, tuple(of), tuple(kept), (), group, groups, by, None, None)
    none = tuple(np.full(groups, np.inf) for _ in kept)
    evidence = Evidence(
        data=data,
        known=no_cells(groups),
        at=np.arange(n),
        stratum=np.zeros(n, np.int64),
        size=np.array([n]),
        drawn=np.array([n]),
        certain=np.array([False]),
        least=none,
        most=tuple(-part for part in none),
    )
    return [
        estimate_moment(aggregate, m, evidence, 0.95)
        if aggregate.function in MOMENT
        else estimate_distribution(aggregate, m, evidence, 0.95, label)
        for aggregate, m, label in zip(aggregates, of, labels, strict=True)
    ]
