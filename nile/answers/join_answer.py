"""What a join of two streams returns: pairs, or range records, as they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.answers.join_outputs import JoinOutputs, Values, best_of, columns_of
from nile.answers.tabular import Members
from nile.base.contiguous import gathered, taker
from nile.base.weakly import weakly
from nile.exact.state.lent import roomy
from nile.operators.common.contract import ReadJoin
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock
from nile.operators.drive.key_levels import pair_sample
from nile.operators.drive.metered import MeteredRun
from nile.operators.inputs.coming import ComingPair, ComingRun
from nile.operators.inputs.joining import Joinable
from nile.operators.inputs.ruling import Partners, lent_grids, without_partners
from nile.operators.join.chain_join import ChainJoin, is_chain_join
from nile.operators.join.join import JoinInput, Outputs, PromisingJoin
from nile.operators.join.range_join import DrawnRanges, RangeJoin, Ranges, draws_ranges
from nile.operators.join.range_probe import is_counted
from nile.operators.strategies.after import NOTHING, After
from nile.operators.strategies.join import StrategyJoin, is_planned
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.ranked import RankedJoin, best_found, can_rank, is_outlier_join, is_ranked_join
from nile.operators.strategies.worth import WorthJoin, Worths
from nile.preferences.key_sample import KeySample
from nile.report.accuracy.reporting import Wanted
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.report.accuracy import joins
    from nile.report.accuracy.report import AccuracyReport
else:
    joins = lazy("nile.report.accuracy.joins")

__all__ = ["ComingAnswer", "JoinAnswer", "PairJoin"]

Array = np.ndarray[Any, Any]
_SINGLE = np.ones(65_536, np.int64)
_SINGLE.flags.writeable = False


class PairJoin(ReadJoin[Outputs], Protocol):
    """A join of two streams, whoever drives it."""

    @property
    def data(self) -> JoinInput:
        """What it was given."""


@dataclass(frozen=True, slots=True)
class _Rows(Outputs):
    """Pairs with their columns."""

    rows: Any = None


class JoinAnswer(JoinOutputs[Outputs]):
    """The pairs of two streams.  Range records: side, ordinal, the key, ts, first, last (ranks in the other stream's
    list of that key), pairs, weight.

    speed: how many times faster than its own pace the input is played back under a share of a core.  standing:
    the operator and its outputs, where several standing queries run together.  after: what is done with pairs then.
    """

    def __init__(
        self,
        joined: Joinable,
        plan: JoinPlan,
        *,
        key: str,
        batch_rows: int = 65_536,
        speed: float = 1.0,
        clock: Clock | None = None,
        standing: tuple[PairJoin, Iterator[Outputs]] | None = None,
        aliases: tuple[str, ...] = ("left", "right"),
        summaries: Partners = (None, None),
        worths: Worths = (None, None),
        after: After = NOTHING,
    ) -> None:
        self.joined = joined
        self._worths = worths
        self._as_rows = False
        self._summaries = summaries
        self._join: PairJoin
        running: Iterator[Outputs] | MeteredRun[Outputs]
        if standing is not None:
            self._join, running = standing
        elif any(one is not None for one in worths):
            weighed = WorthJoin(plan, joined, worths)
            self._join, running = weighed, weighed.run()
        elif is_outlier_join(plan) or is_ranked_join(plan, joined):
            ranked = RankedJoin(plan, joined)
            self._join, running = ranked, ranked.run()
        elif is_planned(plan):
            after = after.over([*map(len, joined.streams)], machine_prices())
            planned = StrategyJoin(plan, joined, clock if clock is not None and clock.limits else None, after=after)
            self._join, running = planned, planned.run()
        elif (drawn := draws_ranges(plan)) or is_counted(plan):
            ranged = (DrawnRanges if drawn else RangeJoin)(plan, joined)
            self._join, running = ranged, ranged.run(weakly(self._with_rows))
        elif is_chain_join(plan):
            whole = ChainJoin(plan, joined)
            self._join, running = whole, whole.run(weakly(self._with_rows))
        else:
            given, lent = without_partners(joined, plan, summaries), lent_grids(joined, plan, summaries)
            join = PromisingJoin(plan, given, batch_rows=batch_rows, lent=lent, ahead=True)
            metered = MeteredRun(join, speed=speed, draws=join.sampler is not None, clock=clock)
            self._join, running = join, join.run() if plan.budget.unit == "fraction" else metered
        super().__init__(
            joined, plan, self._join, running, names=("left", "right"), aliases=aliases, key=key, speed=speed,
            clock=clock, repeats=standing is None, counted=not isinstance(self._join, StrategyJoin | ComingRun),
        )  # fmt: skip

    def pairs(self) -> Outputs:
        """Places in the left and right of `streams` and weights of every pair found, range records expanded."""
        parts = self._together()
        none = np.zeros(0, np.int64)
        return Outputs(
            left=np.concatenate([none, *(part.left for part in parts)]),
            right=np.concatenate([none, *(part.right for part in parts)]),
            weight=np.concatenate([np.zeros(0), *(part.weight for part in parts)]),
        )

    @property
    def borrows(self) -> bool:
        """Whether shared summaries guide it in place of a grid of its own."""
        return isinstance(self._join, PromisingJoin) and self._join.borrows

    @property
    def ruled_out(self) -> tuple[int, int]:
        """Tuples of left and right whose key the shared summary of the other stream tells to have no partner."""
        if not isinstance(self._join, PromisingJoin) or not self._join.data.ruled_out.any():
            return 0, 0
        data = self._join.data
        right = int(np.count_nonzero(data.ruled_out & (data.order == 1)))
        return int(np.count_nonzero(data.ruled_out)) - right, right

    def _first(self, found: Iterator[Outputs]) -> Iterator[Outputs]:
        plan = self.plan
        if plan.first is None or self._is_certain or plan.preference != "desc" or plan.output == "ranges":
            return super()._first(found)
        order, first = self.joined.order, plan.first
        return super()._first(best_of(found, lambda parts: [best_found(parts, order, first)], weakly(self._refuse)))

    @property
    def _is_certain(self) -> bool:
        """Whether the first outputs are those that the whole answer has first."""
        return isinstance(self._join, RankedJoin) or not self.plan.preferred or self.plan.fade.factor < 1.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of every join; and of the first outputs, where the budget did not buy the most promising for certain."""
        told, plan = super().warnings, self.plan
        if isinstance(self._join, StrategyJoin):
            told = (*told, *self._join.warnings)
        if plan.first is None or plan.preference == "weighted" or self._is_certain or not self._found.done:
            return told
        if can_rank(plan):
            short = f"needed a budget that counts every tuple's matches for the {plan.first:,} most promising pairs"
            mend = "allow more budget"
        else:
            short = f"needed pairs that counts can rank for the {plan.first:,} most promising"
            mend = "ask without a fade factor, a replay or forgetting, under a budget as a fraction or in outputs"
        found = "the best of what was found" if plan.preference == "desc" else "the first that were found"
        return (*told, f"limit: {short}; got {plan.budget}, {plan.preference}: these are {found}; {mend}")

    def _finish(self) -> None:
        if not isinstance(self._join, ChainJoin):  # whose every figure is counted without a pair
            super()._finish()

    def members(self) -> Members:
        """The tuples behind the pairs, range records expanded.  Runs the query to its end."""
        found = self.pairs()
        if isinstance(self._join, StrategyJoin):
            key = self._join.codes(found.left)
        else:
            exact = isinstance(self._join, ChainJoin | RangeJoin)
            codes = self.joined.exact.left_code if exact else self._join.data.left.codes
            key = codes[found.left].astype(np.int64)
        return Members(self.joined.streams, (found.left, found.right), key, found.weight)

    def found_members(self) -> Iterator[tuple[tuple[Array, Array], Array]]:
        """As `pairs`, as they are found."""
        for pairs in self._expanded():
            yield (pairs.left, pairs.right), pairs.weight

    def found_values(self) -> Iterator[tuple[tuple[Array, Array], Array, tuple[Values, ...]]]:
        """As `found_members`, and the times and keys that the run tells with its pairs; for who holds none of them."""
        for pairs in self._expanded(self._found.passing()):
            told = (Values(ts, pairs.key, self.joined.key_type) for ts in (pairs.left_ts, pairs.right_ts))
            yield (pairs.left, pairs.right), pairs.weight, tuple(told)

    @property
    def _parts(self) -> dict[str, float]:
        if not isinstance(self._join, StrategyJoin):
            return super()._parts
        whole = self._join.figures.exact_cost
        return {step: ns / whole for step, ns in self._join.spent_by.items()}

    @property
    def estimate(self) -> Estimate:
        """As of every join; by a strategy also where pairs were counted, or only looked at, without being found."""
        if isinstance(self._join, StrategyJoin) and self._known is None:
            if self.clock is None:
                self._join.count()
            else:
                self.clock.during(self._join.count)
            # Which may be too many to keep: no further than until they are counted.
            found = iter(() if self._found.done else self._found)
            while not self._join.is_told and next(found, None) is not None:
                pass
            return self._join.total
        return self._join.pairs if isinstance(self._join, DrawnRanges) else super().estimate

    @property
    def strategy(self) -> str:
        """The contestants of a run by strategy, in words: forecast costs, pairs and quality; "" for other runs."""
        return "\n".join(self._join.explain()) if isinstance(self._join, StrategyJoin) else ""

    @property
    def input(self) -> JoinInput:
        """What the operator was given: both streams, encoded and merged."""
        return self._join.data

    def _under(self, plan: JoinPlan) -> JoinAnswer:
        return JoinAnswer(
            self.joined,
            plan,
            key=self.key,
            speed=self._speed,
            aliases=self.aliases,
            summaries=self._summaries,
            worths=self._worths,
            clock=Clock.at_rest(plan.budget),
        )

    def _measured(self, wanted: Wanted, query: str) -> AccuracyReport:
        return joins.join_accuracy(self, wanted, query)

    def _sizes(self, part: Outputs) -> Array:
        if part.low is None or part.high is None:
            return _SINGLE[: len(part)] if len(part) <= _SINGLE.shape[0] else np.ones(len(part), np.int64)
        return part.high - part.low

    def _sample(self, parts: list[Outputs]) -> KeySample:
        if isinstance(self._join, PromisingJoin):
            return pair_sample(self._join, parts)
        if isinstance(self._join, StrategyJoin):
            return self._join.sample(parts)
        every = self.members()
        return KeySample(every.weight, np.ones(every.key.shape[0]), every.key)

    @property
    def _range_schema(self) -> pa.Schema:
        whole = pa.int64()
        return pa.schema(
            [("side", pa.string()), ("ordinal", whole), (self.key, self.joined.key_type), ("ts", pa.timestamp("ns")),
             ("first", whole), ("last", whole), ("pairs", whole), ("weight", pa.float64())]
        )  # fmt: skip

    def _ranges(self, part: Outputs) -> pa.RecordBatch:
        if isinstance(part, _Rows):
            return part.rows
        assert part.side is not None
        assert part.low is not None
        assert part.high is not None
        ordinal, side = part.left, part.side
        if isinstance(part, Ranges):
            ts, key = part.ts, self._takers[0][1](part.like)
        else:
            data = self._join.data
            ts, codes = np.empty(ordinal.shape[0], np.int64), np.empty(ordinal.shape[0], np.int64)
            for which, (times, keys) in enumerate(((data.left_ts, data.left), (data.right_ts, data.right))):
                mine = side == which
                ts[mine], codes[mine] = times[ordinal[mine]], keys.codes[ordinal[mine]]
            key = self.joined.keys_of(side.astype(np.int64), ordinal, codes)
        if any(one.rows is not None for one in self.streams):
            at = np.empty(ordinal.shape[0], np.int64)
            for which, stream in enumerate(self.streams):
                mine = side == which
                at[mine] = stream.places(ordinal[mine])
            ordinal = at
        last, pairs = roomy(side.shape[0]), roomy(side.shape[0])
        np.subtract(part.high, 1, out=last)
        np.subtract(part.high, part.low, out=pairs)
        sides = pa.array(["left", "right"]).take(pa.array(side))
        return pa.RecordBatch.from_arrays(
            [sides, pa.array(ordinal), key, pa.array(ts).view(pa.timestamp("ns")),
             pa.array(part.low), pa.array(last), pa.array(pairs), pa.array(part.weight)],
            schema=self._range_schema,
        )  # fmt: skip

    @cached_property
    def _takers(self) -> list[tuple[pa.DataType, Callable[[Array], pa.Array]]]:
        """Of the key, and of the times of both: the type, and what takes them."""
        times = [pa.array(one.ts).view(pa.timestamp("ns")) for one in self.streams]
        return [(self.joined.key_type, taker(self.joined.left_keys)), *((each.type, taker(each)) for each in times)]

    def _told_as(self, found: Iterator[Outputs]) -> Iterator[pa.RecordBatch]:
        """As of every join."""
        self._as_rows = True
        return super()._told_as(found)

    def _with_rows(self, part: Outputs) -> Outputs:
        """Pairs with their columns, where these were asked for: taken on the thread that has found them."""
        if not self._as_rows:
            return part
        if part.side is None:
            return _Rows(part.left, part.right, part.weight, rows=self._taken(part))
        return _Rows(part.left, part.right, part.weight, part.side, part.low, part.high, rows=self._ranges(part))

    def _rows(self, part: Outputs) -> pa.RecordBatch:
        return part.rows if isinstance(part, _Rows) else self._taken(part)

    def _taken(self, part: Outputs) -> pa.RecordBatch:
        left, right = self.streams
        key, left_time, right_time = self._takers
        return pa.RecordBatch.from_arrays(
            [pa.array(left.places(part.left)), pa.array(right.places(part.right)),
             gathered(part.key, *key, part.left), gathered(part.left_ts, *left_time, part.left),
             gathered(part.right_ts, *right_time, part.right), pa.array(part.weight)],
            schema=self._row_schema,
        )  # fmt: skip


class ComingAnswer(JoinAnswer):
    """The pairs of two streams that have to be waited for, as these come: of each piece that was read, what is known.

    They are those of the operator that takes tuples one by one (`using(costs="engine")`) over the same streams (under
    the whole budget those of the exact join, the pairs of one arrival in another order), as standing queries have it:
    no key is counted ahead, and a sample is drawn at rates that follow what is granted.  What tells of the whole
    join, such as `accounting`, waits for the streams' ends; `close` lets go of them before.  Kept: the streams, and
    what was found, up to a share of the machine's memory.
    """

    def __init__(
        self, joined: ComingPair, plan: JoinPlan, *, key: str, clock: Clock | None, aliases: tuple[str, ...]
    ) -> None:
        self._coming = ComingRun(plan, joined)
        super().__init__(
            joined, plan, key=key, clock=clock, aliases=aliases, standing=(self._coming, self._coming.run())
        )

    def close(self) -> None:
        """Let go of the streams' sources."""
        self.joined.coming.close()

    @property
    def estimate(self) -> Estimate:
        """As of every join; of a sample as standing queries tell it.  Runs to the end."""
        if not self._is_sample:
            return super().estimate
        self._finish()
        return self._coming.estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        """As of every join, once it has run."""
        return super().warnings if self._found.done else ()

    @property
    def _known(self) -> int | None:
        return super()._known if self._found.done else None

    def _refuse_known(self) -> None:
        """How many outputs there are shows while they are found, and is looked at then."""

    def _sample(self, parts: list[Outputs]) -> KeySample:
        left = np.concatenate([np.zeros(0, np.int64), *(part.left for part in parts)])
        weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
        # Coins are not kept: as if keys alone were drawn, which is wider.
        return KeySample(weight, 1.0 / weight, self._join.data.left.codes[left].astype(np.int64))

    def carried(self, place: int, ordinals: Array) -> tuple[dict[str, Any], Array]:
        """Of those that were found."""
        part, at = self.joined.coming.held(place, ordinals)
        return columns_of(part), at

    def _rows(self, part: Outputs) -> pa.RecordBatch:
        columns: dict[str, Any] = {}
        for k, (name, ordinals) in enumerate(zip(self.names, (part.left, part.right), strict=True)):
            held, at = self.joined.coming.held(k, ordinals)
            columns[f"{name}_ordinal"] = pa.array(ordinals if held.rows is None else held.rows[at])
            columns[f"{name}_ts"] = pa.array(held.ts[at]).view(pa.timestamp("ns"))
            if k == 0:
                key = held.key.take(pa.array(at)).combine_chunks()
                columns[self.key] = key if key.type == self.joined.key_type else key.cast(self.joined.key_type)
        columns["weight"] = pa.array(part.weight)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._row_schema.names], schema=self._row_schema)
