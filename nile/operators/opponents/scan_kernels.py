"""Scanning a tuple list in arrival order: what the paper's structures do, and `scan` and `hash-buckets` all the way.

A method that scans keeps one tuple list a value bucket instead of one per key (the arrays are the same).  A
cell of the grid is then a run of ordinals of its bucket's list, however often COLLAPSE has concatenated it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    since_of,
    take_arrival,
)
from nile.preferences.state import Output, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import end_rank, rank_since
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]

ONE_BUCKET = 63
"""The shift that leaves nothing of a hash."""


@part
def scan(
    other: Side, bucket: int, code: int, side: int, ordinal: int, low: int, high: int, st: State, out: Output
) -> int:
    """Look at ranks [low, high) of a bucket's list in turn, and emit what has the key `code` of tuple `ordinal`.

    Each tuple looked at is charged, each output too, and none is begun that cannot be paid.  Returns the rank
    reached: `high`, or less when credit has run out or the output is full.
    """
    scan_price = st.prices[js.P_SCAN]
    emit_price = st.prices[js.P_EMIT]
    credit = st.real[js.CREDIT]
    spent = st.real[js.SPENT]
    spent_hit = st.real[js.SPENT_HIT]
    arena = other.arena
    codes = other.code
    base = other.meta[ga.BASE]
    begin = other.lists[bucket, ga.PLACE] - other.lists[bucket, ga.GONE]
    first = out.first
    second = out.second
    room = first.shape[0]
    at = st.whole[js.WRITTEN]
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
    st.real[js.CREDIT] = credit
    st.real[js.SPENT] = spent
    st.real[js.SPENT_HIT] = spent_hit
    st.whole[js.WRITTEN] = at
    st.whole[js.OUTPUTS] += emitted
    return rank


@inlined
def _bucket(s: Side, at: int, shift: int) -> int:
    """The value bucket of a tuple held, by the first bits of its hash; shift 63: there is one."""
    return np.int64((s.hash[at] >> U8(1)) >> U8(shift))  # type: ignore[return-value]


@part
def _take(own: Side, other: Side, side: int, shift: int, st: State) -> bool:
    """Insert the oldest waiting tuple; its bucket of the other stream's window is its region."""
    w = st.whole
    ordinal = w[js.SEQUENCE + side]
    at = held_at(own, ordinal)
    if own.code[at] < 0:
        w[js.NULLS] += 1
        passed(st, side)
        return True
    bucket = _bucket(own, at, shift)
    if not put_in_list(own, side, bucket, ordinal, st):
        return False
    pay_insert(st, st.prices[js.P_INSERT])
    pay_hit(st, st.prices[js.P_LOOKUP] if shift < ONE_BUCKET else 0.0)
    w[js.ADMITTED] += 1
    ts = own.ts[at]
    low = rank_since(other, bucket, since_of(ts, st.window[0]))
    high = end_rank(other, bucket)
    if low < high:
        make_entry(st, side, ordinal, ts, low, high, 1.0)
    passed(st, side)
    return True


@part
def _go_on(own: Side, other: Side, side: int, shift: int, st: State, out: Output) -> bool:
    """Scan on with the entry in progress; False when the output is full."""
    w = st.whole
    ordinal = w[js.ENTRY_ORDINAL]
    at = held_at(own, ordinal)
    code = own.code[at]
    low = scan(other, _bucket(own, at, shift), code, side, ordinal, w[js.ENTRY_LOW], w[js.ENTRY_HIGH], st, out)
    w[js.ENTRY_LOW] = low
    if low == w[js.ENTRY_HIGH]:
        w[js.ACTIVE] = 0
        return True
    return bool(st.real[js.CREDIT] < st.prices[js.P_SCAN] + st.prices[js.P_EMIT] or w[js.WRITTEN] < out.first.shape[0])


@kernel
def nested_scan(
    left: Side, right: Side, order: Array, grant: Array, end: int, shift: int, st: State, out: Output
) -> int:
    """The join without any structure: each tuple is compared with all of the other stream's window.

    With buckets, of which shift tells (`_bucket`), the symmetric hash join: with its bucket there, for a look-up.
    What is left when the next tuple arrives is dropped.  A tuple is taken when inserting it is affordable,
    else it waits (under a replay) or is shed.  order: int8 [arrivals], the stream of each; grant: float64
    [arrivals]; runs to arrival `end`.  Returns why it stopped (`nile.preferences.state`).
    Source: structure T1 of promising tuples, Figure 9, without its queue; SIMPLE-SHJ there, section 5.
    """
    w = st.whole
    entrance = st.prices[js.P_INSERT] + (st.prices[js.P_LOOKUP] if shift < ONE_BUCKET else 0.0)
    while True:
        if w[js.ACTIVE]:
            by_left = w[js.ENTRY_SIDE] == 0
            room = _go_on(left, right, 0, shift, st, out) if by_left else _go_on(right, left, 1, shift, st, out)
            if not room:
                return js.OUTPUT_FULL
        if w[js.APPLIED] < w[js.ARRIVED] and not w[js.ACTIVE]:
            side = order[w[js.APPLIED]]
            ordinal = w[js.SEQUENCE + side]
            null = left.code[held_at(left, ordinal)] < 0 if side == 0 else right.code[held_at(right, ordinal)] < 0
            if null or st.real[js.CREDIT] >= entrance:
                taken = _take(left, right, 0, shift, st) if side == 0 else _take(right, left, 1, shift, st)
                if not taken:
                    return js.ARENA_FULL
                continue
            if w[js.ARRIVED] - w[js.APPLIED] > st.setting[js.WAITING]:
                w[js.SHED] += 1
                w[js.SHED_BY_SIDE + side] += 1
                w[js.FORCED] += 1
                passed(st, side)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, w[js.ACTIVE] == 0 and w[js.APPLIED] == w[js.ARRIVED])
        w[js.ACTIVE] = 0
