"""The weighted join over an input that is there whole: three coins between a pair and the sample, paid as it goes.

Design.  Rates are planned (`nile.preferences.strata`), so a tuple's fate needs one look at a small table.  What comes
in is paid at once and joined at once, in order; when credit is out, tuples wait for what later arrivals grant.  A
factor, 1 when all goes as planned, moves the rates of tuples and pairs towards what is left to spend.
Why the mean is right.  The factor depends on the past alone, and each tuple and pair has a coin of its own, so each
is in with exactly the probability that its weight undoes.  The level of key hashes, whose coin is shared, follows
nothing that the coin has decided.
Cost.  A refused tuple costs nothing, as everywhere: the source has looked at it and its hash.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    take_arrival,
    unit,
    window_ranks,
)
from nile.preferences.state import Output, State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_SLOT_BITS = 12
_MOST = 2.0  # of the factor
_ONE_ENTRY = 0.5  # of all that is left to spend, the most that the pairs of one tuple may take

# `at`: the sampler's own place.
TICKS, LAST = 0, 1
AT_FIELDS = 2
"""TICKS: drawn so far; LAST: the pair of the entry in progress that was emitted last, -1: none."""
# `real`: where the next tick lies, ahead of what has been passed, and within its unit; what is planned to be spent.
AHEAD, WITHIN, TOTAL = 0, 1, 2
REAL_FIELDS = 3


class Sampling(NamedTuple):
    """The plan and the place of a sampler: s segments of the input, k strata."""

    level: Array  # float64 [s, k]
    left: Array  # float64 [s, k]
    right: Array  # float64 [s, k]
    rate: Array  # float64 [s, k]
    slot: Array  # uint8 [s, 4096]: the stratum of each part of the key space
    ends: Array  # int64 [s]: the arrival with which each segment ends
    to_come: Array  # float64 [b + 1]: what is planned to be spent from each of b parts of the input on
    price: Array  # float64 [s]: of looking at a sampled tuple
    every: Array  # int64 [s]: of so many arrivals one is sampled
    left_thinned: Array  # float64 [left tuples]: the probability of each that came in by its own coin
    right_thinned: Array  # float64 [right tuples]
    at: Array  # int64 [2]
    real: Array  # float64 [3]


@inlined
def slot_of(h: Any, salt: int) -> int:
    """The part of the key space that a key lies in: twelve bits of a hash of its own."""
    return np.int64(mix(h, salt + 1) >> U8(64 - _SLOT_BITS))  # type: ignore[return-value]


@inlined
def is_looked_at(arrival: int, every: int, salt: int) -> bool:
    """Whether an arrival is one of those that sizes are learnt from: one in each `every`, at random."""
    block = arrival // every
    return bool(arrival - block * every == np.int64(mix(U8(block), salt + 2) >> U8(1)) % every)


@kernel
def sampled_arrivals(every: int, begin: int, end: int, salt: int, out: Array) -> int:
    """The arrivals of begin..end-1 that are looked at, into `out` (int64, room enough); returns how many."""
    n = 0
    for arrival in range(begin, end):
        if is_looked_at(arrival, every, salt):
            out[n] = arrival
            n += 1
    return n


@kernel
def slots_of(hashes: Array, salt: int, out: Array) -> None:
    """out[i] = slot_of(hashes[i]).  hashes: uint64 [n]; out: int64 [n]."""
    for i in range(hashes.shape[0]):
        out[i] = slot_of(hashes[i], salt)


@part
def _factor(arrival: int, arrivals: int, st: State, p: Sampling) -> float:
    """By how much rates move: what is left to spend over what was planned to be spent from here on."""
    parts = p.to_come.shape[0] - 1
    at = np.float64(arrival) * parts / np.float64(arrivals)
    part_of = min(np.int64(at), parts - 1)
    planned = p.to_come[part_of] + (at - part_of) * (p.to_come[part_of + 1] - p.to_come[part_of])
    if planned <= 0.0:
        return 1.0
    left = st.real[js.CREDIT] + p.real[TOTAL] - st.real[js.GRANTED]
    return max(0.0, min(_MOST, left / planned))  # type: ignore[no-any-return]


@inlined
def _tick(rate: float, st: State, p: Sampling) -> None:
    """Draw where the next tick lies: within its unit, near where the last one lay in its own.

    Uniform, like the last; so near that no pair, which is `rate` of a unit, is hit twice.
    """
    p.at[TICKS] += 1
    off = (2.0 * unit(U8(p.at[TICKS]), st.setting[js.SALT] + 3) - 1.0) * (1.0 - rate)
    within = p.real[WITHIN] + off
    if within < 0.0:
        within = -within
    elif within > 1.0:
        within = 2.0 - within
    p.real[AHEAD] += 1.0 + within - p.real[WITHIN]
    p.real[WITHIN] = within


@part
def _emit(own: Side, other: Side, st: State, p: Sampling, out: Output) -> bool:
    """Emit drawn pairs of the entry in progress while credit lasts; False when the output is full."""
    w = st.whole
    real = st.real
    price = st.prices[js.P_EMIT]
    side = w[js.ENTRY_SIDE]
    ordinal = w[js.ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    low, n = w[js.ENTRY_LOW], w[js.ENTRY_HIGH] - w[js.ENTRY_LOW]
    rate = real[js.ENTRY_STEP]
    begin = other.lists[code, ga.PLACE] - other.lists[code, ga.GONE] + low
    level = st.left_admission[ordinal] if side == 0 else st.right_admission[ordinal]
    came = p.left_thinned[ordinal] if side == 0 else p.right_thinned[ordinal]
    while True:
        ahead = p.real[AHEAD]
        place = real[js.ENTRY_GAP] + ahead / rate  # ENTRY_GAP: where among its pairs the last tick lay
        which = max(np.int64(place), p.at[LAST] + 1)
        if which >= n:
            p.real[AHEAD] = max(0.0, ahead - rate * (np.float64(n) - real[js.ENTRY_GAP]))
            w[js.ACTIVE] = 0
            return True
        if real[js.CREDIT] < price:
            return True
        at = w[js.WRITTEN]
        if at == out.first.shape[0]:
            return False
        match = other.arena[begin + which]
        met_level = st.right_admission[match] if side == 0 else st.left_admission[match]
        met_came = p.right_thinned[match] if side == 0 else p.left_thinned[match]
        out.first[at] = ordinal if side == 0 else match
        out.second[at] = match if side == 0 else ordinal
        out.weight[at] = 1.0 / (min(level, met_level) * came * met_came * rate)
        w[js.WRITTEN] = at + 1
        w[js.OUTPUTS] += 1
        pay_hit(st, price)
        p.at[LAST] = which
        p.real[AHEAD] = 0.0
        real[js.ENTRY_GAP] = place
        _tick(rate, st, p)


@part
def _join(own: Side, other: Side, side: int, ordinal: int, st: State) -> int:
    """Take a tuple in, which is paid for, and find its pairs; returns how many, -1 when the arena must grow first."""
    at = held_at(own, ordinal)
    code = own.code[at]
    if not put_in_list(own, side, code, ordinal, st):
        return -1
    st.whole[js.ADMITTED] += 1
    pay_insert(st, st.prices[js.P_INSERT])
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(other, code, own.ts[at], st.window[0], 0)
    if high > low:
        make_entry(st, side, ordinal, own.ts[at], low, high, 1.0)
    return high - low


@kernel
def sample(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, p: Sampling, out: Output) -> int:
    """Run the sampling join up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals].
    """
    w = st.whole
    real = st.real
    salt = st.setting[js.SALT]
    entrance = st.prices[js.P_INSERT] + real[js.BOUNDS]
    segment = 0
    while True:
        if w[js.ACTIVE]:
            room = _emit(left, right, st, p, out) if w[js.ENTRY_SIDE] == 0 else _emit(right, left, st, p, out)
            if not room:
                return js.OUTPUT_FULL
        if w[js.ACTIVE] == 0 and w[js.APPLIED] < w[js.ARRIVED]:
            arrival = w[js.APPLIED]
            while arrival >= p.ends[segment]:
                segment += 1
            side = order[arrival]
            ordinal = w[js.SEQUENCE + side]
            at = held_at(left, ordinal) if side == 0 else held_at(right, ordinal)
            code = left.code[at] if side == 0 else right.code[at]
            h = left.hash[at] if side == 0 else right.hash[at]
            due = 0.0
            came = 0.0
            level = 0.0
            stratum = 0
            factor = 1.0
            if code >= 0:
                if is_looked_at(arrival, p.every[segment], salt):
                    due = p.price[segment]
                stratum = p.slot[segment, slot_of(h, salt)]
                level = p.level[segment, stratum]
                if unit(h, salt) < level:
                    factor = _factor(arrival, order.shape[0], st, p)
                    kept = min(1.0, factor * (p.left if side == 0 else p.right)[segment, stratum])
                    if unit(U8(2 * ordinal + side), salt + 4) < kept:
                        came = kept
            if real[js.CREDIT] >= due + (entrance if came > 0.0 else 0.0):
                if code < 0:
                    w[js.NULLS] += 1
                elif came == 0.0:
                    w[js.SHED] += 1
                    w[js.SHED_BY_SIDE + side] += 1
                else:
                    (st.left_admission if side == 0 else st.right_admission)[ordinal] = level
                    (p.left_thinned if side == 0 else p.right_thinned)[ordinal] = came
                    n = _join(left, right, 0, ordinal, st) if side == 0 else _join(right, left, 1, ordinal, st)
                    if n < 0:
                        return js.ARENA_FULL
                    if n > 0:
                        real[js.MATCHES] += np.float64(n)
                        left_to_spend = real[js.CREDIT] + p.real[TOTAL] - real[js.GRANTED]
                        most = max(1e-9, _ONE_ENTRY * left_to_spend / (st.prices[js.P_EMIT] * n))
                        real[js.ENTRY_STEP] = min(1.0, min(most, factor * p.rate[segment, stratum]))
                        p.at[LAST] = -1
                pay_insert(st, due)
                w[js.NOW_TS] = left.ts[at] if side == 0 else right.ts[at]
                passed(st, side)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, False)
