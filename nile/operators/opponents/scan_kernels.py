"""Scanning a tuple list in arrival order: what the paper's structures do, and the opponent `scan` all the way.

A method that scans keeps one tuple list a value bucket instead of one a key (the arrays are the same).  A
cell of the grid is then a run of ordinals of its bucket's list, however often COLLAPSE has concatenated it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.arrival_kernels import (
    held_at,
    make_entry,
    passed,
    pay_insert,
    put_in_list,
    since_of,
    take_arrival,
)
from nile.operators.common.state import (
    ACTIVE,
    ADMITTED,
    APPLIED,
    ARENA_FULL,
    ARRIVED,
    CREDIT,
    DONE,
    ENTRY_HIGH,
    ENTRY_LOW,
    ENTRY_ORDINAL,
    ENTRY_SIDE,
    FORCED,
    NULLS,
    OUTPUT_FULL,
    OUTPUTS,
    P_EMIT,
    P_INSERT,
    P_SCAN,
    SEQUENCE,
    SHED,
    SHED_BY_SIDE,
    SPENT,
    SPENT_HIT,
    WAITING,
    WRITTEN,
    Output,
    State,
)
from pyramid.grid.arrays import BASE, GONE, PLACE, Side
from pyramid.grid.list_kernels import end_rank, rank_since
from summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]


@part
def scan(
    other: Side, bucket: int, code: int, side: int, ordinal: int, low: int, high: int, st: State, out: Output
) -> int:
    """Look at ranks [low, high) of a bucket's list in turn, and emit what has the key `code` of tuple `ordinal`.

    Each tuple looked at is charged, each output too, and none is begun that cannot be paid.  Returns the rank
    reached: `high`, or less when credit has run out or the output is full.
    """
    scan_price = st.prices[P_SCAN]
    emit_price = st.prices[P_EMIT]
    credit = st.real[CREDIT]
    spent = st.real[SPENT]
    spent_hit = st.real[SPENT_HIT]
    arena = other.arena
    codes = other.code
    base = other.meta[BASE]
    begin = other.lists[bucket, PLACE] - other.lists[bucket, GONE]
    first = out.first
    second = out.second
    room = first.shape[0]
    at = st.whole[WRITTEN]
    emitted = 0
    rank = low
    while rank < high:
        match = arena[begin + rank]
        if codes[match - base] == code:
            if credit < scan_price + emit_price or at == room:
                break
            credit -= emit_price
            spent += emit_price
            spent_hit += emit_price
            first[at] = ordinal if side == 0 else match
            second[at] = match if side == 0 else ordinal
            out.weight[at] = 1.0
            at += 1
            emitted += 1
        elif credit < scan_price:
            break
        credit -= scan_price
        spent += scan_price
        spent_hit += scan_price
        rank += 1
    st.real[CREDIT] = credit
    st.real[SPENT] = spent
    st.real[SPENT_HIT] = spent_hit
    st.whole[WRITTEN] = at
    st.whole[OUTPUTS] += emitted
    return rank


@part
def _take(own: Side, other: Side, side: int, st: State) -> bool:
    """Insert the oldest waiting tuple; the whole window of the other stream is its region."""
    w = st.whole
    ordinal = w[SEQUENCE + side]
    at = held_at(own, ordinal)
    if own.code[at] < 0:
        w[NULLS] += 1
        passed(st, side)
        return True
    if not put_in_list(own, side, 0, ordinal, st):
        return False
    pay_insert(st, st.prices[P_INSERT])
    w[ADMITTED] += 1
    ts = own.ts[at]
    low = rank_since(other, 0, since_of(ts, st.window[0]))
    high = end_rank(other, 0)
    if low < high:
        make_entry(st, side, ordinal, ts, low, high, 1.0)
    passed(st, side)
    return True


@part
def _go_on(own: Side, other: Side, side: int, st: State, out: Output) -> bool:
    """Scan on with the entry in progress; False when the output is full."""
    w = st.whole
    ordinal = w[ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    low = scan(other, 0, code, side, ordinal, w[ENTRY_LOW], w[ENTRY_HIGH], st, out)
    w[ENTRY_LOW] = low
    if low == w[ENTRY_HIGH]:
        w[ACTIVE] = 0
        return True
    return bool(st.real[CREDIT] < st.prices[P_SCAN] + st.prices[P_EMIT] or w[WRITTEN] < out.first.shape[0])


@kernel
def nested_scan(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, out: Output) -> int:
    """The join without any structure: each tuple is compared with all of the other stream's window.

    What is left when the next tuple arrives is dropped.  A tuple is taken when inserting it is affordable,
    else it waits (under a replay) or is shed.  order: int8 [arrivals], the stream of each; grant: float64
    [arrivals]; runs to arrival `end`.  Returns why it stopped (`nile.operators.common.state`).
    Source: structure T1 of promising tuples, Figure 9, without its queue.
    """
    w = st.whole
    while True:
        if w[ACTIVE]:
            room = _go_on(left, right, 0, st, out) if w[ENTRY_SIDE] == 0 else _go_on(right, left, 1, st, out)
            if not room:
                return OUTPUT_FULL
        if w[APPLIED] < w[ARRIVED] and not w[ACTIVE]:
            side = order[w[APPLIED]]
            ordinal = w[SEQUENCE + side]
            null = left.code[held_at(left, ordinal)] < 0 if side == 0 else right.code[held_at(right, ordinal)] < 0
            if null or st.real[CREDIT] >= st.prices[P_INSERT]:
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
