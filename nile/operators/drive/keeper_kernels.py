"""Keeping a stream that several standing queries share: its tuples are inserted and summarised once, for all.

The queries then probe the store and leave it alone (`SHARED` in `nile.preferences.state`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import unit
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import reach, slice_end, summarize
from nile.pyramid.grid.list_kernels import append, is_full, make_room
from nile.summaries.kernels import inlined, kernel

Array = np.ndarray[Any, Any]

KEPT_ALL, NO_ARENA = 0, 1
# `whole`
NEXT_ORDINAL, NULLS, KEPT, SHED, TURN_WANTED, ADDS_PAID, STOPPED_CODE = 0, 1, 2, 3, 4, 5, 6
WHOLE_FIELDS = 7
# `real`: the credit in hand, what has been spent, what the detector's look at a slice costs.
CREDIT, SPENT, SLICE_COST = 0, 1, 2
REAL_FIELDS = 3
_MANY = 64  # tuples per slice must have for the detector to look at it


@inlined
def _pay(real: Array, cost: float) -> None:
    real[CREDIT] -= cost
    real[SPENT] += cost


@kernel
def keep(
    s: Side, end: int, admission: float, salt: int, sketched: bool, prices: Array, admissions: Array, shed_at: Array,
    whole: Array, real: Array,
) -> int:  # fmt: skip
    """Take tuples up to ordinal `end` in: those whose key's level is below `admission`, as far as credit lasts.

    admissions: float64 [tuples], written: admission each came through, 0 for a tuple shed; shed_at: int64 [keys],
    written: ts at which a tuple of that key was last shed; whole, real: the fields above.  Returns KEPT_ALL, or
    NO_ARENA when the arena must grow for key `whole[STOPPED_CODE]` first.  O(1) a tuple, O(rows) with sketches.
    """
    rows = s.counters.shape[1] + s.recent.shape[0]
    cost = prices[js.P_INSERT] + (prices[js.P_UPDATE] * rows if sketched else 0.0)
    while whole[NEXT_ORDINAL] < end:
        ordinal = whole[NEXT_ORDINAL]
        at = ordinal - s.meta[ga.BASE]
        code = s.code[at]
        ts = s.ts[at]
        if code < 0:
            whole[NULLS] += 1
        elif unit(s.hash[at], salt) >= admission or real[CREDIT] < cost:
            admissions[ordinal] = 0.0
            shed_at[code] = max(shed_at[code], ts)  # streams are kept one after the other
            whole[SHED] += 1
        else:
            if is_full(s, code) and not make_room(s, code):
                whole[STOPPED_CODE] = code
                return NO_ARENA
            append(s, code, ordinal)
            if sketched:
                summarize(s, ordinal, ts, s.hash[at])
            _pay(real, cost)
            admissions[ordinal] = admission
            whole[KEPT] += 1
        whole[NEXT_ORDINAL] = ordinal + 1
        ends = reach(s, ordinal, ts)
        if ends and sketched and s.zone[ga.SLICE_COUNT] >= _MANY and real[CREDIT] >= real[SLICE_COST]:
            if slice_end(s, ts):
                whole[TURN_WANTED] = 1
            _pay(real, prices[js.P_ADD] * (s.zone[ga.ADDS] - whole[ADDS_PAID]))
            whole[ADDS_PAID] = s.zone[ga.ADDS]
    return KEPT_ALL
