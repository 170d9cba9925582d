"""Which standing queries a query would share a plan with, or a part of one, as EXPLAIN names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nile.execution.approximate.run import is_approximate
from nile.execution.choice import choose
from nile.execution.live.defining import asked_for
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import Running
from nile.execution.live.shared.keys import key_of, read_live
from nile.execution.live.shared.subplan import Subplan
from nile.execution.options import Options
from nile.sql.plan import Query, Stream, leaves_of
from nile.summaries.errors import ConfigError, NotYet

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.live.subscription import Subscription

__all__ = ["names_of", "sharers_of"]


def sharers_of(live: Live, query: Query, options: Options) -> dict[str, list[str]]:
    """By what it would share, its plan, or else the topmost join or set operation of it and what is above that, or the
    tuples that this reads (`Family`): the standing queries with one that is equal, their names, and how many have none.

    If they were asked earlier, this one runs that with them once the states are equal (`Sharing`).  Constraints on
    streams are not compared.
    """
    if is_approximate(query, options) or options.engine == "spark":
        return {}
    with live.lock:
        streams = read_live(leaves_of(query.plan), live.streams())
        if not streams:
            return {}
        try:
            asked = asked_for(query, options, None)
            choice = choose(asked.query, asked.options)
            wanted = key_of(asked.query, choice, streams)
            parts: tuple[Subplan, ...] = ()
            if all(isinstance(leaf, Stream) for leaf in leaves_of(asked.query.plan)):
                parts = Running(live.names, asked.query, choice, streams).subplans
        except (ConfigError, NotYet):  # it cannot stand
            return {}
        found: dict[str, list[Subscription]] = {}
        for one in live.standing.all():
            if not isinstance(one, ExactSubscription) or one.closed:
                continue
            if one.plan.key[:-1] == wanted:
                found.setdefault("plan", []).append(one)
            elif type(one) is ExactSubscription:
                for own, part in zip(one.plan.subplans, parts, strict=False):
                    if own.key == part.key:
                        found.setdefault(part.what, []).append(one)
                    if own.tuples is not None and own.tuples == part.tuples:
                        found.setdefault("tuples", []).append(one)
        order = ["plan", *(part.what for part in parts), "tuples"]
        return {what: names_of(live, found[what]) for what in order if what in found}


def names_of(live: Live, standing: Sequence[Subscription]) -> list[str]:
    """The names of standing queries, and how many have none."""
    named = {id(one): name for name, (_, one) in live.standing.named().items()}
    names = [named[id(one)] for one in standing if id(one) in named]
    nameless = len(standing) - len(names)
    return [*names, *([f"{nameless} without a name"] if nameless else [])]
