"""What a sample of keys, tuples and pairs tells of the whole join, and how its pairs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nile.exact.join.count import count_whole
from nile.operators.common.figures import JoinFigures
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.by_key import KeyPairs
from nile.operators.strategies.forecast import Admission
from nile.operators.strategies.looking import span_of
from nile.preferences.key_sample import KeySample, left_out, missing_of, stood_for
from nile.preferences.key_sample import counted as counted_estimate
from nile.summaries.estimate import Estimate

__all__ = ["by_stratum", "counted_all", "drawing_rates", "figures_of", "sample_of", "told"]

Array = np.ndarray[Any, Any]
_NONE_OF = 3.0
"""Where none of a sample has something, at most so many over its rate have it, in 95 % of all samples."""


def told(
    found: KeyPairs, which: Array, came: Array, admission: Admission, tuples: tuple[int, ...], window: int | None,
    span: int, confidence: float,
) -> Estimate:  # fmt: skip
    """How many pairs there are, by all that the sampled keys have, drawn or not.

    which: uint8, the stratum of each key ([0]: of all, the only one); came: int64 [2, strata], the tuples that came in;
    tuples: of either stream, with a key; window: ns or None; span: ns.
    The variance is that of keys that are in or out whole, and of tuples with coins of their own.
    """
    coins = np.stack([admission.left, admission.right])
    of_key = which if which.shape[0] else 0
    level: Array = admission.level[of_key]
    by_key = found.by_key * (1.0 / (admission.level * coins[0] * coins[1]))[of_key]
    keys = (1.0 - level) * by_key**2
    total = float(by_key.sum())
    variance = float(keys.sum()) + found.scatter(which, admission.level, coins)
    room = 0.0
    if level.min() < 1.0:
        stood = (came / np.where(came > 0, admission.level * coins, 1.0)).sum(axis=1)
        streams = list(zip(tuples, stood.tolist(), strict=True))
        room = left_out(*missing_of(streams, window, span), total)
    least = float(admission.level.min())
    if least < 1.0 and not keys.any():  # of keys that were drawn among others none has a pair: of the others some may
        room += _NONE_OF / least
    largest = float(np.sqrt(keys.max(initial=0.0)))
    return counted_estimate(float(found.pairs), total, variance, room, confidence, largest)


def sample_of(
    weight: Array, key: Array, members: tuple[Array, Array], came: Admission | None, tuples: Sequence[int],
    inside: Sequence[Array], strata: Callable[[Array, int], Array], window: int | None, span: int,
) -> KeySample:  # fmt: skip
    """The sample of keys that pairs are.

    weight, key: of each; members: places of its tuples; came: what came in, None: all; tuples: of either stream, with a
    key; inside: places of those that came in; strata: tells those of places in a stream; window: ns or None; span: ns.
    """
    if came is None:
        return KeySample(weight, np.ones(weight.shape[0]), key)
    coins = came.left, came.right
    streams = [
        (n, (came.level * coin)[strata(own, side)])
        for side, (n, coin, own) in enumerate(zip(tuples, coins, inside, strict=True))
    ]
    unseen, missed = 0.0, None
    if (came.level < 1.0).any():
        unseen, missed = missing_of(stood_for(streams), window, span)
    of = strata(members[0], 0)
    shared = tuple((own, coin[of]) for own, coin in zip(members, coins, strict=True))
    return KeySample(weight, came.level[of], key, unseen, shared, missed)


def drawing_rates(pairs: Array, weight: Array, room: float) -> Array:
    """The probability of a pair of each stratum, so that weights are as even as they can be and `room` pairs come.

    pairs, weight: float64 [strata]: how many pairs came in, and for how many each stands.
    """
    if pairs.sum() <= room:
        return np.ones(weight.shape[0])
    low, high = 0.0, float((pairs * weight).sum()) / max(room, 1e-9)
    for _ in range(60):
        tick = 0.5 * (low + high)
        if float((pairs * np.minimum(1.0, weight / tick)).sum()) > room:
            low = tick
        else:
            high = tick
    return np.minimum(1.0, weight / high)


def counted_all(joined: Joinable) -> int:
    """How many pairs there are, by their keys as window joins take them; none is made.  O(tuples)."""
    window = span_of(joined) if joined.window is None else joined.window
    return count_whole((joined.left.ts, joined.right.ts), joined.window_codes, window)


def by_stratum(strata: tuple[Array, Array], count: int) -> Array:
    """How many tuples of each stream are in each stratum: int64 [2, count].  strata: uint8, of each of them."""
    if count == 1:
        return np.array([[each.shape[0]] for each in strata])
    return np.array([np.bincount(each, minlength=count) for each in strata])


def figures_of(
    arrivals: int, nulls: int, shed: tuple[int, int], outputs: int, granted: float, spent: float, written: float,
    exact_cost: float,
) -> JoinFigures:  # fmt: skip
    """What a run by a strategy has done.  granted, spent, exact_cost: ns by the prices; written: of these, on pairs."""
    admitted = arrivals - nulls - sum(shed)
    return JoinFigures(
        arrivals=arrivals, nulls=nulls, admitted=admitted, shed=shed, outputs=outputs, regions=0, pruned=0, zones=0,
        changes=0, expired=0, evicted=0, granted=granted, spent=spent, spent_insert=spent - written, spent_hit=written,
        exact_cost=exact_cost, coverage=1.0, forgotten=0, admission=1.0 - sum(shed) / max(1, arrivals - nulls),
        sampling_rate=1.0,
    )  # fmt: skip
