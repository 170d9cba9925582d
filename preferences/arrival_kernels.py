"""Pieces that the join operators share: the clock's arrivals, windows and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.state import Clocked, Output, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import append, end_rank, is_full, make_room, ordinal_at, rank_since
from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, inlined, part

Array = np.ndarray[Any, Any]
_LOWEST = -0x7FFFFFFFFFFFFFFF


@inlined
def pay_insert(st: Clocked, cost: float) -> None:
    """Charge work that taking a tuple in costs (t_ins)."""
    st.real[js.CREDIT] -= cost
    st.real[js.SPENT] += cost
    st.real[js.SPENT_INSERT] += cost


@inlined
def pay_hit(st: Clocked, cost: float) -> None:
    """Charge work that finding and emitting outputs costs (t_hit)."""
    st.real[js.CREDIT] -= cost
    st.real[js.SPENT] += cost
    st.real[js.SPENT_HIT] += cost


@inlined
def since_of(ts: int, window: int) -> int:
    """The oldest time that a tuple at `ts` joins with, without running off the ends of int64."""
    if ts < _LOWEST + window:
        return _LOWEST
    return ts - window


@inlined
def unit(h: Any, salt: int) -> float:
    """A number in [0, 1) that depends on the key alone: all streams keep or drop a key alike."""
    return np.float64(mix(h, salt) >> U8(11)) * (1.0 / 9007199254740992.0)


@inlined
def take_arrival(st: Clocked, grant: Array, idle: bool) -> None:
    """The next tuple has arrived: its grant is added; under a replay credit that found no work expires."""
    if st.setting[js.REPLAYED] and idle and st.real[js.CREDIT] > 0.0:
        st.real[js.CREDIT] = 0.0
    amount = grant[st.whole[js.ARRIVED] - st.whole[js.ARRIVALS_GONE]]
    st.real[js.CREDIT] += amount
    st.real[js.GRANTED] += amount
    st.whole[js.ARRIVED] += 1


@inlined
def passed(st: State, side: int) -> None:
    """The oldest waiting tuple has been dealt with."""
    st.whole[js.SEQUENCE + side] += 1
    st.whole[js.APPLIED] += 1


@part
def window_ranks(s: Side, code: int, ts: int, window: int, kept_from: int) -> tuple[int, int]:
    """Ranks [low, high) of a key's tuples that a probe at `ts` may join with: in its window, not forgotten."""
    high = end_rank(s, code)
    low = rank_since(s, code, since_of(ts, window))
    while low < high and ordinal_at(s, code, low) < kept_from:
        low += 1
    return low, high


@inlined
def held_at(s: Side, ordinal: int) -> int:
    """Where a tuple stands in the flat arrays."""
    return ordinal - s.meta[ga.BASE]  # type: ignore[no-any-return]


@part
def kept_share(s: Side, ts: int, st: Clocked) -> float:
    """The share of a probe's window, in time, that a store has not forgotten."""
    first = s.zone[ga.KEPT_FROM]
    if first == 0 or first < s.meta[ga.BASE]:  # nothing is forgotten, or only what is older than any window
        return 1.0
    if first >= s.zone[ga.NEXT]:
        return 0.0
    oldest = s.ts[held_at(s, first)]
    if oldest <= since_of(ts, st.window[0]):
        return 1.0
    return float(np.float64(ts - oldest) / np.float64(max(1, st.window[0])))


@part
def put_in_list(s: Side, side: int, code: int, ordinal: int, st: State) -> bool:
    """Append to the key's tuple list; False, with the key noted, when the arena must grow first."""
    if is_full(s, code) and not make_room(s, code):
        st.whole[js.STOPPED_SIDE] = side
        st.whole[js.STOPPED_CODE] = code
        return False
    append(s, code, ordinal)
    return True


@inlined
def make_entry(st: State, side: int, ordinal: int, ts: int, low: int, high: int, weight: float) -> None:
    """Put a region, ranks [low, high) of the other stream's list, into the register: the entry in progress."""
    w = st.whole
    w[js.REGIONS] += 1
    w[js.ACTIVE] = js.RESOLVED
    w[js.ENTRY_SIDE] = side
    w[js.ENTRY_ORDINAL] = ordinal
    w[js.ENTRY_TIME] = ts
    w[js.ENTRY_LOW] = low
    w[js.ENTRY_HIGH] = high
    st.real[js.ENTRY_GAP] = 0.0
    st.real[js.ENTRY_STEP] = 1.0
    st.real[js.ENTRY_WEIGHT] = weight


@part
def emit_entry(own: Side, other: Side, st: State, out: Output, floor: float) -> bool:
    """Emit from the entry in progress while the credit stays at `floor` or above; False when the output is full.

    A sampled entry emits the match at floor(gap), then moves gap on by step; step 1 emits every match. A sampled pair
    stands for 1 / the lowest of the admission thresholds its tuples came through: all were open to its key when the
    lowest was.  An entry whose weight is more than step has an admission threshold of its own, step / weight.  Under
    ranges the whole entry is one record.  Each output is charged by itself: sums of prices must not depend on where a
    full output interrupted.
    """
    w = st.whole
    real = st.real
    price = st.prices[js.P_EMIT]
    side = w[js.ENTRY_SIDE]
    ordinal = w[js.ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    low = w[js.ENTRY_LOW]
    n = w[js.ENTRY_HIGH] - low
    room = out.first.shape[0]
    step = real[js.ENTRY_STEP]
    gap = real[js.ENTRY_GAP]
    weight = real[js.ENTRY_WEIGHT]
    at = w[js.WRITTEN]
    begin = at
    more = True
    full = False
    credit = real[js.CREDIT]
    spent = real[js.SPENT]
    spent_hit = real[js.SPENT_HIT]
    begin_of_list = other.lists[code, ga.PLACE] - other.lists[code, ga.GONE] + low
    ranges = st.setting[js.RANGES] != 0
    sampled = st.setting[js.PREFERENCE] == js.WEIGHTED and st.left_admission.shape[0] > 0 and not ranges
    left_gone, right_gone = w[js.ADMISSIONS_GONE], w[js.ADMISSIONS_GONE + 1]
    admission = 1.0
    if sampled:
        own_admission = (
            st.left_admission[ordinal - left_gone] if side == 0 else st.right_admission[ordinal - right_gone]
        )
        admission = min(step / weight, own_admission)
    while gap < n:
        if credit - price < floor:
            more = False
            break
        if at == room:
            more = False
            full = True
            break
        if ranges:
            out.first[at] = 2 * ordinal + side
            out.second[at] = low
            out.third[at] = low + n
            gap = np.float64(n)
        else:
            match = other.arena[begin_of_list + min(np.int64(gap), n - 1)]
            out.first[at] = ordinal if side == 0 else match
            out.second[at] = match if side == 0 else ordinal
            gap += step
            if sampled:
                met = st.right_admission[match - right_gone] if side == 0 else st.left_admission[match - left_gone]
                weight = step / min(admission, met)
        out.weight[at] = weight
        credit -= price
        spent += price
        spent_hit += price
        at += 1
    w[js.WRITTEN] = at
    w[js.OUTPUTS] += at - begin
    real[js.CREDIT] = credit
    real[js.SPENT] = spent
    real[js.SPENT_HIT] = spent_hit
    real[js.ENTRY_GAP] = gap
    if more:
        w[js.ACTIVE] = 0
    return not full
