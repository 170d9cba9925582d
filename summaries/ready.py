"""Ready-made sketches as Summaries: how many distinct keys (HyperLogLog), which keys are frequent (Misra-Gries).

HyperLogLog is that of Apache DataSketches.  Its byte form is made canonical, since the library's own depends on
the order in which keys came (it keeps a historic estimator, which merging forgets anyway).  Frequent items are
our own: the library's hash table is written in the order of its slots.  Neither can take tuples back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.exact import ExactCounter
from nile.summaries.heavy import datasketches
from nile.summaries.summary import TOP, Summary

__all__ = ["FrequentItems", "HyperLogLog"]

Array = np.ndarray[Any, Any]
_TWO_DEVIATIONS = 0.954
_FLAGS, _HISTORY, _REGISTERS = 5, slice(8, 16), 40
_MERGED = 0x30
"""In byte 5 of an HLL_8 image: in full size, and out of order, so that the historic estimator is not used."""


class HyperLogLog(Summary):
    """How many distinct keys came, within a few per cent, in 2 ** lg_k bytes.

    lg_k: 7 to 21.  Error, relative and on the number of distinct keys: one standard deviation is
    1.04 / sqrt(2 ** lg_k) (Flajolet et al., AofA 2007; 2.3 % for 11), `distinct` claims two.  Keys are not told
    apart: `estimate` knows no more than the mean.  A union holds exactly what one sketch over both would.
    Cost: one hash and one register a tuple; add one pass over the registers.
    """

    __slots__ = ("_lg_k", "_union")

    kind: ClassVar[str] = "hll"
    linear: ClassVar[bool] = False

    def __init__(self, lg_k: int = 11) -> None:
        super().__init__()
        if isinstance(lg_k, bool) or not isinstance(lg_k, int) or not 7 <= lg_k <= 21:
            raise ConfigError(f"hll: lg_k needs 7 to 21; got {lg_k!r}; 11 has 2048 registers and is usual")
        self._lg_k = lg_k
        self._union = datasketches.hll_union(lg_k)

    @property
    def nbytes(self) -> int:
        return 1 << self._lg_k

    def distinct(self) -> Estimate:
        """The number of distinct keys: one float, two standard deviations to either side (confidence 0.954)."""
        if self._total == 0:
            return Estimate.exact(0.0)
        # Of the registers alone: an estimate must not depend on the order in which keys came.
        sketch = datasketches.hll_sketch.deserialize(_image(self._arrays()["registers"], self._lg_k))
        value = float(sketch.get_estimate())
        low, high = float(sketch.get_lower_bound(2)), float(sketch.get_upper_bound(2))
        return Estimate(value, min(low, value), max(high, value), _TWO_DEVIATIONS, True)

    def estimate(self, hashes: Array) -> Estimate:
        """The mean weight of a key, for each: float64 [n]; certain is only that it is between 0 and the total."""
        keys = self._checked_hashes(hashes)
        most = float(min(self._total, TOP))
        mean = min(most, self._total / max(1.0, float(self.distinct().value)))
        one = np.ones(keys.shape[0])
        if self._saturated:
            return Estimate(mean * one, 0.0 * one, most * one, 0.0, False)
        return Estimate(mean * one, 0.0 * one, most * one, 1.0, True)

    def confidence(self) -> float:
        """1 / (1 + the relative standard error); 1 when empty."""
        return 1.0 if self._total == 0 else 1.0 / (1.0 + 1.04 / math.sqrt(1 << self._lg_k))

    def empty(self) -> Self:
        return type(self)(self._lg_k)

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        kept = hashes if weights is None else hashes[weights > 0]
        sketch = datasketches.hll_sketch(self._lg_k, datasketches.HLL_8, True)
        for key in np.unique(kept).view(np.int64).tolist():
            sketch.update(key)
        self._union.update(sketch)
        more = hashes.shape[0] if weights is None else sum(weights.tolist())
        self._saturated |= self._total + more > TOP

    def _combine(self, other: HyperLogLog, sign: int) -> None:  # noqa: ARG002 - not linear: always adds
        self._union.update(other._sketch())
        self._saturated |= self._total + other.total > TOP

    def _sketch(self) -> Any:
        return self._union.get_result(datasketches.HLL_8)

    def _shape(self) -> Mapping[str, object]:
        return {"lg_k": self._lg_k}

    def _params(self) -> Mapping[str, Any]:
        return {"lg_k": self._lg_k}

    def _arrays(self) -> Mapping[str, Array]:
        image = np.frombuffer(self._sketch().serialize_updatable(), np.uint8)
        registers = np.zeros(1 << self._lg_k, np.uint8)
        if image.shape[0] >= _REGISTERS + registers.shape[0]:
            registers = image[_REGISTERS : _REGISTERS + registers.shape[0]].copy()
        return {"registers": registers}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        lg_k = envelope.integer("lg_k", 7, 21)
        registers = envelope.array("registers", "|u1", (1 << lg_k,))
        if registers.max(initial=0) > 64:
            envelope.refuse("registers must be at most 64", str(int(registers.max())))
        summary = cls(lg_k)
        if registers.any():
            summary._union.update(datasketches.hll_sketch.deserialize(_image(registers, lg_k)))
        return summary


def _image(registers: Array, lg_k: int) -> bytes:
    """The library's own form of these registers, as if they were the result of merging."""
    seed = datasketches.hll_sketch(lg_k, datasketches.HLL_8, True)
    seed.update(1)
    image = bytearray(seed.serialize_updatable())
    image[_FLAGS] |= _MERGED
    image[_HISTORY] = bytes(8)
    powers = np.ldexp(1.0, -registers.astype(np.int64))
    small = registers < 32
    image[16:24] = np.array(powers[small].sum(), "<f8").tobytes()
    image[24:32] = np.array(powers[~small].sum(), "<f8").tobytes()
    image[32:36] = np.array((registers == 0).sum(), "<i4").tobytes()
    image[_REGISTERS:] = registers.tobytes()
    return bytes(image)


class FrequentItems(ExactCounter):
    """The most frequent keys with their counts, within total / capacity, in 16 bytes a kept key.

    capacity: how many keys are kept, 1 to 2**20.  As long as there are no more, all is exact.  Beyond, the count of
    the (capacity + 1)-th largest is taken off every key and added to `offset`: each count is too low by at most
    `offset` <= total / (capacity + 1), certainly, and a key with more than that is kept.
    Source: Misra, Gries, Science of Computer Programming 1982; merging: Agarwal et al., PODS 2012, section 3.
    """

    __slots__ = ("capacity", "offset")

    kind: ClassVar[str] = "frequent"
    linear: ClassVar[bool] = False

    def __init__(self, capacity: int = 1024) -> None:
        super().__init__()
        if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= 1 << 20:
            raise ConfigError(f"frequent: capacity needs 1 to {1 << 20}; got {capacity!r}; 1024 is usual")
        self.capacity = capacity
        self.offset = 0

    def estimate(self, hashes: Array) -> Estimate:
        """How often each key came: float64 [n], at least `low`, at most `low` + offset; certain until saturated."""
        low = np.asarray(super().estimate(hashes).value)
        high = low + float(self.offset)
        if self._saturated:
            return Estimate(low, low, high, 0.0, False)
        return Estimate(low, low, high, 1.0, True)

    def confidence(self) -> float:
        """1 - offset / total: 1 while nothing was dropped."""
        return 1.0 if self._total <= 0 else max(1.0 - self.offset / self._total, 1.0 / (self.capacity + 1))

    def top(self, k: int) -> tuple[Array, Array]:
        """The k keys with the largest counts: hashes uint64 and counts int64 [at most k], ties by hash."""
        order = np.lexsort((self.hashes, -self.counts))[:k]
        return self.hashes[order], self.counts[order]

    def empty(self) -> Self:
        return type(self)(self.capacity)

    def _combine(self, other: ExactCounter, sign: int) -> None:
        assert isinstance(other, FrequentItems)
        self.offset += other.offset
        super()._combine(other, sign)

    def _merge(self, keys: Array, counts: Array) -> None:
        super()._merge(keys, counts)
        if self.hashes.shape[0] > self.capacity:
            least = int(np.partition(self.counts, -self.capacity - 1)[-self.capacity - 1])
            kept = self.counts > least
            self.hashes, self.counts = self.hashes[kept], self.counts[kept] - least
            self.offset += least

    def _shape(self) -> Mapping[str, object]:
        return {"capacity": self.capacity}

    def _params(self) -> Mapping[str, Any]:
        return {"capacity": self.capacity, "offset": self.offset}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        counter = super()._restore(envelope)
        counter.capacity = envelope.integer("capacity", 1, 1 << 20)
        counter.offset = envelope.integer("offset", 0, TOP**2)  # exact beyond int64, as the total is
        if counter.hashes.shape[0] > counter.capacity or counter.counts.min(initial=1) < 1:
            envelope.refuse("at most capacity keys with counts above 0", "others")
        return counter
