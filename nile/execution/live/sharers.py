"""Which standing queries a query would share a plan with, as EXPLAIN names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.execution.approximate.run import is_approximate
from nile.execution.choice import choose
from nile.execution.live.defining import asked_for
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import key_of, read_live
from nile.execution.options import Options
from nile.sql.plan import Query, leaves_of
from nile.summaries.errors import ConfigError, NotYet

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["sharers_of"]


def sharers_of(live: Live, query: Query, options: Options) -> list[str]:
    """The standing queries whose plan is that of this query: their names, and how many have none.

    If they were asked earlier, one of this text runs on it once the states are equal (`nile.execution.live.sharing`).
    Constraints on streams are not compared.
    """
    if is_approximate(query, options) or options.engine == "spark":
        return []
    with live.lock:
        streams = read_live(leaves_of(query.plan), live.streams())
        if not streams:
            return []
        try:
            asked = asked_for(query, options, None)
            wanted = key_of(asked.query, choose(asked.query, asked.options), streams)
        except (ConfigError, NotYet):  # it cannot stand
            return []
        found = {
            id(one)
            for one in live.standing.all()
            if isinstance(one, ExactSubscription) and not one.closed and one.plan.key[:-1] == wanted
        }
        names = [name for name, (_, one) in live.standing.named().items() if id(one) in found]
    nameless = len(found) - len(names)
    return [*names, *([f"{nameless} without a name"] if nameless else [])]
