"""A join under a budget over live streams: the operator of `nile.operators.join.join`, fed as tuples come.

Design.  The kernels are the same, and so is what they do: a tuple at a time, in the total order, which no cut into
batches changes.  Here the input has no end, so what a window cannot reach any more is let go of: arrivals that have
been dealt with, tuples, admissions, and keys that none of the tuples held has.  Before the kernels run, each
arrival's exact cost is counted from the windows of both streams, shed tuples included, so the grant after arrival i
is the fraction times the sum of c_j, j <= i, as over finite streams: the outputs are the same, bit for bit. Cost.
The exact counts take about 50 ns per arrival (measured), a tenth of the whole; keys are renumbered when half of them
have gone, O(1) a tuple. Memory.  Tuples of up to two windows, and what waits in the queue. Source: DESIGN section 2,
budget; the paper's engine has no budget but the time between two arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import Held, State
from nile.operators.common.data import Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.growing import grown, rows_at
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.drive.live_estimate import LiveSample
from nile.operators.drive.live_parts import Afforded, checked, no_input
from nile.operators.drive.live_state import captured, restored
from nile.operators.join.follower import Follower, is_followed
from nile.operators.join.join import PromisingJoin
from nile.preferences import state as st
from nile.preferences.clock import exact_costs
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import Memory
from nile.pyramid.grid.store import TupleStore
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import PUBLIC, Encoded, KeyHasher, KeyTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.drive import live_kernels
else:
    live_kernels = lazy("nile.operators.drive.live_kernels")

__all__ = ["LiveJoin"]

Array = np.ndarray[Any, Any]
_LEAST_KEYS = 4096


class LiveJoin(Afforded):
    """One plan over two live streams: `push` what has come, `advance`, and get what is found.

    The same tuples give the same outputs, weights and figures as `PromisingJoin` gives for them as finite streams,
    however they are cut into pushes.  Range records are expanded at once.  Raises NotYet for a method other than
    `nile` and for a replay, ConfigError for a plan without a window.
    """

    join: PromisingJoin

    def __init__(self, plan: JoinPlan, hasher: KeyHasher = PUBLIC) -> None:
        self.plan = checked(plan)
        self.join = PromisingJoin(plan, no_input())
        if is_followed(plan):
            self.join.follow(Follower(plan))
        self._windows = 1 if plan.is_exact else 2
        self._table = KeyTable(hasher)
        self.sampled = plan.preference == "weighted" and not plan.is_exact
        self._counts = np.zeros((256, 2), np.int64)
        self._place = np.zeros(live_kernels.PLACE_FIELDS, np.int64)
        self.total_cost = 0.0
        self.last: int | None = None
        self.sample = LiveSample(plan.window, met=self.sampled and not is_followed(plan))
        self._told = [0, 0]
        self.matches = 0
        """Pairs that the exact answer has, so far."""
        self.found = 0
        """Pairs found so far."""
        self.dealt = 1.0
        """What its grants are multiplied by from here on: its part of a budget that several of its kind share."""

    def deal_sample(self, matches: float, share: Callable[[float, float, float], tuple[float, float]]) -> None:
        """Multiply what is granted from here on by a share of the rates that tuples are taken in at, which go by so
        many times the grants (share: both, of level, coin and rate of outputs).

        matches: what a tuple is expected to have, before any has come.  Only where rates follow grants.
        """
        follower = self.follower
        if follower is not None:
            if not self.arrivals:
                follower.expect(self.state, matches)
            self.dealt, alike = share(*follower.rates(self.state))
            follower.dealt(self.dealt, alike)

    @property
    def state(self) -> st.State:
        """The join's."""
        return self.join.state

    @property
    def stores(self) -> tuple[TupleStore, TupleStore]:
        """The join's."""
        return self.join.stores

    def example(self) -> PromisingJoin:
        """One of the same plan over a small input, whose run loads every kernel that this one's will."""
        example = self.join.example()
        if self.follower is not None:
            follower = Follower(example.plan)
            for side in (0, 1):
                follower.put_thinned(side, np.zeros(example.arrivals))
            example.follow(follower)
        return example

    @property
    def tuples(self) -> Array:
        """Tuples of each stream that have come: int64 [2]."""
        return np.array([store.tuples for store in self.stores])

    def push(self, ts: tuple[Array, ...], keys: tuple[pa.Array, ...]) -> None:
        """Tuples of both streams whose turn has come.

        ts: int64 [n] ns, not decreasing, none before what was pushed; keys: their keys.  Left comes before right at
        equal times.  Raises KeyTypeError.
        """
        encoded = [self._table.encode(each, where="live join") for each in keys]
        merged = np.concatenate(ts)
        place = np.argsort(merged, kind="stable")
        order = (place >= ts[0].shape[0]).astype(np.int8)
        self.last = int(merged[place[-1]]) if merged.shape[0] else self.last
        if self.sampled:
            for side, (times, coded) in enumerate(zip(ts, encoded, strict=True)):
                if times.shape[0]:
                    self.sample.arrive(side, times.shape[0], int((coded.codes >= 0).sum()), int(times[0]))
        self.join.push(ts, tuple(encoded), order, self._table.known)
        self._make_room()
        self.join.grant(self.arrivals - order.shape[0], self._granted(order))

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Outputs]:
        """Go on to arrival `end`; yields the pairs found, range records expanded (`nile.operators.common.contract`)."""
        for outputs in self.join.advance(end, credit=credit):
            pairs = self.join.expand(outputs)
            if self.sampled:
                self._sample_of(outputs)
            self.found += pairs.left.shape[0]
            yield pairs

    def let_go(self) -> None:
        """All that was pushed has been advanced to: forget keys that went with what a window cannot reach."""
        self._tell_admissions()
        self.join.let_go(self._windows)
        self.sample.let_go(self.needed_from())
        known = self._table.known
        if known < _LEAST_KEYS or known < 2 * self._held_keys_at_most():
            return
        alive = self.alive()
        if known >= 2 * alive.shape[0]:
            self._renumber(alive)

    def _granted(self, order: Array) -> Array:
        """What each new arrival grants, in hundredths; counts what the exact answer spends on it."""
        matches = np.empty(order.shape[0], np.int64)
        left, right = (store.side for store in self.stores)
        assert self.plan.window is not None
        live_kernels.count_matches(left, right, order, self.plan.window, self._counts, self._place, matches)
        self.matches += int(matches.sum())
        for side in (0, 1):
            self.sample.complete(side, matches[order == side])
        ranges = self.plan.output == "ranges"
        costs = np.rint(UNIT * exact_costs(matches, self.plan.costs, ranges=ranges))
        self.total_cost += float(costs.sum())
        granted: Array = self.plan.fraction * self.dealt * costs
        return granted

    def _make_room(self) -> None:
        """Room to count every key known, and for the admission thresholds of every tuple held."""
        known = self._table.known
        if known > self._counts.shape[0]:
            self._counts = grown(self._counts, max(known, 2 * self._counts.shape[0]), 0)
        if self.sampled:
            for side in (0, 1):
                self._roomy_admissions(side)

    def admissions(self, side: int) -> Array:
        """The admissions that a stream's tuples came through, from ordinal `ADMISSIONS_GONE` on, with room for more."""
        return self.state.left_admission if side == 0 else self.state.right_admission

    def _admissions_of(self, side: int, ordinals: Array) -> Array:
        admissions: Array = self.admissions(side)[ordinals - int(self.state.whole[st.ADMISSIONS_GONE + side])]
        return admissions

    def _tell_admissions(self) -> None:
        """Tell the sample at which levels tuples came in that have been dealt with since."""
        if self.sampled:
            for side in (0, 1):
                end = int(self.state.whole[st.SEQUENCE + side])
                told = slice(*(np.array([self._told[side], end]) - int(self.state.whole[st.ADMISSIONS_GONE + side])))
                shares = np.multiply.reduce([each[told] for each in self.came_by(side)])
                key = self._hashes_of(side, np.arange(self._told[side], end))
                self.sample.let_in(side, shares, key, shares, int(self.state.setting[st.SALT]))
                self._told[side] = end

    def _sample_of(self, found: Outputs) -> None:
        """Tell the sample what was found: pairs, or range records before they are expanded."""
        if found.side is None or found.low is None or found.high is None:
            level = np.minimum(self._admissions_of(0, found.left), self._admissions_of(1, found.right))
            key, pairs = self._hashes_of(0, found.left), np.ones(found.left.shape[0], np.int64)
        else:
            level, key = np.empty(found.left.shape[0]), np.empty(found.left.shape[0], np.uint64)
            pairs = found.high - found.low
            for side in (0, 1):
                mine = np.flatnonzero(found.side == side)
                level[mine] = self._admissions_of(side, found.left[mine])
                key[mine] = self._hashes_of(side, found.left[mine])
        coins: list[tuple[Array, Array]] = []
        if self.follower is not None:
            for side, ordinals in enumerate((found.left, found.right)):
                at = ordinals - int(self.state.whole[st.ADMISSIONS_GONE + side])
                admissions, thinned = self.came_by(side)
                coins.append((ordinals, admissions[at] * (1.0 - thinned[at])))
        self.sample.add(key, np.clip(level, 1.0 / found.weight, 1.0), found.weight, pairs, coins)

    def _roomy_admissions(self, side: int) -> None:
        """Room for the admissions, and coins, of all tuples of a stream that are held."""
        whole = self.state.whole
        store = self.stores[side]
        gone = int(whole[st.ADMISSIONS_GONE + side])
        if store.tuples - gone <= self.admissions(side).shape[0]:
            return
        keep = self.needed_from()[side]
        room = max(1024, 2 * (store.tuples - keep))
        whole[st.ADMISSIONS_GONE + side] = keep
        self._put_admissions(side, *(_moved(each[keep - gone :], room) for each in self.came_by(side)))

    def came_by(self, side: int) -> list[Array]:
        """How a stream's tuples came in, from ordinal `ADMISSIONS_GONE` on: admissions, and coins if they have any."""
        follower = self.follower
        return [self.admissions(side)] if follower is None else [self.admissions(side), follower.thinned[side]]

    def _put_admissions(self, side: int, admissions: Array, thinned: Array | None = None) -> None:
        self.join.state = self.state._replace(**{"left_admission" if side == 0 else "right_admission": admissions})
        if self.follower is not None and thinned is not None:
            self.follower.put_thinned(side, thinned)

    @property
    def follower(self) -> Follower | None:
        """What draws the sample, where rates follow grants."""
        return self.join.sampler if isinstance(self.join.sampler, Follower) else None

    @property
    def _follows(self) -> bool:
        return self.follower is not None

    @property
    def _undrawn(self) -> float:
        return 0.0 if self.follower is None else self.follower.undrawn * self.plan.costs.emit

    def _deal(self, share: float) -> None:
        assert self.follower is not None
        self.follower.dealt(share, 1.0)

    def times_of(self, side: int, ordinals: Array) -> Array:
        """When tuples of a stream that are held came: int64 [n] ns."""
        held = self.stores[side].side
        ts: Array = held.ts[ordinals - int(held.meta[ga.BASE])]
        return ts

    def _hashes_of(self, side: int, ordinals: Array) -> Array:
        held = self.stores[side].side
        hashes: Array = held.hash[ordinals - int(held.meta[ga.BASE])]
        return hashes

    def needed_from(self) -> tuple[int, int]:
        """Of each stream, the first ordinal that a probe, a queued entry or a count can still reach."""
        return self.join.needed_from(self._windows)

    @property
    def known(self) -> int:
        """Key codes in use."""
        return self._table.known

    @property
    def estimate(self) -> Estimate:
        """How many pairs the exact answer has so far, as `Answer.estimate` says it."""
        if self.plan.is_exact and self.plan.preference != "asc":
            return Estimate.exact(float(self.found))
        if self.sampled:
            return self.sample.estimate(self.last, None if self.follower is None else self.follower.foreseen)
        return Estimate(float(self.found), float(self.found), math.inf, 1.0, True)

    def capture(self) -> State:
        """What the join holds, between two takes (`nile.operators.drive.live_state`)."""
        return captured(self)

    def restore(self, held: Held, keys: tuple[pa.Array, ...]) -> None:
        """Be where the join was that gave the state; keys: of the tuples it needed.  Raises EnvelopeError."""
        restored(self, held, keys)

    def encode(self, keys: pa.Array) -> Encoded:
        """Codes and hashes of a column of keys."""
        return self._table.encode(keys, where="live join")

    def listed(self, side: int, codes: Array) -> Array:
        """How many entries the lists of these keys have: int64 [n]."""
        held: Array = self.stores[side].side.lists[codes, ga.HELD]
        return held

    def oldest(self) -> int:
        """The oldest time that the tuple last dealt with joins with."""
        assert self.plan.window is not None
        return max(-st.FOREVER, int(self.state.whole[st.NOW_TS]) - self.plan.window)

    def put_admissions(self, side: int, *came_by: Array) -> None:
        """The admissions, and coins if they have any, of the tuples held, which are put back."""
        self._put_admissions(side, *(_moved(each, each.shape[0] + max(1024, each.shape[0])) for each in came_by))

    def go_on_from(self, fed: int, last: int | None, cost: float, matches: int, found: int, waiting: Array) -> None:
        """The tuples that are held have been put back: count those of the window, and go on."""
        self.last, self.total_cost, self.matches, self.found = last, cost, matches, found
        whole = self.state.whole
        self.join.go_on_from(fed, waiting, self._table.known)
        if self.sampled:
            whole[[st.ADMISSIONS_GONE, st.ADMISSIONS_GONE + 1]] = [
                int(store.side.meta[ga.BASE]) for store in self.stores
            ]
        self._make_room()
        self._told = [int(whole[st.SEQUENCE]), int(whole[st.SEQUENCE + 1])]
        for side, store in enumerate(self.stores):
            base = int(store.side.meta[ga.BASE])
            self._place[live_kernels.NEXT_COUNTED + side] = store.tuples
            self._place[live_kernels.FIRST_COUNTED + side] = store.tuples
            if last is not None and self.plan.window is not None:
                held = store.side.ts[: store.tuples - base]
                at = int(np.searchsorted(held, max(-st.FOREVER, last - self.plan.window), side="left"))
                codes = store.side.code[at : store.tuples - base]
                self._counts[:, side] += np.bincount(codes[codes >= 0], minlength=self._counts.shape[0])
                self._place[live_kernels.FIRST_COUNTED + side] = base + at

    def _held_keys_at_most(self) -> int:
        return sum(store.tuples - first for store, first in zip(self.stores, self.needed_from(), strict=True))

    def _held_codes(self, side: int, first: int) -> Array:
        store = self.stores[side]
        base = int(store.side.meta[ga.BASE])
        codes: Array = store.side.code[first - base : store.tuples - base]
        return codes

    def alive(self) -> Array:
        """The codes of keys that a tuple still needed has, in the order in which these first have them: int64 [k]."""
        held = np.concatenate([self._held_codes(side, first) for side, first in enumerate(self.needed_from())])
        codes, first = np.unique(held, return_index=True)
        inner = codes >= 0
        alive: Array = codes[inner][np.argsort(first[inner], kind="stable")].astype(np.int64)
        return alive

    def _renumber(self, alive: Array) -> None:
        """Give the keys of these codes the codes 0, 1, ...; all others are forgotten."""
        table = KeyTable(self._table.hasher)
        table.encode(self._table.values().take(pa.array(alive)))
        code_of = np.full(self._table.known + 1, -1, np.int32)  # the last: of -1
        code_of[alive] = np.arange(alive.shape[0], dtype=np.int32)
        self.join.renumber(alive, code_of)
        self._table = table
        self._counts = rows_at(self._counts, alive, 0)

    @property
    def figures(self) -> JoinFigures:
        """What has been done so far."""
        return replace(self.join.figures, exact_cost=self.total_cost / UNIT)

    @property
    def memory(self) -> Memory:
        """Bytes held by both streams' stores, the keys, the counts and the queue."""
        held, queued = self.join.memory, self.join.queue
        queue = 0 if queued is None else sum(array.nbytes for array in queued)
        admissions = sum(each.nbytes for side in (0, 1) for each in self.came_by(side))
        admissions += self.state.shed_at.nbytes + self.state.heavy.nbytes
        return Memory(
            sketches=held.sketches,
            directory=held.directory + self._table.nbytes + self._counts.nbytes,
            tuples=held.tuples + self.sample.nbytes + queue + admissions,
        )


def _moved(held: Array, room: int) -> Array:
    """The same in new room."""
    fresh = np.zeros(room)
    fresh[: held.shape[0]] = held
    return fresh
