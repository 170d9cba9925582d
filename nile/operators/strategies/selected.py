"""Selections of one stream in the time there is: conditions are answered at once, then what satisfies them is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from nile.operators.drive.clock import Clock
from nile.operators.selection.data import SelectionFigures, Selections
from nile.operators.selection.plan import SelectionPlan

__all__ = ["TimedSelections", "is_at_once"]

Array = np.ndarray[Any, Any]
_ROOM = 32_768
"""Outputs a batch, at the most."""
_SIGN = {"desc": -1.0, "asc": 1.0}
_NARROW = 1 << 16


class Answered(Protocol):
    """A stream whose conditions are answered."""

    @property
    def code(self) -> Array:
        """The key of each tuple: int32 [n]."""

    @property
    def magnitude(self) -> Array:
        """What a tuple of each key counts for by value: float64 [k]."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries."""

    def truth(self, query: int) -> Array:
        """Which tuples satisfy a query: bool [n]."""


def is_at_once(plan: SelectionPlan) -> bool:
    """Whether a plan asks for tuples, whole and before they come, in the time there is."""
    timed = plan.budget is not None and plan.budget.is_timed
    return timed and plan.method == "nile" and plan.output == "pairs" and not plan.pace.is_replay


class TimedSelections:
    """One run of a plan (`is_at_once`).

    desc, asc: tuples of the values of which most, or fewest, satisfy the query, by promise `value` those that add up to
    most; weighted: in a random order.  Several queries take turns.  What is not handed out when time is over is not
    found.  Costs are in units of the plan's table, those of feeding every tuple to every query.
    """

    ruled_out = memory_bytes = 0
    """No summary is asked or kept."""

    def __init__(self, plan: SelectionPlan, data: Answered, clock: Clock) -> None:
        assert plan.budget is not None
        self.plan = plan
        self._data, self._clock = data, clock
        self._tuples = int(data.code.shape[0])
        self._grant = plan.budget.nanoseconds(self._tuples)
        self._outputs = self._matches = 0

    def run(self) -> Iterator[Selections]:
        """Outputs, in batches, until time is over."""
        queries = range(len(self._data.names))
        orders = [self._ordered(query) for query in queries]
        size = max(1, _ROOM // max(1, len(orders)))
        for begin in range(0, max((order.shape[0] for order in orders), default=0), size):
            for query, order in enumerate(orders):
                part = order[begin : begin + size]
                if part.shape[0]:
                    self._outputs += part.shape[0]
                    at = np.full(part.shape[0], self._tuples)
                    yield Selections(np.full(part.shape[0], query, np.int32), part, at)
                    if self._clock.elapsed >= self._grant:
                        return

    def _ordered(self, query: int) -> Array:
        """The tuples that satisfy a query, those wanted first: int64 [m]."""
        found, plan = np.flatnonzero(self._data.truth(query)), self.plan
        self._matches += found.shape[0]
        if plan.preference == "weighted":
            return np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 6, query])).permutation(found)
        code = self._data.code[found]
        worth = np.bincount(code).astype(np.float64)
        if plan.promise == "value":
            worth *= self._data.magnitude[: worth.shape[0]]
        rank = np.unique(_SIGN[plan.preference] * worth, return_inverse=True)[1].reshape(-1)
        # Two bytes are sorted in a few passes.
        rank = rank.astype(np.uint16) if rank.max(initial=0) < _NARROW else rank
        ordered: Array = found[rank[code].argsort(kind="stable")]
        return ordered

    def pairs(self, outputs: Selections) -> Iterator[Selections]:
        """As they are."""
        yield outputs

    def expand(self, outputs: Selections) -> Selections:
        """The tuples as they are."""
        return outputs

    @property
    def spent(self) -> float:
        """In the unit of the budget."""
        assert self.plan.budget is not None
        per = max(1, self._tuples) if self.plan.budget.unit == "seconds_per_tuple" else 1
        return self._clock.elapsed / 1e9 / per

    @property
    def figures(self) -> SelectionFigures:
        """What has been done so far."""
        costs, queries = self.plan.costs, len(self._data.names)
        testing = self._tuples * (costs.insert + queries * costs.scan)
        output = costs.emit + (costs.scan if self.plan.window is not None else 0.0)
        exact = testing + output * max(self._matches, self._outputs)
        return SelectionFigures(
            arrivals=self._tuples, shed=0, outputs=self._outputs, records=self._outputs, evaluated=0,
            scanned=queries * self._tuples, regions_read=0, regions_visited=0, regions_undone=0, rounds=0, lost=0,
            turned_away=0, changes=0, granted=exact, spent=testing + output * self._outputs, spent_summary=0.0,
            exact_cost=exact,
        )  # fmt: skip
