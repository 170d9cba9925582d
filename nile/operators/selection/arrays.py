"""A selection plan and its input as the arrays that kernels run on."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.predicate_index import FULL, PredicateIndex
from nile.operators.selection import state as st
from nile.operators.selection.data import SelectionInput, index_costs, value_buckets
from nile.operators.selection.plan import SelectionPlan
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.spec import SLICE, STRUCTURES
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS, odd_multipliers

__all__ = ["UNIT", "admission", "detector", "kept", "outputs", "places", "progress", "standing", "value_grid"]

Array = np.ndarray[Any, Any]
UNIT = 100.0
"""Kernels count in hundredths of the cost table's unit: whole numbers, whose sums are exact in any order."""
_REFIT = 16
_REFIT_CELLS = 1024


def progress(plan: SelectionPlan, data: SelectionInput, index: PredicateIndex) -> st.Progress:
    """Where a run begins, and what the plan says."""
    prices = np.rint(UNIT * plan.costs.prices())
    if plan.window is not None:
        prices[st.P_EMIT] += prices[st.P_SCAN]  # its expiry is paid for when it is selected
    setting = np.zeros(st.SETTING_FIELDS, np.int64)
    setting[st.ZONE] = plan.zone if plan.structure != "T1" or plan.method != "paper" else st.FOREVER
    setting[st.EVERY] = plan.every
    setting[st.PREFERENCE] = plan.preference_number
    setting[st.BY_VALUE] = int(plan.promise == "value")
    setting[st.WINDOW] = st.FOREVER if plan.window is None else plan.window
    setting[st.SAMPLE] = plan.sample
    setting[st.STRUCTURE] = 1 + STRUCTURES.index(plan.structure)
    setting[st.HOW] = ga.TWO_WINDOW if plan.confidence == "two-window" else ga.VARIANCE
    setting[st.REPLAYED] = int(plan.pace.is_replay)
    setting[st.WAITING] = plan.waiting if plan.pace.is_replay else 0
    setting[st.LEARNED] = data.learned
    setting[st.RANGES] = int(plan.output == "ranges")
    setting[st.PLAIN] = int(plan.output == "pairs")
    setting[st.EXACT] = plan.is_exact * (1 if plan.budget is None else 2)
    setting[st.REFIT] = _REFIT * max(1, -(-index.cells // _REFIT_CELLS))
    whole = np.zeros(st.WHOLE_FIELDS, np.int64)
    whole[st.LAST_ZONE] = plan.zone
    whole[st.EXPLORE_GAP] = setting[st.REFIT]
    return st.Progress(whole=whole, real=np.zeros(st.REAL_FIELDS), setting=setting, prices=prices)


def standing(data: SelectionInput, index: PredicateIndex, ruled_out: Array) -> st.Standing:
    """The stream and the predicates.  ruled_out: uint8 [n], or of length 0."""
    return st.Standing(
        ts=data.ts,
        code=data.code,
        says=np.ascontiguousarray(data.says),
        verdict=np.ascontiguousarray(data.verdict),
        verdict_row=data.rows,
        seen=np.zeros(data.says.shape[1], np.uint8),
        cell=index.cell,
        full_from=index.full_from,
        full=index.full,
        edge_from=index.edge_from,
        edge=index.edge,
        ruled_out=ruled_out,
    )


def value_grid(plan: SelectionPlan, data: SelectionInput) -> st.ValueGrid:
    """The grid of `paper`: value buckets x zones."""
    n = data.ts.shape[0]
    queries, keys = data.says.shape
    shortest = min(plan.zone, SLICE) if plan.structure == "T4" else plan.zone
    zones = 2 if plan.structure == "T1" else 2 + n // shortest
    buckets = 1 if plan.structure in ("T1", "T2") else plan.buckets
    cells = (zones, buckets)
    known = (queries, buckets)
    regions = zones * buckets
    return st.ValueGrid(
        bucket=value_buckets(data, buckets, plan.sample) if keys else np.zeros(0, np.int32),
        magnitude=data.magnitude,
        zone_end=np.zeros(zones, np.int64),
        tuples=np.zeros(cells, np.int64),
        head=np.full(cells, -1, np.int64),
        tail=np.full(cells, -1, np.int64),
        after=np.full(n, -1, np.int64),
        evaluated=np.zeros(queries, np.int64),
        known=np.zeros(known, np.int64),
        passing=np.zeros(known, np.int64),
        weight=np.zeros(known, np.float64),
        resume_zone=np.zeros(queries, np.int64),
        resume_count=np.zeros(known, np.int64),
        resume_tail=np.full(known, -1, np.int64),
        priority=np.zeros(regions, np.float64),
        share=np.zeros(regions, np.float64),
        size=np.zeros(regions, np.int64),
        first=np.zeros(regions, np.int64),
    )


def detector(plan: SelectionPlan, data: SelectionInput) -> st.Detector:
    """The change detector of T4; of one column where there is none."""
    columns = DETECTOR_COLUMNS if plan.structure == "T4" else 1
    return st.Detector(
        hashes=data.hashes.astype(np.uint64),
        reference=np.zeros((DETECTOR_ROWS, columns), np.int32),
        recent=np.zeros((DETECTOR_ROWS, 2 * columns), np.int32),
        multipliers=odd_multipliers(DETECTOR_ROWS, plan.seed, 2),
        moments=np.zeros((DETECTOR_ROWS, 3), np.int64),
        threshold=np.array([plan.threshold], np.float64),
    )


def admission(data: SelectionInput, index: PredicateIndex) -> st.Admission:
    """Admission of `nile`, open to all."""
    cells = index.cells
    order = np.argsort(index.cell_of_interval, kind="stable")
    promise = np.diff(index.full_from) + 0.5 * np.diff(index.edge_from)
    return st.Admission(
        intervals_from=np.searchsorted(index.cell_of_interval[order], np.arange(cells + 1)).astype(np.int64),
        intervals=order.astype(np.int32),
        inside=np.zeros(index.cell_of_interval.shape[0] + 2, np.uint8),
        wanted=np.ones(cells, np.uint8),
        counts=np.zeros(cells, np.float64),
        weight=np.zeros(cells, np.float64),
        order=np.argsort(-promise, kind="stable").astype(np.int64),
        magnitude=data.magnitude,
    )


def places(plan: SelectionPlan, data: SelectionInput, index: PredicateIndex) -> st.Places:
    """Where `nile` lays out its zones; without any room when it gives every output as it comes."""
    n = 0 if plan.output == "pairs" else data.ts.shape[0]
    is_full = index.runs[:, 2] == FULL
    full = np.ascontiguousarray(index.runs[is_full, :2])
    before = np.concatenate([[0], np.cumsum(is_full)])
    runs = full.shape[0]
    return st.Places(
        held=np.zeros(n, np.int64),
        order=np.zeros(n, np.int64),
        counts=np.zeros(index.cells, np.int64),
        begin=np.zeros(index.cells + 1, np.int64),
        weight=np.zeros(index.cells + 1, np.float64),
        run_from=before[index.run_from].astype(np.int64),
        runs=full,
        region=np.zeros((runs, 3), np.int64),
        promise=np.zeros(runs, np.float64),
        left=np.zeros((4 * runs, 4), np.int64),
    )


def kept(plan: SelectionPlan, data: SelectionInput, granted: float) -> Array:
    """The tuples that `shed-uniform` keeps, so that what they cost the index is what is granted: uint8 [n].

    It is told the cost of the exact answer, which an engine would have to estimate.  Other methods: length 0, all.
    """
    if plan.method != "shed-uniform":
        return np.zeros(0, np.uint8)
    exact = UNIT * float(index_costs(data, plan.costs, windowed=plan.window is not None).sum())
    share = min(1.0, granted / exact) if exact else 1.0
    chance = np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 5]))
    return np.asarray(chance.random(data.ts.shape[0]) < share, np.uint8)


def outputs(room: int, *, ranges: bool) -> st.Selected:
    """Room for outputs, not filled."""
    return st.Selected(
        query=np.empty(room, np.int32),
        ordinal=np.empty(room, np.int64),
        last=np.empty(room if ranges else 0, np.int64),
        at=np.empty(room, np.int64),
    )
