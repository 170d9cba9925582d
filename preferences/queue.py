"""The bucket queue, seen from Python: how it is made and how it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.preferences import queue_kernels as kernels
    from nile.preferences.queue_kernels import Queue
else:
    kernels = lazy("nile.preferences.queue_kernels")

__all__ = ["LIMIT", "grown_queue", "new_queue", "oldest_time"]

_NEVER = (1 << 63) - 1
LIMIT = 1 << 20
"""Entries after which the oldest of the least class gives way (about 100 MB)."""


def new_queue(capacity: int = 4096) -> Queue:
    """An empty queue for `capacity` entries."""
    link = np.full((capacity, 2), -1, np.int64)
    link[:-1, 0] = np.arange(1, capacity)
    control = np.array([0, 0, 0, kernels.CLASSES - 1], np.int64)
    return kernels.Queue(
        entry=np.zeros((capacity, kernels.ENTRY_FIELDS), np.int64),
        real=np.zeros((capacity, kernels.REAL_FIELDS), np.float64),
        link=link,
        ends=np.full((kernels.CLASSES, 2), -1, np.int64),
        control=control,
    )


def grown_queue(queue: Queue) -> Queue:
    """The same entries with twice the places.  Called when no place is free."""
    old = queue.entry.shape[0]
    bigger = new_queue(2 * old)
    bigger.entry[:old] = queue.entry
    bigger.real[:old] = queue.real
    bigger.link[:old] = queue.link
    bigger.ends[:] = queue.ends
    bigger.control[:] = queue.control
    bigger.control[kernels.FREE] = old
    bigger.link[old:, 0] = np.append(np.arange(old + 1, 2 * old), -1)
    return bigger


def oldest_time(queue: Queue) -> int:
    """The least ts of the tuples whose entries wait; the end of time when none does.  O(classes)."""
    oldest = queue.ends[:, 1]
    times = queue.entry[oldest[oldest >= 0], kernels.TIME]
    return int(times.min()) if times.size else _NEVER
