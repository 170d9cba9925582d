"""Window joins WITH PREFERENCE, and aggregates over them: SELECT's columns taken for the tuples that were found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.aggregates.catalogue import CATALOGUE, general
from nile.answers.answer import Answer
from nile.answers.bound_join import BoundJoin, Place
from nile.answers.join_outputs import Values
from nile.answers.join_query import BoundJoinAggregate
from nile.base.contiguous import gathered, taker
from nile.execution.approximate.join_error import join_within
from nile.execution.approximate.join_terms import keys_of, value_of, window_of, windows_of, worths_of
from nile.execution.approximate.shape import Shape
from nile.execution.exact.flow import Home as Stored
from nile.execution.key_columns import equalities, looked_at, one_key
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.tree import rename
from nile.operators.inputs.composing import puts_together
from nile.operators.inputs.home import Home
from nile.operators.inputs.pair_conditions import taken_apart
from nile.operators.strategies.after import After
from nile.preferences.budget import Budget
from nile.preferences.error_target import ErrorTarget
from nile.sql.expression_text import aggregate_text
from nile.sql.plan import AggregateItem, Field, Filter, Join, Limit, Query, Stream
from nile.sql.statements import CreateSummary
from nile.summaries.errors import BudgetError, NotYet
from nile.summaries.heavy import pa, pc

__all__ = [
    "ApproximateHome",
    "JoinAggregate",
    "PreferredJoin",
    "aggregate_of",
    "bound_join",
    "stream_of",
    "summary_options",
]

Array = np.ndarray[Any, Any]
_WEIGHT = "_weight"
_OUTPUTS = "_outputs"
_CHUNK = 65_536
_MOST_UNSIGNED = float((1 << 64) - (1 << 11))
"""The largest double that fits 64 bits without a sign."""
_TIMES = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


class ApproximateHome(Home, Stored, Protocol):
    """What is asked of a database."""

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries."""


def bound_join(query: Query, shape: Shape, options: Options, summaries: Mapping[str, CreateSummary]) -> BoundJoin:
    """SELECT ... FROM streams WHERE keys are equal WITH PREFERENCE ... WINDOW w, bound.

    Raises NotYet for what the operators cannot do, ConfigError for a preference over something else.
    """
    join, preference = shape.core, query.preference
    assert isinstance(join, Join)
    assert preference is not None
    streams = tuple(stream_of(each) for each in join.inputs)
    aliases = tuple(stream.alias for stream in streams)
    keys, rest = keys_of(query, join)
    selected = *(s.where for s in streams), join.condition, shape.where
    alone, condition = taken_apart(all_of(*selected, *equalities(join, rest)), aliases)
    apart = None
    _, others = one_key(join, frozenset(keys[0]))
    if len(keys) > 1 and {name for pair in others for name in pair} <= {field.name for field in join.fields}:
        _, apart = taken_apart(all_of(*selected, *equalities(join, others)), aliases)
    places = (
        Place(stream.name, stream.alias, _own(stream, each[0]), where, tuple(_own(stream, one) for one in each[1:]))
        for stream, each, where in zip(streams, zip(*keys, strict=True), alone, strict=True)
    )
    windows = windows_of(join)
    bound = BoundJoin(
        tuple(places),
        condition,
        window=window_of(join, streams) if windows is None else windows.widest,
        windows=windows,
        preference=preference.kind,
        fade=preference.fade,
        pace=options.pace(),
        first=_first(shape),
        apart=apart,
        **options.given("guide", "output", "outlier_cap", "speed"),
    )
    if worths := worths_of(query, aliases):
        bound = replace(bound, worths=worths)
    given = summary_options(query, summaries) | options.given("method", "costs", "seed") | dict(options.using)
    return bound.using(**given)


def _own(stream: Stream, name: str) -> str:
    """A stream's own name of one of its columns."""
    return name.removeprefix(f"{stream.alias}.")


def _first(shape: Shape) -> int | None:
    """How many combinations the statement takes, where LIMIT alone says so: not after ORDER BY, a group or HAVING."""
    if len(shape.top) != 1 or shape.group is not None or any(isinstance(step, Filter) for step in shape.above):
        return None
    (top,) = shape.top
    return (top.count + top.offset or None) if isinstance(top, Limit) and top.count is not None else None


class PreferredJoin:
    """A window join, and what the statement takes of the combinations found.

    streams: those of the statement, each under its own conditions.
    """

    def __init__(
        self, home: ApproximateHome, query: Query, shape: Shape, budget: Budget | None, options: Options
    ) -> None:
        """Raises what `bound_join` and a plan raise."""
        assert isinstance(shape.core, Join)
        self._home = home
        self._budget = budget
        self._summaries = query.summaries
        self._wanted = None if shape.group is not None else looked_at(shape.above)
        if budget is not None:
            unread = replace(query, summaries=())
            if bound_join(unread, shape, options, home.summaries).asked_once(budget).strategy:
                query = unread  # what strategies keep is no grid
        self._made_alike = bool(summary_options(query, home.summaries))
        self._weighted = bool(query.preference and query.preference.kind == "weighted" and shape.group is None)
        self.bound = bound_join(query, shape, options, home.summaries)
        self.streams = tuple(map(_under, map(stream_of, shape.core.inputs), self.bound.places))
        self.plan = self.bound.plan(budget)

    def standing(self) -> None:
        """Be the join of a standing query, whose keys come one by one.  Raises as `plan`, KeyTypeError."""
        kinds = [{field.name.removeprefix(f"{stream.alias}."): field.type for field in stream.fields}
                 for stream in self.streams]  # fmt: skip
        keys = [
            [kind[name] for name in (place.key, *place.further)]
            for kind, place in zip(kinds, self.bound.places, strict=True)
        ]
        if puts_together(list(zip(*keys, strict=True))):
            return
        self.bound = self.bound.by_one_column  # such as numbers beside decimals, which conditions compare
        self.plan = self.bound.plan(self._budget)

    def explain(self) -> str:
        """What it will do, in words."""
        own = self._summaries if self._made_alike and self.bound.keeps_grid(self._home, self.plan) else ()
        made = [f"  a grid of its own, made as summary {name} of {alias}" for alias, name in own]
        return "\n".join([self.bound.explain(self._home, self._budget), *made])

    def run(self) -> Answer:
        """Read the streams and prepare the answer."""
        carry = [tuple(f.name.removeprefix(f"{stream.alias}.") for f in stream.fields) for stream in self.streams]
        return self.bound.answer(self._home, self._budget, carry, as_it_comes=True, after=After(columns=self._columns))

    @property
    def _columns(self) -> tuple[tuple[int, int], ...]:
        """Of each stream, how many columns of numbers and of text are handed out, but for what joining tells."""
        counted = []
        for stream, place in zip(self.streams, self.bound.places, strict=True):
            key, time = (f"{stream.alias}.{name}" for name in (place.key, stream.time))
            shown = [f for f in stream.fields if self._wanted is None or f.name in self._wanted]
            others = [f for f in shown if f.name != key and not (f.name == time and f.type in _TIMES)]
            numbers = sum(pa.types.is_primitive(field.type) for field in others)
            counted.append((numbers, len(others) - numbers))
        return tuple(counted)

    def found(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """The combinations found, with the streams' columns that are looked at."""
        for ordinals, weight, told in answer.found_values():
            for begin in range(0, weight.shape[0], _CHUNK):
                part = slice(begin, begin + _CHUNK)
                held, at = zip(*(answer.carried(k, each[part]) for k, each in enumerate(ordinals)), strict=True)
                yield self.taken(held, at, weight[part], [each.part(part) for each in told])

    def taken(
        self,
        held: Sequence[Mapping[str, Any]],
        ordinals: Sequence[Array],
        weight: Array,
        told: Sequence[Values] = (),
    ) -> pa.RecordBatch:
        """Columns of some combinations.  held: of each stream, its columns by name; ordinals: into these; told: of each
        stream, what is known of these rows without a look at its columns.
        """
        arrays, names = [], []
        for k, (stream, columns, at) in enumerate(zip(self.streams, held, ordinals, strict=True)):
            for field in stream.fields:
                if self._wanted is not None and field.name not in self._wanted:
                    continue  # joined by, or tested, and looked at no more
                name = field.name.removeprefix(f"{stream.alias}.")
                column = columns[name]
                if isinstance(column, pa.ChunkedArray):
                    column = column.take(pa.array(at)).combine_chunks()
                else:
                    known = self._told(told[k], k, name, column.type) if told else None
                    column = gathered(known, column.type, taker(column), at)
                arrays.append(column if column.type == field.type else column.cast(field.type))
                names.append(field.name)
        if self._weighted or not arrays:
            arrays.append(pa.array(weight))
            names.append(_WEIGHT)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _told(self, told: Values, k: int, name: str, kind: pa.DataType) -> Any:
        """What a run has told of a column of the k-th stream of that type, the same as a look at it; None: nothing."""
        if name == self.streams[k].time and kind in _TIMES and not self.plan.pace.is_replay:
            return told.ts
        # Numbers that are equal may differ in their bits where they are floats: then the first stream's are told.
        if name != self.bound.places[k].key or told.kind != kind or (k and pa.types.is_floating(kind)):
            return None
        return told.key

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls its streams."""
        return self.bound.names


class JoinAggregate(PreferredJoin):
    """Aggregates over a window join."""

    def __init__(
        self, home: ApproximateHome, query: Query, shape: Shape, budget: Budget | None, options: Options
    ) -> None:
        super().__init__(home, query, shape, budget, options)
        assert shape.group is not None
        self._target = None if query.error is None else ErrorTarget(*query.error)
        if self._target is not None:
            assert query.preference is not None
            if query.preference.kind != "weighted":
                raise NotYet(
                    "aggregates over a join, ERROR: needed WITH PREFERENCE weighted (or none), a random sample; got "
                    f"{query.preference.kind}, whose outputs are not one; say weighted, or BUDGET"
                )
            if budget is not None and budget.fraction is None:
                raise BudgetError(
                    f"aggregates over a join, ERROR: needed a BUDGET with it as a fraction; got one of {budget}; say "
                    "BUDGET 50 %, or leave it out"
                )
        self._group = shape.group
        self._confidence = 0.95 if options.confidence is None else options.confidence
        by = tuple(value_of(item.name, item.node) for item in shape.group.by)
        # Groups come in the order of the preference too, by their outputs, which are counted beside what is asked.
        self._ordered = bool(by) and self.plan.ordered
        counted = (Aggregate(_OUTPUTS, "count(*)", "count", None, None),) if self._ordered else ()
        asked = tuple(map(aggregate_of, shape.group.aggregates))
        self._aggregates = BoundJoinAggregate(self.bound, (*asked, *counted), by)

    def explain(self) -> str:
        """What it will do, in words."""
        which = "fewest" if self.bound.preference == "asc" else "most"
        return super().explain() + (f"\n  groups of {which} outputs first" if self._ordered else "")

    def run(self) -> Answer:
        """Read the streams, join and aggregate."""
        if self._target is not None:
            most = None if self._budget is None else self._budget.fraction
            return join_within(self._aggregates, self._home, self._target, most=most)
        return self._aggregates.answer(self._home, self._budget, confidence=self._confidence)

    def found(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """One row per group."""
        rows = group_rows(answer, self._group.fields)
        if not self._ordered:
            yield from rows
            return
        order = "ascending" if self.bound.preference == "asc" else "descending"
        table = answer.to_arrow()  # of equals the least values first, however the groups were found
        at = pc.sort_indices(table, [(_OUTPUTS, order), *((item.name, "ascending") for item in self._group.by)])
        for batch in rows:
            yield batch.take(at)


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
        whole: Array = np.rint(np.nan_to_num(values))
        if pa.types.is_uint64(wanted):
            return pa.array(np.clip(whole, 0.0, _MOST_UNSIGNED).astype(np.uint64), mask=np.isnan(values))
        return pa.array(whole.astype(np.int64), mask=np.isnan(values)).cast(wanted)
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
    if CATALOGUE[function].is_collected:
        raise NotYet(
            f"approximate {function}(): needed an aggregate that a sample can estimate; got one of rows in an "
            "order; ask the exact answer"
        )
    function, share = general(function)
    argument = argument if share is None else share
    text = aggregate_text(item.function, item.argument, item.distinct, item.fraction, str)
    value = None if item.argument is None else value_of(None, item.argument)
    return Aggregate(item.name, text, function, value, argument)


def summary_options(query: Query, summaries: Mapping[str, CreateSummary]) -> dict[str, Any]:
    """What the summaries that the query uses were created with, alike for all its streams; else nothing.

    A join makes a grid of its own by it, where it needs one.
    """
    picked: list[dict[str, Any]] = []
    for _, name in query.summaries:
        made = summaries[name]
        given = {"granularity": f"{made.granularity} ns", "rate": made.rate, "depth": made.depth, **made.settings}
        if "max_length" in given:
            given["max_length"] = f"{given['max_length']} ns"
        picked.append(given)
    return picked[0] if picked and all(given == picked[0] for given in picked) else {}


def stream_of(plan: Any) -> Stream:
    """An input of an approximate join: a stream under its own conditions."""
    where = []
    while isinstance(plan, Filter):
        where.append(plan.condition)
        plan = plan.input
    if not isinstance(plan, Stream):
        raise NotYet(
            f"approximate join: needed streams; got a {type(plan).__name__.lower()} as input; leave out WITH "
            "PREFERENCE, BUDGET and ERROR for the exact join, or register what it selects as a stream"
        )
    if not where:
        return plan
    return Stream(plan.name, plan.alias, plan.position, plan.fields, plan.time, plan.window, all_of(plan.where, *where))


def _under(stream: Stream, place: Place) -> Stream:
    """A stream of a statement under all that selects its tuples."""
    if place.where is None:
        return replace(stream, where=None)
    named = rename(place.where.tree, lambda column: replace(column, name=f"{stream.alias}.{column.name}"))
    return replace(stream, where=named)
