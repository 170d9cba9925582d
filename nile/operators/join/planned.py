"""`desc` and `asc` over an input that is there whole: keys come in as planned, those worth most a tuple first.

What is granted is there before the first tuple, as it is for the opponent `hash-keys`.  A sample of the tuples is
counted by part of the key space, at the price of one counter a tuple; how many pairs a tuple completes is known from
what it grants, as to `hash-keys`, which is told what each key costs.
desc.  Parts of which a tuple finds so many matches that counting it is next to nothing beside them are then counted
whole.  Where hardly a tuple completes a pair, or a sample meets most that do, these are sampled besides.
asc.  Where nearly all pairs are outliers, parts are chosen as under desc.  Else tuples whose matches are few and seem
to be outliers are sampled besides.  A tuple that grants for more matches than an outlier has, by a margin, is turned
away, and so is what follows it within its window, until grants tell that the key is rare again: a heavy key does not
spoil its part.  Where budget is left when all parts are open, the margin widens.
Parts come in, best first, as far as the budget pays for the whole of them, the next one in part; how far that is
follows what has been spent (`planned_kernels`).  Under a fade factor each part is asked for as young pairs as pay.
Over live streams nothing can be counted ahead, and queries that share streams share what comes in: there, and for range
records, `nile.operators.join.promise_kernels` goes on tuple by tuple.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.preferences import state as st
from nile.preferences.best_first import (
    Expected,
    Ranked,
    Seen,
    completed,
    expected_of,
    is_telling,
    likely_outliers,
    matches_before,
    ranked,
)
from nile.summaries.hashing import mixed
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.join import learning_kernels, planned_kernels
else:
    learning_kernels = lazy("nile.operators.join.learning_kernels")
    planned_kernels = lazy("nile.operators.join.planned_kernels")

__all__ = ["Planned", "is_planned", "plan_told", "plans_ahead"]

Array = np.ndarray[Any, Any]
_LEAST_ARRIVALS, _LEAST_KEYS = 4096, 32  # under asc: of fewer of both, luck is which keys come in whole
_CHOICES = 64  # under asc, of small inputs, which would be over before spending has told what is left for the rest
_PARTS = 4096  # of `learning_kernels.slot_of`
_SEGMENTS = 16
_LEARNING = {st.DESC: 0.06, st.ASC: 0.05}  # of the budget, for a sample
_MEETING = 0.12  # and for one of the tuples that complete pairs, under asc of those that seem to be outliers
_NEARLY_ALL = 0.85  # of the pairs: so many outliers are found as pairs are under desc
_SPARSE = 0.125  # of the tuples: fewer complete pairs, which are sampled under desc, too
_MET = 0.5  # of the pairs beyond the first of each arrival: a sample of so many arrivals tells of them
_LIKELY = 0.5  # of the chance of the likeliest matches to be outliers: what a tuple's have that is one of these
_LEAST_SHARE = {st.DESC: 8, st.ASC: 4}  # tuples of which one is sampled at most
_LEVELS = np.array([2.0, 3.0, 4.0, 6.0, 8.0, 16.0, np.inf])  # outlier caps: the matches of tuples that come in
_ENOUGH = 8 * _PARTS
_NEXT_TO_NOTHING = 0.01  # of what a tuple and its pairs cost: what counting it may cost
_COUNTING, _COUNTING_MOST = 0.05, 0.1  # of what is left, for counting parts whole: as planned, and in any case
_TWICE = 2.0
_WARY = 0.1  # of the budget: spending that tells as much of what is to come as was planned


def plans_ahead(plan: JoinPlan) -> bool:
    """Whether a join that has its whole input counts keys before the first tuple and admits the best of them."""
    return (
        plan.method == "nile"
        and plan.preference in ("desc", "asc")
        and plan.guide == "directory"
        and plan.output == "pairs"
        and plan.budget.unit == "fraction"
        and (plan.fade.factor == 1.0 or plan.first is None)
        and plan.strategy in ("", "promise")
        and not plan.is_exact
        and not plan.pace.is_replay
        and not plan.spec.forgetting
    )


def is_planned(plan: JoinPlan, data: JoinInput) -> bool:
    """Whether it is one over this input."""
    if not plans_ahead(plan):
        return False
    return plan.preference == "desc" or data.order.shape[0] >= _LEAST_ARRIVALS or data.keys >= _LEAST_KEYS


def plan_told(plan: JoinPlan) -> list[str]:
    """What EXPLAIN says of it."""
    if not plans_ahead(plan):
        return []
    what, where = "pairs", ""
    if plan.preference == "asc":
        what, where = "outliers", f"of {_LEAST_ARRIVALS:,} tuples or {_LEAST_KEYS} keys and more "
    first = f"those of most {what} a tuple first, the last in part"
    return [f"  {where}a sample is counted by key before the first tuple; then keys come in whole, {first}"]


class Planned:
    """One run: which parts of the key space come in.

    grant: float64 [n], hundredths that each arrival grants, all of which is there at first; spans: int64
    [granularities], ns.  O(tuples).
    """

    def __init__(self, plan: JoinPlan, data: JoinInput, state: st.State, grant: Array, spans: Array) -> None:
        total = float(grant.sum())
        state.real[st.CREDIT] = state.real[st.GRANTED] = total
        grant[:] = 0.0
        input_ = _Input(plan, data, int(state.setting[st.SALT]), float(state.prices[st.P_EMIT]))
        taking = float(state.prices[st.P_INSERT] + state.real[st.BOUNDS])
        reach, share = input_.ages(np.cumsum(spans))
        fades = state.fades if plan.preference == "desc" else np.ones_like(state.fades)
        told = _planned(input_, state, taking, total, (share, fades))
        self.admission = planned_kernels.Admission(
            frequent=input_.frequent,
            is_few=input_.is_few,
            rung=told.rung,
            reach=reach[told.cut],
            to_come=told.to_come,
            sure=told.sure,
            is_sure=told.is_sure,
            ends=input_.ends,
            at=np.array([0, 0, _every(plan, data)]),
            all=input_.costs_of_all(taking, state),
            begun=np.zeros((2, data.keys if plan.preference == "asc" else 0), np.int64),
            real=np.array([0.0, 0.0, 0.0, _WARY * total]),
        )

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        """Run to arrival `end` or to where the kernel stopped; returns why (`nile.preferences.state`)."""
        return int(planned_kernels.keep_to_plan(left, right, order, grant, end, self.admission, state, out))

    def grow(self, state: st.State) -> None:
        """Nothing waits but the entry in progress, so the kernel never asks."""


def _every(plan: JoinPlan, data: JoinInput) -> int:
    """After how many arrivals it is chosen anew how far parts come in."""
    n = int(data.order.shape[0])
    return max(1, n // _CHOICES) if plan.preference == "asc" and n < _LEAST_ARRIVALS else st.CONTROL_EVERY


class _Input:
    """The arrivals of both streams in order, and what is known of them before they are looked at."""

    def __init__(self, plan: JoinPlan, data: JoinInput, salt: int, emitting: float) -> None:
        n = data.order.shape[0]
        self._data, self._window, self._salt = data, plan.window, salt
        codes, self._hashes = np.empty(n, np.int32), np.empty(n, np.uint64)
        for side, encoded in enumerate((data.left, data.right)):
            mine = data.order == side
            codes[mine], self._hashes[mine] = encoded.codes, encoded.hashes
        self.has_key = codes >= 0
        spent = np.rint(UNIT * data.costs) - UNIT * (plan.costs.insert + plan.costs.lookup)
        self.matches = np.maximum(0.0, spent / emitting) * self.has_key
        self.wanted, self.most = self.matches, self.matches
        self.frequent, self.is_few = np.zeros(0, np.int8), np.zeros(0, bool)
        self.keyed = self.has_key  # of those that are reckoned with
        self.preference = st.DESC  # by which parts are chosen
        if plan.preference == "asc":
            self.most = self.matches * (self.matches < plan.outlier_cap)
            self.wanted = likely_outliers(self.matches, data.order, plan.outlier_cap)
            self.frequent = np.searchsorted(plan.outlier_cap * _LEVELS, self.matches, side="left").astype(np.int8)
            self.is_few = np.zeros(n, bool)
            self.keyed = self.has_key & (self.frequent == 0)
            if float(self.wanted.sum()) < _NEARLY_ALL * float(self.matches.sum()):
                self.preference = st.ASC
                count = self.matches + matches_before(self.matches, codes, data.order, data.times(), plan.window)
                self.is_few = count < plan.outlier_cap
        self.ends = (np.arange(1, _SEGMENTS + 1) * n) // _SEGMENTS
        self.segment = np.searchsorted(self.ends, np.arange(n), side="right")

    def __len__(self) -> int:
        return int(self.keyed.shape[0])

    def by_segment(self, of: Array) -> Array:
        """Sums of a figure of each arrival: float64 [segments]."""
        return np.bincount(self.segment, weights=of, minlength=_SEGMENTS)

    def parts_of(self, at: Array) -> Array:
        """The part of the key space of arrivals: int64 [m]."""
        out = np.empty(at.shape[0], np.int64)
        learning_kernels.slots_of(self._hashes[at], self._salt, out)
        return out

    def by_part(self, at: Array, parts: Array, of: Array) -> Array:
        """Sums of a figure of arrivals `at`: float64 [parts, segments]."""
        place = parts * _SEGMENTS + self.segment[at]
        return np.bincount(place, weights=of, minlength=_PARTS * _SEGMENTS).reshape(_PARTS, _SEGMENTS)

    def costs_of_all(self, taking: float, state: st.State) -> Array:
        """What all tuples that are no more frequent cost from the begin of each segment on, with their outliers.

        float64 [levels, segments + 1].
        """
        levels = len(_LEVELS) if self.frequent.shape[0] else 0
        out = np.zeros((levels, _SEGMENTS + 1))
        emitting = float(state.prices[st.P_EMIT]) * self.by_segment(self.most)
        for level in range(levels):
            comes = self.has_key & (self.frequent <= level)
            looking = float(state.real[st.BOUNDS]) * self.by_segment(comes & (self.matches > 0.0))
            out[level, :-1] = np.cumsum((taking * self.by_segment(comes) + looking + emitting)[::-1])[::-1]
        return out

    def sampled(self, many: int) -> Array:
        """Of so many arrivals at random those reckoned with: int64 [m].  They are part of any larger sample."""
        at = np.sort(np.argpartition(self._luck, many - 1)[:many])
        return at[self.keyed[at]]

    @cached_property
    def completing(self) -> Array:
        """Arrivals that complete pairs, asc: the likeliest to be outliers first; else at random: int64 [m]."""
        chance = self.wanted / np.maximum(1.0, self.matches)
        at = np.flatnonzero(chance > 0.0)
        return at[np.lexsort((self._luck[at], chance[at] <= _LIKELY * chance.max()))]

    @cached_property
    def _luck(self) -> Array:
        return mixed(np.arange(len(self), dtype=np.uint64) + np.uint64(self._salt + 3))

    @cached_property
    def every(self) -> tuple[Array, Array]:
        """All arrivals that are reckoned with, and the part of the key space of each: int64 [m] twice."""
        at = np.flatnonzero(self.keyed)
        return at, self.parts_of(at)

    def seen(self, many: int) -> Seen:
        """What a sample of so many arrivals tells."""
        at = self.sampled(many)
        parts, within = self.parts_of(at), self.within(at)
        matches = self.matches[at]
        evened = matches * (within.mean() / within) if at.shape[0] else within
        return Seen(
            self.by_part(at, parts, np.ones(at.shape[0])), self.by_part(at, parts, matches),
            self.by_part(at, parts, evened).sum(axis=1), self.by_segment(self.keyed), self.by_segment(self.matches),
        )  # fmt: skip

    def is_met(self, many: int) -> bool:
        """Whether a sample of so many arrivals that complete pairs tells more of them than tuples at random do.

        Those meet heavy keys by themselves, and where many tuples complete pairs, many of these.
        """
        there, pairs = self.completing.shape[0], float(self.wanted.sum())
        is_sparse = there < _SPARSE * len(self) and pairs < _TWICE * there
        return bool(is_sparse or many >= _MET * (pairs - there))

    def met(self, many: int) -> tuple[Array, Array]:
        """So many of the arrivals that complete pairs, and what they seem to complete: float64 [parts, segments]."""
        at = self.completing[:many]
        parts = self.parts_of(at)
        return self.by_part(at, parts, np.ones(at.shape[0])), self.by_part(at, parts, self.wanted[at])

    def ages(self, borders: Array) -> tuple[Array, Array]:
        """How far back each granularity reaches, int64 [g] ns, the last one all of the window; the share of pairs.

        borders: int64 [g], where granularities end.  Partners lie evenly in a window, and in streams without one.
        """
        reach = np.append(borders[:-1], st.FOREVER)
        if self._window is not None:
            reach = np.append(np.minimum(borders[:-1], self._window), self._window)
            return reach, (reach + 1.0) / (self._window + 1.0)
        times = self._data.times()
        part = np.minimum(1.0, reach / max(1.0, float(times[-1] - times[0])))
        return reach, 1.0 - (1.0 - part) ** 2

    @property
    def window_share(self) -> float:
        """The share of the input that a window holds in the mean."""
        at = self.sampled(min(_SEGMENTS * _SEGMENTS, len(self)))
        return float(self.within(at).mean()) / max(1.0, 0.5 * len(self)) if at.shape[0] else 1.0

    def within(self, at: Array) -> Array:
        """How many tuples of the other stream lie in the window before arrivals: float64 [m], at least 1."""
        data, out = self._data, np.ones(at.shape[0])
        times = data.times()[at]
        for side, ts in enumerate((data.right_ts, data.left_ts)):
            mine = data.order[at] == side
            before = np.cumsum(data.order != side)[at[mine]]
            since = 0 if self._window is None else np.searchsorted(ts, times[mine] - self._window, side="left")
            out[mine] = np.maximum(1, before - since)
        return out


def _pay(state: st.State, cost: float) -> None:
    state.real[st.CREDIT] -= cost
    state.real[st.SPENT] += cost
    state.real[st.SPENT_INSERT] += cost


def _planned(given: _Input, state: st.State, taking: float, total: float, ages: tuple[Array, Array]) -> Ranked:
    """The parts in their order: by a sample, where the budget pays for one and not for every tuple.

    ages: `share` and `fades` as `nile.preferences.best_first.ranked` takes them.
    """
    emitting, update = float(state.prices[st.P_EMIT]), float(state.prices[st.P_UPDATE])
    preference = given.preference
    learning, looking = _LEARNING[preference] * total, update + _choosing(state, _PARTS)
    if preference == st.ASC:
        emitting += float(state.real[st.BOUNDS])  # the tuple's own list may be looked up as well
    tuples, pairs = given.by_segment(given.keyed), given.by_segment(given.wanted)
    none, counted = np.zeros((_PARTS, _SEGMENTS)), np.zeros(_PARTS, bool)
    most = 0
    if taking * tuples.sum() + emitting * given.most.sum() > total:
        most = min(len(given) // _LEAST_SHARE[preference], _ENOUGH)
    many = int(min(most, learning / looking))
    if not many:
        expected = expected_of(Seen(none, none, none[:, 0], tuples, pairs))
        return ranked(expected, taking, emitting, counted, *ages, float(state.real[st.CREDIT]))
    seen = given.seen(many)
    telling = np.count_nonzero(is_telling(seen)) / many  # of the rest, which stay where they are, more are affordable
    seen = given.seen(int(min(most, learning / (update + telling * _choosing(state, _PARTS)))))
    times, told, expected = seen.tuples.sum(axis=1), is_telling(seen), expected_of(seen)
    looked = float(times.sum())
    meeting = int(min(_ENOUGH, _MEETING * total / looking))
    if preference == st.ASC or given.is_met(meeting):
        met, found = given.met(meeting)
        looked, told = looked + float(met.sum()), told | met.any(axis=1)
        expected = completed(expected, times, met, found, pairs)
    if preference == st.ASC:
        expected = _without_heavy(expected, times, given.window_share * expected.tuples.sum(axis=1), state)
    choices = int(np.count_nonzero(told))
    _pay(state, update * looked + _choosing(state, choices) * choices)
    if preference == st.DESC:
        counted = _worth_counting(given, expected, times, taking, state)
        expected = _counted(given, expected, counted)
    return ranked(expected, taking, emitting, counted, *ages, float(state.real[st.CREDIT]))


def _without_heavy(expected: Expected, times: Array, in_window: Array, state: st.State) -> Expected:
    """The same, where parts that hold a heavy key, and few tuples of the other stream, promise no outliers.

    in_window: float64 [parts], tuples of both streams that a window is expected to hold.
    """
    firm = times >= _TWICE
    surely = in_window * (1.0 - 1.0 / np.sqrt(np.maximum(1.0, times)))  # less a standard error
    usual = float(in_window[~firm].mean()) if not firm.all() else 0.0
    heavy = firm & (surely - usual > _TWICE * state.setting[st.CAP])
    return expected._replace(each=np.where(heavy, 0.0, expected.each))


def _choosing(state: st.State, parts: int) -> float:
    """What a part costs when so many are sorted, as when slots are chosen: a scan and the steps of a sort."""
    return float(state.prices[st.P_SCAN] + state.prices[st.P_ADD] * math.log2(max(2, parts)))


def _worth_counting(given: _Input, expected: Expected, times: Array, taking: float, state: st.State) -> Array:
    """Which parts are counted whole, which is paid for: bool [parts]."""
    update = float(state.prices[st.P_UPDATE])
    size = expected.tuples.sum(axis=1)
    matches = expected.pairs.sum(axis=1) / np.maximum(1e-9, size)
    dear = taking + float(state.prices[st.P_EMIT]) * matches
    order = np.argsort(-expected.each, kind="stable")
    order = order[(times[order] >= _TWICE) & (update <= _NEXT_TO_NOTHING * dear[order])]
    order = order[np.cumsum(update * size[order]) <= _COUNTING * state.real[st.CREDIT]]
    counted = np.zeros(_PARTS, bool)
    if order.shape[0]:
        have = np.bincount(given.every[1], minlength=_PARTS)[order]
        most = _COUNTING_MOST * float(state.real[st.CREDIT])
        cost = np.cumsum(update * have)
        counted[order[cost <= most]] = True
        _pay(state, min(most, float(cost[-1])))
    return counted


def _counted(given: _Input, expected: Expected, counted: Array) -> Expected:
    """The same, where parts that were counted have what they have."""
    if not counted.any():
        return expected
    at, parts = given.every
    mine = counted[parts]
    at, parts = at[mine], parts[mine]
    tuples, pairs = given.by_part(at, parts, np.ones(at.shape[0])), given.by_part(at, parts, given.matches[at])
    each = pairs.sum(axis=1) / np.maximum(1.0, tuples.sum(axis=1))
    rows = counted[:, None]
    return Expected(
        np.where(rows, tuples, expected.tuples), np.where(rows, pairs, expected.pairs),
        np.where(counted, each, expected.each),
    )  # fmt: skip
