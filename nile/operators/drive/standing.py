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
Weighted queries.  What others leave depends on what was drawn, and a sample whose rates follow that is biased.  So a
query that draws a sample has its weight's share of every dispatch to itself, no more and no less (a full share is what
its exact answer takes), and keeps its streams for itself, of which it takes in few tuples.
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
from dataclasses import replace
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.drive.dealt import Dealt
from nile.operators.drive.keeper import KeptStream
from nile.operators.drive.standing_input import (
    OwnJoin,
    StandingJoin,
    StreamInput,
    check,
    draws,
    lent_to,
    merged,
    reached,
)
from nile.operators.join.join import PromisingJoin
from nile.operators.multiway.multiway import MultiwayJoin
from nile.preferences.budget import Budget
from nile.pyramid.grid.arrays import Side

__all__ = ["DISPATCH", "StandingRun"]

Array = np.ndarray[Any, Any]
DISPATCH = 256
"""Arrivals, of all streams together, between two dispatches."""
_UPKEEP = 0.5  # of the grant, before queries have shown that they leave more
_TURN_WORTH = 64.0  # arrivals: a turn that costs no more than they are granted is paid at once
_SAVING = 4096.0  # tuples of a stream over which a dearer turn is saved up for
_PROSPECT = 0.125  # of its share, for a query that has found nothing with so many tuples:
_IN_VAIN = {"desc": 256, "weighted": 2_048, "asc": 2_048}  # weighted and asc leave most matches out by intent
_MEMORY = 4  # dispatches that the mean grant reaches back
_ALMOST_ALL = 0.999  # of its exact cost, the most for a query that draws: rates are 1 there
_CRUMB = 1.0  # hundredths: not worth another round


class StandingRun:
    """The run of standing queries over streams: `advance`, then read `found`.

    All plans have the same costs, seed and budget (a fraction), and no replay; those over shared streams also the same
    spec.  They may differ in the rest.
    """

    def __init__(self, streams: Sequence[StreamInput], queries: Sequence[StandingJoin | OwnJoin]) -> None:
        check(queries)
        plan = queries[0].plan
        self.queries = tuple(queries)
        self._fraction = plan.fraction
        shared = [query for query in queries if isinstance(query, StandingJoin) and not draws(query)]
        prices = np.rint(UNIT * plan.costs.prices())
        shed_at = np.full(max(1, max(stream.known for stream in streams)), np.iinfo(np.int64).min + 1, np.int64)
        salt = _salt(plan)
        self.streams = {
            place: KeptStream(
                stream.ts, stream.keys, stream.known, shared[0].plan.spec, sketched=_is_sketched(shared, place),
                prices=prices, salt=salt, shed_at=shed_at, lent=stream.lent,
            )
            for place, stream in enumerate(streams)
            if stream.keys is not None and any(place in (query.left, query.right) for query in shared)
        }  # fmt: skip
        """The streams that queries share, by their places."""
        self._order, self._granted_by, place_of = merged(streams, queries, plan)
        self._reaches = [reached(query, place_of) for query in queries]
        self._to_itself = np.zeros(-(-self._order.shape[0] // DISPATCH))
        """What each dispatch grants to queries that draw."""
        total = sum(query.weight for query in queries)
        self.joins = tuple(
            self._drawing(query, reaches, query.weight / total, lent_to(query, streams))
            if draws(query)
            else MultiwayJoin(query.plan, query.data, lent=query.lent)
            if isinstance(query, OwnJoin)
            else PromisingJoin(
                query.plan,
                query.data,
                kept=(self.streams[query.left], self.streams[query.right]),
                lent=lent_to(query, streams),
            )
            for query, reaches in zip(queries, self._reaches, strict=True)
        )
        self._dealt: tuple[Dealt[Any], ...] = tuple(Dealt(join) for join in self.joins)
        self._sharing = [k for k, query in enumerate(queries) if not draws(query)]
        self._places = np.zeros(len(streams), np.int64)
        self._weights = [query.weight for query in queries]
        kept = [join for query, join in zip(queries, self.joins, strict=True) if not draws(query)]
        self._turn_cost = max((join.turn_cost for join in kept if isinstance(join, PromisingJoin)), default=0.0)
        self._purse = 0.0
        self._done = self._fed = 0
        self._admission = 1.0
        self._upkeep = _UPKEEP
        self._fresh = 1.0
        self._probed_when_found = [0] * len(queries)
        self._per_arrival = 0.0
        self._dispatches = 0

    def _drawing(
        self, query: StandingJoin | OwnJoin, reaches: Array, share: float, lent: tuple[Side, ...] | None
    ) -> PromisingJoin | MultiwayJoin:
        """A join that draws a sample, granted its share of every dispatch, evenly by its arrivals there."""
        plan, costs = query.plan, query.data.costs
        assert costs is not None
        if isinstance(query, StandingJoin):
            costs = costs + plan.costs.insert
        at = reaches // DISPATCH
        dispatches = self._to_itself.shape[0]
        granted = (
            np.add.reduceat(np.diff(self._granted_by), np.arange(0, self.arrivals, DISPATCH)) if dispatches else at
        )
        amounts = share * self._fraction * granted[at] / np.bincount(at, minlength=dispatches)[at]
        own, most = float(np.rint(UNIT * costs).sum()), float(amounts.sum())
        if own:
            fraction = min(_ALMOST_ALL, most / own)
            plan = replace(plan, budget=Budget(fraction))
            amounts *= fraction * own / most
        self._to_itself += np.bincount(at, amounts, minlength=dispatches)
        join = (
            MultiwayJoin(plan, query.data, lent=lent)
            if isinstance(query, OwnJoin)
            else PromisingJoin(plan, replace(query.data, costs=costs), lent=lent)
        )
        join.grant(0, amounts)
        return join

    @property
    def arrivals(self) -> int:
        """Of all streams together."""
        return int(self._order.shape[0])

    @property
    def granted(self) -> float:
        """Granted so far to all queries together, in units of the cost table."""
        return self._fraction * float(self._granted_by[self._done]) / UNIT

    @property
    def spent(self) -> float:
        """Spent so far on streams and queries together, in units of the cost table."""
        return self.upkeep + sum(join.spent for join in self.joins)

    @property
    def upkeep(self) -> float:
        """Spent so far on insertion and summaries of shared streams: once a stream, whoever uses it."""
        return sum(stream.spent for stream in self.streams.values()) / UNIT

    @property
    def shed(self) -> list[int]:
        """Tuples turned away for all queries, of each stream."""
        return [self.streams[place].shed if place in self.streams else 0 for place in range(self._places.shape[0])]

    @property
    def exact_cost(self) -> float:
        """What the exact answers of all queries cost together."""
        return float(self._granted_by[-1]) / UNIT

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
        grant = max(0.0, grant - float(self._to_itself[self._done // DISPATCH]))
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
                max(self._dealt[k].admission for k in self._sharing if isinstance(self.joins[k], PromisingJoin)),
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
        found: list[list[Any]] = [
            list(join.advance(int(np.searchsorted(reaches, self._done)))) if draws(query) else []
            for query, join, reaches in zip(self.queries, self.joins, self._reaches, strict=True)
        ]
        exact = self.queries[0].plan.is_exact
        purse = 0.0 if exact else self._purse
        busy = self._sharing
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
        for k in self._sharing:
            if found[k]:
                self._probed_when_found[k] = self._dealt[k].probed
        self._purse = purse
        if len(busy) == len(self._sharing):
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
            if isinstance(query, StandingJoin) and isinstance(join, PromisingJoin) and not draws(query):
                left, right = (0, 0) if query.plan.output == "ranges" else join.needed_from()
                needed[query.left] = min(needed[query.left], left)
                needed[query.right] = min(needed[query.right], right)
        for place, stream in self.streams.items():
            stream.store.release(int(needed[place]))


def _salt(plan: JoinPlan) -> int:
    return int(np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 3])).integers(0, 2**62))


def _is_sketched(queries: Sequence[StandingJoin], place: int) -> bool:
    return any(
        place in (query.left, query.right) and query.plan.guide == "countsketch" and not query.plan.is_exact
        for query in queries
    )
