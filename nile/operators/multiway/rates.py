"""At which rates a weighted join of n streams draws keys, their tuples and what they complete: those of least variance.

Of all pairs (level of key hashes, probability of a tuple) that can be paid, with the rate of combinations that the rest
pays for, the one is taken under which the total of the weights is expected to scatter least:

    (1 / level - 1) * sum over keys of (share of the answer) ** 2
    + (1 / kept - 1) * streams * sum over tuples of (share that it completes) ** 2
    + 1 / (combinations drawn)

Under ranges all that a tuple completes is one record, whose combinations have one weight: the rates of keys and tuples
stay as they are planned, and are so low that what they cost hardly ever exceeds what is granted.  Of keys it is known
how many tuples they have in each stream, which are taken to come evenly.
Source: Poisson sampling of clusters in three stages (Sarndal, Swensson, Wretman 1992, section 4.3); not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.multiway.data import MultiwayInput
from nile.operators.multiway.state import State
from nile.preferences import state as js
from nile.pyramid.grid.arrays import Side
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.multiway import follow_kernels
else:
    follow_kernels = lazy("nile.operators.multiway.follow_kernels")

__all__ = ["plan_rates", "planned", "planned_ranges", "taking_ranges"]

Array = np.ndarray[Any, Any]
_SPENT = 0.95
"""Of what is granted in all: planned to be spent, so that little waits when the input ends."""
_ASKED = 64  # tuples of which it is tried what asking costs
_STEPS = np.exp2(-np.arange(49) / 4.0)
_SURELY = 3.0  # standard deviations of what is spent, which are not planned to be
_KEPT_IN_HAND = 3.0  # tuples and their records
_KEYS = 2048  # the heaviest, and at most as many of all others, tell what a tuple costs


def planned(
    emitting: Array, key: Array, granted: float, taking: float, price: float, streams: int
) -> tuple[float, float, float]:
    """(level, probability of a tuple, rate).  Costs are in hundredths of the table's unit.

    emitting: float64 [N], what the outputs of each arrival cost; key: int [N], -1 null; granted: in all; taking: what a
    tuple costs that comes in; price: of an output.  O(N).
    """
    known = key >= 0
    total = float(emitting.sum())
    if total <= 0.0 or granted <= 0.0:
        return 1.0, 1.0, 1.0
    shares = emitting / total
    by_key = float((np.bincount(key[known], shares[known]) ** 2).sum())
    by_tuple = streams * float((shares**2).sum())
    level, kept = _STEPS[:, None], _STEPS[None, :]
    spare = _SPENT * granted - level * kept * taking * int(known.sum())
    found = level * kept**streams
    with np.errstate(divide="ignore"):
        rate = np.minimum(1.0, np.maximum(spare, 0.0) / (found * total))
        scatter = (1 / level - 1) * by_key + (1 / kept - 1) * by_tuple + price / (found * rate * total)
    best = np.unravel_index(int(np.argmin(scatter)), scatter.shape)
    return float(_STEPS[best[0]]), float(_STEPS[best[1]]), max(1e-9, float(rate[best]))


def taking_ranges(counts: Array, reach: float, alone: float, lookup: float, emit: float) -> Array:
    """What a tuple that comes in costs in the mean, its record included, for each probability of tuples in _STEPS.

    counts: as `planned_ranges` takes them; reach: the share of a key's tuples that a window holds; alone: what it costs
    besides look-ups, which end at the first stream that holds none.  float64 [steps].  O(_KEYS * steps * n ** 2).
    """
    tuples = counts.sum(axis=1)
    heaviest = np.argsort(-tuples, kind="stable")
    every = max(1, -(-(tuples.shape[0] - _KEYS) // _KEYS))
    rest = heaviest[_KEYS::every]
    told, stand = counts[np.concatenate([heaviest[:_KEYS], rest])], np.ones(min(_KEYS, tuples.shape[0]) + rest.shape[0])
    stand[_KEYS:] = every
    some = 1.0 - np.exp(-reach * _STEPS[:, None, None] * told)  # of steps, keys, streams: it has one
    spent, weight = np.zeros(_STEPS.shape[0]), 0.0
    for k in range(counts.shape[1]):
        held = np.ones(some.shape[:2])
        cost = np.zeros(some.shape[:2])
        for other in range(counts.shape[1]):
            if other != k:
                cost += lookup * held
                held *= some[:, :, other]
        spent += ((cost + emit * held) * (stand * told[:, k])).sum(axis=1)
        weight += float((stand * told[:, k]).sum())
    return alone + spent / max(1.0, weight)


def planned_ranges(counts: Array, granted: float, taking: Array, close: float) -> tuple[float, float, float]:
    """As `planned`, of range records.

    counts: float64 [keys, n], tuples of each key in each stream; taking: `taking_ranges`; close: the share of all
    combinations of a key that lie in one window.  O(keys * n ** 2).
    """
    tuples = counts.sum(axis=1)
    made = counts.prod(axis=1)
    total = float(made.sum())
    if total <= 0.0 or granted <= 0.0:
        return 1.0, 1.0, 1.0
    level, kept = _STEPS[:, None], _STEPS[None, :]
    cost = level * kept * tuples.sum() * taking
    spread = level * (1.0 - level) * (kept**2) * float((tuples**2).sum()) + level * kept * (1.0 - kept) * tuples.sum()
    most = cost + taking * (_SURELY * np.sqrt(spread) + _KEPT_IN_HAND)
    held = made > 0.0
    shares, each = (made[held] / total) ** 2, 1.0 / counts[held]
    alike = [shares, *np.zeros((counts.shape[1], shares.shape[0]))]  # of so many streams the same tuples
    for one in each.T:
        for streams in range(counts.shape[1], 0, -1):
            alike[streams] = alike[streams] + alike[streams - 1] * one
    odds = 1.0 / kept - 1.0
    scatter = 1.0 / level - 1.0 + np.zeros_like(cost)
    scatter *= float(shares.sum())
    for streams in range(1, counts.shape[1] + 1):
        fewer = close if streams == counts.shape[1] else 1.0
        scatter += odds**streams * float(alike[streams].sum()) / (level * max(fewer, 1e-12))
    scatter = np.where(most <= granted, scatter, np.inf)
    best = np.unravel_index(int(np.argmin(scatter if np.isfinite(scatter).any() else most)), scatter.shape)
    return float(_STEPS[best[0]]), float(_STEPS[best[1]]), 1.0


def _together(data: MultiwayInput, window: int | None) -> float:
    """Of combinations of one key, the share that lies in one window, were they to come evenly."""
    span = int(data.ts[-1]) - int(data.ts[0])
    x = 1.0 if window is None or span <= window else window / span
    return data.streams * x ** (data.streams - 1) - (data.streams - 1) * x**data.streams


def plan_rates(
    state: State, data: MultiwayInput, costs: Array, granted: float, lent: tuple[Side, ...] | None, window: int | None
) -> State:
    """The state with what `follow_kernels.follow` draws by.  costs: float64 [N], exact ones, in hundredths.

    Sketches of its own, where they are asked, cost what they may at most.  window: ns; None: no window.
    """
    prices = state.prices
    plain = float(prices[js.P_INSERT] + (data.streams - 1) * prices[js.P_LOOKUP])
    taking = float(state.real[js.ENTRANCE]) if state.setting[js.GUIDE] == js.COUNTSKETCH else plain
    if lent is not None:
        known = np.flatnonzero(data.key >= 0)
        some = known[:: max(1, known.shape[0] // _ASKED)]
        asked = (data.key[some], data.stream[some], data.ts[some])
        taking += float(follow_kernels.price_of_asking(lent, data.hashes, *asked, state))
    if state.setting[js.RANGES]:
        keyed, keys = np.flatnonzero(data.key >= 0), data.hashes.shape[0]
        place = data.key[keyed].astype(np.int64) * data.streams + data.stream[keyed]
        counts = np.bincount(place, minlength=keys * data.streams).reshape(keys, data.streams).astype(np.float64)
        span = float(data.ts[-1] - data.ts[0])
        reach = 0.5 if window is None or window > 0.5 * span else window / span
        asking = taking - plain + float(prices[js.P_INSERT])
        costs = taking_ranges(counts, reach, asking, float(prices[js.P_LOOKUP]), float(prices[js.P_EMIT]))
        return state._replace(planned=np.array(planned_ranges(counts, granted, costs, _together(data, window))))
    outputs = np.maximum(costs - plain, 0.0)
    rates = planned(outputs, data.key, granted, taking, float(prices[js.P_EMIT]), data.streams)
    return state._replace(planned=np.array(rates))
