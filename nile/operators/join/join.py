"""The window join of two streams under a budget: the operator that kernels run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.contract import Kept
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.example import example_pair
from nile.operators.common.figures import JoinFigures
from nile.operators.common.granting import Granting
from nile.operators.common.growing import grown, renumber_store, rows_at
from nile.operators.common.plan import JoinPlan
from nile.operators.common.ruling import after_asking
from nile.operators.common.start import UNIT, initial_state, shared_state
from nile.operators.join.follower import Follower, expect
from nile.operators.join.outcome import expanded, figures_of
from nile.operators.join.planned import Planned, is_planned
from nile.operators.join.range_probe import RangeProbe, is_counted
from nile.operators.join.runners import runner_of
from nile.operators.join.sampler import Sampler, is_sampled
from nile.preferences import state as st
from nile.preferences.clock import grants
from nile.preferences.queue import LIMIT, grown_queue, new_queue, oldest_time
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
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


class PromisingJoin(Granting):
    """One run of a JoinPlan over one JoinInput: feed, step, collect.

    `run` yields Outputs as they are found; `figures` says what it cost.  Same plan and input, same bytes,
    however the input is cut into batches.  An input that comes as it goes is empty at first, and pushed (`push`).
    kept: the streams, where others keep them: it probes them, inserts nothing and is charged for nothing but probes; a
    stream may be ahead of it, and what comes after the tuple that probes does not show.  lent: grids that have counted
    both streams whole, asked in place of grids of its own (`SummaryManager.lent`).  ahead: the input is there whole and
    nobody else grants, so that keys may be counted before the first tuple (`is_planned`).
    """

    _ranges: RangeProbe | None = None
    state: st.State
    sampler: Sampler | Follower | None = None  # of a sample that was planned, or whose rates follow

    def __init__(
        self, plan: JoinPlan, data: JoinInput, *, batch_rows: int = 65_536, kept: tuple[Kept, Kept] | None = None,
        lent: tuple[Side, ...] | None = None, ahead: bool = False,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.data = data
        self.batch_rows = max(1, batch_rows)
        sketched = plan.method == "nile" and plan.guide == "countsketch" and not plan.is_exact and lent is None
        self.is_shared = kept is not None
        self.stores = (TupleStore(plan.spec), TupleStore(plan.spec)) if kept is None else (kept[0].store, kept[1].store)
        if lent is not None and kept is None:
            self.stores = TupleStore.borrowing(plan.spec, lent[0]), TupleStore.borrowing(plan.spec, lent[1])
        self.borrows, self.lent = lent is not None, lent
        self.state = initial_state(plan, data, self.stores[0], sketched, lent)
        self.turn_cost = float(self.state.real[st.TURN_COST])
        """The most that one turn of a summary it reads costs, in hundredths; 0 when it reads none."""
        if kept is not None:
            admissions = kept[0].admissions, kept[1].admissions
            self.state = shared_state(self.state, plan, self.stores[0].side, admissions, kept[0].shed_at)
        self.costs = np.rint(UNIT * data.costs)  # of the exact answer at each arrival, in hundredths of a unit
        times = data.times() if plan.pace.is_replay else data.left_ts
        self._grant = after_asking(grants(self.costs, plan.fraction, plan.pace, times), round(UNIT * data.asked))
        if kept is None and data.order.shape[0] and is_counted(plan):  # which reads the input where it lies
            self._ranges = RangeProbe(data)
        if kept is None and data.order.shape[0] and is_sampled(plan):
            self.sampler = Sampler(plan, data, self.state, self._grant, lent)
        planned = ahead and kept is None and is_planned(plan, data)
        self._runner = self.sampler or (
            Planned(plan, data, self.state, self._grant, self.stores[0].side.gran[:, ga.SPAN])
            if planned
            else runner_of(plan, self.stores, self.state, data, self._grant)
        )
        self._queue: Any = None
        self._fronts = np.zeros((data.keys if plan.is_exact and self._ranges is None else 0, 2), np.int64)
        self._out = st.Output(
            first=np.empty(_ROOM, np.int64),
            second=np.empty(_ROOM, np.int64),
            third=np.empty(_ROOM if plan.output == "ranges" else 0, np.int64),
            weight=np.empty(_ROOM, np.float64),
        )
        self._order = data.order
        self._fed = 0

    def draw(self, sampler: Sampler) -> None:
        """Draw as planned, of credit that is given as it goes.  Before any input."""
        self.sampler = self._runner = sampler
        self._grant = np.zeros(self.costs.shape[0])

    def follow(self, follower: Follower | None) -> None:
        """Draw at rates that follow what is granted; None: what is promised waits in the queue.  Before any input."""
        self.sampler = self._runner = follower
        if follower is not None:
            expect(self.state, 1, None)

    def run(self) -> Iterator[Outputs]:
        """All outputs, in the order they are found, in batches of up to 65,536."""
        while self._fed < self.arrivals:
            yield from self.advance(min(self.arrivals, self._fed + self.batch_rows))

    @property
    def arrivals(self) -> int:
        """Tuples of the input, both streams together, as far as it is known."""
        return max(int(self.data.order.shape[0]), self._pushed)

    @property
    def _pushed(self) -> int:
        return 0 if self.is_shared else sum(store.tuples for store in self.stores)

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
    def credit(self) -> float:
        """What is granted and not yet spent, in units of the cost table."""
        self._settle()
        return super().credit

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
            if self.sampler is not None:
                self.sampler.regrant(UNIT * credit - float(self._grant[self._fed : end].sum()))
            self.grant(self._fed, np.full(arrivals, UNIT * credit / max(1, arrivals)))
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
        if self._ranges is None and not self.is_shared:
            self._extend(end)
        self._fed = end

    def _extend(self, end: int) -> None:
        if end <= self._pushed:
            return
        order = self.data.order[self._pushed : end]
        right = int(np.count_nonzero(order))
        counts = (order.shape[0] - right, right)
        for side, (store, ts, keys) in enumerate(
            zip(self.stores, (self.data.left_ts, self.data.right_ts), (self.data.left, self.data.right), strict=True)
        ):
            a = store.tuples
            b = a + counts[side]
            store.extend(ts[a:b], keys.codes[a:b], keys.hashes[a:b], self.data.keys)

    def push(self, ts: tuple[Array, ...], keys: tuple[Encoded, ...], order: Array, known: int) -> None:
        """More arrivals of an input that comes as it goes; they grant nothing yet (`grant`).

        ts, keys: of either stream; order: int8 [n], the stream of each; known: key codes in use.  Arrivals dealt with
        are forgotten here.
        """
        for store, times, coded in zip(self.stores, ts, keys, strict=True):
            store.extend(times, coded.codes, coded.hashes, known)
        self._make_room(known)
        waiting = self.waiting()
        self.state.whole[st.ARRIVALS_GONE] = self._fed - waiting.shape[0]
        self._order = np.concatenate([waiting, order])
        self._grant = np.zeros(self._order.shape[0])

    def _make_room(self, known: int) -> None:
        """Room for every key code in use."""
        if known > self.state.shed_at.shape[0]:
            room = max(known, 2 * self.state.shed_at.shape[0])
            self.state = self.state._replace(shed_at=grown(self.state.shed_at, room, -st.FOREVER))
        if self.plan.is_exact and known > self._fronts.shape[0]:
            self._fronts = grown(self._fronts, max(known, 2 * self._fronts.shape[0], 256), 0)

    def waiting(self) -> Array:
        """The streams of arrivals that have not been dealt with: int8 [n]."""
        gone = int(self.state.whole[st.ARRIVALS_GONE])
        return self._order[int(self.state.whole[st.APPLIED]) - gone : self._fed - gone]

    def renumber(self, alive: Array, code_of: Array) -> None:
        """Give the keys of codes `alive` the codes 0, 1, ...; code_of: as `renumber_store` takes it."""
        for store in self.stores:
            renumber_store(store, alive, code_of)
        self.state = self.state._replace(shed_at=rows_at(self.state.shed_at, alive, -st.FOREVER))
        if self.plan.is_exact:
            self._fronts = rows_at(self._fronts, alive, 0)

    def put_queue(self, queue: Queue) -> None:
        """What waits, which is put back."""
        self._queue = queue

    def go_on_from(self, fed: int, waiting: Array, known: int) -> None:
        """The tuples that are held have been put back.

        fed: arrivals that had come; waiting: the streams of those that wait; known: key codes in use.
        """
        self._make_room(known)
        self._fed = fed
        self._order, self._grant = waiting, np.zeros(waiting.shape[0])
        self.state.whole[st.ARRIVALS_GONE] = fed - waiting.shape[0]

    def _fill_lists(self) -> None:
        """Put tuples that were counted into the lists of their keys, in bulk."""
        before = [store.tuples for store in self.stores]
        self._extend(self._fed)
        for store, begin in zip(self.stores, before, strict=True):
            for first in range(begin, store.tuples, PIECE):
                store.append(first, min(store.tuples, first + PIECE))

    def _sides(self) -> tuple[Any, Any]:
        if not self.is_shared:
            return self.stores[0].side, self.stores[1].side
        shown = []
        for number, store in enumerate(self.stores):
            meta = store.side.meta.copy()
            meta[ga.VISIBLE] = self.state.whole[st.SEQUENCE + number]
            shown.append(store.side._replace(meta=meta))
        return shown[0], shown[1]

    def _step(self, end: int) -> int:
        left, right = self._sides()
        order, grant, state, out = self._order, self._grant, self.state, self._out
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
        n = int(self.state.whole[st.WRITTEN])
        self.state.whole[st.WRITTEN] = 0
        out, second, weight = self._out, self._out.second[:n].copy(), self._out.weight[:n].copy()
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
        return expanded(self.stores, outputs)

    def _release(self) -> None:
        # Who keeps a stream knows what all its queries need; range records are expanded when they are read.
        if not self.is_shared and self.plan.output != "ranges":
            self.let_go()

    def let_go(self, windows: int = 2) -> None:
        """Free tuples that neither a probe nor a queued entry can reach."""
        for store, first in zip(self.stores, self.needed_from(windows), strict=True):
            store.release(first)

    def needed_from(self, windows: int = 2) -> tuple[int, int]:
        """Of each stream, the first ordinal that a probe or a queued entry can still reach: two windows back.

        windows: 1 will do for the plain probe, which leaves nothing undone.
        """
        window, whole = self.plan.window, self.state.whole
        if window is None or whole[st.APPLIED] == 0:
            return 0, 0
        now = -st.FOREVER
        for side, store in enumerate(self.stores):
            at = int(whole[st.SEQUENCE + side]) - 1 - int(store.side.meta[ga.BASE])
            if at >= 0:
                now = max(now, int(store.side.ts[at]))
        horizon = now - windows * window
        if whole[st.ACTIVE]:
            horizon = min(horizon, int(whole[st.ENTRY_TIME]) - window)
        if self._queue is not None and self.plan.preference == "weighted":
            horizon = min(horizon, oldest_time(self._queue) - window)
        first = []
        for side, store in enumerate(self.stores):
            base = int(store.side.meta[ga.BASE])
            held = store.side.ts[: store.tuples - base]
            at = base + int(np.searchsorted(held, max(horizon, -st.FOREVER), side="left"))
            first.append(min(at, int(whole[st.SEQUENCE + side])))
        return first[0], first[1]

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
        told = figures_of(self.state, self.stores, self.data, shed=self.shed, coverage=self.coverage)
        return told if self.sampler is None else told.drawn_from(float(self.state.real[st.MATCHES]))

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples turned away, of left and right: at admission, for want of credit, or still waiting at the end."""
        whole = self.state.whole
        gone = int(whole[st.ARRIVALS_GONE])
        waiting = self._order[int(whole[st.APPLIED]) - gone : int(whole[st.ARRIVED]) - gone]
        right = int(np.count_nonzero(waiting))
        return int(whole[st.SHED_BY_SIDE]) + waiting.shape[0] - right, int(whole[st.SHED_BY_SIDE + 1]) + right

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""
        probes = self.state.whole[st.ADMITTED]
        return float(self.state.real[st.COVERED] / probes) if probes and self.plan.spec.forgetting else 1.0


def example_join(plan: JoinPlan) -> PromisingJoin:
    """A small join of a plan, not yet run (`nile.operators.common.example`)."""
    return PromisingJoin(*example_pair(plan))
