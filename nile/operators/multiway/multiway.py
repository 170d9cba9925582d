"""The window join of n streams under a budget: the operator that the multiway kernels run in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.example import example_keys, example_plan, example_times
from nile.operators.common.granting import Granting
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.join.follower import draws_ranges, expect, is_followed, is_timed
from nile.operators.multiway import state as ms
from nile.operators.multiway.data import MultiwayInput
from nile.operators.multiway.outputs import Combinations, MultiwayFigures
from nile.operators.multiway.rates import plan_rates
from nile.operators.multiway.start import buys_everything, initial_state
from nile.preferences import state as st
from nile.preferences.clock import grants
from nile.preferences.queue import LIMIT, grown_queue, new_queue, oldest_time
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.manager import Memory
from nile.pyramid.grid.store import TupleStore
from nile.summaries.errors import ConfigError
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.multiway import follow_kernels
    from nile.operators.multiway import probe_kernels as multiway_probe_kernels
    from nile.operators.multiway import promise_kernels as multiway_kernels
    from nile.preferences.queue_kernels import Queue
    from nile.pyramid.grid import grid_kernels
    from nile.summaries import hash_kernels
else:
    follow_kernels = lazy("nile.operators.multiway.follow_kernels")
    multiway_kernels = lazy("nile.operators.multiway.promise_kernels")
    multiway_probe_kernels = lazy("nile.operators.multiway.probe_kernels")
    grid_kernels = lazy("nile.pyramid.grid.grid_kernels")
    hash_kernels = lazy("nile.summaries.hash_kernels")

__all__ = ["METHODS", "Combinations", "MultiwayFigures", "MultiwayInput", "MultiwayJoin", "buys_everything"]

Array = np.ndarray[Any, Any]
METHODS = ("nile", "hash-drop")
_ROOM = 1 << 16
_NO_FLOOR = -1e300


class MultiwayJoin(Granting):
    """One run of a JoinPlan over one MultiwayInput.

    `run` yields Combinations as they are found; `figures` says what it cost.  Same plan and input, same bytes,
    however the input is cut into batches.  Under a condition each candidate is charged a scan and, until its
    condition has been looked at (at most 512 arrivals later), an emit, which is given back when it fails.  lent: grids
    that have counted all streams whole, asked in place of one of its own (`SummaryManager.lent`).
    Raises ConfigError for a method that joins two streams only.
    """

    def __init__(
        self, plan: JoinPlan, data: MultiwayInput, *, batch_rows: int = 65_536, lent: tuple[Side, ...] | None = None
    ) -> None:
        if plan.method not in METHODS:
            raise ConfigError(
                f"method: needed one of {', '.join(METHODS)} for several streams or a condition on the pair; "
                f"got {plan.method!r}; name one of these, or join two streams without a condition"
            )
        if data.test is not None and plan.output == "ranges":
            raise ConfigError(
                "output: needed 'pairs' with a condition over several streams, which leaves no whole ranges; "
                "got 'ranges'; ask for pairs, or take such conditions out"
            )
        self.plan = plan
        self.data = data
        self.batch_rows = max(1, batch_rows)
        self.whole = buys_everything(plan)
        if data.costs is None and not self.whole:
            raise ConfigError("costs: needed the exact costs for a budget below 1; got None; run the exact pass")
        self._plain = plan.is_exact or plan.method == "hash-drop"
        self.store = TupleStore(plan.spec if lent is None else replace(plan.spec, structure="T1"))
        self._lent = lent
        n = data.ts.shape[0]
        ranged = draws_ranges(plan) and n > 0 and data.costs is not None
        self.dealt = 1.0
        """What grants are multiplied by, of which rates know nothing."""
        followed = is_followed(plan) and (n == 0 or not plan.pace.is_replay)  # a replay's credit comes by the clock
        self.followed = (followed or ranged or (is_timed(plan) and plan.output == "pairs")) and not self._plain
        sketched = plan.guide == "countsketch" and not (self._plain or ranged) and lent is None
        self.state = initial_state(
            plan, self.store, sketched=sketched, streams=data.streams, keys=data.hashes.shape[0], arrivals=n,
            conditioned=data.test is not None, lent=lent, followed=self.followed,
        )  # fmt: skip
        self.costs = np.zeros(n) if data.costs is None else np.rint(UNIT * data.costs)  # exact, in hundredths
        self._grant = grants(self.costs, plan.fraction, plan.pace, data.ts)
        if self.followed:
            expect(self.state, data.streams - 1, float(self._grant.mean()) if n else None)
            if n and data.costs is not None and plan.budget.unit == "fraction" and not plan.pace.is_replay:
                self.draw(float(self._grant.sum()))
        self._stream = data.stream
        self.at_once = False  # whether conditions are looked at whenever `advance` ends, as who cuts the input says
        self._floor = _NO_FLOOR if self.whole else 0.0
        self._hashes = _at_least_one(data.hashes)
        width = 1 + 2 * data.streams if plan.output == "ranges" else data.streams
        self._out = ms.Output(cell=np.empty((_ROOM, width), np.int64), weight=np.empty(_ROOM))
        self._queue: Any = None
        self._bounds = np.zeros((0, data.streams, 2), np.int64)
        self._fed = 0

    def draw(self, granted: float) -> None:
        """Draw at rates planned for so much, in hundredths of a unit.  Before any input."""
        self.state = plan_rates(self.state, self.data, self.costs, granted, self._lent, self.plan.window)

    def run(self) -> Iterator[Combinations]:
        """All outputs, in the order they are found, in batches of up to 65,536."""
        while self._fed < self.arrivals:
            yield from self.advance(min(self.arrivals, self._fed + self.batch_rows))

    @property
    def borrows(self) -> bool:
        """Whether it asks grids that others keep."""
        return self._lent is not None

    @property
    def arrivals(self) -> int:
        """Tuples of the input, all streams together, as far as it is known."""
        return max(int(self.data.ts.shape[0]), self.store.tuples)

    @property
    def queue(self) -> Queue | None:
        """What waits; None before the first tuple."""
        waiting: Queue | None = self._queue
        return waiting

    @property
    def bounds(self) -> Array:
        """Of each place in the queue, the ranges in every stream: int64 [places, n, 2]."""
        return self._bounds

    def times(self) -> Array:
        """The time of each arrival: int64 [arrivals] ns."""
        return self.data.ts

    @property
    def fed(self) -> int:
        """How many arrivals have been fed."""
        return self._fed

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Combinations]:
        """Go on to arrival `end` of the merged input.

        credit: cost granted for these arrivals, or for what waits when there are none, in place of the plan's
        budget (None).  Where it is given, every candidate's condition has been looked at in the end.
        """
        whole, real = self.state.whole, self.state.real
        if credit is not None:
            arrivals = end - self._fed
            self.grant(self._fed, np.full(arrivals, UNIT * credit / max(1, arrivals)))
            if not arrivals:
                real[st.CREDIT] += UNIT * credit
                real[st.GRANTED] += UNIT * credit
        self._feed(end)
        while True:
            why = self._step(end)
            if whole[st.WRITTEN] and self._collects(
                why, last=credit is not None or self.at_once or end == self.arrivals
            ):
                found = self._collect()
                if len(found):
                    yield found
                if why == st.DONE and self.data.test is not None:
                    continue  # what failed its condition has given credit back
            if why == st.DONE:
                break
            self._mend(why)
        self._release()

    def finish(self) -> None:
        """There is no more: arrivals that have not been taken in count as shed."""
        self._fed = self.arrivals
        self.state.whole[st.ARRIVED] = self._fed

    def example(self) -> MultiwayJoin:
        """A join of the same plan over a small input, whose run loads every kernel that this one's will."""
        streams, ts = self.data.streams, example_times(self.plan, streams=self.data.streams)
        codes, hashes = example_keys(streams)
        arrival = np.arange(ts.shape[0])
        data = MultiwayInput(
            streams=streams, stream=(arrival % streams).astype(np.int8), ordinal=arrival // streams, ts=ts, key=codes,
            hashes=hashes, costs=np.ones(ts.shape[0]), test=None if self.data.test is None else _anything,
        )  # fmt: skip
        return MultiwayJoin(example_plan(self.plan, ts), data)

    def _collects(self, why: int, *, last: bool) -> bool:
        """Whether outputs leave now; candidates only where it does not depend on the batches."""
        if self.data.test is None:
            return why in (st.DONE, st.OUTPUT_FULL)
        return why in (st.OUTPUT_FULL, ms.SETTLE) or (why == st.DONE and last)

    def _feed(self, end: int) -> None:
        """Arrivals up to `end` are in the store."""
        if end > self.store.tuples:
            data, rows = self.data, slice(self.store.tuples, end)
            self._put(data.ts[rows], data.stream[rows], data.key[rows])
        self._fed = end

    def push(self, ts: Array, stream: Array, key: Array, hashes: Array) -> None:
        """More arrivals of an input that comes as it goes, in the total order; they grant nothing yet (`grant`).

        Columns as in `MultiwayInput`; hashes: of every key known so far.  Arrivals dealt with are forgotten here.
        """
        gone, applied = int(self.state.whole[st.ARRIVALS_GONE]), int(self.state.whole[st.APPLIED])
        self.state.whole[st.ARRIVALS_GONE] = applied
        self._stream = np.concatenate([self._stream[applied - gone :], stream])
        self._grant = np.concatenate([self._grant[applied - gone :], np.zeros(ts.shape[0])])
        self._hashes = _at_least_one(hashes)
        self._put(ts, stream, key)

    def _put(self, ts: Array, stream: Array, key: Array) -> None:
        """Arrivals into the store: keyed by (key, stream), hashed alike."""
        n, null = self.data.streams, key < 0
        codes = np.where(null, -1, key.astype(np.int64) * n + stream).astype(np.int32)
        hashes = np.zeros(key.shape[0], np.uint64)
        for k in range(n):
            mine = np.flatnonzero((stream == k) & ~null)
            mixed = np.empty(mine.shape[0], np.uint64)
            hash_kernels.mix_all(self._hashes[key[mine]], np.uint64(k + 1), mixed)
            hashes[mine] = mixed
        self.store.extend(ts, codes, hashes, self._hashes.shape[0] * n)

    def _step(self, end: int) -> int:
        side, hashes, grant, state, out = self.store.side, self._hashes, self._grant, self.state, self._out
        if self._plain:
            return int(multiway_probe_kernels.probe(side, grant, end, self._floor, state, out))
        lent = self._lent or (side,)
        if self.followed:
            return int(follow_kernels.follow(side, lent, hashes, grant, self.dealt, end, state, out))
        if self._queue is None:
            self._queue = new_queue()
            self._bounds = np.zeros((self._queue.entry.shape[0], self.data.streams, 2), np.int64)
        queue, bounds = self._queue, self._bounds
        return int(multiway_kernels.promise(side, lent, hashes, grant, end, LIMIT, state, queue, bounds, out))

    def _mend(self, why: int) -> None:
        """Do what the kernel stopped for."""
        if why == st.ARENA_FULL:
            self.store.grow_arena(int(self.state.whole[st.STOPPED_CODE]))
        elif why == st.TURN:
            grid_kernels.turn(self.store.side)
        elif why == st.QUEUE_FULL:
            self._queue = grown_queue(self._queue)
            bounds = np.zeros((self._queue.entry.shape[0], self.data.streams, 2), np.int64)
            bounds[: self._bounds.shape[0]] = self._bounds
            self._bounds = bounds

    def _collect(self) -> Combinations:
        whole, real = self.state.whole, self.state.real
        n = int(whole[st.WRITTEN])
        whole[st.WRITTEN] = 0
        cell, weight = self._out.cell[:n].copy(), self._out.weight[:n].copy()
        if self.plan.output == "ranges":
            return Combinations(weight=weight, probing=cell[:, 0], low=cell[:, 1::2], high=cell[:, 2::2])
        if self.data.test is None:
            return Combinations(weight=weight, members=cell)
        passing = self.data.test(cell)
        failed = n - int(np.count_nonzero(passing))
        back = failed * float(self.state.prices[st.P_EMIT])
        real[st.CREDIT] += back
        real[st.SPENT] -= back
        real[st.SPENT_HIT] -= back
        whole[st.OUTPUTS] -= failed
        return Combinations(weight=weight[passing], members=cell[passing])

    def expand(self, outputs: Combinations) -> Combinations:
        """The combinations that range records stand for, the last stream fastest.  Costs O(combinations)."""
        if outputs.members is not None or outputs.low is None or outputs.high is None or outputs.probing is None:
            return outputs
        side, n = self.store.side, self.data.streams
        own, key = self.owner(outputs.probing)
        sizes = outputs.sizes(own)
        which = np.repeat(np.arange(sizes.shape[0]), sizes)
        number = np.arange(which.shape[0]) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        members = np.empty((which.shape[0], n), np.int64)
        for k in reversed(range(n)):
            is_own = own == k
            size = np.where(is_own, 1, outputs.high[:, k] - outputs.low[:, k])
            place = side.lists[key * n + k, ga.PLACE] - side.lists[key * n + k, ga.GONE] + outputs.low[:, k]
            at = np.where(is_own[which], 0, place[which] + number % size[which])
            members[:, k] = np.where(is_own[which], outputs.probing[which], side.arena[at])
            number //= size[which]
        return Combinations(weight=outputs.weight[which], members=members)

    def owner(self, arrivals: Array) -> tuple[Array, Array]:
        """(stream, key) of arrivals that are held and have a key: int64 [n] each."""
        side = self.store.side
        codes = side.code[arrivals - int(side.meta[ga.BASE])].astype(np.int64)
        return codes % self.data.streams, codes // self.data.streams

    def put_queue(self, queue: Queue, bounds: Array) -> None:
        """What waits, which is put back."""
        self._queue, self._bounds = queue, bounds

    def go_on_from(self, fed: int) -> None:
        """Arrivals up to `fed` had come, all that are needed of which have been pushed: the state is put back."""
        self._fed = fed

    def _release(self) -> None:
        if self.plan.output != "ranges":  # whose records are expanded when they are read
            self.let_go()

    def let_go(self, windows: int = 2) -> None:
        """Free tuples that neither a probe nor a queued entry can reach."""
        self.store.release(self.needed_from(windows))

    def needed_from(self, windows: int = 2) -> int:
        """The first arrival that a probe or a queued entry can still reach: two windows back.

        windows: 1 will do for the plain probe, which leaves nothing undone.
        """
        window, whole = self.plan.window, self.state.whole
        if window is None or whole[st.APPLIED] == 0:
            return 0
        horizon = int(whole[st.NOW_TS]) - windows * window
        if whole[st.ACTIVE]:
            horizon = min(horizon, int(whole[st.ENTRY_TIME]) - window)
        if self._queue is not None and self.plan.preference == "weighted":
            horizon = min(horizon, oldest_time(self._queue) - window)
        side, base = self.store.side, int(self.store.side.meta[ga.BASE])
        held = side.ts[: self.store.tuples - base]
        before = base + int(np.searchsorted(held, max(horizon, -st.FOREVER), side="left"))
        return min(before, int(whole[st.APPLIED]))

    @property
    def shed(self) -> tuple[int, ...]:
        """Tuples of each stream turned away."""
        return self.figures.shed

    @property
    def undrawn(self) -> float:
        """What outputs would have cost that were to be expected and not drawn, in units of the cost table."""
        price = self.plan.costs.emit + self.plan.costs.scan * int(self.state.setting[ms.CONDITIONED])
        return float(self.state.draws[ms.EXPECTED] - self.state.draws[ms.DRAWN]) * price

    @property
    def memory(self) -> Memory:
        """Bytes held by the store of all streams."""
        store = self.store
        return Memory(sketches=store.sketch_bytes, directory=store.directory_bytes, tuples=store.tuple_bytes)

    @property
    def figures(self) -> MultiwayFigures:
        """What has been done so far."""
        whole, real = self.state.whole, self.state.real
        gone = int(whole[st.ARRIVALS_GONE])
        waiting = self._stream[int(whole[st.APPLIED]) - gone : int(whole[st.ARRIVED]) - gone]
        shed = self.state.shed + np.bincount(waiting, minlength=self.data.streams)
        spent = float(real[st.SPENT]) / UNIT
        return MultiwayFigures(
            arrivals=int(whole[st.ARRIVED]),
            nulls=int(whole[st.NULLS]),
            admitted=int(whole[st.ADMITTED]),
            shed=tuple(int(count) for count in shed),
            outputs=int(whole[st.OUTPUTS]),
            candidates=int(whole[ms.CANDIDATES]),
            regions=int(whole[st.REGIONS]),
            pruned=int(whole[st.PRUNED]),
            expired=int(whole[st.EXPIRED]),
            evicted=int(whole[st.EVICTED]),
            granted=float(real[st.GRANTED]) / UNIT,
            spent=spent,
            spent_insert=float(real[st.SPENT_INSERT]) / UNIT,
            spent_hit=float(real[st.SPENT_HIT]) / UNIT,
            exact_cost=spent if self.data.costs is None else float(self.costs.sum()) / UNIT,
            coverage=self.coverage,
            forgotten=int(self.store.side.zone[ga.FORGOTTEN]),
            admission=float(real[st.ADMISSION]),
            sampling_rate=float(real[st.RATE]),
        )

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""
        probes = self.state.whole[st.ADMITTED]
        return float(self.state.real[st.COVERED] / probes) if probes and self.plan.spec.forgetting else 1.0


def _anything(members: Array) -> Array:
    """The condition that every candidate satisfies."""
    return np.ones(members.shape[0], bool)


def _at_least_one(hashes: Array) -> Array:
    return hashes if hashes.shape[0] else np.zeros(1, np.uint64)
