"""Which source is to be asked next, of thousands."""

from __future__ import annotations

import heapq
import itertools
from collections import deque

from nile.sensors.port import Port

__all__ = ["Due"]

_Entry = tuple[float, int, Port]
_MOST = 8
"""Rates with a queue of their own: each is looked at for every call."""


class Due:
    """Sources by when they are due; of those due at the same time, the one that was put first.

    Sources that are asked at the same rate come due in the order in which they were asked, so each rate has a queue,
    in O(1); what does not fit at the end of its queue, or has a rate beyond the first few, goes into a heap, in
    O(log n).
    """

    def __init__(self) -> None:
        self._rates: dict[float, deque[_Entry]] = {}
        self._other: list[_Entry] = []
        self._number = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._other) or any(self._rates.values())

    def put(self, port: Port, rate: float) -> None:
        """Have a source asked when it is due.  rate: seconds from one time to the next."""
        queue = self._rates.get(rate)
        if queue is None and len(self._rates) < _MOST:
            queue = self._rates[rate] = deque()
        if queue is None or (queue and queue[-1][0] > port.due):
            heapq.heappush(self._other, (port.due, next(self._number), port))
        else:
            queue.append((port.due, next(self._number), port))

    def at_once(self, port: Port) -> None:
        """Have a source asked before all that are due by a rate."""
        heapq.heappush(self._other, (0.0, next(self._number), port))

    def first(self) -> _Entry | None:
        """(when it is due, a number, the source) of the next one."""
        least: _Entry | None = self._other[0] if self._other else None
        for queue in self._rates.values():
            if queue and (least is None or queue[0] < least):
                least = queue[0]
        return least

    def take(self, entry: _Entry) -> None:
        """Take out what is `first`."""
        if self._other and self._other[0] is entry:
            heapq.heappop(self._other)
            return
        for queue in self._rates.values():
            if queue and queue[0] is entry:
                queue.popleft()
                return

    def clear(self) -> None:
        """Forget all."""
        self._rates.clear()
        self._other.clear()
