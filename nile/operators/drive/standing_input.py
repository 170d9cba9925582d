"""What standing joins over shared streams are given: streams, queries, and the order in which all tuples come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.join.follower import draws_ranges, is_followed
from nile.operators.join.join import JoinInput
from nile.operators.join.sampler import is_sampled
from nile.operators.multiway.multiway import MultiwayInput
from nile.pyramid.grid.arrays import Side
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import Encoded

__all__ = ["OwnJoin", "StandingJoin", "StreamInput", "check", "draws", "lent_to", "merged", "reached"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class StreamInput:
    """A whole ordered stream.  ts: int64 [n] ns; keys: encoded [n], one table for streams that are joined, of `known`.

    keys: None: no queries share it, so nobody keeps it for them.  lent: a grid that has counted it whole, which its
    queries, guided by sketches all, ask in place of one kept for them.
    """

    name: str
    ts: Array
    keys: Encoded | None
    known: int = 0
    lent: Side | None = None


@dataclass(frozen=True, slots=True)
class StandingJoin:
    """One standing query.  data.costs: what its exact probes spend at each arrival, insertion left out.

    left, right: places of its streams, left before right; weight: above 0.
    """

    plan: JoinPlan
    data: JoinInput
    left: int
    right: int
    weight: float


@dataclass(frozen=True, slots=True)
class OwnJoin:
    """One standing query that keeps its streams for itself: of several, of one with itself, or under a condition.

    data.costs: what the exact answer spends at each arrival, insertion included.  stream, ordinal: int64 [n], of each
    of its arrivals, the place of its stream and its own there.  lent: as `MultiwayJoin` takes it.
    """

    plan: JoinPlan
    data: MultiwayInput
    stream: Array
    ordinal: Array
    weight: float
    lent: tuple[Side, ...] | None = None


def merged(
    streams: Sequence[StreamInput], queries: Sequence[StandingJoin | OwnJoin], plan: JoinPlan
) -> tuple[Array, Array, list[Array]]:
    """The arrivals of all streams.

    (the stream of each, int64 [n]; what the exact answers cost up to each, float64 [n + 1]; of each stream, which
    arrivals its tuples are.)
    """
    costs = [np.full(each.ts.shape[0], 0.0 if each.keys is None else float(plan.costs.insert)) for each in streams]
    for query in queries:
        assert query.data.costs is not None
        if isinstance(query, OwnJoin):
            for place in np.unique(query.stream):
                mine = query.stream == place
                np.add.at(costs[place], query.ordinal[mine], query.data.costs[mine])
        else:
            costs[query.left] += query.data.costs[query.data.order == 0]
            costs[query.right] += query.data.costs[query.data.order == 1]
    sizes = [stream.ts.shape[0] for stream in streams]
    order = np.argsort(np.concatenate([stream.ts for stream in streams]), kind="stable")
    place = np.empty(order.shape[0], np.int64)
    place[order] = np.arange(order.shape[0])
    granted = np.concatenate([[0.0], np.cumsum(np.rint(UNIT * np.concatenate(costs)[order]))])
    return np.repeat(np.arange(len(streams)), sizes)[order], granted, np.split(place, np.cumsum(sizes)[:-1])


def reached(query: StandingJoin | OwnJoin, place_of: Sequence[Array]) -> Array:
    """Of each arrival of a query's own, which of all arrivals must have come for it to have: int64 [n], not falling."""
    if isinstance(query, OwnJoin):
        reaches = np.empty(query.stream.shape[0], np.int64)
        for place in np.unique(query.stream):
            mine = query.stream == place
            reaches[mine] = place_of[place][query.ordinal[mine]]
    else:
        reaches = np.empty(query.data.order.shape[0], np.int64)
        reaches[query.data.order == 0] = place_of[query.left]
        reaches[query.data.order == 1] = place_of[query.right]
    # Two places of one stream, and another between them, stand in another order among all arrivals.
    highest: Array = np.maximum.accumulate(reaches)
    return highest


def draws(query: StandingJoin | OwnJoin) -> bool:
    """Whether it draws a sample at rates of its own."""
    plan = query.plan
    return (is_followed(plan) or draws_ranges(plan)) if isinstance(query, OwnJoin) else is_sampled(plan)


def lent_to(query: StandingJoin | OwnJoin, streams: Sequence[StreamInput]) -> tuple[Side, ...] | None:
    """The grids that guide it in place of its own; None where there are none."""
    if isinstance(query, OwnJoin):
        return query.lent
    left, right = streams[query.left].lent, streams[query.right].lent
    return None if left is None or right is None or query.plan.guide != "countsketch" else (left, right)


def check(queries: Sequence[StandingJoin | OwnJoin]) -> None:
    """Raises ConfigError for queries that cannot run together."""
    if not queries:
        raise ConfigError("standing queries: needed at least one; got none; give a query for each answer")
    shared = next((query.plan for query in queries if isinstance(query, StandingJoin)), queries[0].plan)
    for number, query in enumerate(queries):
        plan = query.plan
        if plan.method != "nile" or plan.budget.fraction is None or plan.pace.is_replay:
            raise ConfigError(
                f"standing query {number}: needed method 'nile', a budget that is a fraction, and no replay; got "
                f"{plan.method!r}, {plan.budget}, replay {plan.pace.replay!r}; run such a query by itself"
            )
        own = isinstance(query, OwnJoin)
        if plan.output == "ranges" and plan.preference == "weighted" and not (own or plan.is_exact or draws(query)):
            raise ConfigError(
                f"standing query {number}: needed output 'pairs' with preference 'weighted' and forgetting: over "
                "streams that others keep, the pairs of one range weigh differently; got 'ranges'; ask for pairs"
            )
        first = queries[0].plan if own else shared
        for name in ("costs", "seed", "budget") if own else ("costs", "seed", "spec", "budget"):
            if getattr(plan, name) != getattr(first, name):
                raise ConfigError(
                    f"standing query {number}: needed the {name} of query 0, {getattr(first, name)!r}; got "
                    f"{getattr(plan, name)!r}; streams, their summaries and the budget are shared"
                )
