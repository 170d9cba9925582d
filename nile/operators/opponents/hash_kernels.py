"""Opponents that hash: `hash-backlog` keeps what a probe leaves undone, `shed-uniform` sheds at random first.

`hash-keys` lets in whole keys.

Design.  All are the symmetric hash join of `probe_kernels` with one thing added.  The backlog is a stack: it
lies in order of time, so when its top has expired everything below has too.
Cost.  Putting a probe on the stack and taking it off is charged when it is taken up again, and never spends
what the next arrival needs to be taken in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    unit,
    window_ranks,
)
from nile.preferences.state import Output, State
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import U8, kernel, part

Array = np.ndarray[Any, Any]

# `entry` of a Stack
SIDE, ORDINAL, LOW, HIGH, TIME = 0, 1, 2, 3, 4
STACK_FIELDS = 5
# `control` of a Stack
SIZE, RESUMED = 0, 1


class Stack(NamedTuple):
    """Unfinished probes, the newest on top."""

    entry: Array  # int64 [c, 5]
    control: Array  # int64 [2]: entries, whether the entry in progress comes from the stack


@part
def _take(own: Side, other: Side, side: int, weight: float, st: State) -> bool:
    """Insert the oldest waiting tuple, which is not shed, and look its key up; False when the arena must grow."""
    w = st.whole
    ordinal = w[js.SEQUENCE + side]
    at = held_at(own, ordinal)
    code = own.code[at]
    if code < 0:
        w[js.NULLS] += 1
        return True
    if not put_in_list(own, side, code, ordinal, st):
        return False
    ts = own.ts[at]
    low, high = window_ranks(other, code, ts, st.window[0], 0)
    pay_insert(st, st.prices[js.P_INSERT])
    pay_hit(st, st.prices[js.P_LOOKUP])
    w[js.ADMITTED] += 1
    wanted = high > low
    if wanted and st.setting[js.OUTLIERS_ONLY]:
        own_low, own_high = window_ranks(own, code, ts, st.window[0], 0)
        wanted = (high - low) + (own_high - own_low) <= st.setting[js.CAP]
    if wanted:
        make_entry(st, side, ordinal, ts, low, high, weight)
    return True


@part
def _set_aside(st: State, stack: Stack) -> None:
    """The entry in progress onto the stack, which has room."""
    w = st.whole
    at = stack.control[SIZE]
    stack.entry[at, SIDE] = w[js.ENTRY_SIDE]
    stack.entry[at, ORDINAL] = w[js.ENTRY_ORDINAL]
    stack.entry[at, LOW] = w[js.ENTRY_LOW] + np.int64(st.real[js.ENTRY_GAP])
    stack.entry[at, HIGH] = w[js.ENTRY_HIGH]
    stack.entry[at, TIME] = w[js.ENTRY_TIME]
    stack.control[SIZE] = at + 1
    w[js.PLACED] += 1
    w[js.ACTIVE] = 0


@part
def _take_up(st: State, stack: Stack) -> None:
    """The newest unfinished probe back into progress; expired ones go."""
    w = st.whole
    at = stack.control[SIZE] - 1
    if stack.entry[at, TIME] < since_of(w[js.NOW_TS], st.window[0]):
        w[js.EXPIRED] += at + 1
        stack.control[SIZE] = 0
        return
    stack.control[SIZE] = at
    pay_hit(st, st.prices[js.P_PUSH] + st.prices[js.P_POP])
    make_entry(
        st, stack.entry[at, SIDE], stack.entry[at, ORDINAL], stack.entry[at, TIME], stack.entry[at, LOW],
        stack.entry[at, HIGH], 1.0,
    )  # fmt: skip
    w[js.REGIONS] -= 1  # it was counted when it was made
    stack.control[RESUMED] = 1


@kernel
def hash_join(
    left: Side, right: Side, order: Array, grant: Array, end: int, keeps: bool, chosen: Array, weight: float,
    st: State, stack: Stack, out: Output,
) -> int:  # fmt: skip
    """The symmetric hash join up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    A tuple comes in when a random number, drawn from its place in its stream, lies below admission (of chosen keys,
    bool [keys] or of length 0: when its key is one), and when inserting and looking it up is affordable; else it waits
    (under a replay) or is shed.  weight: of a pair.  keeps: what is
    unfinished when the next tuple arrives goes on the stack, and the newest is taken up when credit is left;
    otherwise it is dropped.  Under asc only what its own lists call outliers is emitted.  order: int8 [arrivals], the
    stream of each; grant: float64 [arrivals].
    Source: the opponents of DESIGN section 3; Wilschut and Apers for the join itself.
    """
    w = st.whole
    entrance = st.prices[js.P_INSERT] + st.prices[js.P_LOOKUP]
    resuming = st.prices[js.P_PUSH] + st.prices[js.P_POP] + st.prices[js.P_EMIT]
    while True:
        if w[js.ACTIVE]:
            floor = entrance if stack.control[RESUMED] else 0.0
            side = w[js.ENTRY_SIDE]
            room = emit_entry(left, right, st, out, floor) if side == 0 else emit_entry(right, left, st, out, floor)
            if not room:
                return js.OUTPUT_FULL
        if w[js.ACTIVE] == 0:
            stack.control[RESUMED] = 0
            if w[js.APPLIED] < w[js.ARRIVED]:
                side = order[w[js.APPLIED]]
                ordinal = w[js.SEQUENCE + side]
                at = held_at(left, ordinal) if side == 0 else held_at(right, ordinal)
                code = left.code[at] if side == 0 else right.code[at]
                null = code < 0
                if null:
                    kept = True
                elif chosen.shape[0] > 0:
                    kept = chosen[code]
                else:
                    kept = unit(U8(2 * ordinal + side), st.setting[js.SALT]) < st.real[js.ADMISSION]
                waits = False
                if null or (kept and st.real[js.CREDIT] >= entrance):
                    taken = _take(left, right, 0, weight, st) if side == 0 else _take(right, left, 1, weight, st)
                    if not taken:
                        return js.ARENA_FULL
                elif kept and w[js.ARRIVED] - w[js.APPLIED] <= st.setting[js.WAITING]:
                    waits = True
                else:
                    w[js.SHED] += 1
                    w[js.SHED_BY_SIDE + side] += 1
                    w[js.FORCED] += np.int64(kept)
                if not waits:
                    w[js.NOW_TS] = left.ts[at] if side == 0 else right.ts[at]
                    passed(st, side)
                    continue
            elif stack.control[SIZE] > 0 and st.real[js.CREDIT] >= resuming + entrance:
                _take_up(st, stack)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        if w[js.ACTIVE] and keeps and stack.control[SIZE] == stack.entry.shape[0]:
            return js.QUEUE_FULL
        take_arrival(st, grant, w[js.ACTIVE] == 0 and w[js.APPLIED] == w[js.ARRIVED] and stack.control[SIZE] == 0)
        if w[js.ACTIVE]:
            if keeps:
                _set_aside(st, stack)
            w[js.ACTIVE] = 0
