"""Hundreds of standing selections over one stream under a budget: the operator that kernels run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.lent import roomy
from nile.operators.common.example import EXAMPLE_ARRIVALS
from nile.operators.common.predicate_index import NONE, PredicateIndex
from nile.operators.common.ruling import ASKED_SHARE, ruled_out
from nile.operators.selection import arrays
from nile.operators.selection import state as st
from nile.operators.selection.data import SelectionFigures, SelectionInput, Selections, naive_costs
from nile.operators.selection.plan import SelectionPlan
from nile.preferences.clock import grants
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.selection import expansion_kernels
    from nile.operators.selection import nile_kernels as selection_nile_kernels
    from nile.operators.selection import opponent_kernels as selection_opponent_kernels
    from nile.operators.selection import paper_kernels as selection_kernels
else:
    expansion_kernels = lazy("nile.operators.selection.expansion_kernels")
    selection_kernels = lazy("nile.operators.selection.paper_kernels")
    selection_nile_kernels = lazy("nile.operators.selection.nile_kernels")
    selection_opponent_kernels = lazy("nile.operators.selection.opponent_kernels")

__all__ = ["StandingSelections"]

Array = np.ndarray[Any, Any]
_ROOM = 1 << 16
_PAIRS = 1 << 15  # pairs a block: what is written is read from the cache
_UNLIMITED = float(1 << 40)


class StandingSelections:
    """One run of a SelectionPlan over one SelectionInput: `run` yields Selections as they are found.

    Same plan and input, same bytes, however the input is cut into batches.  Memory of `paper`: 8 bytes a
    tuple, 56 a cell (value bucket x zone), 40 a query and bucket; of `nile` giving ranges: 16 bytes per tuple.

    The grid of `paper` is its own: a cell keeps an exact count and its tuples in arrival order, where `pyramid` keeps
    count sketches.  A range predicate asks how many tuples per run of values has; a sketch answers for one key
    at a time, so it would be asked once for each of hundreds of keys.  Buckets are order-preserving: their
    borders are equal shares of the stream's first `sample` tuples, so a range satisfies whole buckets but for
    the two at its ends.  The count is a summary in the sense of section 3.2, the histogram it names.
    There is one granularity: a round reads the zones after the one before, and none again, so that nothing
    would ever read a coarser one.  Zones of T4 end by the change detector of `pyramid`.
    """

    def __init__(
        self, plan: SelectionPlan, data: SelectionInput, *, batch_rows: int = 65_536, runs: bool = False
    ) -> None:
        """runs: pairs of `nile` may come as records of a tuple and several queries, which `pairs` takes apart."""
        self.plan = plan
        self.data = data
        self.batch_rows = max(1, batch_rows)
        self.index = PredicateIndex.of(data.says, data.rank)
        self.progress = arrays.progress(plan, data, self.index)
        if plan.budget is None:
            self.progress.setting[st.REPLAYED] = 0  # nothing is limited, so that no credit expires under a tuple
        self._costs = np.rint(arrays.UNIT * naive_costs(data, plan.costs, windowed=plan.window is not None))
        if plan.budget is None:
            self._grant = np.full(data.ts.shape[0], _UNLIMITED)
        else:
            self._grant = grants(self._costs, plan.fraction, plan.pace, data.ts)
        self.standing = arrays.standing(data, self.index, self._ruled_out())
        self._grid: st.ValueGrid | None = None
        self._places: st.Places | None = None
        if plan.method == "paper":
            self._grid = arrays.value_grid(plan, data)
            self._detector = arrays.detector(plan, data)
        elif plan.method == "nile":
            self._admission = arrays.admission(data, self.index)
            self._places = arrays.places(plan, data, self.index)
        self._keep = arrays.kept(plan, data, float(self._grant.sum()))
        self._ranges = self._places is not None and self._places.order.shape[0] > 0
        self._runs = runs and self._places is not None and not self._ranges
        self._out = arrays.outputs(_ROOM, ranges=self._ranges or self._runs)
        self._fed = 0

    def _ruled_out(self) -> Array:
        """Which tuples the shared summary tells to satisfy nothing: uint8 [n], length 0: not asked.  It is paid."""
        plan, data = self.plan, self.data
        if data.summary is None or plan.method != "nile" or plan.is_exact or plan.budget is None:
            return np.zeros(0, np.uint8)
        most = ASKED_SHARE * (
            float(self._grant.sum()) if plan.budget.fraction is not None else float(self._costs.sum())
        )
        keys = data.hashes[(data.says != NONE).any(axis=0)].astype(np.uint64)
        runs, cost = ruled_out(data.summary, keys, plan.costs, most / arrays.UNIT)
        paid = np.rint(arrays.UNIT * cost)
        self.progress.real[st.CREDIT] -= paid
        self.progress.real[st.SPENT] += paid
        self.progress.real[st.SPENT_SUMMARY] += paid
        told = np.zeros(0 if runs is None else data.ts.shape[0], np.uint8)
        for begin, end in () if runs is None else runs.tolist():
            told[begin:end] = 1
        return told

    @property
    def ruled_out(self) -> int:
        """Tuples that a shared summary tells to satisfy nothing."""
        return int(self.standing.ruled_out.sum())

    @property
    def arrivals(self) -> int:
        """Tuples of the stream."""
        return int(self.data.ts.shape[0])

    @property
    def fed(self) -> int:
        """How many arrivals have been fed."""
        return self._fed

    @property
    def spent(self) -> float:
        """What has been spent so far, in units of the cost table."""
        return float(self.progress.real[st.SPENT]) / arrays.UNIT

    @property
    def credit(self) -> float:
        """What is granted and not yet spent, in units of the cost table."""
        return float(self.progress.real[st.CREDIT]) / arrays.UNIT

    def times(self) -> Array:
        """The time of each arrival: int64 [arrivals] ns."""
        return self.data.ts

    def example(self) -> StandingSelections:
        """The same over the first tuples, whose run loads every kernel that this one's will."""
        return StandingSelections(self.plan, self.data.beginning(EXAMPLE_ARRIVALS))

    def run(self) -> Iterator[Selections]:
        """All outputs, in the order they are found."""
        while self._fed < self.arrivals:
            yield from self.advance(min(self.arrivals, self._fed + self.batch_rows))

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Selections]:
        """Go on to arrival `end`.

        credit: cost granted for these arrivals, or for what waits when there are none, in place of the plan's
        budget (None).
        """
        if credit is not None:
            arrivals, real = end - self._fed, self.progress.real
            self._grant[self._fed : end] = arrays.UNIT * credit / max(1, arrivals)
            if not arrivals:
                real[st.CREDIT] += arrays.UNIT * credit
                real[st.GRANTED] += arrays.UNIT * credit
        self._fed = end
        while True:
            needed = self._step(end, self._out)
            if self.progress.whole[st.WRITTEN]:
                yield self._collect(self._out)
            if needed == 0:
                return
            if needed > self._out.query.shape[0]:
                self._out = arrays.outputs(2 * needed, ranges=self._ranges or self._runs)

    def finish(self) -> None:
        """There is no more: arrivals that have not been taken in count as shed."""
        self._fed = self.arrivals
        self.progress.whole[st.ARRIVED] = self._fed

    def _step(self, end: int, out: st.Selected) -> int:
        common = (self._grant, end, self.progress, out)
        if self._grid is not None:
            return int(selection_kernels.select_promising(self.standing, self._grid, self._detector, *common))
        if self._places is not None:
            return int(selection_nile_kernels.select_nile(self.standing, self._admission, self._places, *common))
        if self.plan.method == "naive":
            return int(selection_opponent_kernels.select_naive(self.standing, *common))
        return int(selection_opponent_kernels.select_indexed(self.standing, self._keep, *common))

    def _collect(self, out: st.Selected) -> Selections:
        whole = self.progress.whole
        n = int(whole[st.WRITTEN])
        whole[st.WRITTEN] = 0
        last = out.last[:n].copy() if self._ranges or self._runs else None
        return Selections(out.query[:n].copy(), out.ordinal[:n].copy(), out.at[:n].copy(), last)

    def expand(self, outputs: Selections) -> Selections:
        """The tuples that records stand for; tuples as they are."""
        return outputs if self._places is None else outputs.expand(self._places.order)

    def pairs(self, outputs: Selections) -> Iterator[Selections]:
        """Records of several queries as pairs, about 32,768 at a time; what has none as it is.

        Pairs lie in Arrow's memory, which it keeps for the next block when one is let go: of numpy's, the system clears
        every page again, a tenth of the time of the whole answer.
        """
        last = outputs.last
        if not self._runs or last is None:
            yield outputs
            return
        ends = np.subtract(-1, last)
        np.cumsum(np.maximum(ends, 1, out=ends), out=ends)
        total = int(ends[-1]) if ends.shape[0] else 0
        cuts = np.unique([0, *np.searchsorted(ends, np.arange(_PAIRS, total, _PAIRS)), ends.shape[0]])
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            n = int(ends[end - 1]) - (int(ends[begin - 1]) if begin else 0)
            made = _room_for(n)
            query, ordinal, at = (each[begin:end] for each in (outputs.query, outputs.ordinal, outputs.at))
            expansion_kernels.expand_runs((query, ordinal, at, last[begin:end]), self.index.full, made)
            yield Selections(*made)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the summary and of what queries remember (0 for the opponents)."""
        if self._grid is not None:
            return sum(int(array.nbytes) for array in (*self._grid, *self._detector))
        if self._places is not None:
            return sum(int(array.nbytes) for array in (*self._places, *self._admission))
        return 0

    @property
    def figures(self) -> SelectionFigures:
        """What has been done so far."""
        whole, real = self.progress.whole, self.progress.real
        waiting = int(whole[st.ARRIVED] - whole[st.APPLIED])
        return SelectionFigures(
            arrivals=int(whole[st.ARRIVED]),
            shed=int(whole[st.SHED]) + waiting,
            outputs=int(whole[st.OUTPUTS]),
            records=int(whole[st.RECORDS]),
            evaluated=int(whole[st.EVALUATED]),
            scanned=int(whole[st.SCANNED]),
            regions_read=int(whole[st.READ]),
            regions_visited=int(whole[st.VISITED]),
            regions_undone=int(whole[st.UNDONE]) + int(whole[st.LEFT]),
            rounds=int(whole[st.ROUNDS]),
            lost=int(whole[st.LOST]),
            turned_away=int(whole[st.TURNED]),
            changes=int(whole[st.CHANGES]),
            granted=float(real[st.GRANTED]) / arrays.UNIT,
            spent=float(real[st.SPENT]) / arrays.UNIT,
            spent_summary=float(real[st.SPENT_SUMMARY]) / arrays.UNIT,
            exact_cost=float(self._costs.sum()) / arrays.UNIT,
            ruled_out=self.ruled_out,
        )


def _room_for(n: int) -> tuple[Array, Array, Array]:
    """Query, int32, ordinal and place of n pairs, int64, not filled."""
    words = roomy(5 * n, np.int32)
    return words[4 * n :], words[: 2 * n].view(np.int64), words[2 * n : 4 * n].view(np.int64)
