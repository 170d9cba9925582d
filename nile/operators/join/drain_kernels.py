"""Spending credit on what waits: the entry in progress, then the best of the queue; what has expired goes.

Cost.  A pop, looking bounds up and each output are charged when they happen, and begun only when credit also
pays what they lead to: entries wait until a first output of theirs can be paid.
Source: promising tuples, Figure 7, steps 4 and 5; DESIGN section 3.
"""

from __future__ import annotations

from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.admission_kernels import cushion
from nile.preferences.arrival_kernels import emit_entry, held_at, pay_hit, since_of
from nile.preferences.level_kernels import is_outputs_turn
from nile.preferences.queue_kernels import Queue
from nile.preferences.state import Output, State
from nile.preferences.upkeep_kernels import forgo_queued, has_passed, is_sparse
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import rank_from, rank_since
from nile.summaries.kernels import inlined, part


@part
def _resolve(own: Side, other: Side, st: State) -> None:
    """Look up which ranks of the key's list the entry in progress covers: positions that were there when made."""
    w = st.whole
    ordinal = w[js.ENTRY_ORDINAL]
    at = held_at(own, ordinal)
    code = own.code[at]
    low = rank_from(other, code, max(w[js.ENTRY_LOW], other.zone[ga.KEPT_FROM]))
    low = max(low, rank_since(other, code, since_of(own.ts[at], st.window[0])))
    high = rank_from(other, code, w[js.ENTRY_HIGH])
    w[js.ENTRY_LOW] = low
    w[js.ENTRY_HIGH] = max(low, high)
    w[js.ACTIVE] = js.RESOLVED if high > low else 0
    pay_hit(st, st.real[js.BOUNDS])


@inlined
def _floor(st: State, entries: int) -> float:
    """Credit that outputs leave alone: for taking in the next tuple, unless it is theirs, and for a turn."""
    w = st.whole
    floor = cushion(st)
    if w[js.APPLIED] < w[js.ARRIVED] and is_outputs_turn(st, entries):
        floor = 0.0
    if (w[js.TURN_WANTED] or w[js.TURN_WANTED + 1]) and not is_sparse(st):
        floor += st.real[js.TURN_COST]
    return floor


@inlined
def can_drain(st: State, entries: int) -> bool:
    """Whether something waits that credit can begin to pay: asked at every step, where `drain` would cost a call."""
    if st.whole[js.ACTIVE] == 0 and entries == 0:
        return False
    left = st.real[js.CREDIT]
    if st.whole[js.ACTIVE] == 0:
        left -= st.prices[js.P_POP]
    if st.whole[js.ACTIVE] != js.RESOLVED:
        left -= st.real[js.BOUNDS]
    left -= st.prices[js.P_EMIT]
    return left >= 0.0 and left >= _floor(st, entries)  # type: ignore[no-any-return]


@part
def drain(left: Side, right: Side, st: State, q: Queue, out: Output) -> bool:
    """Spend what credit is left on the best regions; False when the output is full."""
    w = st.whole
    real = st.real
    prices = st.prices
    floor = _floor(st, q.control[queue.SIZE])
    while True:
        if w[js.ACTIVE] == 0:
            if (
                q.control[queue.SIZE] == 0
                or real[js.CREDIT] - prices[js.P_POP] - real[js.BOUNDS] - prices[js.P_EMIT] < floor
            ):
                return True
            at = queue.pop(q, st.setting[js.PREFERENCE] != js.DESC)
            pay_hit(st, prices[js.P_POP])
            w[js.LEAST_POPPED] = min(w[js.LEAST_POPPED], q.entry[at, queue.CLASS])
            if has_passed(q.entry[at, queue.TIME], st):
                forgo_queued(q, at, st)
                continue
            w[js.ENTRY_SIDE] = q.entry[at, queue.SIDE]
            w[js.ENTRY_ORDINAL] = q.entry[at, queue.ORDINAL]
            w[js.ENTRY_TIME] = q.entry[at, queue.TIME]
            w[js.ENTRY_LOW] = q.entry[at, queue.LOW]
            w[js.ENTRY_HIGH] = q.entry[at, queue.HIGH]
            w[js.ACTIVE] = q.entry[at, queue.RESOLVED]
            real[js.ENTRY_GAP] = q.real[at, queue.GAP]
            real[js.ENTRY_STEP] = q.real[at, queue.STEP]
            real[js.ENTRY_WEIGHT] = q.real[at, queue.WEIGHT]
            real[js.SERVED] += q.real[at, queue.PROMISE]
        if w[js.ACTIVE] == js.UNRESOLVED:
            if real[js.CREDIT] - real[js.BOUNDS] - prices[js.P_EMIT] < floor:
                return True
            if w[js.ENTRY_SIDE] == 0:
                _resolve(left, right, st)
            else:
                _resolve(right, left, st)
            if w[js.ACTIVE] == 0:
                continue
        written = w[js.OUTPUTS]
        room = (
            emit_entry(left, right, st, out, floor)
            if w[js.ENTRY_SIDE] == 0
            else emit_entry(right, left, st, out, floor)
        )
        real[js.BACKLOG] = max(0.0, real[js.BACKLOG] - (w[js.OUTPUTS] - written))
        if not room:
            return False
        if w[js.ACTIVE]:
            return True
