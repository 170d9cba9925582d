"""What a query returns: outputs as they are found, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.join_aggregate import JoinAggregateAnswer, aggregate_of_pairs
from nile.answers.tabular import Members, Tabular, cheaper_as_ranges, is_large, refuse_beyond_memory
from nile.base.durations import format_duration
from nile.operators.common.contract import ReadJoin
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.key_levels import pair_sample
from nile.operators.drive.metered import MeteredRun, report_of
from nile.operators.inputs.joining import Joinable
from nile.operators.join.chain_join import ChainJoin, is_chain_join
from nile.operators.join.join import JoinFigures, JoinInput, Outputs, PromisingJoin
from nile.report.accuracy.reporting import Reporting, Wanted
from nile.streams.accounting import Accounting
from preferences.budget import Budget, BudgetReport
from preferences.clock import exact_costs
from preferences.key_sample import KeySample
from pyramid.grid.manager import Memory
from summaries.estimate import Estimate
from summaries.heavy import pa
from summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.report.accuracy import joins
    from nile.report.accuracy.report import AccuracyReport
else:
    joins = lazy("nile.report.accuracy.joins")

__all__ = ["Answer"]

Array = np.ndarray[Any, Any]
_PAIR_BYTES = 56


class Answer(Tabular, Reporting):
    """A join's outputs, in the order the query prefers.  Nothing runs until the first row is asked for.

    Iterate `batches()` for Arrow record batches as they are found, or take all with `to_arrow`, `to_pandas`,
    `to_polars`, or any consumer of `__arrow_c_stream__`.  Columns of pairs: left_ordinal, right_ordinal
    (int64, places in the ordered streams), the key, left_ts, right_ts (timestamp[ns]), weight (float64,
    1 / inclusion probability).  Range records: side, ordinal, the key, ts, first, last (ranks in the other
    stream's list of that key), pairs, weight; `expand()` gives their pairs.
    An Answer keeps its streams and summaries alive, and what it has found: 24 bytes per output.
    speed: how many times faster than its own pace the input is played back under a share of a core.  standing:
    the operator and its outputs, where several standing queries run together.
    """

    def __init__(
        self,
        joined: Joinable,
        plan: JoinPlan,
        *,
        key: str,
        batch_rows: int = 65_536,
        speed: float = 1.0,
        standing: tuple[ReadJoin, Iterator[Outputs]] | None = None,
    ) -> None:
        self.plan = plan
        self._joined = joined
        self._key = key
        self._speed = speed
        self._metered: MeteredRun[Outputs] | None = None
        self._join: ReadJoin
        if standing is not None:
            self._join, self._running = standing
        elif is_chain_join(plan):
            whole = ChainJoin(plan, joined)
            self._join, self._running = whole, whole.run()
        else:
            data = joined.input(plan.costs, ranges=plan.output == "ranges")
            join = PromisingJoin(plan, data, batch_rows=batch_rows)
            self._metered = None if plan.budget.unit == "fraction" else MeteredRun(join, speed=speed)
            self._join, self._running = join, join.run() if self._metered is None else self._metered.run()
        self._found: list[Outputs] = []
        self._done = False

    def __repr__(self) -> str:
        state = "complete" if self._done else "not complete"
        rows = sum(part.left.shape[0] for part in self._found)
        return f"<Answer {self.plan.method}, {self.plan.preference}: {rows} outputs so far, {state}>"

    def outputs(self) -> Iterator[Outputs]:
        """Outputs as plain arrays, as they are found; again from the start on each call."""
        at = 0
        while True:
            while at < len(self._found):
                yield self._found[at]
                at += 1
            if self._done:
                return
            part = next(self._running, None)
            if part is None:
                self._done = True
            else:
                self._found.append(part)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches of up to 65,536 outputs, as they are found."""
        for part in self.outputs():
            yield self._batch(part)

    def to_arrow(self) -> pa.Table:
        """All outputs.  Raises MemoryRefused when an exact answer of pairs would take half of the machine's memory.

        Pairs are counted once some are there that take a piece of it: until then counting costs more than it can save.
        """
        counted = not is_chain_join(self.plan)
        batches, rows = [], 0
        for batch in self.batches():
            batches.append(batch)
            rows += batch.num_rows
            if not counted and is_large(rows * _PAIR_BYTES):
                refuse_beyond_memory(self._joined.pairs * _PAIR_BYTES, self._joined.pairs)
                counted = True
        return pa.Table.from_batches(batches, schema=self.schema)

    def expand(self) -> pa.Table:
        """The pairs behind range records (an answer of pairs is given as it is)."""
        if self.plan.output == "pairs":
            return self.to_arrow()
        pairs = sum(int((part.high - part.low).sum()) for part in self.outputs() if part.high is not None)
        refuse_beyond_memory(pairs * _PAIR_BYTES, pairs)
        batches = [self._pairs(self._join.expand(part)) for part in self.outputs()]
        return pa.Table.from_batches(batches, schema=self._pair_schema())

    def pairs(self) -> Outputs:
        """Left and right ordinals and weights of every pair found, range records expanded: plain arrays."""
        parts = [self._join.expand(part) for part in self.outputs()]
        if not parts:
            none = np.zeros(0, np.int64)
            return Outputs(left=none, right=none, weight=np.zeros(0))
        return Outputs(
            left=np.concatenate([part.left for part in parts]),
            right=np.concatenate([part.right for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
        )

    def members(self) -> Members:
        """The tuples behind the pairs, range records expanded.  Runs the query to its end."""
        found = self.pairs()
        codes = self._joined.exact.left_code if is_chain_join(self.plan) else self._join.data.left.codes
        key = codes[found.left].astype(np.int64)
        return Members((self._joined.left, self._joined.right), (found.left, found.right), key, found.weight)

    def found_members(self) -> Iterator[tuple[tuple[Array, Array], Array]]:
        """((left ordinals, right ordinals), weights) of the pairs as they are found, range records expanded."""
        for part in self.outputs():
            pairs = self._join.expand(part)
            yield (pairs.left, pairs.right), pairs.weight

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateAnswer:
        """Aggregates over the pairs found: over the key and what else was carried (`JoinQuery.run(carry=...)`).

        Runs the query to its end.  Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        return aggregate_of_pairs(self, aggregates, by)

    def key_sample(self) -> KeySample:
        """The sample of keys that the pairs of a weighted answer are, in the order of `members()`."""
        if isinstance(self._join, ChainJoin):
            every = self.members()
            return KeySample(every.weight, np.ones(every.key.shape[0]), every.key)
        assert isinstance(self._join, PromisingJoin)
        return pair_sample(self._join, [self._join.expand(part) for part in self.outputs()])

    def again(self, budget: Budget | float | None = None, **changes: Any) -> Answer:
        """The same query over the streams as they were read, under another budget (None: its own) or a changed plan.

        changes: fields of the plan, such as seed, method, preference; a seed is that of the summary too.
        """
        plan = self.plan.changed(budget, **changes)
        return Answer(self._joined, plan, key=self._key, speed=self._speed)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
        wanted.refuse_exact(self.plan.is_exact, self.plan.budget)
        return joins.join_accuracy(self, wanted, wanted.query or self._words())

    def _words(self) -> str:
        """The query in a line."""
        plan, (left, right) = self.plan, self._joined.streams
        window = "the whole stream" if plan.window is None else format_duration(plan.window)
        return (
            f"join of {left.name} and {right.name} on {self._key} within {window}, {plan.preference} first, by "
            f"{plan.method}, budget {plan.budget}"
        )

    @property
    def joined(self) -> Joinable:
        """The streams behind the answer, with everything their joins share."""
        return self._joined

    @property
    def key(self) -> str:
        """The name of the key column."""
        return self._key

    def _finish(self) -> None:
        for _ in self.outputs():
            pass

    @property
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""
        if self.plan.output == "pairs":
            return self._pair_schema()
        whole = pa.int64()
        return pa.schema(
            [("side", pa.string()), ("ordinal", whole), (self._key, self._joined.key_type), ("ts", pa.timestamp("ns")),
             ("first", whole), ("last", whole), ("pairs", whole), ("weight", pa.float64())]
        )  # fmt: skip

    def _pair_schema(self) -> pa.Schema:
        whole, time = pa.int64(), pa.timestamp("ns")
        return pa.schema(
            [("left_ordinal", whole), ("right_ordinal", whole), (self._key, self._joined.key_type),
             ("left_ts", time), ("right_ts", time), ("weight", pa.float64())]
        )  # fmt: skip

    def _batch(self, part: Outputs) -> pa.RecordBatch:
        if part.side is None or part.low is None or part.high is None:
            return self._pairs(part)
        data = self._join.data
        left = part.side == 0
        codes = np.empty(part.left.shape[0], np.int64)
        codes[left] = data.left.codes[part.left[left]]
        codes[~left] = data.right.codes[part.left[~left]]
        ts = np.empty(part.left.shape[0], np.int64)
        ts[left] = data.left_ts[part.left[left]]
        ts[~left] = data.right_ts[part.left[~left]]
        return pa.RecordBatch.from_arrays(
            [pa.array(np.where(left, "left", "right")), pa.array(part.left), self._joined.keys.decode(codes),
             pa.array(ts).view(pa.timestamp("ns")), pa.array(part.low), pa.array(part.high - 1),
             pa.array(part.high - part.low), pa.array(part.weight)],
            schema=self.schema,
        )  # fmt: skip

    def _pairs(self, part: Outputs) -> pa.RecordBatch:
        # Arrow takes into memory of its own pool, which keeps what was freed: the system need not hand it out anew.
        left_time, right_time = (pa.array(one.ts).view(pa.timestamp("ns")) for one in self._joined.streams)
        at, other = pa.array(part.left), pa.array(part.right)
        return pa.RecordBatch.from_arrays(
            [at, other, self._joined.left_keys.take(at), left_time.take(at), right_time.take(other),
             pa.array(part.weight)],
            schema=self._pair_schema(),
        )  # fmt: skip

    @property
    def estimate(self) -> Estimate:
        """How many pairs the exact answer has, as far as this answer tells.  Runs the query to its end.

        A full answer knows.  A weighted one is a sample: the sum of its weights, with a 95 % interval from the
        spread by key, and, where keys were dropped, room for a heavy one among them (`operators.key_sample`; not
        certified: what was not seen cannot be known).  desc and asc pick their tuples, which is no random
        sample: what they found is a certain lower bound and nothing more.
        """
        self._finish()
        sizes = [part.high - part.low for part in self._found if part.high is not None and part.low is not None]
        pairs = np.concatenate(sizes) if sizes else np.ones(sum(part.weight.shape[0] for part in self._found))
        found = float(pairs.sum())
        if self.plan.is_exact and self.plan.preference != "asc":
            return Estimate.exact(found)
        if self.plan.method == "nile" and self.plan.preference == "weighted":
            assert isinstance(self._join, PromisingJoin)
            return pair_sample(self._join, self._found).count(pairs, 0.95)
        return Estimate(found, found, math.inf, 1.0, True)

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that probes could still reach (1 unless data was forgotten)."""
        self._finish()
        return self._join.coverage

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, in the unit asked in and as a share of the exact cost.  Runs the query to its end."""
        self._finish()
        return report_of(self.plan.budget, self._metered, self._join.figures.budget_spent)

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of a run under the wall clock; None for one that does not look at it.  Runs to the end."""
        self._finish()
        return None if self._metered is None else self._metered.cpu_seconds

    @property
    def input(self) -> JoinInput:
        """What the operator was given: both streams, encoded and merged."""
        return self._join.data

    @property
    def warnings(self) -> tuple[str, ...]:
        """That the whole answer would cost less than the budget grants, with both costs, where it would."""
        plan = self.plan
        if plan.is_exact or plan.budget.fraction is None or plan.method != "nile":
            return ()
        exact = math.fsum(exact_costs(self._joined.matches, plan.costs, ranges=True))
        names = [one.name for one in self._joined.streams]
        return cheaper_as_ranges(names, plan, plan.fraction * self._join.figures.exact_cost, exact)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each side: in = applied + late + shed + rejected.  Runs the query to its end."""
        self._finish()
        told = {}
        for side, stream, shed in zip(
            ("left", "right"), (self._joined.left, self._joined.right), self._join.shed, strict=True
        ):
            told[side] = stream.accounting + Accounting()
            told[side].shed_applied(shed)
            told[side].check()
        return told

    @property
    def memory(self) -> Memory:
        """Bytes held by summaries, directories and tuple lists."""
        return self._join.memory

    @property
    def figures(self) -> JoinFigures:
        """Counts and costs of the run.  Runs the query to its end."""
        self._finish()
        return self._join.figures
