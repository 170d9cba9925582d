"""Rates at which a weighted join draws where nothing can be learnt ahead: they follow what arrivals grant.

Design.  A grant is a fraction of the cost of the exact matches that an arrival completes, whoever came in.  From the
mean of what is granted follow the level of key hashes, the coin of tuples and the rate of outputs that would spend just
that; what is in hand moves the last two.
Why the mean of the weights is right.  The level of a tuple is set when it arrives, by grants alone, which no coin has
decided.  Its own coin and rate lean on earlier coins alone, and nobody whose level let it in is refused but by its
coin, cast once: who comes in, and all behind, wait until what is in hand pays for it.  In hand is what would be there
had as many outputs been drawn as were to be expected: ticks that have fallen tell which are to come, so nothing leans
on them.  Nearly nobody comes in where little is in hand, so what waits when one stops is little.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import since_of
from nile.preferences.state import Clocked
from nile.summaries.kernels import inlined, part

Array = np.ndarray[Any, Any]
_MEMORY = 512  # arrivals that the mean grant reaches back
_LEAST_LEVEL = 1e-4
_SPENT = 0.95  # of what is granted: planned to be spent
_TAKING = 0.5  # of what is granted, the least that takes tuples in where it does not do for all
_IN_HAND, _AHEAD = 8.0, 64.0  # tuples taken in, and arrivals, whose cost is kept in hand
_AT_FIRST = 0.25  # of all that has been granted, the most that is kept in hand
_LEAST, _MOST = 1.0 / 16.0, 4.0  # of the factor
_LEAST_COIN = 1e-3  # of what was planned: nearly nobody comes in, and waits, where nothing is in hand
_ONE_ENTRY = 0.5  # of what is in hand, the most that the outputs of one tuple may take
_LEAST_RATE = 1e-9
_ROOTS = 8  # steps to a root, each of which squares what is missing
DRAWS = 2.0
"""Outputs that what is in hand pays for besides, where a tuple comes in: one may be drawn ahead of what is expected."""


@part
def rates(taking: float, others: int, thinning: float, st: Clocked) -> tuple[float, float, float]:
    """(level of key hashes, probability of a tuple, rate of outputs) that spend what is granted.

    taking: the cost of taking a tuple in; others: streams beside its own; thinning: 1 / probability ** 2 that tuples of
    a key that is in want at least (`thinning_of`).  Otherwise they are thinned to about the root of those that a window
    has of it in a stream: fewer would find too little of light keys, more would leave out too many keys.  Where all
    keys are in, tuples are thinned to what is granted.  By square roots alone, which are the same on every machine.
    """
    granted = _SPENT * st.real[js.PER_ARRIVAL]
    exact = st.real[js.PER_ARRIVAL] / st.real[js.FRACTION] - st.prices[js.P_INSERT] - others * st.prices[js.P_LOOKUP]
    emitting = max(0.0, exact)
    root = math.sqrt(max(1.0, emitting / st.prices[js.P_EMIT], thinning))
    streams = 1
    while streams < others:
        root = math.sqrt(root)
        streams *= 2
    thinned = 1.0 / root
    met = emitting
    for _ in range(others):
        met *= thinned
    come = min(1.0, max(_TAKING * granted / taking, granted / (taking + met)))
    level = min(1.0, max(_LEAST_LEVEL, come / thinned))
    kept = min(1.0, come / level)
    if come > thinned:
        kept = max(min(1.0, _TAKING * granted / taking), _all_in(granted, taking, emitting, others))
    met = level * kept * emitting
    for _ in range(others):
        met *= kept
    spare = max(0.0, granted - level * kept * taking)
    return level, kept, 1.0 if met <= spare else spare / met


@part
def _all_in(granted: float, taking: float, emitting: float, others: int) -> float:
    """The probability of tuples of all keys that spends what is granted on them and on all that they find.

    Newton's steps to kept * taking + kept ** (others + 1) * emitting = granted, from above.
    """
    kept = min(1.0, granted / taking)
    for _ in range(_ROOTS):
        met = emitting
        for _ in range(others):
            met *= kept
        kept = (granted + np.float64(others) * kept * met) / (taking + np.float64(others + 1) * met)
    return min(1.0, kept)


@inlined
def thinning_of(st: Clocked) -> float:
    """How far apart tuples of a key of two streams want to be, squared, for a total that scatters least.

    Where tuples come in with a share s = level * kept, the squared relative error of a total of P pairs is near
    A / level + 2 B (1 / s - 1 / level) + 1 / (s kept P); A P: the pairs of its key, B P: the matches of its tuple, of
    the mean pair.  Of one s it is least with kept = 1 / sqrt(A P - 2 B P).  The pairs of a key are its tuples times
    their matches; that keys with more matches have more tuples in proportion makes it third moments.  Arrivals see half
    of the matches; moments without m itself are those of what they come at, were they to come by chance.
    """
    real = st.real
    if real[js.MET_ONCE] <= 0.0:
        return 1.0
    again = 0.5 * real[js.KEYED] / max(1.0, real[js.BEGUN])
    by_key = 2.0 * again * real[js.KEYED] * real[js.MET_THRICE] / (real[js.MET_ONCE] * real[js.MET_ONCE])
    return max(1.0, by_key - 4.0 * real[js.MET_TWICE] / real[js.MET_ONCE])  # type: ignore[no-any-return]


@inlined
def meet(code: int, ts: int, grant: float, shed_at: Array, st: Clocked) -> None:
    """A tuple of two streams has arrived, of this key, below 0 for none: count it, its matches, and its key once."""
    real = st.real
    if code >= 0:
        real[js.KEYED] += 1.0
        if shed_at[code] < since_of(ts, st.window[0]):
            real[js.BEGUN] += 1.0
        shed_at[code] = ts
        exact = grant / real[js.FRACTION] - st.prices[js.P_INSERT] - st.prices[js.P_LOOKUP]
        met = max(0.0, exact / st.prices[js.P_EMIT])
        real[js.MET_ONCE] += met
        real[js.MET_TWICE] += met * max(0.0, met - 1.0)
        real[js.MET_THRICE] += met * max(0.0, met - 1.0) * max(0.0, met - 2.0)


@inlined
def learn(grant: float, st: Clocked) -> None:
    """The newest arrival grants so much; CONTROLS: arrivals that the mean knows, those expected at first included."""
    st.whole[js.CONTROLS] += 1
    st.real[js.PER_ARRIVAL] += (grant - st.real[js.PER_ARRIVAL]) / np.float64(min(st.whole[js.CONTROLS], _MEMORY))


@inlined
def factors_of(in_hand: float, entrance: float, st: Clocked) -> tuple[float, float]:
    """By how much the coins of tuples and the rate of outputs move for what is in hand, had draws gone as expected.

    Outputs give way first: tuples are thinned for them no more than was planned.
    """
    few = _IN_HAND * entrance
    wanted = min(max(few, _AHEAD * st.real[js.PER_ARRIVAL]), max(entrance, _AT_FIRST * st.real[js.GRANTED]))
    factor = min(_MOST, in_hand / wanted)
    return max(_LEAST_COIN, factor, min(1.0, in_hand / few)), max(_LEAST, factor)


@inlined
def draws_of(rate: float, n: int) -> float:
    """How many of n outputs a rate draws on average, on which ticks fall: of more ticks than outputs, all are drawn.

    Each unit of what is passed, `rate` an output, has one tick, anywhere in it.  n outputs have n + 1 ticks where both
    units that they begin and end in have theirs there: of what they are more than n - 1 units long, y, on average over
    where they begin, y**3 / 6.
    """
    more = max(0.0, rate * n - (n - 1)) if rate < 1.0 else 0.0
    return rate * n - more * more * more / 6.0


@inlined
def affordable(rate: float, in_hand: float, outputs: float) -> float:
    """A rate that takes no more than half of what is in hand for one tuple's outputs, which would cost so much."""
    return min(1.0, min(max(_LEAST_RATE, _ONE_ENTRY * in_hand / outputs), rate))
