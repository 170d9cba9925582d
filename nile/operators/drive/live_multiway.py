"""A join of n live streams, or of two under a condition: the operator of `nile.operators.multiway`, fed as tuples come.

Design.  The kernels are the same, and so is what they do: a tuple at a time, in the total order, which no cut into
batches changes.  The operator is held, not inherited from: tuples are pushed into it, and what a window cannot reach is
let go of (tuples, admissions, keys that no tuple held has).  Before the kernels run, each arrival's exact cost is
counted from the windows of all streams, shed tuples included, so that the grant is what it is over finite streams: the
outputs are the same, bit for bit.  A condition over several streams is put to candidates by whoever holds the rows.
How many satisfy it, and how many lie in windows between pairs of streams, only a look at every candidate would tell; so
under a fraction an arrival grants its share of what is certain (taking the tuple in, looking up, scanning candidates),
and every output found that of its own: less than over finite streams, never more.  Candidates are looked at arrival by
arrival.
Memory.  Tuples of up to two windows, and what waits in the queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import Held, State
from nile.operators.common.growing import grown, renumber_store, rows_at
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT, samples
from nile.operators.drive.live_estimate import LiveSample
from nile.operators.drive.live_multiway_state import captured, restored
from nile.operators.drive.live_parts import Afforded, checked
from nile.operators.multiway.multiway import Combinations, MultiwayFigures, MultiwayInput, MultiwayJoin
from nile.operators.multiway.start import buys_everything
from nile.preferences import state as st
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import Memory
from nile.summaries.errors import MemoryRefused
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import PUBLIC, Encoded, KeyHasher, KeyTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.drive import live_kernels
else:
    live_kernels = lazy("nile.operators.drive.live_kernels")

__all__ = ["LiveMultiway", "Passing"]

Array = np.ndarray[Any, Any]
Passing = Callable[[tuple[Array, ...]], Array]
"""Which candidates satisfy a condition, by the ordinals (or times) of each stream's members: bool [c]."""

_LEAST_KEYS = 4096
_MOST = 2.0**53


class LiveMultiway(Afforded):
    """One plan over n live streams: `push` what has come, `advance`, and get what is found.

    The same tuples give the same outputs, weights and figures as `MultiwayJoin` gives for them as finite streams,
    however they are cut into pushes.  Range records are expanded at once; `members` of what is found are ordinals of
    each stream; under a condition or windows between pairs what it finds is true and within the budget, but less.
    within: which combinations lie in such windows, by their times (int64 [c, n] ns): bool [c].
    Raises NotYet for a method other than `nile` and a replay, ConfigError for a plan without a window.
    """

    join: MultiwayJoin

    def __init__(
        self,
        plan: JoinPlan,
        streams: int,
        *,
        passing: Passing | None = None,
        within: Passing | None = None,
        hasher: KeyHasher = PUBLIC,
    ) -> None:
        self.plan = checked(plan)
        self.streams = streams
        self._passing = passing
        self._within = within
        self._tested = passing is not None or within is not None
        none, nothing = np.zeros(0), np.zeros(0, np.int64)
        self.join = MultiwayJoin(
            plan,
            MultiwayInput(
                streams=streams, stream=np.zeros(0, np.int8), ordinal=nothing, ts=nothing, key=np.zeros(0, np.int32),
                hashes=np.zeros(0, np.uint64), costs=none, test=self._test if self._tested else None,
            ),
        )  # fmt: skip
        self.join.at_once = self._tested
        self._step = 1 if self._tested and not self.join.whole and plan.budget.fraction is not None else 1 << 62
        self.table = KeyTable(hasher)
        self._windows = 1 if plan.is_exact else 2
        self.sampled = samples(plan)
        self.sample = LiveSample(plan.window, streams, met=self.sampled)
        self.tuples = np.zeros(streams, np.int64)
        """Tuples of each stream that have come."""
        self._owner = np.zeros(0, np.int8)
        self._ordinal = np.zeros(0, np.int64)
        self._counts = np.zeros((256, streams), np.int64)
        self._place = np.zeros(2, np.int64)
        self._told = 0
        self.total_cost = 0.0
        self.matches = 0
        """Combinations that the exact answer has so far, a condition over several streams left aside."""
        self.found = 0
        """Combinations found so far."""

    def example(self) -> MultiwayJoin:
        """One of the same plan over a small input, whose run loads every kernel that this one's will."""
        return self.join.example()

    def push(self, ts: tuple[Array, ...], keys: tuple[pa.Array, ...]) -> None:
        """Tuples of all streams whose turn has come.

        ts: of each stream int64 [n_k] ns, not decreasing, none before what was pushed; keys: their keys.  At equal
        times streams come in their order.  Raises KeyTypeError, MemoryRefused.
        """
        encoded = [self.encode(each) for each in keys]
        sizes = [each.shape[0] for each in ts]
        merged = np.concatenate(ts)
        place = np.argsort(merged, kind="stable")
        owner = np.repeat(np.arange(self.streams, dtype=np.int8), sizes)[place]
        ordinal = np.concatenate([np.arange(n) + first for n, first in zip(sizes, self.tuples, strict=True)])[place]
        if self.sampled:
            for k, (times, coded) in enumerate(zip(ts, encoded, strict=True)):
                if times.shape[0]:
                    self.sample.arrive(k, times.shape[0], int((coded.codes >= 0).sum()), int(times[0]))
        self._put(merged[place], owner, ordinal, np.concatenate([each.codes for each in encoded])[place])
        self.tuples = self.tuples + sizes
        self.join.grant(self.arrivals - merged.shape[0], self._granted(merged.shape[0]))

    def _put(self, ts: Array, owner: Array, ordinal: Array, key: Array) -> None:
        self._make_room(ts.shape[0])
        at = self.arrivals - self._gone
        self._owner[at : at + ts.shape[0]], self._ordinal[at : at + ts.shape[0]] = owner, ordinal
        self.join.push(ts, owner, key, self.table.hashes())

    @property
    def _gone(self) -> int:
        return int(self.join.state.whole[st.ADMISSIONS_GONE])

    def _make_room(self, more: int) -> None:
        """Room for so many more tuples beside the store, and for every key known; what is not needed goes."""
        state, known = self.join.state, self.table.known
        if known > self._counts.shape[0]:
            self._counts = grown(self._counts, max(known, 2 * self._counts.shape[0]), 0)
        if known > state.shed_at.shape[0]:
            self.join.state = state._replace(
                shed_at=grown(state.shed_at, max(known, 2 * state.shed_at.shape[0]), -st.FOREVER)
            )
        if self.arrivals + more - self._gone <= self._owner.shape[0]:
            return
        keep = self.first_needed
        held, room = slice(keep - self._gone, self.arrivals - self._gone), 2 * (self.arrivals + more - keep)
        self._owner, self._ordinal = grown(self._owner[held], room, 0), grown(self._ordinal[held], room, 0)
        if self.sampled:
            state, coined = self.join.state, room if self.join.followed else 0
            self.join.state = state._replace(
                admissions=grown(state.admissions[held], room, 0), coins=grown(state.coins[held], coined, 0)
            )
        self.join.state.whole[st.ADMISSIONS_GONE] = keep

    def _granted(self, arrivals: int) -> Array:
        """What each new arrival grants, in hundredths; counts what the exact answer spends on it."""
        plan, matches = self.plan, np.empty(arrivals)
        assert plan.window is not None
        live_kernels.count_combinations(self.join.store.side, plan.window, self._counts, self._place, matches)
        if arrivals and float(matches.max()) >= _MOST:
            raise MemoryRefused(
                f"live join of {self.streams} streams: needed fewer than 2**53 combinations of one tuple; got about "
                f"{matches.max():.2g}; name a shorter window"
            )
        self.matches += int(matches.astype(np.int64).sum())
        if self.sampled:
            new = self._owner[self.arrivals - arrivals - self._gone : self.arrivals - self._gone]
            for k in range(self.streams):
                self.sample.complete(k, matches[new == k])
        table = plan.costs
        outputs = np.minimum(matches, 1.0) if plan.output == "ranges" else matches
        candidate = table.scan if self._tested else table.emit
        costs = np.rint(UNIT * (table.insert + table.lookup * (self.streams - 1) + candidate * outputs))
        self.total_cost += float(costs.sum())
        # What the whole answer costs is not known where candidates are tested, nor needed: nothing holds it back.
        granted: Array = np.zeros(arrivals) if self._tested and self.join.whole else plan.fraction * costs
        return granted

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Combinations]:
        """Go on to arrival `end`; credit: in place of the plan's budget (`nile.operators.common.contract`)."""
        for outputs in self._advanced(end, credit):
            whole = self.join.expand(outputs)
            assert whole.members is not None
            if self.sampled:
                self._sample_of(outputs)
            self.found += len(whole)
            yield Combinations(whole.weight, members=self._ordinal[whole.members - self._gone])

    def _advanced(self, end: int, credit: float | None) -> Iterator[Combinations]:
        if credit is not None or end <= self.fed:
            yield from self.join.advance(end, credit=credit)
        while self.fed < end:  # under a fraction, where conditions are looked at must not depend on the pushes
            yield from self.join.advance(min(end, self.fed + self._step))

    def _test(self, members: Array) -> Array:
        kept = np.ones(members.shape[0], bool)
        if self._within is not None:
            side = self.join.store.side
            kept = self._within(tuple(side.ts[members[:, k] - int(side.meta[ga.BASE])] for k in range(self.streams)))
        if self._passing is not None:
            ordinals = self._ordinal[members - self._gone]
            kept = kept & self._passing(tuple(ordinals[:, k] for k in range(self.streams)))
        if self._step == 1:
            more = self.plan.fraction * UNIT * self.plan.costs.emit * int(np.count_nonzero(kept))
            self.join.state.real[[st.CREDIT, st.GRANTED]] += more
        return kept

    def let_go(self) -> None:
        """All that was pushed has been advanced to: forget what a window cannot reach, and keys that went with it."""
        if self.sampled:
            dealt_with = int(self.join.state.whole[st.APPLIED])
            new, state = slice(self._told - self._gone, dealt_with - self._gone), self.join.state
            coins = state.coins[new] if self.join.followed else np.ones(new.stop - new.start)
            salt = -1 if self.join.followed else int(state.setting[st.SALT])
            hashes = np.append(self.table.hashes(), np.uint64(0))  # the last: of -1
            key, came_by = hashes[self.join.owner(np.arange(self._told, dealt_with))[1]], state.admissions[new] * coins
            share = came_by * coins ** (self.streams - 1)  # as if keys alone were drawn, as `_sample_of` takes it
            for k in range(self.streams):
                mine = self._owner[new] == k
                self.sample.let_in(k, came_by[mine], key[mine], share[mine], salt)
            self._told = dealt_with
        self.join.let_go(self._windows)
        known = self.table.known
        if known >= _LEAST_KEYS and known >= 2 * (self.arrivals - self.first_needed):
            alive = self.alive()
            if known >= 2 * alive.shape[0]:
                self._renumber(alive)

    def _sample_of(self, found: Combinations) -> None:
        """Tell the sample what was found: combinations, or range records before they are expanded."""
        if found.probing is None:
            assert found.members is not None
            members, pairs = found.members, np.ones(len(found), np.int64)
        else:
            members, pairs = found.probing[:, None], found.sizes(self._owner[found.probing - self._gone])
        level = self.join.state.admissions[members - self._gone].min(axis=1)
        if self.join.followed:  # coins are not kept: as if keys alone were drawn, which is wider
            level = 1.0 / found.weight
        key = self.table.hashes()[self.join.owner(members[:, 0])[1]]
        self.sample.add(key, np.clip(level, 1.0 / found.weight, 1.0), found.weight, pairs)

    @property
    def first_needed(self) -> int:
        """The first arrival that a probe, a queued entry or a count can still reach."""
        return self.join.needed_from(self._windows)

    def held(self) -> tuple[Array, Array]:
        """(stream, key) of arrivals from `first_needed` on, -1 without a key: int64 [n] each."""
        side, first = self.join.store.side, self.first_needed
        base = int(side.meta[ga.BASE])
        codes = side.code[first - base : self.arrivals - base].astype(np.int64)
        owner = self._owner[first - self._gone : self.arrivals - self._gone].astype(np.int64)
        return owner, np.where(codes < 0, -1, codes // self.streams)

    def alive(self) -> Array:
        """The codes of keys that a tuple still needed has, stream by stream as they first have them: int64 [k]."""
        owner, key = self.held()
        codes, first = np.unique(key[np.argsort(owner, kind="stable")], return_index=True)
        inner = codes >= 0
        alive: Array = codes[inner][np.argsort(first[inner], kind="stable")]
        return alive

    def _renumber(self, alive: Array) -> None:
        """Give the keys of these codes the codes 0, 1, ...; all others are forgotten."""
        table, n = KeyTable(self.table.hasher), self.streams
        table.encode(self.table.values().take(pa.array(alive)))
        places = (alive[:, None] * n + np.arange(n)).ravel()
        code_of = np.full(self.table.known * n + 1, -1, np.int32)  # the last: of -1
        code_of[places] = np.arange(places.shape[0], dtype=np.int32)
        renumber_store(self.join.store, places, code_of)
        self.table = table
        self._counts = rows_at(self._counts, alive, 0)
        self.join.state = self.join.state._replace(shed_at=rows_at(self.join.state.shed_at, alive, -st.FOREVER))

    def needed_from(self) -> tuple[int, ...]:
        """Of each stream, the first ordinal that a probe, a queued entry or a count can still reach."""
        first = self.first_needed - self._gone
        owner, ordinal = (each[first : self.arrivals - self._gone] for each in (self._owner, self._ordinal))
        needed = []
        for k in range(self.streams):
            mine = np.flatnonzero(owner == k)
            needed.append(int(ordinal[mine[0]]) if mine.shape[0] else int(self.tuples[k]))
        return tuple(needed)

    @property
    def figures(self) -> MultiwayFigures:
        """What has been done so far; under a condition the exact cost is what it is at least."""
        figures, cost = self.join.figures, self.total_cost / UNIT
        if self._tested:
            cost = figures.spent if buys_everything(self.plan) else cost + self.plan.costs.emit * figures.outputs
        return replace(figures, exact_cost=cost)

    @property
    def estimate(self) -> Estimate:
        """How many combinations the exact answer has so far, as `Answer.estimate` says it."""
        if self.plan.is_exact and self.plan.preference != "asc":
            return Estimate.exact(float(self.found))
        if self.sampled:
            told, whole = self.sample.estimate(self.last), self.join.state.whole
            waits = not (self.join.followed and self.plan.output == "pairs") and whole[st.APPLIED] < whole[st.ARRIVED]
            return replace(told, high=math.inf) if waits else told  # tuples that wait for credit stand in no weight
        return Estimate(float(self.found), float(self.found), math.inf, 1.0, True)

    @property
    def _follows(self) -> bool:
        return self.join.followed

    @property
    def _undrawn(self) -> float:
        return self.join.undrawn if self._follows else 0.0

    def _deal(self, share: float) -> None:
        self.join.dealt = share

    @property
    def last(self) -> int | None:
        """ts of the newest tuple."""
        side = self.join.store.side
        return int(side.ts[self.arrivals - 1 - int(side.meta[ga.BASE])]) if self.arrivals else None

    @property
    def memory(self) -> Memory:
        """Bytes held by the store of all streams, the keys, the counts and the queue."""
        held, join = self.join.memory, self.join
        queue = 0 if join.queue is None else sum(array.nbytes for array in join.queue) + join.bounds.nbytes
        beside = self._owner.nbytes + self._ordinal.nbytes + join.state.admissions.nbytes + join.state.shed_at.nbytes
        beside += join.state.coins.nbytes
        return Memory(
            sketches=held.sketches,
            directory=held.directory + self.table.nbytes + self._counts.nbytes,
            tuples=held.tuples + self.sample.nbytes + queue + beside,
        )

    def encode(self, keys: pa.Array) -> Encoded:
        """Codes and hashes of a column of keys."""
        return self.table.encode(keys, where="live join")

    def capture(self) -> State:
        """What the join holds, between two advances (`nile.operators.drive.live_multiway_state`)."""
        return captured(self)

    def restore(self, held: Held, keys: tuple[pa.Array, ...]) -> None:
        """Be where the join was that gave the state; keys: of the tuples it needed.  Raises EnvelopeError."""
        restored(self, held, keys)

    def go_on_from(
        self, tuples: Array, ts: Array, owner: Array, key: Array, admissions: Array, coins: Array | None
    ) -> None:
        """Put back the tuples that were needed.  tuples: int64 [n], how many came of each stream.

        coins: None: an older one promised, and what it promised waits in its queue.
        """
        self.join.followed = coins is not None
        first = int(tuples.sum()) - ts.shape[0]
        store = self.join.store
        store.tuples = first
        store.side.meta[ga.BASE] = store.side.meta[ga.KEEP_FROM] = first
        ordinal = np.empty(ts.shape[0], np.int64)
        for k in range(self.streams):
            mine = np.flatnonzero(owner == k)
            ordinal[mine] = tuples[k] - mine.shape[0] + np.arange(mine.shape[0])
        self.join.state.whole[[st.ARRIVALS_GONE, st.APPLIED, st.ADMISSIONS_GONE]] = first
        self._put(ts, owner, ordinal, key)
        if self.sampled:
            self.join.state.admissions[: ts.shape[0]] = admissions
        if coins is not None:
            self.join.state.coins[: ts.shape[0]] = coins
        self.tuples = tuples.copy()
        self.join.go_on_from(self.arrivals)

    def count_from(self, cost: float, matches: int, found: int) -> None:
        """Everything else has been put back: count the tuples of the window, and go on."""
        self.total_cost, self.matches, self.found = cost, matches, found
        side, window = self.join.store.side, self.plan.window
        base, last = int(side.meta[ga.BASE]), self.last
        self._told = int(self.join.state.whole[st.APPLIED])
        self._place[:] = self.arrivals
        if last is not None and window is not None:
            held = side.ts[: self.arrivals - base]
            at = int(np.searchsorted(held, max(-st.FOREVER, last - window), side="left"))
            codes = side.code[at : self.arrivals - base]
            np.add.at(self._counts.reshape(-1), codes[codes >= 0], 1)
            self._place[0] = base + at
