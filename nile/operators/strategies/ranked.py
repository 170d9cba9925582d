"""The most promising pairs of two streams, best first: every tuple's matches are counted, only pairs asked for made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.common.data import Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.join.chain_join import CERTAIN, Joined, Unsampled
from nile.operators.multiway.drawn import draws_outputs
from nile.operators.strategies.counted import CountedJoin, counted_shared
from nile.preferences.clock import exact_costs
from nile.pyramid.grid.manager import Memory

__all__ = ["RankedJoin", "best_found", "can_rank", "first_told", "is_outlier_join", "is_ranked_join"]

Array = np.ndarray[Any, Any]


def can_rank(plan: JoinPlan) -> bool:
    """Whether a plan asks for its first outputs, or all in order, by desc or asc, in a way that counting can tell.

    Not with a fade factor, a replay or forgetting, which make a match worth less than a count says.
    """
    return (
        (plan.first is not None or plan.ordered)
        and plan.preferred
        and plan.method == "nile"
        and plan.strategy in ("", "auto", "counts")
        and plan.preference in ("desc", "asc")
        and plan.output == "pairs"
        and plan.fade.factor == 1.0
        and plan.budget.unit in ("fraction", "outputs")
        and not (plan.pace.is_replay or plan.spec.forgetting or plan.blind)
    )


def is_ranked_join(plan: JoinPlan, joined: Joined) -> bool:
    """Whether the budget buys a look at every tuple and the pairs asked for (`can_rank`), so that they are certain."""
    if not can_rank(plan):
        return False
    if plan.fraction >= 1.0:  # of outputs too: the plan's first is no more than the budget
        return True
    if plan.first is None:
        return False
    exact, costs = joined.exact, plan.costs
    tuples = exact.left_ts.shape[0] + exact.right_ts.shape[0]
    made = min(plan.first, int(joined.matches.sum()))
    granted = plan.fraction * float(joined.costs(costs, ranges=False).sum())
    spent = (costs.insert + costs.lookup) * tuples + costs.emit * made
    return bool(spent <= granted)


def is_outlier_join(plan: JoinPlan) -> bool:
    """Whether a plan asks for every pair of an outlier, as they complete: none is found but by counting."""
    asked = plan.preferred and plan.preference == "asc" and plan.strategy == ""
    return asked and plan.is_exact and plan.output == "pairs"


def first_told(plan: JoinPlan, *, pair: bool) -> str | None:
    """What EXPLAIN says of the outputs that come first; None: a whole answer in no order.  pair: of two streams."""
    what, made = (
        ("pairs", "are counted, only these are made") if pair else ("combinations", "matches are counted first")
    )
    if not pair and draws_outputs(plan):
        return f"{plan.budget}: all combinations are counted, and so many drawn evenly"
    order = "fewest tuples of its key" if plan.preference == "asc" else "most matches"
    whole = plan.fraction >= 1.0
    if plan.first is None:
        if plan.ordered and plan.fade.factor < 1.0:
            return "all, as they are found: a fade factor orders the work inside a budget, not the whole answer"
        return f"all, {what} of the tuple with the {order} first" if can_rank(plan) and whole else None
    if not can_rank(plan) or not (pair or whole):
        return f"the first {plan.first:,}: as they are found"
    told = f"the first {plan.first:,}: {what} of the tuple with the {order} first; all {made}"
    return told if whole else f"{told}, where the budget allows"


class RankedJoin(Unsampled):
    """One run of a JoinPlan that asks for its first pairs, or for all in order (`is_ranked_join`), or for all outliers.

    All outliers, where no order is asked for (`is_outlier_join`), come as they complete.
    A pair is as promising as the tuple that completes it.  desc: by how many pairs that tuple completes, most first;
    asc: pairs of outliers (`outlier_cap`) alone, by how many tuples of the key stand in both windows, fewest first.
    Of equals the tuple that came first, and of one tuple its newest partner first.  Cost: O(tuples) to count, then
    O(pairs).  Memory: about 50 bytes per tuple.
    """

    @cached_property
    def _counted(self) -> CountedJoin:
        return counted_shared(self._joined) if self.plan.preference == "asc" else CountedJoin(self._joined.exact)

    @cached_property
    def _arrivals(self) -> Array:
        """The arrivals that complete the pairs asked for, best first: int64 [m], m at most the pairs."""
        joined, first = self._counted, self.plan.first
        promising = joined.matches > 0
        if self.plan.preference == "asc":
            promising &= joined.standing <= self.plan.outlier_cap
        at = np.flatnonzero(promising)
        if not can_rank(self.plan):
            return at
        promise = -joined.standing[at] if self.plan.preference == "asc" else joined.matches[at]
        if first is not None and at.shape[0] > first:  # each completes a pair at least
            least = -np.partition(-promise, first - 1)[first - 1]
            kept = np.flatnonzero(promise > least)
            kept = np.sort(np.concatenate([kept, np.flatnonzero(promise == least)[: first - kept.shape[0]]]))
            at, promise = at[kept], promise[kept]
        at = at[np.argsort(_narrow(promise.max(initial=0) - promise), kind="stable")]
        if first is not None:
            at = at[: int(np.searchsorted(np.cumsum(joined.matches[at]), first)) + 1]
        return at

    @property
    def outputs(self) -> int:
        """How many pairs there will be."""
        found = int(self._counted.matches[self._arrivals].sum())
        return found if self.plan.first is None else min(found, self.plan.first)

    @property
    def whole(self) -> int:
        """How many pairs the exact answer has."""
        matches = self._counted.matches
        if self.plan.preference == "asc":
            matches = matches[self._counted.standing <= self.plan.outlier_cap]
        return int(matches.sum())

    def run(self) -> Iterator[Outputs]:
        """The pairs, in batches of up to 65,536."""
        for left, right in self._counted.written(self._arrivals, self.outputs):
            yield Outputs(left=left, right=right, weight=CERTAIN[: left.shape[0]])

    @property
    def memory(self) -> Memory:
        """Bytes of counts, and of lists by key."""
        return Memory(sketches=0, directory=0, tuples=self._counted.nbytes)

    @property
    def figures(self) -> JoinFigures:
        """What the whole run does, at the plan's prices: every tuple is inserted and looked up, few pairs are made."""
        matches, arrivals = self._counted.matches, self._joined.left.ts.shape[0] + self._joined.right.ts.shape[0]
        # Tuples that were sifted out before any was counted have no match.
        every = np.concatenate([matches, np.zeros(arrivals - matches.shape[0], matches.dtype)])
        cost = float(np.rint(UNIT * exact_costs(every, self.plan.costs, ranges=False)).sum())
        regions = int(self._arrivals.shape[0])
        # As the plain probe tells it: where all outliers are asked for, what is none was never a choice.
        pruned = int(np.count_nonzero(matches)) - regions if can_rank(self.plan) else 0
        return self._figures_of(arrivals, self.outputs, regions, pruned, cost)


def _narrow(ranks: Array) -> Array:
    """Ranks from 0 on in as few bytes as hold them: up to two are sorted by their digits, in a few passes."""
    return ranks.astype(np.uint16) if ranks.max(initial=0) < 1 << 16 else ranks


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
