"""The weighted join of two live streams: a sample of keys, of their tuples and of their pairs, at rates that follow.

Rates, and why the mean is right: `nile.preferences.follow_kernels`.
What the sample varies by.  Of all arrivals, those that are refused included, what each adds to the variance is summed
up by the rates that it was met with, which its own coins have not decided: a sample that missed what is rare does not
show it itself (`foresee`).
Cost.  A refused tuple costs nothing, as everywhere: the source has looked at it and its hash.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.join.sample_kernels import draw, emit, join
from nile.operators.join.sampling import (
    ALIKE,
    BY_KEY,
    BY_PAIR,
    BY_TUPLE,
    DEALT,
    DRAWN,
    EXPECTED,
    KEYS,
    MATCHES,
    SEEN,
    STANDS,
    Sampling,
)
from nile.preferences import state as js
from nile.preferences.arrival_kernels import held_at, passed, take_arrival, unit
from nile.preferences.follow_kernels import DRAWS, affordable, factors_of, learn, meet, rates, thinning_of
from nile.preferences.state import Output, State
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_MEMORY = 512.0  # arrivals with a key that what tuples stand for is a mean of


@part
def _rates(st: State) -> tuple[float, float, float]:
    """As what has arrived tells, nothing of which a coin has decided."""
    return rates(st.prices[js.P_INSERT] + st.real[js.BOUNDS], 1, thinning_of(st), st)


@kernel
def rates_of(st: State) -> tuple[float, float, float]:
    """What the next tuple is given: level of key hashes, probability of its own coin, rate of its outputs."""
    return _rates(st)


@inlined
def _matches(grant: float, st: State) -> float:
    """How many matches an arrival completes that grants so much, whoever came in."""
    exact = grant / st.real[js.FRACTION] - st.prices[js.P_INSERT] - st.prices[js.P_LOOKUP]
    return max(0.0, exact / st.prices[js.P_EMIT])  # type: ignore[no-any-return]


@inlined
def foresee(matches: float, h: np.uint64, level: float, coin: float, rate: float, books: Array) -> None:
    """What a tuple adds to the variance of totals of samples at such rates, whether it came in or not.

    A tuple with b matches before it and a after it adds (1 / coin - 1) (a + b) ** 2 / level, at most twice that of
    either square; a is known of those that it met, by what these stand for on average.  Keys share sums by their hash:
    a 1,024th of the total's square at most is added.  Of each key the root adds up, as levels move: no less than it is.
    """
    books[SEEN] += 1.0
    books[STANDS] += (1.0 / coin - books[STANDS]) / min(books[SEEN], _MEMORY)
    stands = books[STANDS]
    books[MATCHES] += matches
    books[BY_TUPLE] += 2.0 * matches * matches * (1.0 / coin - 1.0 + stands - 1.0) / level
    books[BY_PAIR] += matches * max(0.0, stands / (level * coin * rate) - 1.0)
    books[BY_KEY + np.int64(h % U8(KEYS))] += matches * math.sqrt((1.0 - level) / level)


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
            level, kept, drawn = _rates(st)
            coins, factor = factors_of(in_hand, entrance, st)
            kept = min(1.0, coins * kept)
            if below:
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
                if code >= 0:
                    matches = _matches(grant[w[js.APPLIED] - w[js.ARRIVALS_GONE]] / p.real[DEALT], st)
                    coin = came if came > 0.0 else kept
                    foresee(matches, h, level, coin, min(1.0, factor * drawn), p.books)
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
