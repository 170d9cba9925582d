"""The window join of two streams under a budget: the operator that kernels run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.example import EXAMPLE_ARRIVALS, example_keys, example_plan, example_times
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT, initial_state
from nile.operators.join.range_probe import RangeProbe, is_counted
from nile.operators.join.runners import runner_of
from nile.preferences import state as st
from nile.preferences.clock import grants
from nile.preferences.queue import LIMIT, grown_queue, new_queue, oldest_time
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import Memory
from nile.pyramid.grid.store import PIECE, TupleStore
from nile.summaries.hashing import Encoded
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.join import probe_kernels, promise_kernels
    from nile.preferences.queue_kernels import Queue
    from nile.pyramid.grid import grid_kernels, list_kernels
else:
    probe_kernels = lazy("nile.operators.join.probe_kernels")
    promise_kernels = lazy("nile.operators.join.promise_kernels")
    grid_kernels = lazy("nile.pyramid.grid.grid_kernels")
    list_kernels = lazy("nile.pyramid.grid.list_kernels")

__all__ = ["JoinFigures", "JoinInput", "Outputs", "PromisingJoin", "example_join"]

Array = np.ndarray[Any, Any]
_ROOM = 1 << 16


class PromisingJoin:
    """One run of a JoinPlan over one JoinInput: feed, step, collect.

    `run` yields Outputs as they are found; `figures` says what it cost.  Same plan and input, same bytes,
    however the input is cut into batches.
    """

    _inserts = True
    """Whether tuples are put into stores of its own."""

    _counts_ranges = True
    """Whether exact ranges may come from counts alone, which reads the input where it lies."""

    _ranges: RangeProbe | None = None

    def __init__(self, plan: JoinPlan, data: JoinInput, *, batch_rows: int = 65_536) -> None:
        self.plan = plan
        self.data = data
        self.batch_rows = max(1, batch_rows)
        sketched = plan.method == "nile" and plan.guide == "countsketch" and not plan.is_exact
        self.stores = (TupleStore(plan.spec), TupleStore(plan.spec))
        self.state = initial_state(plan, data, self.stores[0], sketched)
        self._costs = np.rint(UNIT * data.costs)
        self._grant = grants(
            self._costs, plan.fraction, plan.pace, data.times() if plan.pace.is_replay else data.left_ts
        )
        if self._inserts and self._counts_ranges and is_counted(plan):
            self._ranges = RangeProbe(data)
        self._runner = runner_of(plan, self.stores, self.state, data.costs)
        self._queue: Any = None
        self._fronts = np.zeros((data.keys if plan.is_exact and self._ranges is None else 0, 2), np.int64)
        self._out = st.Output(
            first=np.empty(_ROOM, np.int64),
            second=np.empty(_ROOM, np.int64),
            third=np.empty(_ROOM if plan.output == "ranges" else 0, np.int64),
            weight=np.empty(_ROOM, np.float64),
        )
        self._keep_all = plan.window is None or plan.output == "ranges"
        self._fed = 0
        self._seen = [0, 0]

    def run(self) -> Iterator[Outputs]:
        """All outputs, in the order they are found, in batches of up to 65,536."""
        while self._fed < self.arrivals:
            yield from self.advance(min(self.arrivals, self._fed + self.batch_rows))

    @property
    def arrivals(self) -> int:
        """Tuples of the input, both streams together."""
        return int(self.data.order.shape[0])

    def times(self) -> Array:
        """The time of each arrival: int64 [arrivals] ns."""
        return self.data.times()

    @property
    def queue(self) -> Queue | None:
        """What waits; None before the first tuple."""
        waiting: Queue | None = self._queue
        return waiting

    def example(self) -> PromisingJoin:
        """A join of the same plan over a small input, whose run loads every kernel that this one's will."""
        return example_join(self.plan)

    @property
    def fed(self) -> int:
        """How many arrivals have been fed."""
        return self._fed

    @property
    def spent(self) -> float:
        """What has been spent so far, in units of the cost table."""
        return float(self.state.real[st.SPENT]) / UNIT

    @property
    def credit(self) -> float:
        """What is granted and not yet spent, in units of the cost table."""
        self._settle()
        return float(self.state.real[st.CREDIT]) / UNIT

    def _settle(self) -> None:
        """Bring up to date what was granted, and the credit."""
        if self._ranges is not None:
            self._ranges.settle(self._grant, self.state)

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Outputs]:
        """Go on to arrival `end` of the merged input.

        credit: cost granted for these arrivals, or for what waits when there are none, in place of the
        plan's budget (None).
        """
        whole, real = self.state.whole, self.state.real
        if credit is not None:
            self._settle()
            arrivals = end - self._fed
            self._grant[self._fed : end] = UNIT * credit / max(1, arrivals)
            if not arrivals:
                real[st.CREDIT] += UNIT * credit
                real[st.GRANTED] += UNIT * credit
        self._feed(end)
        while True:
            why = self._step(end)
            if whole[st.WRITTEN] and why in (st.DONE, st.OUTPUT_FULL):
                yield self._collect()
            if why == st.DONE:
                break
            self._mend(why)
        self._release()

    def finish(self) -> None:
        """There is no more: arrivals that have not been taken in count as shed."""
        self._fed = self.arrivals
        self.state.whole[st.ARRIVED] = self._fed

    def _feed(self, end: int) -> None:
        """Put arrivals up to `end` into the flat arrays of their streams, which counted ranges do when expanded."""
        if self._ranges is None:
            self._extend(end)
        self._fed = end

    def _extend(self, end: int) -> None:
        order = self.data.order[sum(self._seen) : end]
        right = int(np.count_nonzero(order))
        counts = (order.shape[0] - right, right)
        for side, (store, ts, keys) in enumerate(
            zip(self.stores, (self.data.left_ts, self.data.right_ts), (self.data.left, self.data.right), strict=True)
        ):
            a = self._seen[side]
            b = a + counts[side]
            store.extend(ts[a:b], keys.codes[a:b], keys.hashes[a:b], self.data.keys)
            self._seen[side] = b

    def _fill_lists(self) -> None:
        """Put tuples that were counted into the lists of their keys, in bulk."""
        before = tuple(self._seen)
        self._extend(self._fed)
        for store, begin, end in zip(self.stores, before, self._seen, strict=True):
            for first in range(begin, end, PIECE):
                store.append(first, min(end, first + PIECE))

    def _sides(self) -> tuple[Any, Any]:
        return self.stores[0].side, self.stores[1].side

    def _arrivals(self) -> tuple[Array, Array]:
        """(stream, grant) of each arrival from `ARRIVALS_GONE` on: int8 [n], float64 [n]."""
        return self.data.order, self._grant

    def _step(self, end: int) -> int:
        left, right = self._sides()
        order, grant = self._arrivals()
        state, out = self.state, self._out
        if self._ranges is not None:
            return self._ranges.step(order, end, state, out)
        if self._runner is not None:
            return self._runner.step(left, right, order, grant, end, state, out)
        if self.plan.is_exact:
            return int(probe_kernels.probe(left, right, order, grant, end, self._fronts, state, out))
        if self.plan.method == "hash-drop":
            return int(probe_kernels.hash_drop(left, right, order, grant, end, state, out))
        if self._queue is None:
            self._queue = new_queue()
        return int(promise_kernels.promise(left, right, order, grant, end, LIMIT, state, self._queue, out))

    def _mend(self, why: int) -> None:
        """Do what the kernel stopped for."""
        whole = self.state.whole
        store = self.stores[int(whole[st.STOPPED_SIDE])]
        if why == st.ARENA_FULL:
            store.grow_arena(int(whole[st.STOPPED_CODE]))
        elif why == st.TURN:
            grid_kernels.turn(store.side)
        elif why == st.QUEUE_FULL and self._runner is not None:
            self._runner.grow(self.state)
        elif why == st.QUEUE_FULL:
            self._queue = grown_queue(self._queue)

    def _collect(self) -> Outputs:
        whole = self.state.whole
        n = int(whole[st.WRITTEN])
        whole[st.WRITTEN] = 0
        out = self._out
        second, weight = out.second[:n].copy(), out.weight[:n].copy()
        if self.plan.output == "pairs":
            return Outputs(left=out.first[:n].copy(), right=second, weight=weight)
        ordinal = out.first[:n] >> 1
        side = out.first[:n].astype(np.int8) & np.int8(1)
        return Outputs(left=ordinal, right=ordinal, weight=weight, side=side, low=second, high=out.third[:n].copy())

    def expand(self, outputs: Outputs) -> Outputs:
        """The pairs that range records stand for, in their order.  Costs O(pairs); needs this run's tuple lists."""
        if outputs.side is None or outputs.low is None or outputs.high is None:
            return outputs
        if self._ranges is not None:
            self._fill_lists()
        parts_left, parts_right, parts_record = [], [], []
        for side in (0, 1):
            mine = np.flatnonzero(outputs.side == side)
            ordinals = outputs.left[mine]
            low, high = outputs.low[mine], outputs.high[mine]
            pairs = int((high - low).sum())
            which = np.empty(pairs, np.int64)
            match = np.empty(pairs, np.int64)
            codes = self._codes(side, ordinals).astype(np.int64)
            list_kernels.expand_ranges(self.stores[1 - side].side, codes, low, high, 0, which, match)
            probing = ordinals[which]
            parts_left.append(probing if side == 0 else match)
            parts_right.append(match if side == 0 else probing)
            parts_record.append(mine[which])
        record = np.concatenate(parts_record)
        order = np.argsort(record, kind="stable")
        return Outputs(
            left=np.concatenate(parts_left)[order],
            right=np.concatenate(parts_right)[order],
            weight=outputs.weight[record[order]],
        )

    def _codes(self, side: int, ordinals: Array) -> Array:
        """The key codes of tuples of a stream: int32 [n]."""
        return (self.data.left if side == 0 else self.data.right).codes[ordinals]

    def _release(self) -> None:
        for store, first in zip(self.stores, self.needed_from(), strict=True):
            store.release(first)

    def needed_from(self) -> tuple[int, int]:
        """Of each stream, the first ordinal that a probe or a queued entry can still reach: two windows back."""
        window = self.plan.window
        whole = self.state.whole
        if self._keep_all or window is None or whole[st.APPLIED] == 0:
            return 0, 0
        nows = []
        for side in (0, 1):
            at = int(whole[st.SEQUENCE + side]) - 1
            ts = self.data.left_ts if side == 0 else self.data.right_ts
            if at >= 0:
                nows.append(int(ts[at]))
        horizon = max(nows) - 2 * window
        if whole[st.ACTIVE]:
            horizon = min(horizon, int(whole[st.ENTRY_TIME]) - window)
        if self._queue is not None and self.plan.preference == "weighted":
            horizon = min(horizon, oldest_time(self._queue) - window)
        left = int(np.searchsorted(self.data.left_ts, horizon, side="left"))
        right = int(np.searchsorted(self.data.right_ts, horizon, side="left"))
        return min(left, int(whole[st.SEQUENCE])), min(right, int(whole[st.SEQUENCE + 1]))

    @property
    def memory(self) -> Memory:
        """Bytes held by both streams' stores."""
        counted = self._ranges
        return Memory(
            sketches=sum(store.sketch_bytes for store in self.stores),
            directory=sum(store.directory_bytes for store in self.stores) + (counted.directory_bytes if counted else 0),
            tuples=sum(store.tuple_bytes for store in self.stores) + (counted.tuple_bytes if counted else 0),
        )

    @property
    def figures(self) -> JoinFigures:
        """What has been done so far."""
        self._settle()
        whole, real = self.state.whole, self.state.real
        return JoinFigures(
            arrivals=int(whole[st.ARRIVED]),
            nulls=int(whole[st.NULLS]),
            admitted=int(whole[st.ADMITTED]),
            shed=self.shed,
            outputs=int(whole[st.OUTPUTS]),
            regions=int(whole[st.REGIONS]),
            pruned=int(whole[st.PRUNED]),
            zones=sum(int(store.side.zone[ga.CLOSED]) for store in self.stores),
            changes=sum(int(store.side.zone[ga.CHANGES]) for store in self.stores),
            expired=int(whole[st.EXPIRED]),
            evicted=int(whole[st.EVICTED]),
            granted=float(real[st.GRANTED]) / UNIT,
            spent=float(real[st.SPENT]) / UNIT,
            spent_insert=float(real[st.SPENT_INSERT]) / UNIT,
            spent_hit=float(real[st.SPENT_HIT]) / UNIT,
            exact_cost=self._exact_cost() / UNIT,
            coverage=self.coverage,
            forgotten=sum(int(store.side.zone[ga.FORGOTTEN]) for store in self.stores),
            admission=float(real[st.ADMISSION]),
            sampling_rate=float(real[st.RATE]),
        )

    def _exact_cost(self) -> float:
        """What the exact answer spends on all the input, in hundredths."""
        return float(self._costs.sum())

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples turned away, of left and right: at admission, for want of credit, or still waiting at the end."""
        whole = self.state.whole
        gone = int(whole[st.ARRIVALS_GONE])
        waiting = self._arrivals()[0][int(whole[st.APPLIED]) - gone : int(whole[st.ARRIVED]) - gone]
        right = int(np.count_nonzero(waiting))
        return (
            int(whole[st.SHED_BY_SIDE]) + waiting.shape[0] - right,
            int(whole[st.SHED_BY_SIDE + 1]) + right,
        )

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""
        probes = self.state.whole[st.ADMITTED]
        return float(self.state.real[st.COVERED] / probes) if probes and self.plan.spec.forgetting else 1.0


def example_join(plan: JoinPlan) -> PromisingJoin:
    """A small join of a plan, not yet run (`nile.operators.common.example`)."""
    ts = example_times(plan, streams=2)
    codes, hashes = example_keys(2)
    order = np.tile(np.array([0, 1], np.int8), EXAMPLE_ARRIVALS // 2)
    sides = [Encoded(codes=codes[order == side], hashes=hashes[codes[order == side]]) for side in (0, 1)]
    data = JoinInput(
        left_ts=ts[order == 0], right_ts=ts[order == 1], left=sides[0], right=sides[1], order=order,
        costs=np.ones(order.shape[0]), keys=hashes.shape[0],
    )  # fmt: skip
    return PromisingJoin(example_plan(plan, ts), data)
