"""Which values came within a window, in memory that does not grow: a Bloom filter of the times they last came.

A cell holds when a value was last put there, and a value is in the window as long as all of its cells say so.  So it
errs one way: what it calls new is new, and a new value seems known as often as other values fill its cells.
Source: Bloom, CACM 1970; STREAM (CIDR 2003), section 5.2.1, for duplicate elimination.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Late
from nile.exact.state.held import Held, State

__all__ = ["MOST_HASHES", "NEVER_YET", "PAUSES", "Recent", "cells_in", "hashes_for"]

Array = np.ndarray[Any, Any]
kernels: Any = Late("nile.runtime.recent_kernels")
NEVER_YET = np.iinfo(np.int64).min
_LEAST, _MOST = 64, 1 << 28
MOST_HASHES = 4
PAUSES = 64
"""How often in a window living cells are counted."""


def cells_in(size: int) -> int:
    """How many cells fit into so many bytes: a power of two, 64 at least."""
    cells = _LEAST
    while cells < _MOST and 16 * cells <= size:
        cells *= 2
    return cells


def hashes_for(cells: int, values: float) -> int:
    """Hash functions for about so many different values in a window."""
    return max(1, min(MOST_HASHES, round(0.69 * cells / max(values, 1.0))))


class Recent:
    """Values by their hashes.

    window: ns, None without an end; cells: a power of two; values: about how many different ones the window will have.
    Memory: 8 bytes a cell.  Cost: O(hash functions) a value, and O(cells) 64 times a window.
    """

    HELD: ClassVar = ("_cells", "_state", "_hashes")
    DERIVED: ClassVar = ("_window", "_pause")

    def __init__(self, window: int | None, cells: int, values: float) -> None:
        self._window = -1 if window is None else window
        self._pause = 1 << 62 if window is None else max(1, window // PAUSES)
        self._cells = np.full(cells, NEVER_YET, np.int64)
        self._state = np.array([0, NEVER_YET, 0], np.int64)
        self._hashes = hashes_for(cells, values)

    def put(self, ts: Array, hashes: Array) -> tuple[Array, Array]:
        """Values in time order (int64 [n], uint64 [n]): (which are new: bool [n], how probably each of them would have
        been taken for a known one: float64 [n])."""
        fresh, seems = np.empty(ts.shape[0], np.bool_), np.empty(ts.shape[0])
        kernels.newly(
            ts, hashes, self._cells, self._hashes, self._window, self._pause, self._state, fresh, seems
        )  # fmt: skip
        return fresh, seems

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self._cells.nbytes + self._state.nbytes)

    def halve(self) -> bool:
        """Go on with half the cells, each standing for two; False: there are as few as may be.  Cost: O(cells)."""
        if (cells := self._cells.shape[0] // 2) < _LEAST:
            return False
        self._cells = np.maximum(self._cells[:cells], self._cells[cells:])
        share = 2.0 - self._state[0] / (2.0 * cells)  # a pair lives if either of it does
        self._state[[0, 2]] = np.minimum(self._state[[0, 2]] * share / 2.0, cells)
        return True

    def capture(self) -> State:
        """When each cell was last put in."""
        cells, state = self._cells.copy(), self._state.copy()
        return {"cells": cells, "size": cells.size, "hashes": self._hashes, "state": state}

    @classmethod
    def restored(cls, held: Held, window: int | None) -> Recent:
        """Raises EnvelopeError."""
        size = held.integer("size", _LEAST, _MOST)
        made = cls(window, cells_in(8 * size), 1.0)
        if made._cells.size != size:
            held.refuse("a power of two of cells", size)
        made._hashes = held.integer("hashes", 1, MOST_HASHES)
        made._cells = held.array("cells", "int64", (size,)).copy()
        made._state = held.array("state", "int64", (3,)).copy()
        if not 0 <= made._state[0] <= size or not 0 <= made._state[2] <= size:
            held.refuse(f"0 to {size} living cells", made._state)
        held.end()
        return made
