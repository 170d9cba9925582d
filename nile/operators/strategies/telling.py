"""What a sample of keys, tuples and pairs tells of the whole join, and how its pairs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nile.exact.join.count import count_whole
from nile.operators.common.data import Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.admitted import Admission
from nile.operators.strategies.by_key import KeyPairs
from nile.operators.strategies.choice import Choice
from nile.operators.strategies.looking import span_of
from nile.preferences.key_sample import KeySample, left_out, missing_of, stood_for
from nile.preferences.key_sample import counted as counted_estimate
from nile.summaries.estimate import Estimate

__all__ = ["ToldRun", "by_stratum", "counted_all", "drawing_rates", "figures_of", "sample_of", "told"]

Array = np.ndarray[Any, Any]
_CONFIDENCE, _TWICE, _WHOLE = 0.95, 1.96, np.iinfo(np.int64).max
_NONE_OF = 3.0
"""Where none of a sample has something, at most so many over its rate have it, in 95 % of all samples."""


class ToldRun:
    """What a run by a strategy tells of the whole join.

    _tuples, _nulls, _came: of both streams how many tuples, those without a key, and the places of those that came in,
    a part after the other; _outputs: pairs so far; _outliers: pairs of outliers, once all are counted; _sampled:
    the keys that were drawn from, their strata, and the tuples that came in by stratum.
    """

    plan: JoinPlan
    choice: Choice
    _joined: Joinable
    _tuples: tuple[int, ...]
    _nulls: tuple[int, ...]
    _came: list[list[Array]]
    _outputs: int
    _outliers: int | None
    _sampled: tuple[KeyPairs, Array, Array] | None
    _admission: Admission | None

    @property
    def is_told(self) -> bool:
        """Whether `total` will not change any more."""
        return self.choice.known is not None or self._outliers is not None or self._sampled is not None

    @property
    def total(self) -> Estimate:
        """How many pairs (asc: of outliers) there are: counted, or told by the sample, or else by the look, which
        certifies none, or by outliers found."""
        found, asc = float(self._outputs), self.plan.preference == "asc"
        if (known := self._outliers if asc else self.choice.known) is not None:
            return Estimate.exact(float(known))
        if asc:
            return Estimate.between(found, found, np.inf)
        if self._sampled is not None:
            assert self._admission is not None
            tuples = tuple(n - nulls for n, nulls in zip(self._tuples, self._nulls, strict=True))
            window, span = self._joined.window, span_of(self._joined)
            return told(*self._sampled, self._admission, tuples, window, span, _CONFIDENCE)
        pairs, reach = self.choice.look.pairs, _TWICE * self.choice.look.error
        return Estimate(max(found, pairs), max(found, pairs - reach), max(found, pairs + reach), _CONFIDENCE, False)

    def codes(self, left: Array) -> Array:
        """A number of each key, of left tuples that are in an output: int64 [m]."""
        if self.choice.way == "keys":
            return np.unique(self.choice.look.words[0][left], return_inverse=True)[1].reshape(-1).astype(np.int64)
        return self._joined.exact.left_code[left]

    def sample(self, parts: list[Outputs]) -> KeySample:
        """The sample of keys that the outputs of a weighted run are.  O(outputs + tuples)."""
        none = np.zeros(0, np.int64)
        left, right = (np.concatenate([none, *each]) for each in ([p.left for p in parts], [p.right for p in parts]))
        weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
        # Of keys that came in one number each, from 0 on, whichever parts are asked for.
        key = self.choice.look.words[0][left] & _WHOLE if self.choice.way == "keys" else self.codes(left)
        tuples = [n - nulls for n, nulls in zip(self._tuples, self._nulls, strict=True)]
        inside, span = [parts[0] if parts else none for parts in self._came], span_of(self._joined)
        given = weight, key, (left, right), self._admission, tuples, inside
        return sample_of(*given, self.strata, self._joined.window, span)

    def strata(self, places: Array, side: int = 0) -> Array:
        """The stratum of each of some tuples of a stream: uint8 [m]."""
        assert self._admission is not None
        return self._admission.stratum[self.choice.look.slot_of(side, places)]


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
