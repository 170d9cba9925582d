"""`method="paper"`: JOIN-PROBE as Figure 7 prints it, for one standing query or many over the same two streams.

Design.  A tuple of S1 (1) goes into S1's summaries, once for all queries.  For each query it (2, 3) visits the
zones of every granularity of S2 that intersects the query's window and puts one entry a zone into the query's
priority queue.  Then (4) the queues are probed until the next tuple arrives.  What the print leaves open:
- The index prunes a zone whose upper bound for the key is 0, and nothing else.
- PQ.Probe() scans the cell (value bucket x zone) of its first entry in arrival order, over the positions that
  were there when the entry was made.  A zone that the window cuts is entered at its first tuple inside, by
  one look-up.  An entry leaves the queue, for one heap pop, when its cell is done.
- One queue: the best entry goes first, whosever it is, so that a preference orders all that waits.  Under queue
  "own" the entries of the current arrival go before older ones, which are revisited when the engine is idle.
  An entry whose tuple has left the window is dropped when it comes up.
- weighted divides the time by stride scheduling: a turn is TURN tuples looked at (or the rest of the cell),
  and the next turn is that of the least (turns had + 1) / priority.
- Ties go to the earlier arrival, then to the later zone.
And with several queries:
- Every query visits for itself, and is charged for it: windows, preferences and fades differ, and Figure 7 is
  one query's procedure.
- Round robin: a query's turn is one PQ.Probe(), the only unit the print has.  Handing on costs nothing.
- The turns go on where they stopped when a tuple arrives: a round that began anew with each arrival would
  starve the last queries of a busy engine.  A turn that the time-out interrupts is over, since the query would
  begin the next one with another entry, and with long cells nobody else would ever have one.
- A query without an entry is passed over, under queue "own" one without an entry of the current arrival while
  another has one.  When the query in turn cannot pay its next step, time is up for all.
Cost.  Steps 1 to 3, slice ends and COLLAPSE cannot be interrupted: what they cost beyond the credit in hand
is a debt, and nothing else happens until later grants have paid it.  Tuples that arrive meanwhile wait (under
a replay) or are shed, for all queries alike.  So spending never passes what was granted.  Step 1, slice ends
and COLLAPSE are t_ins; the rest is t_hit.
Source: promising tuples, sections 3 and 4.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.standing_kernels import (
    NOBODY,
    OF_COVERED,
    OF_EXPIRED,
    OF_OUTPUTS,
    OF_PRUNED,
    OF_REGIONS,
    OF_SPENT,
    Standing,
    all_idle,
    end_turn,
    state_of,
    take_turn,
)
from nile.operators.opponents.scan_kernels import scan
from nile.operators.opponents.visit_kernels import bucket_of, is_sketched, visit
from nile.preferences import heap_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    held_at,
    kept_share,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    since_of,
    take_arrival,
)
from nile.preferences.heap_kernels import Heap, Heaps, heap_of
from nile.preferences.state import Output, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import reach, slice_end, summarize
from nile.pyramid.grid.list_kernels import ordinal_at, rank_from, rank_since
from nile.summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]

TURN_LENGTH = 16
"""weighted: tuples looked at in one turn."""

# `debt`: what is owed for work that could not be interrupted.
OF_INSERT, OF_HIT = 0, 1
DEBT_FIELDS = 2

_TAKEN, _NO_ARENA = 0, 1
_PROBED, _EXPIRED, _TIME_OUT, _NO_ROOM = 0, 1, 2, 3


@part
def _pay_debt(st: State, debt: Array) -> bool:
    """Pay what the credit reaches; True when nothing is owed."""
    if debt[OF_INSERT] > 0.0:
        amount = min(st.real[js.CREDIT], debt[OF_INSERT])
        debt[OF_INSERT] -= amount
        pay_insert(st, amount)
    if debt[OF_HIT] > 0.0:
        amount = min(st.real[js.CREDIT], debt[OF_HIT])
        debt[OF_HIT] -= amount
        pay_hit(st, amount)
    return bool(debt[OF_INSERT] == 0.0 and debt[OF_HIT] == 0.0)


@part
def _owe_adds(s: Side, side: int, st: State, debt: Array) -> None:
    """Owe for the counters that slice ends and turns have added since last time."""
    debt[OF_INSERT] += st.prices[js.P_ADD] * (s.zone[ga.ADDS] - st.whole[js.ADDS_PAID + side])
    st.whole[js.ADDS_PAID + side] = s.zone[ga.ADDS]


@part
def _take(own: Side, other: Side, side: int, st: State, standing: Standing, heaps: Heaps, debt: Array) -> int:
    """Step 1 for the oldest waiting tuple, then steps 2 and 3 for each query."""
    w = st.whole
    prices = st.prices
    ordinal = w[js.SEQUENCE + side]
    at = held_at(own, ordinal)
    if own.code[at] < 0:
        w[js.NULLS] += 1
        return _TAKEN
    h = own.hash[at]
    ts = own.ts[at]
    if not put_in_list(own, side, bucket_of(own, h), ordinal, st):
        return _NO_ARENA
    debt[OF_INSERT] += prices[js.P_INSERT]
    if is_sketched(own):
        summarize(own, ordinal, ts, h)
        debt[OF_INSERT] += prices[js.P_UPDATE] * (own.counters.shape[1] + own.recent.shape[0])
    queries = standing.window.shape[0]
    for query in range(queries):
        mine = state_of(st, standing, query)
        made = w[js.REGIONS]
        pruned = w[js.PRUNED]
        reads = visit(other, h, side, ordinal, ts, mine, heap_of(heaps, query))
        made = w[js.REGIONS] - made
        cost = prices[js.P_ESTIMATE] * (own.counters.shape[1] * reads) + prices[js.P_PUSH] * made
        debt[OF_HIT] += cost
        standing.real[query, OF_SPENT] += cost
        standing.counts[query, OF_REGIONS] += made
        standing.counts[query, OF_PRUNED] += w[js.PRUNED] - pruned
        if own.spec[ga.FORGETTING]:
            share = kept_share(other, ts, mine)
            standing.real[query, OF_COVERED] += share
            st.real[js.COVERED] += share / queries
    w[js.ADMITTED] += 1
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
        if st.real[js.CREDIT] < st.prices[js.P_LOOKUP]:
            return False
        pay_hit(st, st.prices[js.P_LOOKUP])
        entry[at, queue.CUT] = 0
        rank = rank_since(other, bucket, since_of(own.ts[held], st.window[0]))
        entry[at, queue.LOW] = ordinal_at(other, bucket, rank) if rank < high else entry[at, queue.HIGH]
    low = rank_from(other, bucket, max(entry[at, queue.LOW], other.zone[ga.KEPT_FROM]))
    if low >= high:
        entry[at, queue.LOW] = entry[at, queue.HIGH]
        return True
    end = high
    if st.setting[js.PREFERENCE] == queue.WEIGHTED:
        end = min(high, low + TURN_LENGTH - entry[at, queue.SEEN])
    reached = scan(other, bucket, own.code[held], entry[at, queue.SIDE], ordinal, low, end, st, out)
    entry[at, queue.SEEN] += reached - low
    entry[at, queue.LOW] = ordinal_at(other, bucket, reached) if reached < high else entry[at, queue.HIGH]
    return bool(reached == end)


@part
def _turn(left: Side, right: Side, st: State, q: Heap, out: Output) -> int:
    """PQ.Probe() for one query, whose state and queue these are; says how it ended."""
    found = queue.best(q)
    at = q.place[found]
    pop = np.floor(0.5 + st.prices[js.P_HEAP] * queue.steps_of(queue.entries(q)))
    expired = q.entry[at, queue.TIME] < since_of(st.whole[js.NOW_TS], st.window[0])
    if not expired:
        done = (
            _look(left, right, at, st, q, out) if q.entry[at, queue.SIDE] == 0 else _look(right, left, at, st, q, out)
        )
        if not done:
            enough = st.real[js.CREDIT] >= st.prices[js.P_SCAN] + st.prices[js.P_EMIT]
            return _NO_ROOM if enough and st.whole[js.WRITTEN] == out.first.shape[0] else _TIME_OUT
    if st.real[js.CREDIT] < pop:
        return _TIME_OUT
    pay_hit(st, pop)
    if expired:
        st.whole[js.EXPIRED] += 1
        queue.drop(q, found)
        return _EXPIRED
    if q.entry[at, queue.LOW] >= q.entry[at, queue.HIGH]:
        queue.drop(q, found)
    else:
        q.entry[at, queue.TURNS] += 1
        q.entry[at, queue.SEEN] = 0
        priority = q.real[at, queue.PRIORITY]
        q.real[at, queue.KEY] = queue.key_of(priority, q.entry[at, queue.TURNS], queue.WEIGHTED)
        queue.put_back(q, found)
    return _PROBED


@part
def _probe(left: Side, right: Side, st: State, standing: Standing, heaps: Heaps, out: Output) -> bool:
    """Step 4: probe in turn until the credit, which ends with the next arrival, is used up.

    False when the output is full.
    """
    w = st.whole
    while True:
        query = take_turn(standing, heaps)
        if query == NOBODY:
            return True
        spent = st.real[js.SPENT_HIT]
        outputs = w[js.OUTPUTS]
        written = w[js.WRITTEN]
        how = _turn(left, right, state_of(st, standing, query), heap_of(heaps, query), out)
        # Probes cost whole numbers; the sum may not be one, where a debt was paid in parts.
        standing.real[query, OF_SPENT] += np.rint(st.real[js.SPENT_HIT] - spent)
        standing.counts[query, OF_OUTPUTS] += w[js.OUTPUTS] - outputs
        if out.third.shape[0] > 0:
            out.third[written : w[js.WRITTEN]] = query
        if how == _TIME_OUT:
            return True
        if how == _NO_ROOM:
            return False
        standing.counts[query, OF_EXPIRED] += np.int64(how == _EXPIRED)
        end_turn(standing)


@part
def _pass(s: Side, side: int, st: State, debt: Array) -> bool:
    """The oldest waiting tuple is dealt with, taken or shed; True when zones must turn."""
    ordinal = st.whole[js.SEQUENCE + side]
    passed(st, side)
    ts = s.ts[held_at(s, ordinal)]
    st.whole[js.NOW_TS] = ts
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
    standing: Standing,
    heaps: Heaps,
    debt: Array,
    out: Output,
) -> int:
    """Run JOIN-PROBE for both streams up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; zones: the most entries per arrival
    can make in one queue; debt: float64 [2].  out.third: the query of each output, where there is room for it.
    """
    w = st.whole
    _owe_adds(left, 0, st, debt)
    _owe_adds(right, 1, st, debt)
    while True:
        free = _pay_debt(st, debt)
        waiting = w[js.ARRIVED] - w[js.APPLIED]
        if waiting > 0 and (free or waiting > st.setting[js.WAITING]):
            for query in range(heaps.place.shape[0]):
                queue.demote(heap_of(heaps, query))
            side = order[w[js.APPLIED]]
            if not free:
                w[js.SHED] += 1
                w[js.SHED_BY_SIDE + side] += 1
                w[js.FORCED] += 1
            else:
                if heaps.place.shape[1] - queue.most_waiting(heaps) < zones:
                    return js.QUEUE_FULL
                what = (
                    _take(left, right, 0, st, standing, heaps, debt)
                    if side == 0
                    else _take(right, left, 1, st, standing, heaps, debt)
                )
                if what == _NO_ARENA:
                    return js.ARENA_FULL
            turning = _pass(left, 0, st, debt) if side == 0 else _pass(right, 1, st, debt)
            if turning:
                w[js.STOPPED_SIDE] = side
                return js.TURN
            continue
        if free and not _probe(left, right, st, standing, heaps, out):
            return js.OUTPUT_FULL
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, free and all_idle(heaps))
        end_turn(standing)
