"""One cheap look at both streams before anything is encoded: how many tuples fall in each slot of the key space."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.inputs.joining import Joinable, Loaded
from nile.summaries.hashing import KeyHasher, is_hashed, key_words
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import strategy_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.strategy_kernels")

__all__ = ["Look"]

Array = np.ndarray[Any, Any]
_LEAST_SLOTS, _MOST_SLOTS = 12, 18
_SEEN = 400_000
"""Tuples of a stream that are looked at: below, all of them."""
_TIMES = 1024
_SCATTER = 4.0


class Look:
    """Counts by slot.  words: of each stream int64 [n], equal where keys are; seen: int32 [2, slots], tuples.

    every: of each stream, one tuple in so many was looked at; the same for every budget, so that a larger one ranks
    slots alike.  Cost: 2 ns a tuple looked at, 12 a tuple with keys of text.
    """

    def __init__(self, joined: Joinable, seed: int) -> None:
        self.joined = joined
        streams = joined.streams
        self.tuples = tuple(map(len, streams))
        self.nulls = tuple(one.key.null_count for one in streams)
        bits = max(_LEAST_SLOTS, min(_MOST_SLOTS, int(np.log2(max(1, max(self.tuples)))) - 1))
        self.shift = 64 - bits
        self.slots = 1 << bits
        self.seed = _secret_seed(streams[0].hasher, seed)
        self._seeds = np.random.Generator(np.random.PCG64([seed & 0xFFFFFFFF, 7]))
        words: dict[int, tuple[Array, Array]] = {}
        for one in streams:
            if id(one.key) not in words:
                words[id(one.key)] = key_words(one.key, where=f"stream '{one.name}'")
        self.words, self.valid = zip(*(words[id(one.key)] for one in streams), strict=True)
        self.every = tuple(max(1, n // _SEEN) for n in self.tuples)
        counts = np.zeros((2, self.slots), np.int32)
        for k in (0, 1):
            first = int(self._seeds.integers(self.every[k]))
            kernels.slot_counts(self.words[k], self.valid[k], self.seed, self.shift, first, self.every[k], counts[k])
        self.looked = sum(-(-n // every) for n, every in zip(self.tuples, self.every, strict=True))
        self.seen = counts
        self._weighed: dict[int, tuple[Array, Array, Array]] = {}

    @cached_property
    def closeness(self) -> float:
        """The share of the pairs of two tuples, one of each stream, that lie within the window."""
        window = self.joined.window
        left, right = self.joined.left.ts, self.joined.right.ts
        if window is None or not left.shape[0] or not right.shape[0]:
            return 1.0
        at = left[np.linspace(0, left.shape[0] - 1, min(_TIMES, left.shape[0])).astype(np.int64)]
        ends = np.iinfo(np.int64)
        low = np.searchsorted(right, np.where(at < ends.min + window, ends.min, at - window), side="left")
        high = np.searchsorted(right, np.where(at > ends.max - window, ends.max, at + window), side="right")
        return float(max(1e-9, (high - low).mean() / right.shape[0]))

    @cached_property
    def _beside(self) -> float:
        """Of left * right of a slot, what keys that share it by chance make."""
        left, right = (
            float(seen.sum()) * every / self.slots for seen, every in zip(self.seen, self.every, strict=True)
        )
        return left * right

    @cached_property
    def _sums(self) -> Array:
        sums = np.zeros(6)
        kernels.sum_slots(self.seen, np.array(self.every), self._beside, sums)
        return sums

    @cached_property
    def pairs(self) -> float:
        """About how many pairs there are: the inner product of both streams' counts by slot, less what chance makes.

        Source: Alon, Gibbons, Matias, Szegedy, "Tracking Join and Self-Join Sizes in Limited Storage", PODS 1999.
        """
        whole = (float(self._sums[2]) - self.slots * self._beside) / (1.0 - 1.0 / self.slots)
        return self.closeness * max(0.0, whole)

    @cached_property
    def error(self) -> float:
        """The standard error of `pairs`: that of slots shared by chance, and of the tuples not looked at."""
        left, right, both, _, unseen, _ = self._sums
        return self.closeness * float(np.sqrt((left * right + both * both) / self.slots + unseen))

    @property
    def keys(self) -> float:
        """About how many distinct keys were seen, by the slots that no key fell in."""
        return max(1.0, -self.slots * float(np.log(max(1.0, self._sums[5]) / self.slots)))

    def weighed(self, cap: int) -> tuple[Array, Array, Array]:
        """(tuples, pairs wanted, slots with most of these per tuple first): float64 [slots] twice, int64 [slots].

        cap: of outliers, which are wanted alone; 0: every pair is.
        """
        if cap in self._weighed:
            return self._weighed[cap]
        tuples, wanted, rank = np.empty(self.slots), np.empty(self.slots), np.empty(self.slots, np.uint16)
        share = 1.0 if self.joined.window is None else 0.5 * self.closeness
        above = float(self._sums[3])
        scale = self.closeness if cap else self.pairs / above if above else 0.0
        kernels.weigh_slots(
            self.seen, np.array(self.every), self._beside, scale, cap, share, max(1.0, self.keys / self.slots), tuples,
            wanted, rank,
        )  # fmt: skip
        self._weighed[cap] = tuples, wanted, rank.argsort(kind="stable")
        return self._weighed[cap]

    def coin_seed(self, side: int) -> int:
        """The seed of the coins of a stream's tuples."""
        return (self.seed * 0x9E3779B9 + 2 * side + 1) & 0x7FFFFFFFFFFFFFFF

    def admitted(self, side: int, stratum: Array, level: Array, coin: Array) -> tuple[Array, Array]:
        """(places, strata) of the tuples of a stream that come in: int64 [m], uint8 [m].

        stratum: uint8 [slots]; level, coin: float64 [strata], of keys and of tuples.
        """
        n = self.tuples[side]
        out, came = np.empty(n + 1, np.int64), np.empty(n + 1, np.uint8)
        m = kernels.admit(self.words[side], self.valid[side], self.seed, self.shift, stratum, _below(level), out, came)
        if (coin < 1.0).any():
            m = kernels.thin(out[:m], came[:m], self.coin_seed(side), _below(coin))
        return out[:m], came[:m]

    def slot_of(self, side: int, places: Array) -> Array:
        """The slot of some tuples of a stream: int64 [m]."""
        out = np.empty(places.shape[0], np.int64)
        kernels.slots_of(self.words[side], places, self.seed, self.shift, out)
        return out

    def taken(self, side: int, places: Array) -> Loaded:
        """Tuples of a stream, as a stream of their own, without carried columns."""
        whole = self.joined.streams[side]
        hashed = is_hashed(whole.key.type)
        key = whole.key.take(pa.array(places)) if hashed else pa.chunked_array([pa.array(self.words[side][places])])
        return replace(whole, ts=whole.ts[places], key=key, carried=None, rows=None)


def _below(rate: Array) -> Array:
    return np.rint(rate * 2.0**31).astype(np.uint64)


def _secret_seed(hasher: KeyHasher, seed: int) -> int:
    digest = hashlib.blake2b(seed.to_bytes(16, "little", signed=True), digest_size=8, key=hasher.secret).digest()
    return int.from_bytes(digest, "little") >> 1
