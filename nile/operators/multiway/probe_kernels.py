"""Joins of n streams without a summary: the plain probe (budget of 1 and more) and the opponent `hash-drop`."""

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
    passed,
    settlement_due,
    standing,
    time_of,
)
from nile.operators.multiway.state import Output, State
from nile.preferences import state as js
from nile.preferences.arrival_kernels import take_arrival
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]


@part
def _probe(s: Side, a: int, st: State) -> None:
    """Insert a tuple and look its key up in the other streams; what it completes is the entry in progress."""
    w = st.whole
    insert(s, a, st)
    w[js.ADMITTED] += 1
    total = look_up(s, a, 0, False, st)
    if total == 0 or (st.setting[js.OUTLIERS_ONLY] and standing(s, a, st) > st.setting[js.CAP]):
        return
    for k in range(st.entry.shape[0]):
        st.entry[k, 0] = st.cut[1, k]
        st.entry[k, 1] = st.cut[0, k]
    enter(a, time_of(s, a), js.RESOLVED, total, st)


@kernel
def probe(s: Side, grant: Array, end: int, floor: float, st: State, out: Output) -> int:
    """Join everything in order up to arrival `end`, dropping what is unfinished when the next tuple arrives.

    With a floor far below 0 nothing is ever unfinished or shed: the exact join.  With floor 0 it is `hash-drop`
    (SIMPLE-SHJ): a tuple is taken when inserting it and looking it up everywhere is affordable, else shed.
    grant: float64, of each arrival from `ARRIVALS_GONE` on.  Returns why it stopped (`nile.operators.multiway.state`).
    Source: the opponent of promising tuples, Figures 11 to 14, for n streams.
    """
    w = st.whole
    entrance = st.prices[js.P_INSERT] + st.prices[js.P_LOOKUP] * (st.entry.shape[0] - 1)
    while True:
        if w[js.ACTIVE] and not emit_entry(s, st, out, floor):
            return js.OUTPUT_FULL
        if settlement_due(st):
            return ms.SETTLE
        if w[js.APPLIED] < w[js.ARRIVED] and not w[js.ACTIVE]:
            a = w[js.APPLIED]
            null = code_of(s, a) < 0
            if null or st.real[js.CREDIT] - entrance >= floor:
                if null:
                    w[js.NULLS] += 1
                elif has_room(s, a, st):
                    _probe(s, a, st)
                else:
                    return js.ARENA_FULL
                passed(s, st)
                continue
            if w[js.ARRIVED] - w[js.APPLIED] > st.setting[js.WAITING]:
                st.shed[code_of(s, a) % st.entry.shape[0]] += 1
                passed(s, st)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, w[js.ACTIVE] == 0 and w[js.APPLIED] == w[js.ARRIVED])
        w[js.ACTIVE] = 0
