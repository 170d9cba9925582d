"""How the parts of a `desc` join share one budget: by what the keys of all of them promise.

Each task that deals tuples out counts its most frequent keys and tells every part; so all parts see the same counts,
decide alike, and nobody has to ask anybody.  Keys are taken by matches for what they cost until the budget of all is
spent; a part is granted what its keys took.  Counts of the past fade, so that shares follow the streams.
Source: promising tuples, section 4.1 (the regions that promise most first); DESIGN section 2, budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.costs import CostTable
from nile.summaries.heavy import pa

__all__ = ["Counts", "Promises", "parts_of"]

Array = np.ndarray[Any, Any]
KEYS = 512
"""Keys that a task tells of a stream, and that a part remembers of both."""
_FADES = 0.5
"""What is left of a count after a micro-batch."""
_EVEN = 0.02
"""Share of the budget that is dealt out evenly, whatever the counts say: they may be behind the streams."""
_STEPS = 64
"""Keys whose promise differs by less than a factor of 2 ** (1 / _STEPS), a hundredth, are taken alike."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


def parts_of(hashes: Array, parts: int) -> Array:
    """The part of each key, by the high bits of its hash, mixed once more: summaries use the low ones.  int64 [n]."""
    found: Array = (((hashes * _ODD) >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    """What a task counted of a stream.

    hashes uint64 [k], counts float64 [k]: of its most frequent keys; rest, kinds: float64 [parts], the tuples and
    the different keys of each part beside them; first, last: their times, ns.
    """

    hashes: Array
    counts: Array
    rest: Array
    kinds: Array
    first: int
    last: int

    @classmethod
    def of(cls, hashes: Array, ts: Array, parts: int) -> Counts:
        """hashes: uint64 [n], of the keys; ts: int64 [n] ns, n > 0."""
        distinct, counts = np.unique(hashes, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        often, seldom = order[:KEYS], order[KEYS:]
        part = parts_of(distinct[seldom], parts)
        rest = np.bincount(part, weights=counts[seldom], minlength=parts)
        kinds = np.bincount(part, minlength=parts).astype(float)
        return cls(distinct[often], counts[often].astype(float), rest, kinds, int(ts.min()), int(ts.max()))

    def batch(self) -> pa.RecordBatch:
        """For `from_batch`."""
        numbers = [pa.array([each], pa.list_(pa.float64())) for each in (self.counts, self.rest, self.kinds)]
        lists = [pa.array([self.hashes], pa.list_(pa.uint64())), *numbers]
        ends = [pa.array([self.first]), pa.array([self.last])]
        return pa.RecordBatch.from_arrays([*lists, *ends], names=["hashes", "counts", "rest", "kinds", "first", "last"])

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> Counts:
        """What `batch` gave."""
        lists = [batch.column(at)[0].values.to_numpy(zero_copy_only=False) for at in range(4)]
        first, last = (batch.column(at)[0].as_py() for at in (4, 5))
        return cls(lists[0], lists[1], lists[2], lists[3], first, last)


class Promises:
    """The counts of both streams, fading, and what share of the budget each part gets by them.

    window: ns.  Law: all parts that were told the same give the same shares, and what the parts' exact costs are
    multiplied by adds up to the budget of all, as far as counts tell costs.
    """

    def __init__(self, parts: int, window: int, costs: CostTable) -> None:
        self._parts, self._window, self._costs = parts, window, costs
        self._hashes = np.zeros(0, np.uint64)
        self._counts = np.zeros((0, 2))
        self._rest = np.zeros((parts, 2))
        self._kinds = np.zeros((parts, 2))
        self._span = 0.0

    def tell(self, counts: Sequence[tuple[int, Counts]]) -> None:
        """What all tasks counted of a micro-batch: (stream, counts) of each.  Cost: O(keys log keys)."""
        if not counts:
            return
        hashes = np.concatenate([self._hashes, *(each.hashes for _, each in counts)])
        table = np.zeros((hashes.shape[0], 2))
        table[: self._hashes.shape[0]] = _FADES * self._counts
        self._rest *= _FADES
        self._kinds *= _FADES
        at = self._hashes.shape[0]
        for stream, each in counts:
            table[at : at + each.hashes.shape[0], stream] = each.counts
            at += each.hashes.shape[0]
            self._rest[:, stream] += each.rest
            self._kinds[:, stream] += each.kinds
        self._hashes, places = np.unique(hashes, return_inverse=True)
        self._counts = np.zeros((self._hashes.shape[0], 2))
        np.add.at(self._counts, places, table)
        span = max(each.last for _, each in counts) - min(each.first for _, each in counts)
        self._span = _FADES * self._span + max(1.0, float(span))
        self._forget()

    def _forget(self) -> None:
        """Of the keys beyond those remembered, only the tuples of their part."""
        if self._hashes.shape[0] <= 2 * KEYS:
            return
        order = np.argsort(-self._counts.sum(axis=1), kind="stable")
        keep, go = np.sort(order[: 2 * KEYS]), order[2 * KEYS :]
        np.add.at(self._rest, parts_of(self._hashes[go], self._parts), self._counts[go])
        np.add.at(self._kinds, parts_of(self._hashes[go], self._parts), (self._counts[go] > 0).astype(float))
        self._hashes, self._counts = self._hashes[keep], self._counts[keep]

    def shares(self, fraction: float) -> Array:
        """What each part's grant is multiplied by: float64 [parts], all 1.0 before anything was told."""
        even = np.ones(self._parts)
        if not self._span or fraction >= 1.0:
            return even
        # What is told of no key is one key of average size in each part, as often as there are such keys.
        kinds = np.maximum(1.0, self._kinds.max(axis=1, keepdims=True))
        counts = np.concatenate([self._counts, self._rest / kinds])
        times = np.concatenate([np.ones(self._hashes.shape[0]), kinds[:, 0]])
        part = np.concatenate([parts_of(self._hashes, self._parts), np.arange(self._parts)])
        counts = _likely(counts, times)
        matches = times * counts.prod(axis=1) * min(1.0, 2.0 * self._window / self._span)
        costs = times * counts.sum(axis=1) * (self._costs.insert + self._costs.lookup) + matches * self._costs.emit
        whole = np.bincount(part, weights=costs, minlength=self._parts)
        if not whole.sum():
            return even
        promise = np.maximum(matches, 1e-300) / np.maximum(costs, 1e-300)
        taken = _taken(-np.round(_STEPS * np.log2(promise)), costs, fraction * whole.sum())
        chosen = np.bincount(part, weights=costs * taken, minlength=self._parts)
        shares = np.divide(chosen, fraction * whole, out=np.ones(self._parts), where=whole > 0)
        out: Array = _EVEN + (1.0 - _EVEN) * shares
        return out

    def content(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """JSON values and arrays for an envelope."""
        return {"span": self._span}, {
            "hashes": self._hashes, "counts": self._counts, "rest": self._rest, "kinds": self._kinds
        }  # fmt: skip

    def go_on_from(self, params: Any, arrays: Any) -> None:
        """Be where another was that gave this content."""
        self._span = float(params["span"])
        self._hashes, self._counts, self._rest, self._kinds = (
            np.array(arrays[name]) for name in ("hashes", "counts", "rest", "kinds")
        )


def _likely(counts: Array, times: Array) -> Array:
    """How often keys are likely to come, by how often they came: float64 [k, streams]; times: keys that a row is.

    Counts of keys that come equally often differ by chance, with a variance like their mean.  What they differ more is
    the keys': by that share of it a count counts, for the rest the mean does.  Source: Robbins, 1956 (empirical Bayes).
    """
    of_all = times.sum()
    mean = (times[:, None] * counts).sum(axis=0) / of_all
    spread = (times[:, None] * (counts - mean) ** 2).sum(axis=0) / of_all
    own = np.maximum(0.0, 1.0 - np.divide(mean, spread, out=np.ones_like(mean), where=spread > 0))
    found: Array = mean + own * (counts - mean)
    return found


def _taken(rank: Array, costs: Array, budget: float) -> Array:
    """The share that is taken of each key, those of the lowest rank first and those of one rank alike: float64 [k]."""
    _, alike = np.unique(rank, return_inverse=True)
    cost = np.bincount(alike, weights=costs)
    before = np.cumsum(cost) - cost
    found: Array = np.clip((budget - before) / np.maximum(cost, 1e-300), 0.0, 1.0)[alike]
    return found
