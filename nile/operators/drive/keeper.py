"""Streams that several standing queries share: kept once, charged once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.preferences import state as st
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS, TupleStore
from nile.summaries.hashing import Encoded
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.drive import keeper_kernels
    from nile.pyramid.grid import grid_kernels
else:
    keeper_kernels = lazy("nile.operators.drive.keeper_kernels")
    grid_kernels = lazy("nile.pyramid.grid.grid_kernels")

__all__ = ["KeptStream"]

Array = np.ndarray[Any, Any]


class KeptStream:
    """One stream's store, and who was let into it.

    ts: int64 [n] ns; keys: encoded [n]; known: distinct codes; sketched: whether a query reads its summary;
    prices: float64 [10], hundredths of the cost table's unit; salt: of the keys' levels; shed_at: int64 [known],
    shared by all streams, ts at which a tuple of that key was last shed; lent: a grid that queries read instead.
    """

    def __init__(
        self, ts: Array, keys: Encoded, known: int, spec: SummarySpec, *, sketched: bool, prices: Array, salt: int,
        shed_at: Array, lent: Side | None = None,
    ) -> None:  # fmt: skip
        self.ts = ts
        self.keys = keys
        self.store = TupleStore(spec) if lent is None else TupleStore.borrowing(spec, lent)
        self.admissions = np.ones(ts.shape[0])
        self.shed_at = shed_at
        self._known = known
        self._prices = prices
        self._salt = salt
        self._sketched = sketched and spec.structure != "T1" and lent is None
        self._whole = np.zeros(keeper_kernels.WHOLE_FIELDS, np.int64)
        self._real = np.zeros(keeper_kernels.REAL_FIELDS)
        self._real[keeper_kernels.SLICE_COST] = prices[st.P_ADD] * 2 * DETECTOR_ROWS * DETECTOR_COLUMNS
        side = self.store.side
        rows = side.counters.shape[1] + side.recent.shape[0]
        self.entrance = float(prices[st.P_INSERT] + (prices[st.P_UPDATE] * rows if self._sketched else 0.0))
        """What taking one tuple in costs, in hundredths."""
        self.saved = 0.0
        """Put aside for the next turn, in hundredths."""

    def keep(self, end: int, admission: float, credit: float) -> float:
        """Take in tuples up to ordinal `end`, of keys below level `admission`, for `credit` at most; returns the cost.

        Credit and cost are in hundredths.  Zones turn when a turn can be paid.
        """
        whole, real, store = self._whole, self._real, self.store
        begin = store.tuples
        store.extend(self.ts[begin:end], self.keys.codes[begin:end], self.keys.hashes[begin:end], self._known)
        before = float(real[keeper_kernels.SPENT])
        real[keeper_kernels.CREDIT] = credit
        while (
            keeper_kernels.keep(
                store.side,
                end,
                admission,
                self._salt,
                self._sketched,
                self._prices,
                self.admissions,
                self.shed_at,
                whole,
                real,
            )
            == keeper_kernels.NO_ARENA
        ):
            store.grow_arena(int(whole[keeper_kernels.STOPPED_CODE]))
        return float(real[keeper_kernels.SPENT]) - before

    @property
    def turn_wanted(self) -> bool:
        """Whether the open zone has ended and waits for its turn to be paid."""
        return bool(self._whole[keeper_kernels.TURN_WANTED])

    def turn(self) -> float:
        """End the open zone, COLLAPSE what is due; returns what it cost, in hundredths."""
        self._whole[keeper_kernels.TURN_WANTED] = 0
        grid_kernels.turn(self.store.side)
        added = int(self.store.side.zone[ga.ADDS] - self._whole[keeper_kernels.ADDS_PAID])
        self._whole[keeper_kernels.ADDS_PAID] += added
        cost = float(self._prices[st.P_ADD] * added)
        self._real[keeper_kernels.SPENT] += cost
        return cost

    @property
    def spent(self) -> float:
        """What keeping the stream has cost so far, in hundredths."""
        return float(self._real[keeper_kernels.SPENT])

    @property
    def kept(self) -> int:
        """Tuples taken in."""
        return int(self._whole[keeper_kernels.KEPT])

    @property
    def nulls(self) -> int:
        """Tuples without a key: applied, and in no list."""
        return int(self._whole[keeper_kernels.NULLS])

    @property
    def shed(self) -> int:
        """Tuples turned away for all queries."""
        return int(self._whole[keeper_kernels.SHED])
