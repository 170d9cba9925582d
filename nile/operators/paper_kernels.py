"""`method="paper"`: JOIN-PROBE as Figure 7 prints it.

Design.  A tuple of S1 (1) goes into S1's summaries, (2, 3) visits the zones of every granularity of S2 that
intersects the window and puts one entry a zone into the priority queue, (4) probes from the queue until the
next tuple arrives.  What the print leaves open:
- The index prunes a zone whose upper bound for the key is 0, and nothing else.
- PQ.Probe() scans the cell (value bucket x zone) of its first entry in arrival order, over the positions that
  were there when the entry was made.  A zone that the window cuts is entered at its first tuple inside, by
  one look-up.  An entry leaves the queue, for one heap pop, when its cell is done.
- The entries of the current arrival go before older ones, which are revisited when the engine is idle; one
  whose tuple has left the window is dropped when it comes up.
- weighted divides the time by stride scheduling: a turn is TURN tuples looked at (or the rest of the cell),
  and the next turn is that of the least (turns had + 1) / priority.
- Ties go to the earlier arrival, then to the later zone.
Cost.  Steps 1 to 3, slice ends and COLLAPSE cannot be interrupted: what they cost beyond the credit in hand
is a debt, and nothing else happens until later grants have paid it.  Tuples that arrive meanwhile wait (under
a replay) or are shed.  So spending never passes what was granted.  Step 1, slice ends and COLLAPSE are t_ins;
the rest is t_hit.
Source: promising tuples, sections 3 and 4.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common_kernels import (
    held_at,
    kept_share,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    since_of,
    take_arrival,
)
from nile.operators.scan_kernels import scan
from nile.operators.state import (
    ADDS_PAID,
    ADMITTED,
    APPLIED,
    ARENA_FULL,
    ARRIVED,
    COVERED,
    CREDIT,
    DONE,
    EXPIRED,
    FORCED,
    NOW_TS,
    NULLS,
    OUTPUT_FULL,
    P_ADD,
    P_EMIT,
    P_ESTIMATE,
    P_HEAP,
    P_INSERT,
    P_LOOKUP,
    P_PUSH,
    P_SCAN,
    P_UPDATE,
    PREFERENCE,
    QUEUE_FULL,
    REGIONS,
    SEQUENCE,
    SHED,
    SHED_BY_SIDE,
    STOPPED_SIDE,
    TURN,
    WAITING,
    WRITTEN,
    Output,
    State,
)
from nile.operators.visit_kernels import bucket_of, is_sketched, visit
from preferences import heap_kernels as queue
from preferences.heap_kernels import Heap
from pyramid.arrays import (
    ADDS,
    FORGETTING,
    KEPT_FROM,
    Side,
)
from pyramid.grid_kernels import reach, slice_end, summarize
from pyramid.list_kernels import ordinal_at, rank_from, rank_since
from summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]

TURN_LENGTH = 16
"""weighted: tuples looked at in one turn."""

# `debt`: what is owed for work that could not be interrupted.
OF_INSERT, OF_HIT = 0, 1
DEBT_FIELDS = 2

_TAKEN, _NO_ARENA = 0, 1


@part
def _pay_debt(st: State, debt: Array) -> bool:
    """Pay what the credit reaches; True when nothing is owed."""
    if debt[OF_INSERT] > 0.0:
        amount = min(st.real[CREDIT], debt[OF_INSERT])
        debt[OF_INSERT] -= amount
        pay_insert(st, amount)
    if debt[OF_HIT] > 0.0:
        amount = min(st.real[CREDIT], debt[OF_HIT])
        debt[OF_HIT] -= amount
        pay_hit(st, amount)
    return bool(debt[OF_INSERT] == 0.0 and debt[OF_HIT] == 0.0)


@part
def _owe_adds(s: Side, side: int, st: State, debt: Array) -> None:
    """Owe for the counters that slice ends and turns have added since last time."""
    debt[OF_INSERT] += st.prices[P_ADD] * (s.zone[ADDS] - st.whole[ADDS_PAID + side])
    st.whole[ADDS_PAID + side] = s.zone[ADDS]


@part
def _take(own: Side, other: Side, side: int, st: State, q: Heap, debt: Array) -> int:
    """Steps 1 to 3 for the oldest waiting tuple."""
    w = st.whole
    prices = st.prices
    ordinal = w[SEQUENCE + side]
    at = held_at(own, ordinal)
    if own.code[at] < 0:
        w[NULLS] += 1
        return _TAKEN
    h = own.hash[at]
    ts = own.ts[at]
    if not put_in_list(own, side, bucket_of(own, h), ordinal, st):
        return _NO_ARENA
    debt[OF_INSERT] += prices[P_INSERT]
    if is_sketched(own):
        summarize(own, ordinal, ts, h)
        debt[OF_INSERT] += prices[P_UPDATE] * (own.counters.shape[1] + own.recent.shape[0])
    made = w[REGIONS]
    reads = visit(other, h, side, ordinal, ts, st, q)
    debt[OF_HIT] += prices[P_ESTIMATE] * (own.counters.shape[1] * reads) + prices[P_PUSH] * (w[REGIONS] - made)
    w[ADMITTED] += 1
    if own.spec[FORGETTING]:
        st.real[COVERED] += kept_share(other, ts, st)
    return _TAKEN


@part
def _look(own: Side, other: Side, at: int, st: State, q: Heap, out: Output) -> bool:
    """PQ.Probe() on the entry at place `at`, until its cell or its turn is done; False when credit or room runs out."""
    entry = q.entry
    ordinal = entry[at, queue.ORDINAL]
    held = held_at(own, ordinal)
    bucket = bucket_of(own, own.hash[held])
    high = rank_from(other, bucket, entry[at, queue.HIGH])
    if entry[at, queue.CUT]:
        if st.real[CREDIT] < st.prices[P_LOOKUP]:
            return False
        pay_hit(st, st.prices[P_LOOKUP])
        entry[at, queue.CUT] = 0
        rank = rank_since(other, bucket, since_of(own.ts[held], st.window[0]))
        entry[at, queue.LOW] = ordinal_at(other, bucket, rank) if rank < high else entry[at, queue.HIGH]
    low = rank_from(other, bucket, max(entry[at, queue.LOW], other.zone[KEPT_FROM]))
    if low >= high:
        entry[at, queue.LOW] = entry[at, queue.HIGH]
        return True
    end = high
    if st.setting[PREFERENCE] == queue.WEIGHTED:
        end = min(high, low + TURN_LENGTH - entry[at, queue.SEEN])
    reached = scan(other, bucket, own.code[held], entry[at, queue.SIDE], ordinal, low, end, st, out)
    entry[at, queue.SEEN] += reached - low
    entry[at, queue.LOW] = ordinal_at(other, bucket, reached) if reached < high else entry[at, queue.HIGH]
    return bool(reached == end)


@part
def _probe(left: Side, right: Side, st: State, q: Heap, out: Output) -> bool:
    """Step 4: probe until the credit, which ends with the next arrival, is used up; False when the output is full."""
    w = st.whole
    while True:
        found = queue.best(q)
        if found < 0:
            return True
        at = q.place[found]
        pop = np.floor(0.5 + st.prices[P_HEAP] * queue.steps_of(queue.entries(q)))
        expired = q.entry[at, queue.TIME] < since_of(w[NOW_TS], st.window[0])
        if not expired:
            done = (
                _look(left, right, at, st, q, out)
                if q.entry[at, queue.SIDE] == 0
                else _look(right, left, at, st, q, out)
            )
            if not done:
                enough = st.real[CREDIT] >= st.prices[P_SCAN] + st.prices[P_EMIT]
                return not (enough and w[WRITTEN] == out.first.shape[0])
        if st.real[CREDIT] < pop:
            return True
        pay_hit(st, pop)
        if expired:
            w[EXPIRED] += 1
            queue.drop(q, found)
        elif q.entry[at, queue.LOW] >= q.entry[at, queue.HIGH]:
            queue.drop(q, found)
        else:
            q.entry[at, queue.TURNS] += 1
            q.entry[at, queue.SEEN] = 0
            priority = q.real[at, queue.PRIORITY]
            q.real[at, queue.KEY] = queue.key_of(priority, q.entry[at, queue.TURNS], queue.WEIGHTED)
            queue.put_back(q)


@part
def _pass(s: Side, side: int, st: State, debt: Array) -> bool:
    """The oldest waiting tuple is dealt with, taken or shed; True when zones must turn."""
    ordinal = st.whole[SEQUENCE + side]
    passed(st, side)
    ts = s.ts[held_at(s, ordinal)]
    st.whole[NOW_TS] = ts
    if not (reach(s, ordinal, ts) and is_sketched(s)):
        return False
    turning = slice_end(s, ts)
    _owe_adds(s, side, st, debt)
    return turning


@kernel
def join_probe(
    left: Side,
    right: Side,
    order: Array,
    grant: Array,
    end: int,
    zones: int,
    st: State,
    q: Heap,
    debt: Array,
    out: Output,
) -> int:
    """Run JOIN-PROBE for both streams up to arrival `end`; returns why it stopped (`nile.operators.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; zones: the most entries an arrival
    can make; debt: float64 [2].
    """
    w = st.whole
    _owe_adds(left, 0, st, debt)
    _owe_adds(right, 1, st, debt)
    while True:
        free = _pay_debt(st, debt)
        waiting = w[ARRIVED] - w[APPLIED]
        if waiting > 0 and (free or waiting > st.setting[WAITING]):
            queue.demote(q)
            side = order[w[APPLIED]]
            if not free:
                w[SHED] += 1
                w[SHED_BY_SIDE + side] += 1
                w[FORCED] += 1
            else:
                if q.place.shape[0] - q.control[queue.WAITING] < zones:
                    return QUEUE_FULL
                what = _take(left, right, 0, st, q, debt) if side == 0 else _take(right, left, 1, st, q, debt)
                if what == _NO_ARENA:
                    return ARENA_FULL
            turning = _pass(left, 0, st, debt) if side == 0 else _pass(right, 1, st, debt)
            if turning:
                w[STOPPED_SIDE] = side
                return TURN
            continue
        if free and not _probe(left, right, st, q, out):
            return OUTPUT_FULL
        if w[ARRIVED] == end:
            return DONE
        take_arrival(st, grant, free and queue.entries(q) == 0)
