"""A join under a budget over live streams: the operator of `nile.operators.join`, fed as tuples come.

Design.  The kernels are the same, and so is what they do: a tuple at a time, in the total order, which no cut into
batches changes.  Here the input has no end, so what a window cannot reach any more is let go of: arrivals that have
been dealt with, tuples, doors, and keys that none of the tuples held has.  Before the kernels run, each arrival's exact
cost is counted from the windows of both streams, shed tuples included, so the grant after arrival i is the fraction
times the sum of c_j, j <= i, as over finite streams: the outputs are the same, bit for bit.
Cost.  The exact counts take about 20 ns an arrival; keys are renumbered when half of them have gone, O(1) a tuple.
Memory.  Tuples of up to two windows, and what waits in the queue.
Source: DESIGN section 2, budget; the paper's engine has no budget but the time between two arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators import state as st
from nile.operators.join import PromisingJoin
from nile.operators.join_data import JoinInput, Outputs
from nile.operators.join_start import UNIT
from nile.operators.plan import JoinPlan
from preferences.clock import exact_costs
from preferences.queue import oldest_time
from pyramid.arrays import BASE, PLACED
from pyramid.manager import Memory
from pyramid.store import TupleStore
from summaries.errors import ConfigError, NotYet
from summaries.hashing import Encoded, KeyTable
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa

    from nile.operators import live_join_kernels
else:
    pa = lazy("pyarrow")
    live_join_kernels = lazy("nile.operators.live_join_kernels")

__all__ = ["LiveJoin"]

Array = np.ndarray[Any, Any]
_LEAST_KEYS = 4096


class LiveJoin(PromisingJoin):
    """One plan over two live streams: `take` what has come, in the total order, and get what is found.

    The same tuples give the same outputs, weights and figures as `PromisingJoin` gives for them as finite streams,
    however they are cut into takes.  Range records are expanded at once.  Raises NotYet for a method other than
    `nile` and for a replay, ConfigError for a plan without a window.
    """

    _counts_ranges = False

    def __init__(self, plan: JoinPlan) -> None:
        _check(plan)
        super().__init__(plan, _nothing())
        self._keep_all = False
        self._table = KeyTable()
        self._order = np.zeros(0, np.int8)
        self._sampled = plan.preference == "weighted" and not plan.is_exact
        self._counts = np.zeros((256, 2), np.int64)
        self._place = np.zeros(live_join_kernels.PLACE_FIELDS, np.int64)
        self._total_cost = 0.0
        self._last: int | None = None
        self.matches = 0
        """Pairs that the exact answer has, so far."""
        self.found = 0
        """Pairs found so far."""

    def take(
        self, ts: tuple[Array, Array], keys: tuple[pa.Array, pa.Array], *, credit: float | None = None
    ) -> Iterator[Outputs]:
        """Tuples of both streams whose turn has come; yields the pairs found, range records expanded.

        ts: int64 [n] ns, not decreasing, none before what was taken; keys: their keys.  credit: cost granted for them
        together, in units of the cost table, in place of the plan's fraction; without tuples, for what waits.
        Left comes before right at equal times.  Raises KeyTypeError.
        """
        n = ts[0].shape[0] + ts[1].shape[0]
        if n == 0:
            if credit is not None:
                yield from self._pairs(self.advance(self._fed, credit=credit))
            return
        encoded = [self._table.encode(each, where="live join") for each in keys]
        merged = np.concatenate(ts)
        place = np.argsort(merged, kind="stable")
        order = (place >= ts[0].shape[0]).astype(np.int8)
        self._last = int(merged[place[-1]])
        for store, times, coded in zip(self.stores, ts, encoded, strict=True):
            store.extend(times, coded.codes, coded.hashes, self._table.known)
        self._make_room()
        waiting = self._waiting()
        self.state.whole[st.ARRIVALS_GONE] = self._fed - waiting.shape[0]
        self._order = np.concatenate([waiting, order])
        self._grant = np.concatenate([np.zeros(waiting.shape[0]), self._granted(order, credit)])
        yield from self._pairs(self.advance(self._fed + n))
        self._let_go()

    def _granted(self, order: Array, credit: float | None) -> Array:
        """What each new arrival grants, in hundredths; counts what the exact answer spends on it."""
        matches = np.empty(order.shape[0], np.int64)
        left, right = self._sides()
        assert self.plan.window is not None
        live_join_kernels.count_matches(left, right, order, self.plan.window, self._counts, self._place, matches)
        self.matches += int(matches.sum())
        ranges = self.plan.output == "ranges"
        costs = np.rint(UNIT * exact_costs(matches, self.plan.costs, ranges=ranges))
        self._total_cost += float(costs.sum())
        if credit is not None:
            return np.full(order.shape[0], UNIT * credit / order.shape[0])
        granted: Array = self.plan.fraction * costs
        return granted

    def _pairs(self, found: Iterator[Outputs]) -> Iterator[Outputs]:
        for outputs in found:
            pairs = self.expand(outputs)
            self.found += pairs.left.shape[0]
            yield pairs

    def _waiting(self) -> Array:
        """The streams of arrivals that have not been dealt with: int8 [n]."""
        gone = int(self.state.whole[st.ARRIVALS_GONE])
        return self._order[int(self.state.whole[st.APPLIED]) - gone : self._fed - gone]

    def _make_room(self) -> None:
        """Room for every key known, and for the doors of every tuple held."""
        known = self._table.known
        if known > self._counts.shape[0]:
            self._counts = _grown(self._counts, max(known, 2 * self._counts.shape[0]), 0)
        if known > self.state.shed_at.shape[0]:
            room = max(known, 2 * self.state.shed_at.shape[0])
            self.state = self.state._replace(shed_at=_grown(self.state.shed_at, room, -st.FOREVER))
        if self.plan.is_exact and known > self._fronts.shape[0]:
            self._fronts = _grown(self._fronts, max(known, 2 * self._fronts.shape[0], 256), 0)
        if self._sampled:
            self.state = self.state._replace(left_door=self._doors(0), right_door=self._doors(1))

    def _doors(self, side: int) -> Array:
        """The doors of a stream's tuples, with room for all that are held."""
        whole = self.state.whole
        old = self.state.left_door if side == 0 else self.state.right_door
        store = self.stores[side]
        gone = int(whole[st.DOORS_GONE + side])
        if store.tuples - gone <= old.shape[0]:
            return old
        keep = self.needed_from()[side]
        fresh = np.zeros(max(1024, 2 * (store.tuples - keep)))
        held = old[keep - gone :]
        fresh[: held.shape[0]] = held
        whole[st.DOORS_GONE + side] = keep
        return fresh

    def _arrivals(self) -> tuple[Array, Array]:
        return self._order, self._grant

    def _feed(self, end: int) -> None:
        self._fed = end

    def _codes(self, side: int, ordinals: Array) -> Array:
        held = self.stores[side].side
        codes: Array = held.code[ordinals - int(held.meta[BASE])]
        return codes

    def times(self, side: int, ordinals: Array) -> Array:
        """When tuples of a stream that are held came: int64 [n] ns."""
        held = self.stores[side].side
        ts: Array = held.ts[ordinals - int(held.meta[BASE])]
        return ts

    def hashes(self, side: int, ordinals: Array) -> Array:
        """The key hashes of tuples of a stream that are held: uint64 [n]."""
        held = self.stores[side].side
        hashes: Array = held.hash[ordinals - int(held.meta[BASE])]
        return hashes

    def needed_from(self) -> tuple[int, int]:
        """Of each stream, the first ordinal that a probe, a queued entry or a count can still reach."""
        whole, window = self.state.whole, self.plan.window
        assert window is not None
        if not whole[st.APPLIED] or self._last is None:
            return 0, 0
        # The plain probe leaves nothing undone.
        horizon = self._last - window if self.plan.is_exact else int(whole[st.NOW_TS]) - 2 * window
        if whole[st.ACTIVE]:
            horizon = min(horizon, int(whole[st.ENTRY_TIME]) - window)
        if self._queue is not None and self.plan.preference == "weighted":
            horizon = min(horizon, oldest_time(self._queue) - window)
        first = []
        for side, store in enumerate(self.stores):
            base = int(store.side.meta[BASE])
            held = store.side.ts[: store.tuples - base]
            at = base + int(np.searchsorted(held, horizon, side="left"))
            first.append(min(at, int(whole[st.SEQUENCE + side])))
        return first[0], first[1]

    def _let_go(self) -> None:
        """Renumber keys when most of those known have gone."""
        known = self._table.known
        if known < _LEAST_KEYS or known < 2 * self._held_keys_at_most():
            return
        alive = self._alive()
        if known >= 2 * alive.shape[0]:
            self._renumber(alive)

    def _held_keys_at_most(self) -> int:
        return sum(store.tuples - first for store, first in zip(self.stores, self.needed_from(), strict=True))

    def _held_codes(self, side: int, first: int) -> Array:
        store = self.stores[side]
        base = int(store.side.meta[BASE])
        codes: Array = store.side.code[first - base : store.tuples - base]
        return codes

    def _alive(self) -> Array:
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
        for store in self.stores:
            _renumber_store(store, alive, code_of)
        self._table = table
        self._counts = _taken(self._counts, alive, 0)
        self.state = self.state._replace(shed_at=_taken(self.state.shed_at, alive, -st.FOREVER))
        if self.plan.is_exact:
            self._fronts = _taken(self._fronts, alive, 0)

    def _exact_cost(self) -> float:
        return self._total_cost

    @property
    def memory(self) -> Memory:
        """Bytes held by both streams' stores, the keys, the counts and the queue."""
        held = super().memory
        queue = 0 if self._queue is None else sum(array.nbytes for array in self._queue)
        doors = self.state.left_door.nbytes + self.state.right_door.nbytes + self.state.shed_at.nbytes
        return Memory(
            sketches=held.sketches,
            directory=held.directory + self._table.nbytes + self._counts.nbytes + self._fronts.nbytes,
            tuples=held.tuples + queue + doors + self._order.nbytes + self._grant.nbytes,
        )


def _check(plan: JoinPlan) -> None:
    if plan.method != "nile":
        raise NotYet(
            f"live join: needed method 'nile'; got {plan.method!r}, which has no form over live streams yet; leave "
            "method out, or ask sql() over what is kept"
        )
    if plan.pace.is_replay:
        raise NotYet(
            "live join: needed tuples at their own pace; got a replay, which needs the whole input; leave replay out"
        )
    if plan.window is None:
        raise ConfigError(
            "live join: needed a window, beyond which tuples are let go of; got none, which would keep all of both "
            "streams for good; say WINDOW"
        )


def _nothing() -> JoinInput:
    none = Encoded(codes=np.zeros(0, np.int32), hashes=np.zeros(0, np.uint64))
    return JoinInput(
        left_ts=np.zeros(0, np.int64), right_ts=np.zeros(0, np.int64), left=none, right=none,
        order=np.zeros(0, np.int8), costs=np.zeros(0), keys=0,
    )  # fmt: skip


def _renumber_store(store: TupleStore, alive: Array, code_of: Array) -> None:
    side = store.side
    held = store.tuples - int(side.meta[BASE])
    side.code[:held] = code_of[side.code[:held]]
    placed = code_of[side.placed[: int(side.meta[PLACED])]]
    placed = placed[placed >= 0]
    side.placed[: placed.shape[0]] = placed
    side.meta[PLACED] = placed.shape[0]
    store.side = side._replace(lists=_taken(side.lists, alive, 0))
    store.keys = alive.shape[0]


def _taken(array: Array, at: Array, fill: int) -> Array:
    """The rows `at`, with room for as many again."""
    return _grown(array[at], max(256, 2 * at.shape[0]), fill)


def _grown(array: Array, size: int, fill: int) -> Array:
    bigger = np.full((size, *array.shape[1:]), fill, array.dtype)
    bigger[: array.shape[0]] = array
    return bigger
