"""Values of two sides in memory that does not grow: of each a filter of last times, and who waits for the right to go.

A filter says too late when a value was last there, never too early.  So what seems to be gone is gone, and what seems
to be there is not as often as others fill its cells.  That is enough for values that come; a value of the left that
comes into EXCEPT because the right lets go of it has to be held by itself until then (`Waiting`).
Source: Bloom, CACM 1970; STREAM (CIDR 2003), section 5.2.1, for set difference and intersection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Late, pa
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable, grown
from nile.runtime.recent import MOST_HASHES, NEVER_YET, PAUSES, cells_in, hashes_for, put_back, tick_of, younger

__all__ = ["Looked", "Sides", "Waiting"]

Array = np.ndarray[Any, Any]
kernels: Any = Late("nile.runtime.recent_kernels")


@dataclass(frozen=True, slots=True)
class Looked:
    """What two filters say of values, in their order.

    new, there, was: bool [n]: surely not on its own side before; seems to be on the other; seems to have been there
    before; since: int64 [n], when it was last on the other, or later; own, other: float64 [n], how probably a value
    that is not there seems to be on its own side, on the other.
    """

    new: Array
    there: Array
    was: Array
    since: Array
    own: Array
    other: Array


class Sides:
    """Values by their hashes.

    window: ns, of both sides, None without an end; cells: of each, a power of two; values: about how many different
    ones the window of a side will have.  Memory: 4 bytes a cell.  Cost: as of `Recent`, for each side.
    """

    HELD: ClassVar = ("_cells", "_state", "_hashes")
    DERIVED: ClassVar = ("_window", "_pause", "_tick")

    def __init__(self, window: int | None, cells: int, values: float) -> None:
        self._window = -1 if window is None else window
        self._pause = 1 << 62 if window is None else max(1, window // PAUSES)
        self._tick = tick_of(window)
        self._cells = np.zeros((2, cells), np.uint16)
        self._state = np.array([[0, NEVER_YET, 0, 0]] * 2, np.int64)
        self._hashes = hashes_for(cells, values)

    def put(self, ts: Array, sides: Array, hashes: Array) -> Looked:
        """Values in time order: int64 [n], int8 [n] (0 left, 1 right), uint64 [n]."""
        n = ts.shape[0]
        stood, since, seems = np.empty((n, 3), np.bool_), np.empty(n, np.int64), np.empty((n, 2))
        kernels.beside(
            ts, sides, hashes, self._cells, self._hashes, self._window, self._tick, self._pause, self._state, stood,
            since, seems,
        )  # fmt: skip
        return Looked(~stood[:, 0], stood[:, 1], stood[:, 2], since, seems[:, 0], seems[:, 1])

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self._cells.nbytes + self._state.nbytes)

    @property
    def full(self) -> tuple[float, int]:
        """As of `Recent`, of the side whose cells are fuller."""
        return min(1.0, float(self._state[:, kernels.LIVE].max()) / self._cells.shape[1]), self._hashes

    def halve(self) -> bool:
        """Go on with half the cells, each standing for two; False: there are as few as may be.  Cost: O(cells)."""
        if (cells := self._cells.shape[1] // 2) < cells_in(0):
            return False
        self._cells = younger(self._cells[:, :cells], self._cells[:, cells:], int(self._state[0, 3]))
        share = 2.0 - self._state[:, :1] / (2.0 * cells)  # as in `Recent.halve`
        self._state[:, [0, 2]] = np.minimum(self._state[:, [0, 2]] * share / 2.0, cells)
        return True

    def double(self) -> None:
        """Go on with twice the cells.  As of `Recent`."""
        self._cells = np.tile(self._cells, 2)
        self._state[:, [0, 2]] *= 2

    def capture(self) -> State:
        """When each cell was last put in."""
        return {
            "cells": self._cells.copy(),
            "size": self._cells.shape[1],
            "hashes": self._hashes,
            "state": self._state.copy(),
        }

    @classmethod
    def restored(cls, held: Held, window: int | None) -> Sides:
        """Raises EnvelopeError."""
        size = held.integer("size", cells_in(0), cells_in(1 << 62))
        if size & (size - 1):
            held.refuse("a power of two of cells", size)
        made = cls(window, size, 1.0)
        made._hashes = held.integer("hashes", 1, MOST_HASHES)
        made._cells, made._state = put_back(held, (2, size), window)
        held.end()
        return made


class Waiting:
    """Rows of the right that are on the left, too, or were, until the right lets go of them.

    window: ns, of both sides.  Memory: about 96 bytes a row beside what is in it.  Cost: O(log rows) a value.
    """

    HELD: ClassVar = ("_left", "_right", "_hash", "_stands", "_table")
    DERIVED: ClassVar = ("schema", "_window", "_due", "_whose", "_size")

    def __init__(self, schema: Any, window: int) -> None:
        self.schema = schema
        self._window = window
        self._table = RowTable(schema.types)
        room = self._table.room
        self._left = np.full(room, NEVER_YET, np.int64)
        self._right, self._hash, self._stands = np.zeros(room, np.int64), np.zeros(room, np.uint64), np.ones(room)
        self._due, self._whose, self._size = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(1, np.int64)

    def __len__(self) -> int:
        """Rows that wait."""
        return int(self._size[0])

    def come(
        self, ts: Array, sides: Array, begins: Array, hashes: Array, since: Array, worth: Array, rows: Any, done: int
    ) -> tuple[Array, Any, Array, Array]:
        """Values that come, in time order; (times int64 [m], rows [m], hashes uint64 [m], how many each stands for:
        float64 [m]) of those that the right lets go of up to `done` and the left still has.

        sides int8 [n]: 0 of rows of the left that are on the right, as far as known last at `since` (int64 [n]), 1 of
        any of the right; begins bool [n]: whether it begins to wait, if it does not yet: of the left what surely was
        not there before, of the right what the left may have; worth float64 [n]: how many it stands for then.
        """
        codes = self._table.codes(self._table.encode(rows.columns))
        self._grow()
        out_ts, out_code = (np.empty(len(self) + ts.shape[0], np.int64) for _ in range(2))
        out_stands = np.empty(out_ts.shape[0])
        self._hash[codes] = hashes
        many = kernels.waited(
            ts, sides, begins, codes, since, worth, done, self._window, self._left, self._right, self._stands,
            self._due, self._whose, self._size, out_ts, out_code, out_stands,
        )  # fmt: skip
        told = pa.RecordBatch.from_arrays(self._table.columns(out_code[:many]), schema=self.schema)
        own = self._hash[out_code[:many]]
        self._sort_out()
        return out_ts[:many], told, own, out_stands[:many]

    def keep(self, which: Any) -> None:
        """Let only those wait whose hashes (uint64 [n]) `which` says (bool [n]).  Cost: O(rows)."""
        codes = self._whose[: len(self)]
        yes = which(self._hash[codes])
        self._left[codes[~yes]] = NEVER_YET
        self._sort_out()
        self._order(codes[yes].copy())

    def put(self, left: Array, right: Array, hashes: Array, rows: Any, stands: Any = 1.0) -> None:
        """Rows that wait already, where none do: when each was last on either side (int64 [n]), what it stands for."""
        codes = self._table.codes(self._table.encode(rows.columns))
        self._grow()
        self._left[codes], self._right[codes], self._hash[codes], self._stands[codes] = left, right, hashes, stands
        self._order(codes)

    def _order(self, codes: Array) -> None:
        n = codes.shape[0]
        due = self._right[codes] + self._window + 1
        order = np.argsort(due, kind="stable")  # which a heap is, too
        self._due[:n], self._whose[:n] = due[order], codes[order]
        self._size[0] = n

    def _grow(self) -> None:
        room = self._table.room
        self._left = grown(self._left, room, NEVER_YET)
        self._right, self._hash, self._stands = (grown(each, room) for each in (self._right, self._hash, self._stands))
        self._due, self._whose = grown(self._due, room), grown(self._whose, room)

    def _sort_out(self) -> None:
        live = self._table.live()
        self._table.release(live[self._left[live] == NEVER_YET])

    @property
    def memory(self) -> int:
        """Bytes."""
        arrays = (self._left, self._right, self._hash, self._stands, self._due, self._whose)
        return self._table.memory + sum(each.nbytes for each in arrays)

    def capture(self) -> State:
        """The rows that wait, and when each was last on either side."""
        codes = np.sort(self._whose[: len(self)])
        return {
            "rows": pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.schema),
            "left": self._left[codes],
            "right": self._right[codes],
            "hash": self._hash[codes].view(np.int64),
            "stands": self._stands[codes],
        }

    @classmethod
    def restored(cls, held: Held, schema: Any, window: int) -> Waiting:
        """Raises EnvelopeError."""
        made = cls(schema, window)
        rows = held.rows("rows", schema)
        left, right = (held.array(name, "int64", (rows.num_rows,)) for name in ("left", "right"))
        hashes = held.array("hash", "int64", (rows.num_rows,)).view(np.uint64)
        stands = held.array("stands", "float64", left.shape)
        held.end()
        if (np.minimum(left, right) == NEVER_YET).any() or not (stands >= 1.0).all():
            held.refuse("times of rows that wait, each for 1 or more", left)
        made.put(left, right, hashes, rows, stands)
        if len(made._table) != rows.num_rows:
            held.refuse("rows that differ", "one of them twice")
        return made
