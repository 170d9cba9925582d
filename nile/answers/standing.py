"""Several standing joins at once: streams are kept once, and one budget is shared by weight."""

from __future__ import annotations

import graphlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nile.answers.bound_join import BoundJoin
from nile.answers.join_answer import JoinAnswer, PairJoin
from nile.answers.join_query import JoinQuery
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.round_robin import RoundRobinRun
from nile.operators.drive.standing import StandingJoin, StandingRun, StreamInput
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, Loaded, load_stream
from nile.operators.join.join import JoinInput, Outputs
from nile.preferences.budget import Budget, BudgetReport
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import Encoded, KeyTable

__all__ = ["StandingAnswer", "StandingQueries", "standing_queries"]


@dataclass(frozen=True, slots=True)
class StandingQueries:
    """Joins that run together.  Made by `Database.standing`; nothing is read before `run`.

    queries: over any pairs of streams, but each stream with one key column.  weights: one per query, above 0: its
    share of what is left of the budget when the streams have been kept.
    """

    database: Home = field(repr=False)
    queries: tuple[BoundJoin, ...]
    weights: tuple[float, ...]

    def run(self, budget: Budget | float | None = None) -> StandingAnswer:
        """Read each stream once and prepare one answer a query.

        budget: a fraction of what the exact answers of all queries cost together, a shared stream's insertion
        counted once; None: all of it.  Under `method="nile"` queries get it by weight (`nile.operators.drive.standing`
        says how); under `method="paper"`, where all queries join the same two streams, they take turns.
        Raises what `JoinQuery.run` raises, and ConfigError for queries that cannot share.
        """
        plans = _plans(self.queries, budget)
        names = _ordered_streams(self.queries)
        keys = {name: column for q in self.queries for name, column in zip(q.streams, q.keys, strict=True)}
        loaded = {name: load_stream(self.database.manager(name, keys[name])) for name in names}
        encoded = _encode(self.queries, loaded)
        joined = [
            Joinable(
                loaded[left],
                loaded[right],
                plan.window,
                encoded=(encoded[left][0], encoded[left][1], encoded[right][1]),
            )
            for (left, right), plan in zip((query.streams for query in self.queries), plans, strict=True)
        ]
        data = [_without_insertion(j, p) for j, p in zip(joined, plans, strict=True)]
        streams = [StreamInput(name, loaded[name].ts, encoded[name][1], encoded[name][0].known) for name in names]
        engine = _engine(plans, data, self.queries, self.weights, streams)
        answers = tuple(
            JoinAnswer(
                j, plan, key=query.keys[0], standing=(engine.operators[k], engine.outputs(k)), aliases=query.names
            )
            for k, (query, plan, j) in enumerate(zip(self.queries, plans, joined, strict=True))
        )
        return StandingAnswer(answers, engine, [loaded[name] for name in names])


class StandingAnswer(Sequence[JoinAnswer]):
    """One answer per query, in the order of the queries; reading any of them moves all of them on.

    An answer's `budget` and `figures` are its own probes, without the streams' upkeep; its `accounting` says
    which tuples it did not probe with.  Here are the streams and the sum.
    """

    def __init__(self, answers: tuple[JoinAnswer, ...], engine: _Engine, streams: list[Loaded]) -> None:
        self._answers = answers
        self._engine = engine
        self._streams = streams

    def __repr__(self) -> str:
        return f"<StandingAnswer: {len(self._answers)} queries over {len(self._streams)} streams>"

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, index: Any) -> Any:
        return self._answers[index]

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent by all together, as shares of what the exact answers cost.  Runs to the end."""
        self._engine.finish()
        spent = self._engine.run.spent / self._engine.run.exact_cost if self._engine.run.exact_cost else 0.0
        return BudgetReport(self._answers[0].plan.fraction, spent, "fraction", spent)

    @property
    def upkeep(self) -> float:
        """What insertion and summaries of all streams took, in units of the cost table.  Runs to the end."""
        self._engine.finish()
        return self._engine.run.upkeep

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected; shed: for all queries alike.  Runs to the end."""
        self._engine.finish()
        told = {}
        for stream, shed in zip(self._streams, self._engine.run.shed, strict=True):
            told[stream.name] = stream.accounting + Accounting()
            told[stream.name].shed_applied(shed)
            told[stream.name].check()
        return told


class _Engine:
    """Hands out what each query finds while all move on together.  found: of each query, step by step."""

    def __init__(
        self, run: StandingRun | RoundRobinRun, operators: Sequence[PairJoin], found: Iterator[list[list[Outputs]]]
    ) -> None:
        self.run = run
        self.operators = operators
        self._running = found
        self._found: list[deque[Outputs]] = [deque() for _ in operators]

    def outputs(self, query: int) -> Iterator[Outputs]:
        """A query's outputs, in the order found."""
        found = self._found[query]
        while True:
            while found:
                yield found.popleft()
            if not self._go_on():
                return

    def finish(self) -> None:
        """Run to the end; what is found is kept until it is asked for."""
        while self._go_on():
            pass

    def _go_on(self) -> bool:
        parts = next(self._running, None)
        if parts is None:
            return False
        for mine, found in zip(self._found, parts, strict=True):
            mine.extend(found)
        return True


def _without_insertion(joined: Joinable, plan: JoinPlan) -> JoinInput:
    """The input of a query; its costs are its own probes only."""
    data = joined.input(plan.costs, ranges=plan.output == "ranges")
    return replace(data, costs=data.costs - plan.costs.insert)


def _plans(queries: Sequence[BoundJoin], budget: Budget | float | None) -> list[JoinPlan]:
    """The plans of all queries under one budget and one summary: that of the widest window."""
    for query in queries:
        if query.summary != queries[0].summary or query.forgetting != queries[0].forgetting:
            raise ConfigError(
                f"standing queries: needed the same summary options, since a stream has one summary; got "
                f"{dict(queries[0].summary)} and {dict(query.summary)}; set them alike with using()"
            )
        if query.preference is None and budget is not None:
            raise ConfigError(
                f"standing queries: needed a preference in each under a budget; got none for "
                f"{' x '.join(query.streams)}, which asks for the exact answer; say prefer('desc'), or leave it out"
            )
    if (
        any(query.preference == "asc" for query in queries)
        and not {"rows", "columns"} & dict(queries[0].summary).keys()
    ):
        # One summary serves all: asc needs the rows that the others could do without.
        queries = [query.using(rows=3, columns=32) for query in queries]
    plans = [query.plan(budget) for query in queries]
    widest = next((plan for plan in plans if plan.window is None), None) or max(plans, key=lambda p: p.window or 0)
    return [replace(plan, spec=widest.spec) for plan in plans]


def _ordered_streams(queries: Sequence[BoundJoin]) -> list[str]:
    """All streams, each left one before its right one: their places in the total order of tuples."""
    before: dict[str, set[str]] = {}
    keys: dict[str, str] = {}
    for query in queries:
        left, right = query.streams
        before.setdefault(left, set())
        before.setdefault(right, set()).add(left)
        for name, column in zip(query.streams, query.keys, strict=True):
            if keys.setdefault(name, column) != column:
                raise ConfigError(
                    f"standing queries: needed one key column of stream '{name}', whose tuples are kept once; got "
                    f"'{keys[name]}' and '{column}'; join on one of them, or register the stream under a second name"
                )
    try:
        return list(graphlib.TopologicalSorter(before).static_order())
    except graphlib.CycleError as error:
        circle = " before ".join(f"'{name}'" for name in reversed(error.args[1]))
        raise ConfigError(
            f"standing queries: needed streams in one order, left before right; got {circle}; turn one of these joins"
        ) from None


def _encode(queries: Sequence[BoundJoin], loaded: dict[str, Loaded]) -> dict[str, tuple[KeyTable, Encoded]]:
    """Every stream's keys, with one table for all streams that are joined, directly or through others."""
    hasher = next(iter(loaded.values())).hasher
    groups: list[set[str]] = []
    for query in queries:
        pair = set(query.streams)
        joined = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*joined)]
    tables = {name: table for group in groups for table in [KeyTable(hasher)] for name in group}
    encoded = {name: tables[name].encode(it.key, where=f"stream '{name}'") for name, it in loaded.items()}
    return {name: (tables[name], encoded[name]) for name in loaded}


def _engine(
    plans: list[JoinPlan], data: list[JoinInput], queries: Sequence[BoundJoin], weights: Sequence[float],
    streams: list[StreamInput],
) -> _Engine:  # fmt: skip
    if plans[0].method == "paper":
        taking_turns = RoundRobinRun(plans, data)
        return _Engine(taking_turns, taking_turns.operators, taking_turns.found())
    names = [stream.name for stream in streams]
    by_weight = StandingRun(
        streams,
        [
            StandingJoin(plan, given, names.index(query.streams[0]), names.index(query.streams[1]), weight)
            for plan, given, query, weight in zip(plans, data, queries, weights, strict=True)
        ],
    )
    return _Engine(by_weight, by_weight.joins, by_weight.advance(by_weight.arrivals))


def standing_queries(database: Home, asked: Sequence[JoinQuery], weights: Sequence[float] | None) -> StandingQueries:
    """What `Database.standing` makes: checked, nothing read."""
    queries = [query.bound for query in asked]
    if not queries:
        raise ConfigError("standing queries: needed at least one; got none; pass the joins that are to run together")
    for query in queries:
        if not query.is_pair or len(set(query.streams)) < 2 or any(place.where for place in query.places):
            raise ConfigError(
                f"standing queries: needed joins of two streams without a condition on the pair; got {query!r}; "
                "run it by itself"
            )
    methods = {query.method for query in queries}
    if len(methods) > 1 or not methods <= {"nile", "paper"}:
        raise ConfigError(
            f"standing queries: needed method 'nile' for all, or 'paper' for all; got {', '.join(sorted(methods))}; "
            "run the others by themselves"
        )
    if methods == {"paper"}:
        pairs = sorted({query.streams for query in queries})
        if len(pairs) > 1:
            raise ConfigError(
                f"standing queries: needed the same two streams in all with method 'paper'; got {pairs[0]} and "
                f"{pairs[1]}; use method 'nile'"
            )
        if weights is not None:
            raise ConfigError(
                f"standing queries: needed no weights with method 'paper', which goes round robin; got {weights!r}; "
                "use method 'nile'"
            )
    given = (1.0,) * len(queries) if weights is None else tuple(weights)
    if len(given) != len(queries) or not all(_is_weight(weight) for weight in given):
        raise ConfigError(
            f"weights: needed {len(queries)} finite numbers above 0, one per query; got {weights!r}; [2, 1] gives the "
            "first twice as much"
        )
    return StandingQueries(database, tuple(queries), tuple(float(weight) for weight in given))


def _is_weight(weight: Any) -> bool:
    return isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0.0 < weight < math.inf
