"""What answers of joins share, of two streams and of several: outputs as they are found, and what they are worth."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from nile.answers.answer import Answer
from nile.answers.join_aggregate import JoinAggregateAnswer, aggregate_of_outputs
from nile.answers.kept_outputs import KeptOutputs
from nile.answers.tabular import Members, cheaper_as_ranges, held_together, refuse_beyond_memory, room_for_answers
from nile.base.budgets import GivenBudget
from nile.base.durations import format_duration
from nile.operators.common.contract import Found, ReadJoin
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.metered import MeteredRun, report_of
from nile.operators.inputs.joining import Loaded
from nile.preferences.budget import BudgetReport
from nile.preferences.key_sample import KeySample
from nile.pyramid.grid.manager import Memory
from nile.report.accuracy.reporting import Wanted
from nile.streams.accounting import Accounting
from nile.summaries.costs import CostTable
from nile.summaries.errors import MemoryRefused
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["JoinOutputs"]

Array = np.ndarray[Any, Any]
Out = TypeVar("Out", bound=Found)


class Streams(Protocol):
    """The streams of a join, loaded, with everything their runs share."""

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """In the order of the statement."""

    @property
    def key_type(self) -> pa.DataType:
        """Of the key, common to all."""

    @property
    def candidates(self) -> int:
        """How many outputs the exact answer has, a condition over several streams left aside."""

    @property
    def has_ranges(self) -> bool:
        """Whether outputs make whole ranges: there is no condition over several streams."""

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival."""


class JoinOutputs(Answer, Generic[Out]):
    """A join's outputs, in the order the query prefers.  Nothing runs until the first is asked for.

    Iterate `batches()` for Arrow record batches as they are found, or take all with `to_arrow`, `to_pandas`,
    `to_polars`, or any consumer of `__arrow_c_stream__`.  Columns of single outputs: `<name>_ordinal` of each stream
    (int64, places in the ordered streams as they were read), the key, `<name>_ts` of each (timestamp[ns]), weight
    (float64, 1 / inclusion probability); two streams are called left and right, others as the statement calls them.
    `expand()` gives the outputs that range records stand for.  joined: the streams, with everything their runs share.
    An answer keeps its streams and summaries alive, and up to 64 MiB of what it has found.  Of a longer one nothing is
    kept: `batches()` needs no more memory for more of them, and called again runs the query again.
    """

    joined: Any

    def __init__(
        self,
        joined: Streams,
        plan: JoinPlan,
        join: ReadJoin[Out],
        running: Iterator[Out] | MeteredRun[Out],
        *,
        names: tuple[str, ...],
        aliases: tuple[str, ...],
        key: str,
        speed: float,
        repeats: bool = True,
    ) -> None:
        """names: of the streams in columns; aliases: in expressions; repeats: whether a plan over the same streams
        finds the same again.
        """
        self._plan = plan
        self._streams = joined
        self._key = key
        self._speed = speed
        self._reader = join
        self._metered = running if isinstance(running, MeteredRun) else None
        self.names = names
        self.aliases = aliases
        sampled = plan.method == "nile" and plan.preference == "weighted" and not plan.is_exact
        self._repeats = repeats and self._metered is None
        self._found = KeptOutputs(
            self._first(running.run() if isinstance(running, MeteredRun) else running), self._once_more, self._sizes,
            self._sample if sampled and plan.strategy in ("", "promise") else None, repeats=self._repeats,
            width=8 * len(names) * (1 if plan.output == "pairs" else 3) + 8,
        )  # fmt: skip
        self._is_sample = sampled

    @property
    def plan(self) -> JoinPlan:
        """What was asked, checked and complete."""
        return self._plan

    def __repr__(self) -> str:
        state = "complete" if self._found.done else "not complete"
        rows = self._found.rows
        return (
            f"<{type(self).__name__} of {', '.join(self.aliases)}: {self.plan.method}, {self.plan.preference}: "
            f"{rows} outputs so far, {state}>"
        )

    def outputs(self) -> Iterator[Out]:
        """Outputs as plain arrays, as they are found; again from the start on each call.

        Raises MemoryRefused where they are asked for again, were too many to keep, and no second run would find the
        same: under a budget in seconds, a share of a core or outputs, and of several standing queries.
        """
        yield from self._found

    def _once_more(self) -> Iterator[Out]:
        if not self._repeats:
            raise MemoryRefused(
                f"{type(self).__name__}: needed outputs that were kept, or a budget as a fraction, which finds them "
                f"again; got {self._found.rows:,} outputs, too many to keep, under {self.plan.budget}; read batches() "
                "once, or run the query again"
            )
        return self._under(self.plan).outputs()

    @property
    def _known(self) -> int | None:
        """How many outputs there are, where that is known without finding them."""
        plan = self.plan
        whole = plan.is_exact and plan.preference != "asc" and self._streams.has_ranges
        return self._streams.candidates if whole else None

    def _first(self, found: Iterator[Out]) -> Iterator[Out]:
        """As many outputs as the plan asks for: of those that a run finds, the first."""
        room = self.plan.first
        if room is None:
            yield from found
            return
        for part in found:
            taken: Out = part.first(room)
            room -= len(taken)
            yield taken
            if not room:
                return

    def _finish(self) -> None:
        self._found.finish()

    def _refuse_known(self) -> None:
        """Raises MemoryRefused where the number of outputs is known without them, and too large to hold."""
        most = math.prod(map(len, self.streams)) * self._row_bytes
        if most > room_for_answers() and (known := self._known) is not None:
            self._refuse(known if self.plan.first is None else min(known, self.plan.first))

    def _together(self) -> list[Out]:
        """All outputs, records expanded.  Raises MemoryRefused, before they are made where their number is known."""
        self._refuse_known()
        parts, rows = [], 0
        for part in self._expanded():
            parts.append(part)
            rows += len(part)
            self._refuse(rows)
        return parts

    def _expanded(self) -> Iterator[Out]:
        """Outputs as they are found, range records expanded."""
        return map(self._reader.expand, self.outputs())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches of up to 65,536 outputs, as they are found."""
        return map(self._ranges if self.plan.output == "ranges" else self._rows, self.outputs())

    def to_arrow(self) -> pa.Table:
        """All outputs.  Raises MemoryRefused for more than half of the machine's memory: of a whole answer before it
        begins, of one under a budget, whose length only the run tells, once they are so many.
        """
        if self.plan.output == "pairs":
            self._refuse_known()
        return pa.Table.from_batches(held_together(self.batches()), schema=self.schema)

    def expand(self) -> pa.Table:
        """The outputs behind range records (an answer of single ones is given as it is)."""
        if self.plan.output == "pairs":
            return self.to_arrow()
        self._refuse_known()
        self._finish()
        self._refuse(self._found.outputs)
        return pa.Table.from_batches(held_together(map(self._rows, self._expanded())), schema=self._row_schema)

    @property
    def _row_bytes(self) -> int:
        return 16 * len(self.names) + 24

    def _refuse(self, outputs: int) -> None:
        refuse_beyond_memory(outputs * self._row_bytes, outputs)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""
        return self._row_schema if self.plan.output == "pairs" else self._range_schema

    @property
    def _row_schema(self) -> pa.Schema:
        ordinals = [(f"{name}_ordinal", pa.int64()) for name in self.names]
        times = [(f"{name}_ts", pa.timestamp("ns")) for name in self.names]
        return pa.schema([*ordinals, (self._key, self._streams.key_type), *times, ("weight", pa.float64())])

    @property
    @abstractmethod
    def _range_schema(self) -> pa.Schema: ...

    @abstractmethod
    def _rows(self, part: Out) -> pa.RecordBatch:
        """Single outputs in `_row_schema`."""

    @abstractmethod
    def _ranges(self, part: Out) -> pa.RecordBatch:
        """Range records in `_range_schema`."""

    @abstractmethod
    def _sizes(self, part: Out) -> Array:
        """How many outputs each of a batch stands for: int64 [o]."""

    @abstractmethod
    def _sample(self, parts: list[Out]) -> KeySample:
        """The sample of keys that outputs of a weighted run are."""

    @abstractmethod
    def _under(self, plan: JoinPlan) -> Self:
        """The same streams under another plan."""

    @abstractmethod
    def members(self) -> Members:
        """The tuples behind the outputs, range records expanded.  Runs the query to its end."""

    @abstractmethod
    def found_members(self) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """(places of members in each of `streams`, weights) of outputs as they are found, range records expanded."""

    @abstractmethod
    def _measured(self, wanted: Wanted, query: str) -> AccuracyReport: ...

    def key_sample(self) -> KeySample:
        """The sample of keys that the outputs of a weighted answer are, in the order of `members()`."""
        return self._sample(self._together())

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateAnswer:
        """Aggregates over what was found: over the key and what else was carried (`run(carry=...)`, conditions).

        Runs the query to its end.  Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        return aggregate_of_outputs(self, self.aliases, self._key, aggregates, by)

    def again(self, budget: GivenBudget | None = None, **changes: Any) -> Self:
        """The same query over the streams as they were read, under another budget (None: its own) or a changed plan.

        changes: fields of the plan, such as seed, method, preference; a seed is that of the summary too.
        """
        return self._under(self.plan.changed(budget, **changes))

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
        wanted.refuse_exact(self.plan.is_exact, self.plan.budget)
        return self._measured(wanted, wanted.query or self._words())

    def _words(self) -> str:
        """The query in a line."""
        plan, names = self.plan, [stream.name for stream in self.streams]
        window = "the whole stream" if plan.window is None else format_duration(plan.window)
        return (
            f"join of {', '.join(names[:-1])} and {names[-1]} on {self._key}, every two within {window}, "
            f"{plan.preference} first, by {plan.method}, budget {plan.budget}"
        )

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """The streams behind the answer."""
        return self._streams.streams

    @property
    def key(self) -> str:
        """The name of the key column."""
        return self._key

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has, as far as this answer tells.

        A full answer knows, and is counted without being made; others run to their end.  A weighted one is a sample:
        the sum of its weights, with a 95 % interval from the spread by key, and, where keys were dropped, room for a
        heavy one among them (`operators.key_sample`; not certified: what was not seen cannot be known).  desc and asc
        pick their tuples, which is no random sample: what they found is a certain lower bound and nothing more.
        """
        known = self._known
        if known is not None:
            return Estimate.exact(float(known))
        self._finish()
        found = float(self._found.outputs)
        if self.plan.is_exact and self.plan.preference != "asc" and self.plan.first is None:
            return Estimate.exact(found)
        if not self._is_sample:
            return Estimate(found, found, math.inf, 1.0, True)
        return self._found.count()

    @property
    def overall(self) -> Estimate:
        """As `estimate`."""
        return self.estimate

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that probes could still reach (1 unless data was forgotten)."""
        self._finish()
        return self._reader.coverage

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, in the unit asked in and as a share of the exact cost.  Runs the query to its end."""
        self._finish()
        return report_of(self.plan.budget, self._metered, self._reader.figures.budget_spent)

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of a run under the wall clock; None for one that does not look at it.  Runs to the end."""
        self._finish()
        return None if self._metered is None else self._metered.cpu_seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the answer is used.

        That the whole answer would cost less than the budget grants, with both costs, where it would; of a complete
        sample that does not carry an interval, that it is unknown how many outputs there are.
        """
        return (*self._cheaper(), *self._uncertain())

    def _uncertain(self) -> tuple[str, ...]:
        plan = self.plan
        if not self._found.done or plan.is_exact or plan.preference != "weighted" or plan.method != "nile":
            return ()
        told = self.estimate
        if math.isfinite(told.high):
            return ()
        found = self._found.outputs
        return (
            f"estimate: needed a sample of several keys for an interval; got {found:,} outputs under a budget of "
            f"{plan.budget}, mostly of very few, so how many outputs there are at most is unknown; allow more budget",
        )

    def _cheaper(self) -> tuple[str, ...]:
        plan, joined = self.plan, self._streams
        if plan.is_exact or plan.strategy or plan.first is not None or plan.method != "nile":
            return ()
        if plan.budget.fraction is None or not joined.has_ranges:
            return ()
        exact = math.fsum(joined.costs(plan.costs, ranges=True))
        names = [one.name for one in self.streams]
        return cheaper_as_ranges(names, plan, plan.fraction * self._reader.figures.exact_cost, exact)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected.  Runs the query to its end.

        Tuples that a condition on their stream alone turns down are no part of the join and not in; `excluded`
        counts them.
        """
        self._finish()
        told = {}
        for name, stream, shed in zip(self.names, self.streams, self._reader.shed, strict=True):
            told[name] = stream.accounting + Accounting()
            told[name].shed_applied(shed)
            told[name].check()
        return told

    @property
    def excluded(self) -> dict[str, int]:
        """Tuples of each stream that a condition on it alone turns down."""
        return {name: stream.excluded for name, stream in zip(self.names, self.streams, strict=True)}

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """As `accounting`, in the order of the statement."""
        return tuple(self.accounting.values())

    @property
    def memory(self) -> Memory:
        """Bytes held by summaries, directories and tuple lists."""
        return self._reader.memory

    @property
    def memory_bytes(self) -> int:
        """All of `memory`."""
        return int(self.memory.total)

    @property
    def figures(self) -> Any:
        """Counts and costs of the run.  Runs the query to its end."""
        self._finish()
        return self._reader.figures
