"""Regions that any join makes: asking the grid what one promises, and putting it where regions wait.

Nothing here asks how many streams there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import pay_insert
from nile.preferences.queue_kernels import Queue
from nile.preferences.state import Clocked
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.region_kernels import read_between, root_estimate
from nile.summaries.kernels import part


@part
def read_root(s: Side, g: int, h: Any, since: int, rows: int, st: Clocked) -> tuple[float, float]:
    """A key's estimate and upper bound in granularity g since a time: one sketch read of `rows` rows, charged.

    A root that reaches back before `since` counts in proportion to time: one read instead of a descent.
    """
    root = s.gran[g, ga.OFFSET]
    first = s.node[root, ga.FIRST]
    last = s.node[root, ga.LAST]
    if s.node[root, ga.COUNT] == 0 or last < since:
        return 0.0, 0.0
    value, bound = root_estimate(s, g, h, rows)
    pay_insert(st, st.prices[js.P_ESTIMATE] * rows)
    if first < since:
        value *= np.float64(last - since + 1) / np.float64(last - first + 1)
    return value, bound


@part
def read_window(
    s: Side, h: Any, since: int, until: int, rows: int, enough: float, st: Clocked
) -> tuple[float, float, float]:
    """A key's estimate and upper bound, and tuples of any key, in [since, until] by a lent grid; each read is charged.

    enough: how much of a node's time must lie inside for it to be read as a whole (`read_between`).
    The stream may be ahead of the join: what has not come yet counts where it shares a zone with what has.
    """
    value, bound, tuples, reads = read_between(s, h, since, until, rows, enough)
    pay_insert(st, st.prices[js.P_ESTIMATE] * rows * reads)
    return value, bound, tuples


@part
def queue_up(ordinal: int, ts: int, klass: int, resolved: int, st: Clocked, q: Queue) -> int:
    """A place in the queue for a region of a tuple, whose bounds the caller fills in; charged.

    A full queue gives up the oldest entry of its least class.
    """
    if queue.is_full(q):
        queue.evict(q)
        st.whole[js.EVICTED] += 1
    at = queue.push(q, klass)
    q.entry[at, queue.ORDINAL] = ordinal
    q.entry[at, queue.LOW] = 0
    q.entry[at, queue.HIGH] = 0
    q.entry[at, queue.RESOLVED] = resolved
    q.entry[at, queue.TIME] = ts
    q.real[at, queue.GAP] = 0.0
    q.real[at, queue.STEP] = 1.0
    q.real[at, queue.WEIGHT] = 1.0
    pay_insert(st, st.prices[js.P_PUSH])
    return at
