"""What a join of two streams has found and done, read off its stores and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.start import UNIT
from nile.preferences import state as st
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.store import TupleStore
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.grid import list_kernels
else:
    list_kernels = lazy("nile.pyramid.grid.list_kernels")

__all__ = ["codes_of", "expanded", "figures_of"]

Array = np.ndarray[Any, Any]
Stores = tuple[TupleStore, TupleStore]


def codes_of(store: TupleStore, ordinals: Array) -> Array:
    """The key codes of tuples that are held: int32 [n]."""
    codes: Array = store.side.code[ordinals - int(store.side.meta[ga.BASE])]
    return codes


def expanded(stores: Stores, outputs: Outputs) -> Outputs:
    """The pairs that range records stand for, in their order; pairs as they are.  O(pairs)."""
    if outputs.side is None or outputs.low is None or outputs.high is None:
        return outputs
    parts_left, parts_right, parts_record = [], [], []
    for side in (0, 1):
        mine = np.flatnonzero(outputs.side == side)
        ordinals = outputs.left[mine]
        low, high = outputs.low[mine], outputs.high[mine]
        pairs = int((high - low).sum())
        which = np.empty(pairs, np.int64)
        match = np.empty(pairs, np.int64)
        codes = codes_of(stores[side], ordinals).astype(np.int64)
        list_kernels.expand_ranges(stores[1 - side].side, codes, low, high, 0, which, match)
        probing = ordinals[which]
        parts_left.append(probing if side == 0 else match)
        parts_right.append(match if side == 0 else probing)
        parts_record.append(mine[which])
    record = np.concatenate(parts_record)
    order = np.argsort(record, kind="stable")
    return Outputs(
        left=np.concatenate(parts_left)[order],
        right=np.concatenate(parts_right)[order],
        weight=outputs.weight[record[order]],
    )


def figures_of(
    state: st.State, stores: Stores, data: JoinInput, *, shed: tuple[int, int], coverage: float
) -> JoinFigures:
    """What a run of this input has done so far."""
    whole, real = state.whole, state.real
    ruled_out = int(data.ruled_out[: whole[st.APPLIED]].sum())
    return JoinFigures(
        arrivals=int(whole[st.ARRIVED]),
        nulls=int(whole[st.NULLS]) - ruled_out,
        admitted=int(whole[st.ADMITTED]),
        shed=shed,
        outputs=int(whole[st.OUTPUTS]),
        regions=int(whole[st.REGIONS]),
        pruned=int(whole[st.PRUNED]),
        zones=sum(int(store.side.zone[ga.CLOSED]) for store in stores),
        changes=sum(int(store.side.zone[ga.CHANGES]) for store in stores),
        expired=int(whole[st.EXPIRED]),
        evicted=int(whole[st.EVICTED]),
        granted=float(real[st.GRANTED]) / UNIT + data.asked,
        spent=float(real[st.SPENT]) / UNIT + data.asked,
        spent_insert=float(real[st.SPENT_INSERT]) / UNIT,
        spent_hit=float(real[st.SPENT_HIT]) / UNIT,
        exact_cost=float(np.rint(UNIT * data.costs).sum()) / UNIT,
        coverage=coverage,
        forgotten=sum(int(store.side.zone[ga.FORGOTTEN]) for store in stores),
        admission=float(real[st.ADMISSION]),
        sampling_rate=float(real[st.RATE]) if whole[st.ARRIVED] else 1.0,  # of nothing, all was drawn
        ruled_out=ruled_out,
    )
