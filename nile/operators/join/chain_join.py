"""The exact pairs of two streams: the engine that SQL's exact joins run on, with the figures of a join's run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from nile.exact.join.chain import ExactJoin
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import WindowJoin, WindowJoinPlan
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.pyramid.grid.manager import Memory
from nile.summaries.costs import CostTable

__all__ = ["CERTAIN", "ChainJoin", "Joined", "Unsampled", "is_chain_join"]

Array = np.ndarray[Any, Any]
_CHUNK = 65_536
CERTAIN = np.ones(_CHUNK)
CERTAIN.flags.writeable = False
"""Weights of a batch whose outputs were not drawn."""


class Timed(Protocol):
    """A stream that was read."""

    @property
    def ts(self) -> Array:
        """int64 ns, not decreasing."""


class Windowed(Protocol):
    """Two streams and the window they are joined in; each part is worked out when it is asked for."""

    @property
    def exact(self) -> ExactJoin:
        """Their exact join."""

    @property
    def left(self) -> Timed:
        """The first stream."""

    @property
    def right(self) -> Timed:
        """The second one."""

    @property
    def window(self) -> int | None:
        """ns, or None for the whole streams."""

    @property
    def threads(self) -> int | None:
        """How many finding the pairs may use; None: as many as there are cores."""

    @property
    def window_codes(self) -> tuple[Array, Array]:
        """Keys as window joins take them: int64 [n], [m]."""


class Joined(Windowed, Protocol):
    """Two streams, as `nile.operators.inputs.joining` has read them."""

    @property
    def matches(self) -> Array:
        """Pairs that each arrival completes: int64 [n]."""

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival: float64 [n]."""

    def input(self, costs: CostTable, *, ranges: bool) -> JoinInput:
        """Both streams as an operator takes them."""


def is_chain_join(plan: JoinPlan) -> bool:
    """Whether a plan asks for every pair as a pair, so that nothing is priced or summarised.

    A preference orders a whole answer only where it gives no budget (`RankedJoin` has that); asc leaves pairs out.
    """
    named = plan.preferred and (plan.preference == "asc" or plan.strategy != "")
    return plan.is_exact and plan.output == "pairs" and not named


class Unsampled:
    """A run that looks at every tuple and draws none of its pairs.  _joined: the two streams, read."""

    def __init__(self, plan: JoinPlan, joined: Joined) -> None:
        self.plan = plan
        self._joined = joined

    def expand(self, outputs: Outputs) -> Outputs:
        """The pairs as they are."""
        return outputs

    @cached_property
    def data(self) -> JoinInput:
        """Both streams, encoded, merged and priced, as operators under a budget take them.  O(tuples)."""
        return self._joined.input(self.plan.costs, ranges=False)

    @property
    def shed(self) -> tuple[int, int]:
        """No tuple is turned away."""
        return 0, 0

    @property
    def coverage(self) -> float:
        """Nothing is forgotten."""
        return 1.0

    def _figures_of(self, arrivals: int, outputs: int, regions: int, pruned: int, cost: float) -> JoinFigures:
        """Of so many outputs, where the exact answer costs `cost` counters: every tuple is inserted and looked up."""
        exact, prices = self._joined.exact, self.plan.costs
        insert, lookup, emit = (float(np.rint(UNIT * price)) for price in (prices.insert, prices.lookup, prices.emit))
        nulls = int(np.count_nonzero(exact.left_code < 0) + np.count_nonzero(exact.right_code < 0))
        inserting = insert * (arrivals - nulls)
        hitting = lookup * (arrivals - nulls) + emit * outputs
        return JoinFigures(
            arrivals=arrivals,
            nulls=nulls,
            admitted=arrivals - nulls,
            shed=self.shed,
            outputs=outputs,
            regions=regions,
            pruned=pruned,
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


class ChainJoin(Unsampled):
    """One run of an exact JoinPlan (`is_chain_join`), by `nile.exact.join`.

    Pairs come in the order in which they complete; those of one arrival from its newest partner back.  Neither a
    summary, nor a directory of keys, nor a price is made before a pair is found.  Memory: the content of the window
    at its fullest, about 90 bytes per tuple; without a window 8 bytes per tuple and 16 a key.
    """

    _running: WindowJoin | None = None

    def run(self, make: Callable[[Outputs], Outputs] | None = None) -> Iterator[Outputs]:
        """All pairs, in batches of up to 65,536; columns are parts of longer ones, weights one array that all share.

        make: what each batch is given to, on the thread that found it.
        """

        def outputs(block: Array) -> Outputs:
            made = Outputs(left=block[:, 0], right=block[:, 1], weight=CERTAIN[: block.shape[0]])
            return made if make is None else make(made)

        joined = self._joined
        if joined.window is None:
            yield from joined.exact.made(outputs)
            return
        self._running = WindowJoinPlan(WindowGraph.uniform(2, joined.window), threads=joined.threads).start()
        yield from self._running.made((joined.left.ts, joined.right.ts), joined.window_codes, outputs)

    @property
    def memory(self) -> Memory:
        """Bytes of the operator's state at its fullest."""
        if self._joined.window is None:
            exact = self._joined.exact
            held = 8 * (exact.left_ts.shape[0] + exact.right_ts.shape[0] + 2 * exact.keys)
        else:
            held = 0 if self._running is None else self._running.most_memory
        return Memory(sketches=0, directory=0, tuples=held)

    @property
    def figures(self) -> JoinFigures:
        """What the whole run does, at the plan's prices.  O(tuples): what each arrival completes is counted for it."""
        matches = self._joined.matches
        cost = float(np.rint(UNIT * self.data.costs).sum())
        return self._figures_of(matches.shape[0], int(matches.sum()), int(np.count_nonzero(matches)), 0, cost)
