"""What answers of joins share, of two streams or several: outputs as they are found, and their quality."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from nile.answers.answer import SHOWN
from nile.answers.join_aggregate import JoinAggregateAnswer, aggregate_of_outputs
from nile.answers.join_streams import Streams
from nile.answers.join_worth import JoinWorth
from nile.answers.kept_outputs import KeptOutputs
from nile.answers.tabular import Members, refuse_beyond_memory, room_for_answers
from nile.base.budgets import GivenBudget
from nile.base.durations import format_duration
from nile.base.room import each_within, within
from nile.base.weakly import weakly
from nile.operators.common.contract import Found, ReadJoin
from nile.operators.common.partners import surely_fewer
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.clock import Clock, timed
from nile.operators.drive.metered import MeteredRun
from nile.operators.inputs.joining import Loaded
from nile.preferences.key_sample import KeySample
from nile.report.accuracy.reporting import Wanted
from nile.report.pages.plot import Plot
from nile.summaries.errors import CostWarning, MemoryRefused
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["UNTOLD", "JoinOutputs", "Values", "best_of", "columns_of"]

Array = np.ndarray[Any, Any]
Out = TypeVar("Out", bound=Found)
AGE = "age"


class Values(NamedTuple):
    """What a run tells of the members of its outputs: times, int64 [n] ns, and keys of a kind, int64 [n] where they
    have eight bytes each, or an Arrow array; None where it does not."""

    ts: Array | None = None
    key: Any = None
    kind: Any = None

    def part(self, at: slice) -> Values:
        """Those of some of the outputs."""
        ts, key = (None if told is None else told[at] for told in (self.ts, self.key))
        return Values(ts, key, self.kind)


UNTOLD = Values()
_CONFIDENCE = 0.95


def _first_of(found: Iterator[Out], room: int) -> Iterator[Out]:
    for part in found:
        taken: Out = part.first(room)
        room -= len(taken)
        yield taken
        if not room:
            return


def best_of(
    found: Iterator[Out], best: Callable[[list[Out]], list[Out]], refuse: Callable[[int], None]
) -> Iterator[Out]:
    """The best of all that is found.  refuse: raises where so many are too many to hold."""
    parts, rows = [], 0
    for part in found:
        parts.append(part)
        rows += len(part)
        refuse(rows)
    yield from best(parts)


def _with_costs(found: Iterator[Out], costs: Callable[[], tuple[str, ...]]) -> Iterator[Out]:
    yield from found
    for told in costs():
        warnings.warn_explicit(told, CostWarning, "nile", 1)


def _begun(told: Callable[[Iterator[Out]], Iterator[Out]], found: Iterator[Out]) -> Iterator[Out]:
    """What is told, asked for with the first of it: an answer that nobody reads, as what is counted, no run holds."""
    yield from told(found)


class JoinOutputs(JoinWorth, Generic[Out]):
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
    announces = False
    """Whether it warns (CostWarning), with both costs, when it has run and cost more than the exact answer would."""

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
        clock: Clock | None = None,
        repeats: bool = True,
        counted: bool = True,
    ) -> None:
        """names: of the streams in columns; aliases: in expressions; clock: of the question, under a budget of time;
        repeats: whether a plan over the same streams finds the same again; counted: whether outputs of a sample are
        counted while they are found, so that they need not be kept for it.
        """
        self._plan = plan
        self._streams = joined
        self._key = key
        self._speed = speed
        self._reader = join
        self.clock = clock
        self._metered = running if isinstance(running, MeteredRun) else None
        self.names = names
        self.aliases = aliases
        sampled = plan.method == "nile" and plan.preference == "weighted" and not plan.is_exact
        self._repeats = repeats and self._metered is None and plan.budget.is_reproducible
        self._found = KeptOutputs(
            timed(_begun(weakly(self._told), running.run() if isinstance(running, MeteredRun) else running), clock),
            weakly(self._once_more), weakly(self._size),
            weakly(self._counted) if counted and sampled else None,
            repeats=self._repeats,
            width=8 * len(names) * (1 if plan.output == "pairs" and plan.strategy in ("", "promise") else 3) + 8,
        )  # fmt: skip
        self._is_sample = sampled

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
        yield from each_within(self.room, iter(self._found))

    def _once_more(self) -> Iterator[Out]:
        if not self._repeats:
            raise MemoryRefused(
                f"{type(self).__name__}: needed outputs that were kept, or a budget as a fraction, which finds them "
                f"again; got {self._found.rows:,} outputs, too many to keep, under {self.plan.budget}; read batches() "
                "once, or run the query again"
            )
        return self._like(self.plan).outputs()

    def _told(self, found: Iterator[Out]) -> Iterator[Out]:
        """What a run gives, of what it finds.  None of what makes it holds this: it may be left unread at any place."""
        return _with_costs(self._first(found), weakly(self._costs))

    def _costs(self) -> tuple[str, ...]:
        """Where somebody asked and no sweep of budgets: what it would have cost in another way."""
        return self._cheaper() if self.announces else ()

    def _first(self, found: Iterator[Out]) -> Iterator[Out]:
        """As many outputs as the plan asks for: of those that a run finds, the first."""
        return found if self.plan.first is None else _first_of(found, self.plan.first)

    def _refuse_known(self) -> None:
        """Raises MemoryRefused where the number of outputs is known without them, and too large to hold."""
        with within(self.room):
            most = room_for_answers() / self._row_bytes
        streams = self.streams
        if surely_fewer([[one.key] for one in streams], [len(one) for one in streams], most):
            return
        if (known := self._known) is not None:
            asked = (self.plan.first, self.plan.budget.outputs)
            self._refuse(min([known, *(each for each in asked if each is not None)]))

    def _seen(self) -> tuple[pa.RecordBatch | None, bool]:
        form = self._ranges if self.plan.output == "ranges" else self._rows
        first = self._found.head
        return (None if first is None else form(first.first(SHOWN))), self._found.done

    def can_plot(self, column: str | None) -> bool:
        """Whether `plot` knows the column."""
        return column in (None, AGE, *self._row_schema.names)

    def plot(self, column: str | None = None, *, bins: int = 20) -> Plot:
        """Outputs by the key, another column of `expand()` or their age, with 95 % intervals where they are a sample.

        column: None: the key; "age": the seconds between an output's first and last tuple.  Of outputs that were picked
        by preference the bars are those that were found.  Holds all.  Raises UnknownColumn, ConfigError, MemoryRefused.
        """
        table = self.expand()
        if column == AGE:
            times = [np.asarray(table[f"{name}_ts"].cast(pa.int64())) for name in self.names]
            ages = (np.max(times, axis=0) - np.min(times, axis=0)) / 1e9
            table = table.append_column(AGE, pa.array(ages))
        sample = self.random_sample()
        weights = np.asarray(table["weight"], np.float64)
        called = column or self._key
        if sample is None:
            note = "all outputs" if self.plan.is_exact else "outputs that were found, picked by preference: no sample"
            return self._histogram(table, called, weights, note, bins, None)
        one = np.ones(len(weights))
        note = "a random sample by weights, with 95 % intervals, not certified; open where too few keys were found"
        return self._histogram(
            table, called, weights, note, bins, lambda group, groups: sample.reach(one, group, groups, _CONFIDENCE)
        )

    def _together(self) -> list[Out]:
        """All outputs, records expanded.  Raises MemoryRefused, before they are made where their number is known."""
        self._refuse_known()
        parts, rows = [], 0
        for part in self._expanded():
            parts.append(part)
            rows += len(part)
            self._refuse(rows)
        return parts

    def _expanded(self, found: Iterator[Out] | None = None) -> Iterator[Out]:
        """Outputs as they are found, range records expanded.  found: of `_found`, for who reads in another way."""
        return map(self._reader.expand, self.outputs() if found is None else each_within(self.room, found))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches of up to 65,536 outputs, as they are found."""
        return self._told_as(self._found.passing())

    def _told_as(self, found: Iterator[Out]) -> Iterator[pa.RecordBatch]:
        """Outputs as record batches."""
        form = self._ranges if self.plan.output == "ranges" else self._rows
        return timed(map(form, each_within(self.room, found)), self.clock)

    def to_arrow(self) -> pa.Table:
        """All outputs.  Raises MemoryRefused for more than half of the machine's memory, or than `connect(memory=)`
        allows: of a whole answer before it begins, of one under a budget, whose length only the run tells, once they
        are so many.
        """
        if self.plan.output == "pairs":
            self._refuse_known()
        return pa.Table.from_batches(self._held(self._told_as(iter(self._found))), schema=self.schema)

    def expand(self) -> pa.Table:
        """The outputs behind range records (an answer of single ones is given as it is)."""
        if self.plan.output == "pairs":
            return self.to_arrow()
        self._refuse_known()
        self._finish()
        self._refuse(self._found.outputs)
        return pa.Table.from_batches(self._held(map(self._rows, self._expanded())), schema=self._row_schema)

    @property
    def _row_bytes(self) -> int:
        return 16 * len(self.names) + 24

    def _refuse(self, outputs: int) -> None:
        with within(self.room):
            refuse_beyond_memory(outputs * self._row_bytes, outputs)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""
        return self._row_schema if self.plan.output == "pairs" else self._range_schema

    @cached_property
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

    def carried(self, place: int, ordinals: Array) -> tuple[dict[str, Any], Array]:
        """(columns carried, places in them) of tuples of one of `streams`, by their places among its tuples."""
        return columns_of(self.streams[place]), ordinals

    @abstractmethod
    def _sizes(self, part: Out) -> Array:
        """How many outputs each of a batch stands for: int64 [o]."""

    def _size(self, part: Out) -> int:
        return len(part) if self.plan.output == "pairs" else int(self._sizes(part).sum())

    @abstractmethod
    def _sample(self, parts: list[Out]) -> KeySample:
        """The sample of keys that outputs of a weighted run are."""

    def _counted(self, parts: list[Out]) -> tuple[KeySample, Array]:
        """`_sample`, and how many outputs each of its rows stands for: int64 [n]."""
        return self._sample(parts), np.concatenate([np.zeros(0, np.int64), *map(self._sizes, parts)])

    @abstractmethod
    def _under(self, plan: JoinPlan) -> Self:
        """The same streams under another plan."""

    def _like(self, plan: JoinPlan) -> Self:
        made = self._under(plan)
        made.room = self.room
        return made

    @abstractmethod
    def members(self) -> Members:
        """The tuples behind the outputs, range records expanded.  Runs the query to its end."""

    @abstractmethod
    def found_members(self) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """(places of members in each of `streams`, weights) of outputs as they are found, range records expanded."""

    def found_values(self) -> Iterator[tuple[tuple[Array, ...], Array, tuple[Values, ...]]]:
        """As `found_members`, and of each member what a run has told beside its place."""
        nothing = (UNTOLD,) * len(self.streams)
        for members, weight in self.found_members():
            yield members, weight, nothing

    @abstractmethod
    def _measured(self, wanted: Wanted, query: str) -> AccuracyReport: ...

    def key_sample(self) -> KeySample:
        """The sample of keys that the outputs of a weighted answer are, in the order of `members()`."""
        return self._sample(self._together())

    def random_sample(self) -> KeySample | None:
        """`key_sample`, where outputs are a random sample; None where they are all, or were picked by preference."""
        plan = self.plan
        if plan.is_exact or plan.method != "nile" or plan.preference != "weighted":
            return None
        sample = self.key_sample()
        if plan.output == "ranges" and sample.drops_keys and not sample.coins:
            # A record's outputs are drawn together: as if nothing were drawn but keys, which is wider.
            return replace(sample, level=1.0 / sample.weight)
        return sample

    def aggregate(self, aggregates: Mapping[str, str], *, by: str | Sequence[str] | None = None) -> JoinAggregateAnswer:
        """Aggregates over what was found: over the key and what else was carried (`run(carry=...)`, conditions).

        Runs the query to its end.  Raises ConfigError, ExpressionError, UnknownColumn, UnknownStream, KeyTypeError.
        """
        return aggregate_of_outputs(self, self.aliases, self._key, aggregates, by)

    def again(self, budget: GivenBudget | None = None, **changes: Any) -> Self:
        """The same query over the streams as they were read, under another budget (None: its own) or a changed plan.

        changes: fields of the plan, such as seed, method, preference; a seed is that of the summary too.
        """
        return self._like(self.plan.changed(budget, **changes))

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
        wanted.refuse_exact(self.plan.is_exact, self.plan.budget)
        with within(self.room):
            return self._measured(wanted, wanted.query or self._words())

    def _words(self) -> str:
        """The query in a line."""
        plan, names = self.plan, [stream.name for stream in self.streams]
        window = "the whole stream" if plan.window is None else format_duration(plan.window)
        return (
            f"join of {', '.join(names[:-1])} and {names[-1]} on {self._key}, every two within {window}, "
            f"{plan.preference} first, by {plan.method}, budget {plan.budget}"
        )


def columns_of(stream: Loaded) -> dict[str, Any]:
    """The further columns of a stream that were asked for, by name."""
    batch = stream.carried
    return {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
