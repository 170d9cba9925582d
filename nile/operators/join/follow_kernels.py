"""The weighted join of two live streams: a sample of keys, of their tuples and of their pairs, at rates that follow.

Rates, and why the mean is right: `nile.preferences.follow_kernels`.
Cost.  A refused tuple costs nothing, as everywhere: the source has looked at it and its hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.join.sample_kernels import draw, emit, join
from nile.operators.join.sampling import ALIKE, DEALT, DRAWN, EXPECTED, Sampling
from nile.preferences import state as js
from nile.preferences.arrival_kernels import held_at, passed, take_arrival, unit
from nile.preferences.follow_kernels import DRAWS, affordable, factors_of, learn, meet, rates, thinning_of
from nile.preferences.state import Output, State
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import U8, kernel, part

Array = np.ndarray[Any, Any]


@part
def _rates(st: State) -> tuple[float, float, float]:
    """As what has arrived tells, nothing of which a coin has decided."""
    return rates(st.prices[js.P_INSERT] + st.real[js.BOUNDS], 1, thinning_of(st), st)


@kernel
def rates_of(st: State) -> tuple[float, float, float]:
    """What the next tuple is given: level of key hashes, probability of its own coin, rate of its outputs."""
    return _rates(st)


@part
def _arrive(own: Side, side: int, st: State, p: Sampling, grant: Array) -> None:
    """The next tuple has arrived: it grants, and is given its level."""
    w = st.whole
    real = st.real
    at = w[js.ARRIVED] - w[js.ARRIVALS_GONE]
    take_arrival(st, grant, False)
    undealt = grant[at] / p.real[DEALT]
    learn(undealt * (1.0 + p.real[ALIKE]), st)
    held = held_at(own, w[js.ARRIVED_BY_SIDE + side])
    meet(own.code[held], own.ts[held], undealt, st.shed_at, st)
    place = w[js.ARRIVED_BY_SIDE + side] - w[js.ADMISSIONS_GONE + side]
    w[js.ARRIVED_BY_SIDE + side] += 1
    real[js.ADMISSION] = _rates(st)[0]
    (st.left_admission if side == 0 else st.right_admission)[place] = real[js.ADMISSION]


@kernel
def follow(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, p: Sampling, out: Output) -> int:
    """Run up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8, the stream of each arrival; grant: float64; both from arrival `ARRIVALS_GONE` on.
    """
    w = st.whole
    real = st.real
    salt = st.setting[js.SALT]
    entrance = st.prices[js.P_INSERT] + real[js.BOUNDS]
    price = st.prices[js.P_EMIT]
    while True:
        if w[js.ACTIVE]:
            room = emit(left, right, st, p, out) if w[js.ENTRY_SIDE] == 0 else emit(right, left, st, p, out)
            if not room:
                return js.OUTPUT_FULL
        if w[js.ACTIVE] == 0 and w[js.APPLIED] < w[js.ARRIVED]:
            side = order[w[js.APPLIED] - w[js.ARRIVALS_GONE]]
            ordinal = w[js.SEQUENCE + side]
            at = held_at(left, ordinal) if side == 0 else held_at(right, ordinal)
            code = left.code[at] if side == 0 else right.code[at]
            h = left.hash[at] if side == 0 else right.hash[at]
            levels = st.left_admission if side == 0 else st.right_admission
            place = ordinal - w[js.ADMISSIONS_GONE + side]
            below = code >= 0 and unit(h, salt) < levels[place]
            in_hand = real[js.CREDIT] - price * (p.real[EXPECTED] - p.at[DRAWN])
            thinned = p.left_thinned if side == 0 else p.right_thinned
            came = 0.0
            factor = 1.0
            drawn = 1.0
            if below:
                _, kept, drawn = _rates(st)
                coins, factor = factors_of(in_hand, entrance, st)
                kept = min(1.0, coins * kept)
                if thinned[place] == 0.0 and unit(U8(2 * ordinal + side), salt + 4) < kept:
                    thinned[place] = kept
                came = thinned[place]
            if came == 0.0 or in_hand >= entrance + DRAWS * price:
                if code < 0:
                    w[js.NULLS] += 1
                elif came == 0.0:
                    w[js.SHED] += 1
                    w[js.SHED_BY_SIDE + side] += 1
                else:
                    n = join(left, right, 0, ordinal, st) if side == 0 else join(right, left, 1, ordinal, st)
                    if n < 0:
                        return js.ARENA_FULL
                    if n > 0:
                        real[js.MATCHES] += np.float64(n)
                        real[js.RATE] = affordable(factor * drawn, in_hand - entrance, price * n)
                        draw(real[js.RATE], n, unit(U8(2 * ordinal + side), salt + 5), 0, st, p)
                if came == 0.0:
                    levels[place] = 0.0
                w[js.NOW_TS] = left.ts[at] if side == 0 else right.ts[at]
                passed(st, side)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        if order[w[js.ARRIVED] - w[js.ARRIVALS_GONE]] == 0:
            _arrive(left, 0, st, p, grant)
        else:
            _arrive(right, 1, st, p, grant)
