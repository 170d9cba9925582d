"""The state that a run of a join of n streams begins with, and the most that taking one tuple in may cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import beginning, lent_reads, samples
from nile.operators.multiway import state as ms
from nile.preferences import state as st
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.store import DETECTOR_ROWS, TupleStore

__all__ = ["buys_everything", "initial_state"]

Array = np.ndarray[Any, Any]


def buys_everything(plan: JoinPlan) -> bool:
    """Whether the budget covers the exact answer's cost at every arrival, so that nothing need ever be dropped."""
    free = plan.pace.is_replay or plan.spec.forgetting or plan.blind
    return plan.budget.fraction is not None and plan.fraction >= 1.0 and not free


def initial_state(
    plan: JoinPlan,
    store: TupleStore,
    *,
    sketched: bool,
    streams: int,
    keys: int,
    arrivals: int,
    conditioned: bool,
    lent: tuple[Side, ...] | None = None,
    followed: bool = False,
) -> ms.State:
    """The state before the first arrival.  sketched: whether its own sketches are the guide; keys, arrivals: in all.

    lent: the grids of all streams that are asked instead.  followed: whether rates follow what is granted.
    """
    phase = float(np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 4])).random())
    begin = beginning(plan, sketched, whole_fields=ms.WHOLE_FIELDS, setting_fields=ms.SETTING_FIELDS)
    sampled = samples(plan)
    if sampled:
        begin.setting[st.WAITING] = plan.patience
    elif plan.pace.is_replay:
        begin.setting[st.WAITING] = 1024 if plan.waiting is None else plan.waiting
    begin.setting[ms.CONDITIONED] = int(conditioned)
    begin.setting[ms.SETTLES] = int(conditioned and not buys_everything(plan))
    begin.real[st.ENTRANCE] = _entrance(plan, store, begin.prices, sketched, streams)
    if lent is not None:
        begin.setting[st.GUIDE] = st.SHARED_GRID
        begin.real[st.ENTRANCE] += begin.prices[st.P_ESTIMATE] * lent_reads(plan, lent, rows=True)
    depth = plan.spec.depth
    return ms.State(
        **begin._asdict(),
        shed=np.zeros(streams, np.int64),
        shed_at=np.full(max(1, keys), -st.FOREVER, np.int64),
        admissions=np.zeros(arrivals if sampled else 0),
        coins=np.zeros(arrivals if followed else 0),
        draws=np.array([phase, phase, 0.0, 0.0, 0.0]),
        planned=np.zeros(0),
        entry=np.zeros((streams, 2), np.int64),
        cut=np.zeros((depth + 1, streams), np.int64),
        expected=np.zeros((depth, streams)),
        bound=np.zeros((depth, streams)),
    )


def _entrance(plan: JoinPlan, store: TupleStore, prices: Array, sketched: bool, streams: int) -> float:
    """The most that taking one tuple in can cost, so that it is paid for before it begins."""
    m, others = plan.spec.depth, streams - 1
    regions = 1 + (m - 1) * others
    cost = prices[st.P_INSERT]
    if sketched:
        rows = store.side.counters.shape[1]
        reads = m * streams * (rows + 1) if plan.preference == "asc" else m * others * rows
        cost += prices[st.P_UPDATE] * (rows + DETECTOR_ROWS) + prices[st.P_ESTIMATE] * reads
    if not sketched or plan.preference != "desc":
        cost += prices[st.P_LOOKUP] * others
    if not sketched and plan.preference == "desc" and plan.fade.factor < 1.0:
        cost += prices[st.P_LOOKUP] * others * (m - 1)
    split = plan.preference == "desc" and (sketched or plan.fade.factor < 1.0)
    return float(cost + prices[st.P_PUSH] * (regions if split else 1))
