"""Joins as Python objects: immutable and cheap; nothing is read until they run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Self

from nile.aggregates.asked import Aggregate
from nile.answers.bound_join import BoundJoin, Place
from nile.answers.join_aggregate import JoinAggregateAnswer, columns_of_aggregates, read_join_aggregates
from nile.answers.join_answer import JoinAnswer
from nile.answers.join_outputs import JoinOutputs
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import parse_duration
from nile.base.names import names_given
from nile.base.raw import check_columns
from nile.expressions.conditions import Value
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.home import Home
from nile.operators.inputs.pair_conditions import read_pair_condition, taken_apart
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.machine_prices import machine_prices
from nile.preferences.clock import Bursts, Pace, checked_speed
from nile.preferences.fade import Fade
from nile.preferences.preference import preference_number
from nile.summaries.errors import ConfigError

__all__ = ["BoundJoinAggregate", "JoinAggregateQuery", "JoinQuery", "MultiwayQuery", "join_query"]

_ALIASED = re.compile(r"\s*(\w+)\s+(?:as\s+)?(\w+)\s*", re.IGNORECASE)
_MOST_STREAMS = 16


@dataclass(frozen=True, slots=True)
class BoundJoinAggregate:
    """Aggregates over the outputs of a join, of expressions over "name.column"."""

    join: BoundJoin
    aggregates: tuple[Aggregate, ...]
    by: tuple[Value, ...]

    def __str__(self) -> str:
        """As one would write it."""
        made = [value.text for value in self.by] + [f"{each.text} AS {each.name}" for each in self.aggregates]
        told = str(self.join).replace("*", ", ".join(made), 1)
        return told + (f" GROUP BY {', '.join(value.text for value in self.by)}" if self.by else "")

    def answer(self, home: Home, budget: GivenBudget | None = None, *, confidence: float = 0.95) -> JoinAggregateAnswer:
        """Run the join under a budget and aggregate what it finds.

        Without a preference, or with the whole budget, exact; under `weighted` Horvitz-Thompson estimates; under
        desc and asc what was found, which is not a random sample.  Raises what `BoundJoin.answer` raises.
        """
        needed = columns_of_aggregates(self.aggregates, self.by)
        names = self.join.names
        carry = [
            tuple(dict.fromkeys(column.removeprefix(f"{name}.") for column in needed if column.startswith(f"{name}.")))
            for name in names
        ]
        columns = len(columns_of_aggregates(self.aggregates, self.by))
        given = machine_prices(), len(self.aggregates), columns, len(self.by)
        spends = budget is not None and read_budget(budget).unit not in ("outputs", "share")
        after = After.aggregates(*given) if spends else NOTHING
        found = self.join.answer(home, budget, carry, after=after)
        return JoinAggregateAnswer(found, self.aggregates, self.by, names, confidence)


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Registered streams, joined on equal keys inside a window.

    Made by `Database.join`; each method returns a modified copy.  Without a preference the answer is exact.  bound:
    the bound join, as a SQL statement would give it.
    """

    database: Home = field(repr=False)
    bound: BoundJoin

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.bound}>"

    def _with(self, **changes: Any) -> Self:
        return replace(self, bound=replace(self.bound, **changes))

    def within(self, window: str | float | timedelta | None) -> Self:
        """WINDOW: tuples at most this far apart in time, ends included ("1 hour", seconds); None: no limit."""
        return self._with(window=None if window is None else parse_duration(window, where="window", least=0))

    def prefer(self, preference: str, *, fade: float = 1.0, outlier_cap: int = 4) -> Self:
        """WITH PREFERENCE desc | weighted | asc, FADE FACTOR fade; outlier_cap: the most tuples of a rare key.

        Raises ConfigError.
        """
        preference_number(preference)
        return self._with(preference=preference, fade=Fade(fade).factor, outlier_cap=outlier_cap)

    def limit(self, first: int) -> Self:
        """LIMIT: at most `first` outputs.  Under desc and asc the most promising, best first (`RankedJoin`).

        If the budget cannot guarantee that, the best that were found; `warnings` says so.  Under weighted: the first
        that are found.
        """
        return self._with(first=first)

    def guided_by(self, guide: str) -> Self:
        """`countsketch`: the grid of count sketches; `directory`: exact counts per key; `auto`: the cheaper one."""
        return self._with(guide=guide)

    def returning(self, output: str) -> Self:
        """`pairs`, or `ranges`: one record for all the pairs of a tuple in one region, expanded on demand."""
        return self._with(output=output)

    def replayed(
        self,
        replay: str = "exponential",
        *,
        mean: str | float | timedelta = "100 ms",
        bursts: Bursts | None = None,
        speed: float = 1.0,
    ) -> Self:
        """Play the input back in time: `exponential` gaps of `mean`, steady or in `bursts`, or the `data`'s own.

        The budget is then granted over time, and credit that finds no work expires.  Exponential gaps replace the
        data's times, and the window applies to them.  speed: how many times faster than the wall clock a run under
        `Budget(share=...)` plays the input; other budgets ignore the clock.  Raises ConfigError.
        """
        return self._with(pace=Pace(replay, parse_duration(mean, where="mean"), bursts), speed=checked_speed(speed))

    def using(self, **options: Any) -> Self:
        """method, strategy, costs ("machine", "engine", "memory"), seed, forgetting, or a SummarySpec field.

        A field such as granularity="15 min" asks for the operator that keeps a summary.

        Raises ConfigError for anything else.
        """
        return replace(self, bound=self.bound.using(**options))

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateQuery:
        """Aggregates over the outputs: {"value": "sum(l.price * r.quantity)"}, columns qualified by their stream.

        A stream joined with itself is `left` and `right`.  by: columns or expressions to group by.
        Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        schemas = tuple(self.database.schema(place.stream) for place in self.bound.places)
        read, groups = read_join_aggregates(aggregates, by, self.bound.names, schemas)
        return JoinAggregateQuery(self.database, BoundJoinAggregate(self.bound, read, groups))

    def run(self, budget: GivenBudget | None = None, *, carry: Sequence[tuple[str, ...]] = ()) -> JoinAnswer:
        """Read the streams, each once, and prepare the answer; rows are found as they are asked for.

        budget: a Budget or a fraction; None, or a query without a preference: the whole answer, under desc and asc the
        most promising outputs first; 1.0: all in the order in which they become true.  Under a share
        of a core outputs come while the input is played back, which takes its time over `speed`.  Under a condition
        over several streams what is spent is told as a share of the exact answer's cost, which takes a pass that
        looks at every candidate and is charged to nobody.  carry: for each stream, further columns that the answer
        keeps for its aggregates.  Two streams that have to be waited for, generators say, are joined as they come,
        under a preference and a window within a fraction: then by the operator that takes tuples one by one.
        Raises UnknownColumn, KeyTypeError, SourceError, TimestampOrderError, ConfigError, BudgetError, MemoryRefused.
        Warns (CostWarning), with both costs, at its end, where the whole answer as ranges would have cost less.
        """
        return self.bound.answer(self.database, budget, carry, as_it_comes=True)  # type: ignore[return-value]

    def plan(self, budget: GivenBudget | None = None) -> JoinPlan:
        """The checked plan that `run` would follow."""
        return self.bound.asked_once(budget)

    def explain(self, budget: GivenBudget | None = None) -> str:
        """The plan in words, without running it."""
        return self.bound.explain(self.database, budget)


@dataclass(frozen=True, slots=True, repr=False)
class MultiwayQuery(JoinQuery):
    """A join of n streams, or of two under a condition: as a JoinQuery, but for what its answer is.

    A MultiwayAnswer, or where two streams have conditions on one of them alone a JoinAnswer.
    """

    def run(  # type: ignore[override]
        self, budget: GivenBudget | None = None, *, carry: Sequence[tuple[str, ...]] = ()
    ) -> JoinOutputs[Any]:
        """As `JoinQuery.run`."""
        return self.bound.answer(self.database, budget, carry, as_it_comes=True)


@dataclass(frozen=True, slots=True)
class JoinAggregateQuery:
    """Aggregates over the outputs of a join.  Made by `JoinQuery.aggregate`."""

    database: Home = field(repr=False)
    bound: BoundJoinAggregate

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.bound}>"

    def run(self, budget: GivenBudget | None = None, *, confidence: float = 0.95) -> JoinAggregateAnswer:
        """Run the join under a budget and aggregate what it finds: see `BoundJoinAggregate.answer`."""
        return self.bound.answer(self.database, budget, confidence=confidence)


Columns = str | Sequence[str]
"""One column, or several that are a key together."""


def join_query(
    database: Home,
    streams: Sequence[str],
    on: Columns | None,
    where: str | None,
    left_on: Columns | None = None,
    right_on: Columns | None = None,
) -> JoinQuery | MultiwayQuery:
    """The body of `Database.join`.  Raises ConfigError, and what streams, columns and the condition raise."""
    named = [_named(stream) for stream in streams]
    if not 2 <= len(named) <= _MOST_STREAMS:
        raise ConfigError(
            f"join: needed two streams or more, at most {_MOST_STREAMS}; got {len(named)}; write join('a', 'b', "
            "on='key'), and join some of many first"
        )
    keys, *further = _key_parts(len(named), on, left_on, right_on)
    if other := next((name for part in (keys, *further) for name in part if not isinstance(name, str)), None):
        raise ConfigError(
            f"join: needed names of columns; got {other!r}; for keys that streams call differently write "
            "left_on=['shop', 'item'], right_on=['store', 'sku'], or register a stream with the other's names"
        )
    unconditional = len(named) == 2 and where is None
    plain = unconditional and not further
    aliases = tuple(alias or name for name, alias in named)
    twice = next((alias for alias in aliases if aliases.count(alias) > 1), None)
    if unconditional and twice is not None:
        aliases = ("left", "right")
    elif twice is not None:
        raise ConfigError(
            f"join: needed a name of its own for each stream; got {twice!r} twice; write '{twice} AS a', '{twice} AS b'"
        )
    schemas = [database.schema(name) for name, _ in named]
    for at, ((name, _), schema) in enumerate(zip(named, schemas, strict=True)):
        check_columns(schema, [part[at] for part in (keys, *further)], where=f"stream '{name}'")
    alone, several = taken_apart(None, aliases)
    if where is not None:
        alone, several = read_pair_condition(where, aliases, schemas, where="join, where")
    apart = None
    if further:
        asked = [_equal(part, aliases) for part in further] + ([] if where is None else [f"({where})"])
        place = "join, where" if where else "join, on"
        alone, apart = read_pair_condition(" AND ".join(asked), aliases, schemas, where=place)
    places = tuple(
        Place(name, alias, keys[k], alone[k], tuple(part[k] for part in further))
        for k, ((name, _), alias) in enumerate(zip(named, aliases, strict=True))
    )
    return (JoinQuery if plain else MultiwayQuery)(database, BoundJoin(places, several, apart=apart))


def _key_parts(
    streams: int, on: Columns | None, left_on: Columns | None, right_on: Columns | None
) -> list[tuple[str, ...]]:
    """For each part of the key its column in each stream.  Raises ConfigError."""
    if on is None:
        left, right = (names_given(each, where="join, left_on and right_on") for each in (left_on, right_on))
        if streams == 2 and left and len(left) == len(right):
            return list(zip(left, right, strict=True))
        raise ConfigError(
            "join: needed on=, or for two streams left_on= and right_on= with as many columns; got "
            f"{left_on!r} and {right_on!r} for {streams} streams; write on='key'"
        )
    if left_on is not None or right_on is not None:
        raise ConfigError(
            f"join: needed on=, or left_on= and right_on=; got both, {on!r} and {left_on!r}, {right_on!r}; drop one"
        )
    if isinstance(on, str):
        return [(on,) * streams]
    if isinstance(on, tuple) and len(on) == streams:
        return [on]
    if isinstance(on, tuple) or not on:
        raise ConfigError(
            f"join on: needed one column, a list of columns that all streams have, or a tuple with one for each of "
            f"{streams} streams; got {on!r}; write on='key', on=['shop', 'item'] or "
            f"on=({', '.join(repr(chr(97 + k)) for k in range(streams))})"
        )
    return [(column,) * streams for column in (on if isinstance(on, list) else names_given(on, where="join on"))]


def _equal(part: Sequence[str], aliases: Sequence[str]) -> str:
    """That a part of the key is equal in all streams, as a condition in SQL."""
    columns = [
        ".".join('"' + name.replace('"', '""') + '"' for name in (alias, column))
        for alias, column in zip(aliases, part, strict=True)
    ]
    return " AND ".join(f"{one} = {other}" for one, other in pairwise(columns))


def _named(stream: str) -> tuple[str, str | None]:
    """("name", "alias") of "name AS alias" or "name alias"; a name alone has the alias None."""
    aliased = _ALIASED.fullmatch(stream) if isinstance(stream, str) else None
    return (aliased[1], aliased[2]) if aliased else (stream, None)
