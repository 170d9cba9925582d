"""Which values came within a window, in memory that does not grow: a Bloom filter of the times they last came.

A cell holds when a value was last put there, and a value is in the window as long as all of its cells say so.  So it
errs one way: what it calls new is new, and a new value seems known as often as other values fill its cells.  Cells of
16 bits tell times apart to 1/32,768 of the window, rounded up: what leaves the window may seem known that much longer.
Source: Bloom, CACM 1970; STREAM (CIDR 2003), section 5.2.1, for duplicate elimination.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Late
from nile.exact.state.held import Held, State

__all__ = ["CELL", "MOST_HASHES", "NEVER_YET", "PAUSES", "Recent", "cells_in", "hashes_for", "put_back", "tick_of",
           "younger"]  # fmt: skip

Array = np.ndarray[Any, Any]
kernels: Any = Late("nile.runtime.recent_kernels")
NEVER_YET = np.iinfo(np.int64).min
CELL = 2
"""Bytes of a cell."""
_LEAST, _MOST = 64, 1 << 28
_TICKS = 1 << 15
"""Of a window: half of what cells tell apart, so that those that have left are emptied long before ticks begin anew."""
MOST_HASHES = 4
PAUSES = 64
"""How often in a window living cells are counted."""


def cells_in(size: int) -> int:
    """How many cells fit into so many bytes: a power of two, 64 at least."""
    cells = _LEAST
    while cells < _MOST and 2 * CELL * cells <= size:
        cells *= 2
    return cells


def hashes_for(cells: int, values: float) -> int:
    """Hash functions for about so many different values in a window."""
    return max(1, min(MOST_HASHES, round(0.69 * cells / max(values, 1.0))))


def tick_of(window: int | None) -> int:
    """ns that cells do not tell apart."""
    return 1 if window is None else max(1, -(-(window + 2) // _TICKS))


def younger(cells: Array, others: Array, newest: int) -> Array:
    """Of two cells for the same values the one that was put in later: uint16, of their shape."""
    one, other = (np.where(each == 0, kernels.PERIOD, (newest % kernels.PERIOD + 1 - each.astype(np.int64))
                  % kernels.PERIOD) for each in (cells, others))  # fmt: skip
    return np.where(one <= other, cells, others)


def put_back(held: Held, shape: tuple[int, ...], window: int | None) -> tuple[Array, Array]:
    """(cells, state) of a filter as they were captured, or with the times of 64 bits that cells once were.

    Raises EnvelopeError.
    """
    if held.kind("cells") == "int64":
        times = held.array("cells", "int64", shape)
        known = times != NEVER_YET
        ticks = -(-np.where(known, times, 0) // tick_of(window))
        newest = int(ticks[known].max(initial=-(1 << 62)))
        known &= (window is None) | (ticks >= newest - _TICKS - 2)
        cells = np.where(known, ticks % kernels.PERIOD + 1, 0).astype(np.uint16)
        state = held.array("state", "int64", (*shape[:-1], 3))
        state = np.concatenate([state, np.full((*shape[:-1], 1), newest)], axis=-1)
    else:
        cells = held.array("cells", "uint16", shape).copy()
        state = held.array("state", "int64", (*shape[:-1], 4)).copy()
    living = state[..., [kernels.LIVE, kernels.GONE]]
    if (living < 0).any() or (living > shape[-1]).any():
        held.refuse(f"0 to {shape[-1]} living cells", state)
    return cells, state


class Recent:
    """Values by their hashes.

    window: ns, None without an end; cells: a power of two; values: about how many different ones the window will have.
    Memory: 2 bytes a cell.  Cost: O(hash functions) a value, and O(cells) 64 times a window.
    """

    HELD: ClassVar = ("_cells", "_state", "_hashes")
    DERIVED: ClassVar = ("_window", "_pause", "_tick")

    def __init__(self, window: int | None, cells: int, values: float) -> None:
        self._window = -1 if window is None else window
        self._pause = 1 << 62 if window is None else max(1, window // PAUSES)
        self._tick = tick_of(window)
        self._cells = np.zeros(cells, np.uint16)
        self._state = np.array([0, NEVER_YET, 0, 0], np.int64)
        self._hashes = hashes_for(cells, values)

    def put(self, ts: Array, hashes: Array) -> tuple[Array, Array]:
        """Values in time order (int64 [n], uint64 [n]): (which are new: bool [n], how probably each of them would have
        been taken for a known one: float64 [n])."""
        fresh, seems = np.empty(ts.shape[0], np.bool_), np.empty(ts.shape[0])
        kernels.newly(
            ts, hashes, self._cells, self._hashes, self._window, self._tick, self._pause, self._state, fresh, seems
        )  # fmt: skip
        return fresh, seems

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self._cells.nbytes + self._state.nbytes)

    @property
    def full(self) -> tuple[float, int]:
        """(the share of the cells that are of values in the window, about; how many cells a value has)."""
        return min(1.0, float(self._state[kernels.LIVE]) / self._cells.shape[0]), self._hashes

    def halve(self) -> bool:
        """Go on with half the cells, each standing for two; False: there are as few as may be.  Cost: O(cells)."""
        if (cells := self._cells.shape[0] // 2) < _LEAST:
            return False
        self._cells = younger(self._cells[:cells], self._cells[cells:], int(self._state[3]))
        share = 2.0 - self._state[0] / (2.0 * cells)  # a pair lives if either of it does
        self._state[[0, 2]] = np.minimum(self._state[[0, 2]] * share / 2.0, cells)
        return True

    def double(self) -> None:
        """Go on with twice the cells, of which two say what one said until values are put in anew.  Cost: O(cells)."""
        self._cells = np.tile(self._cells, 2)
        self._state[[0, 2]] *= 2

    def capture(self) -> State:
        """When each cell was last put in."""
        cells, state = self._cells.copy(), self._state.copy()
        return {"cells": cells, "size": cells.size, "hashes": self._hashes, "state": state}

    @classmethod
    def restored(cls, held: Held, window: int | None) -> Recent:
        """Raises EnvelopeError."""
        size = held.integer("size", _LEAST, _MOST)
        made = cls(window, cells_in(CELL * size), 1.0)
        if made._cells.size != size:
            held.refuse("a power of two of cells", size)
        made._hashes = held.integer("hashes", 1, MOST_HASHES)
        made._cells, made._state = put_back(held, (size,), window)
        held.end()
        return made
