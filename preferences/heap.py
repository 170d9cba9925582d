"""The priority queues of `method="paper"`, one per query, seen from Python: how they are made and grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.preferences.queue import LIMIT
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.preferences import heap_kernels as kernels
    from nile.preferences.heap_kernels import Heap, Heaps
else:
    kernels = lazy("nile.preferences.heap_kernels")

__all__ = ["heap_of", "new_heaps", "roomier"]

Array = np.ndarray[Any, Any]


def new_heaps(queries: int, capacity: int = 4096, *, own_first: bool = False) -> Heaps:
    """Empty queues for `capacity` entries each, 96 bytes an entry.

    own_first: the current arrival's entries go before any that wait.
    """
    heaps = kernels.Heaps(
        entry=np.zeros((queries, capacity, kernels.ENTRY_FIELDS), np.int64),
        real=np.zeros((queries, capacity, kernels.REAL_FIELDS), np.float64),
        place=np.tile(np.arange(capacity, dtype=np.int64), (queries, 1)),
        control=np.zeros((queries, kernels.CONTROL_FIELDS), np.int64),
    )
    heaps.control[:, kernels.OWN_FIRST] = own_first
    return heaps


def roomier(heaps: Heaps, before: Sequence[int], *, limit: int = LIMIT) -> tuple[Heaps, Array, Array]:
    """Queues that are at most half full, with what is still worth keeping: (queues, expired, evicted).

    Called between arrivals, when one of them has no place free.  Entries of query k with ts < before[k] are
    expired and dropped.  If more than half of some query's places are still taken, each has twice as many from
    now on; at `limit` places a query the worse half of its entries gives way.  expired, evicted: int64 [q].
    Nothing is charged: bounding memory is not part of the printed procedure.
    """
    queries, capacity = heaps.place.shape
    live = [_worth_keeping(heap_of(heaps, query), before[query]) for query in range(queries)]
    if 2 * max(entries.shape[0] for entries in live) > capacity and 2 * capacity <= limit:
        capacity *= 2
    wider = new_heaps(queries, capacity)
    wider.control[:, kernels.OWN_FIRST] = heaps.control[:, kernels.OWN_FIRST]
    expired, evicted = np.zeros(queries, np.int64), np.zeros(queries, np.int64)
    for query, entries in enumerate(live):
        kept = entries[: capacity // 2]
        n = kept.shape[0]
        wider.entry[query, :n] = heaps.entry[query, kept]
        wider.real[query, :n] = heaps.real[query, kept]
        wider.control[query, kernels.WAITING] = n
        expired[query] = heaps.control[query, kernels.WAITING] - entries.shape[0]
        evicted[query] = entries.shape[0] - n
    return wider, expired, evicted


def _worth_keeping(heap: Heap, before: int) -> Array:
    """The places of the entries that wait and have not expired, best first."""
    held = heap.place[: int(heap.control[kernels.WAITING])]
    live = held[heap.entry[held, kernels.TIME] >= before]
    key, entry = heap.real[live, kernels.KEY], heap.entry[live]
    best_first: Array = live[np.lexsort((-entry[:, kernels.HIGH], entry[:, kernels.ARRIVAL], key))]
    return best_first


def heap_of(heaps: Heaps, query: int) -> Heap:
    """The queue of one query, its memory shared."""
    return kernels.Heap(*(array[query] for array in heaps))
