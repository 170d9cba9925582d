"""The priority queue of `method="paper"`, seen from Python: how it is made, and what it does when it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from preferences.queue import LIMIT
from summaries.lazy import lazy

if TYPE_CHECKING:
    from preferences import heap_kernels as kernels
    from preferences.heap_kernels import Heap
else:
    kernels = lazy("preferences.heap_kernels")

__all__ = ["new_heap", "roomier"]


def new_heap(capacity: int = 4096) -> Heap:
    """An empty queue for `capacity` entries, 96 bytes each."""
    return kernels.Heap(
        entry=np.zeros((capacity, kernels.ENTRY_FIELDS), np.int64),
        real=np.zeros((capacity, kernels.REAL_FIELDS), np.float64),
        place=np.arange(capacity, dtype=np.int64),
        control=np.zeros(kernels.CONTROL_FIELDS, np.int64),
    )


def roomier(heap: Heap, before: int, *, limit: int = LIMIT) -> tuple[Heap, int, int]:
    """A queue that is at most half full, with what is still worth keeping: (queue, expired, evicted).

    Called between arrivals, when no place is free.  Entries with ts < before are expired and dropped.  If
    more than half of the places are still taken, there are twice as many from now on; at `limit` places the
    worse half of the entries gives way.  Nothing is charged: bounding memory is not part of the printed
    procedure.
    """
    held = heap.place[: int(heap.control[kernels.WAITING])]
    live = held[heap.entry[held, kernels.TIME] >= before]
    expired = held.shape[0] - live.shape[0]
    key, entry = heap.real[live, kernels.KEY], heap.entry[live]
    live = live[np.lexsort((-entry[:, kernels.HIGH], entry[:, kernels.ARRIVAL], key))]
    capacity = heap.place.shape[0]
    evicted = 0
    if 2 * live.shape[0] > capacity:
        if 2 * capacity <= limit:
            capacity *= 2
        else:
            evicted = live.shape[0] - capacity // 2
            live = live[: capacity // 2]
    wider = new_heap(capacity)
    n = live.shape[0]
    wider.entry[:n] = heap.entry[live]
    wider.real[:n] = heap.real[live]
    wider.control[kernels.WAITING] = n
    return wider, expired, evicted
