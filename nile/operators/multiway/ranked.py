"""The most promising combinations of n streams, best first: every arrival's are counted before any is made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.multiway.exact import ExactCombinations
from nile.operators.multiway.outputs import Combinations

__all__ = ["RankedCombinations", "best_combinations"]

Array = np.ndarray[Any, Any]
_LOOK = 1 << 20


class RankedCombinations(ExactCombinations):
    """One run of a JoinPlan over n streams that asks for its first outputs, or for all in order.

    As of pairs (`RankedJoin`): desc by how many combinations the arrival that completes one completes, asc by how
    many tuples of its key stand in the window, of outliers alone; of equals the earlier arrival.  Under a condition
    over several streams, or windows between pairs, candidates are looked at from the arrivals with most of them on,
    and no further than until those asked for are certain.  Memory: 16 bytes a tuple and stream, and 50 a tuple.
    """

    @cached_property
    def _promise(self) -> Array:
        """What each arrival promises before a condition is looked at: int64 [N], below 0 where it has no output."""
        exact = self._joined.exact
        if self.plan.preference == "asc":
            outlying = (exact.completed > 0) & (exact.standing <= self.plan.outlier_cap)
            return np.where(outlying, np.int64(self.plan.outlier_cap) - exact.standing, np.int64(-1))
        return np.where(exact.completed > 0, exact.completed, np.int64(-1))

    @property
    def whole(self) -> int | None:
        """How many outputs the exact answer has; None where a condition has to be looked at for it."""
        if self._joined.passes is not None:
            return None
        return int(self._joined.exact.completed[self._promise >= 0].sum())

    def run(self) -> Iterator[Combinations]:
        """The combinations, in batches of up to 65,536."""
        test, room = self._joined.passes, self.plan.first
        best = self._best
        for _, members in self._joined.exact.members(arrivals=best):
            self._candidates += members.shape[0] if test is None or self.plan.preference == "asc" else 0
            kept = members if test is None else members[test(members)]
            kept = kept if room is None else kept[:room]
            self._outputs += kept.shape[0]
            if kept.shape[0]:
                yield Combinations(weight=np.ones(kept.shape[0]), members=kept)
            if room is not None:
                room -= kept.shape[0]
                if not room:
                    return

    @property
    def _best(self) -> Array:
        """Arrivals that complete outputs, the most promising first: int64 [m], as many as are needed."""
        at = np.flatnonzero(self._promise >= 0)
        at = at[np.argsort(-self._promise[at], kind="stable")]
        if self._joined.passes is None or self.plan.preference == "asc":
            return at  # asc ranks by tuples that stand, whatever a condition leaves
        found = self._counted(at)
        at = np.sort(at[: found.shape[0]][found > 0])
        passing = np.zeros(self._promise.shape[0], np.int64)
        passing[self._seen] = found
        return at[np.argsort(-passing[at], kind="stable")]

    def _counted(self, at: Array) -> Array:
        """Outputs that each of the first arrivals of `at` completes: int64 [m].

        As many as are needed: none of the others completes more than it has candidates.
        """
        exact, test, first = self._joined.exact, self._joined.passes, self.plan.first
        assert test is not None
        candidates = exact.completed[at]
        ends, passing, begin = np.cumsum(candidates), np.zeros(exact.times.shape[0], np.int64), 0
        while begin < at.shape[0]:
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _LOOK, side="right")))
            for last, members in exact.members(arrivals=at[begin:end]):
                self._candidates += members.shape[0]
                passing += np.bincount(last[test(members)], minlength=passing.shape[0])
            begin = end
            if first is not None and begin < at.shape[0]:
                seen = passing[at[:begin]]
                if int(seen[seen > candidates[begin]].sum()) >= first:
                    break
        self._seen = at[:begin]
        return passing[self._seen]


def best_combinations(parts: list[Combinations], first: int) -> Combinations:
    """Of combinations that a run under a budget found, the first by desc: those of the arrival that completed most."""
    members = np.concatenate([part.members for part in parts if part.members is not None])
    weight = np.concatenate([part.weight for part in parts])
    completed = members.max(axis=1)
    found = np.bincount(completed)[completed]
    best = np.lexsort((completed, -found))[:first]
    return Combinations(weight=weight[best], members=members[best])
