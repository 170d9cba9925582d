"""The exact join of n streams in one window: what each arrival completes, and every combination, by sorting.

A combination has one tuple of each stream, of equal keys, every two within the window of each other: a uniform
clique.  It is completed by its last member in total order (ts, position in the statement, arrival), and the
others lie in the window before it, so the combinations an arrival completes are a product of ranges.
Imports nothing of the lower floors on purpose, and shares no kernel with the operators it judges: ranges and members
are found by numpy alone, counts by one pass over all arrivals.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.summaries.errors import MemoryRefused

__all__ = ["ExactClique", "refuse_uncountable"]

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 16
_MOST = 2.0**53
_MOST_OF_ALL = 2.0**62


@dataclass(frozen=True)
class ExactClique:
    """Combinations of n streams with equal keys and |ts_i - ts_j| <= window for every two.

    ts: int64 [n_i] ns per stream, not decreasing; codes: int64 from `nile.exact.join.chain.encode_all`, -1 null;
    window: ns, or None for the whole stream.  Below N is the number of all tuples.  O(n N log N) once, and O(n) a
    combination.
    """

    ts: tuple[Array, ...]
    codes: tuple[Array, ...]
    window: int | None

    @cached_property
    def order(self) -> Array:
        """Where each arrival stands in the streams laid end to end: int64 [N], in total order."""
        return np.argsort(np.concatenate(self.ts), kind="stable")

    @cached_property
    def stream(self) -> Array:
        """The stream of each arrival: int8 [N]."""
        sizes = [ts.shape[0] for ts in self.ts]
        which: Array = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)[self.order]
        return which

    @cached_property
    def ordinal(self) -> Array:
        """The place of each arrival in its stream: int64 [N]."""
        starts = np.cumsum([0] + [ts.shape[0] for ts in self.ts[:-1]])
        ordinal: Array = self.order - starts[self.stream]
        return ordinal

    @cached_property
    def times(self) -> Array:
        """The time of each arrival: int64 [N] ns."""
        times: Array = np.concatenate(self.ts)[self.order]
        return times

    @cached_property
    def _sorted(self) -> tuple[Array, ...]:
        """Each stream's arrivals with a key, by key and then in order: int64."""
        codes = np.concatenate(self.codes)[self.order]
        own = [np.flatnonzero((self.stream == k) & (codes >= 0)) for k in range(len(self.ts))]
        return tuple(mine[np.argsort(codes[mine], kind="stable")] for mine in own)

    @cached_property
    def ranges(self) -> tuple[Array, Array]:
        """(low, high): which of each stream's sorted arrivals every arrival meets, itself included: int64 [N, n]."""
        total = self.times.shape[0]
        codes = np.concatenate(self.codes)[self.order].astype(np.int64)
        first = np.zeros(total, np.int64)
        if self.window is not None and total:
            lowest = np.iinfo(np.int64).min
            since = np.where(self.times < lowest + self.window, lowest, self.times - self.window)
            first = np.searchsorted(self.times, since, side="left")
        low = np.zeros((total, len(self.ts)), np.int64)
        high = np.zeros((total, len(self.ts)), np.int64)
        keyed = codes >= 0
        for k, mine in enumerate(self._sorted):
            place = codes[mine] * total + mine
            low[keyed, k] = np.searchsorted(place, codes[keyed] * total + first[keyed], side="left")
            high[keyed, k] = np.searchsorted(place, codes[keyed] * total + np.flatnonzero(keyed), side="right")
        return low, high

    @property
    def completed(self) -> Array:
        """Combinations each arrival completes: int64 [N].

        Raises MemoryRefused when one arrival completes 2**53 or more, which no double can number, or all 2**62.
        """
        return self._counts[0]

    @property
    def standing(self) -> Array:
        """Tuples of each arrival's key in its window, all streams together, itself included: int64 [N].

        Raises MemoryRefused as `completed` does.
        """
        return self._counts[1]

    @cached_property
    def _counts(self) -> tuple[Array, Array]:
        """(completed, standing), by one pass over the arrivals."""
        total, streams = self.times.shape[0], len(self.ts)
        codes = np.concatenate(self.codes)[self.order].astype(np.int64, copy=False)
        held = np.zeros((1 + max(0, int(codes.max(initial=-1))), streams), np.int32)
        completed, standing = np.empty(total, np.int64), np.empty(total, np.int64)
        window = -1 if self.window is None else self.window
        most, whole = importlib.import_module("nile.exact.join.count_kernels").count_cliques(
            self.times, self.stream, codes, window, held, completed, standing
        )
        refuse_uncountable(most, whole, streams)
        return completed, standing

    @property
    def combinations(self) -> int:
        """How many combinations there are."""
        return int(self.completed.sum())

    def members(self, chunk: int = _CHUNK, arrivals: Array | None = None) -> Iterator[tuple[Array, Array]]:
        """(arrival that completes it [c], arrival of each stream's member [c, n]), int64, `chunk` at a time.

        In the order they complete; of one arrival, the last stream fastest.  arrivals: int64, those of these alone, in
        their order.
        """
        low, high = self.ranges
        completed = self.completed if arrivals is None else self.completed[arrivals]
        ends = np.cumsum(completed)
        total = int(ends[-1]) if ends.shape[0] else 0
        for begin in range(0, total, chunk):
            number = np.arange(begin, min(begin + chunk, total))
            last = np.searchsorted(ends, number, side="right")
            number = number - (ends[last] - completed[last])
            last = last if arrivals is None else arrivals[last]
            out = np.empty((number.shape[0], len(self.ts)), np.int64)
            for k in reversed(range(len(self.ts))):
                own = self.stream[last] == k
                size = np.where(own, 1, high[last, k] - low[last, k])
                at = np.where(own, 0, low[last, k] + number % size)
                mine = self._sorted[k]
                out[:, k] = np.where(own, last, mine[at] if mine.shape[0] else last)
                number //= size
            yield last, out

    def passing(self, test: Callable[[Array], Array]) -> Array:
        """Combinations each arrival completes that satisfy `test` (arrivals [c, n] to bool [c]): int64 [N]."""
        counts = np.zeros(self.times.shape[0], np.int64)
        for last, out in self.members():
            counts += np.bincount(last[test(out)], minlength=counts.shape[0])
        return counts


def refuse_uncountable(most: float, whole: float, streams: int) -> None:
    """Raises MemoryRefused where one tuple of so many streams completes 2**53 combinations or more, which no double can
    number, or all 2**62."""
    if most >= _MOST or whole >= _MOST_OF_ALL:
        raise MemoryRefused(
            f"join of {streams} streams: needed fewer than 2**53 combinations of one tuple, and 2**62 of all; "
            f"got about {most:.2g} and {whole:.2g}; name a shorter window, or a condition on one stream that "
            "leaves fewer tuples"
        )
