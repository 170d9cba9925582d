"""What a join of n streams returns: combinations as they are found, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.join_aggregate import JoinAggregateAnswer, aggregate_of_outputs
from nile.answers.tabular import Members, Tabular, cheaper_as_ranges, refuse_beyond_memory
from nile.base.durations import format_duration
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.key_levels import combination_sample
from nile.operators.drive.metered import MeteredRun, report_of
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway.multiway import Combinations, MultiwayFigures, MultiwayJoin, buys_everything
from nile.report.accuracy.reporting import Reporting, Wanted
from nile.streams.accounting import Accounting
from preferences.budget import Budget, BudgetReport
from preferences.key_sample import KeySample
from pyramid.grid.manager import Memory
from summaries.estimate import Estimate
from summaries.heavy import pa
from summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.report.accuracy import combinations
    from nile.report.accuracy.report import AccuracyReport
else:
    combinations = lazy("nile.report.accuracy.combinations")

__all__ = ["MultiwayAnswer"]

Array = np.ndarray[Any, Any]


class MultiwayAnswer(Tabular, Reporting):
    """The outputs of a join of n streams, in the order the query prefers.  Nothing runs until the first is asked for.

    Columns of combinations: `<name>_ordinal` of each stream (int64, places in the ordered streams as they were
    read), the key, `<name>_ts` of each (timestamp[ns]), weight (float64, 1 / inclusion probability).  The names
    are those of the statement; of two streams they are left and right, as in `Answer`.  Range records: stream,
    ordinal, the key, ts, `<name>_first` and `<name>_last` of each (ranks in that stream's list of the key, among
    the tuples that take part; null for the probing stream itself), combinations, weight; `expand()` gives theirs.
    An answer keeps its streams and its store alive, and what it has found: 8 bytes per column an output.
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
    ) -> None:
        self.plan = plan
        self.names = ("left", "right") if len(names) == 2 else names
        self._joined = joined
        self._key = key
        given = joined.input(plan.costs, ranges=plan.output == "ranges", whole=buys_everything(plan))
        self._join = MultiwayJoin(plan, given, batch_rows=batch_rows)
        self._speed = speed
        self._metered = None if plan.budget.unit == "fraction" else MeteredRun(self._join, speed=speed)
        self._running = self._join.run() if self._metered is None else self._metered.run()
        self._found: list[Combinations] = []
        self._done = False

    def __repr__(self) -> str:
        state = "complete" if self._done else "not complete"
        rows = sum(map(len, self._found))
        return (
            f"<MultiwayAnswer of {', '.join(self.names)}: {self.plan.method}, {self.plan.preference}: "
            f"{rows} outputs so far, {state}>"
        )

    def outputs(self) -> Iterator[Combinations]:
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
            yield self._rows(part) if part.members is not None else self._ranges(part)

    def to_arrow(self) -> pa.Table:
        """All outputs.  Raises MemoryRefused when an exact answer would take half of the machine's memory."""
        if self.plan.is_exact and self.plan.output == "pairs" and self._join.data.test is None:
            self._refuse(self._joined.exact.combinations)
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def expand(self) -> pa.Table:
        """The combinations behind range records (an answer of combinations is given as it is)."""
        if self.plan.output == "pairs":
            return self.to_arrow()
        self._refuse(sum(int(self._sizes(part).sum()) for part in self.outputs()))
        batches = [self._rows(self._join.expand(part)) for part in self.outputs()]
        return pa.Table.from_batches(batches, schema=self._row_schema())

    def members(self) -> Members:
        """The tuples behind the combinations, range records expanded.  Runs the query to its end."""
        parts = [self._join.expand(part) for part in self.outputs()]
        rows = [part.members for part in parts if part.members is not None]
        data = self._join.data
        found = np.concatenate(rows) if rows else np.zeros((0, data.streams), np.int64)
        weight = np.concatenate([part.weight for part in parts]) if parts else np.zeros(0)
        ordinal = tuple(data.ordinal[found[:, k]] for k in range(data.streams))
        return Members(self._joined.streams, ordinal, data.key[found[:, 0]].astype(np.int64), weight)

    def found_members(self) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """(ordinals of each stream's members, weights) of the combinations as they are found, records expanded."""
        data = self._join.data
        for part in self.outputs():
            whole = self._join.expand(part)
            assert whole.members is not None
            yield tuple(data.ordinal[whole.members[:, k]] for k in range(data.streams)), whole.weight

    def completions(self) -> tuple[Array, Array]:
        """(the arrival that completes each combination, int64 [o]; weights), records expanded.  Runs to the end."""
        parts = [self._join.expand(part) for part in self.outputs()]
        last = [part.members.max(axis=1) for part in parts if part.members is not None]
        return (
            np.concatenate([np.zeros(0, np.int64), *last]),
            np.concatenate([np.zeros(0), *(part.weight for part in parts)]),
        )

    @property
    def arrival_keys(self) -> Array:
        """The code of each arrival's key, -1 for null."""
        return self._join.data.key.astype(np.int64)

    def again(self, budget: Budget | float | None = None, **changes: Any) -> MultiwayAnswer:
        """The same query over the streams as they were read, under another budget (None: its own) or a changed plan."""
        plan = self.plan.changed(budget, **changes)
        return MultiwayAnswer(self._joined, plan, names=self.names, key=self._key, speed=self._speed)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
        wanted.refuse_exact(self.plan.is_exact, self.plan.budget)
        return combinations.combination_accuracy(self, wanted, wanted.query or self._words())

    def _words(self) -> str:
        """The query in a line."""
        window = "the whole stream" if self.plan.window is None else format_duration(self.plan.window)
        named = ", ".join(stream.name for stream in self._joined.streams)
        return (
            f"join of {named} on {self._key}, every two within {window}, {self.plan.preference} first, by "
            f"{self.plan.method}, budget {self.plan.budget}"
        )

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateAnswer:
        """Aggregates over what was found: over the key and what the condition or the aggregates carried.

        Runs the query to its end.  Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        return aggregate_of_outputs(self, self.names, self._key, aggregates, by)

    def key_sample(self) -> KeySample:
        """The sample of keys that the combinations of a weighted answer are, in the order of `members()`."""
        return combination_sample(self._join, [self._join.expand(part) for part in self.outputs()])

    def _refuse(self, combinations: int) -> None:
        refuse_beyond_memory(combinations * (16 * len(self.names) + 24), combinations)

    def _sizes(self, part: Combinations) -> Array:
        own = np.zeros(0, np.int64) if part.probing is None else self._join.data.stream[part.probing]
        return part.sizes(own)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""
        if self.plan.output == "pairs":
            return self._row_schema()
        whole = pa.int64()
        ranks = [(f"{name}_{end}", whole) for name in self.names for end in ("first", "last")]
        return pa.schema(
            [("stream", pa.string()), ("ordinal", whole), (self._key, self._key_type()), ("ts", pa.timestamp("ns")),
             *ranks, ("combinations", whole), ("weight", pa.float64())]
        )  # fmt: skip

    def _row_schema(self) -> pa.Schema:
        ordinals = [(f"{name}_ordinal", pa.int64()) for name in self.names]
        times = [(f"{name}_ts", pa.timestamp("ns")) for name in self.names]
        return pa.schema([*ordinals, (self._key, self._key_type()), *times, ("weight", pa.float64())])

    def _key_type(self) -> pa.DataType:
        keys = self._joined.keys
        return keys.values().type if keys.known else self._joined.streams[0].key.type

    def _rows(self, part: Combinations) -> pa.RecordBatch:
        assert part.members is not None
        data, time = self._join.data, pa.timestamp("ns")
        members = part.members
        ordinals = [pa.array(data.ordinal[members[:, k]]) for k in range(len(self.names))]
        times = [pa.array(data.ts[members[:, k]]).view(time) for k in range(len(self.names))]
        keys = self._joined.keys.decode(data.key[members[:, 0]].astype(np.int64))
        return pa.RecordBatch.from_arrays([*ordinals, keys, *times, pa.array(part.weight)], schema=self._row_schema())

    def _ranges(self, part: Combinations) -> pa.RecordBatch:
        assert part.probing is not None
        assert part.low is not None
        assert part.high is not None
        data = self._join.data
        own = data.stream[part.probing]
        ranks = []
        for k in range(len(self.names)):
            mask = own == k
            ranks += [pa.array(part.low[:, k], mask=mask), pa.array(part.high[:, k] - 1, mask=mask)]
        return pa.RecordBatch.from_arrays(
            [pa.array(np.array(self.names)[own]), pa.array(data.ordinal[part.probing]),
             self._joined.keys.decode(data.key[part.probing].astype(np.int64)),
             pa.array(data.ts[part.probing]).view(pa.timestamp("ns")), *ranks, pa.array(self._sizes(part)),
             pa.array(part.weight)],
            schema=self.schema,
        )  # fmt: skip

    @property
    def joined(self) -> MultiwayJoinable:
        """The streams behind the answer, with everything their joins share."""
        return self._joined

    @property
    def exact_outputs(self) -> int:
        """How many outputs the exact answer has (of asc: how many outliers), from the exact pass."""
        passing = self._joined.passing
        if self.plan.preference == "asc":
            passing = passing[self._joined.exact.standing <= self.plan.outlier_cap]
        return int(passing.sum())

    @property
    def recall(self) -> float:
        """The share of the exact answer's outputs that was found; 1 when it has none.  Runs the query to its end."""
        self._finish()
        found = sum(int(self._sizes(part).sum()) for part in self._found)
        return found / self.exact_outputs if self.exact_outputs else 1.0

    def _finish(self) -> None:
        for _ in self.outputs():
            pass

    @property
    def estimate(self) -> Estimate:
        """How many combinations the exact answer has, as far as this answer tells.  Runs the query to its end.

        A full answer knows.  A weighted one is a sample: the sum of its weights, with a 95 % interval as that of
        `Answer.estimate` (not certified).  desc and asc pick their tuples, which is no random sample: what they
        found is a certain lower bound and nothing more.
        """
        self._finish()
        sizes = np.concatenate([self._sizes(part) for part in self._found]) if self._found else np.zeros(0)
        found = float(sizes.sum())
        if self.plan.is_exact and self.plan.preference != "asc":
            return Estimate.exact(found)
        if self.plan.method == "nile" and self.plan.preference == "weighted":
            return combination_sample(self._join, self._found).count(sizes, 0.95)
        return Estimate(found, found, math.inf, 1.0, True)

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that probes could still reach (1 unless data was forgotten)."""
        self._finish()
        return self._join.figures.coverage

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
    def warnings(self) -> tuple[str, ...]:
        """That the whole answer would cost less than the budget grants, with both costs, where it would."""
        plan, joined = self.plan, self._joined
        tested = joined.condition is not None and joined.condition.over_several  # no whole ranges then
        if plan.is_exact or plan.budget.fraction is None or plan.method != "nile" or tested:
            return ()
        exact = math.fsum(joined.costs(plan.costs, ranges=True))
        return cheaper_as_ranges(self.names, plan, plan.fraction * self._join.figures.exact_cost, exact)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected.  Runs the query to its end.

        Tuples that a condition on their stream alone turns down are no part of the join and not in; `excluded`
        counts them.
        """
        self._finish()
        told = {}
        streams = zip(self.names, self._joined.streams, self._joined.excluded, self._join.figures.shed, strict=True)
        for name, stream, excluded, shed in streams:
            told[name] = stream.accounting + Accounting(tuples_in=-excluded, applied=-excluded)
            told[name].shed_applied(shed)
            told[name].check()
        return told

    @property
    def excluded(self) -> dict[str, int]:
        """Tuples of each stream that a condition on it alone turns down."""
        return dict(zip(self.names, self._joined.excluded, strict=True))

    @property
    def memory(self) -> Memory:
        """Bytes held by the store of all streams."""
        return self._join.memory

    @property
    def figures(self) -> MultiwayFigures:
        """Counts and costs of the run.  Runs the query to its end."""
        self._finish()
        return self._join.figures
