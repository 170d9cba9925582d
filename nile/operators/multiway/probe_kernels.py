"""Joins of n streams without a summary: the plain probe (budget of 1 and more) and the opponent `hash-drop`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.arrival_kernels import take_arrival
from nile.operators.common.state import (
    ACTIVE,
    ADMITTED,
    APPLIED,
    ARENA_FULL,
    ARRIVED,
    CAP,
    CREDIT,
    DONE,
    NULLS,
    OUTLIERS_ONLY,
    OUTPUT_FULL,
    P_INSERT,
    P_LOOKUP,
    RESOLVED,
    WAITING,
)
from nile.operators.multiway.common_kernels import (
    emit_entry,
    enter,
    has_room,
    insert,
    look_up,
    passed,
    settlement_due,
    standing,
)
from nile.operators.multiway.state import SETTLE, Arrivals, Output, State
from pyramid.grid.arrays import Side
from summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]


@part
def _probe(s: Side, arr: Arrivals, a: int, st: State) -> None:
    """Insert a tuple and look its key up in the other streams; what it completes is the entry in progress."""
    w = st.whole
    insert(s, arr, a, st)
    w[ADMITTED] += 1
    total = look_up(s, arr, a, 0, False, st)
    if total == 0 or (st.setting[OUTLIERS_ONLY] and standing(s, arr, a, st) > st.setting[CAP]):
        return
    for k in range(st.entry.shape[0]):
        st.entry[k, 0] = st.cut[1, k]
        st.entry[k, 1] = st.cut[0, k]
    enter(a, arr.ts[a], RESOLVED, total, st)


@kernel
def probe(s: Side, arr: Arrivals, grant: Array, end: int, floor: float, st: State, out: Output) -> int:
    """Join everything in order up to arrival `end`, dropping what is unfinished when the next tuple arrives.

    With a floor far below 0 nothing is ever unfinished or shed: the exact join.  With floor 0 it is `hash-drop`
    (SIMPLE-SHJ): a tuple is taken when inserting it and looking it up everywhere is affordable, else shed.
    grant: float64 [N].  Returns why it stopped (`nile.operators.multiway.state`).
    Source: the opponent of promising tuples, Figures 11 to 14, for n streams.
    """
    w = st.whole
    entrance = st.prices[P_INSERT] + st.prices[P_LOOKUP] * (st.entry.shape[0] - 1)
    while True:
        if w[ACTIVE] and not emit_entry(s, arr, st, out, floor):
            return OUTPUT_FULL
        if settlement_due(st):
            return SETTLE
        if w[APPLIED] < w[ARRIVED] and not w[ACTIVE]:
            a = w[APPLIED]
            null = arr.key[a] < 0
            if null or st.real[CREDIT] - entrance >= floor:
                if null:
                    w[NULLS] += 1
                elif has_room(s, arr, a, st):
                    _probe(s, arr, a, st)
                else:
                    return ARENA_FULL
                passed(arr, st)
                continue
            if w[ARRIVED] - w[APPLIED] > st.setting[WAITING]:
                st.shed[arr.stream[a]] += 1
                passed(arr, st)
                continue
        if w[ARRIVED] == end:
            return DONE
        take_arrival(st, grant, w[ACTIVE] == 0 and w[APPLIED] == w[ARRIVED])
        w[ACTIVE] = 0
