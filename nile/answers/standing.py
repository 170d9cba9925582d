"""Several standing joins at once: two-stream joins share their streams, and all share one budget by weight."""

from __future__ import annotations

import graphlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nile.answers.bound_join import BoundJoin
from nile.answers.join_answer import JoinAnswer
from nile.answers.join_outputs import JoinOutputs
from nile.answers.join_query import JoinQuery
from nile.answers.multiway_answer import MultiwayAnswer
from nile.base.budgets import GivenBudget
from nile.expressions.conditions import Condition
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.handing_out import HandingOut
from nile.operators.drive.round_robin import RoundRobinRun
from nile.operators.drive.standing import StandingRun
from nile.operators.drive.standing_input import OwnJoin, StandingJoin, StreamInput
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, Loaded, load_together
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.inputs.ruling import can_be_lent
from nile.operators.inputs.shared_grid import SharedSummary
from nile.operators.join.join import JoinInput
from nile.preferences.budget import BudgetReport
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.manager import SummaryManager
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import Encoded, KeyTable

__all__ = ["StandingAnswer", "StandingQueries", "standing_queries"]


@dataclass(frozen=True, slots=True)
class StandingQueries:
    """Joins that run together.  Made by `Database.standing`; nothing is read before `run`.

    queries: over any streams; in joins of two without a condition, which share them, each stream with one key column.
    weights: one per query, above 0: its share of what is left of the budget when shared streams have been kept.
    """

    database: Home = field(repr=False)
    queries: tuple[BoundJoin, ...]
    weights: tuple[float, ...]

    def __repr__(self) -> str:
        return f"<StandingQueries: {'; '.join(map(str, self.queries))}>"

    def run(self, budget: GivenBudget | None = None) -> StandingAnswer:
        """Read each stream once and prepare one answer per query.

        budget: a fraction of what the exact answers of all queries cost together, a shared stream's insertion
        counted once; None: all of it.  Under `method="nile"` queries get it by weight (see
        `nile.operators.drive.standing`); under `method="paper"`, where all queries join the same two streams, they
        alternate.
        Raises what `JoinQuery.run` raises, and ConfigError for queries that cannot share.
        """
        plans = _plans(self.queries, budget)
        shared = [query for query in self.queries if _shares(query)]
        order = _ordered_streams(shared)
        loaded = _loaded(self.database, self.queries)
        whole = {name: one for (name, _, where), one in loaded.items() if where is None}
        names = list(dict.fromkeys([*order, *whole]))
        keys = {name: column for query in shared for name, column in zip(query.streams, query.keys, strict=True)}
        encoded = _encode(shared, {name: loaded[name, column, None] for name, column in keys.items()})
        kept = [plan for plan, query in zip(plans, self.queries, strict=True) if _shares(query)]
        grids = _grids(self.database, kept, keys, loaded, encoded)
        for name in (name for query in shared for name in query.streams if name in grids):
            grids[name][0].served += 1
        streams = [
            StreamInput(
                name, whole[name].ts, encoded[name][1], encoded[name][0].known, grids[name][1].lent() if grids else None
            )
            if name in encoded
            else StreamInput(name, whole[name].ts, None)
            for name in names
        ]
        joined = [
            _joined(query, [loaded[place.stream, place.key, place.where] for place in query.places], encoded)
            for query in self.queries
        ]
        lent = [
            None if isinstance(each, Joinable) else query.lent(self.database, plan, each)
            for query, plan, each in zip(self.queries, plans, joined, strict=True)
        ]
        engine = _engine(plans, joined, self.queries, self.weights, streams, lent)
        answers = tuple(
            _answer(query, plan, j, join, engine.outputs(k), self.database.room)
            for k, (query, plan, j, join) in enumerate(zip(self.queries, plans, joined, engine.operators, strict=True))
        )
        return StandingAnswer(answers, engine, [whole[name] for name in names])


class StandingAnswer(Sequence[JoinOutputs[Any]]):
    """One answer per query, in the order of the queries; reading any of them advances all of them.

    An answer's `budget` and `figures` are its own probes, without the streams' upkeep; its `accounting` says
    which tuples it did not probe with.  A join of several streams, of one with itself, under a condition or, below the
    whole budget, weighted keeps its streams for itself: its figures have that too.  Here are the streams and the sum.
    """

    def __init__(self, answers: tuple[JoinOutputs[Any], ...], engine: HandingOut, streams: list[Loaded]) -> None:
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


def _shares(query: BoundJoin) -> bool:
    """Whether its streams can be kept for others too: two different ones, whole, and nothing asked of both."""
    return query.is_pair and len(set(query.streams)) == 2 and all(place.where is None for place in query.places)


def _loaded(database: Home, queries: Sequence[BoundJoin]) -> dict[tuple[str, str, Condition | None], Loaded]:
    """Every stream as its places have it, by (name, key column, condition), and whole; each stream is read once."""
    asked: dict[tuple[str, str, Condition | None], dict[str, None]] = {}
    for query in queries:
        for k, place in enumerate(query.places):
            columns = () if query.condition is None else query.condition.columns(k)
            asked.setdefault((place.stream, place.key, place.where), {}).update(dict.fromkeys(columns))
    for name, key, _ in list(asked):
        if not any(other == name and where is None for other, _, where in asked):
            asked[name, key, None] = {}
    streams, keys, where = zip(*asked, strict=True)
    made = load_together(database.manager, streams, keys, where, [tuple(columns) for columns in asked.values()])
    return dict(zip(asked, made, strict=True))


def _joined(
    query: BoundJoin, loaded: Sequence[Loaded], encoded: dict[str, tuple[KeyTable, Encoded]]
) -> Joinable | MultiwayJoinable:
    if not _shares(query):
        return MultiwayJoinable(tuple(loaded), query.window, query.condition, query.windows)
    left, right = query.streams
    keys = (encoded[left][0], encoded[left][1], encoded[right][1])
    return Joinable(loaded[0], loaded[1], query.window, encoded=keys)


def _answer(
    query: BoundJoin, plan: JoinPlan, joined: Joinable | MultiwayJoinable, join: Any, found: Iterator[Any],
    room: int | None,
) -> JoinOutputs[Any]:  # fmt: skip
    standing, key = (join, found), query.keys[0]
    made: JoinOutputs[Any]
    if isinstance(joined, Joinable):
        made = JoinAnswer(joined, plan, key=key, standing=standing, aliases=query.names)
    else:
        made = MultiwayAnswer(joined, plan, names=query.names, key=key, standing=standing)
    made.room = room
    return made


def _without_insertion(joined: Joinable, plan: JoinPlan) -> JoinInput:
    """The input of a query; its costs are its own probes only."""
    data = joined.input(plan.costs, ranges=plan.output == "ranges")
    return replace(data, costs=data.costs - plan.costs.insert)


def _own(
    query: BoundJoin, plan: JoinPlan, joined: MultiwayJoinable, names: list[str], weight: float,
    lent: tuple[Side, ...] | None,
) -> OwnJoin:  # fmt: skip
    """A join with a store of its own."""
    given = joined.input(plan.costs, ranges=plan.output == "ranges", whole=False)
    place = given.ordinal.copy()
    for k, one in enumerate(joined.streams):
        mine = given.stream == k
        place[mine] = one.places(given.ordinal[mine])
    streams = np.array([names.index(name) for name in query.streams])
    return OwnJoin(plan, given, streams[given.stream], place, weight, lent)


def _plans(queries: Sequence[BoundJoin], budget: GivenBudget | None) -> list[JoinPlan]:
    """The plans of all queries under one budget; those over shared streams with one summary, of the widest window."""
    shared = [query for query in queries if _shares(query)]
    for query in queries:
        if query in shared and (query.summary != shared[0].summary or query.forgetting != shared[0].forgetting):
            raise ConfigError(
                f"standing queries: needed the same summary options, since a stream has one summary; got "
                f"{dict(shared[0].summary)} and {dict(query.summary)}; set them alike with using()"
            )
        if query.preference is None and budget is not None:
            raise ConfigError(
                f"standing queries: needed a preference in each under a budget; got none for "
                f"{' x '.join(query.streams)}, which asks for the exact answer; say prefer('desc'), or leave it out"
            )
    # One summary serves all: asc needs the rows that the others could do without.
    wider = any(query.preference == "asc" for query in shared)
    rows = {"rows": 3, "columns": 32} if wider and not {"rows", "columns"} & dict(shared[0].summary).keys() else {}
    limited = next((query for query in queries if query.first is not None), None)
    if limited is not None:
        raise ConfigError(
            f"standing queries: needed joins without a limit, for later tuples may promise more than any before; got "
            f"limit({limited.first}); leave it out, or ask it alone"
        )
    plans = [(query.using(**rows) if _shares(query) else query).plan(budget) for query in queries]
    kept = [plan for plan, query in zip(plans, queries, strict=True) if _shares(query)]
    widest = next((p for p in kept if p.window is None), None) or max(kept, key=lambda p: p.window or 0, default=None)
    return [
        plan if widest is None or not _shares(query) else replace(plan, spec=widest.spec)
        for plan, query in zip(plans, queries, strict=True)
    ]


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
    groups: list[set[str]] = []
    for query in queries:
        pair = set(query.streams)
        joined = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*joined)]
    tables = {name: table for group in groups for table in [KeyTable(loaded[min(group)].hasher)] for name in group}
    encoded = {name: tables[name].encode(it.key, where=f"stream '{name}'") for name, it in loaded.items()}
    return {name: (tables[name], encoded[name]) for name in loaded}


def _grids(
    home: Home,
    plans: Sequence[JoinPlan],
    keys: dict[str, str],
    loaded: dict[tuple[str, str, Condition | None], Loaded],
    encoded: dict[str, tuple[KeyTable, Encoded]],
) -> dict[str, tuple[SharedSummary, SummaryManager]]:
    """The shared summaries of kept streams, where sketches guide all queries and every stream has one; else none.

    keys: of each kept stream, its key column.
    """
    found: dict[str, tuple[SharedSummary, SummaryManager]] = {}
    if not all(can_be_lent(plan) for plan in plans):
        return found
    for name, column in keys.items():
        stream, one = loaded[name, column, None], home.shared(name, column)
        manager = None if one is None else one.over(stream.ts, stream.key)
        if one is None or manager is None or manager.forgotten or manager.keys.kind != encoded[name][0].kind:
            return {}
        found[name] = one, manager
    return found


def _engine(
    plans: list[JoinPlan], joined: list[Joinable | MultiwayJoinable], queries: Sequence[BoundJoin],
    weights: Sequence[float], streams: list[StreamInput], lent: Sequence[tuple[Side, ...] | None],
) -> HandingOut:  # fmt: skip
    data = [_without_insertion(j, plan) for j, plan in zip(joined, plans, strict=True) if isinstance(j, Joinable)]
    if plans[0].method == "paper":
        taking_turns = RoundRobinRun(plans, data)
        return HandingOut(taking_turns, taking_turns.operators, taking_turns.found())
    names, pairs = [stream.name for stream in streams], iter(data)
    by_weight = StandingRun(
        streams,
        [
            _own(query, plan, j, names, weight, grids)
            if isinstance(j, MultiwayJoinable)
            else StandingJoin(plan, next(pairs), names.index(query.streams[0]), names.index(query.streams[1]), weight)
            for plan, j, query, weight, grids in zip(plans, joined, queries, weights, lent, strict=True)
        ],
    )
    return HandingOut(by_weight, by_weight.joins, by_weight.advance(by_weight.arrivals))


def standing_queries(database: Home, asked: Sequence[JoinQuery], weights: Sequence[float] | None) -> StandingQueries:
    """What `Database.standing` makes: checked, nothing read."""
    named: Any = asked
    joins = list(named) if isinstance(named, Iterable) and not isinstance(named, str) else [named]
    if wrong := [each for each in joins if not isinstance(each, JoinQuery)]:
        raise ConfigError(
            f"standing queries: needed joins that db.join(...) makes; got {type(wrong[0]).__name__}; a query in SQL "
            "stands with db.subscribe(text)"
        )
    queries = [query.bound.by_one_column for query in joins]
    if not queries:
        raise ConfigError("standing queries: needed at least one; got none; pass the joins that are to run together")
    methods = {query.method for query in queries}
    if len(methods) > 1 or not methods <= {"nile", "paper"}:
        raise ConfigError(
            f"standing queries: needed method 'nile' for all, or 'paper' for all; got {', '.join(sorted(methods))}; "
            "run the others by themselves"
        )
    if methods == {"paper"}:
        own = next((query for query in queries if not _shares(query)), None)
        if own is not None:
            raise ConfigError(
                "standing queries: needed joins of two different streams without a condition with method 'paper', "
                f"which joins no others; got {' x '.join(own.streams)}; use method 'nile', or run it by itself"
            )
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
