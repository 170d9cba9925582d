"""At which rates a weighted join of n streams draws keys, their tuples and what they complete: those of least variance.

Of all pairs (level of key hashes, probability of a tuple) that can be paid, with the rate of combinations that the rest
pays for, the one is taken under which the total of the weights is expected to scatter least:

    (1 / level - 1) * sum over keys of (share of the answer) ** 2
    + (1 / kept - 1) * streams * sum over tuples of (share that it completes) ** 2
    + 1 / (combinations drawn)

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

__all__ = ["plan_rates", "planned"]

Array = np.ndarray[Any, Any]
_SPENT = 0.95
"""Of what is granted in all: planned to be spent, so that little waits when the input ends."""
_ASKED = 64  # tuples of which it is tried what asking costs
_STEPS = np.exp2(-np.arange(49) / 4.0)


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


def plan_rates(
    state: State, data: MultiwayInput, costs: Array, granted: float, lent: tuple[Side, ...] | None, *, sketched: bool
) -> State:
    """The state with what `follow_kernels.follow` draws by.  costs: float64 [N], exact ones, in hundredths.

    sketched: whether sketches of its own are asked, which cost what they may at most.
    """
    prices = state.prices
    plain = float(prices[js.P_INSERT] + (data.streams - 1) * prices[js.P_LOOKUP])
    taking = float(state.real[js.ENTRANCE]) if sketched else plain
    if lent is not None:
        known = np.flatnonzero(data.key >= 0)
        some = known[:: max(1, known.shape[0] // _ASKED)]
        asked = (data.key[some], data.stream[some], data.ts[some])
        taking += float(follow_kernels.price_of_asking(lent, data.hashes, *asked, state))
    outputs = np.maximum(costs - plain, 0.0)
    rates = planned(outputs, data.key, granted, taking, float(prices[js.P_EMIT]), data.streams)
    return state._replace(planned=np.array(rates))
