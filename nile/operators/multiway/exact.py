"""The exact combinations of n streams: the engine that SQL's exact joins run on, with the figures of a join's run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from nile.exact.join.clique import ExactClique
from nile.exact.join.shared import run_shared
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import WindowJoin, WindowJoinPlan
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.multiway.outputs import Combinations, MultiwayFigures
from nile.pyramid.grid.manager import Memory

__all__ = ["ExactCombinations"]

Array = np.ndarray[Any, Any]
_CHUNK = 65_536


class Joined(Protocol):
    """n streams, as `nile.operators.inputs.multiway` has read them; each part is worked out when it is asked for."""

    @property
    def exact(self) -> ExactClique:
        """Their exact join, a condition over several left aside."""

    @property
    def passes(self) -> Callable[[Array], Array] | None:
        """Which combinations (arrivals [c, n]) satisfy the condition over several: bool [c]; None: there is none."""

    @property
    def passing(self) -> Array:
        """Outputs each arrival completes: int64 [N]."""


class ExactCombinations:
    """One run of an exact JoinPlan (`is_chain_join`) over n streams, by `nile.exact.join`.

    Combinations come in the order in which they complete.  Neither a summary, nor a directory of keys, nor a price is
    made before one is found.  Memory: the content of the window at its fullest, 24 bytes a slot of every stream's
    buffer, and 16 bytes per tuple of their order.
    """

    def __init__(self, plan: JoinPlan, joined: Joined) -> None:
        self.plan = plan
        self._joined = joined
        self._running: WindowJoin | None = None
        self._outputs = 0
        self._candidates = 0

    def run(self) -> Iterator[Combinations]:
        """All combinations, in batches of up to 65,536."""
        test = self._joined.passes
        for block in self._blocks():
            for begin in range(0, block.shape[0], _CHUNK):
                members = block[begin : begin + _CHUNK]
                self._candidates += members.shape[0]
                if test is not None:
                    members = members[test(members)]
                self._outputs += members.shape[0]
                if members.shape[0]:
                    yield Combinations(weight=np.ones(members.shape[0]), members=members)

    def _blocks(self) -> Iterator[Array]:
        """Arrivals of each stream's members: int64 [m, n]."""
        exact = self._joined.exact
        n = len(exact.ts)
        graph = WindowGraph.whole(exact.ts) if exact.window is None else WindowGraph.uniform(n, exact.window)
        if graph is None:
            yield from (members for _, members in exact.members())
            return
        arrival = np.empty(exact.order.shape[0], np.int64)
        arrival[exact.order] = np.arange(exact.order.shape[0])
        first = np.cumsum([0, *(ts.shape[0] for ts in exact.ts[:-1])])
        self._running = WindowJoinPlan(graph).start()
        for block in run_shared(self._running.run, exact.ts, exact.codes):
            yield arrival[block + first]

    def expand(self, outputs: Combinations) -> Combinations:
        """The combinations as they are."""
        return outputs

    @property
    def shed(self) -> tuple[int, ...]:
        """No tuple is turned away."""
        return (0,) * len(self._joined.exact.ts)

    @property
    def coverage(self) -> float:
        """Nothing is forgotten."""
        return 1.0

    @property
    def memory(self) -> Memory:
        """Bytes of the operator's state at its fullest."""
        return Memory(sketches=0, directory=0, tuples=0 if self._running is None else self._running.most_memory)

    @property
    def _lookups(self) -> int:
        """How often the plain probe looks: in one stream after the other, up to the first that holds no partner."""
        exact = self._joined.exact
        low, high = exact.ranges
        still = np.concatenate(exact.codes)[exact.order] >= 0
        looked = 0
        for k in range(len(exact.ts)):
            own = exact.stream == k
            looked += int(np.count_nonzero(still & ~own))
            still &= own | (high[:, k] > low[:, k])
        return looked

    @property
    def figures(self) -> MultiwayFigures:
        """What has been done, at the plan's prices: those of the plain probe.  O(n tuples log tuples)."""
        exact, costs = self._joined.exact, self.plan.costs
        test = self._joined.passes is not None
        insert, lookup, emit, scan = (
            float(np.rint(UNIT * price)) for price in (costs.insert, costs.lookup, costs.emit, costs.scan)
        )
        arrivals = exact.order.shape[0]
        nulls = sum(int(np.count_nonzero(codes < 0)) for codes in exact.codes)
        inserting = insert * (arrivals - nulls)
        hitting = lookup * self._lookups + emit * self._outputs
        hitting += scan * self._candidates if test else 0.0
        spent = (inserting + hitting) / UNIT
        cost = spent
        if not test:
            each = insert + lookup * (len(exact.ts) - 1) + emit * exact.completed.astype(np.float64)
            cost = float(each.sum()) / UNIT
        return MultiwayFigures(
            arrivals=arrivals,
            nulls=nulls,
            admitted=arrivals - nulls,
            shed=self.shed,
            outputs=self._outputs,
            candidates=self._candidates,
            regions=int(np.count_nonzero(exact.completed)),
            pruned=0,
            expired=0,
            evicted=0,
            granted=0.0 if test else self.plan.fraction * cost,
            spent=spent,
            spent_insert=inserting / UNIT,
            spent_hit=hitting / UNIT,
            exact_cost=cost,
            coverage=self.coverage,
            forgotten=0,
            admission=1.0,
            sampling_rate=1.0,
        )
