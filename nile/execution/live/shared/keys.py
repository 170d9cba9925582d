"""What a standing query's plan is known by: equal for those that can run on one, but for what is at their tops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nile.execution.choice import Choice
from nile.execution.exact.physical import with_selections
from nile.expressions.tree import Column
from nile.sql.plan import Filter, Over, Plan, Project, Query, Relation, Stream
from nile.streams.live import LiveStream

__all__ = ["key_below", "key_of", "passed_on", "read_live", "tail_of"]


def passed_on(above: list[Plan]) -> tuple[str, ...] | None:
    """The columns that come out at the top where one selection, and no expression, is there; None: there is more."""
    match above:
        case [Filter() as one]:
            return tuple(field.name for field in one.fields)
        case [Project() as made, Filter()]:
            names = [item.node.name for item in made.items if isinstance(item.node, Column)]
            return tuple(names) if len(names) == len(made.items) else None
        case _:
            return None


def tail_of(plan: Plan, choice: Choice) -> tuple[list[Plan], Plan]:
    """(selections and projections at the top of a plan that nothing is held above, from the top; what is below).

    A selection over window functions is part of how they work.  Only where negative tuples say what expires.
    """
    above: list[Plan] = []
    below = plan
    while isinstance(below, Filter | Project) and not (isinstance(below, Filter) and isinstance(below.input, Over)):
        above.append(below)
        below = below.input
    if choice.scheduling != "nta" or isinstance(below, Relation):
        return [], plan
    if isinstance(below, Stream) and (
        choice.emit not in ("append", "stream") or not isinstance(below.window, int | None)
    ):
        return [], plan  # what is selected is held, so nothing else should be
    return above, below


def read_live(leaves: Sequence[Stream | Relation], live: Mapping[str, LiveStream]) -> dict[str, LiveStream]:
    """What a plan with these leaves reads of what rows are pushed to, by name."""
    return {
        leaf.name: live[leaf.name]
        for leaf in leaves
        if leaf.name in live and (isinstance(leaf, Stream) or leaf.changes)
    }


def key_of(query: Query, choice: Choice, streams: Mapping[str, LiveStream]) -> tuple[Any, ...]:
    """Equal for queries that can run on one plan, but for constraints.  streams: as of `read_live`."""
    return key_below(tail_of(with_selections(query.plan), choice)[1], choice, streams)


def key_below(below: Plan, choice: Choice, streams: Mapping[str, LiveStream]) -> tuple[Any, ...]:
    """As `key_of`, of a plan without its top; the last: which streams it reads."""
    read = tuple((name, id(stream)) for name, stream in streams.items())
    return repr(below), choice.emit, choice.scheduling, choice.algorithm, read
