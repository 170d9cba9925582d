"""The weighted join over an input that is there whole, as a method of its own: what it plans, and what it keeps.

Sizes are learnt from a sample of the input before the first tuple is joined, and each sampled tuple is paid for when
it is joined or refused.  How many pairs a segment of the input has is known from what it grants, as to the opponent
`shed-uniform`; of range records, the sample tells.  Guide `directory` counts the sample's keys, `countsketch` asks a
sketch of it; where grids are lent that have counted both streams, they tell how many tuples the listed keys have, and
tuples whose key the other stream has nowhere are not taken in, if the sample has enough of them.
Budgets by a clock are planned as soon as it tells what there is time for (`nile.operators.drive.timed_sample`).
Over a live input nothing can be learnt ahead: there `nile.operators.join.follower` follows what is granted.  Where
others keep the streams, `nile.operators.join.promise_kernels` has one level for all keys.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.join.rates_met import least_variance
from nile.operators.join.spending import cells_of_plan, kept_back, planned_from, set_off
from nile.preferences import state as st
from nile.preferences.phases import two_phases
from nile.preferences.strata import FIRM, SLOTS, Strata, best_strata, sizes_of
from nile.pyramid.grid.arrays import Side
from nile.summaries.countsketch import CountSketch
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.join import learning_kernels, sample_kernels, sampling
else:
    learning_kernels = lazy("nile.operators.join.learning_kernels")
    sample_kernels = lazy("nile.operators.join.sample_kernels")
    sampling = lazy("nile.operators.join.sampling")

__all__ = ["Sampler", "is_sampled"]

Array = np.ndarray[Any, Any]
_LISTED = 255
_GOLDEN = 0x9E3779B97F4A7C15
_LEARNING = 0.03  # of the budget, for learning sizes
_LEARNING_RANGES = 0.12  # where the grant does not tell how many pairs there are
_WARY = 10.0  # ranges: sampled tuples that tell as much as was believed before, that an unlisted key may be heavy
_LISTING = 3.0  # lookups that a listed key costs
_SPARE = 0.01
_SPREAD = 1.0  # standard deviations, were as many tuples to come in as the budget pays for, by chance alone
_SPREAD_OF_RANGES = 2.0  # the same of ranges, each cut of which makes one more record: with 1 the last tuples stay out
_SPARE_TUPLES = 4.0  # ranges, whose coins let in as many tuples as is expected: two are kept back, two left at the end
_NEXT_TO_NOTHING = 1e-2
_LEAST_SAMPLE = 64
_LEAST_COLUMNS = 64
_OF_ITS_OWN = 0.5
_LUCK = 1.0  # of the times that a listed key was seen, so many are luck: it is listed for them
_MOST_SEGMENTS = 8


def is_sampled(plan: JoinPlan) -> bool:
    """Whether a plan asks for a sample of pairs that can be planned: its budget, and the input's times, are known."""
    return (
        plan.method == "nile"
        and plan.preference == "weighted"
        and (plan.budget.unit == "fraction" or (plan.budget.unit == "outputs" and plan.output == "pairs"))
        and not plan.is_exact
        and not (
            plan.pace.is_replay and plan.budget.unit != "outputs"
        )  # times are those played back, and nothing waits
        and not plan.spec.forgetting
    )


class Sampler:
    """One run: the rates of each stratum and segment, and the place in the sample.

    lent: grids that have counted both streams whole, if any.
    """

    def __init__(
        self, plan: JoinPlan, data: JoinInput, state: st.State, grant: Array, lent: tuple[Side, ...] | None = None
    ) -> None:
        salt = int(state.setting[st.SALT])
        self._plan, self._data, self._salt = plan, data, salt
        n = data.order.shape[0]
        total = float(grant.sum())
        prices = state.prices
        ranges = plan.output == "ranges"
        rows = plan.spec.rows if plan.guide == "countsketch" and lent is None else 0
        asking = 0.0 if lent is None else float(prices[st.P_ESTIMATE] * max(side.gran.shape[0] for side in lent))
        by_sketch = rows * (prices[st.P_UPDATE] + prices[st.P_ESTIMATE])
        looking = float(by_sketch if rows else prices[st.P_UPDATE] + prices[st.P_LOOKUP]) + asking
        learning = _LEARNING_RANGES if ranges else _LEARNING
        learnt = max(1, min(n // 4, int(learning * total / looking)))
        segments = _segments(plan, data, learnt)
        ends = np.linspace(0, n, segments + 1).astype(np.int64)[1:]
        begins = np.concatenate([[0], ends[:-1]])
        every = np.maximum(1, np.rint((ends - begins) * segments / learnt)).astype(np.int64)
        seen, met = _seen(data, begins, ends, every, salt)
        taking = float(prices[st.P_INSERT] + state.real[st.BOUNDS])
        join_at_all = np.ones(2) if lent is None or plan.blind else _partnered(lent, met)
        if asking and (1.0 - join_at_all).mean() * taking > asking:
            taking += asking / float(join_at_all.mean())
        else:
            asking, join_at_all = 0.0, np.ones(2)
        listing = float(_LISTING * prices[st.P_LOOKUP] * segments)
        if lent is not None:
            listing += float(prices[st.P_ESTIMATE]) * sum(s.gran.shape[0] * s.counters.shape[1] for s in lent)
        most = int(min(_LISTED, _LEARNING * total / listing))
        tuples = _tuples(data, begins, ends) * join_at_all
        found = _joined(seen, every, tuples) if ranges else None
        slots, counts = _listed(_sketched(seen, rows, plan) if rows else seen, ends, most)
        sampled = np.maximum(1, (ends - begins) // every)
        if lent is not None and not plan.blind:
            counts = _told(lent, _likeliest(met, salt)[slots], counts, every, ends)
        price = looking + listing / segments * slots.shape[0] / sampled
        closeness = _closeness(plan, data, begins, ends)
        matches = _matches(plan, data, begins, ends)
        sizes = sizes_of(
            matches if found is None else np.maximum(matches, found * closeness),
            tuples,
            max(1, int(data.keys * join_at_all.max())),
            counts,
            every.astype(np.float64),
            closeness,
        )
        emitting = float(prices[st.P_EMIT])
        if ranges:  # all pairs of a tuple are one output, which goes with it
            taking, emitting = taking + emitting, _NEXT_TO_NOTHING * emitting
        spare = max(_SPARE * total, 2.0 * taking, _SPREAD * math.sqrt(total * taking))
        spare = _SPARE_TUPLES * taking + _SPREAD_OF_RANGES * math.sqrt(total * taking) if ranges else spare
        budget = max(0.5 * total, total - spare) - float((price * sampled).sum())
        if ranges:
            strata = _wary(best_strata(sizes, budget, taking, emitting), sampled)
        else:
            strata = best_strata(sizes, budget, taking, emitting, blocks=True)
        phases = None
        if plan.budget.unit == "fraction" and not ranges:
            phases = two_phases(sizes, strata, budget, taking, emitting, float(prices[st.P_SCAN]))
        strata = strata if phases is None else phases.strata
        drawing = strata.cost - strata.taking + (0.0 if phases is None else phases.handed)
        firm, held = strata.firm & (not ranges), strata.held * (not ranges)
        to_come, held = planned_from(plan, data, begins, ends, strata.taking + price * sampled, drawing, held)
        cells = cells_of_plan(phases, float(_span(data) if plan.window is None else max(1, plan.window)))
        if not ranges:
            scan = None if phases is None else float(prices[st.P_SCAN])
            to_come += kept_back(taking, emitting, scan, strata.level.shape[1], cells["cells"].shape[0])
        if plan.budget.outputs is not None:
            strata = _drawn(strata, plan.budget.outputs / max(1.0, _pairs(plan, data)))
            to_come[:] = 0.0
        table = np.zeros((segments, SLOTS), np.uint8)
        if plan.budget.outputs is None:  # on one line just so many are drawn
            table[:, slots] = np.arange(1, slots.shape[0] + 1)
        self.sampling = sampling.Sampling(
            level=strata.level,
            left=np.where(firm[:, :, 0], FIRM, strata.left),
            right=np.where(firm[:, :, 1], FIRM, strata.right),
            rate=strata.rate,
            slot=table,
            ends=ends,
            to_come=to_come,
            held=held,
            price=np.rint(price),
            every=every,
            changes=np.zeros((sampling.CHANGES if ranges else 0, 2), np.int64),
            left_thinned=np.zeros(data.left_ts.shape[0]),
            right_thinned=np.zeros(data.right_ts.shape[0]),
            lines=np.zeros((2 if ranges else strata.level.shape[1], 2)),
            block=np.zeros((2, strata.level.shape[1], sampling.BLOCK_FIELDS), np.int64),
            books=np.array([0.0, 0.0, 1.0, float(join_at_all.mean()), 0.0, 1.0, 0.0]),
            factors=np.zeros(0 if ranges else sampling.FACTORS),
            luck=np.zeros(1),
            **cells,
            at=np.array([0, -1, 0, 0], np.int64),
            real=np.zeros(sampling.REAL_FIELDS),
        )
        seeded = np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 4]))
        if not ranges:
            self.sampling.lines[:] = seeded.random(strata.level.shape[1])[:, None]
        self.sampling.luck[0] = seeded.random()
        set_off(self.sampling.cells, seeded.random())
        self.sampling.real[:] = 0.0, 0.0, total, 1.0, 0.0, 1.0, asking

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        """Run to arrival `end` or to where the kernel stopped; returns why (`nile.preferences.state`)."""
        return int(sample_kernels.sample(left, right, order, grant, end, state, self.sampling, out))

    def grow(self, state: st.State) -> None:
        """Nothing waits but the entry in progress, so the kernel never asks."""

    def regrant(self, more: float) -> None:
        """So much more is granted than was planned with, in hundredths of a unit."""
        self.sampling.real[sampling.TOTAL] += more

    def afford(self, left: float, credit: float, granted: float) -> None:
        """So much is left to spend, whatever lies in hand; in hundredths of a unit.  It depends on what came in."""
        self.sampling.books[sampling.ANEW] = 0.0
        self.sampling.real[sampling.TOTAL] = left - credit + granted

    @cached_property
    def foreseen(self) -> tuple[float, float]:
        """After the run: all pairs, whoever came in, and the least that coins make of the variance of totals."""
        matches = _completed(self._plan, self._data)
        return float(matches.sum()), least_variance(self.sampling, self._data, matches, self._salt)

    def to_come(self, arrival: int, arrivals: int) -> float:
        """What was planned to be spent from an arrival on, in hundredths of a unit."""
        planned = self.sampling.to_come
        return float(np.interp(arrival, np.linspace(0, arrivals, planned.shape[0]), planned))

    @property
    def thinned(self) -> tuple[Array, Array]:
        """Of each tuple that came in, left and right: the probability by its own coin; 0: it did not."""
        return self.sampling.left_thinned, self.sampling.right_thinned


def _segments(plan: JoinPlan, data: JoinInput, learnt: int) -> int:
    """Parts of the input whose sizes are learnt apart: two windows at least, and enough sampled tuples in each."""
    n = data.order.shape[0]
    if n == 0 or plan.window is None:
        return 1
    span = _span(data)
    windows = span / max(1.0, 2.0 * plan.window)
    return int(max(1, min(_MOST_SEGMENTS, windows, learnt // _LEAST_SAMPLE)))


def _span(data: JoinInput) -> float:
    ends = [float(ts[at]) for ts in (data.left_ts, data.right_ts) if ts.shape[0] for at in (0, -1)]
    return max(ends) - min(ends) if ends else 0.0


def _closeness(plan: JoinPlan, data: JoinInput, begins: Array, ends: Array) -> Array:
    """Of the pairs that a key's tuples in a segment could make, the share that joins, were they to come evenly."""
    out = np.ones(begins.shape[0])
    if plan.window is None:
        return out
    times = data.times()
    for segment, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        span = max(1.0, float(times[max(begin, end - 1)]) - float(times[begin]))
        x = max(1, plan.window) / span
        out[segment] = 1.0 if x >= 1.0 and segment == 0 else (2.0 * x - x * x if segment == 0 else 2.0 * x)
    return out


def _matches(plan: JoinPlan, data: JoinInput, begins: Array, ends: Array) -> Array:
    """Pairs that each segment completes: what it grants tells."""
    reached = np.concatenate([[0.0], np.cumsum(_completed(plan, data))])
    pairs: Array = np.maximum(0.0, reached[ends] - reached[begins])
    return pairs


def _completed(plan: JoinPlan, data: JoinInput) -> Array:
    """Pairs that each arrival completes, as it grants for them: float64 [n]."""
    pairs: Array = (data.costs - (plan.costs.insert + plan.costs.lookup)) / plan.costs.emit
    return pairs


def _pairs(plan: JoinPlan, data: JoinInput) -> float:
    n = np.array([data.order.shape[0]])
    return float(_matches(plan, data, np.zeros(1, np.int64), n)[0])


def _tuples(data: JoinInput, begins: Array, ends: Array) -> Array:
    """Tuples with a key in each segment: float64 [s, 2]."""
    out = np.zeros((begins.shape[0], 2))
    for side, encoded in enumerate((data.left, data.right)):
        known = np.zeros(data.order.shape[0])
        known[data.order == side] = encoded.codes >= 0
        reached = np.concatenate([[0.0], np.cumsum(known)])
        out[:, side] = reached[ends] - reached[begins]
    return out


def _seen(data: JoinInput, begins: Array, ends: Array, every: Array, salt: int) -> tuple[Array, tuple[Array, Array]]:
    """A sample of tuples: how many in each part of the key space, by segment and stream, and the hashes of either.

    float64 [s, SLOTS, 2] and uint64 [n].
    """
    counts = np.zeros((begins.shape[0], SLOTS, 2))
    before = np.concatenate([[0], np.cumsum(data.order == 1)])
    met: tuple[list[Array], list[Array]] = ([], [])
    for segment in range(begins.shape[0]):
        begin, end = int(begins[segment]), int(ends[segment])
        room = np.empty((end - begin) // int(every[segment]) + 2, np.int64)
        at = room[: learning_kernels.sampled_arrivals(int(every[segment]), begin, end, salt, room)]
        for side, encoded in enumerate((data.left, data.right)):
            mine = at[data.order[at] == side]
            ordinal = before[mine] if side else mine - before[mine]
            hashes = encoded.hashes[ordinal[encoded.codes[ordinal] >= 0]]
            counts[segment, :, side] = np.bincount(_slots_of(hashes, salt), minlength=SLOTS)
            met[side].append(hashes)
    return counts, (np.concatenate(met[0]), np.concatenate(met[1]))


def _partnered(lent: tuple[Side, ...], met: tuple[Array, Array]) -> Array:
    """Of a sample's tuples, left and right, the share whose key the other grid may have: float64 [2]."""
    shares = np.ones(2)
    for side, hashes in enumerate(met):
        bound = np.empty(hashes.shape[0])
        learning_kernels.bounds_of(lent[1 - side], hashes, bound)
        shares[side] = (np.count_nonzero(bound) + 1.0) / (hashes.shape[0] + 1.0)
    return shares


def _likeliest(met: tuple[Array, Array], salt: int) -> Array:
    """The hash that most tuples of a sample have in each part of the key space: uint64 [SLOTS]."""
    hashes, times = np.unique(np.concatenate(met), return_counts=True)
    hashes = hashes[np.argsort(times, kind="stable")]
    key = np.zeros(SLOTS, np.uint64)
    key[_slots_of(hashes, salt)] = hashes
    return key


def _slots_of(hashes: Array, salt: int) -> Array:
    slots = np.empty(hashes.shape[0], np.int64)
    learning_kernels.slots_of(hashes, salt, slots)
    return slots


def _told(lent: tuple[Side, ...], keys: Array, counts: Array, every: Array, ends: Array) -> Array:
    """`counts` of listed keys, as large as lent grids say that the keys are, and where in time a sample met them."""
    share = np.diff(ends, prepend=0) / max(1, int(ends[-1]))
    out = np.empty_like(counts)
    for side, grid in enumerate(lent):
        whole = np.empty(keys.shape[0])
        learning_kernels.told_of(grid, keys, whole)
        met = counts[:, :, side] * every[:, None]
        total = met.sum(axis=0)
        shares = np.where(total > 0.0, met / np.maximum(total, 1e-9), share[:, None])
        out[:, :, side] = shares * whole / every[:, None]
    return out


def _sketched(seen: Array, rows: int, plan: JoinPlan) -> Array:
    """What count sketches tell of parts of the key space that a sample has met, each as wide as its sample is large.

    Of a stream and segment they add up to as many tuples as the sample has.  Counts that are told below 0 are none, so
    what is left would be too much for that: listed keys would seem to have nearly all tuples, and the others, which
    come in more often, would cost more than is granted.
    """
    told = np.zeros_like(seen)
    if plan.blind:
        return told
    for segment, side in np.ndindex(seen.shape[0], 2):
        met = np.flatnonzero(seen[segment, :, side])
        columns = 1 << max(_LEAST_COLUMNS, met.shape[0]).bit_length()
        sketch = CountSketch(rows, columns, plan.spec.seed & 0xFFFFFFFF)
        hashes = (met.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        sketch.summarize(np.repeat(hashes, seen[segment, met, side].astype(np.int64)))
        found = np.maximum(0.0, np.asarray(sketch.estimate(hashes).value))
        told[segment, met, side] = found * (seen[segment, met, side].sum() / max(1.0, found.sum()))
    return told


def _joined(seen: Array, every: Array, tuples: Array) -> Array:
    """Pairs of equal keys in each segment, whenever they came: what a sample meets, less what parts share by chance."""
    stands = every.astype(np.float64)
    met = (seen[:, :, 0] * seen[:, :, 1]).sum(axis=1) * stands * stands
    found: Array = np.maximum(0.0, met - tuples[:, 0] * tuples[:, 1] / SLOTS)
    return found


def _listed(counts: Array, ends: Array, most: int) -> tuple[Array, Array]:
    """The parts of the key space with most sampled tuples, and how many each has by segment.

    int64 [k] and float64 [s, k, 2].  What all segments say of a part counts as much as what one says of itself.
    """
    seen = np.rint(counts.sum(axis=(0, 2)))
    slots = np.argsort(-seen, kind="stable")[:most]
    slots = slots[seen[slots] >= 2]
    counts = counts[:, slots]
    lengths = np.diff(ends, prepend=0)
    share = lengths[:, None, None] / max(1, int(ends[-1]))
    counts = _OF_ITS_OWN * counts + (1.0 - _OF_ITS_OWN) * share * counts.sum(axis=0)
    return slots, counts * ((seen[slots] - _LUCK) / np.maximum(1.0, seen[slots]))[None, :, None]


def _wary(strata: Strata, sampled: Array) -> Strata:
    """More of the unlisted keys, and fewer tuples of each, for the same cost: few sampled tuples may miss a heavy one.

    Were it left out, or in with as many tuples as a light one, it would make most of what totals are off by.
    """
    told = sampled / (sampled + _WARY)
    level = strata.level[:, 0] ** told
    for rates in (strata.left, strata.right):
        rates[:, 0] *= strata.level[:, 0] / level
    strata.level[:, 0] = level
    return strata


def _drawn(strata: Strata, rate: float) -> Strata:
    """Everything comes in, and so many of the pairs are drawn."""
    one = np.ones_like(strata.rate)
    return strata._replace(level=one, left=one, right=one, rate=np.full_like(strata.rate, min(1.0, rate)))
