"""A selection of a live stream: the operator of `nile.operators.selection`, fed as tuples come.

Design.  The kernel is the same (`select_nile`, every output as its tuple is taken in), and so is what it does: one
tuple after another, which no cut into pushes changes.  What a finite run knows of all values beforehand is told of
each tuple as it comes: whether its value satisfies the condition, leaves it open, or rules it out.  These three are the
cells that admission by promise learns about, each one run of values, so that asking at admission is one scan.  Each
arrival grants the budget's share of what the exact answer spends on it, which takes the condition's truth.
Positions are kept from the last slice on that is still needed, so that they stay small for good.
Memory.  A slice of 256 tuples and those that wait: under a share of a core up to 1,024, else one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.common.example import EXAMPLE_ARRIVALS
from nile.operators.common.predicate_index import EDGE, FULL, NONE, PredicateIndex
from nile.operators.drive.live_state import finite
from nile.operators.selection import arrays
from nile.operators.selection import state as st
from nile.operators.selection.data import SelectionInput
from nile.operators.selection.plan import SelectionPlan
from nile.operators.selection.selection import StandingSelections
from nile.preferences.budget import Budget
from nile.pyramid.grid.manager import Memory
from nile.pyramid.grid.spec import SLICE
from nile.summaries.errors import NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.selection import nile_kernels as selection_nile_kernels
else:
    selection_nile_kernels = lazy("nile.operators.selection.nile_kernels")

__all__ = ["Judge", "Judged", "LiveSelection", "SelectedFigures", "SelectedTuples"]

Array = np.ndarray[Any, Any]
_ROOM = 4_096
_POSITIONS = (st.ARRIVED, st.APPLIED, st.ENTRY)
_UNUSED = (st.WRITTEN, st.HELD, st.FLUSHING, st.LEFT, st.TOP)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a condition says of n tuples.

    says: uint8 [n], of each one's value alone (NONE, FULL, EDGE); truth: uint8 [n], of the tuple; magnitude:
    float64 [n], |value|, 0 where it is no finite number.
    """

    says: Array
    truth: Array
    magnitude: Array


Judge = Callable[[pa.StructArray], Judged]
"""Of tuples, by the columns that the condition and the preference read."""


@dataclass(frozen=True, slots=True)
class SelectedFigures:
    """What a standing selection did.  Costs are in units of its cost table; shed: of its one stream.

    turned_away: of those shed, the ones that admission by promise refused.
    """

    arrivals: int
    outputs: int
    shed: tuple[int, ...]
    turned_away: int
    granted: float
    spent: float
    spent_summary: float
    exact_cost: float
    coverage: float = 1.0

    @property
    def admitted(self) -> int:
        """Tuples taken in."""
        return self.arrivals - sum(self.shed)

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of the exact answer's cost."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0


@dataclass(frozen=True, slots=True)
class SelectedTuples:
    """Tuples found, in the order found: int64 [n] ordinals."""

    ordinal: Array

    def __len__(self) -> int:
        return int(self.ordinal.shape[0])

    def first(self, count: int) -> SelectedTuples:
        """The first of them."""
        return SelectedTuples(self.ordinal[:count])

    @property
    def ordinals(self) -> tuple[Array, ...]:
        """Of each stream, here one."""
        return (self.ordinal,)

    @property
    def weight(self) -> Array:
        """1 each: float64 [n]."""
        return np.ones(self.ordinal.shape[0])


class LiveSelection:
    """One plan over one live stream: `push` what has come, `advance`, and get what is found.

    `push` takes the columns that the condition and the preference read as one struct array.  mixed: whether the
    condition reads more than the column that the preference names.
    Raises NotYet for a method other than `nile`, range records, and a replay that is not of a share of a core.
    """

    sampled = False
    """One stream's promising tuples, never a sample."""

    def __init__(self, plan: SelectionPlan, judge: Judge, *, mixed: bool) -> None:
        self.plan = _checked(plan)
        self._judge = judge
        said = [FULL, EDGE, NONE] if mixed else [FULL, NONE]
        self._index = PredicateIndex.of(np.array([said], np.uint8), np.arange(len(said)))
        self._cell = np.full(3, -1, np.int32)
        self._cell[said] = self._index.cell
        nothing = SelectionInput(
            np.zeros(0, np.int64), np.zeros(0, np.int32), np.arange(len(said)), np.array([said], np.uint8),
            np.zeros(len(said)),
        )  # fmt: skip
        self._progress = arrays.progress(self.plan, nothing, self._index)
        self._admission = arrays.admission(nothing, self._index)
        self._places = arrays.places(self.plan, nothing, self._index)
        self._out = arrays.outputs(_ROOM, ranges=False)
        self._mixed = mixed
        self._base = 0
        self._ts = np.zeros(0, np.int64)
        self._says = np.zeros(0, np.uint8)
        self._truth = np.zeros(0, np.uint8)
        self._magnitude = np.zeros(0)
        self._grant = np.zeros(0)
        self._fed = 0
        self._cost = 0.0
        self._matches = 0

    @property
    def arrivals(self) -> int:
        """Tuples pushed."""
        return self._base + int(self._ts.shape[0])

    @property
    def fed(self) -> int:
        """Arrivals it has gone on to."""
        return self._fed

    @property
    def spent(self) -> float:
        """Spent so far, in units of the cost table."""
        return float(self._progress.real[st.SPENT]) / arrays.UNIT

    @property
    def credit(self) -> float:
        """Granted and not yet spent, in units of the cost table."""
        return float(self._progress.real[st.CREDIT]) / arrays.UNIT

    def example(self) -> StandingSelections:
        """One of the same plan over a small input, whose run loads every kernel that this one's will."""
        n = EXAMPLE_ARRIVALS
        return StandingSelections(
            self.plan,
            SelectionInput(
                np.arange(n, dtype=np.int64), (np.arange(n) % 2).astype(np.int32), np.arange(2),
                np.array([[FULL, NONE]], np.uint8), np.ones(2),
            ),
        )  # fmt: skip

    def push(self, ts: tuple[Array, ...], keys: tuple[pa.Array, ...]) -> None:
        """Tuples whose turn has come.  ts: int64 [n] ns, not decreasing, none before what was pushed; keys: structs."""
        (times,), (rows,) = ts, keys
        judged, plan = self._judge(rows), self.plan
        output = plan.costs.emit + (plan.costs.scan if plan.window is not None else 0.0)
        costs = np.rint(arrays.UNIT * (plan.costs.insert + plan.costs.scan + output * judged.truth.astype(np.float64)))
        self._cost += float(costs.sum())
        self._matches += int(judged.truth.sum())
        self._ts = np.concatenate([self._ts, times])
        self._says = np.concatenate([self._says, judged.says])
        self._truth = np.concatenate([self._truth, judged.truth])
        self._magnitude = np.concatenate([self._magnitude, judged.magnitude])
        self._grant = np.concatenate([self._grant, plan.fraction * costs])

    @property
    def to_come(self) -> float:
        """What arrivals that it has not gone on to will grant, in units of the cost table."""
        return float(self._grant[self._fed - self._base :].sum()) / arrays.UNIT

    def take_back(self, units: float) -> None:
        """So much less credit; below 0: more."""
        self._progress.real[st.CREDIT] -= arrays.UNIT * units

    def afford(self, end: int, share: float, planned: float) -> None:  # noqa: ARG002
        """Those up to `end` grant a share of it (`nile.operators.common.contract`)."""
        self._grant[self._fed - self._base : end - self._base] *= share

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[SelectedTuples]:
        """Go on to arrival `end`; credit: in place of the plan's budget (`nile.operators.common.contract`)."""
        real, whole = self._progress.real, self._progress.whole
        if credit is not None:
            arrivals = end - self._fed
            self._grant[self._fed - self._base : end - self._base] = arrays.UNIT * credit / max(1, arrivals)
            if not arrivals:
                real[st.CREDIT] += arrays.UNIT * credit
                real[st.GRANTED] += arrays.UNIT * credit
        self._fed = end
        standing, admission = self._standing(), self._admission._replace(magnitude=self._magnitude)
        while True:
            needed = selection_nile_kernels.select_nile(
                standing, admission, self._places, self._grant, end - self._base, self._progress, self._out
            )
            if found := int(whole[st.WRITTEN]):
                whole[st.WRITTEN] = 0
                yield SelectedTuples(self._out.ordinal[:found] + self._base)
            if needed == 0:
                return

    def _standing(self) -> st.Standing:
        n, index = self._ts.shape[0], self._index
        return st.Standing(
            ts=self._ts,
            code=np.arange(n, dtype=np.int32),
            says=self._says[None, :],
            verdict=self._truth[None, :] if self._mixed else np.zeros((0, 0), np.uint8),
            verdict_row=np.zeros(1, np.int32) if self._mixed else np.full(1, -1, np.int32),
            seen=np.zeros(n, np.uint8),
            cell=self._cell[self._says],
            full_from=index.full_from,
            full=index.full,
            edge_from=index.edge_from,
            edge=index.edge,
            ruled_out=np.zeros(0, np.uint8),
        )

    def let_go(self) -> None:
        """All that was pushed has been advanced to: forget slices that are not needed any more."""
        self._rebase(self._first_needed // SLICE * SLICE)

    def _rebase(self, base: int) -> None:
        gone = base - self._base
        for name in ("_ts", "_says", "_truth", "_magnitude", "_grant"):
            setattr(self, name, getattr(self, name)[gone:])
        whole = self._progress.whole
        whole[list(_POSITIONS)] -= gone
        whole[st.EXPLORE_AT] -= gone // SLICE
        self._progress.real[st.ARRIVED_BEFORE] -= gone
        self._base = base

    @property
    def _first_needed(self) -> int:
        whole = self._progress.whole
        return self._base + int(whole[st.ENTRY] if whole[st.ACTIVE] else whole[st.APPLIED])

    def needed_from(self) -> tuple[int, ...]:
        """The first ordinal that may still be found."""
        return (self._first_needed,)

    @property
    def tuples(self) -> Array:
        """Tuples that have come: int64 [1]."""
        return np.array([self.arrivals])

    @property
    def last(self) -> int | None:
        """ts of the newest tuple, ns; None where none is held."""
        return int(self._ts[-1]) if self._ts.shape[0] else None

    @property
    def memory(self) -> Memory:
        """Bytes held."""
        held = (self._ts, self._says, self._truth, self._magnitude, self._grant)
        return Memory(sum(each.nbytes for each in self._admission), 0, sum(each.nbytes for each in held))

    @property
    def estimate(self) -> Estimate:
        """How many tuples the exact answer has so far, which granting counts."""
        return Estimate.exact(float(self._matches))

    @property
    def figures(self) -> SelectedFigures:
        """What has been done so far."""
        whole, real = self._progress.whole, self._progress.real
        waiting = int(whole[st.ARRIVED] - whole[st.APPLIED])
        return SelectedFigures(
            arrivals=self._base + int(whole[st.ARRIVED]),
            outputs=int(whole[st.OUTPUTS]),
            shed=(int(whole[st.SHED]) + waiting,),
            turned_away=int(whole[st.TURNED]),
            granted=float(real[st.GRANTED]) / arrays.UNIT,
            spent=float(real[st.SPENT]) / arrays.UNIT,
            spent_summary=float(real[st.SPENT_SUMMARY]) / arrays.UNIT,
            exact_cost=self._cost / arrays.UNIT,
        )

    def capture(self) -> State:
        """What it holds, with positions counted from the beginning."""
        whole, real = self._progress.whole.copy(), self._progress.real.copy()
        whole[list(_POSITIONS)] += self._base
        if not whole[st.ACTIVE]:
            whole[st.ENTRY] = whole[st.ENTRY_AT] = 0
        whole[st.EXPLORE_AT] += self._base // SLICE
        real[st.ARRIVED_BEFORE] += self._base
        held, admission = slice(self._first_needed - self._base, None), self._admission
        return {
            "setting": self._progress.setting.copy(), "whole": whole, "real": real,
            "cost": np.array([self._cost]), "matches": self._matches,
            "wanted": admission.wanted.copy(), "counts": admission.counts.copy(), "weight": admission.weight.copy(),
            "ts": self._ts[held].copy(), "says": self._says[held].copy(), "truth": self._truth[held].copy(),
            "magnitude": self._magnitude[held].copy(),
        }  # fmt: skip

    def restore(self, held: Held, keys: tuple[pa.Array, ...]) -> None:
        """Be where the operator was that gave the state; keys: of the tuples it needed.  Raises EnvelopeError."""
        progress, admission, cells = self._progress, self._admission, self._index.cells
        if not np.array_equal(held.array("setting", "int64", progress.setting.shape), progress.setting):
            held.refuse("the setting of this query", "another")
        whole = held.counts("whole", progress.whole.shape[0]).copy()
        real = finite(held, "real", progress.real.shape)
        ts = held.rising("ts", len(keys[0]))
        n = ts.shape[0]
        says, truth = held.array("says", "uint8", (n,)), held.array("truth", "uint8", (n,))
        magnitude = finite(held, "magnitude", (n,))
        arrived, applied = int(whole[st.ARRIVED]), int(whole[st.APPLIED])
        first = int(whole[st.ENTRY]) if whole[st.ACTIVE] else applied
        fits = whole.max() <= MOST and n == arrived - first and first <= applied <= arrived and whole[st.ACTIVE] <= 1
        fits = fits and not whole[list(_UNUSED)].any() and (not whole[st.ACTIVE] or first < applied)
        fits = fits and whole[st.ENTRY_AT] <= 1 and whole[st.EXPLORE_GAP] > 0
        fits = fits and says.max(initial=0) <= EDGE and (self._cell[says] >= 0).all() and truth.max(initial=0) <= 1
        if not fits:
            held.refuse("positions that agree with the tuples held", "others")
        wanted = held.array("wanted", "uint8", (cells,))
        if wanted.max() > 1:
            held.refuse("cells that are wanted or not", "others")
        base = first // SLICE * SLICE
        gone = first - base
        self._ts = np.concatenate([np.full(gone, ts[0] if n else 0), ts])
        self._says, self._truth = (np.concatenate([np.zeros(gone, np.uint8), each]) for each in (says, truth))
        self._says[:gone] = NONE
        self._magnitude, self._grant = np.concatenate([np.zeros(gone), magnitude]), np.zeros(gone + n)
        progress.whole[:], progress.real[:] = whole, real
        progress.whole[list(_POSITIONS)] -= base
        progress.whole[st.EXPLORE_AT] -= base // SLICE
        progress.real[st.ARRIVED_BEFORE] -= base
        self._base, self._fed = base, arrived
        admission.wanted[:] = wanted
        admission.counts[:], admission.weight[:] = (finite(held, name, (cells,)) for name in ("counts", "weight"))
        self._cost, self._matches = float(finite(held, "cost", (1,))[0]), held.integer("matches", 0, MOST)


def _checked(plan: SelectionPlan) -> SelectionPlan:
    """The plan, without a budget one of everything.  Raises NotYet for one that has no form over live streams."""
    if plan.method != "nile" or plan.output != "pairs":
        raise NotYet(
            f"standing selection: needed method 'nile' and output 'pairs'; got {plan.method!r} and {plan.output!r}, "
            "which have no form over live streams yet; leave them out, or ask sql() over what is kept"
        )
    if plan.pace.is_replay and (plan.budget is None or plan.budget.share is None):
        raise NotYet(
            "standing selection: needed tuples at their own pace; got a replay, which needs the whole input; leave "
            "replay out"
        )
    return plan if plan.budget is not None else replace(plan, budget=Budget(fraction=1.0))
