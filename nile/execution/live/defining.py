"""Defining a standing query: its definition as a store keeps it, and the query itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nile.execution.approximate.run import is_approximate
from nile.execution.choice import choose
from nile.execution.definitions import Filling, QueryDefinition, Sends
from nile.execution.exact.promised import Known
from nile.execution.live.approximate.aggregate import SampledSubscription, is_aggregate
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.live.commits import Commits
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.bounds import Means
from nile.execution.live.means.compressed import CompressedSubscription, compressed
from nile.execution.live.means.weighing import weighed
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.sql.plan import Every, OnClose, Query, ToStream, leaves_of
from nile.sql.text import query_text
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError

__all__ = ["Asked", "asked_for", "check_remembered"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query and its options, complete, and both as text."""

    query: Query
    options: Options
    definition: QueryDefinition
    approximate: bool

    def made(
        self,
        names: Any,
        streams: dict[str, LiveStream],
        commits: Commits,
        callback: Callable[[Any], None] | None,
        state: Mapping[str, Any] | None,
        known: Known | None = None,
        means: Means | None = None,
    ) -> Subscription:
        """The standing query, which hears of nothing yet.  state: what it held when it was kept;
        known: constraints on its streams; means: bounds of the database, within which it may be sampled.

        The query of a view begins with what its streams have kept.
        """
        if self.approximate:
            made_of = SampledSubscription if is_aggregate(self.query) else ApproximateSubscription
            return made_of(names, self.query, self.options, streams, commits, callback, state)
        choice = choose(self.query, self.options)
        if self.definition.into is None and (means is not None if state is None else "means" in state):
            bounds = means or Means(None, None)
            for way, kind in ((weighed, BoundedSubscription), (compressed, CompressedSubscription)):
                if (fit := way(self.query, choice, streams)) is not None:
                    return kind(names, self.query, choice, streams, commits, callback, state, fit, bounds)
        made = ExactSubscription(names, self.query, choice, streams, commits, callback, state, known)
        if state is None and self.definition.into is not None and self.definition.into.relation:
            made.begin_with_kept()
        return made


def asked_for(query: Query, options: Options, name: str | None, into: Filling | Sends | None = None) -> Asked:
    """Raises ConfigError for options that a standing query of this kind, or a store, does not take.

    into: where its rows go: into a stream, they have to be new ones.
    """
    asked = _asked(query, options, name)
    if into is None:
        return asked
    if isinstance(into, Sends):
        return replace(asked, definition=replace(asked.definition, sends=into))
    if into.relation:
        if asked.approximate:
            raise ConfigError(f"view '{into.stream}': needed an exact query; got one WITH PREFERENCE; leave it out")
    elif asked.approximate and is_aggregate(query):
        raise ConfigError(
            f"INSERT INTO {into.stream}: needed a query of new rows; got aggregates of a sample, whose rows are taken "
            "back; poll them"
        )
    elif not asked.approximate and (emit := choose(query, asked.options).emit) not in ("append", "stream"):
        raise ConfigError(
            f"INSERT INTO {into.stream}: needed a query of new rows; got one of {emit}, whose rows may be retracted; "
            "say EMIT ON WINDOW CLOSE, EMIT APPEND or ISTREAM (...)"
        )
    return replace(asked, definition=replace(asked.definition, into=into))


def _asked(query: Query, options: Options, name: str | None) -> Asked:
    if is_approximate(query, options):
        return _approximate(query, options, name)
    options.check_exact()
    definition = QueryDefinition(
        query_text(query), options.emit, options.algorithm, options.scheduling, options.windows
    )
    told = query.emit is not None or isinstance(query.plan, ToStream | OnClose | Every)
    if options.emit is None and not query.windowed and not told:
        flat = choose(query, replace(options, emit="append", scheduling=None, algorithm=None)).way
        options = replace(options, emit="append" if flat in ("pass", "join") else "changes")
    return Asked(query, options, definition, False)


def _approximate(query: Query, options: Options, name: str | None) -> Asked:
    """WITH PREFERENCE inside a BUDGET, which goes into the text."""
    budget = options.with_budget(query.budget, "standing query")
    if options.budget is not None and budget is not None:
        query = replace(query, budget=(budget.unit, budget.amount))
        options = replace(options, budget=None)
    definition = QueryDefinition(query_text(query), approximate=options.said())
    for option, value in definition.approximate if name is not None else ():
        if not isinstance(value, str | int | float):
            raise ConfigError(
                f"standing query {name!r}, {option}: needed text or a number, which a store can keep; got "
                f"{value!r}; write it as text"
            )
    return Asked(query, options, definition, True)


def check_remembered(query: Query, name: str, remembered: Collection[str]) -> None:
    """A store can only bring back a query whose other inputs it can open again.  Raises ConfigError."""
    for leaf in leaves_of(query.plan):
        if leaf.name not in remembered:
            raise ConfigError(
                f"standing query {name!r}: needed sources that a store can open again (live streams, files); got "
                f"'{leaf.name}', which is an object of this process; register it from a file, or leave name= out"
            )
