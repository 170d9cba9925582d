"""Joins without a summary: the plain probe (budget of 1 and more) and the opponent `hash-drop`.

Exact ranges of a query's own streams need no list at all: see `range_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    emit_entry,
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    since_of,
    take_arrival,
    window_ranks,
)
from nile.preferences.state import Output, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import make_room_in
from nile.summaries.kernels import U8, kernel, part

Array = np.ndarray[Any, Any]
_NO_FLOOR = -1e300
_ROOM_WANTED = -1


@part
def _take(own: Side, other: Side, side: int, st: State) -> bool:
    """Insert the oldest waiting tuple and look its key up; False when the arena must grow first.

    Over shared stores others have inserted it; from now on it shows.
    """
    w = st.whole
    ordinal = w[js.SEQUENCE + side]
    at = held_at(own, ordinal)
    code = own.code[at]
    shared = st.setting[js.SHARED] != 0
    if shared:
        own.meta[ga.VISIBLE] = ordinal + 1
    if code < 0:
        w[js.NULLS] += 1
        passed(st, side)
        return True
    if not shared and not put_in_list(own, side, code, ordinal, st):
        return False
    ts = own.ts[at]
    window = st.window[0]
    low, high = window_ranks(other, code, ts, window, 0)
    if not shared:
        pay_insert(st, st.prices[js.P_INSERT])
    pay_hit(st, st.prices[js.P_LOOKUP])
    w[js.ADMITTED] += 1
    wanted = high > low
    if wanted and st.setting[js.OUTLIERS_ONLY]:
        own_low, own_high = window_ranks(own, code, ts, window, 0)
        wanted = (high - low) + (own_high - own_low) <= st.setting[js.CAP]
    if wanted:
        make_entry(st, side, ordinal, ts, low, high, 1.0)
    passed(st, side)
    return True


@part
def _plain(left: Side, right: Side, order: Array, grant: Array, end: int, fronts: Array, st: State, out: Output) -> int:
    """`probe` of stores of its own for pairs, under desc or weighted: nothing is turned away, so nothing is decided.

    The loop calls nothing and holds each array and count it uses in a register, once for each side: an array handed
    on, inlined or not, costs more than the work.  fronts[code, s] is the rank where the window began in stream s's
    list last time, which only moves on: each entry is passed by once.  Prices are whole numbers, so counts price
    the work at the end, to the last bit.
    """
    w = st.whole
    real = st.real
    window = st.window[0]
    first, second, weight = out.first, out.second, out.weight
    room = first.shape[0]
    left_ts, left_code, left_lists, left_arena = left.ts, left.code, left.lists, left.arena
    right_ts, right_code, right_lists, right_arena = right.ts, right.code, right.lists, right.arena
    left_placed, left_meta, right_placed, right_meta = left.placed, left.meta, right.placed, right.meta
    left_base, right_base = left_meta[ga.BASE], right_meta[ga.BASE]
    lefts, rights = w[js.SEQUENCE], w[js.SEQUENCE + 1]
    begin = now = w[js.APPLIED]
    past = w[js.ARRIVALS_GONE]
    begin_at = at = w[js.WRITTEN]
    granted = real[js.GRANTED]
    nulls = regions = 0
    side = ordinal = code = gone = low = found = n = 0
    why = _ROOM_WANTED
    while why == _ROOM_WANTED:
        why = js.DONE
        while now < end:
            if at == room:
                why = js.OUTPUT_FULL
                break
            found = n = gone = 0
            side = order[U8(now - past)]
            if side == 0:
                ordinal = lefts
                place = U8(ordinal - left_base)
                code = left_code[place]
                if code >= 0:
                    key = U8(code)
                    held = left_lists[key, ga.HELD]
                    if held == left_lists[key, ga.ROOM]:
                        why = _ROOM_WANTED
                        break
                    left_arena[U8(left_lists[key, ga.PLACE] + held)] = ordinal
                    left_lists[key, ga.HELD] = held + 1
                    since = since_of(left_ts[place], window)
                    gone = right_lists[key, ga.GONE]
                    met = right_lists[key, ga.HELD]
                    list_at = right_lists[key, ga.PLACE]
                    low = max(fronts[key, 1] - gone, 0)
                    while low < met:
                        entry = right_arena[U8(list_at + low)]
                        if entry >= right_base and right_ts[U8(entry - right_base)] >= since:
                            break
                        low += 1
                    fronts[key, 1] = gone + low
                    found = met - low
                    if found > 0:
                        n = min(found, room - at)
                        for i in range(n):
                            first[U8(at + i)] = ordinal
                            second[U8(at + i)] = right_arena[U8(list_at + low + i)]
                            weight[U8(at + i)] = 1.0
                lefts += 1
            else:
                ordinal = rights
                place = U8(ordinal - right_base)
                code = right_code[place]
                if code >= 0:
                    key = U8(code)
                    held = right_lists[key, ga.HELD]
                    if held == right_lists[key, ga.ROOM]:
                        why = _ROOM_WANTED
                        break
                    right_arena[U8(right_lists[key, ga.PLACE] + held)] = ordinal
                    right_lists[key, ga.HELD] = held + 1
                    since = since_of(right_ts[place], window)
                    gone = left_lists[key, ga.GONE]
                    met = left_lists[key, ga.HELD]
                    list_at = left_lists[key, ga.PLACE]
                    low = max(fronts[key, 0] - gone, 0)
                    while low < met:
                        entry = left_arena[U8(list_at + low)]
                        if entry >= left_base and left_ts[U8(entry - left_base)] >= since:
                            break
                        low += 1
                    fronts[key, 0] = gone + low
                    found = met - low
                    if found > 0:
                        n = min(found, room - at)
                        for i in range(n):
                            second[U8(at + i)] = ordinal
                            first[U8(at + i)] = left_arena[U8(list_at + low + i)]
                            weight[U8(at + i)] = 1.0
                rights += 1
            granted += grant[U8(now - past)]
            now += 1
            if found > 0:
                regions += 1
                at += n
                if n < found:
                    why = js.OUTPUT_FULL
                    break
            elif code < 0:
                nulls += 1
        if why == _ROOM_WANTED and not (
            make_room_in(left_lists, left_arena, left_placed, left_meta, code, 1)
            if side == 0
            else make_room_in(right_lists, right_arena, right_placed, right_meta, code, 1)
        ):
            why = js.ARENA_FULL
            w[js.STOPPED_SIDE] = side
            w[js.STOPPED_CODE] = code
    if n < found:  # what is left of the tuple's pairs goes on in the next output
        ts = left_ts[ordinal - left_base] if side == 0 else right_ts[ordinal - right_base]
        make_entry(st, side, ordinal, ts, gone + low, gone + low + found, 1.0)
        real[js.ENTRY_GAP] = np.float64(n)
        regions -= 1
    admitted = now - begin - nulls
    w[js.SEQUENCE] = lefts
    w[js.SEQUENCE + 1] = rights
    w[js.ARRIVED] = w[js.APPLIED] = now
    w[js.NULLS] += nulls
    w[js.ADMITTED] += admitted
    w[js.REGIONS] += regions
    w[js.WRITTEN] = at
    w[js.OUTPUTS] += at - begin_at
    inserting = st.prices[js.P_INSERT] * admitted
    hitting = st.prices[js.P_LOOKUP] * admitted + st.prices[js.P_EMIT] * (at - begin_at)
    real[js.SPENT_INSERT] += inserting
    real[js.SPENT_HIT] += hitting
    real[js.SPENT] += inserting + hitting
    real[js.GRANTED] = granted
    real[js.CREDIT] = granted - real[js.SPENT]
    return why


@kernel
def probe(left: Side, right: Side, order: Array, grant: Array, end: int, fronts: Array, st: State, out: Output) -> int:
    """Join everything, in order: what a budget of 1 buys.  Under asc only outliers are emitted.

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals]; runs to arrival `end`; fronts: int64
    [keys, 2], zeros at first: where the window begins in the left and the right list of a key.  Spends at most
    what is granted, because c_j is an insert, a lookup and an emit for each output.
    Returns why it stopped (`nile.preferences.state`).
    """
    w = st.whole
    plain = st.setting[js.SHARED] == 0 and st.setting[js.OUTLIERS_ONLY] == 0 and st.setting[js.RANGES] == 0
    while True:
        if w[js.ACTIVE]:
            room = (
                emit_entry(left, right, st, out, _NO_FLOOR)
                if w[js.ENTRY_SIDE] == 0
                else emit_entry(right, left, st, out, _NO_FLOOR)
            )
            if not room:
                return js.OUTPUT_FULL
        if plain:
            return _plain(left, right, order, grant, end, fronts, st, out)
        if w[js.APPLIED] == end:
            return js.DONE
        if w[js.APPLIED] == w[js.ARRIVED]:
            take_arrival(st, grant, False)
        side: Any = np.int64(order[w[js.APPLIED] - w[js.ARRIVALS_GONE]])
        taken = _take(left, right, side, st) if side == 0 else _take(right, left, side, st)
        if not taken:
            return js.ARENA_FULL


@kernel
def hash_drop(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, out: Output) -> int:
    """The symmetric hash join that drops what is unfinished when the next tuple arrives (SIMPLE-SHJ).

    A tuple is taken when inserting and looking it up is affordable, else shed: inserting alone would spend a
    small budget on tuples that are never probed.  Arguments and result as for `probe`.
    Source: the opponent of promising tuples, Figures 11 to 14.
    """
    w = st.whole
    entrance = st.prices[js.P_INSERT] + st.prices[js.P_LOOKUP]
    while True:
        if w[js.ACTIVE]:
            room = (
                emit_entry(left, right, st, out, 0.0)
                if w[js.ENTRY_SIDE] == 0
                else emit_entry(right, left, st, out, 0.0)
            )
            if not room:
                return js.OUTPUT_FULL
        if w[js.APPLIED] < w[js.ARRIVED] and not w[js.ACTIVE]:
            side: Any = np.int64(order[w[js.APPLIED]])
            ordinal = w[js.SEQUENCE + side]
            null = left.code[held_at(left, ordinal)] < 0 if side == 0 else right.code[held_at(right, ordinal)] < 0
            if null or st.real[js.CREDIT] >= entrance:
                taken = _take(left, right, side, st) if side == 0 else _take(right, left, side, st)
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
