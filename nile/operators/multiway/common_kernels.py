"""Pieces that the kernels of a join of n streams share: windows, the entry in progress, outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.multiway import state as ms
from nile.operators.multiway.state import Output, State
from nile.preferences import state as js
from nile.preferences.arrival_kernels import pay_hit, pay_insert, window_ranks
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import append, is_full, make_room
from nile.summaries.kernels import inlined, part

Array = np.ndarray[Any, Any]


@inlined
def code_of(s: Side, a: int) -> Any:
    """(key, stream) of an arrival that is held, as one number: key * streams + stream; -1: it has no key."""
    return np.int64(s.code[a - s.meta[ga.BASE]])


@inlined
def time_of(s: Side, a: int) -> Any:
    """ts of an arrival that is held."""
    return s.ts[a - s.meta[ga.BASE]]


@inlined
def output_price(st: State) -> float:
    """What an output costs; under a condition a candidate, whose emit is given back when it fails."""
    return st.prices[js.P_EMIT] + st.prices[js.P_SCAN] * np.float64(st.setting[ms.CONDITIONED])  # type: ignore[no-any-return]


@inlined
def passed(s: Side, st: State) -> None:
    """The oldest waiting tuple has been dealt with; candidates are settled at fixed arrivals, whatever the batches."""
    w = st.whole
    w[js.NOW_TS] = time_of(s, w[js.APPLIED])
    w[js.APPLIED] += 1
    if w[js.APPLIED] % ms.SETTLE_EVERY == 0:
        w[ms.DUE] = 1 if w[js.WRITTEN] >= ms.SETTLE_WORTH or w[js.APPLIED] % ms.SETTLE_SURELY == 0 else 0


@inlined
def settlement_due(st: State) -> bool:
    """Whether candidates wait for their condition to be looked at, now."""
    due = st.whole[ms.DUE] != 0 and st.setting[ms.SETTLES] != 0 and st.whole[js.WRITTEN] > 0
    st.whole[ms.DUE] = 0
    return due  # type: ignore[no-any-return]


@part
def look_up(s: Side, a: int, kept_from: int, every: bool, st: State) -> int:
    """The ranks that arrival `a` meets in each other stream: rows 1 (first) and 0 (last + 1) of `cut`; their product.

    Stops at the first stream that holds none, unless `every`: rows after it are then 0.  Charged a stream.
    """
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    first = code_of(s, a) - own
    ts = time_of(s, a)
    total = 1
    for k in range(n):
        st.cut[0, k] = 0
        st.cut[1, k] = 0
        if k == own or (total == 0 and not every):
            continue
        low, high = window_ranks(s, first + k, ts, st.window[0], kept_from)
        st.cut[1, k] = low
        st.cut[0, k] = high
        total *= high - low
        pay_hit(st, st.prices[js.P_LOOKUP])
    return total


@part
def standing(s: Side, a: int, st: State) -> int:
    """How many tuples the key has in the window, all streams together, forgotten ones too.

    Costs no look-up: `look_up` stood there, and of the own stream insertion.
    """
    n = st.entry.shape[0]
    first = code_of(s, a) // n * n
    count = 0
    for k in range(n):
        low, high = window_ranks(s, first + k, time_of(s, a), st.window[0], 0)
        count += high - low
    return count


@part
def insert(s: Side, a: int, st: State) -> None:
    """Put the tuple at the end of its key's list, which has room; charged."""
    append(s, code_of(s, a), a)
    pay_insert(st, st.prices[js.P_INSERT])


@part
def has_room(s: Side, a: int, st: State) -> bool:
    """Whether the key's list takes one more; False, with the list noted, when the arena must grow first."""
    code = code_of(s, a)
    if is_full(s, code) and not make_room(s, code):
        st.whole[js.STOPPED_CODE] = code
        return False
    return True


@inlined
def enter(a: int, ts: int, resolved: int, total: int, st: State) -> None:
    """The product whose bounds the caller puts in `entry` is the entry in progress."""
    w = st.whole
    w[js.REGIONS] += 1
    w[js.ACTIVE] = resolved
    w[js.ENTRY_ORDINAL] = a
    w[js.ENTRY_TIME] = ts
    w[ms.ENTRY_TOTAL] = total
    st.real[js.ENTRY_GAP] = 0.0
    st.real[js.ENTRY_STEP] = 1.0
    st.real[js.ENTRY_WEIGHT] = 1.0


@part
def emit_entry(s: Side, st: State, out: Output, floor: float) -> bool:
    """Emit from the entry in progress while the credit stays at `floor` or above; False when the output is full.

    Combination number c of the product: index arithmetic, the last stream fastest.  A sampled entry emits number
    floor(gap), then moves gap on by step; step 1 emits every one.  A sampled combination stands for 1 / the lowest of
    the admission thresholds its tuples came through, and for 1 / the coin of each, if they have coins.  Under ranges
    the whole product is one record.  Each output is charged by itself: sums of prices must not depend on where a full
    output interrupted.
    """
    w = st.whole
    real = st.real
    n = st.entry.shape[0]
    a = w[js.ENTRY_ORDINAL]
    own = code_of(s, a) % n
    first = code_of(s, a) - own
    total = w[ms.ENTRY_TOTAL]
    price = output_price(st)
    room = out.weight.shape[0]
    step = real[js.ENTRY_STEP]
    gap = real[js.ENTRY_GAP]
    at = w[js.WRITTEN]
    begin = at
    more = True
    full = False
    ranges = st.setting[js.RANGES] != 0
    sampled = st.setting[js.PREFERENCE] == js.WEIGHTED and st.admissions.shape[0] > 0 and not ranges
    while gap < total:
        if real[js.CREDIT] - price < floor:
            more = False
            break
        if at == room:
            more = False
            full = True
            break
        weight = real[js.ENTRY_WEIGHT]
        if ranges:
            out.cell[at, 0] = a
            for k in range(n):
                out.cell[at, 1 + 2 * k] = st.entry[k, 0]
                out.cell[at, 2 + 2 * k] = st.entry[k, 1]
            gap = np.float64(total)
        else:
            number = min(np.int64(gap), total - 1)
            admission = 1.0
            coins = 1.0
            for j in range(n):
                k = n - 1 - j
                member = a
                if k != own:
                    low = st.entry[k, 0]
                    size = st.entry[k, 1] - low
                    rank = low + number % size
                    number //= size
                    member = s.arena[s.lists[first + k, ga.PLACE] - s.lists[first + k, ga.GONE] + rank]
                out.cell[at, k] = member
                if sampled:
                    admission = min(admission, st.admissions[member - w[js.ADMISSIONS_GONE]])
                if st.coins.shape[0] > 0:
                    coins *= st.coins[member - w[js.ADMISSIONS_GONE]]
            gap += step
            weight /= admission * coins
        out.weight[at] = weight
        real[js.CREDIT] -= price
        real[js.SPENT] += price
        real[js.SPENT_HIT] += price
        at += 1
    w[js.WRITTEN] = at
    w[js.OUTPUTS] += at - begin
    w[ms.CANDIDATES] += at - begin
    real[js.ENTRY_GAP] = gap
    if more:
        w[js.ACTIVE] = 0
    return not full
