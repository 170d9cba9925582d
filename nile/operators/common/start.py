"""The state that a run of a join begins with, and the most that its steps may cost."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.preferences import state as st
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS, TupleStore

__all__ = ["UNIT", "beginning", "initial_state", "lent_reads", "samples", "shared_state"]

Array = np.ndarray[Any, Any]
UNIT = 100.0
"""Kernels count in hundredths of the cost table's unit: whole numbers, whose sums are exact in any order."""


class Beginning(NamedTuple):
    """The part of a join's state that does not depend on the number of streams; fields as in `state.State`."""

    whole: Array
    real: Array
    setting: Array
    prices: Array
    fades: Array
    window: Array


def beginning(
    plan: JoinPlan, sketched: bool, *, whole_fields: int = st.WHOLE_FIELDS, setting_fields: int = st.SETTING_FIELDS
) -> Beginning:
    """What the state of any join begins with.  whole_fields, setting_fields: lengths, at least those of `state`."""
    prices = np.rint(UNIT * plan.costs.prices())
    whole = np.zeros(whole_fields, np.int64)
    whole[st.ADMISSION_SINCE] = -st.FOREVER
    setting = np.zeros(setting_fields, np.int64)
    setting[st.GUIDE] = st.COUNTSKETCH if sketched else st.DIRECTORY
    setting[st.PREFERENCE] = plan.preference_number
    setting[st.RANGES] = int(plan.output == "ranges")
    setting[st.CAP] = plan.outlier_cap
    setting[st.REPLAYED] = int(plan.pace.is_replay)
    setting[st.BLIND] = int(plan.blind)
    setting[st.SALT] = np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 3])).integers(0, 2**62)
    setting[st.OUTLIERS_ONLY] = int(plan.preference == "asc")
    real = np.zeros(st.REAL_FIELDS, np.float64)
    real[st.ADMISSION] = 1.0
    real[st.ADMISSION_BEFORE] = 1.0
    real[st.SHARE] = {"desc": 0.5, "weighted": 0.8, "asc": 1.0}[plan.preference]
    real[st.FRACTION] = plan.fraction
    real[st.RATE] = min(1.0, plan.fraction)
    phase = float(np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 4])).random())
    real[st.GAP] = phase / real[st.RATE]
    if sketched:
        passes = 2 * DETECTOR_ROWS * DETECTOR_COLUMNS
        real[st.SLICE_COST] = prices[st.P_ADD] * passes
        real[st.TURN_COST] = prices[st.P_ADD] * turn_adds(plan.spec)
    window = np.array([st.FOREVER if plan.window is None else plan.window], np.int64)
    return Beginning(whole, real, setting, prices, plan.fade.powers(plan.spec.depth), window)


def samples(plan: JoinPlan) -> bool:
    """Whether the plan draws a sample: outputs with inclusion weights."""
    return plan.method == "nile" and plan.preference == "weighted" and not plan.is_exact


def initial_state(
    plan: JoinPlan, data: JoinInput, store: TupleStore, sketched: bool, lent: tuple[Side, ...] | None = None
) -> st.State:
    """The state before the first arrival.  store: of the left stream; sketched: whether its own sketches are the guide.

    lent: the grids of both streams that are asked instead.
    """
    begin = beginning(plan, sketched)
    real, prices = begin.real, begin.prices
    begin.setting[st.WAITING] = plan.patience
    begin.whole[st.SAMPLED] = 8
    real[st.WANTED] = 1.0
    real[st.CHOICE] = st.SLOTS * (prices[st.P_SCAN] + math.log2(st.SLOTS) * prices[st.P_ADD])
    real[st.BOUNDS] = min(prices[st.P_SCAN], prices[st.P_LOOKUP])
    real[st.ENTRANCE] = _entrance(plan, store.side, prices, real[st.BOUNDS], sketched)
    if lent is not None:
        begin.setting[st.GUIDE] = st.SHARED_GRID
        real[st.ENTRANCE] += prices[st.P_ESTIMATE] * lent_reads(plan, lent, rows=plan.preference == "asc")
    sampled = samples(plan)
    return st.State(
        **begin._asdict(),
        left_admission=np.zeros(data.left_ts.shape[0] if sampled else 0),
        right_admission=np.zeros(data.right_ts.shape[0] if sampled else 0),
        seen=np.zeros((6, st.SLOTS)),
        open=np.ones(st.SLOTS, np.uint8),
        shed_at=np.full(max(1, data.keys), -st.FOREVER, np.int64),
        heavy=no_heavy(st.HEAVY_KEYS if begin.setting[st.GUIDE] == st.DIRECTORY and plan.preference == "asc" else 0),
    )


def no_heavy(room: int) -> Array:
    """Places for so many keys that are too frequent, none of which is taken: int64 [room, 2]."""
    return np.column_stack([np.zeros(room, np.int64), np.full(room, -st.FOREVER, np.int64)])


def shared_state(
    state: st.State, plan: JoinPlan, side: Any, admissions: tuple[Array, Array], shed_at: Array
) -> st.State:
    """The same over streams that others keep: nothing is inserted or summarised, and tuples do not wait.

    side: of the left stream; admissions: that its tuples came through, and those of the right one.
    """
    state = state._replace(
        left_admission=admissions[0], right_admission=admissions[1], shed_at=shed_at, heavy=no_heavy(0)
    )
    real, prices = state.real, state.prices
    state.setting[st.SHARED] = 1
    state.setting[st.WAITING] = 0
    # Others have inserted the tuple: this query must find its key for itself.
    real[st.ENTRANCE] += (plan.spec.depth + 1) * (prices[st.P_LOOKUP] - real[st.BOUNDS]) - prices[st.P_INSERT]
    real[st.BOUNDS] = prices[st.P_LOOKUP]
    if state.setting[st.GUIDE] == st.COUNTSKETCH:
        real[st.ENTRANCE] -= prices[st.P_UPDATE] * (side.counters.shape[1] + DETECTOR_ROWS)
    real[st.SLICE_COST] = real[st.TURN_COST] = 0.0
    return state


def _entrance(plan: JoinPlan, side: Any, prices: Array, bounds: float, sketched: bool) -> float:
    """The most that taking one tuple in can cost, so that it is paid for before it begins."""
    m = plan.spec.depth
    cost = prices[st.P_INSERT] + 2 * bounds + (prices[st.P_UPDATE] if plan.preference == "desc" else 0.0)
    if sketched:
        rows = side.counters.shape[1]
        reads = 2 * m * rows if plan.preference == "asc" else m
        cost += prices[st.P_UPDATE] * (rows + DETECTOR_ROWS) + prices[st.P_ESTIMATE] * reads
        cost += prices[st.P_PUSH] * (m if plan.preference == "desc" else 1)
    elif plan.preference == "asc":
        # Noted as too frequent, a key is not looked up; one that is found to be so is noted, by two of its tuples.
        noting = prices[st.P_UPDATE] + 2 * bounds
        cost += prices[st.P_ESTIMATE] + max(prices[st.P_LOOKUP], noting) + prices[st.P_PUSH]
    elif plan.preference == "desc":
        cut = m if plan.fade.factor < 1.0 else 1
        cost += (cut - 1) * bounds + cut * prices[st.P_PUSH]
    else:
        cost += prices[st.P_PUSH]
    return float(cost)


def lent_reads(plan: JoinPlan, lent: tuple[Side, ...], *, rows: bool) -> int:
    """The most counters that a tuple reads of lent grids, of each sketch of its window's cover one row, or all (rows).

    asc asks the tuple's own stream too.
    """
    covers = [sum(4 * (int(leaves).bit_length() - 1) + 2 for leaves in side.gran[:, ga.LEAVES]) + 3 for side in lent]
    reads = [cover * (side.counters.shape[1] if rows else 1) for cover, side in zip(covers, lent, strict=True)]
    if plan.preference == "asc":
        return sum(reads)
    cuts = plan.spec.depth if plan.preference == "desc" and plan.fade.factor < 1.0 else 1
    return (sum(reads) - min(reads)) * cuts


def turn_adds(spec: SummarySpec) -> int:
    """The most counters one turn adds: a close with a merge, and a zone's way through every granularity."""
    levels = [int(math.log2(leaves)) for leaves in spec.leaf_capacity]
    close = 1 + levels[0] + (2 * levels[0] + 4)
    moves = sum(1 + levels[g] + levels[g - 1] + 1 for g in range(1, spec.depth))
    last = 2 * levels[-1] + 2
    return (close + moves + last) * spec.rows * 2 * spec.width
