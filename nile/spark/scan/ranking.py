"""In which order a scan reads its partitions, and what that order is worth before anything is read.

desc (and no preference): expected outputs, faded by age, over bytes to read, best first.  asc: of a join the same of
the outputs of rare keys; of a selection the fewest expected outputs first.  weighted: a random order in which a
partition with twice the expected outputs is twice as likely to be early: priorities size / u with u uniform (Duffield,
Lund, Thorup, J. ACM 54 (2007), section 2).  Those read are the partitions with a priority above that of the first one
not read, and given that threshold t each was in with the probability min(1, size / t), so sums over 1 / that
probability are unbiased (Horvitz, Thompson 1952), for any stop that looks at how many were read or how many bytes
(Ting, Adaptive threshold sampling, SIGMOD 2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.spark.scan.partitions import Partition
from nile.summaries.estimate import Estimate

__all__ = ["ENOUGH", "Ranking", "ranked"]

Array = np.ndarray[Any, Any]

ENOUGH = 0.9
"""The share of the outputs that EXPLAIN asks the bytes of."""
_NO_GAIN = 0.8  # of the bytes for ENOUGH of the outputs: an order that saves less than this does not matter
_FLOOR = 0.1  # of the drawing by bytes: what the sketches miss must be drawable too


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Partitions in the order in which they are read; what the sketches rule out is not among them.

    ruled_out: partitions that certainly have no output, never read; ruled_out_bytes: what that saves.  priority:
    float64 [n], of each under weighted, falling; sizes: what it was drawn by; else None.
    """

    order: tuple[Partition, ...]
    ruled_out: int
    ruled_out_bytes: int
    priority: Array | None = None
    sizes: Array | None = None

    @property
    def bytes(self) -> int:
        """What reading all of it takes."""
        return sum(each.bytes for each in self.order)

    @property
    def expected(self) -> float:
        """Outputs of all of it, estimated."""
        return sum(each.expected for each in self.order)

    def upper(self, read: int) -> float:
        """Outputs of all but the first `read`, at most."""
        return sum(each.upper for each in self.order[read:])

    def covered(self, read: int) -> float:
        """The share of the expected outputs (of the bytes, where none is expected) in the first `read`."""
        if read >= len(self.order):
            return 1.0
        amounts = [each.expected for each in self.order]
        if sum(amounts) <= 0.0:
            amounts = [float(each.bytes) for each in self.order]
        return min(1.0, sum(amounts[:read]) / max(sum(amounts), 1e-300))

    def fits(self, size: float) -> int:
        """How many of the first partitions may be read for so many bytes."""
        upto = np.cumsum([each.bytes for each in self.order])
        return int(np.searchsorted(upto, size * (1.0 + 1e-12), side="right"))

    def needed(self, share: float = ENOUGH) -> float:
        """The share of the bytes that this share of the expected outputs needs, best partitions first."""
        order = sorted(self.order, key=_density)
        expected = np.cumsum([each.expected for each in order])
        if not order or expected[-1] <= 0.0:
            return share
        sizes = np.cumsum([each.bytes for each in order])
        at = int(np.searchsorted(expected, share * expected[-1]))
        return float(sizes[min(at, len(order) - 1)] / sizes[-1])

    def weights(self, read: int) -> Array:
        """1 / probability of each of the first `read` partitions to be among them: float64 [read]."""
        if self.priority is None or self.sizes is None or read >= len(self.order):
            return np.ones(read)
        weights: Array = np.maximum(1.0, self.priority[read] / self.sizes[:read])
        return weights

    def total(self, found: Array, read: int, confidence: float) -> Estimate:
        """How many outputs there are, from those of the first `read` partitions, float64 [read].

        weighted: unbiased, with a normal interval from the unbiased estimate of its variance, never outside what is
        certain.  Else: what is certain, and the expectation of the rest, scaled by how the first ones kept it.
        """
        low = float(found.sum())
        high = low + self.upper(read)
        if read >= len(self.order):
            return Estimate.exact(low)
        if self.priority is not None:
            weight = self.weights(read)
            value = float((weight * found).sum())
            spread = float((found**2 * weight * (weight - 1.0)).sum()) ** 0.5
            reach = NormalDist().inv_cdf(0.5 + confidence / 2.0) * spread
            value = min(max(value, low), high)
            if read < 2 or spread == 0.0:
                return Estimate(value, low, high, 1.0, True)
            return Estimate(value, max(low, value - reach), min(high, value + reach), confidence, False)
        covered = self.covered(read)
        value = low / covered if covered > 0.0 and low > 0.0 else low + self.expected * (1.0 - covered)
        return Estimate(min(max(value, low), high), low, high, 1.0, True)

    def explain(self) -> list[str]:
        """Lines: how many, how large, what was ruled out, what the order is expected to gain."""
        needed = self.needed()
        lines = [
            f"  partitions {len(self.order):,}, bytes {self.bytes:,}, expected outputs {self.expected:,.0f}, at most "
            f"{self.upper(0):,.0f}",
            f"  ruled out by the sketches, never read: partitions {self.ruled_out:,}, bytes {self.ruled_out_bytes:,}",
        ]
        told = f"{ENOUGH:.0%} of the expected outputs need {needed:.0%} of the bytes, best partitions first"
        if needed >= _NO_GAIN:
            return [*lines, f"  nothing to gain by an order: {told}"]
        return [*lines, f"  expected gain: {told}"]


def ranked(partitions: Iterable[Partition], kind: str, fade: float, seed: int, *, fewest: bool = False) -> Ranking:
    """The order of a preference ("" as desc).  fade: an expected output counts fade ** age; fewest: those first."""
    order: list[Partition] = []
    ruled_out, saved = 0, 0
    for each in partitions:
        if each.upper > 0.0:
            order.append(each)
        else:
            ruled_out, saved = ruled_out + 1, saved + each.bytes
    if kind != "weighted":
        order.sort(key=_outputs if fewest else lambda each: _density(each, fade))
        return Ranking(tuple(order), ruled_out, saved)
    expected = np.array([each.expected for each in order])
    sizes = np.array([float(each.bytes) for each in order])
    if expected.sum() > 0.0:
        sizes = _FLOOR * sizes / sizes.sum() + (1.0 - _FLOOR) * expected / expected.sum()
    priority = sizes / (1.0 - np.random.default_rng(seed).random(len(order)))
    places = np.argsort(-priority, kind="stable")
    return Ranking(tuple(order[at] for at in places), ruled_out, saved, priority[places], sizes[places])


def _outputs(each: Partition) -> tuple[float, int, tuple[int, int]]:
    """Sorts the one with the fewest outputs first, then the newest, then by lane."""
    return (each.expected, each.age, each.lanes)


def _density(each: Partition, fade: float = 1.0) -> tuple[float, int, tuple[int, int]]:
    """Sorts the best first: by promise, then the newest, then by lane."""
    return (-(fade**each.age) * each.expected / max(1, each.bytes), each.age, each.lanes)
