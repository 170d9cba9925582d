"""Summaries that keep some of the tuples: a reservoir, and the quantile sketch KLL.

Both draw by a counter through splitmix64, so that equal streams give equal bytes in every process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from nile.summaries.countsketch import SEED, splitmix
from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import mixed
from nile.summaries.summary import TOP, Summary

__all__ = ["Kll", "Reservoir"]

Array = np.ndarray[Any, Any]
_CONFIDENCE = 0.95
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_REPEATED = 1 << 12
"""A tuple of a weight up to this is put in that many times; a heavier one at once."""
_SHRINK = 2.0 / 3.0
_LEVELS = 70


class Reservoir(Summary):
    """A uniform random sample of the tuples' keys, `capacity` of them or all: 16 bytes each.

    seed: of the draws.  Every tuple draws 64 bits, those with the least are kept: so two reservoirs of other seeds add
    to one over both (`fresh` gives a seed of its own).  Nothing can be taken back: what was displaced is not known.
    Cost: a draw a tuple, a sort of those that are kept.

    Error, absolute and on the count of one key: all that is known while there are at most `capacity` tuples.  Beyond,
    total * sqrt(ln(2 / .05) / (2 * capacity)) to either side, 95 times of a hundred (Hoeffding, JASA 1963, theorem 2
    and section 6, samples without replacement), and never less than the tuples in the sample.
    Source: Vitter, ACM TOMS 1985; by least draws: Efraimidis, Spirakis, IPL 2006.
    """

    __slots__ = ("_drawn", "capacity", "draws", "keys", "seed")

    kind: ClassVar[str] = "reservoir"
    linear: ClassVar[bool] = False
    exact_merge: ClassVar[bool] = False

    def __init__(self, capacity: int = 1024, seed: int = SEED) -> None:
        super().__init__()
        self.capacity = _whole("reservoir", "capacity", capacity, 1, 1 << 24, 1024)
        self.seed = seed & _MASK
        self._drawn = 0
        self.keys: Array = np.zeros(0, np.uint64)
        self.draws: Array = np.zeros(0, np.uint64)

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.draws.nbytes)

    def estimate(self, hashes: Array) -> Estimate:
        """How often each key came: float64 [n], its share of the sample times the total."""
        keys = self._checked_hashes(hashes)
        total, held = float(min(self._total, TOP)), self.keys.shape[0]
        if not held:
            return Estimate.exact(np.zeros(keys.shape[0]))
        ordered = np.sort(self.keys)
        found = (np.searchsorted(ordered, keys, "right") - np.searchsorted(ordered, keys)).astype(np.float64)
        value = found / held * total
        if self._saturated:
            return Estimate(value, found, np.full(keys.shape[0], total), 0.0, False)
        if held == self._total:
            return Estimate.exact(value)
        reach = total * math.sqrt(math.log(2.0 / (1.0 - _CONFIDENCE)) / (2.0 * held))
        low, high = np.maximum(value - reach, found), np.minimum(value + reach, total - held + found)
        return Estimate(value, np.minimum(low, value), np.maximum(high, value), _CONFIDENCE, True)

    def confidence(self) -> float:
        """1 less the half-width of a count's interval as a share of the total; 1 while all is kept."""
        if self._total <= self.keys.shape[0]:
            return 1.0
        return 1.0 / (1.0 + math.sqrt(math.log(2.0 / (1.0 - _CONFIDENCE)) / (2.0 * self.keys.shape[0])))

    def empty(self) -> Self:
        return type(self)(self.capacity, self.seed)

    def fresh(self) -> Self:
        return type(self)(self.capacity, splitmix(self.seed + _GOLDEN))

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        self._saturated |= self._total + _sum(hashes.shape[0], weights) > TOP
        if weights is None:
            self._keep(hashes, self._draw(hashes.shape[0]))
            return
        heavy = np.flatnonzero(weights > _REPEATED)
        begin = 0
        for at in [*heavy.tolist(), hashes.shape[0]]:
            repeated = np.repeat(hashes[begin:at], weights[begin:at])
            self._keep(repeated, self._draw(repeated.shape[0]))
            if at < hashes.shape[0]:
                self._keep_heavy(hashes[at], int(weights[at]))
            begin = at + 1

    def _keep_heavy(self, key: Any, weight: int) -> None:
        """The least of so many draws of one key: order statistics of the uniform, one after the other."""
        least = 0.0
        ends = self._draw(min(weight, self.capacity))
        uniform = (ends.astype(np.float64) + 1.0) / 2.0**64
        found = []
        for at, one in enumerate(uniform.tolist()):
            least = 1.0 - (1.0 - least) * min(one, 1.0) ** (1.0 / (weight - at))
            found.append(min(int(least * 2.0**64), _MASK))
        self._keep(np.full(len(found), key, np.uint64), np.array(found, np.uint64))

    def _draw(self, n: int) -> Array:
        """The next n draws: uint64 [n]."""
        at = np.uint64(self._drawn & _MASK) + np.arange(1, n + 1, dtype=np.uint64)  # numbers of draws, modulo 2**64
        self._drawn += n
        return mixed(np.uint64(self.seed) + at * np.uint64(_GOLDEN))

    def _keep(self, keys: Array, draws: Array) -> None:
        keys, draws = np.concatenate([self.keys, keys]), np.concatenate([self.draws, draws])
        order = np.lexsort((keys, draws))[: self.capacity]
        self.keys, self.draws = keys[order], draws[order]

    def _combine(self, other: Reservoir, sign: int) -> None:
        del sign
        if self._drawn == 0:
            self.seed = other.seed
        self._drawn += other._drawn
        self._keep(other.keys, other.draws)
        self._saturated |= self._total + other.total > TOP

    def _shape(self) -> Mapping[str, object]:
        return {"capacity": self.capacity}

    def _params(self) -> Mapping[str, Any]:
        return {"capacity": self.capacity, "seed": self.seed, "drawn": self._drawn}

    def _arrays(self) -> Mapping[str, Array]:
        return {"keys": self.keys, "draws": self.draws}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        made = cls(envelope.integer("capacity", 1, 1 << 24), envelope.integer("seed", 0, _MASK))
        made._drawn = envelope.integer("drawn", 0, TOP**2)
        made.keys = envelope.array("keys", "<u8", (None,)).astype(np.uint64)
        made.draws = envelope.array("draws", "<u8", made.keys.shape).astype(np.uint64)
        if made.keys.shape[0] > made.capacity or bool((made.draws[1:] < made.draws[:-1]).any()):
            envelope.refuse("at most capacity keys, by ascending draws", "others")
        return made


class Kll(Summary):
    """How many tuples have a value up to this or that: ranks and quantiles, in about 3 * k numbers.

    k: 8 to 65535; seed: of the coins.  Numbers of values (`nile.summaries.ordered.order_codes`) lie in levels, one at
    level l stands for 2**l tuples; a level that is full is sorted and every other number goes up, the first or the
    second by a coin.  Nothing can be taken back.  Cost: log(tuples / k) moves a tuple.

    Error, absolute and on the count of a range of values, hence on ranks: each time a level was halved is off by at
    most its weight, with mean 0: so within sqrt(2 ln(2 / .05) * sum of the squared weights) 95 times of a hundred
    (Hoeffding, JASA 1963), and never by more than their sum; for k = 200 about 1.5 % of the tuples.  `estimate` of one
    value is that of the range that it is.  While nothing was halved, all is exact.
    Source: Karnin, Lang, Liberty, FOCS 2016, section 2.
    """

    __slots__ = ("_coins", "_squares", "_worst", "k", "levels", "seed")

    kind: ClassVar[str] = "kll"
    linear: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    exact_merge: ClassVar[bool] = False

    def __init__(self, k: int = 200, seed: int = SEED) -> None:
        super().__init__()
        self.k = _whole("kll", "k", k, 8, (1 << 16) - 1, 200)
        self.seed = seed & _MASK
        self.levels: list[Array] = [np.zeros(0, np.uint64)]
        self._coins = self._worst = self._squares = 0

    @property
    def nbytes(self) -> int:
        return int(sum(level.nbytes for level in self.levels))

    @property
    def error(self) -> float:
        """How far the count of a range may be off, in tuples, 95 times of a hundred; 0 while all is kept."""
        by_chance = math.sqrt(2.0 * math.log(2.0 / (1.0 - _CONFIDENCE)) * self._squares)
        return min(by_chance, float(self._worst))

    def estimate(self, hashes: Array) -> Estimate:
        """How often each value came: float64 [n] for the numbers of values uint64 [n]."""
        codes = self._checked_hashes(hashes)
        return self._told(self._ranks(codes, "right") - self._ranks(codes, "left"))

    def rank(self, hashes: Array) -> Estimate:
        """How many tuples have a value at most each: float64 [n] for the numbers of values uint64 [n]."""
        return self._told(self._ranks(self._checked_hashes(hashes), "right"))

    def between(self, low: int, high: int) -> Estimate:
        """How many tuples have numbers of values in [low, high]: one float."""
        if low > high:
            return Estimate.exact(0.0)
        ends = np.array([low, high], np.uint64)
        return self._told(self._ranks(ends[1:], "right") - self._ranks(ends[:1], "left"))[0]

    def quantile(self, share: float) -> int:
        """The number of the least value that at least this share of the tuples do not exceed, by the numbers kept."""
        if not 0.0 <= share <= 1.0 or self._total == 0:
            raise ConfigError(f"kll: a quantile needs a share in [0, 1] of some tuples; got {share!r} of {self._total}")
        values = np.concatenate(self.levels)
        weights = np.repeat([2.0**level for level in range(len(self.levels))], [len(each) for each in self.levels])
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order])
        return int(values[order][min(int(np.searchsorted(reached, share * reached[-1])), values.shape[0] - 1)])

    def confidence(self) -> float:
        """1 / (1 + error / total): 1 while nothing was halved."""
        return 1.0 if self._total <= 0 else 1.0 / (1.0 + self.error / self._total)

    def empty(self) -> Self:
        return type(self)(self.k, self.seed)

    def fresh(self) -> Self:
        return type(self)(self.k, splitmix(self.seed + _GOLDEN))

    def _told(self, value: Array) -> Estimate:
        total, error = float(min(max(self._total, 0), TOP)), self.error
        value = np.minimum(value, total)
        low, high = np.maximum(value - error, 0.0), np.minimum(value + error, total)
        if self._saturated:
            return Estimate(value, low, np.maximum(high, value), 0.0, False)
        return Estimate(value, low, high, _CONFIDENCE if error else 1.0, True)

    def _ranks(self, codes: Array, side: Any) -> Array:
        ranks = np.zeros(codes.shape[0])
        for level, held in enumerate(self.levels):
            ordered = np.sort(held) if level == 0 else held
            ranks += 2.0**level * np.searchsorted(ordered, codes, side)
        return ranks

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        self._saturated |= self._total + _sum(hashes.shape[0], weights) > TOP
        if weights is None:
            self._put(hashes)
            return
        begin = 0
        for at in [*np.flatnonzero(weights > _REPEATED).tolist(), hashes.shape[0]]:
            self._put(np.repeat(hashes[begin:at], weights[begin:at]))
            if at < hashes.shape[0]:
                self._put_heavy(hashes[at], int(weights[at]))
            begin = at + 1

    def _put(self, codes: Array) -> None:
        """Codes in order; a full sketch is halved at the same tuples, however they come."""
        begin = 0
        while begin < codes.shape[0]:
            room = max(1, self._capacity() - self._held())
            self.levels[0] = np.concatenate([self.levels[0], codes[begin : begin + room]])
            begin += room
            if self._held() >= self._capacity():
                self._halve()

    def _put_heavy(self, code: Any, weight: int) -> None:
        """One code so many times: one number at each level that is a bit of the weight."""
        for level in range(weight.bit_length()):
            if weight >> level & 1:
                self._grow(level + 1)
                self.levels[level] = np.sort(np.append(self.levels[level], code).astype(np.uint64))
        while self._held() >= self._capacity():
            self._halve()

    def _combine(self, other: Kll, sign: int) -> None:
        del sign
        if self._total == 0:
            self.seed = other.seed
        self._grow(len(other.levels))
        for level, held in enumerate(other.levels):
            both = np.concatenate([self.levels[level], held])
            self.levels[level] = both if level == 0 else np.sort(both)
        self._coins += other._coins
        self._worst += other._worst
        self._squares += other._squares
        self._saturated |= self._total + other.total > TOP
        while self._held() >= self._capacity():
            self._halve()

    def _held(self) -> int:
        return sum(level.shape[0] for level in self.levels)

    def _room(self, level: int) -> int:
        """Numbers that a level holds before it is halved: k at the bottom and at the top, less below the top."""
        if level == 0:
            return self.k
        return max(8, math.ceil(self.k * _SHRINK ** (len(self.levels) - 1 - level)))

    def _capacity(self) -> int:
        return sum(self._room(level) for level in range(len(self.levels)))

    def _grow(self, levels: int) -> None:
        self.levels += [np.zeros(0, np.uint64) for _ in range(levels - len(self.levels))]

    def _halve(self) -> None:
        """The lowest level that is full goes up by half."""
        level = next(at for at, held in enumerate(self.levels) if held.shape[0] >= self._room(at))
        self._grow(level + 2)
        held = np.sort(self.levels[level])
        odd = held.shape[0] & 1
        self._coins += 1
        coin = splitmix(self.seed + self._coins * _GOLDEN) >> 63
        self.levels[level] = held[:odd]
        self.levels[level + 1] = np.sort(np.concatenate([self.levels[level + 1], held[odd + coin :: 2]]))
        self._worst += 1 << level
        self._squares += 1 << (2 * level)

    def _shape(self) -> Mapping[str, object]:
        return {"k": self.k}

    def _params(self) -> Mapping[str, Any]:
        return {
            "k": self.k, "seed": self.seed, "coins": self._coins,
            "worst": self._worst, "squares": self._squares,
        }  # fmt: skip

    def _arrays(self) -> Mapping[str, Array]:
        sizes = np.array([level.shape[0] for level in self.levels], np.int64)
        return {"sizes": sizes, "values": np.concatenate(self.levels)}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        made = cls(envelope.integer("k", 8, (1 << 16) - 1), envelope.integer("seed", 0, _MASK))
        made._coins = envelope.integer("coins", 0, TOP)
        made._worst = envelope.integer("worst", 0, TOP**2)
        made._squares = envelope.integer("squares", 0, TOP**4)
        sizes = envelope.array("sizes", "<i8", (None,))
        if not 1 <= sizes.shape[0] <= _LEVELS or bool((sizes < 0).any() or (sizes > 1 << 32).any()):
            envelope.refuse(f"1 to {_LEVELS} levels of a size each", str(sizes.tolist()[:3]))
        values = envelope.array("values", "<u8", (int(sizes.sum()),)).astype(np.uint64)
        made.levels = np.split(values, np.cumsum(sizes)[:-1])
        if any(bool((level[1:] < level[:-1]).any()) for level in made.levels[1:]):
            envelope.refuse("levels in ascending order", "others")
        return made


def _sum(n: int, weights: Array | None) -> int:
    """The weight of a batch of n tuples, without wrapping."""
    return n if weights is None else sum(weights.tolist())


def _whole(kind: str, name: str, value: object, low: int, high: int, usual: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{kind}: {name} needs {low} to {high}; got {value!r}; {usual} is usual")
    return value
