"""One cheap look at both streams before anything is encoded: how many tuples fall in each slot of the key space."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.admitted import ALL, BLOCK, Keyed, values_of
from nile.operators.strategies.distinct import distinct_of, paired_of
from nile.operators.strategies.prices import Prices
from nile.summaries.hashing import KeyHasher, key_words
from nile.summaries.heavy import pa
from nile.summaries.key_types import is_hashed
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import strategy_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.strategy_kernels")

__all__ = ["Look", "looks_at", "span_of"]

Array = np.ndarray[Any, Any]
_LEAST_SLOTS, _MOST_SLOTS = 12, 17
_FEWEST, _SEEN, _ONE_IN = 16_384, 50_000, 64
"""Tuples of a stream that are looked at: all of so many, from there on one in so many, and never more."""
_TIMES = 64
_KINDS, _ALIKE = 32, 100
"""Of slots by how often they were seen, and how many of a kind tell what the next one has."""
_DENSE, _BESIDE = 4, 1 << 18
"""Numbers a tuple, and besides, up to which joins take keys as they are (`nile.exact.join.listed`)."""
_ODD, _PLACES = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFF)
"""Numbers that differ differ times this, mostly in their upper bits; the lower ones are for places of up to _SEEN."""
_TOLD, _CLEARLY = 64, 1.25
"""Pairs of one key that tell how many of these are near, and how many times more or fewer than of all tuples."""
_FINEST = 19
_ONE_EACH = np.zeros(0, np.int32)


class Look(Keyed):
    """Counts by slot.  seen: int32 [2, slots], tuples.

    every: of each stream, one tuple in so many was looked at; the same for every budget, so that a larger one ranks
    slots alike.  hashed: tuples whose key is text, unhashed: those of them that are no values of a dictionary;
    looked_hashed: texts hashed to look at some.  Cost: 5 ns a tuple looked at, 60 with keys of text.
    """

    def __init__(self, joined: Joinable, seed: int, *, fine: bool = False) -> None:
        """fine: in more slots, for rare keys, which others in their slot hide."""
        self.joined, self.window = joined, joined.window
        streams = joined.streams
        self.tuples = tuple(map(len, streams))
        self.nulls = tuple(one.key.null_count for one in streams)
        self.every, bits = _sampling(self.tuples, fine=fine)
        self.shift = 64 - bits
        self.slots = 1 << bits
        self.seed = _secret_seed(streams[0].hasher, seed)
        self._seeds = np.random.Generator(np.random.PCG64([seed & 0xFFFFFFFF, 7]))
        counts = np.zeros((2, self.slots), np.int32)
        ends: list[tuple[int, int]] = []
        self._noted: list[Array] = []
        self._looked: list[tuple[int, Array]] = []
        for k in (0, 1):
            first = int(self._seeds.integers(self.every[k]))
            words, valid = self._sample(k, first)
            self._looked.append((first, valid))
            words = words[valid] if valid.shape[0] else words
            kernels.slot_counts(words, _ONE_EACH, self.seed, self.shift, np.empty(BLOCK, np.uint64), counts[k])
            self._noted.append(words)
            if words.shape[0]:
                ends.append((int(words.min()), int(words.max())))
        self.hashed = sum(n for n, one in zip(self.tuples, streams, strict=True) if is_hashed(one.key.type))
        self._span = max((high for _, high in ends), default=0) - min((low for low, _ in ends), default=0)
        looked = [-(-n // every) for n, every in zip(self.tuples, self.every, strict=True)]
        self.looked = sum(looked)
        self.unhashed = sum(
            n for n, one in zip(self.tuples, streams, strict=True) if is_hashed(one.key.type) and not values_of(one.key)
        )
        self.looked_hashed = sum(
            len(one.key.chunk(0).dictionary) if values_of(one.key) else m * is_hashed(one.key.type)
            for m, one in zip(looked, streams, strict=True)
        )
        self.seen = counts
        self._weighed: dict[int, tuple[Array, Array, Array]] = {}

    def _sample(self, side: int, first: int) -> tuple[Array, Array]:
        """(words, valid) of the tuples of a stream looked at, from `first` on; of text no others are hashed."""
        one, every = self.joined.streams[side], self.every[side]
        values = self._values[side]
        if values is not None:
            return values[0][values[1][first::every]], ALL
        if every > 1 and is_hashed(one.key.type):
            return key_words(one.key.take(pa.array(np.arange(first, len(one), every))), where=f"stream '{one.name}'")
        words, valid = self._keyed[side]
        return np.ascontiguousarray(words[first::every]), np.ascontiguousarray(valid[first::every])

    def is_sparse(self, tuples: float) -> bool:
        """Whether keys are numbers too far apart to be the codes of so many tuples themselves."""
        return self._span > _DENSE * tuples + _BESIDE

    def within(self, window: int | None) -> Look:
        """The same look where partners are looked for within another window, ns; what was counted is shared."""
        if window == self.window:
            return self
        assert self._sums.size  # of the counts alone
        other = copy(self)
        other.window, other._weighed = window, {}
        for name in ("_close", "alike", "pairs"):
            other.__dict__.pop(name, None)
        return other

    @property
    def closeness(self) -> float:
        """The share of the pairs of two tuples, one of each stream, that lie within the window."""
        return self._close[0]

    @cached_property
    def _close(self) -> tuple[float, float]:
        """(`closeness`, its standard error), by some left tuples, one after so many others."""
        window = self.window
        left, right = self.joined.left.ts, self.joined.right.ts
        if window is None or not left.shape[0] or not right.shape[0]:
            return 1.0, 0.0
        at = left[np.linspace(0, left.shape[0] - 1, min(_TIMES, left.shape[0])).astype(np.int64)]
        ends = np.iinfo(np.int64)
        low = np.searchsorted(right, np.where(at < ends.min + window, ends.min, at - window), side="left")
        high = np.searchsorted(right, np.where(at > ends.max - window, ends.max, at + window), side="right")
        near = (high - low) / right.shape[0]
        return float(max(1e-9, near.mean())), float(near.std() / np.sqrt(near.shape[0]))

    @cached_property
    def alike(self) -> float:
        """As `closeness`, of those of one key, where keys clearly go with time: sessions, walks, what drifts.

        By the tuples looked at: as many of one key as there are, and as many of these near as there are.
        """
        close, window = self.closeness, self.window
        if window is None or close >= 1.0:
            return close
        times = []
        for one, every, (first, valid) in zip(self.joined.streams, self.every, self._looked, strict=True):
            ts = one.ts[first::every]
            times.append(ts[valid] if valid.shape[0] else ts)
        words = self._sorted
        same, near = kernels.near_by_key(words[0], words[1], times[0], times[1], window)
        usual = close * same
        told = max(near, usual) >= _TOLD and not usual / _CLEARLY <= near <= usual * _CLEARLY
        return float(near / same) if told else close

    def pairs_within(self, share: float) -> float:
        """The share of all pairs that lie in the first part of both streams, if tuples come evenly."""
        window = self.window
        reach = 1.0 if window is None else min(1.0, window / max(1, span_of(self.joined)))
        return _near(share, reach) / max(1e-30, _near(1.0, reach))

    @cached_property
    def _beside(self) -> float:
        """Of left * right of a slot, what keys that share it by chance make."""
        left, right = (
            float(seen.sum()) * every / self.slots for seen, every in zip(self.seen, self.every, strict=True)
        )
        return left * right

    @cached_property
    def _sums(self) -> Array:
        sums = np.zeros(2)
        kernels.sum_slots(self.seen, np.array(self.every), self._beside, sums)
        return sums

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        """The tuples looked at by a hash of their key, in an order of its own, with their places in the lowest bits."""
        left, right = (
            np.sort(noted.view(np.uint64) * _ODD & ~_PLACES | np.arange(noted.shape[0], dtype=np.uint64))
            for noted in self._noted
        )
        return left, right

    @cached_property
    def _met(self) -> tuple[Array, Array]:
        """(a tuple of each key that was met, how often it was in either stream): uint64 [keys], as of `_sorted`, of the
        left one where there is one; int64 [2, keys].  Cost: sorting the tuples seen."""
        left, right = self._sorted
        keys = np.empty(left.shape[0] + right.shape[0], np.uint64)
        times = np.empty((2, keys.shape[0]), np.int64)
        met = kernels.times_met(left, right, keys, times)
        return keys[:met], times[:, :met]

    def heaviest(self, most: int, least: int) -> tuple[Array, Array]:
        """The slots of at most so many keys, those met most often, and at least so often: slots, int64 [m], and how
        often their keys were met in either stream, int64 [m, 2].
        """
        keys, times = self._met
        often = times.sum(axis=0)
        heavy = np.flatnonzero(often >= least)
        if heavy.shape[0] > most:
            heavy = heavy[np.argsort(-often[heavy], kind="stable")[:most]]
        places, at = (keys[heavy] & _PLACES).astype(np.int64), np.empty(heavy.shape[0], np.int64)
        words = np.empty(heavy.shape[0], np.int64)
        for own, noted in zip((times[0, heavy] > 0, times[0, heavy] == 0), self._noted, strict=True):
            words[own] = noted[places[own]]
        kernels.slots_of(words, np.arange(heavy.shape[0]), self.seed, self.shift, at)
        slots, which = np.unique(at, return_inverse=True)
        met = np.zeros((slots.shape[0], 2), np.int64)
        np.add.at(met, which, times[:, heavy].T)
        return slots, met

    @cached_property
    def _by_key(self) -> tuple[Array, Array]:
        """About how many tuples of either stream each key has that both were seen with: float64 [keys]."""
        times = self._met[1]
        left, right = times[:, (times[0] > 0) & (times[1] > 0)].astype(np.float64)
        return left * self.every[0], right * self.every[1]

    @cached_property
    def pairs(self) -> float:
        """About how many pairs there are: those of the tuples looked at, each of which stands for as many."""
        left, right = self._by_key
        return self.alike * float(left @ right)

    @property
    def error(self) -> float:
        """The standard error of `pairs`: of tuples not looked at, of which ones of a key are near, and of how many."""
        left, right = self._by_key
        close, off = self.alike, self._close[1]
        unseen = close * close * (left * right * (right * (self.every[0] - 1) + left * (self.every[1] - 1))).sum()
        return float(np.sqrt(unseen + self.pairs * (1.0 - close) + (self.pairs * off / close) ** 2))

    @property
    def keys(self) -> float:
        """About how many distinct keys were seen, by the slots that no key fell in."""
        return max(1.0, -self.slots * float(np.log(max(1.0, self._sums[1]) / self.slots)))

    @cached_property
    def distinct(self) -> float:
        """About how many distinct keys there are, more than were seen."""
        tuples = float(sum(self.tuples) - sum(self.nulls))
        met = float(self.seen.sum())
        return max(1.0, min(tuples, distinct_of(self._met[1].sum(axis=0), met, tuples)))

    @cached_property
    def paired(self) -> float:
        """About which share of all tuples have a key that the other stream has, at any time."""
        left, right = self._met[1]
        shares = paired_of(left, right, self.every[1]), paired_of(right, left, self.every[0])
        return sum(n * share for n, share in zip(self.tuples, shares, strict=True)) / max(1, sum(self.tuples))

    def weighed(self, cap: int) -> tuple[Array, Array, Array]:
        """(tuples, pairs wanted, slots with most of these per tuple first): float64 [slots] twice, int64 [slots].

        cap: of outliers, which are wanted alone; 0: every pair is.
        """
        if cap in self._weighed:
            return self._weighed[cap]
        tuples, wanted, worths = np.empty(self.slots), np.empty(self.slots), np.empty(self.slots, np.float32)
        every, out = np.array(self.every), (tuples, wanted, worths)
        if cap:
            share, keys = 1.0 if self.window is None else 0.5 * self.alike, self.distinct / self.slots
            kinds, table = np.zeros((_KINDS, _KINDS), np.int64), np.empty((2, _KINDS, _KINDS))
            kernels.weigh_outliers(self.seen, every, self.alike, cap, share, keys, _ALIKE, kinds, table, *out)
        else:
            above = float(self._sums[0])
            scale = self.pairs / above if above else 0.0
            kernels.weigh_slots(self.seen, every, self._beside, scale, *out)
        # The bits of numbers from 0 on rank as they do: the upper two bytes, to a hundredth, sort in a few passes.
        rank = np.uint16(0xFFFF) - (worths.view(np.uint32) >> 15).astype(np.uint16)
        self._weighed[cap] = tuples, wanted, rank.argsort(kind="stable")
        return self._weighed[cap]

    def slot_of(self, side: int, places: Array) -> Array:
        """The slot of some tuples of a stream: int64 [m]."""
        out = np.empty(places.shape[0], np.int64)
        kernels.slots_of(self.words[side], places, self.seed, self.shift, out)
        return out

    @property
    def finest(self) -> int:
        """The binary logarithm of so many slots that most keys are alone in theirs."""
        return min(_FINEST, max(_LEAST_SLOTS, int(np.log2(2.0 * self.distinct)) + 1))

    def counted(self) -> tuple[Array, int]:
        """All tuples of either stream by slot, and the binary logarithm of how many slots: int32 [2, slots].

        In slots of their own most keys are alone.  A nanosecond a tuple, of text beside what `words` take.
        """
        bits = self.finest
        counts, room = np.zeros((2, 1 << bits), np.int32), np.empty(BLOCK, np.uint64)
        for own, values, k in zip(counts, self._values, (0, 1), strict=True):
            if values is not None:
                words, often = values[0], np.zeros(values[0].shape[0], np.int32)
                kernels.value_counts(values[1], often)
            else:
                (words, valid), often = self._keyed[k], _ONE_EACH
                words = words[valid] if valid.shape[0] else words
            kernels.slot_counts(words, often, self.seed, 64 - bits, room, own)
        return counts, bits


def looks_at(tuples: Sequence[int], hashed: Sequence[bool], prices: Prices) -> float:
    """ns of a look at streams of so many tuples, before they are read.  hashed: whether their keys are text."""
    every, bits = _sampling(tuples)
    looked = [-(-n // one_in) for n, one_in in zip(tuples, every, strict=True)]
    texts = sum(n for n, text in zip(looked, hashed, strict=True) if text)
    return prices.seen * sum(looked) + prices.weigh * (1 << bits) + prices.taken * texts


def _sampling(tuples: Sequence[int], *, fine: bool = False) -> tuple[tuple[int, ...], int]:
    """(one tuple in how many of each stream is looked at, the binary logarithm of the slots)."""
    wanted = [min(_SEEN, max(_FEWEST, n // _ONE_IN)) for n in tuples]
    bits = max(_LEAST_SLOTS, min(_MOST_SLOTS, int(np.log2(max(wanted))) - 1 + fine))
    return tuple(max(1, n // seen) for n, seen in zip(tuples, wanted, strict=True)), bits


def span_of(joined: Joinable) -> int:
    """Nanoseconds from the first tuple of either stream to the last."""
    ends = [int(end) for one in joined.streams if len(one) for end in (one.ts[0], one.ts[-1])]
    return max(ends) - min(ends) if ends else 0


def _near(part: float, reach: float) -> float:
    """Of the unit square of times of two tuples, how much lies in [0, part] squared and within reach."""
    return part * part if reach >= part else reach * (2.0 * part - reach)


def _secret_seed(hasher: KeyHasher, seed: int) -> int:
    digest = hashlib.blake2b(seed.to_bytes(16, "little", signed=True), digest_size=8, key=hasher.secret).digest()
    return int.from_bytes(digest, "little") >> 1
