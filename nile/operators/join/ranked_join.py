"""The most promising pairs of two streams, best first: every tuple's matches are counted, few are made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from nile.exact.join.chain import ExactJoin
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.pyramid.grid.manager import Memory
from nile.summaries.costs import CostTable

__all__ = ["RankedJoin", "best_found", "can_rank", "is_ranked_join"]

Array = np.ndarray[Any, Any]
_CHUNK = 65_536


class Counted(Protocol):
    """Two streams, as `nile.operators.inputs.joining` has read them."""

    @property
    def exact(self) -> ExactJoin:
        """Their exact join."""

    @property
    def order(self) -> Array:
        """The stream of each arrival in total order: int8 [n]."""

    @property
    def matches(self) -> Array:
        """Pairs that each arrival completes: int64 [n]."""

    @property
    def standing(self) -> Array:
        """Tuples of each arrival's key in both windows, itself included: int64 [n]."""

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival: float64 [n]."""

    def input(self, costs: CostTable, *, ranges: bool) -> JoinInput:
        """Both streams as an operator takes them."""


def can_rank(plan: JoinPlan) -> bool:
    """Whether a plan asks for its first pairs by desc or asc, in a way that counting can tell.

    Not with a fade factor, a replay or forgetting, which make a match worth less than a count says.
    """
    return (
        plan.first is not None
        and plan.preferred
        and plan.method == "nile"
        and plan.strategy in ("", "auto", "counts")
        and plan.preference in ("desc", "asc")
        and plan.output == "pairs"
        and plan.fade.factor == 1.0
        and plan.budget.unit in ("fraction", "outputs")
        and not (plan.pace.is_replay or plan.spec.forgetting or plan.blind)
    )


def is_ranked_join(plan: JoinPlan, joined: Counted) -> bool:
    """Whether the budget buys a look at every tuple and the pairs asked for (`can_rank`), so that they are certain."""
    if not can_rank(plan):
        return False
    if plan.fraction >= 1.0:  # of outputs too: the plan's first is no more than the budget
        return True
    assert plan.first is not None
    exact, costs = joined.exact, plan.costs
    tuples = exact.left_ts.shape[0] + exact.right_ts.shape[0]
    made = min(plan.first, int(joined.matches.sum()))
    granted = plan.fraction * float(joined.costs(costs, ranges=False).sum())
    spent = (costs.insert + costs.lookup) * tuples + costs.emit * made
    return bool(spent <= granted)


class RankedJoin:
    """One run of a JoinPlan that asks for its first pairs (`is_ranked_join`).

    A pair is as promising as the tuple that completes it.  desc: by how many pairs that tuple completes, most first;
    asc: pairs of outliers (`outlier_cap`) alone, by how many tuples of the key stand in both windows, fewest first.
    Of equals the tuple that came first, and of one tuple its newest partner first.  Cost: O(tuples) to count, then
    O(tuples of the keys in question + pairs).  Memory: about 50 bytes per tuple.
    """

    def __init__(self, plan: JoinPlan, joined: Counted) -> None:
        self.plan = plan
        self._joined = joined

    @cached_property
    def _arrivals(self) -> Array:
        """The arrivals that complete the pairs asked for, best first: int64 [m], m at most the pairs."""
        joined, first = self._joined, self.plan.first
        promising = joined.matches > 0
        if self.plan.preference == "asc":
            promising &= joined.standing <= self.plan.outlier_cap
        at = np.flatnonzero(promising)
        promise = -joined.standing[at] if self.plan.preference == "asc" else joined.matches[at]
        if first is not None and at.shape[0] > first:  # each completes a pair at least
            least = -np.partition(-promise, first - 1)[first - 1]
            kept = np.flatnonzero(promise > least)
            kept = np.sort(np.concatenate([kept, np.flatnonzero(promise == least)[: first - kept.shape[0]]]))
            at, promise = at[kept], promise[kept]
        at = at[np.argsort(-promise, kind="stable")]
        if first is not None:
            at = at[: int(np.searchsorted(np.cumsum(joined.matches[at]), first)) + 1]
        return at

    @property
    def outputs(self) -> int:
        """How many pairs there will be."""
        found = int(self._joined.matches[self._arrivals].sum())
        return found if self.plan.first is None else min(found, self.plan.first)

    @property
    def whole(self) -> int:
        """How many pairs the exact answer has."""
        matches = self._joined.matches
        if self.plan.preference == "asc":
            matches = matches[self._joined.standing <= self.plan.outlier_cap]
        return int(matches.sum())

    def run(self) -> Iterator[Outputs]:
        """The pairs, in batches of up to 65,536."""
        exact, at = self._joined.exact, self._arrivals
        codes = (exact.left_code, exact.right_code)
        side, own, before = self._placed(at)
        key = np.where(side == 0, codes[0][np.where(side == 0, own, 0)], codes[1][np.where(side == 1, own, 0)])
        wanted = np.zeros(exact.keys + 1, np.bool_)  # its last place is that of nulls, whose code is -1
        wanted[key] = True
        lists = [_by_key(each, wanted) for each in codes]
        end = np.empty(at.shape[0], np.int64)
        for mine in (0, 1):
            partners = codes[1 - mine]
            rows = side == mine
            listed = partners[lists[1 - mine]] * partners.shape[0] + lists[1 - mine]
            end[rows] = np.searchsorted(listed, key[rows] * partners.shape[0] + before[rows])
        ends = np.cumsum(self._joined.matches[at])
        for begin in range(0, self.outputs, _CHUNK):
            number = np.arange(begin, min(begin + _CHUNK, self.outputs))
            row = np.searchsorted(ends, number, side="right")
            place = end[row] - 1 - (number - (ends[row] - self._joined.matches[at[row]]))
            left, right = np.empty(number.shape[0], np.int64), np.empty(number.shape[0], np.int64)
            for mine, probing, partner in ((0, left, right), (1, right, left)):
                rows = side[row] == mine
                probing[rows] = own[row[rows]]
                partner[rows] = lists[1 - mine][place[rows]]
            yield Outputs(left=left, right=right, weight=np.ones(number.shape[0]))

    def _placed(self, at: Array) -> tuple[Array, Array, Array]:
        """(stream, ordinal, how many tuples of the other stream came before) of arrivals."""
        order = self._joined.order
        right = np.cumsum(order, dtype=np.int64)[at]  # with itself
        side = order[at].astype(np.int64)
        own = np.where(side == 1, right - 1, at - right)
        return side, own, at - own

    def expand(self, outputs: Outputs) -> Outputs:
        """The pairs as they are."""
        return outputs

    @cached_property
    def data(self) -> JoinInput:
        """Both streams, encoded, merged and priced, as operators that summarise take them.  O(tuples)."""
        return self._joined.input(self.plan.costs, ranges=False)

    @property
    def shed(self) -> tuple[int, int]:
        """No tuple is turned away."""
        return 0, 0

    @property
    def coverage(self) -> float:
        """Nothing is forgotten."""
        return 1.0

    @property
    def memory(self) -> Memory:
        """Bytes of counts, two for each arrival, and of the lists of the keys in question at their longest."""
        return Memory(sketches=0, directory=0, tuples=24 * int(self._joined.order.shape[0]))

    @property
    def figures(self) -> JoinFigures:
        """What the whole run does, at the plan's prices: every tuple is inserted and looked up, few pairs are made."""
        joined, costs = self._joined, self.plan.costs
        arrivals = int(joined.order.shape[0])
        nulls = int(np.count_nonzero(joined.exact.left_code < 0) + np.count_nonzero(joined.exact.right_code < 0))
        insert, lookup, emit = (float(np.rint(UNIT * price)) for price in (costs.insert, costs.lookup, costs.emit))
        inserting = insert * (arrivals - nulls)
        hitting = lookup * (arrivals - nulls) + emit * self.outputs
        cost = float(np.rint(UNIT * joined.costs(costs, ranges=False)).sum())
        return JoinFigures(
            arrivals=arrivals,
            nulls=nulls,
            admitted=arrivals - nulls,
            shed=self.shed,
            outputs=self.outputs,
            regions=int(self._arrivals.shape[0]),
            pruned=int(np.count_nonzero(joined.matches)) - int(self._arrivals.shape[0]),
            zones=0,
            changes=0,
            expired=0,
            evicted=0,
            granted=self.plan.fraction * cost / UNIT,
            spent=(inserting + hitting) / UNIT,
            spent_insert=inserting / UNIT,
            spent_hit=hitting / UNIT,
            exact_cost=cost / UNIT,
            coverage=self.coverage,
            forgotten=0,
            admission=1.0,
            sampling_rate=1.0,
        )


def _by_key(codes: Array, wanted: Array) -> Array:
    """Places of the wanted keys' tuples, key by key in order of arrival: int64 [m]."""
    at = np.flatnonzero(wanted[codes])
    return at[np.argsort(codes[at], kind="stable")]


def best_found(parts: list[Outputs], order: Array, first: int) -> Outputs:
    """Of pairs that a run under a budget found, the first by desc: those of the tuple that completed most of them.

    order: the stream of each arrival.  Of equals the tuple that came first, and of one tuple in the order found.
    """
    left, right = (np.concatenate([np.zeros(0, np.int64), *(part.ordinals[k] for part in parts)]) for k in (0, 1))
    weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
    completed = np.maximum(np.flatnonzero(order == 0)[left], np.flatnonzero(order == 1)[right])
    found = np.bincount(completed, minlength=order.shape[0])[completed]
    best = np.lexsort((completed, -found))[:first]
    return Outputs(left=left[best], right=right[best], weight=weight[best])
