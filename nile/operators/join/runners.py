"""What runs a method other than `nile`: its own state, and the kernel it goes on with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.opponents.hashed_keys import chosen_keys
from nile.preferences import state as st
from nile.preferences.heap import new_heaps, roomier
from nile.preferences.queue import LIMIT
from nile.pyramid.grid.store import TupleStore
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.common import standing_kernels
    from nile.operators.opponents import hash_kernels as opponent_kernels
    from nile.operators.opponents import paper_kernels, scan_kernels
else:
    opponent_kernels = lazy("nile.operators.opponents.hash_kernels")
    paper_kernels = lazy("nile.operators.opponents.paper_kernels")
    scan_kernels = lazy("nile.operators.opponents.scan_kernels")
    standing_kernels = lazy("nile.operators.common.standing_kernels")

__all__ = ["JoinProbe", "Runner", "kept_share", "runner_of"]

Array = np.ndarray[Any, Any]


class Runner(Protocol):
    """The part of a join operator that differs between methods."""

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        """Run to arrival `end` or to where the kernel stopped; returns why (`nile.preferences.state`)."""

    def grow(self, state: st.State) -> None:
        """Make room: the kernel stopped because what waits fills its places."""


def runner_of(
    plan: JoinPlan, stores: tuple[TupleStore, TupleStore], state: st.State, data: JoinInput, grant: Array
) -> Runner | None:
    """The runner of the plan's method, its stores and state made ready; None for `nile` and `hash-drop`.

    grant: float64 [n], hundredths that each arrival grants.  Without a replay `hash-keys` has it all at first.
    """
    if plan.method == "paper":
        for store in stores:
            store.reserve_keys(plan.spec.value_buckets)
        return JoinProbe((plan,), state)
    if plan.method in ("scan", "hash-buckets"):
        buckets = 1 if plan.method == "scan" else plan.spec.value_buckets
        for store in stores:
            store.reserve_keys(buckets)
        return _Scan(buckets)
    if plan.method == "hash-backlog":
        return _Hash(keeps=True)
    if plan.method == "shed-uniform":
        state.real[st.ADMISSION] = kept = kept_share(plan, data.costs)
        return _Hash(keeps=False, weight=1.0 / (kept * kept))
    if plan.method == "hash-keys":
        chosen, weight = chosen_keys(plan, data, int(state.setting[st.SALT]))
        state.real[st.ADMISSION] = 1.0 / weight
        if not plan.pace.is_replay:
            state.real[st.CREDIT] = state.real[st.GRANTED] = grant.sum()
            grant[:] = 0.0
        return _Hash(keeps=False, chosen=chosen, weight=weight)
    return None


def kept_share(plan: JoinPlan, costs: Array) -> float:
    """The share p of tuples that `shed-uniform` lets in, so that what they cost is what is granted.

    Both streams thinned to p have p * p of the pairs: p solves p * taking + p * p * emitting = granted, means
    a tuple, where the exact pass says how much emitting there is.  Under ranges a thinned range is still one
    output, so p * (taking + emitting) bounds the cost.  Under asc hardly anything is emitted.
    """
    mean = float(costs.sum()) / costs.shape[0] if costs.shape[0] else 0.0
    if plan.fraction >= 1.0 or mean == 0.0:
        return 1.0
    granted = plan.fraction * mean
    if plan.output == "ranges":
        return plan.fraction
    taking = plan.costs.insert + plan.costs.lookup
    emitting = max(0.0, mean - taking) if plan.preference != "asc" else 0.0
    return min(1.0, 2.0 * granted / (taking + math.sqrt(taking * taking + 4.0 * emitting * granted)))


class JoinProbe:
    """JOIN-PROBE over standing queries: their priority queues, and what is owed for work that is not interrupted.

    plans: one per query; what they share (spec, prices, pace) is read from `state`, made for one of them.
    """

    def __init__(self, plans: Sequence[JoinPlan], state: st.State) -> None:
        queries = len(plans)
        spec = plans[0].spec
        self._zones = 1 if spec.structure == "T1" else sum(spec.leaf_capacity) + 1
        self._heaps = new_heaps(queries, max(4096 // queries, 4 * self._zones), own_first=plans[0].queue == "own")
        self._limit = max(LIMIT // queries, self._heaps.place.shape[1])
        self._debt = np.zeros(paper_kernels.DEBT_FIELDS)
        setting = np.tile(state.setting, (queries, 1))
        setting[:, st.PREFERENCE] = [plan.preference_number for plan in plans]
        self.standing = standing_kernels.Standing(
            window=np.array([[st.FOREVER if plan.window is None else plan.window] for plan in plans], np.int64),
            fades=np.array([plan.fade.powers(spec.depth) for plan in plans]),
            setting=setting,
            counts=np.zeros((queries, standing_kernels.COUNT_FIELDS), np.int64),
            real=np.zeros((queries, standing_kernels.REAL_FIELDS)),
            turn=np.array([0, standing_kernels.NOBODY], np.int64),
        )
        self.evicted = np.zeros(queries, np.int64)

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        return int(
            paper_kernels.join_probe(
                left, right, order, grant, end, self._zones, state, self.standing, self._heaps, self._debt, out
            )
        )

    def grow(self, state: st.State) -> None:
        before = [_before(state, int(window)) for window in self.standing.window[:, 0]]
        self._heaps, expired, evicted = roomier(self._heaps, before, limit=self._limit)
        self.standing.counts[:, standing_kernels.OF_EXPIRED] += expired
        self.evicted += evicted
        state.whole[st.EXPIRED] += expired.sum()
        state.whole[st.EVICTED] += evicted.sum()


class _Hash:
    """The symmetric hash join with a backlog (`hash-backlog`) or an admission (`shed-uniform`, `hash-keys`)."""

    def __init__(self, *, keeps: bool, chosen: Array | None = None, weight: float = 1.0) -> None:
        self._keeps, self._weight = keeps, weight
        self._chosen = np.zeros(0, bool) if chosen is None else chosen
        self._stack = opponent_kernels.Stack(
            entry=np.zeros((1024, opponent_kernels.STACK_FIELDS), np.int64), control=np.zeros(2, np.int64)
        )

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        own = self._keeps, self._chosen, self._weight
        return int(opponent_kernels.hash_join(left, right, order, grant, end, *own, state, self._stack, out))

    def grow(self, state: st.State) -> None:
        """Expired probes lie at the bottom and go; at the limit the oldest half goes too."""
        old = self._stack
        size = int(old.control[opponent_kernels.SIZE])
        gone = int(np.searchsorted(old.entry[:size, opponent_kernels.TIME], _before(state, int(state.window[0]))))
        state.whole[st.EXPIRED] += gone
        capacity = old.entry.shape[0]
        if 2 * (size - gone) > capacity:
            if capacity < LIMIT:
                capacity *= 2
            else:
                state.whole[st.EVICTED] += size - gone - capacity // 2
                gone = size - capacity // 2
        entry = np.zeros((capacity, opponent_kernels.STACK_FIELDS), np.int64)
        entry[: size - gone] = old.entry[gone:size]
        old.control[opponent_kernels.SIZE] = size - gone
        self._stack = old._replace(entry=entry)


class _Scan:
    """The nested scan, of everything or of a bucket, which keeps nothing but its tuples."""

    def __init__(self, buckets: int) -> None:
        self._shift = 64 - buckets.bit_length()

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        return int(scan_kernels.nested_scan(left, right, order, grant, end, self._shift, state, out))

    def grow(self, state: st.State) -> None:
        """Nothing waits, so the kernel never asks."""


def _before(state: st.State, window: int) -> int:
    """Entries of tuples before this time have left the window."""
    return max(-st.FOREVER, int(state.whole[st.NOW_TS]) - window)
