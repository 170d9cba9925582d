"""Spending credit on what waits: the entry in progress, then the best of the queue; what has expired goes.

Cost.  A pop, looking bounds up and each output are charged when they happen, and begun only when credit also
pays what they lead to: entries wait until a first output of theirs can be paid.
Source: promising tuples, Figure 7, steps 4 and 5; DESIGN section 3.
"""

from __future__ import annotations

import math

from nile.operators.common.arrival_kernels import emit_entry, held_at, pay_hit, since_of
from nile.operators.common.control_kernels import cushion
from nile.operators.common.level_kernels import is_outputs_turn
from nile.operators.common.state import (
    ACTIVE,
    APPLIED,
    ARRIVED,
    BACKLOG,
    BOUNDS,
    CREDIT,
    DESC,
    ENTRY_GAP,
    ENTRY_HIGH,
    ENTRY_LOW,
    ENTRY_ORDINAL,
    ENTRY_SIDE,
    ENTRY_STEP,
    ENTRY_TIME,
    ENTRY_WEIGHT,
    EXPIRED,
    LEAST_POPPED,
    NOW_TS,
    OUTPUTS,
    P_EMIT,
    P_POP,
    P_SCAN,
    PER_ARRIVAL,
    PREFERENCE,
    RESOLVED,
    SERVED,
    TURN_COST,
    TURN_WANTED,
    UNRESOLVED,
    WEIGHTED,
    Output,
    State,
)
from preferences import queue_kernels as queue
from preferences.queue_kernels import Queue
from pyramid.grid.arrays import KEPT_FROM, Side
from pyramid.grid.list_kernels import rank_from, rank_since
from summaries.kernels import inlined, part

_TURN_WORTH = 64.0  # arrivals: a turn that costs no more than they are granted is paid at once


@part
def is_sparse(st: State) -> bool:
    """Whether a turn costs more than `_TURN_WORTH` arrivals are granted: then it is saved up for."""
    return st.real[TURN_COST] > _TURN_WORTH * st.real[PER_ARRIVAL]  # type: ignore[no-any-return]


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
def sweep(st: State, q: Queue) -> None:
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


@inlined
def _floor(st: State, entries: int) -> float:
    """Credit that outputs leave alone: for taking in the next tuple, unless it is theirs, and for a turn."""
    w = st.whole
    floor = cushion(st)
    if w[APPLIED] < w[ARRIVED] and is_outputs_turn(st, entries):
        floor = 0.0
    if (w[TURN_WANTED] or w[TURN_WANTED + 1]) and not is_sparse(st):
        floor += st.real[TURN_COST]
    return floor


@inlined
def can_drain(st: State, entries: int) -> bool:
    """Whether something waits that credit can begin to pay: asked at every step, where `drain` would cost a call."""
    if st.whole[ACTIVE] == 0 and entries == 0:
        return False
    left = st.real[CREDIT]
    if st.whole[ACTIVE] == 0:
        left -= st.prices[P_POP]
    if st.whole[ACTIVE] != RESOLVED:
        left -= st.real[BOUNDS]
    left -= st.prices[P_EMIT]
    return left >= 0.0 and left >= _floor(st, entries)  # type: ignore[no-any-return]


@part
def drain(left: Side, right: Side, st: State, q: Queue, out: Output) -> bool:
    """Spend what credit is left on the best regions; False when the output is full."""
    w = st.whole
    real = st.real
    prices = st.prices
    floor = _floor(st, q.control[queue.SIZE])
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
            real[SERVED] += q.real[at, queue.PROMISE]
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
