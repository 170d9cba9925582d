"""The promising join of `method="nile"`: one kernel, three preferences, two guides.

Design.  A tuple passes the door (a level of key hashes), enters its stream's summary and tuple list, and asks
the guide how many matches each region of the other stream promises.  Promising regions wait in the bucket
queue; the best is drained whenever credit is left.  desc takes the densest region first, asc the rarest key,
weighted every region but only each 1/p-th match of it.
Cost.  Everything is paid for when it happens, and begun only when it can be paid: spending never passes what
was granted.  Zones turn when a turn can be paid.  Over shared stores insertion and summaries are others'.
Source: promising tuples, Figure 7; DESIGN section 3 for where and why this differs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.common_kernels import (
    emit_entry,
    held_at,
    kept_share,
    passed,
    pay_hit,
    pay_insert,
    since_of,
    take_arrival,
    unit,
)
from nile.operators.control_kernels import adjust_door, allow, cushion, is_outputs_turn, picks_slots, see, slot_of
from nile.operators.guide_kernels import densest_regions, is_heavy, rare_region, sampled_region
from nile.operators.state import (
    ACTIVE,
    ADDS_PAID,
    ADMITTED,
    APPLIED,
    ARENA_FULL,
    ARRIVED,
    ARRIVED_BY_SIDE,
    ASC,
    BACKLOG,
    BOUNDS,
    CONTROL_EVERY,
    COUNTSKETCH,
    COVERED,
    CREDIT,
    DESC,
    DONE,
    DOOR,
    ENTRANCE,
    ENTRY_GAP,
    ENTRY_HIGH,
    ENTRY_LOW,
    ENTRY_ORDINAL,
    ENTRY_SIDE,
    ENTRY_STEP,
    ENTRY_TIME,
    ENTRY_WEIGHT,
    EXPIRED,
    FORCED,
    GUIDE,
    LEAST_POPPED,
    NOW_TS,
    NULLS,
    OUTPUT_FULL,
    OUTPUTS,
    P_ADD,
    P_EMIT,
    P_INSERT,
    P_LOOKUP,
    P_POP,
    P_SCAN,
    P_UPDATE,
    PER_ARRIVAL,
    PREFERENCE,
    QUEUE_FULL,
    RESOLVED,
    SALT,
    SAVED,
    SEQUENCE,
    SHARE,
    SHARED,
    SHED,
    SHED_BY_SIDE,
    SLICE_COST,
    SPENT,
    SPENT_TAKING,
    STOPPED_CODE,
    STOPPED_SIDE,
    TURN,
    TURN_COST,
    TURN_WANTED,
    UNRESOLVED,
    WAITING,
    WEIGHTED,
    Output,
    State,
)
from preferences import queue_kernels as queue
from preferences.queue_kernels import Queue
from pyramid.arrays import ADDS, DETECTOR_BITS, FORGETTING, KEPT_FROM, SLICE_COUNT, VISIBLE, Side
from pyramid.grid_kernels import reach, slice_end, summarize
from pyramid.list_kernels import append, is_full, make_room, rank_from, rank_since
from summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]
_TAKEN, _WAITS, _NO_ARENA = 0, 1, 2
_MANY = 64  # tuples a slice must have for the detector to look at it
_TURN_WORTH = 64.0
_SAVING = 4096.0  # tuples over which a turn is saved up for


@part
def _pay_adds(s: Side, side: int, st: State) -> None:
    """Charge the counters that slice ends and turns have added since last time, savings first."""
    added = s.zone[ADDS] - st.whole[ADDS_PAID + side]
    if added > 0 and not st.setting[SHARED]:
        st.whole[ADDS_PAID + side] = s.zone[ADDS]
        cost = st.prices[P_ADD] * added
        saved = min(cost, st.real[SAVED])
        st.real[SAVED] -= saved
        pay_insert(st, cost - saved)


@part
def _is_sparse(st: State) -> bool:
    """Whether a turn costs more than `_TURN_WORTH` arrivals are granted: then it is saved up for."""
    return st.real[TURN_COST] > _TURN_WORTH * st.real[PER_ARRIVAL]  # type: ignore[no-any-return]


@part
def _refuse(st: State, side: int) -> None:
    st.whole[SHED] += 1
    st.whole[SHED_BY_SIDE + side] += 1


@part
def _take(own: Side, other: Side, side: int, st: State, q: Queue) -> int:
    """The oldest waiting tuple: through the door, into summary and list, its regions into the queue."""
    w = st.whole
    real = st.real
    ordinal = w[SEQUENCE + side]
    at = held_at(own, ordinal)
    code = own.code[at]
    ts = own.ts[at]
    asc = st.setting[PREFERENCE] == ASC
    shared = st.setting[SHARED] != 0
    if shared:
        own.meta[VISIBLE] = ordinal + 1
    if code < 0:
        w[NULLS] += 1
        return _TAKEN
    if shared and (st.left_door if side == 0 else st.right_door)[ordinal] == 0.0:
        _refuse(st, side)
        return _TAKEN
    desc = st.setting[PREFERENCE] == DESC
    level = 0.0
    slot = 0
    by_slot = picks_slots(st)
    if by_slot:
        slot = slot_of(own.hash[at], st)
        if st.open[slot] == 0:
            see(slot, side, ordinal, st)
            _refuse(st, side)
            return _TAKEN
    else:
        level = unit(own.hash[at], st.setting[SALT])
        if level >= real[DOOR]:
            _refuse(st, side)
            return _TAKEN
    if real[CREDIT] < real[ENTRANCE] or is_outputs_turn(st, q.control[queue.SIZE]):
        if w[ARRIVED] - w[APPLIED] <= st.setting[WAITING]:
            return _WAITS
        _refuse(st, side)
        w[FORCED] += 1
        if by_slot:
            see(slot, side, ordinal, st)
        if asc and not shared:
            st.shed_at[code] = ts
        return _TAKEN
    if not shared and is_full(own, code) and not make_room(own, code):
        w[STOPPED_SIDE] = side
        w[STOPPED_CODE] = code
        return _NO_ARENA
    if by_slot:
        see(slot, side, ordinal, st)
    before = real[SPENT]
    w[ADMITTED] += 1
    if st.setting[PREFERENCE] == WEIGHTED and not shared:
        doors = st.left_door if side == 0 else st.right_door
        doors[ordinal] = real[DOOR]
    if own.spec[FORGETTING]:
        real[COVERED] += kept_share(other, ts, st)
    if st.setting[GUIDE] == COUNTSKETCH and not shared:
        summarize(own, ordinal, ts, own.hash[at])
        pay_insert(st, st.prices[P_UPDATE] * (own.counters.shape[1] + own.detector.shape[0]))
        if w[TURN_WANTED + side] and _is_sparse(st):
            share = st.real[TURN_COST] / _SAVING
            st.real[SAVED] += share
            pay_insert(st, share)
    if asc and is_heavy(own, other, ordinal, code, ts, st):
        if st.setting[GUIDE] != COUNTSKETCH:
            pay_insert(st, st.prices[P_LOOKUP])
        if not shared:
            st.shed_at[code] = ts
        _refuse(st, side)
    else:
        if not shared:
            append(own, code, ordinal)
            pay_insert(st, st.prices[P_INSERT])
        if asc:
            rare_region(own, other, side, ordinal, code, ts, level, st, q)
        elif desc:
            densest_regions(own, other, side, ordinal, code, ts, st, q)
        else:
            sampled_region(own, other, side, ordinal, code, ts, level, st, q)
    cost = real[SPENT] - before
    real[SPENT_TAKING] += cost
    allow(-cost, st)
    return _TAKEN


@part
def _close_slice(s: Side, side: int, ts: int, st: State) -> None:
    """At a slice end: let the detector look, if that can be paid and the slice holds enough to see."""
    if s.zone[SLICE_COUNT] < _MANY or st.real[CREDIT] < st.real[SLICE_COST]:
        return
    if slice_end(s, ts):
        st.whole[TURN_WANTED + side] = 1
    _pay_adds(s, side, st)


@part
def _resolve(own: Side, other: Side, st: State) -> None:
    """Look up which ranks of the key's list the entry in progress covers: positions that were there when made."""
    w = st.whole
    ordinal = w[ENTRY_ORDINAL]
    at = held_at(own, ordinal)
    code = own.code[at]
    low = rank_from(other, code, max(w[ENTRY_LOW], other.zone[KEPT_FROM]))
    low = max(low, rank_since(other, code, since_of(own.ts[at], st.window[0])))
    high = rank_from(other, code, w[ENTRY_HIGH])
    w[ENTRY_LOW] = low
    w[ENTRY_HIGH] = max(low, high)
    w[ACTIVE] = RESOLVED if high > low else 0
    pay_hit(st, st.real[BOUNDS])


@part
def _has_passed(ts: int, st: State) -> bool:
    """Whether the window of a tuple at `ts` lies behind the stream.

    What weighted promised is paid late rather than dropped: it stands for others.
    """
    if st.setting[PREFERENCE] == WEIGHTED:
        return False
    return ts < since_of(st.whole[NOW_TS], st.window[0])


@part
def _forgo(n: int, gap: float, step: float, st: State) -> None:
    """Count an entry that is dropped: its outputs are no longer promised."""
    st.whole[EXPIRED] += 1
    if gap < n:
        st.real[BACKLOG] = max(0.0, st.real[BACKLOG] - math.ceil((n - gap) / step))


@part
def _sweep(st: State, q: Queue) -> None:
    """Drop entries whose window has passed, oldest first, as far as credit lasts."""
    w = st.whole
    real = st.real
    if w[ACTIVE] and _has_passed(w[ENTRY_TIME], st):
        _forgo(w[ENTRY_HIGH] - w[ENTRY_LOW], real[ENTRY_GAP], real[ENTRY_STEP], st)
        w[ACTIVE] = 0
    for klass in range(queue.CLASSES):
        at = q.ends[klass, 1]
        while at >= 0 and real[CREDIT] >= st.prices[P_SCAN] and _has_passed(q.entry[at, queue.TIME], st):
            pay_hit(st, st.prices[P_SCAN])
            queue.unlink(q, at)
            n = q.entry[at, queue.HIGH] - q.entry[at, queue.LOW]
            _forgo(n, q.real[at, queue.GAP], q.real[at, queue.STEP], st)
            at = q.ends[klass, 1]


@part
def _drain(left: Side, right: Side, st: State, q: Queue, out: Output) -> bool:
    """Spend what credit is left on the best regions; False when the output is full."""
    w = st.whole
    real = st.real
    prices = st.prices
    floor = cushion(st)
    if w[APPLIED] < w[ARRIVED] and is_outputs_turn(st, q.control[queue.SIZE]):
        floor = 0.0
    if (w[TURN_WANTED] or w[TURN_WANTED + 1]) and not _is_sparse(st):
        floor += real[TURN_COST]
    while True:
        if w[ACTIVE] == 0:
            if q.control[queue.SIZE] == 0 or real[CREDIT] - prices[P_POP] - real[BOUNDS] - prices[P_EMIT] < floor:
                return True
            at = queue.pop(q, st.setting[PREFERENCE] != DESC)
            pay_hit(st, prices[P_POP])
            w[LEAST_POPPED] = min(w[LEAST_POPPED], q.entry[at, queue.CLASS])
            n = q.entry[at, queue.HIGH] - q.entry[at, queue.LOW]
            if _has_passed(q.entry[at, queue.TIME], st):
                _forgo(n, q.real[at, queue.GAP], q.real[at, queue.STEP], st)
                continue
            w[ENTRY_SIDE] = q.entry[at, queue.SIDE]
            w[ENTRY_ORDINAL] = q.entry[at, queue.ORDINAL]
            w[ENTRY_TIME] = q.entry[at, queue.TIME]
            w[ENTRY_LOW] = q.entry[at, queue.LOW]
            w[ENTRY_HIGH] = q.entry[at, queue.HIGH]
            w[ACTIVE] = q.entry[at, queue.RESOLVED]
            real[ENTRY_GAP] = q.real[at, queue.GAP]
            real[ENTRY_STEP] = q.real[at, queue.STEP]
            real[ENTRY_WEIGHT] = q.real[at, queue.WEIGHT]
        if w[ACTIVE] == UNRESOLVED:
            if real[CREDIT] - real[BOUNDS] - prices[P_EMIT] < floor:
                return True
            if w[ENTRY_SIDE] == 0:
                _resolve(left, right, st)
            else:
                _resolve(right, left, st)
            if w[ACTIVE] == 0:
                continue
        written = w[OUTPUTS]
        room = (
            emit_entry(left, right, st, out, floor) if w[ENTRY_SIDE] == 0 else emit_entry(right, left, st, out, floor)
        )
        real[BACKLOG] = max(0.0, real[BACKLOG] - (w[OUTPUTS] - written))
        if not room:
            return False
        if w[ACTIVE]:
            return True


@part
def _newest(left: Side, right: Side, side: int, st: State) -> int:
    """ts of the newest arrival, which came from `side`."""
    at = st.whole[ARRIVED_BY_SIDE + side] - 1
    return left.ts[held_at(left, at)] if side == 0 else right.ts[held_at(right, at)]  # type: ignore[no-any-return]


@kernel
def promise(
    left: Side, right: Side, order: Array, grant: Array, end: int, limit: int, st: State, q: Queue, out: Output
) -> int:
    """Run the promising join up to arrival `end`; returns why it stopped (`nile.operators.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; limit: places the queue may grow to.
    """
    w = st.whole
    regions = max(left.gran.shape[0], 1)
    shared = st.setting[SHARED] != 0
    _pay_adds(left, 0, st)
    _pay_adds(right, 1, st)
    while True:
        if not _drain(left, right, st, q, out):
            return OUTPUT_FULL
        for side in range(2):
            if w[TURN_WANTED + side] and st.real[CREDIT] + st.real[SAVED] >= st.real[TURN_COST]:
                w[TURN_WANTED + side] = 0
                w[STOPPED_SIDE] = side
                return TURN
        if w[APPLIED] < w[ARRIVED]:
            if q.entry.shape[0] - q.control[queue.SIZE] < regions and q.entry.shape[0] < limit:
                return QUEUE_FULL
            side = order[w[APPLIED]]
            what = _take(left, right, 0, st, q) if side == 0 else _take(right, left, 1, st, q)
            if what == _NO_ARENA:
                return ARENA_FULL
            if what == _TAKEN:
                ordinal = w[SEQUENCE + side]
                passed(st, side)
                if side == 0:
                    ts = left.ts[held_at(left, ordinal)]
                    w[NOW_TS] = ts
                    if not shared and reach(left, ordinal, ts) and left.spec[DETECTOR_BITS] != 0:
                        _close_slice(left, 0, ts, st)
                else:
                    ts = right.ts[held_at(right, ordinal)]
                    w[NOW_TS] = ts
                    if not shared and reach(right, ordinal, ts) and right.spec[DETECTOR_BITS] != 0:
                        _close_slice(right, 1, ts, st)
                continue
        if w[ARRIVED] == end:
            return DONE
        idle = w[ACTIVE] == 0 and w[APPLIED] == w[ARRIVED] and q.control[queue.SIZE] == 0
        take_arrival(st, grant, idle)
        allow(st.real[SHARE] * grant[w[ARRIVED] - 1], st)
        w[ARRIVED_BY_SIDE + order[w[ARRIVED] - 1]] += 1
        if w[ARRIVED] % CONTROL_EVERY == 0:
            adjust_door(st, q.control[queue.SIZE], _newest(left, right, order[w[ARRIVED] - 1], st))
            _sweep(st, q)
