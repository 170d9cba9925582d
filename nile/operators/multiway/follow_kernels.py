"""The weighted join of n streams: a sample of keys, of their tuples and of their combinations, at rates that follow.

Rates, and why the mean is right: `nile.preferences.follow_kernels`.  What the guide says is asked of tuples that came
in: a tuple whose key some other stream surely has not completes nothing, and is looked up nowhere.
"""

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
    output_price,
    passed,
    settlement_due,
    time_of,
)
from nile.operators.multiway.guide_kernels import Grids, alone_by_grids, surely_alone
from nile.operators.multiway.state import Output, State
from nile.preferences import state as js
from nile.preferences.arrival_kernels import take_arrival, unit
from nile.preferences.follow_kernels import DRAWS, affordable, draws_of, factors_of, learn, rates
from nile.preferences.upkeep_kernels import close_slice, count_in, pay_adds
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.grid_kernels import reach
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]


@inlined
def _in_hand(st: State) -> float:
    """What is granted and not spent, had as many combinations been drawn as were to be expected."""
    return st.real[js.CREDIT] - output_price(st) * (st.draws[ms.EXPECTED] - st.draws[ms.DRAWN])  # type: ignore[no-any-return]


@part
def _rates(st: State) -> tuple[float, float, float]:
    """As planned from all of the input (`nile.operators.multiway.rates`), or as what is granted tells."""
    if st.planned.shape[0] > 0:
        return st.planned[0], st.planned[1], st.planned[2]
    return rates(st.real[js.ENTRANCE], st.entry.shape[0] - 1, 1.0, st)


@part
def _drawn(rate: float, n: int, st: State) -> float:
    """How many of n combinations are drawn: as many as ticks fall on them; all of them where the rate is 1.

    Each unit of what is passed, `rate` a combination, has one tick, anywhere in it.
    """
    d = st.draws
    d[ms.EXPECTED] += draws_of(rate, n)
    if rate >= 1.0:
        return np.float64(n)
    ticks = 0
    ahead = d[ms.AHEAD]
    while ahead < rate * n:
        ticks += 1
        d[ms.TICKS] += 1.0
        within = unit(U8(d[ms.TICKS]), st.setting[js.SALT] + 3)
        ahead += 1.0 + within - d[ms.WITHIN]
        d[ms.WITHIN] = within
    d[ms.AHEAD] = ahead - rate * n
    return np.float64(ticks)


@inlined
def _enter_whole(s: Side, a: int, n: int, st: State) -> None:
    """The n combinations that a tuple completes are the entry in progress."""
    enter(a, time_of(s, a), js.RESOLVED, n, st)
    for k in range(st.entry.shape[0]):
        st.entry[k, 0] = st.cut[1, k]
        st.entry[k, 1] = st.cut[0, k]


@part
def _draw(s: Side, a: int, n: int, rate: float, st: State) -> None:
    """Draw among the n combinations that a tuple completes, at even distances from a place of luck: the new entry."""
    ticks = _drawn(rate, n, st)
    draws = min(ticks, np.float64(n))
    if draws == 0.0:
        return
    st.draws[ms.DRAWN] += draws
    _enter_whole(s, a, n, st)
    apart = n / draws
    st.real[js.ENTRY_GAP] = unit(U8(a), st.setting[js.SALT] + 5) * apart if draws < n else 0.0
    st.real[js.ENTRY_STEP] = apart
    st.real[js.ENTRY_WEIGHT] = max(1.0, ticks / (rate * draws))


@part
def _take_in(s: Side, lent: Grids, hashes: Array, a: int, rate: float, in_hand: float, st: State) -> None:
    """A tuple whose coin let it in: into summary and list, and what it completes into the entry in progress."""
    st.whole[js.ADMITTED] += 1
    before = st.real[js.CREDIT]
    if st.setting[js.GUIDE] == js.COUNTSKETCH:
        count_in(s, 0, a, time_of(s, a), s.hash[a - s.meta[ga.BASE]], st, True)
    insert(s, a, st)
    if st.setting[js.GUIDE] != js.DIRECTORY and (surely_alone(s, lent, hashes, a, st) or st.setting[js.BLIND]):
        st.whole[js.PRUNED] += 1
        return
    total = look_up(s, a, s.zone[ga.KEPT_FROM], False, st)
    if total > 0 and st.setting[js.RANGES]:
        _enter_whole(s, a, total, st)
        level, kept, _ = _rates(st)
        st.real[js.ENTRY_WEIGHT] = 1.0 / (level * kept ** st.entry.shape[0])
    elif total > 0:
        left = in_hand - (before - st.real[js.CREDIT])
        st.real[js.RATE] = affordable(rate, left, output_price(st) * np.float64(total))
        _draw(s, a, total, st.real[js.RATE], st)


@part
def _look(hashes: Array, a: int, code: int, st: State) -> bool:
    """Whether the oldest waiting tuple comes in: its coin is cast once, when it is looked at first."""
    n = st.entry.shape[0]
    salt = st.setting[js.SALT]
    at = a - st.whole[js.ADMISSIONS_GONE]
    if code < 0 or unit(hashes[code // n], salt) >= st.admissions[at]:
        return False
    _, kept, rate = _rates(st)
    if st.setting[js.RANGES]:  # the combinations of a record have one weight: nothing moves what was planned
        if unit(U8(a), salt + 4) < kept:
            st.coins[at] = kept
        return st.coins[at] > 0.0  # type: ignore[no-any-return]
    coins, factor = factors_of(_in_hand(st), st.real[js.ENTRANCE], st)
    kept = min(1.0, coins * kept)
    st.real[js.RATE] = factor * rate
    if st.coins[at] == 0.0 and unit(U8(a), salt + 4) < kept:
        st.coins[at] = kept
    return st.coins[at] > 0.0  # type: ignore[no-any-return]


@kernel
def price_of_asking(lent: Grids, hashes: Array, key: Array, stream: Array, ts: Array, st: State) -> float:
    """What asking the grids that others keep costs for these tuples, in the mean; nothing is charged.

    key: int32 [n], none null; stream: int8 [n]; ts: int64 [n] ns.
    """
    real = st.real
    credit, spent, taking = real[js.CREDIT], real[js.SPENT], real[js.SPENT_INSERT]
    for i in range(key.shape[0]):
        alone_by_grids(lent, hashes[key[i]], ts[i], int(stream[i]), st)
    price = (real[js.SPENT] - spent) / max(1, key.shape[0])
    real[js.CREDIT], real[js.SPENT], real[js.SPENT_INSERT] = credit, spent, taking
    return price  # type: ignore[no-any-return]


@kernel
def follow(s: Side, lent: Grids, hashes: Array, grant: Array, dealt: float, end: int, st: State, out: Output) -> int:
    """Run up to arrival `end`; returns why it stopped (`nile.operators.multiway.state`).

    lent, hashes, grant: as `promise_kernels.promise` takes them; dealt: what grants were multiplied by, of which rates
    know nothing.
    """
    w = st.whole
    real = st.real
    others = st.entry.shape[0] - 1
    pay_adds(s, 0, st)
    while True:
        if w[js.ACTIVE] and not emit_entry(s, st, out, 0.0):
            return js.OUTPUT_FULL
        if settlement_due(st):
            return ms.SETTLE
        if w[js.TURN_WANTED] and real[js.CREDIT] + real[js.SAVED] >= real[js.TURN_COST]:
            w[js.TURN_WANTED] = 0
            return js.TURN
        if w[js.ACTIVE] == 0 and w[js.APPLIED] < w[js.ARRIVED]:
            a = w[js.APPLIED]
            code = code_of(s, a)
            comes = _look(hashes, a, code, st)
            in_hand = _in_hand(st)
            if not comes or in_hand >= real[js.ENTRANCE] + DRAWS * output_price(st):
                if comes:
                    if not has_room(s, a, st):
                        return js.ARENA_FULL
                    _take_in(s, lent, hashes, a, real[js.RATE], in_hand, st)
                else:
                    st.admissions[a - w[js.ADMISSIONS_GONE]] = 0.0
                    if code < 0:
                        w[js.NULLS] += 1
                    else:
                        st.shed[code % (others + 1)] += 1
                passed(s, st)
                ends = reach(s, a, time_of(s, a))
                if ends and s.spec[ga.DETECTOR_BITS] != 0 and st.setting[js.GUIDE] == js.COUNTSKETCH:
                    close_slice(s, 0, time_of(s, a), st, True)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, False)
        newest = w[js.ARRIVED] - 1
        learn(grant[newest - w[js.ARRIVALS_GONE]] / dealt, st)
        real[js.ADMISSION] = _rates(st)[0]
        st.admissions[newest - w[js.ADMISSIONS_GONE]] = real[js.ADMISSION]
