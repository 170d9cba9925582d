"""The contestants for a join within a grant of CPU time: what each is expected to cost, to find, and to be worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.operators.strategies.looking import Look
from nile.operators.strategies.prices import Prices
from nile.preferences.strata import Strata, best_strata, sizes_of
from nile.summaries.hashing import is_hashed

__all__ = ["SPARE", "Admission", "Forecast", "best_keys", "choose", "forecasts", "sampled_keys"]

Array = np.ndarray[Any, Any]
_LISTED = 255
_SURE = 4
"""Tuples that a slot must have been seen with to be a stratum of its own."""
SPARE = 0.97
"""Of the grant, what a forecast may plan to spend."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Which keys come in, by slot, and which of their tuples.  stratum: uint8 [slots]; level, left, right: float64
    [strata], rates of keys and of the tuples of either stream; cost: ns expected; pairs: expected among them."""

    stratum: Array
    level: Array
    left: Array
    right: Array
    cost: float
    pairs: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """One contestant.  cost: ns of CPU; pairs: that it is expected to give; quality: in [0, 1], by the preference: the
    share of all pairs (desc) or of all outliers (asc), or how many pairs drawn evenly from all would tell as much
    (weighted, as a share of all); why: in words; admission: what comes in under `keys`."""

    strategy: str
    cost: float
    pairs: float
    quality: float
    why: str
    admission: Admission | None = None


def forecasts(look: Look, prices: Prices, preference: str, cap: int, grant: float) -> list[Forecast]:
    """All contestants for a grant of ns, those that cost more than the grant among them.  cap: of outliers."""
    n, pairs = sum(look.tuples), look.pairs
    base = prices.read * n + looking_cost(look, prices)
    whole = exact_cost(n, pairs, prices)
    exact = Forecast("exact", whole, pairs, 1.0, "every pair")
    counted = base + n * (prices.encode + prices.rank)
    room = max(0.0, SPARE * grant - counted) / prices.emit
    few = min(pairs, room)
    weighed = look.weighed(cap if preference == "asc" else 0)
    if preference == "asc":
        wanted = float(weighed[1].sum())
        few = min(wanted, room)
        counts = Forecast(
            "counts",
            counted + few * prices.emit,
            few,
            _share(few, wanted),
            "all tuples counted, outliers alone written",
        )
    else:
        what = "the pairs of the tuples with most matches" if preference == "desc" else "pairs drawn evenly from all"
        counts = Forecast(
            "counts", counted + few * prices.emit, few, _share(few, pairs), f"all tuples counted, then {what}"
        )
    left = SPARE * grant - base - prices.look * n
    if preference == "weighted":
        admission, worth = sampled_keys(look, prices, left)
        why = "keys by hash, tuples of heavy ones by coin; drawn among their pairs"
    else:
        admission = best_keys(weighed, prices, left)
        worth = _share(admission.pairs, float(weighed[1].sum()))
        why = "keys with most pairs per tuple" if preference == "desc" else "rare keys"
    cost = base + prices.look * n + admission.cost
    keys = Forecast("keys", cost, admission.pairs, worth, f"{why}; the rest refused unencoded", admission)
    summary = Forecast("summary", base, 0.0, 0.0, "counts by slot alone: how many pairs there are, none of them")
    promise = Forecast(
        "promise", n * (prices.read + prices.encode + prices.promise), pairs * min(1.0, grant / whole), 0.0,
        "promising regions tuple by tuple: for streams that come as they go",
    )  # fmt: skip
    return [exact, counts, keys, summary, promise]


def choose(candidates: list[Forecast], grant: float, start: float = 0.0) -> Forecast:
    """The best that the grant pays for; of equals the cheapest.  Promise is chosen by name alone.

    start: ns beyond the grant at which the whole answer is still better than a part of it for little less.
    """
    paid = [each for each in candidates if each.cost <= grant and each.strategy != "promise"]
    paid += [each for each in candidates if each.strategy == "exact" and grant < each.cost <= grant + start]
    if not paid:
        return min((each for each in candidates if each.strategy != "promise"), key=lambda each: each.cost)
    return max(paid, key=lambda each: (each.quality, -each.cost))


def looking_cost(look: Look, prices: Prices) -> float:
    """ns of the look itself."""
    hashed = sum(n for n, one in zip(look.tuples, look.joined.streams, strict=True) if is_hashed(one.key.type))
    return prices.seen * look.looked + prices.weigh * look.slots + prices.text * hashed


def exact_cost(tuples: int, pairs: float, prices: Prices) -> float:
    """ns of the exact answer."""
    return tuples * (prices.read + prices.encode + prices.probe) + pairs * prices.chain


def best_keys(weighed: tuple[Array, Array, Array], prices: Prices, room: float, done: Array | None = None) -> Admission:
    """As many slots as the room pays for, in ns, the best first.

    weighed: by `Look.weighed`; done: bool [slots], which are left out.
    """
    tuples, wanted, order = weighed
    if done is not None:
        order = order[~done[order]]
    taking = np.cumsum(tuples[order] * (prices.take + prices.copy + prices.rank))
    written = np.cumsum(wanted[order] * prices.emit)
    # The last slot may have more pairs than are paid for: those of its best tuples are written.
    count = int(np.searchsorted(taking + np.append(0.0, written[:-1]), room, side="right"))
    stratum = np.zeros(tuples.shape[0], np.uint8)
    stratum[order[:count]] = 1
    one = np.ones(2)
    cost, expected = 0.0, 0.0
    if count:
        cost = min(room, float(taking[count - 1] + written[count - 1]))
        expected = min(float(wanted[order[:count]].sum()), (cost - float(taking[count - 1])) / prices.emit)
    return Admission(stratum, np.array([0.0, 1.0]), one, one, cost, expected)


def sampled_keys(look: Look, prices: Prices, room: float) -> tuple[Admission, float]:
    """Rates of keys and tuples under which totals vary least for the room, in ns; and what the sample is worth."""
    seen = look.seen.sum(axis=0)
    heavy = np.flatnonzero(seen >= _SURE)
    if heavy.shape[0] > _LISTED:
        least = np.partition(seen[heavy], -_LISTED)[-_LISTED]
        heavy = heavy[seen[heavy] >= least]
    heavy = heavy[np.argsort(-seen[heavy], kind="stable")][:_LISTED]
    tuples = look.seen.sum(axis=1) * np.array(look.every, np.float64)
    counts = look.seen.T[heavy].astype(np.float64)
    # Both streams may have been looked at unalike: by the denser, the sparser is scaled up.
    stands = float(min(look.every))
    counts *= np.array(look.every) / stands
    pairs = max(1.0, look.pairs)
    sizes = sizes_of(
        np.array([pairs]), np.maximum(tuples, 1.0)[None, :], int(look.keys), counts[None, :, :],
        np.array([stands]), np.array([look.closeness]),
    )  # fmt: skip
    taking, emitting = prices.encode + prices.copy + prices.rank, prices.emit
    strata = best_strata(sizes, max(1.0, room), taking, emitting)
    stratum = np.zeros(look.slots, np.uint8)
    stratum[heavy] = 1 + np.arange(heavy.shape[0], dtype=np.uint8)
    came = float((sizes.keys * sizes.pairs * strata.level * strata.left * strata.right * strata.rate).sum())
    admission = Admission(stratum, strata.level[0], strata.left[0], strata.right[0], float(strata.cost.sum()), came)
    return admission, _worth(sizes.pairs[0], sizes.keys[0], strata, came, pairs)


def _worth(pairs: Array, keys: Array, strata: Strata, came: float, total: float) -> float:
    """Of all pairs, how many drawn evenly would tell a total as well as these strata do."""
    inside = strata.level[0] * np.minimum(strata.left[0], strata.right[0])
    missed = float((keys * pairs * pairs * (1.0 / np.maximum(inside, 1e-9) - 1.0)).sum()) / (total * total)
    drawn = 1.0 / max(came, 1e-9) - 1.0 / max(total, came, 1e-9)
    return _share(1.0 / (missed + drawn + 1.0 / total), total)


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0.0 else 1.0
