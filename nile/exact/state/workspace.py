"""Memory that work needs while it lasts, which the next work uses again.

Memory that is given back is the system's after some ms, which clears every page before anyone has it again: at 2 GB/s
under a virtual machine a push of 100,000 rows to a group-by took a quarter of its time for that.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from nile.exact.state.arrow import Array
from nile.exact.state.lent import roomy

__all__ = ["Workspace"]

_FEW = 1 << 12
"""Elements that are not worth sharing."""
_LINE = 64
"""Bytes of a line of the cache, where arrays begin."""
_MOST = 1 << 25
"""Bytes that one work leaves for the next at most: somewhat more than the largest piece of a push to a group-by."""
_AT_ONCE = 4
"""Works at once that leave any."""
_FADES = 64
"""Works after which memory is let go that they hardly used."""
_NONE = np.empty(0, np.uint8)
_left: deque[tuple[Array, int]] = deque()
"""What was left, and how many works have hardly used it: taken and put back in one step, by any thread or handler."""


class Workspace:
    """Arrays with anything in them, for as long as work lasts: `end` it when nobody looks at them any more.

    One that is not ended, for its work failed, leaves nothing.
    """

    DERIVED = ("_memory", "_idle", "_used")

    def __init__(self) -> None:
        self._memory: Array | None = None
        self._idle = self._used = 0

    def roomy(self, n: int, dtype: Any = np.int64) -> Array:
        """An array [n]; beyond what was left, one of its own."""
        if n <= _FEW:
            return np.empty(n, dtype)
        if self._memory is None:
            try:
                self._memory, self._idle = _left.pop()
            except IndexError:
                self._memory = _NONE
        begin, size = self._used, n * np.dtype(dtype).itemsize
        self._used = begin + size + -size % _LINE
        if self._used > self._memory.shape[0]:
            return roomy(n, dtype)
        return self._memory[begin : begin + size].view(dtype)

    def end(self) -> None:
        """Leave memory to the next, as much as that is likely to need."""
        memory, used = self._memory, self._used
        if memory is None:
            return
        self._memory, self._used = None, 0
        idle = self._idle + 1 if 4 * used < memory.shape[0] else 0
        if used > memory.shape[0] < _MOST or idle > _FADES:
            memory, idle = roomy(min(used, _MOST), np.uint8), 0
        if len(_left) < _AT_ONCE:
            _left.append((memory, idle))
