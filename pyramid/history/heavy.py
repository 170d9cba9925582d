"""The heaviest keys of a key index: a small directory of those that most matches are with.

A digest takes two bytes per key and tells about how many tuples each has; a directory takes 12 and the key.  This list
takes a byte per key and its key's own for one in sixteen, and tells without them how many tuples those have, where,
and a certain bound for all others.  So a query that wants the most matches first needs little else.
Source: promising tuples, section 3.2 (several granularities of one cell).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.pyramid.history.key_pages import Keys, is_text, text_parts
from nile.summaries.heavy import pa

__all__ = ["Heaviest", "HeavyKeys"]

Array = np.ndarray[Any, Any]

SHARE = 16
"""One distinct key of so many is listed."""
LEAST = 64
"""Of fewer distinct keys none is."""
MOST = 1 << 15
"""Keys listed at most: 512 KB and the keys."""
LONGEST = 64
"""Bytes of a key that is listed, at most."""


@dataclass(frozen=True)
class HeavyKeys:
    """Keys that share their hash with no other, ascending by hash.

    hashes: uint64 [h]; begins, counts: uint32 [h], where the tuples of each begin in the index's list of rows, and how
    many there are; rest: any other hash has at most so many; read_keys: gives the keys, Arrow [h]; compare: what `same`
    does where the keys lie in a file, None: it compares what `read_keys` gives.
    """

    hashes: Array
    begins: Array
    counts: Array
    rest: int
    read_keys: Callable[[], pa.Array]
    compare: Callable[[Array, Keys, Array], Array] | None = None

    @cached_property
    def tuples(self) -> int:
        """Of all that are listed."""
        return int(self.counts.sum(dtype=np.int64))

    @cached_property
    def keys(self) -> Keys:
        """The keys, [h].  Read when first asked for."""
        return Keys(self.read_keys())

    def values(self, places: Array) -> pa.Array:
        """The keys at places (int64 [n], any order): Arrow [n]."""
        return self.keys.values.take(pa.array(places, pa.int64()))

    def same(self, places: Array, keys: Keys, which: Array) -> Array:
        """Whether each place (int64 [n]) has the key which[i] (int64 [n]) of keys of its type: bool [n], by value."""
        if self.compare is not None:
            return self.compare(places, keys, which)
        return self.keys.same(places, keys, which)


class Heaviest:
    """The list in the making, in memory of its own: 24 bytes and the key of each of 65,536 and of a part."""

    def __init__(self, kind: pa.DataType) -> None:
        self._text = is_text(kind)
        self._hashes = np.zeros(0, np.uint64)
        self._begins = np.zeros(0, np.uint32)
        self._counts = np.zeros(0, np.int64)
        self._keys = pa.array([], kind)
        self._distinct = 0
        self._tuples = 0
        self._rest = 0
        self._least = 0

    def add(self, hashes: Array, starts: Array, keys: pa.Array) -> None:
        """More entries of the directory, all that have a hash: uint64 [k], ascending; starts: int64 [k + 1], from 0;
        keys: Arrow [k].  O(k) amortised."""
        if not hashes.shape[0]:
            return
        first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
        entries = np.diff(first, append=hashes.shape[0])
        counts = np.diff(starts[np.append(first, hashes.shape[0])])
        may = entries == 1
        if self._text:
            may &= np.diff(text_parts(keys)[0])[first] <= LONGEST
        may &= counts > self._least
        self._rest = max(self._rest, int(counts[~may].max(initial=0)))
        here = np.flatnonzero(may)
        begins = (self._tuples + starts[first[here]]).astype(np.uint32)
        self._hashes = np.concatenate([self._hashes, hashes[first[here]]])
        self._begins = np.concatenate([self._begins, begins])
        self._counts = np.concatenate([self._counts, counts[here]])
        self._keys = pa.concat_arrays([self._keys, keys.take(pa.array(first[here]))])
        self._distinct += first.shape[0]
        self._tuples += int(starts[-1])
        if self._hashes.shape[0] > 2 * MOST:
            self._keep(MOST)
            self._least = int(self._counts[-1])

    def _keep(self, n: int) -> None:
        """Only the n heaviest, the heaviest first; of equal counts the lower hash, so that no cut into calls shows."""
        order = np.lexsort((self._hashes, -self._counts))
        self._rest = max(self._rest, int(self._counts[order[n:]].max(initial=0)))
        self._choose(order[:n])

    def _choose(self, at: Array) -> None:
        self._hashes, self._begins, self._counts = self._hashes[at], self._begins[at], self._counts[at]
        self._keys = self._keys.take(pa.array(at))

    def listed(self) -> HeavyKeys | None:
        """The list; None where there are too few keys for one."""
        n = min(MOST, self._distinct // SHARE)
        if self._distinct < LEAST or not n:
            return None
        self._keep(n)
        self._choose(np.argsort(self._hashes))
        keys, counts = self._keys, self._counts.astype(np.uint32)
        if not keys:
            return None
        return HeavyKeys(self._hashes, self._begins, counts, self._rest, lambda: keys)
