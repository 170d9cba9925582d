"""The promising join of `method="nile"`: one kernel, three preferences, two guides.

Design.  A tuple passes admission (a level of key hashes), enters its stream's summary and tuple list, and asks
the guide how many matches each region of the other stream promises.  Promising regions wait in the bucket
queue; the best is drained whenever credit is left.  desc takes the densest region first, asc the rarest key,
weighted every region but only each 1/p-th match of it.
Cost.  Everything is paid for when it happens, and begun only when it can be paid: spending never passes what
was granted.  Zones turn when a turn can be paid.  Over shared stores insertion and summaries are others'.
Source: promising tuples, Figure 7; DESIGN section 3 for where and why this differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.join.drain_kernels import can_drain, drain
from nile.operators.join.guide_kernels import (
    ALONE,
    HEAVY,
    LIGHT,
    densest_regions,
    rare_region,
    sampled_region,
    weigh,
)
from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.admission_kernels import adjust_admission
from nile.preferences.arrival_kernels import held_at, kept_share, passed, pay_insert, take_arrival, unit
from nile.preferences.level_kernels import allow, can_keep_all, is_outputs_turn
from nile.preferences.queue_kernels import Queue
from nile.preferences.slot_kernels import is_thinned, picks_slots, save_up, see, slot_of
from nile.preferences.state import Output, State
from nile.preferences.upkeep_kernels import close_slice, count_in, is_worth_a_turn, pay_adds, sweep
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import reach
from nile.pyramid.grid.list_kernels import append, is_full, make_room
from nile.summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer
_DEALT_WITH, _WAITS, _COMES_IN = 0, 1, 2


@part
def _refuse(st: State, side: int) -> None:
    st.whole[js.SHED] += 1
    st.whole[js.SHED_BY_SIDE + side] += 1


@inlined
def _meet(side: int, ordinal: int, code: int, ts: int, h: Word, entries: int, st: State) -> int:
    """The oldest waiting tuple at admission: it is let in, waits for credit, or has been dealt with.

    Takes its fields alone, not the Side: most tuples of a small budget get no further.
    """
    w = st.whole
    real = st.real
    if code < 0:
        w[js.NULLS] += 1
        return _DEALT_WITH
    shared = st.setting[js.SHARED] != 0
    if shared and (st.left_admission if side == 0 else st.right_admission)[ordinal] == 0.0:
        _refuse(st, side)
        return _DEALT_WITH
    by_slot = picks_slots(st)
    slot = slot_of(h, st) if by_slot else 0
    if by_slot and (st.open[slot] == 0 or is_thinned(2 * ordinal + side, st)):
        see(slot, side, ordinal, st)
        _refuse(st, side)
        if st.setting[js.PREFERENCE] == js.ASC:
            st.shed_at[code] = ts
        return _DEALT_WITH
    if not by_slot and unit(h, st.setting[js.SALT]) >= real[js.ADMISSION]:
        _refuse(st, side)
        return _DEALT_WITH
    if real[js.CREDIT] < real[js.ENTRANCE] or is_outputs_turn(st, entries):
        if w[js.ARRIVED] - w[js.APPLIED] <= st.setting[js.WAITING]:
            return _WAITS
        _refuse(st, side)
        w[js.FORCED] += 1
        if by_slot:
            see(slot, side, ordinal, st)
        if st.setting[js.PREFERENCE] == js.ASC and not shared:
            st.shed_at[code] = ts
        return _DEALT_WITH
    return _COMES_IN


@part
def _take_in(own: Side, other: Side, side: int, ordinal: int, st: State, q: Queue) -> bool:
    """A tuple that was let in: into summary and list, its regions into the queue; False when the arena must grow."""
    w = st.whole
    real = st.real
    at = held_at(own, ordinal)
    code = own.code[at]
    ts = own.ts[at]
    preference = st.setting[js.PREFERENCE]
    shared = st.setting[js.SHARED] != 0
    level = unit(own.hash[at], st.setting[js.SALT])
    if not shared and is_full(own, code) and not make_room(own, code):
        w[js.STOPPED_SIDE] = side
        w[js.STOPPED_CODE] = code
        return False
    before = real[js.SPENT]
    w[js.ADMITTED] += 1
    if preference == js.WEIGHTED and not shared:
        admissions = st.left_admission if side == 0 else st.right_admission
        admissions[ordinal - w[js.ADMISSIONS_GONE + side]] = real[js.ADMISSION]
    if own.spec[ga.FORGETTING]:
        real[js.COVERED] += kept_share(other, ts, st)
    if st.setting[js.GUIDE] == js.COUNTSKETCH and not shared:
        count_in(own, side, ordinal, ts, own.hash[at], st, is_worth_a_turn(own, side, st))
    said = LIGHT
    if preference == js.ASC and not can_keep_all(st, st.prices[js.P_INSERT] + 3.0 * st.real[js.BOUNDS]):
        said = weigh(own, other, ordinal, code, ts, st)
    if said == HEAVY:
        if not shared:
            st.shed_at[code] = ts
        _refuse(st, side)
    else:
        if not shared:
            append(own, code, ordinal)
            pay_insert(st, st.prices[js.P_INSERT])
        if said == ALONE:
            w[js.PRUNED] += 1
        elif preference == js.ASC:
            rare_region(own, other, side, ordinal, code, ts, level, st, q)
        elif preference == js.DESC:
            densest_regions(own, other, side, ordinal, code, ts, st, q)
        else:
            sampled_region(own, other, side, ordinal, code, ts, level, st, q)
    cost = real[js.SPENT] - before
    real[js.SPENT_TAKING] += cost
    allow(-cost, st)
    if picks_slots(st):
        see(slot_of(own.hash[at], st), side, ordinal, st)
    return True


@part
def _newest(left: Side, right: Side, side: int, st: State) -> int:
    """ts of the newest arrival, which came from `side`."""
    at = st.whole[js.ARRIVED_BY_SIDE + side] - 1
    return left.ts[held_at(left, at)] if side == 0 else right.ts[held_at(right, at)]  # type: ignore[no-any-return]


@kernel
def promise(
    left: Side, right: Side, order: Array, grant: Array, end: int, limit: int, st: State, q: Queue, out: Output
) -> int:
    """Run the promising join up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; both from arrival `ARRIVALS_GONE` on; limit:
    places the queue may grow to.
    """
    w = st.whole
    gone = w[js.ARRIVALS_GONE]
    regions = max(left.gran.shape[0], 1)
    shared = st.setting[js.SHARED] != 0
    for stream in range(2):
        pay_adds(left if stream == 0 else right, stream, st)
    while True:
        if can_drain(st, q.control[queue.SIZE]) and not drain(left, right, st, q, out):
            return js.OUTPUT_FULL
        for stream in range(2):
            if w[js.TURN_WANTED + stream] and st.real[js.CREDIT] + st.real[js.SAVED] >= st.real[js.TURN_COST]:
                w[js.TURN_WANTED + stream] = 0
                w[js.STOPPED_SIDE] = stream
                return js.TURN
        if w[js.APPLIED] < w[js.ARRIVED]:
            if q.entry.shape[0] - q.control[queue.SIZE] < regions and q.entry.shape[0] < limit:
                return js.QUEUE_FULL
            side: Any = np.int64(order[w[js.APPLIED] - gone])
            ordinal = w[js.SEQUENCE + side]
            if side == 0:
                at = held_at(left, ordinal)
                code, ts, h = left.code[at], left.ts[at], left.hash[at]
            else:
                at = held_at(right, ordinal)
                code, ts, h = right.code[at], right.ts[at], right.hash[at]
            if shared:
                (left.meta if side == 0 else right.meta)[ga.VISIBLE] = ordinal + 1
            what = _meet(side, ordinal, code, ts, h, q.control[queue.SIZE], st)
            if what == _COMES_IN:
                # `side`, not 0 and 1: numba would compile each number's own copy of all that is below.
                taken = (
                    _take_in(left, right, side, ordinal, st, q)
                    if side == 0
                    else _take_in(right, left, side, ordinal, st, q)
                )
                if not taken:
                    return js.ARENA_FULL
            if what != _WAITS:
                passed(st, side)
                w[js.NOW_TS] = ts
                if not shared:
                    if side == 0 and reach(left, ordinal, ts) and left.spec[ga.DETECTOR_BITS] != 0:
                        close_slice(left, side, ts, st, is_worth_a_turn(left, side, st))
                    elif side == 1 and reach(right, ordinal, ts) and right.spec[ga.DETECTOR_BITS] != 0:
                        close_slice(right, side, ts, st, is_worth_a_turn(right, side, st))
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        idle = w[js.ACTIVE] == 0 and w[js.APPLIED] == w[js.ARRIVED] and q.control[queue.SIZE] == 0
        if idle:
            save_up(st)
        take_arrival(st, grant, idle)
        allow(st.real[js.SHARE] * grant[w[js.ARRIVED] - gone - 1], st)
        newest: Any = np.int64(order[w[js.ARRIVED] - gone - 1])
        w[js.ARRIVED_BY_SIDE + newest] += 1
        if w[js.ARRIVED] % js.CONTROL_EVERY == 0:
            adjust_admission(st, q.control[queue.SIZE], _newest(left, right, newest, st))
            sweep(w[js.ENTRY_HIGH] - w[js.ENTRY_LOW], st, q)
