"""Hundreds of standing selections over one stream under a budget: the operator that kernels run in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators import selection_state as st
from nile.operators.selection_plan import SelectionPlan
from preferences.clock import Pace, grants
from summaries.costs import CostTable
from summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators import selection_kernels as kernels
else:
    kernels = lazy("nile.operators.selection_kernels")

__all__ = ["SelectionFigures", "SelectionInput", "Selections", "StandingSelections", "naive_costs"]

Array = np.ndarray[Any, Any]
_ROOM = 1 << 16
_UNIT = 100.0
"""Kernels count in hundredths of the cost table's unit: whole numbers, whose sums are exact in any order."""
_UNLIMITED = float(1 << 40)


@dataclass(frozen=True, slots=True)
class SelectionInput:
    """An ordered stream of n tuples and q predicates over its k distinct keys.

    ts: int64 [n] ns; code: int32 [n], keys numbered by first appearance (a null is a key here); rank: int64
    [k], each key's place in their order; passes: uint8 [q, k]; magnitude: float64 [k], |value| of a key.
    """

    ts: Array
    code: Array
    rank: Array
    passes: Array
    magnitude: Array

    @property
    def matches(self) -> Array:
        """How many queries each tuple satisfies: int64 [n]."""
        return np.asarray(self.passes.sum(axis=0, dtype=np.int64)[self.code])


@dataclass(frozen=True, slots=True)
class Selections:
    """A batch of outputs.  query: int32 [n]; ordinal: int64 [n], the tuple; at: int64 [n], arrivals by then."""

    query: Array
    ordinal: Array
    at: Array


@dataclass(frozen=True, slots=True)
class SelectionFigures:
    """What a run did.  Costs are in units of its cost table.

    evaluated, scanned: predicates put to a distinct key, to a tuple; regions read (on summaries), visited,
    undone (their rounds ended first); rounds: dispatches; lost: (tuple, query) that an opponent had no time for.
    """

    arrivals: int
    shed: int
    outputs: int
    evaluated: int
    scanned: int
    regions_read: int
    regions_visited: int
    regions_undone: int
    rounds: int
    lost: int
    granted: float
    spent: float
    spent_summary: float
    exact_cost: float

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of what `naive` needs for everything."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0


def naive_costs(data: SelectionInput, costs: CostTable, *, windowed: bool) -> Array:
    """The base of a budget, c_j of every tuple: float64 [n].

    insert + queries * scan + (emit, and scan for its expiry when there is a window) * matches: what `naive`
    spends when it feeds every tuple to every query.
    """
    output = costs.emit + (costs.scan if windowed else 0.0)
    return np.asarray(costs.insert + data.passes.shape[0] * costs.scan + output * data.matches)


class StandingSelections:
    """One run of a SelectionPlan over one SelectionInput: `run` yields Selections as they are found.

    Same plan and input, same bytes, however the input is cut into batches.  Memory of `paper`: 8 bytes a
    tuple, 56 a cell (value bucket x zone), 40 a query and bucket.

    The grid is its own: a cell keeps an exact count and its tuples in arrival order, where `pyramid` keeps
    count sketches.  A range predicate asks how many tuples a run of values has; a sketch answers for one key
    at a time, so it would be asked once for each of hundreds of keys.  Buckets are order-preserving: their
    borders are equal shares of the stream's first `sample` tuples, so a range satisfies whole buckets but for
    the two at its ends.  The count is a summary in the sense of section 3.2, the histogram it names.
    There is one granularity: a round reads the zones after the one before, and none again, so that nothing
    would ever read a coarser one.
    """

    def __init__(self, plan: SelectionPlan, data: SelectionInput, *, batch_rows: int = 65_536) -> None:
        self.plan = plan
        self.data = data
        self.batch_rows = max(1, batch_rows)
        self.progress = _progress(plan)
        self._costs = np.rint(_UNIT * naive_costs(data, plan.costs, windowed=plan.window is not None))
        if plan.budget is None:
            self._grant = np.full(data.ts.shape[0], _UNLIMITED)
        else:
            self._grant = grants(self._costs, plan.fraction, Pace(), data.ts)
        self.standing = _standing(data)
        self.grid = _grid(plan, data) if plan.method == "paper" else None
        self._room = _ROOM

    def run(self) -> Iterator[Selections]:
        """All outputs, in the order they are found."""
        n = self.data.ts.shape[0]
        out = _outputs(self._room)
        for begin in range(0, n, self.batch_rows):
            end = min(n, begin + self.batch_rows)
            while True:
                needed = self._step(end, out)
                if self.progress.whole[st.WRITTEN]:
                    yield self._collect(out)
                if needed == 0:
                    break
                if needed > self._room:
                    self._room = 2 * needed
                    out = _outputs(self._room)

    def _step(self, end: int, out: st.Selected) -> int:
        if self.grid is not None:
            return int(kernels.select_promising(self.standing, self.grid, self._grant, end, self.progress, out))
        step = kernels.select_naive if self.plan.method == "naive" else kernels.select_indexed
        return int(step(self.standing, self._grant, end, self.progress, out))

    def _collect(self, out: st.Selected) -> Selections:
        whole = self.progress.whole
        n = int(whole[st.WRITTEN])
        whole[st.WRITTEN] = 0
        return Selections(query=out.query[:n].copy(), ordinal=out.ordinal[:n].copy(), at=out.at[:n].copy())

    @property
    def memory_bytes(self) -> int:
        """Bytes of the grid and of what queries remember (0 for the opponents)."""
        return sum(int(array.nbytes) for array in self.grid) if self.grid is not None else 0

    @property
    def figures(self) -> SelectionFigures:
        """What has been done so far."""
        whole, real = self.progress.whole, self.progress.real
        return SelectionFigures(
            arrivals=int(whole[st.ARRIVED]),
            shed=int(whole[st.SHED]),
            outputs=int(whole[st.OUTPUTS]),
            evaluated=int(whole[st.EVALUATED]),
            scanned=int(whole[st.SCANNED]),
            regions_read=int(whole[st.READ]),
            regions_visited=int(whole[st.VISITED]),
            regions_undone=int(whole[st.UNDONE]),
            rounds=int(whole[st.ROUNDS]),
            lost=int(whole[st.LOST]),
            granted=float(real[st.GRANTED]) / _UNIT,
            spent=float(real[st.SPENT]) / _UNIT,
            spent_summary=float(real[st.SPENT_SUMMARY]) / _UNIT,
            exact_cost=float(self._costs.sum()) / _UNIT,
        )


def _progress(plan: SelectionPlan) -> st.Progress:
    prices = np.rint(_UNIT * plan.costs.prices())
    if plan.window is not None:
        prices[st.P_EMIT] += prices[st.P_SCAN]  # its expiry is paid for when it is selected
    setting = np.zeros(st.SETTING_FIELDS, np.int64)
    setting[st.ZONE] = plan.zone
    setting[st.EVERY] = plan.every
    setting[st.PREFERENCE] = plan.preference_number
    setting[st.BY_VALUE] = int(plan.promise == "value")
    setting[st.WINDOW] = st.FOREVER if plan.window is None else plan.window
    setting[st.SAMPLE] = plan.sample
    return st.Progress(
        whole=np.zeros(st.WHOLE_FIELDS, np.int64),
        real=np.zeros(st.REAL_FIELDS, np.float64),
        setting=setting,
        prices=prices,
    )


def _standing(data: SelectionInput) -> st.Standing:
    keys, queries = np.nonzero(data.passes.T)
    matches = np.searchsorted(keys, np.arange(data.passes.shape[1] + 1))
    return st.Standing(
        ts=data.ts,
        code=data.code,
        passes=np.ascontiguousarray(data.passes),
        matches=matches.astype(np.int64),
        queries=queries.astype(np.int32),
    )


def value_buckets(data: SelectionInput, buckets: int, sample: int) -> Array:
    """The value bucket of every key: int32 [k].  Borders are equal shares of the first `sample` tuples."""
    ranks = np.sort(data.rank[data.code[:sample]])
    cuts = np.unique(ranks[np.arange(1, buckets) * ranks.shape[0] // buckets]) if ranks.shape[0] else ranks
    found: Array = np.searchsorted(cuts, data.rank, side="right").astype(np.int32)
    return found


def _grid(plan: SelectionPlan, data: SelectionInput) -> st.ValueGrid:
    n = data.ts.shape[0]
    queries, keys = data.passes.shape
    zones = -(-n // plan.zone)
    cells = (zones, plan.buckets)
    known = (queries, plan.buckets)
    regions = zones * plan.buckets
    return st.ValueGrid(
        bucket=value_buckets(data, plan.buckets, plan.sample) if keys else np.zeros(0, np.int32),
        magnitude=data.magnitude,
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


def _outputs(room: int) -> st.Selected:
    return st.Selected(query=np.zeros(room, np.int32), ordinal=np.zeros(room, np.int64), at=np.zeros(room, np.int64))
