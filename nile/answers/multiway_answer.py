"""What a join of several streams returns, or of two under a condition: combinations as they are found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.join_outputs import JoinOutputs, best_of
from nile.answers.tabular import Members
from nile.base.contiguous import taker
from nile.base.weakly import weakly
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.drive.key_levels import combination_sample
from nile.operators.drive.metered import MeteredRun
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.inputs.ruling import Partners, lent_grids
from nile.operators.join.chain_join import is_chain_join
from nile.operators.multiway.drawn import DrawnCombinations, draws_outputs
from nile.operators.multiway.exact import ExactCombinations
from nile.operators.multiway.multiway import Combinations, MultiwayJoin, buys_everything
from nile.operators.multiway.ranked import RankedCombinations, best_combinations
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.ranked import can_rank
from nile.operators.strategies.several import TimedCombinations
from nile.operators.strategies.tested import TestedPairs, is_tested, priced_by_tuple
from nile.preferences.key_sample import KeySample
from nile.report.accuracy.reporting import Wanted
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.report.accuracy import combinations
    from nile.report.accuracy.report import AccuracyReport
else:
    combinations = lazy("nile.report.accuracy.combinations")

__all__ = ["MultiwayAnswer"]

Array = np.ndarray[Any, Any]
_TOLD_APART = 1 << 22  # combinations behind records
_TIMED = TestedPairs, TimedCombinations


class MultiwayAnswer(JoinOutputs[Combinations]):
    """The combinations of n streams, or the pairs of two that satisfy a condition.  Range records: stream, ordinal, the
    key, ts, `<name>_first` and `<name>_last` of each stream (ranks in its list of the key, among the tuples that take
    part; null for the probing stream itself), combinations, weight.
    """

    def __init__(
        self,
        joined: MultiwayJoinable,
        plan: JoinPlan,
        *,
        names: tuple[str, ...],
        key: str,
        batch_rows: int = 65_536,
        speed: float = 1.0,
        clock: Clock | None = None,
        standing: tuple[MultiwayJoin, Iterator[Combinations]] | None = None,
        summaries: Partners = (),
        after: After = NOTHING,
    ) -> None:
        """standing: the operator and its outputs, where several standing queries run together; after: what is done with
        outputs then."""
        self.joined = joined
        self._summaries = summaries
        self._untold = 0.0  # what records that were not told apart may hide
        running: Iterator[Combinations] | MeteredRun[Combinations]
        self._join: MultiwayJoin | ExactCombinations | TestedPairs | TimedCombinations
        plan = priced_by_tuple(plan)
        if standing is not None:
            self._join, running = standing
        elif can_rank(plan) and plan.fraction >= 1.0:
            self._join = RankedCombinations(plan, joined)
            running = self._join.run()
        elif draws_outputs(plan):
            self._join = DrawnCombinations(plan, joined)
            running = self._join.run()
        elif is_chain_join(plan):
            self._join = ExactCombinations(plan, joined)
            running = self._join.run()
        elif is_tested(plan):
            timed = TestedPairs if len(names) == 2 else TimedCombinations
            priced = after.over([*map(len, joined.streams)], machine_prices())
            self._join = timed(plan, joined, clock if plan.budget.is_timed else None, after=priced)
            running = self._join.run()
        else:
            prices = {"whole": buys_everything(plan), "timed": plan.budget.is_timed or plan.budget.unit == "share"}
            given = joined.input(plan.costs, ranges=plan.output == "ranges", **prices)
            lent = lent_grids(joined, plan, summaries)
            self._join = MultiwayJoin(plan, given, batch_rows=batch_rows, lent=lent)
            running = (
                self._join.run() if plan.budget.unit == "fraction" else MeteredRun(self._join, speed=speed, clock=clock)
            )
        called = ("left", "right") if len(names) == 2 else names
        known = isinstance(self._join, TimedCombinations) and joined.has_ranges
        super().__init__(
            joined, plan, self._join, running, names=called, aliases=names, key=key, speed=speed, clock=clock,
            counted=not known,
        )  # fmt: skip

    def members(self) -> Members:
        """The tuples behind the combinations, range records expanded.  Runs the query to its end."""
        parts = self._together()
        rows = [self._places(part) for part in parts]
        exact, n = self.joined.exact, len(self.streams)
        found = np.concatenate(rows) if rows else np.zeros((0, n), np.int64)
        weight = np.concatenate([part.weight for part in parts]) if parts else np.zeros(0)
        ordinal = tuple(found[:, k] for k in range(n))
        return Members(self.streams, ordinal, exact.codes[0][ordinal[0]], weight)

    def found_members(self) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """(ordinals of each stream's members, weights) of the combinations as they are found, records expanded."""
        for whole in self._expanded():
            places = self._places(whole)
            yield tuple(places[:, k] for k in range(len(self.streams))), whole.weight

    def _places(self, part: Combinations) -> Array:
        """Places in each stream: int64 [c, n]."""
        if part.places is not None:
            return part.places
        assert part.members is not None
        places: Array = self.joined.ordinal[part.members]
        return places

    def _first(self, found: Iterator[Combinations]) -> Iterator[Combinations]:
        plan = self.plan
        certain = isinstance(self._join, RankedCombinations) or not plan.preferred or plan.fade.factor < 1.0
        if plan.first is None or certain or plan.preference != "desc" or plan.output == "ranges":
            return super()._first(found)
        first = plan.first
        return super()._first(
            best_of(found, lambda parts: [best_combinations(parts, first)] if parts else [], weakly(self._refuse))
        )

    @property
    def estimate(self) -> Estimate:
        """As of every join; known where all were counted before any was written."""
        if isinstance(self._join, TimedCombinations):
            self._finish()
            if (whole := self._join.whole) is not None:
                return Estimate.exact(float(whole))
        return super().estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of every join; and of the first outputs, where they are not the most promising for certain."""
        told, plan = super().warnings, self.plan
        if isinstance(self._join, _TIMED):
            told = (*told, *self._join.warnings)
        if plan.first is None or not plan.preferred or plan.preference == "weighted" or not self._found.done:
            return told
        if isinstance(self._join, RankedCombinations) or plan.fade.factor < 1.0:
            return told
        found = "the best of what was found" if plan.preference == "desc" else "the first that were found"
        return (
            *told,
            f"limit: needed a budget that counts every tuple's matches for the {plan.first:,} most promising "
            f"combinations; got {plan.budget}, {plan.preference}: these are {found}; leave the budget out",
        )

    def completions(self) -> tuple[Array, Array]:
        """(the arrival that completes each combination, int64 [o]; weights), records expanded.  Runs to the end."""
        parts = self._together()
        last = [self._arrivals(part).max(axis=1) for part in parts]
        return (
            np.concatenate([np.zeros(0, np.int64), *last]),
            np.concatenate([np.zeros(0), *(part.weight for part in parts)]),
        )

    def _arrivals(self, part: Combinations) -> Array:
        if part.members is not None:
            return part.members
        order, places = self.joined.exact.order, self._places(part)
        arrival = np.empty(order.shape[0], np.int64)
        arrival[order] = np.arange(order.shape[0])
        first = np.cumsum([0, *(len(one) for one in self.streams[:-1])])
        found: Array = arrival[places + first]
        return found

    @property
    def arrival_keys(self) -> Array:
        """The code of each arrival's key, -1 for null."""
        codes: Array = self.joined.key.astype(np.int64)
        return codes

    def _under(self, plan: JoinPlan) -> MultiwayAnswer:
        return MultiwayAnswer(
            self.joined, plan, names=self.aliases, key=self.key, speed=self._speed, summaries=self._summaries
        )

    @property
    def strategy(self) -> str:
        """As of two streams: what runs in the time there is, beside its contestants, in words; "" for other runs."""
        return "\n".join(self._join.explain()) if isinstance(self._join, _TIMED) else ""

    @property
    def borrows(self) -> bool:
        """Whether shared summaries guide it in place of a grid of its own."""
        return isinstance(self._join, MultiwayJoin) and self._join.borrows

    def _measured(self, wanted: Wanted, query: str) -> AccuracyReport:
        return combinations.combination_accuracy(self, wanted, query)

    def _sizes(self, part: Combinations) -> Array:
        own = np.zeros(0, np.int64) if part.probing is None else self.joined.exact.stream[part.probing]
        return part.sizes(own)

    def _sample(self, parts: list[Combinations]) -> KeySample:
        if isinstance(self._join, MultiwayJoin):
            return combination_sample(self._join, parts)
        if isinstance(self._join, _TIMED):
            return self._join.sample(parts)
        every = self.members()
        return KeySample(every.weight, np.ones(every.key.shape[0]), every.key)

    def _counted(self, parts: list[Combinations]) -> tuple[KeySample, Array]:
        """Records whose tuples have coins of their own are told apart, as long as they are few; else it is unknown."""
        if self.plan.output == "pairs" or not isinstance(self._join, MultiwayJoin) or not self._join.followed:
            return super()._counted(parts)
        if sum(float(self._sizes(part).sum()) for part in parts) > _TOLD_APART:
            self._untold = math.inf
            parts = []
        sample = self._sample([self._join.expand(part) for part in parts])
        return replace(sample, unseen=sample.unseen + self._untold), np.ones(sample.weight.shape[0], np.int64)

    @property
    def _range_schema(self) -> pa.Schema:
        whole = pa.int64()
        ranks = [(f"{name}_{end}", whole) for name in self.names for end in ("first", "last")]
        return pa.schema(
            [("stream", pa.string()), ("ordinal", whole), (self.key, self.joined.key_type), ("ts", pa.timestamp("ns")),
             *ranks, ("combinations", whole), ("weight", pa.float64())]
        )  # fmt: skip

    def _rows(self, part: Combinations) -> pa.RecordBatch:
        time, places = pa.timestamp("ns"), self._places(part)
        at = [places[:, k] for k in range(len(self.streams))]
        ordinals = [pa.array(one.places(own)) for one, own in zip(self.streams, at, strict=True)]
        times = [pa.array(one.ts[own]).view(time) for one, own in zip(self.streams, at, strict=True)]
        keys = taker(self.joined.left_keys)(at[0])
        return pa.RecordBatch.from_arrays([*ordinals, keys, *times, pa.array(part.weight)], schema=self._row_schema)

    def _ranges(self, part: Combinations) -> pa.RecordBatch:
        assert part.probing is not None
        assert part.low is not None
        assert part.high is not None
        exact = self.joined.exact
        own = exact.stream[part.probing]
        ranks = []
        ordinal = exact.ordinal[part.probing]
        keys = self.joined.keys_of(own.astype(np.int64), ordinal, self.joined.key[part.probing].astype(np.int64))
        for k, one in enumerate(self.streams):
            mask = own == k
            ordinal[mask] = one.places(ordinal[mask])
            ranks += [pa.array(part.low[:, k], mask=mask), pa.array(part.high[:, k] - 1, mask=mask)]
        return pa.RecordBatch.from_arrays(
            [pa.array(np.array(self.names)[own]), pa.array(ordinal),
             keys,
             pa.array(exact.times[part.probing]).view(pa.timestamp("ns")), *ranks, pa.array(self._sizes(part)),
             pa.array(part.weight)],
            schema=self._range_schema,
        )  # fmt: skip

    @property
    def exact_outputs(self) -> int:
        """How many outputs the exact answer has (of asc: how many outliers), from the exact pass."""
        passing = self.joined.passing
        if self.plan.preference == "asc":
            passing = passing[self.joined.exact.standing <= self.plan.outlier_cap]
        return int(passing.sum())

    @property
    def recall(self) -> float:
        """The share of the exact answer's outputs that was found; 1 when it has none.  Runs the query to its end."""
        self._finish()
        return self._found.outputs / self.exact_outputs if self.exact_outputs else 1.0
