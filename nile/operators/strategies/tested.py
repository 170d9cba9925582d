"""The pairs of two streams that satisfy a condition over both, within a budget: pairs as without it, each asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nile.operators.common.data import Outputs
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.inputs.joining import Joinable
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway.outputs import Combinations, MultiwayFigures
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.join import StrategyJoin, is_planned
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.prices import Prices
from nile.preferences.key_sample import KeySample
from nile.pyramid.grid.manager import Memory
from nile.summaries.costs import cost_table, costs_by_tuple

__all__ = ["TestedPairs", "asking", "is_tested", "priced_by_tuple"]

Array = np.ndarray[Any, Any]
_ASKED, _TURNS = 4_096, 2
"""Pairs that are asked, and how often, to tell what asking takes."""
_OF_WINDOW = 4
"""Columns, functions and comparisons of a window between two streams: |a - b| <= w."""


def is_tested(plan: JoinPlan) -> bool:
    """Whether a plan of a join of several streams, or under a condition, asks for the best way that a part of the exact
    answer's CPU, or the time there is, pays for."""
    return is_planned(plan) and (plan.budget.is_timed or (plan.budget.unit == "fraction" and not plan.is_exact))


def priced_by_tuple(plan: JoinPlan) -> JoinPlan:
    """The plan, where it does not, as tuples that are taken one by one are priced."""
    if not is_planned(plan) or is_tested(plan):
        return plan
    return replace(plan, strategy="", costs=cost_table(costs_by_tuple()))


def asking(joined: MultiwayJoinable, seed: int, prices: Prices | None = None) -> tuple[float, float]:
    """(ns that asking combinations of any tuples a condition takes, each; the share of them that satisfy it).

    prices: by which it is told what asking takes, the same each time; None: it is measured.
    """
    if not all(map(len, joined.streams)):
        return 0.0, 1.0
    rng = np.random.Generator(np.random.PCG64(seed & 0xFFFFFFFF))
    places = np.stack([rng.integers(len(one), size=_ASKED) for one in joined.streams], axis=1)
    turns, passing = [], np.ones(1, bool)
    for _ in range(_TURNS if prices is None else 1):
        began = time.thread_time_ns()
        passing = joined.test_places(places)
        turns.append(time.thread_time_ns() - began)
    share = float(passing.mean())
    if prices is None:
        return min(turns) / _ASKED, share
    windows = 0 if joined.windows is None else _OF_WINDOW * len(joined.windows.windows)
    return prices.asked * (windows + (0 if joined.condition is None else joined.condition.parts)), share


class TestedPairs:
    """One run of a plan by a strategy (`StrategyJoin`), which knows of no condition; what it finds is asked.

    What is the best key is told by pairs, and what is an outlier by how many tuples of its key stand in the window,
    both with the condition left aside.  What asking a pair takes is measured before, on some pairs of any tuples, where
    a clock bounds it, and else told by the prices.
    """

    coverage = 1.0
    """Nothing is forgotten."""
    __test__ = False

    def __init__(
        self, plan: JoinPlan, joined: MultiwayJoinable, clock: Clock | None = None, *, after: After = NOTHING
    ) -> None:
        """clock: of the question, under a budget of time; after: what is done with pairs then.

        Raises BudgetError where time finds nothing.
        """
        self.plan = plan
        self._joined = joined
        left, right = joined.streams
        prices = None if plan.budget.is_timed else machine_prices()
        ns, share = asking(joined, plan.seed, prices)
        passing = NOTHING if after is NOTHING else After(share * after.each, after.group, share * after.handed)
        # What is measured has all in it; an exact answer asks while it joins, and gathers nothing by itself.
        told = 0.0 if prices is None else share * len(joined.streams) * prices.member
        pair = Joinable(left, right, joined.window)
        self._pairs = StrategyJoin(plan, pair, clock, asking=ns, telling=told, after=passing)
        self._outputs = self._candidates = 0

    def run(self) -> Iterator[Combinations]:
        """Pairs that satisfy the condition, as they are found."""
        for found in self._pairs.run():
            self._candidates += len(found)
            passing = np.flatnonzero(self._joined.test_members((found.left, found.right)))
            self._outputs += passing.shape[0]
            if passing.shape[0]:
                places = np.stack((found.left[passing], found.right[passing]))  # each stream's in one piece
                yield Combinations(weight=found.weight[passing], places=places.T)

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of the pairs."""
        return self._pairs.warnings

    @property
    def rechosen(self) -> str:
        """As of the pairs."""
        return self._pairs.rechosen

    def explain(self) -> list[str]:
        """The contestants, one line each; the one that runs is marked."""
        return self._pairs.explain()

    def sample(self, parts: list[Combinations]) -> KeySample:
        """The sample of keys that the outputs of a weighted run are."""
        pairs = [(part.ordinals, part.weight) for part in parts]
        return self._pairs.sample([Outputs(left=own[0], right=own[1], weight=weight) for own, weight in pairs])

    def expand(self, outputs: Combinations) -> Combinations:
        """The pairs as they are."""
        return outputs

    @property
    def shed(self) -> tuple[int, ...]:
        """Tuples with a key that were refused."""
        return self._pairs.shed

    @property
    def memory(self) -> Memory:
        """As without the condition."""
        return self._pairs.memory

    @property
    def figures(self) -> MultiwayFigures:
        """What has been done so far; costs are nanoseconds, by the prices."""
        told = self._pairs.figures
        return MultiwayFigures(
            arrivals=told.arrivals, nulls=told.nulls, admitted=told.admitted, shed=told.shed, outputs=self._outputs,
            candidates=self._candidates, regions=told.regions, pruned=0, expired=0, evicted=0, granted=told.granted,
            spent=told.spent, spent_insert=told.spent_insert, spent_hit=told.spent_hit, exact_cost=told.exact_cost,
            coverage=1.0, forgotten=0, admission=told.admission, sampling_rate=1.0,
        )  # fmt: skip
