"""As many combinations of n streams as are asked for, drawn from all: all are counted before any is made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.multiway.exact import ExactCombinations
from nile.operators.multiway.outputs import Combinations

__all__ = ["DrawnCombinations", "draws_outputs"]

Array = np.ndarray[Any, Any]


def draws_outputs(plan: JoinPlan) -> bool:
    """Whether a plan asks for a sample of so many outputs, in a way that counting can tell: not of records, nor where
    forgetting leaves fewer than there are.  Streams that are played back are counted at the times of that."""
    return (
        plan.budget.unit == "outputs"
        and plan.preferred
        and plan.preference == "weighted"
        and plan.method == "nile"
        and plan.strategy == ""
        and plan.output == "pairs"
        and not (plan.spec.forgetting or plan.blind)
    )


class DrawnCombinations(ExactCombinations):
    """One run of a JoinPlan over n streams for a sample of `budget.outputs` of them (`draws_outputs`).

    Every set of so many outputs is as likely; each weighs as many as there are over as many as are drawn, so weights
    add up to how many there are.  They come in the order in which they complete.  Under a condition over several
    streams, or windows between pairs, every candidate is looked at.  Cost: the exact count, and the combinations of
    the arrivals that complete a drawn one.  Memory: 16 bytes a tuple and stream, and 8 a tuple and an output drawn.
    """

    @cached_property
    def whole(self) -> int:
        """How many outputs the exact answer has."""
        return int(self._joined.passing.sum())

    def run(self) -> Iterator[Combinations]:
        """The combinations, in batches of up to 65,536."""
        passing, whole = self._joined.passing, self.whole
        outputs = self.plan.budget.outputs
        assert outputs is not None
        size = min(outputs, whole)
        rng = np.random.Generator(np.random.PCG64([self.plan.seed & 0xFFFFFFFF, 5]))
        drawn = np.sort(rng.choice(whole, size, replace=False)) if size else np.zeros(0, np.int64)
        ends, test, weight = np.cumsum(passing), self._joined.passes, whole / max(1, size)
        last = np.searchsorted(ends, drawn, side="right")
        at = np.unique(last)
        before = np.cumsum(passing[at]) - passing[at]  # outputs of those that are made again
        wanted = drawn - (ends - passing)[last] + before[np.searchsorted(at, last)]
        self._candidates = int(self._joined.exact.completed.sum()) if test is not None else 0
        begin = 0
        for _, members in self._joined.exact.members(arrivals=at):
            made = members if test is None else members[test(members)]
            here = wanted[np.searchsorted(wanted, begin) : np.searchsorted(wanted, begin + made.shape[0])]
            begin += made.shape[0]
            self._outputs += here.shape[0]
            if here.shape[0]:
                kept = made[here - (begin - made.shape[0])]
                yield Combinations(weight=np.full(kept.shape[0], weight), members=kept)
