"""The promising join of n streams on equal keys in one window: `method="nile"`.

Design.  When a tuple arrives, the combinations it completes are the product of the ranges of its key's tuples in the
other streams' windows: all of them lie inside one window with it, so every two of them do.  The rest is the join of
two streams (`promise_kernels`): an admission threshold for keys, regions in a bucket queue, everything paid for when
it happens and begun only when it can be paid. Cost.  A tuple: an insert, n - 1 look-ups, and an emit for each
combination, or one for their product under ranges. Source: promising tuples, Figure 7; DESIGN sections 2 (Outputs)
and 3; the paper joins two streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.multiway import state as ms
from nile.operators.multiway.common_kernels import (
    code_of,
    emit_entry,
    enter,
    has_room,
    insert,
    look_up,
    output_price,
    passed,
    settlement_due,
    standing,
    time_of,
)
from nile.operators.multiway.control_kernels import adjust_admission, cushion
from nile.operators.multiway.guide_kernels import (
    ALONE,
    HEAVY,
    LIGHT,
    Grids,
    densest_regions,
    rare_region,
    sampled_region,
    weigh,
)
from nile.operators.multiway.state import Output, State
from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import kept_share, pay_hit, since_of, take_arrival, unit
from nile.preferences.level_kernels import allow, can_keep_all, is_outputs_turn
from nile.preferences.queue_kernels import Queue
from nile.preferences.upkeep_kernels import (
    close_slice,
    count_in,
    forgo_queued,
    has_passed,
    is_sparse,
    pay_adds,
    sweep,
)
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import reach
from nile.pyramid.grid.list_kernels import rank_from, rank_since
from nile.summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]
_TAKEN, _WAITS, _NO_ARENA = 0, 1, 2


@part
def _is_idle(st: State, q: Queue) -> bool:
    """desc: whether nothing waits and there is credit to spare, so that a key above admission may come in too.

    No weight or count depends on admission then, and a heavy tuple often brings the credit that it needs.
    """
    if st.setting[js.PREFERENCE] != js.DESC or st.whole[js.ACTIVE] != 0 or q.control[queue.SIZE] > 0:
        return False
    return st.real[js.CREDIT] >= st.real[js.ENTRANCE] + cushion(st)  # type: ignore[no-any-return]


@part
def _take(s: Side, lent: Grids, hashes: Array, st: State, q: Queue, bounds: Array) -> int:
    """The oldest waiting tuple: through admission, into summary and list, its regions into the queue."""
    w = st.whole
    real = st.real
    a = w[js.APPLIED]
    code = code_of(s, a)
    ts = time_of(s, a)
    preference = st.setting[js.PREFERENCE]
    if code < 0:
        w[js.NULLS] += 1
        return _TAKEN
    stream = code % st.entry.shape[0]
    key = code // st.entry.shape[0]
    level = unit(hashes[key], st.setting[js.SALT])
    if level >= real[js.ADMISSION] and not _is_idle(st, q):
        st.shed[stream] += 1
        return _TAKEN
    if real[js.CREDIT] < real[js.ENTRANCE] or is_outputs_turn(st, q.control[queue.SIZE]):
        if w[js.ARRIVED] - w[js.APPLIED] <= st.setting[js.WAITING]:
            return _WAITS
        st.shed[stream] += 1
        if preference == js.ASC:
            st.shed_at[key] = ts
        return _TAKEN
    if not has_room(s, a, st):
        return _NO_ARENA
    before = real[js.SPENT]
    w[js.ADMITTED] += 1
    if preference == js.WEIGHTED:
        st.admissions[a - w[js.ADMISSIONS_GONE]] = real[js.ADMISSION]
    if s.spec[ga.FORGETTING]:
        real[js.COVERED] += kept_share(s, ts, st)
    if st.setting[js.GUIDE] == js.COUNTSKETCH:
        count_in(s, 0, a, ts, s.hash[a - s.meta[ga.BASE]], st, True)
    if preference == js.ASC:
        _take_rare(s, lent, hashes, a, level, st, q, bounds)
    else:
        insert(s, a, st)
        if preference == js.DESC:
            densest_regions(s, lent, hashes, a, st, q, bounds)
        else:
            sampled_region(s, lent, hashes, a, level, st, q, bounds)
    cost = real[js.SPENT] - before
    real[js.SPENT_TAKING] += cost
    allow(-cost, st)
    return _TAKEN


@part
def _take_rare(s: Side, lent: Grids, hashes: Array, a: int, level: float, st: State, q: Queue, bounds: Array) -> None:
    """asc: turn a heavy key away before insertion; of the others queue what they complete."""
    total = 0
    count = 0
    said = LIGHT
    if st.setting[js.GUIDE] == js.DIRECTORY:
        total = look_up(s, a, s.zone[ga.KEPT_FROM], True, st)
        count = standing(s, a, st) + 1
        taking = st.prices[js.P_INSERT] + (st.entry.shape[0] - 1) * st.prices[js.P_LOOKUP]
        said = HEAVY if count > 2 * st.setting[js.CAP] and not can_keep_all(st, taking) else LIGHT
    else:
        said = weigh(s, lent, hashes, a, st)
    if said == HEAVY:
        st.shed_at[code_of(s, a) // st.entry.shape[0]] = time_of(s, a)
        st.shed[code_of(s, a) % st.entry.shape[0]] += 1
        return
    insert(s, a, st)
    if said == ALONE:
        st.whole[js.PRUNED] += 1
        return
    if st.setting[js.GUIDE] != js.DIRECTORY:
        total = look_up(s, a, s.zone[ga.KEPT_FROM], True, st)
        count = standing(s, a, st)
    rare_region(s, a, level, total, count, st, q, bounds)


@part
def _resolve(s: Side, st: State) -> None:
    """Look up which ranks the entry in progress covers: arrivals that were there when it was made."""
    w = st.whole
    a = w[js.ENTRY_ORDINAL]
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    first = code_of(s, a) - own
    since = since_of(w[js.ENTRY_TIME], st.window[0])
    total = 1
    for k in range(n):
        if k == own:
            continue
        if total > 0:
            code = first + k
            low = rank_from(s, code, max(st.entry[k, 0], s.zone[ga.KEPT_FROM]))
            low = max(low, rank_since(s, code, since))
            high = max(low, rank_from(s, code, st.entry[k, 1]))
            st.entry[k, 0] = low
            st.entry[k, 1] = high
            total *= high - low
            pay_hit(st, st.prices[js.P_LOOKUP])
    w[ms.ENTRY_TOTAL] = total
    w[js.ACTIVE] = js.RESOLVED if total > 0 else 0


@part
def _next_entry(st: State, q: Queue, bounds: Array) -> bool:
    """Pop the best region into the register; False when its window has passed."""
    real = st.real
    at = queue.pop(q, st.setting[js.PREFERENCE] != js.DESC)
    pay_hit(st, st.prices[js.P_POP])
    if has_passed(q.entry[at, queue.TIME], st):
        forgo_queued(q, at, st)
        return False
    enter(q.entry[at, queue.ORDINAL], q.entry[at, queue.TIME], q.entry[at, queue.RESOLVED], q.entry[at, queue.HIGH], st)
    for k in range(st.entry.shape[0]):
        st.entry[k, 0] = bounds[at, k, 0]
        st.entry[k, 1] = bounds[at, k, 1]
    real[js.ENTRY_GAP] = q.real[at, queue.GAP]
    real[js.ENTRY_STEP] = q.real[at, queue.STEP]
    real[js.ENTRY_WEIGHT] = q.real[at, queue.WEIGHT]
    return True


@part
def _drain(s: Side, st: State, q: Queue, bounds: Array, out: Output) -> bool:
    """Spend what credit is left on the best regions; False when the output is full."""
    w = st.whole
    real = st.real
    lookups = st.prices[js.P_LOOKUP] * (st.entry.shape[0] - 1)
    floor = cushion(st)
    if w[js.APPLIED] < w[js.ARRIVED] and is_outputs_turn(st, q.control[queue.SIZE]):
        floor = 0.0
    if w[js.TURN_WANTED] and not is_sparse(st):
        floor += real[js.TURN_COST]
    least = lookups + output_price(st)
    while True:
        if w[js.ACTIVE] == 0:
            if q.control[queue.SIZE] == 0 or real[js.CREDIT] - st.prices[js.P_POP] - least < floor:
                return True
            if not _next_entry(st, q, bounds):
                continue
        if w[js.ACTIVE] == js.UNRESOLVED:
            if real[js.CREDIT] - least < floor:
                return True
            _resolve(s, st)
            if w[js.ACTIVE] == 0:
                continue
        written = w[js.OUTPUTS]
        room = emit_entry(s, st, out, floor)
        real[js.BACKLOG] = max(0.0, real[js.BACKLOG] - (w[js.OUTPUTS] - written))
        if not room:
            return False
        if w[js.ACTIVE]:
            return True


@part
def _after(s: Side, a: int, ts: int, st: State, q: Queue) -> None:
    """What follows every tuple: zones see its time, and now and then the detector and admission are looked at.

    Under weighted, where tuples wait, admission is looked at as they arrive.
    """
    w = st.whole
    if reach(s, a, ts) and s.spec[ga.DETECTOR_BITS] != 0 and st.setting[js.GUIDE] == js.COUNTSKETCH:
        close_slice(s, 0, ts, st, True)
    if w[js.APPLIED] % js.CONTROL_EVERY == 0 and st.setting[js.PREFERENCE] != js.WEIGHTED:
        adjust_admission(st, q.control[queue.SIZE], ts)
        sweep(w[ms.ENTRY_TOTAL], st, q)


@kernel
def promise(
    s: Side,
    lent: Grids,
    hashes: Array,
    grant: Array,
    end: int,
    limit: int,
    st: State,
    q: Queue,
    bounds: Array,
    out: Output,
) -> int:
    """Run the promising join up to arrival `end`; returns why it stopped (`nile.operators.multiway.state`).

    lent: of each stream the grid that others keep, if any do; hashes: uint64, of each key; grant: float64, of each
    arrival from `ARRIVALS_GONE` on; limit: places the queue may
    grow to; bounds: int64 [places, n, 2], the ranges of what waits.
    """
    w = st.whole
    regions = 1 + st.fades.shape[0] * (st.entry.shape[0] - 1)
    pay_adds(s, 0, st)
    while True:
        if not _drain(s, st, q, bounds, out):
            return js.OUTPUT_FULL
        if settlement_due(st):
            return ms.SETTLE
        if w[js.TURN_WANTED] and st.real[js.CREDIT] + st.real[js.SAVED] >= st.real[js.TURN_COST]:
            w[js.TURN_WANTED] = 0
            return js.TURN
        if w[js.APPLIED] < w[js.ARRIVED]:
            if q.entry.shape[0] - q.control[queue.SIZE] < regions and q.entry.shape[0] < limit:
                return js.QUEUE_FULL
            what = _take(s, lent, hashes, st, q, bounds)
            if what == _NO_ARENA:
                return js.ARENA_FULL
            if what == _TAKEN:
                a = w[js.APPLIED]
                passed(s, st)
                _after(s, a, time_of(s, a), st, q)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        idle = w[js.ACTIVE] == 0 and w[js.APPLIED] == w[js.ARRIVED] and q.control[queue.SIZE] == 0
        take_arrival(st, grant, idle)
        a = w[js.ARRIVED] - 1
        allow(st.real[js.SHARE] * grant[a - w[js.ARRIVALS_GONE]], st)
        if w[js.ARRIVED] % js.CONTROL_EVERY == 0 and st.setting[js.PREFERENCE] == js.WEIGHTED:
            adjust_admission(st, q.control[queue.SIZE], time_of(s, a))
