"""Joins without a summary: the plain probe (budget of 1 and more) and the opponent `hash-drop`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common_kernels import (
    emit_entry,
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    take_arrival,
    window_ranks,
)
from nile.operators.state import (
    ACTIVE,
    ADMITTED,
    APPLIED,
    ARENA_FULL,
    ARRIVED,
    CAP,
    CREDIT,
    DONE,
    ENTRY_SIDE,
    FORCED,
    NULLS,
    OUTLIERS_ONLY,
    OUTPUT_FULL,
    P_INSERT,
    P_LOOKUP,
    SEQUENCE,
    SHARED,
    SHED,
    SHED_BY_SIDE,
    WAITING,
    Output,
    State,
)
from pyramid.arrays import VISIBLE, Side
from summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]
_NO_FLOOR = -1e300


@part
def _take(own: Side, other: Side, side: int, st: State) -> bool:
    """Insert the oldest waiting tuple and look its key up; False when the arena must grow first.

    Over shared stores others have inserted it; from now on it shows.
    """
    w = st.whole
    ordinal = w[SEQUENCE + side]
    at = held_at(own, ordinal)
    code = own.code[at]
    shared = st.setting[SHARED] != 0
    if shared:
        own.meta[VISIBLE] = ordinal + 1
    if code < 0:
        w[NULLS] += 1
        passed(st, side)
        return True
    if not shared and not put_in_list(own, side, code, ordinal, st):
        return False
    ts = own.ts[at]
    window = st.window[0]
    low, high = window_ranks(other, code, ts, window, 0)
    if not shared:
        pay_insert(st, st.prices[P_INSERT])
    pay_hit(st, st.prices[P_LOOKUP])
    w[ADMITTED] += 1
    wanted = high > low
    if wanted and st.setting[OUTLIERS_ONLY]:
        own_low, own_high = window_ranks(own, code, ts, window, 0)
        wanted = (high - low) + (own_high - own_low) <= st.setting[CAP]
    if wanted:
        make_entry(st, side, ordinal, ts, low, high, 1.0)
    passed(st, side)
    return True


@kernel
def probe(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, out: Output) -> int:
    """Join everything, in order: what a budget of 1 buys.  Under asc only outliers are emitted.

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; runs to arrival `end`.  Spends at
    most what is granted, because c_j is an insert, a lookup and an emit for each output.
    Returns why it stopped (`nile.operators.state`).
    """
    w = st.whole
    while True:
        if w[ACTIVE]:
            room = (
                emit_entry(left, right, st, out, _NO_FLOOR)
                if w[ENTRY_SIDE] == 0
                else emit_entry(right, left, st, out, _NO_FLOOR)
            )
            if not room:
                return OUTPUT_FULL
        if w[APPLIED] == end:
            return DONE
        if w[APPLIED] == w[ARRIVED]:
            take_arrival(st, grant, False)
        side = order[w[APPLIED]]
        taken = _take(left, right, 0, st) if side == 0 else _take(right, left, 1, st)
        if not taken:
            return ARENA_FULL


@kernel
def hash_drop(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, out: Output) -> int:
    """The symmetric hash join that drops what is unfinished when the next tuple arrives (SIMPLE-SHJ).

    A tuple is taken when inserting and looking it up is affordable, else shed: inserting alone would spend a
    small budget on tuples that are never probed.  Arguments and result as for `probe`.
    Source: the opponent of promising tuples, Figures 11 to 14.
    """
    w = st.whole
    entrance = st.prices[P_INSERT] + st.prices[P_LOOKUP]
    while True:
        if w[ACTIVE]:
            room = (
                emit_entry(left, right, st, out, 0.0) if w[ENTRY_SIDE] == 0 else emit_entry(right, left, st, out, 0.0)
            )
            if not room:
                return OUTPUT_FULL
        if w[APPLIED] < w[ARRIVED] and not w[ACTIVE]:
            side = order[w[APPLIED]]
            ordinal = w[SEQUENCE + side]
            null = left.code[held_at(left, ordinal)] < 0 if side == 0 else right.code[held_at(right, ordinal)] < 0
            if null or st.real[CREDIT] >= entrance:
                taken = _take(left, right, 0, st) if side == 0 else _take(right, left, 1, st)
                if not taken:
                    return ARENA_FULL
                continue
            if w[ARRIVED] - w[APPLIED] > st.setting[WAITING]:
                w[SHED] += 1
                w[SHED_BY_SIDE + side] += 1
                w[FORCED] += 1
                passed(st, side)
                continue
        if w[ARRIVED] == end:
            return DONE
        take_arrival(st, grant, w[ACTIVE] == 0 and w[APPLIED] == w[ARRIVED])
        w[ACTIVE] = 0
