"""Streams that several standing queries share: kept once, charged once; and the join that probes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences import state as st
from nile.pyramid.grid import arrays as ga
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

__all__ = ["KeptStream", "SharedJoin"]

Array = np.ndarray[Any, Any]


class KeptStream:
    """One stream's store, and who was let into it.

    ts: int64 [n] ns; keys: encoded [n]; known: distinct codes; sketched: whether a query reads its summary;
    prices: float64 [10], hundredths of the cost table's unit; salt: of the keys' levels; shed_at: int64 [known],
    shared by all streams, ts at which a tuple of that key was last shed.
    """

    def __init__(
        self, ts: Array, keys: Encoded, known: int, spec: SummarySpec, *, sketched: bool, prices: Array, salt: int,
        shed_at: Array,
    ) -> None:  # fmt: skip
        self.ts = ts
        self.keys = keys
        self.store = TupleStore(spec)
        self.admissions = np.ones(ts.shape[0])
        self.shed_at = shed_at
        self._known = known
        self._prices = prices
        self._salt = salt
        self._sketched = sketched and spec.structure != "T1"
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


class SharedJoin(PromisingJoin):
    """A promising join that probes streams others keep: it inserts nothing and is charged for nothing but probes.

    Its queue, admission and credit are its own.  A stream may be ahead of it: what comes after the tuple that probes
    does not show.  Credit comes with `advance(end, credit=...)` (`nile.operators.drive.dealt`).
    """

    _inserts = False

    def __init__(self, plan: JoinPlan, data: JoinInput, streams: tuple[KeptStream, KeptStream]) -> None:
        super().__init__(plan, data)
        self.stores = (streams[0].store, streams[1].store)
        self.state.setting[st.SHARED] = 1
        self.state = self.state._replace(
            left_admission=streams[0].admissions, right_admission=streams[1].admissions, shed_at=streams[0].shed_at
        )
        real = self.state.real
        self.turn_cost = float(real[st.TURN_COST])
        """The most that one turn of a summary it reads costs, in hundredths; 0 when it reads none."""
        prices, side = self.state.prices, self.stores[0].side
        self.state.setting[st.WAITING] = 0
        # Others have inserted the tuple: this query must find its key for itself.
        real[st.ENTRANCE] += (plan.spec.depth + 1) * (prices[st.P_LOOKUP] - real[st.BOUNDS]) - prices[st.P_INSERT]
        real[st.BOUNDS] = prices[st.P_LOOKUP]
        if self.state.setting[st.GUIDE] == st.COUNTSKETCH:
            real[st.ENTRANCE] -= prices[st.P_UPDATE] * (side.counters.shape[1] + DETECTOR_ROWS)
        real[st.SLICE_COST] = real[st.TURN_COST] = 0.0

    def _sides(self) -> tuple[Any, Any]:
        shown = []
        for number, store in enumerate(self.stores):
            meta = store.side.meta.copy()
            meta[ga.VISIBLE] = self.state.whole[st.SEQUENCE + number]
            shown.append(store.side._replace(meta=meta))
        return shown[0], shown[1]

    def _feed(self, end: int) -> None:
        self._fed = end

    def _release(self) -> None:
        """Whoever keeps the streams knows what all their queries need."""
