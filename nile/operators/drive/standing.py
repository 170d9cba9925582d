"""Several standing joins by `method="nile"` over shared streams, on one budget that they share by weight.

Design.  Arrivals of all streams have one order.  After every 256 of them there is a dispatch, and nothing is
spent between dispatches: (1) what these arrivals grant goes into the purse; (2) each stream takes its tuples in
and keeps its summary, once for all queries, and the purse pays; (3) the purse is dealt out by weight, and each
query probes with its tuples and goes on with what waits; (4) a query that has nothing left to do gives back
what it holds beyond a reserve, and that is dealt out by weight among those that have, until it is used up or
nobody has work; (5) what is left stays in the purse.  So at every arrival the sum of what was spent is at most
the sum of what was granted, an output may be 255 arrivals late, and nothing depends on how the input is cut
into batches.
Who comes in.  Each query has its own admission: the level of key hashes below which it probes.  Streams let in what
some query probes with, as long as that takes at most half of the grant, or more while all queries are idle.
At a fraction of 1 every query runs the plain probe and its answer is exact.
Several streams.  A join of more than two, or under a condition, keeps its streams for itself, in one store by (key,
stream), and pays for that out of its share: its tuples are tested before they are inserted, and its grid counts them
by stream.  It is dealt credit as the others are.
Cost.  A query that finds nothing costs at most one visit an arrival of its streams, and their upkeep where it
is the only one to use them; and at most its weight's share, an eighth of that after 256 tuples (desc; 2,048 under
weighted and asc) that it probed with in vain.  What it is not offered goes to the others.
Source: DESIGN section 2 (budgets); the paper knows round robin only (`nile.operators.drive.round_robin`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.dealt import Dealt
from nile.operators.drive.keeper import KeptStream
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.operators.multiway.multiway import MultiwayJoin
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import Encoded

__all__ = ["DISPATCH", "OwnJoin", "StandingJoin", "StandingRun", "StreamInput"]

Array = np.ndarray[Any, Any]
DISPATCH = 256
"""Arrivals, of all streams together, between two dispatches."""
_HUNDREDTHS = 100.0
_UPKEEP = 0.5  # of the grant, before queries have shown that they leave more
_TURN_WORTH = 64.0  # arrivals: a turn that costs no more than they are granted is paid at once
_SAVING = 4096.0  # tuples of a stream over which a dearer turn is saved up for
_PROSPECT = 0.125  # of its share, for a query that has found nothing with so many tuples:
_IN_VAIN = {"desc": 256, "weighted": 2_048, "asc": 2_048}  # weighted and asc leave most matches out by intent
_MEMORY = 4  # dispatches that the mean grant reaches back
_CRUMB = 1.0  # hundredths: not worth another round


@dataclass(frozen=True, slots=True)
class StreamInput:
    """A whole ordered stream.  ts: int64 [n] ns; keys: encoded [n], one table for streams that are joined, of `known`.

    keys: None: no queries share it, so nobody keeps it for them.
    """

    name: str
    ts: Array
    keys: Encoded | None
    known: int = 0


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

    operator: the join over its whole input; stream, ordinal: int64 [n], of each of its arrivals, the place of its
    stream and its own there; costs: float64 [n], what the exact answer spends at each, insertion included.
    """

    operator: MultiwayJoin
    stream: Array
    ordinal: Array
    costs: Array
    weight: float

    @property
    def plan(self) -> JoinPlan:
        """What was asked."""
        return self.operator.plan


class StandingRun:
    """The run of standing queries over streams: `advance`, then read `found`.

    All plans have the same costs, seed and budget (a fraction), and no replay; those over shared streams also the same
    spec.  They may differ in the rest.
    """

    def __init__(self, streams: Sequence[StreamInput], queries: Sequence[StandingJoin | OwnJoin]) -> None:
        _check(queries)
        plan = queries[0].plan
        self.queries = tuple(queries)
        self._fraction = plan.fraction
        shared = [query for query in queries if isinstance(query, StandingJoin)]
        prices = np.rint(_HUNDREDTHS * plan.costs.prices())
        shed_at = np.full(max(1, max(stream.known for stream in streams)), np.iinfo(np.int64).min + 1, np.int64)
        salt = _salt(plan)
        self.streams = {
            place: KeptStream(
                stream.ts, stream.keys, stream.known, shared[0].plan.spec, sketched=_is_sketched(shared, place),
                prices=prices, salt=salt, shed_at=shed_at,
            )
            for place, stream in enumerate(streams)
            if stream.keys is not None
        }  # fmt: skip
        """The streams that queries share, by their places."""
        self.joins = tuple(
            query.operator
            if isinstance(query, OwnJoin)
            else PromisingJoin(query.plan, query.data, kept=(self.streams[query.left], self.streams[query.right]))
            for query in queries
        )
        self._dealt: tuple[Dealt[Any], ...] = tuple(Dealt(join) for join in self.joins)
        self._order, self._granted_by, place_of = _merged(streams, queries, plan)
        self._reaches = [_reaches(query, place_of) for query in queries]
        self._places = np.zeros(len(streams), np.int64)
        self._weights = [query.weight for query in queries]
        self._turn_cost = max((join.turn_cost for join in self.joins if isinstance(join, PromisingJoin)), default=0.0)
        self._purse = 0.0
        self._done = self._fed = 0
        self._admission = 1.0
        self._upkeep = _UPKEEP
        self._fresh = 1.0
        self._probed_when_found = [0] * len(queries)
        self._per_arrival = 0.0
        self._dispatches = 0

    @property
    def arrivals(self) -> int:
        """Of all streams together."""
        return int(self._order.shape[0])

    @property
    def granted(self) -> float:
        """Granted so far to all queries together, in units of the cost table."""
        return self._fraction * float(self._granted_by[self._done]) / _HUNDREDTHS

    @property
    def spent(self) -> float:
        """Spent so far on streams and queries together, in units of the cost table."""
        return self.upkeep + sum(join.spent for join in self.joins)

    @property
    def upkeep(self) -> float:
        """Spent so far on insertion and summaries of shared streams: once a stream, whoever uses it."""
        return sum(stream.spent for stream in self.streams.values()) / _HUNDREDTHS

    @property
    def shed(self) -> list[int]:
        """Tuples turned away for all queries, of each stream."""
        return [self.streams[place].shed if place in self.streams else 0 for place in range(self._places.shape[0])]

    @property
    def exact_cost(self) -> float:
        """What the exact answers of all queries cost together."""
        return float(self._granted_by[-1]) / _HUNDREDTHS

    def advance(self, end: int) -> Iterator[list[list[Any]]]:
        """Feed arrivals up to `end`; yields what each query found, dispatch by dispatch."""
        self._fed = min(end, self.arrivals)
        while self._done < self._fed:
            upto = min(self._done + DISPATCH, self.arrivals)
            if upto > self._fed:
                return
            yield self._dispatch(upto)

    def _dispatch(self, end: int) -> list[list[Any]]:
        grant = self._fraction * float(self._granted_by[end] - self._granted_by[self._done])
        self._fresh = grant / (self._purse + grant) if grant > 0.0 else 0.0
        self._purse += grant
        self._places += np.bincount(self._order[self._done : end], minlength=self._places.shape[0])
        arrivals = end - self._done
        self._done = end
        self._keep(grant, arrivals)
        found = self._deal()
        self._release()
        return found

    def _keep(self, grant: float, arrivals: int) -> None:
        """Every stream takes its tuples in; zones turn when that has been saved up for."""
        self._dispatches += 1
        self._per_arrival += (grant / arrivals - self._per_arrival) / min(self._dispatches, _MEMORY)
        if self.streams and not self.queries[0].plan.is_exact:
            entrance = max((stream.entrance for stream in self.streams.values()), default=1.0)
            self._admission = min(
                max(dealt.admission for dealt in self._dealt if isinstance(dealt.operator, PromisingJoin)),
                self._upkeep * self._per_arrival / entrance,
            )
        at_once = self._turn_cost <= _TURN_WORTH * self._per_arrival
        for place, stream in self.streams.items():
            kept = stream.kept
            self._purse -= stream.keep(int(self._places[place]), self._admission, self._purse)
            if stream.turn_wanted:
                missing = self._turn_cost - stream.saved
                saving = missing if at_once else min(missing, self._turn_cost * (stream.kept - kept) / _SAVING)
                saving = min(saving, self._purse)
                stream.saved += saving
                self._purse -= saving
                if stream.saved >= self._turn_cost:
                    stream.saved -= stream.turn()

    def _deal(self) -> list[list[Any]]:
        """Deal the purse out by weight, take back what finds no work, and deal that out again."""
        found: list[list[Any]] = [[] for _ in self.joins]
        exact = self.queries[0].plan.is_exact
        purse = 0.0 if exact else self._purse
        busy = list(range(len(self.joins)))
        first = True
        while busy and (first or purse > _CRUMB):
            shares = [self._weights[k] * (_PROSPECT if self._is_in_vain(k) else 1.0) for k in busy]
            total = sum(shares)
            left = 0.0
            for k, share in zip(busy, shares, strict=True):
                join = self._dealt[k]
                end = int(np.searchsorted(self._reaches[k], self._done)) if first else join.operator.fed
                found[k] += join.step(end, purse * share / total, self._fresh)
                if exact:
                    self._purse += join.settle()
                elif not join.has_work:
                    left += join.give_back()
            still = [k for k in busy if self._dealt[k].has_use]
            purse, busy, first = left, still, False
        if exact:
            return found
        for k, parts in enumerate(found):
            if parts:
                self._probed_when_found[k] = self._dealt[k].probed
        self._purse = purse
        if len(busy) == len(self.joins):
            self._upkeep = max(_UPKEEP, 0.95 * self._upkeep)
        elif not busy and purse > _CRUMB:
            self._upkeep = min(1.0, 1.1 * self._upkeep)
        return found

    def _is_in_vain(self, k: int) -> bool:
        probed = self._dealt[k].probed - self._probed_when_found[k]
        return probed >= _IN_VAIN[self.queries[k].plan.preference]

    def _release(self) -> None:
        """Free tuples of shared streams that no query can reach."""
        needed = self._places.copy()
        for query, join in zip(self.queries, self.joins, strict=True):
            if isinstance(query, StandingJoin) and isinstance(join, PromisingJoin):
                left, right = (0, 0) if query.plan.output == "ranges" else join.needed_from()
                needed[query.left] = min(needed[query.left], left)
                needed[query.right] = min(needed[query.right], right)
        for place, stream in self.streams.items():
            stream.store.release(int(needed[place]))


def _merged(
    streams: Sequence[StreamInput], queries: Sequence[StandingJoin | OwnJoin], plan: JoinPlan
) -> tuple[Array, Array, list[Array]]:
    """The arrivals of all streams.

    (the stream of each, int64 [n]; what the exact answers cost up to each, float64 [n + 1]; of each stream, which
    arrivals its tuples are.)
    """
    costs = [np.full(each.ts.shape[0], 0.0 if each.keys is None else float(plan.costs.insert)) for each in streams]
    for query in queries:
        if isinstance(query, OwnJoin):
            for place in np.unique(query.stream):
                mine = query.stream == place
                np.add.at(costs[place], query.ordinal[mine], query.costs[mine])
        else:
            costs[query.left] += query.data.costs[query.data.order == 0]
            costs[query.right] += query.data.costs[query.data.order == 1]
    sizes = [stream.ts.shape[0] for stream in streams]
    order = np.argsort(np.concatenate([stream.ts for stream in streams]), kind="stable")
    place = np.empty(order.shape[0], np.int64)
    place[order] = np.arange(order.shape[0])
    granted = np.concatenate([[0.0], np.cumsum(np.rint(_HUNDREDTHS * np.concatenate(costs)[order]))])
    return np.repeat(np.arange(len(streams)), sizes)[order], granted, np.split(place, np.cumsum(sizes)[:-1])


def _reaches(query: StandingJoin | OwnJoin, place_of: Sequence[Array]) -> Array:
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


def _salt(plan: JoinPlan) -> int:
    return int(np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 3])).integers(0, 2**62))


def _is_sketched(queries: Sequence[StandingJoin], place: int) -> bool:
    return any(
        place in (query.left, query.right) and query.plan.guide == "countsketch" and not query.plan.is_exact
        for query in queries
    )


def _check(queries: Sequence[StandingJoin | OwnJoin]) -> None:
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
        if plan.output == "ranges" and plan.preference == "weighted" and not plan.is_exact and not own:
            raise ConfigError(
                f"standing query {number}: needed output 'pairs' with preference 'weighted': over streams that others "
                "keep, the pairs of one range weigh differently; got 'ranges'; ask for pairs"
            )
        first = queries[0].plan if own else shared
        for name in ("costs", "seed", "budget") if own else ("costs", "seed", "spec", "budget"):
            if getattr(plan, name) != getattr(first, name):
                raise ConfigError(
                    f"standing query {number}: needed the {name} of query 0, {getattr(first, name)!r}; got "
                    f"{getattr(plan, name)!r}; streams, their summaries and the budget are shared"
                )
