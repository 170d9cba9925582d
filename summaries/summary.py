"""The summary abstract data type: what a cell, a zone or a whole stream remembers of its tuples.

Source: promising tuples, section 3.2 (Summarize, Estimate, Confidence, Add, Subtract).  Beyond the paper:
batches instead of single tuples, integer weights, an interval on every estimate, and a byte form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from nile.summaries.envelope import Envelope, pack, unpack
from nile.summaries.errors import ConfigError, EnvelopeError, KeyTypeError, NotLinear, SummaryMismatch
from nile.summaries.estimate import Estimate

__all__ = ["TOP", "Summary"]

Array = np.ndarray[Any, Any]

TOP = (1 << 63) - 1
"""The largest count; counters stop here and at -TOP."""


class Summary(ABC):
    """How often each key came, in less space or in more.

    Keys arrive as uint64 hashes (`nile.summaries.hashing`); two keys of equal hash are one key to a summary.
    Laws that every summary keeps (tests/summaries/test_summary_laws.py): `add` is associative and commutative, `empty`
    is its identity, one batch or many answer alike, and for linear ones `subtract` undoes `add` bit for bit.
    Not safe for use by several threads at once.

    kind: the name in the catalogue and in the byte form; linear: whether tuples can be taken back.
    ordered: keys are no hashes but numbers in the order of the values (`nile.summaries.ordered.order_codes`), so that
    ranges of values can be asked for.  exact_merge: the sum of two is bit for bit what one over both would be; where
    not (samples, which are drawn), what it says keeps to the same bound.
    """

    __slots__ = ("_saturated", "_total")

    kind: ClassVar[str]
    linear: ClassVar[bool]
    ordered: ClassVar[bool] = False
    exact_merge: ClassVar[bool] = True

    def __init__(self) -> None:
        self._total = 0
        self._saturated = False

    @property
    def total(self) -> int:
        """The weight put in less the weight taken out, in tuples; exact even when counters saturated."""
        return self._total

    @property
    def saturated(self) -> bool:
        """True once a counter has stopped at the end of int64; estimates then claim nothing (confidence 0)."""
        return self._saturated

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays held."""

    def summarize(self, hashes: Array, weights: Array | None = None) -> None:
        """Put a batch of tuples in.

        hashes: uint64 [n]; weights: integers [n], each tuple that many times (negative takes back, for linear
        summaries), 1 each when absent.  Batches of 256 tuples or more are worth a call.
        Raises KeyTypeError for hashes that are not uint64 [n], ConfigError for weights that are not int64 [n],
        NotLinear for a negative weight in a summary that is not linear.
        """
        keys = self._checked_hashes(hashes)
        if weights is None:
            self._insert(keys, None)
            self._total += keys.shape[0]
            return
        counts = self._checked_weights(weights, keys.shape[0])
        if counts.shape[0] == 0:
            return
        if not self.linear and counts.min() < 0:
            raise NotLinear(
                f"{self.describe()}: needed weights >= 0, it cannot take tuples back; got {counts.min()}; "
                "use a linear summary such as countsketch or exact"
            )
        self._insert(keys, counts)
        self._total += _exact_sum(counts)

    @abstractmethod
    def estimate(self, hashes: Array) -> Estimate:
        """The weight of each key: arrays float64 [n] for uint64 [n].  Raises KeyTypeError like `summarize`."""

    def between(self, low: int, high: int) -> Estimate:
        """How many tuples have numbers of values (`nile.summaries.ordered.order_codes`) in [low, high]: one float.

        Raises ConfigError where keys are hashes, which have no order.
        """
        raise ConfigError(
            f"{self.describe()}: needed a summary of ordered values for the range {low} to {high}; got hashes; "
            "use histogram, wavelet or kll"
        )

    @abstractmethod
    def confidence(self) -> float:
        """How far the summary can be trusted as a whole, in (0, 1]; 1 when it is exact or empty."""

    def add(self, other: Summary) -> None:
        """Take in all that `other` has seen, as if this summary had seen it too; `other` stays as it is.

        Raises SummaryMismatch, naming both, unless type, shape and seed agree.
        """
        self._refuse_unlike(other, "add")
        self._combine(other, 1)
        self._total += other.total
        self._saturated |= other.saturated

    def subtract(self, other: Summary) -> None:
        """Take out all that `other` has seen; the counterpart of `add`.

        `other` should summarise a part of what this one has seen, or estimates below zero are cut off.
        Raises NotLinear when this kind cannot, SummaryMismatch like `add`.
        """
        if not self.linear:
            raise NotLinear(
                f"subtract: needed a linear summary; got {self.describe()}, which cannot take tuples back; "
                "keep the parts apart and add those still wanted, or use countsketch or exact"
            )
        self._refuse_unlike(other, "subtract")
        self._combine(other, -1)
        self._total -= other.total
        self._saturated |= other.saturated

    @abstractmethod
    def empty(self) -> Self:
        """A summary of nothing, of the same shape and seed, so that the two can be added."""

    def fresh(self) -> Self:
        """Like `empty`, for other tuples: what draws at random draws independently of this one."""
        return self.empty()

    def copy(self) -> Self:
        """An equal summary that shares no memory with this one."""
        twin = self.empty()
        twin.add(self)
        return twin

    def describe(self) -> str:
        """Type, shape and seed in a few words: two summaries combine exactly when these agree."""
        shape = ", ".join(f"{name}={value}" for name, value in self._shape().items())
        return f"{type(self).__name__}({shape})"

    def __repr__(self) -> str:
        return f"<{self.describe()}, total {self.total}, {self.nbytes} bytes>"

    def to_bytes(self) -> bytes:
        """The byte form (nile.summaries.envelope): equal summaries, equal bytes, in every process."""
        params = {"total": self._total, "saturated": self._saturated, **self._params()}
        return pack(self.kind, params, self._arrays())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, *, where: str = "summary") -> Self:
        """The summary that `to_bytes` wrote; copies, so that `data` may go.

        Raises EnvelopeError, naming `where`, for anything but an intact byte form of this kind.
        """
        return cls.from_envelope(unpack(data, where=where))

    @classmethod
    def from_envelope(cls, envelope: Envelope) -> Self:
        """Like `from_bytes`, for an envelope already read.  Raises EnvelopeError when it holds another kind."""
        if envelope.kind != cls.kind:
            raise EnvelopeError(
                f"{envelope.where}: needed a summary of kind {cls.kind!r}; got {envelope.kind!r}; "
                "read it with nile.summaries.catalogue.read_summary, which takes every kind"
            )
        summary = cls._restore(envelope)
        summary._total = envelope.integer("total", -(TOP**2), TOP**2)
        summary._saturated = envelope.flag("saturated")
        return summary

    @abstractmethod
    def _insert(self, hashes: Array, weights: Array | None) -> None:
        """Count a checked batch: uint64 [n] and int64 [n], both contiguous.  Sets `_saturated` if need be."""

    @abstractmethod
    def _combine(self, other: Any, sign: int) -> None:
        """Add (sign 1) or take out (-1) the counters of a summary already found to match."""

    @abstractmethod
    def _shape(self) -> Mapping[str, object]:
        """What must agree for two summaries to combine, in printable form."""

    @abstractmethod
    def _params(self) -> Mapping[str, Any]:
        """What the byte form holds beside the arrays, the total and the flag."""

    @abstractmethod
    def _arrays(self) -> Mapping[str, Array]:
        """The arrays of the byte form."""

    @classmethod
    @abstractmethod
    def _restore(cls, envelope: Envelope) -> Self:
        """The summary of a checked envelope; what the header claims is still to be doubted."""

    def _refuse_unlike(self, other: Summary, verb: str) -> None:
        if type(self) is type(other) and self._shape() == other._shape():
            return
        came = other.describe() if isinstance(other, Summary) else type(other).__name__
        raise SummaryMismatch(
            f"{verb}: needed another {self.describe()}; got {came}; "
            "make both with one type, shape and seed (summary.empty() gives a fitting one)"
        )

    def _checked_hashes(self, hashes: Array) -> Array:
        if isinstance(hashes, np.ndarray) and hashes.dtype == np.uint64 and hashes.ndim == 1:
            return np.ascontiguousarray(hashes)
        came = f"{hashes.dtype} {list(hashes.shape)}" if isinstance(hashes, np.ndarray) else type(hashes).__name__
        raise KeyTypeError(
            f"{self.kind}: keys are hashes, a numpy array of uint64 [n]; got {came}; "
            "turn a column into hashes with nile.summaries.hashing.hash_keys"
        )

    def _checked_weights(self, weights: Array, n: int) -> Array:
        counts = np.asarray(weights)
        if counts.dtype.kind in "iub" and counts.shape == (n,):
            if counts.dtype != np.uint64 or n == 0 or counts.max() <= TOP:
                return np.ascontiguousarray(counts, np.int64)
            came = f"a weight of {counts.max()}"
        else:
            came = f"{counts.dtype} {list(counts.shape)}"
        raise ConfigError(
            f"{self.kind}: weights need to be int64 [{n}], one for each hash; got {came}; "
            "round or scale them to whole tuples"
        )


def largest_change(n: int, weights: Array | None) -> int:
    """A bound on how far a batch can move any counter: n tuples of these weights, int64 [n]."""
    if weights is None or n == 0:
        return n
    return n * max(int(weights.max()), -int(weights.min()))


def _exact_sum(counts: Array) -> int:
    """The sum of int64 [n] without wrapping."""
    if largest_change(counts.shape[0], counts) <= TOP:
        return int(counts.sum())
    low = int((counts & 0xFFFFFFFF).sum())
    return (int((counts >> 32).sum()) << 32) + low
