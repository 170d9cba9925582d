"""What any join does between tuples: pay for zones that turn, and drop what waits and whose window has passed.

Nothing here asks how many streams there are: an entry of the queue is worth HIGH - LOW outputs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import pay_hit, pay_insert, since_of, unit
from nile.preferences.queue_kernels import Queue
from nile.preferences.state import Clocked, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import put_in_zone, show, slice_end, slice_end_unseen
from nile.summaries.kernels import U8, part

Array = np.ndarray[Any, Any]
_TURN_WORTH = 64.0  # arrivals: a turn that costs no more than they are granted is paid at once
_SAVING = 4096.0  # tuples over which a turn is saved up for
_TURNING = 0.001  # of the grant, for the turns of a stream


@part
def count_in(s: Side, side: int, ordinal: int, ts: int, h: Any, st: Clocked, turns: bool) -> None:
    """A tuple into the summary that the operator keeps for itself, charged; the detector is shown a sample of them.

    turns: whether a zone that ended now would turn (`is_worth_a_turn`); else the detector need not look.
    """
    put_in_zone(s, ordinal, ts, h)
    rows = s.counters.shape[1]
    if s.detector.shape[0] == 0 or (unit(U8(2 * ordinal + side), st.setting[js.SALT] + 8) < js.SHOWN and turns):
        show(s, h)
        rows += s.detector.shape[0]
    pay_insert(st, st.prices[js.P_UPDATE] * rows)
    save_for_turn(side, st)


@part
def pay_adds(s: Side, side: int, st: Clocked) -> None:
    """Charge the counters that slice ends and turns of a store have added since last time, savings first."""
    added = s.zone[ga.ADDS] - st.whole[js.ADDS_PAID + side]
    if added > 0 and not st.setting[js.SHARED]:
        st.whole[js.ADDS_PAID + side] = s.zone[ga.ADDS]
        cost = st.prices[js.P_ADD] * added
        saved = min(cost, st.real[js.SAVED])
        st.real[js.SAVED] -= saved
        pay_insert(st, cost - saved)


@part
def close_slice(s: Side, side: int, ts: int, st: Clocked, turns: bool) -> None:
    """At a slice end: let the detector look, if that can be paid and it was shown enough; zones end by time besides."""
    shown = np.float64(s.zone[ga.SLICE_COUNT])
    every = 1.0 if s.detector.shape[0] == 0 else js.SHOWN
    if shown < every * js.LEAST_SHOWN or st.real[js.CREDIT] < st.real[js.SLICE_COST]:
        return
    ends = slice_end_unseen(s, ts) if shown < js.LEAST_SHOWN else slice_end(s, ts)
    if ends and turns:
        st.whole[js.TURN_WANTED + side] = 1
    pay_adds(s, side, st)


@part
def is_worth_a_turn(s: Side, side: int, st: State) -> bool:
    """Whether a zone that ends does so now.

    Under desc zones tell which region to visit first, and lists which tuples of it lie in the window: what a stale
    count costs is a look-up.  So a stream's zones turn for a small part of the grant, where nothing else hangs on them.
    """
    fades = st.fades
    if st.setting[js.PREFERENCE] != js.DESC or fades[fades.shape[0] - 1] < 1.0 or s.spec[ga.FORGETTING]:
        return True
    spent = st.prices[js.P_ADD] * st.whole[js.ADDS_PAID + side]
    return spent + st.real[js.TURN_COST] <= _TURNING * st.real[js.GRANTED]  # type: ignore[no-any-return]


@part
def is_sparse(st: Clocked) -> bool:
    """Whether a turn costs more than `_TURN_WORTH` arrivals are granted: then it is saved up for."""
    return st.real[js.TURN_COST] > _TURN_WORTH * st.real[js.PER_ARRIVAL]  # type: ignore[no-any-return]


@part
def save_for_turn(side: int, st: Clocked) -> None:
    """A tuple has come in: where a dear turn of its store is due, put its share aside."""
    if st.whole[js.TURN_WANTED + side] and is_sparse(st):
        share = st.real[js.TURN_COST] / _SAVING
        st.real[js.SAVED] += share
        pay_insert(st, share)


@part
def has_passed(ts: int, st: Clocked) -> bool:
    """Whether the window of a tuple at `ts` lies behind the streams.

    What weighted promised is paid late rather than dropped: it stands for others.
    """
    if st.setting[js.PREFERENCE] == js.WEIGHTED:
        return False
    return ts < since_of(st.whole[js.NOW_TS], st.window[0])


@part
def forgo(n: int, gap: float, step: float, st: Clocked) -> None:
    """Count an entry of n outputs that is dropped: they are no longer promised."""
    st.whole[js.EXPIRED] += 1
    if gap < n:
        st.real[js.BACKLOG] = max(0.0, st.real[js.BACKLOG] - math.ceil((n - gap) / step))


@part
def forgo_queued(q: Queue, at: int, st: Clocked) -> None:
    """The same of an entry of the queue."""
    n = q.entry[at, queue.HIGH] - q.entry[at, queue.LOW]
    forgo(n, q.real[at, queue.GAP], q.real[at, queue.STEP], st)


@part
def sweep(active: int, st: Clocked, q: Queue) -> None:
    """Drop entries whose window has passed, oldest first, as far as credit lasts.

    active: outputs that the entry in progress has in all; it goes first, at no charge.
    """
    w = st.whole
    real = st.real
    if w[js.ACTIVE] and has_passed(w[js.ENTRY_TIME], st):
        forgo(active, real[js.ENTRY_GAP], real[js.ENTRY_STEP], st)
        w[js.ACTIVE] = 0
    for klass in range(queue.CLASSES):
        at = q.ends[klass, 1]
        while at >= 0 and real[js.CREDIT] >= st.prices[js.P_SCAN] and has_passed(q.entry[at, queue.TIME], st):
            pay_hit(st, st.prices[js.P_SCAN])
            queue.unlink(q, at)
            forgo_queued(q, at, st)
            at = q.ends[klass, 1]
