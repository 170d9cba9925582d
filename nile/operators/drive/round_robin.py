"""`method="paper"` with several standing join queries over the same two streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.operators.join.join import JoinFigures, JoinInput, Outputs, PromisingJoin
from nile.operators.join.runners import JoinProbe
from nile.preferences import state as st
from nile.pyramid.grid.manager import Memory
from nile.summaries.errors import ConfigError
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.common import standing_kernels
else:
    standing_kernels = lazy("nile.operators.common.standing_kernels")

__all__ = ["QueryFigures", "RoundRobinJoin", "RoundRobinRun"]

Array = np.ndarray[Any, Any]
_OWN = ("window", "preference", "fade")
_SHARED = ("method", "budget", "output", "costs", "pace", "spec", "waiting", "blind")
_HUNDREDTHS = 100.0


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What one of several standing queries did.

    charged: cost of its visits and probes, in units of the cost table; insertion and summaries are nobody's own.
    coverage: the mean share of its window, in time, that its probes could reach.
    """

    outputs: int
    regions: int
    pruned: int
    expired: int
    evicted: int
    charged: float
    coverage: float


class RoundRobinJoin(PromisingJoin):
    """JOIN-PROBE for q standing queries: one tuple store and one summary a stream, q priority queues.

    plans: one per query, `method="paper"`; each has its own window, preference and fade, the rest is the same.
    data.costs: what the budget's fraction is a fraction of, at each arrival, for all queries together.
    Outputs say which query each belongs to (`Outputs.query`).  Cost: insertion once a tuple; visits and probes
    a query.  `figures` are of the whole, `query_figures` of each.  Raises ConfigError for plans that differ in
    what they share, or for none.  Source: promising tuples, section 4.1.2 (round robin over standing queries);
    `nile.operators.opponents.paper_kernels` says what is pinned.
    """

    def __init__(self, plans: Sequence[JoinPlan], data: JoinInput, *, batch_rows: int = 65_536) -> None:
        _check(plans)
        windows = [plan.window for plan in plans if plan.window is not None]
        widest = max(windows) if len(windows) == len(plans) else None
        super().__init__(replace(plans[0], window=widest), data, batch_rows=batch_rows)
        self.plans = tuple(plans)
        self._probing = JoinProbe(plans, self.state)
        self._runner = self._probing
        self._out = self._out._replace(third=np.empty(self._out.first.shape[0], np.int64))

    def _collect(self) -> Outputs:
        n = int(self.state.whole[st.WRITTEN])
        return replace(super()._collect(), query=self._out.third[:n].copy())

    @property
    def query_figures(self) -> tuple[QueryFigures, ...]:
        """What each query has done so far, in the order of the plans."""
        standing, evicted = self._probing.standing, self._probing.evicted
        probes = int(self.state.whole[st.ADMITTED])
        forgets = self.plan.spec.forgetting and probes > 0
        told = []
        for query in range(len(self.plans)):
            count, real = standing.counts[query], standing.real[query]
            told.append(
                QueryFigures(
                    outputs=int(count[standing_kernels.OF_OUTPUTS]),
                    regions=int(count[standing_kernels.OF_REGIONS]),
                    pruned=int(count[standing_kernels.OF_PRUNED]),
                    expired=int(count[standing_kernels.OF_EXPIRED]),
                    evicted=int(evicted[query]),
                    charged=float(real[standing_kernels.OF_SPENT]) / _HUNDREDTHS,
                    coverage=float(real[standing_kernels.OF_COVERED]) / probes if forgets else 1.0,
                )
            )
        return tuple(told)


class RoundRobinRun:
    """A RoundRobinJoin taken apart into its queries.  data: of each, its costs without insertion."""

    def __init__(self, plans: Sequence[JoinPlan], data: Sequence[JoinInput]) -> None:
        costs = plans[0].costs.insert + np.sum([given.costs for given in data], axis=0)
        self.join = RoundRobinJoin(plans, replace(data[0], costs=costs))
        self.operators = [OneOfThem(self.join, number, given) for number, given in enumerate(data)]

    def found(self) -> Iterator[list[list[Outputs]]]:
        """Batch by batch, what each query found."""
        for outputs in self.join.run():
            assert outputs.query is not None
            parts = [np.flatnonzero(outputs.query == number) for number in range(len(self.operators))]
            yield [
                [Outputs(outputs.left[mine], outputs.right[mine], outputs.weight[mine])] if mine.size else []
                for mine in parts
            ]

    @property
    def spent(self) -> float:
        """Spent so far, in units of the cost table."""
        return self.join.spent

    @property
    def upkeep(self) -> float:
        """Spent so far on insertion and summaries."""
        return self.join.figures.spent_insert

    @property
    def exact_cost(self) -> float:
        """What the exact answers of all queries cost together."""
        return self.join.figures.exact_cost

    @property
    def shed(self) -> list[int]:
        """Tuples turned away for all queries, of each stream."""
        return list(self.join.figures.shed)


class OneOfThem:
    """One query of a RoundRobinJoin, to read: its input, and its figures; it is the whole that runs."""

    def __init__(self, whole: RoundRobinJoin, number: int, data: JoinInput) -> None:
        self._whole = whole
        self._number = number
        self._data = data

    @property
    def data(self) -> JoinInput:
        """Both streams; costs: of this query's own exact probes."""
        return self._data

    def expand(self, outputs: Outputs) -> Outputs:
        """The outputs as they are: `paper` gives pairs."""
        return outputs

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples turned away for all queries, of left and right."""
        return self._whole.shed

    @property
    def coverage(self) -> float:
        """The mean share of its window, in time, that its probes could reach."""
        return self.figures.coverage

    @property
    def memory(self) -> Memory:
        """Bytes held by both streams' stores, which all queries share."""
        return self._whole.memory

    @property
    def figures(self) -> JoinFigures:
        """What it found and was charged for it; tuples are those of the whole."""
        mine = self._whole.query_figures[self._number]
        return replace(
            self._whole.figures, outputs=mine.outputs, regions=mine.regions, pruned=mine.pruned, expired=mine.expired,
            evicted=mine.evicted, spent=mine.charged, spent_insert=0.0, spent_hit=mine.charged,
            exact_cost=float(self._data.costs.sum()), coverage=mine.coverage,
        )  # fmt: skip


def _check(plans: Sequence[JoinPlan]) -> None:
    if not plans:
        raise ConfigError("standing queries: needed at least one; got none; give a plan for each")
    for number, plan in enumerate(plans):
        if plan.method != "paper":
            raise ConfigError(
                f"standing query {number}: needed method 'paper', which goes round robin; got {plan.method!r}; "
                "share a budget by weight instead"
            )
        for name in _SHARED:
            if getattr(plan, name) != getattr(plans[0], name):
                raise ConfigError(
                    f"standing query {number}: needed the {name} of query 0, {getattr(plans[0], name)!r}; got "
                    f"{getattr(plan, name)!r}; queries of one engine differ in {', '.join(_OWN)} only"
                )
