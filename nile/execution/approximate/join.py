"""Window joins WITH PREFERENCE, and aggregates over them: SELECT's columns taken for the tuples that were found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.aggregates.catalogue import general
from nile.answers.join_aggregate import JoinAggregateQuery
from nile.answers.join_query import JoinQuery
from nile.answers.multiway_query import MultiwayQuery
from nile.execution.approximate.scope import Scope, Shape
from nile.execution.exact.physical import equalities, one_key
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.conditions import Value
from nile.expressions.tree import columns_of
from nile.operators.inputs.pair_conditions import PairCondition
from nile.preferences.budget import Budget
from nile.sql.plan import AggregateItem, Field, Filter, Join, Query, Stream
from nile.sql.statements import CreateSummary
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.heavy import pa

__all__ = [
    "JoinAggregate",
    "PreferredJoin",
    "aggregate_of",
    "check_terms",
    "configured",
    "stream_of",
    "summary_options",
    "window_of",
]

Array = np.ndarray[Any, Any]
_WEIGHT = "_weight"
_CHUNK = 65_536


class PreferredJoin:
    """SELECT columns FROM streams WHERE keys are equal WITH PREFERENCE ... WINDOW w.

    streams: those of the statement, each with its own conditions; on: their key columns; query, plan: what runs.
    """

    def __init__(self, engine: Any, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        """Raises NotYet for what the operators cannot do, ConfigError for a preference over something else."""
        assert isinstance(shape.core, Join)
        self._join = shape.core
        self.streams = tuple(stream_of(each) for each in shape.core.inputs)
        self._budget = budget
        self._weighted = bool(query.preference and query.preference.kind == "weighted" and shape.group is None)
        on, rest = one_key(shape.core)
        if on is None:
            came = "other pairs of equal columns" if shape.core.equal else "no equal columns"
            raise NotYet(
                f"approximate join: needed one key that is equal in all streams; got {came}; leave out the preference "
                "for the exact join"
            )
        self.on = tuple(name.removeprefix(f"{s.alias}.") for name, s in zip(on, self.streams, strict=True))
        check_terms(query, shape.core, on)
        self._window = window_of(shape.core, self.streams)
        self._scope = Scope(engine, self.streams)
        self.query = self._asked(query, shape, rest, engine.summaries, options)
        self.plan = self.query.plan(budget)

    def _asked(
        self, query: Query, shape: Shape, rest: list[tuple[str, str]],
        summaries: Mapping[str, CreateSummary], options: Options,
    ) -> JoinQuery:  # fmt: skip
        names = tuple(self._scope.names[stream.alias] for stream in self.streams)
        aliases = tuple(stream.alias for stream in self.streams)
        condition = all_of(*equalities(self._join, rest), self._join.condition, shape.where)
        home: Any = self._scope
        if len(names) == 2 and condition is None:
            made = JoinQuery(database=home, left=names[0], right=names[1], on=(self.on[0], self.on[1]))
        else:
            tested = None
            if condition is not None:
                tested = PairCondition("the statement's condition", aliases, (None,) * len(aliases), condition)
            made = MultiwayQuery(
                database=home, left=names[0], right=names[1], on=(self.on[0], self.on[1]), streams=names,
                names=aliases, keys=self.on, condition=tested,
            )  # fmt: skip
        made = configured(made, self._window, query, options)
        given = summary_options(query, summaries)
        forgetting = {"forgetting": given.pop("forgetting")} if "forgetting" in given else {}
        whole: JoinQuery = made.using(**{**given, **forgetting, **dict(options.using)})
        return whole

    def explain(self) -> str:
        """What it will do, in words."""
        return self.query.explain(self._budget)

    def _carry(self) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(field.name.removeprefix(f"{stream.alias}.") for field in stream.fields) for stream in self.streams
        )

    def run(self) -> Any:
        """Read the streams and prepare the answer."""
        return self.query.run(self._budget, carry=self._carry())

    def found(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """The combinations found, with the streams' columns."""
        held = [_carried(one) for one in answer.streams]
        for ordinals, weight in answer.found_members():
            for begin in range(0, weight.shape[0], _CHUNK):
                yield self.taken(held, [o[begin : begin + _CHUNK] for o in ordinals], weight[begin : begin + _CHUNK])

    def taken(self, held: Sequence[Mapping[str, Any]], ordinals: list[Array], weight: Array) -> pa.RecordBatch:
        """Columns of some combinations.  held: of each stream, its columns by name; ordinals: into these."""
        arrays, names = [], []
        for stream, columns, at in zip(self.streams, held, ordinals, strict=True):
            rows = pa.array(at)
            for field in stream.fields:
                column = columns[field.name.removeprefix(f"{stream.alias}.")].take(rows)
                if isinstance(column, pa.ChunkedArray):
                    column = column.combine_chunks()
                arrays.append(column if column.type == field.type else column.cast(field.type))
                names.append(field.name)
        if self._weighted or not arrays:
            arrays.append(pa.array(weight))
            names.append(_WEIGHT)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls its streams."""
        return tuple(stream.alias for stream in self.streams)


class JoinAggregate(PreferredJoin):
    """SELECT aggregates FROM a window join WITH PREFERENCE."""

    def __init__(self, engine: Any, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        super().__init__(engine, query, shape, budget, options)
        assert shape.group is not None
        if query.error is not None:
            raise NotYet(
                "aggregates over an approximate join: ERROR has no operator yet, only BUDGET has; say WITH PREFERENCE "
                "weighted and BUDGET, which gives intervals"
            )
        self._group = shape.group
        self._confidence = 0.95 if options.confidence is None else options.confidence
        aliases = tuple(stream.alias for stream in self.streams)
        by = tuple(Value(item.name, columns_of(item.node), item.node) for item in shape.group.by)
        self._aggregates = JoinAggregateQuery(self.query, tuple(map(aggregate_of, shape.group.aggregates)), by, aliases)

    def run(self) -> Any:
        """Read the streams, join and aggregate."""
        return self._aggregates.run(self._budget, confidence=self._confidence)

    def found(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """One row per group."""
        yield from group_rows(answer, self._group.fields)


def group_rows(answer: Any, fields: tuple[Field, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of an aggregate answer as a group's columns."""
    table = answer.to_arrow()
    arrays = []
    for field in fields:
        column = table.column(field.name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        arrays.append(column if column.type == field.type else _fitted(column, field.type))
    yield pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _fitted(column: Any, wanted: Any) -> Any:
    """An estimate in its field's type; a count that is estimated is rounded."""
    if pa.types.is_integer(wanted) and pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        return pa.array(np.rint(np.nan_to_num(values)).astype(np.int64), mask=np.isnan(values)).cast(wanted)
    return column.cast(wanted, safe=False)


def aggregate_of(item: AggregateItem) -> Aggregate:
    """An aggregate of a plan as the operators take it.  Raises NotYet for DISTINCT of anything but a count."""
    function, argument = item.function, item.fraction
    if item.distinct:
        if function != "count":
            raise NotYet(
                f"approximate {function}(DISTINCT ...): only count(DISTINCT ...) has an operator; leave DISTINCT "
                "out, or ask the exact answer"
            )
        function = "count_distinct"
    function, share = general(function)
    argument = argument if share is None else share
    value = None
    if item.argument is not None:
        value = Value(repr(item.argument), columns_of(item.argument), item.argument)
    return Aggregate(item.name, item.name, function, value, argument)


def configured(made: Any, window: int | None, query: Query, options: Options) -> Any:
    """A join's query with the statement's preference and the options."""
    if window is not None:
        made = made.within(f"{window} ns")
    preference = query.preference
    assert preference is not None
    cap = {} if options.outlier_cap is None else {"outlier_cap": options.outlier_cap}
    made = made.prefer(preference.kind, fade=preference.fade, **cap)
    if options.guide is not None:
        made = made.guided_by(options.guide)
    if options.output is not None:
        made = made.returning(options.output)
    if options.replay is not None:
        mean = {} if options.replay_mean is None else {"mean": options.replay_mean}
        speed = {} if options.speed is None else {"speed": options.speed}
        made = made.replayed(options.replay, **mean, **speed)
    own = {name: getattr(options, name) for name in ("method", "costs", "seed")}
    return made.using(**{name: value for name, value in own.items() if value is not None})


def summary_options(query: Query, summaries: Mapping[str, CreateSummary]) -> dict[str, Any]:
    """What the summaries that the query uses were created with.  Raises NotYet where two streams' differ."""
    picked: list[tuple[str, dict[str, Any]]] = []
    for _, name in query.summaries:
        made = summaries[name]
        given = {"granularity": f"{made.granularity} ns", "rate": made.rate, "depth": made.depth, **dict(made.options)}
        if "max_length" in given:
            given["max_length"] = f"{given['max_length']} ns"
        picked.append((name, given))
    for name, given in picked[1:]:
        if given != picked[0][1]:
            raise NotYet(
                f"approximate join: needed summaries made alike for all its streams; got '{picked[0][0]}' and "
                f"'{name}', which differ; create them with the same granularity, rate, depth and options"
            )
    return picked[0][1] if picked else {}


def stream_of(plan: Any) -> Stream:
    """An input of an approximate join: a stream under its own conditions."""
    where = []
    while isinstance(plan, Filter):
        where.append(plan.condition)
        plan = plan.input
    if not isinstance(plan, Stream):
        raise NotYet(
            f"approximate join: needed streams; got a {type(plan).__name__.lower()} as input; leave out the preference "
            "for the exact join, or register what it selects as a stream"
        )
    if not where:
        return plan
    return Stream(plan.name, plan.alias, plan.position, plan.fields, plan.time, plan.window, all_of(plan.where, *where))


def window_of(join: Join, streams: tuple[Stream, ...]) -> int | None:
    """The one window of all streams."""
    if join.directed:
        raise NotYet("approximate join: DWINDOW has no operator yet; say WINDOW, or leave out the preference")
    given: set[Any] = {stream.window for stream in streams}
    if join.constraints:
        given = {each.window for each in join.constraints}
        if len(join.constraints) < len(streams) * (len(streams) - 1) // 2:
            given.add(None)
    if len(given) > 1 or not all(window is None or isinstance(window, int) for window in given):
        raise NotYet(
            "approximate join: needed one window of time for all its streams; got different ones; say WINDOW with one "
            "duration, or leave out the preference for the exact join"
        )
    only: int | None = given.pop()
    return only


def check_terms(query: Query, join: Join, on: tuple[str, ...]) -> None:
    """A preference of a join looks at how often keys match, so its terms are over the key."""
    assert query.preference is not None
    for term in query.preference.terms:
        if term.column not in on and not any({term.column, key} <= _class(join, key) for key in on):
            raise ConfigError(
                f"WITH PREFERENCE: needed the join key ({', '.join(on)}), whose estimated count says how many matches "
                f"there are; got {term.column}; name the key"
            )
        if term.by != "count":
            raise NotYet(
                f"WITH PREFERENCE: count times value of {term.column} has no operator for joins yet; say "
                f"SUMMARY.Estimate.Count({term.column})"
            )


def _class(join: Join, key: str) -> set[str]:
    """All columns that must equal a key."""
    same = {key}
    while True:
        more = {name for pair in join.equal if same & set(pair) for name in pair}
        if more <= same:
            return same
        same |= more


def _carried(stream: Any) -> dict[str, Any]:
    batch = stream.carried
    return {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
