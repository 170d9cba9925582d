"""Which parts of the key space come in, the best first, some at a time: by the look, or by counts of all tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.strategies.admitted import Admission
from nile.operators.strategies.forecast import Work, best_keys
from nile.operators.strategies.looking import Look
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import strategy_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.strategy_kernels")

__all__ = ["Kinds", "Slots", "few_around"]

Array = np.ndarray[Any, Any]


class Kinds:
    """All tuples of two streams counted by the slot of their key, in kinds of slots that are alike, the best first.

    bits: the binary logarithm of how many slots there are.  Cost: `Work.recounting`, once text is hashed.
    """

    def __init__(self, look: Look, cap: int) -> None:
        """cap: of outliers, which are wanted alone; 0: every pair is."""
        seen, self.bits = look.counted()
        self._kinds = np.empty(seen.shape[1], np.uint16)
        number, tuples = np.zeros(kernels.BINS**2, np.int64), np.zeros((2, kernels.BINS**2), np.int64)
        kernels.kinds_of(seen, self._kinds, number, tuples)
        some = np.flatnonzero(number)
        left, right = tuples[:, some] / number[some]
        if cap:
            wanted = look.alike * left * right * few_around(left + right, look.alike, cap)
        else:  # but for what others make that share its slot, where most do
            others = min(1.0, max(0.0, look.distinct / seen.shape[1] - 0.5)) * tuples.sum(axis=1) / seen.shape[1]
            wanted = look.alike * np.maximum(0.0, left - others[0]) * np.maximum(0.0, right - others[1])
            every = look.alike * left * right
            rest = max(0.0, look.pairs - float(number[some] @ wanted))  # those of keys that are like the others
            wanted += every * min(1.0, rest / max(1.0, float(number[some] @ every)))
        best = np.flatnonzero(left * right)
        best = best[np.argsort(-wanted[best] / (left + right)[best], kind="stable")]
        self._number, self._tuples, self._wanted = number[some][best], (left + right)[best], wanted[best]
        self._rank = np.full(number.shape[0], -1, np.int32)
        self._rank[some[best]] = np.arange(best.shape[0])
        self._done = np.zeros(2, np.int64)

    def best(self, work: Work, room: float, *, counting: bool = False) -> Admission:
        """As many slots as the room pays for, in ns, the best first that were not taken before; as of `best_keys`."""
        begin, number = self._done, self._number.copy()
        number[: begin[0]] = 0
        number[begin[0] : begin[0] + 1] -= begin[1]
        whole = float(number @ self._tuples) * work.taking(1.0, counting=counting)
        price = work.taking(min(1.0, max(0.0, room) / max(1.0, whole)), counting=counting)
        emit = work.outlier if counting else work.keyed
        taking, written = price * self._tuples, emit * self._wanted
        ends = np.cumsum(number * (taking + written))
        at = int(np.searchsorted(ends, room, side="right"))
        stratum, one = np.zeros(self._kinds.shape[0], np.uint8), np.ones(2)
        cost = expected = 0.0
        if room > 0.0 and ends.shape[0]:
            cost, expected = (float(ends[at - 1]) if at else 0.0), float(number[:at] @ self._wanted[:at])
            end = np.array([at, 0])
            if at < ends.shape[0]:  # of the next kind some; the last of them may have more pairs than are paid for
                end[1] = some = min(int(number[at]), int((room - cost) / (taking[at] + written[at])) + 1)
                paid = room - cost - some * taking[at]
                if paid <= 0.0:
                    end[1] = some = some - 1
                    paid = room - cost - some * taking[at]
                pairs = min(some * self._wanted[at], max(0.0, paid) / emit)
                cost, expected = min(room, cost + some * taking[at] + pairs * emit), expected + pairs
                if at == begin[0]:
                    end[1] += begin[1]
            kernels.take_kinds(self._kinds, self._rank, begin, end, stratum)
            self._done = end
        return Admission(stratum, np.array([0.0, 1.0]), one, one, cost, expected)


class Slots:
    """The slots of a look, the best first, of which some are taken at a time.  weighed: as of `best_keys`."""

    bits = None
    """Those of the look."""

    def __init__(self, weighed: tuple[Array, Array, Array]) -> None:
        self._weighed = weighed
        self._done = np.zeros(weighed[0].shape[0], np.bool_)

    def best(self, work: Work, room: float, *, counting: bool = False) -> Admission:
        """As of `Kinds`."""
        found = best_keys(self._weighed, work, room, counting=counting, done=self._done)
        self._done |= found.stratum == 1
        return found


def few_around(tuples: Array, alike: float, cap: int) -> Array:
    """Of pairs of keys with so many tuples, the share that completes with at most `cap` of these in the windows.

    alike: the share of two tuples of a key that lie in one.  Where all do the later of two comes at any place among
    all; else as many of the others are there as in a Poisson process.
    """
    if alike >= 1.0:
        return np.where(tuples <= cap, 1.0, cap * (cap - 1.0) / np.maximum(1.0, tuples * (tuples - 1.0)))
    standing = 0.5 * alike * np.maximum(0.0, tuples - 2.0)
    term = few = np.exp(-standing)
    for j in range(1, cap - 1):
        term = term * standing / j
        few = few + term
    return few if cap > 1 else np.zeros_like(few)
