"""What a statement returns: a table that is computed on demand."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from nile.answers.answer import SHOWN, Answer
from nile.answers.progress import Progress, Progressive, Run
from nile.answers.python_rows import for_spark, text, tuples
from nile.answers.tabular import held_if_room, refuse_beyond_memory
from nile.base.contiguous import contiguous
from nile.base.explained import Explained, ExplainedAs
from nile.base.room import each_within, within
from nile.operators.common.total_bounds import TotalBounds
from nile.preferences.budget import BudgetReport
from nile.report.accuracy.reporting import Wanted
from nile.report.pages.plot import Plot
from nile.sql.plan import Query
from nile.sql.text import query_text
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError, MemoryRefused, NotYet, RowsLeftOut
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import duckdb, pa, pl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nile.report.accuracy.report import AccuracyReport

__all__ = ["Result"]

_ROW, _VALUE = 56, 40  # bytes of a tuple, and of a value and the place in it


class Result(Answer):
    """The rows of a statement.  Nothing runs before the first row is requested; its repr never runs it.

    Iterate `batches()` (or the result itself, with `async for` too) for Arrow record batches as they are found, or
    get all rows with `to_arrow`, `to_pandas`, `to_polars`, `to_duckdb`, `to_spark`, `fetchall`, or any consumer of
    `__arrow_c_stream__`.  What `to_arrow` has found is kept and shared with all of these; numbers and times are
    shared without a copy.  `batches()` keeps nothing: calling it again runs the query again.
    A result keeps its database's streams alive.  message: the outcome of a statement without rows, else None.

    >>> import nile
    >>> db = nile.connect()
    >>> _ = db.register("sales", {"ts": [0.0, 1.0, 5.0], "price": [2.0, 3.5, 1.0]}, time="ts")
    >>> result = db.sql("SELECT price FROM sales WHERE price > 1")
    >>> result
    <nile.Result [price: double]: not run yet>
    >>> result.fetchall()
    [(2.0,), (3.5,)]
    """

    def __init__(
        self,
        start: Callable[[], Run],
        schema: pa.Schema,
        *,
        query: Query | None = None,
        emit: str | None = None,
        message: str | None = None,
        explained: Callable[[Run | None], Explained] | None = None,
        progressing: Callable[[], Progressive] | None = None,
        answering: Callable[[], Answer] | None = None,
        limiting: Callable[[int], Result] | None = None,
    ) -> None:
        self.query = query
        self.emit = emit
        self.message = message
        self._start = start
        self._schema = schema
        self._explained = explained
        self._progressing = progressing
        self._answering = answering
        self._limiting = limiting
        self._run: Run | None = None
        self._table: pa.Table | None = None
        self._head: pa.RecordBatch | None = None
        self._estimates: Mapping[str, Sequence[Estimate]] | None = None
        self._one: Iterator[tuple[Any, ...]] | None = None
        self.sharing: Callable[[], Mapping[str, Sequence[str]]] = dict
        """The standing queries that have this query's plan, for EXPLAIN."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, known before anything runs."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._schema.names)

    def stand(self) -> None:
        """Start what runs by itself until it is stopped: nothing, of rows that wait to be read."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches of up to 65,536 rows as they are found; from the kept table once there is one."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        yield from self._read(self._begin())

    __iter__ = batches

    def _read(self, run: Run) -> Iterator[pa.RecordBatch]:
        for batch in each_within(self.room, run.batches()):
            if self._head is None:
                self._head = batch.slice(0, SHOWN)
            yield batch
        for told in self.left_out():
            warnings.warn_explicit(told, RowsLeftOut, "nile", 1)

    def _begin(self) -> Run:
        """A run that has not been started yet."""
        self._run, self._estimates = self._start(), None
        return self._run

    def to_arrow(self) -> pa.Table:
        """All rows.  Runs the query once and keeps them.

        Raises MemoryRefused for more than half of the machine's memory, or than `memory=` allows: before anything is
        joined if the rows can be counted without making them, else once the limit is reached.
        """
        if self._table is None:
            run = self._begin()
            run.held_whole = True
            self._table = contiguous(self._held(self._read(run)), self._schema)
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame; numbers and times are not copied."""
        return pl.from_arrow(self.to_arrow(), rechunk=False)

    def to_duckdb(self, connection: Any = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation, of `connection` or DuckDB's default connection.  Raises ConfigError."""
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise ConfigError(
                f"to_duckdb: needed a connection of duckdb.connect(); got {type(connection).__name__}; leave it out"
            )
        return duckdb.from_arrow(self.to_arrow(), **({} if connection is None else {"connection": connection}))

    def to_spark(self, session: SparkSession) -> DataFrame:
        """All rows as a Spark DataFrame of `session`, times to the microsecond, as in Spark.  Raises ConfigError."""
        if not hasattr(session, "createDataFrame"):
            raise ConfigError(
                f"to_spark: needed a Spark session; got {type(session).__name__}; write nile.spark.spark_session()"
            )
        return session.createDataFrame(for_spark(self.to_arrow()))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values.  Raises MemoryRefused like `to_arrow`, for what they need."""
        with within(self.room):
            refuse_beyond_memory(len(self) * (_ROW + _VALUE * len(self._schema)), len(self))
        return [row for batch in self.to_arrow().to_batches() for row in tuples(batch)]

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None after the last."""
        if self._one is None:
            self._one = (row for batch in self.batches() for row in tuples(batch))
        return next(self._one, None)

    def fetchmany(self, count: int = 1) -> list[tuple[Any, ...]]:
        """The next rows, at most `count`.  Raises ConfigError."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"fetchmany: needed a number of rows; got {count!r}; write fetchmany(100)")
        return list(islice(iter(self.fetchone, None), min(count, sys.maxsize)))

    def limit(self, count: int) -> Result:
        """At most `count` rows, the first found; with a preference the most promising, like LIMIT in SQL.

        A new result: nothing is read before its rows are asked for.  Raises ConfigError.
        """
        if not isinstance(count, int) or count < 0 or self._limiting is None:
            raise ConfigError(f"limit: needed a query and a number of rows; got {count!r} of {self!r}; write limit(10)")
        return self._limiting(count)

    def __len__(self) -> int:
        """How many rows there are.  Runs the query."""
        return int(self.to_arrow().num_rows)

    def __bool__(self) -> bool:
        return True

    def _state(self) -> str:
        if self.message is not None:
            return self.message
        if self._table is not None:
            return f"{self._table.num_rows:,} rows"
        return "not run yet" if self._run is None else "read so far as it was asked for"

    def _seen(self) -> tuple[pa.RecordBatch | None, bool]:
        if self._table is None:
            return self._head, False
        head = next(iter(self._table.slice(0, SHOWN).combine_chunks().to_batches()), None)
        return head, self._run is not None and self._run.answer is not None

    def __repr__(self) -> str:
        named = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        told, (first, _) = f"<nile.Result [{named}]: {self._state()}>", self._seen()
        if first is None or not first.num_rows:
            return told
        rows = [" | ".join(text(value) for value in row) for row in tuples(first)]
        return "\n".join([told, " | ".join(self._schema.names), *rows])

    def plot(self, column: str | None = None, *, bins: int = 20) -> Plot:
        """As of every answer; of an approximate one by what its operator tells, with intervals, where that has it."""
        own = self.answer
        if isinstance(own, Answer) and own.can_plot(column):
            return own.plot(column, bins=bins)
        return super().plot(column, bins=bins)

    def progress(self, every: str | float | timedelta = "100 ms") -> Progress:
        """Run the query over everything kept as a growing answer: iterate it for a Partial at every interval.

        every: the time between two partials ("100 ms", seconds, a timedelta; 0: every step).  The first comes as soon
        as there are rows, the last is the full answer.  Reported rows are never retracted and coverage only grows;
        aggregates are estimates that converge.  Under a preference the preferred rows come first; a join WITH
        PREFERENCE asc gives the pairs of keys that are rare in everything kept.  Leave the loop when you have enough.
        Each call is a new run; it does not touch what `to_arrow` keeps.
        Raises NotYet and ConfigError, before anything is read, for a query that has no such form; errors that depend
        on the size of the sides (MemoryRefused, conditions under output="ranges") are raised with the first partial.

        >>> import nile
        >>> db = nile.connect()
        >>> _ = db.register("sales", {"ts": [0.0, 1.0, 5.0], "price": [2.0, 3.5, 1.0]}, time="ts")
        >>> for partial in db.sql("SELECT price FROM sales WHERE price > 1").progress(every="100 ms"):
        ...     print(partial.to_arrow().num_rows, partial.coverage, partial.done)
        2 1.0 False
        2 1.0 True
        """
        if self._progressing is None:
            raise ConfigError(f"progress: needed a SELECT; got a statement that is done: {self._state()}; ask a query")
        return Progress(self._progressing(), every)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`, for an approximate query; without a budget it is measured near 10 %.
        Anything above the operator (ORDER BY, LIMIT, expressions of SELECT) is ignored.
        """
        query = self.query
        if query is None or not (query.preference or query.budget or query.error):
            got = "an exact query" if query is not None else f"a statement without rows: {self._state()}"
            raise ConfigError(
                f"report: needed a query WITH PREFERENCE, BUDGET or ERROR, whose answer can fall short; got {got}; say "
                "WITH PREFERENCE desc, weighted or asc, and perhaps BUDGET 10 %"
            )
        if self._answering is None:
            raise NotYet(
                "report: needed a query that runs in this process; got one that Spark scans; leave engine='spark' out "
                "of the query, report(engine='spark') has Spark compute the exact answer"
            )
        ran = None if self._run is None else self._run.answer
        answer = self._answering() if ran is None else ran
        told: AccuracyReport = answer.measured(replace(wanted, query=query_text(query)))
        return told

    def explain(self, analyze: bool = False, form: ExplainedAs = "text") -> str:
        """The plan as a tree; analyze: run it to the end and show actual figures beside the expected ones.

        form: "text", or "json" for programs.
        What is found is kept where memory holds it, and otherwise only counted.
        If `progress` can answer a query WITH PREFERENCE, this says how; analyze runs that to its end too, and counts
        cells read and ruled out.
        """
        if self._explained is None:
            return self._state()
        if analyze and self._table is None:
            with within(self.room):
                held = held_if_room(self._read(self._begin()))
            self._table = None if held is None else contiguous(held, self._schema)
        explained = self._explained(self._run if analyze else None)
        for what, names in self.sharing().items():
            told = f"as a standing query: shares the {what} of {', '.join(names)}, once their states are equal"
            above = "shares_nested" if " over the " in what else "shares_part"
            value = {{"plan": "shares", "tuples": "shares_tuples"}.get(what, above): names}
            explained = Explained([*explained.lines, told], {**explained.values, **value})
        return explained.told(form, self._growing(analyze))

    def _growing(self, analyze: bool) -> list[str]:
        """How `progress` answers a query with a preference: lines, none where it cannot."""
        if self._progressing is None or self.query is None or self.query.preference is None:
            return []
        try:
            growing = self._progressing()
            if analyze:
                for _ in growing.steps():
                    growing.take()
        except (NotYet, ConfigError, MemoryRefused):
            return []
        return list(growing.explain())

    @property
    def plan(self) -> Any:
        """How it runs: the operator's plan of an approximate query, the bound query of an exact one."""
        answer = self.answer
        return self.query if answer is None else answer.plan

    @property
    def answer(self) -> Any:
        """The approximate operator's own answer, with all its figures; None for an exact query."""
        if self._run is None:
            self._begin_if_approximate()
        return None if self._run is None else self._run.answer

    def _begin_if_approximate(self) -> None:
        query = self.query
        if query is not None and (query.preference or query.budget or query.error):
            self.to_arrow()

    def _finished(self) -> Run:
        self.to_arrow()
        if self._run is None:
            raise ConfigError("result: needed a query; got a statement that has no rows to account for; ask a SELECT")
        return self._run

    @property
    def estimate(self) -> Estimate:
        """How many rows (or pairs) the exact answer has, as estimated from this one.  Runs the query to its end."""
        found = self._finished().estimate
        return Estimate.exact(float(len(self))) if found is None else found

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        """Of approximate aggregates: each number with its interval, by column, one per row; else {}."""
        if self._estimates is None:
            self._estimates = self._finished().estimates
        return self._estimates

    @property
    def overall(self) -> Estimate:
        """As `estimate`."""
        return self.estimate

    @property
    def bounds(self) -> TotalBounds | None:
        """Of the pairs of an approximate join, by sketches of all tuples: how many there are (`JoinAnswer.bounds`)."""
        return self._finished().bounds

    @property
    def coverage(self) -> float:
        """The share of what was asked about, in time, that was still held.  1 of an exact query."""
        return self._finished().coverage

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent.  Of an exact query: all of it."""
        return self._finished().budget

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected.  Runs the query to its end."""
        return self._finished().accounting

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """As `accounting`, in the order of the statement."""
        return tuple(self.accounting.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the rows are used.  Runs the query to its end."""
        return (*self._finished().warnings, *self.left_out())

    def left_out(self) -> tuple[str, ...]:
        accounts = {} if self._run is None else self._run.accounting
        return tuple(f"{alias}: {told}" for alias, each in accounts.items() if (told := each.left_out()))

    @property
    def figures(self) -> Any:
        """Counts and costs of an approximate run, as a dataclass; None for an exact query."""
        answer = self.answer
        return None if answer is None else answer.figures

    @property
    def memory(self) -> int:
        """Bytes that the run held beside the output.  Runs the query to its end."""
        return self._finished().memory

    @property
    def memory_bytes(self) -> int:
        """As `memory`."""
        return self.memory

    @property
    def spilled_bytes(self) -> int:
        """Bytes that the last run wrote to temporary files so far, for rows that memory did not hold.  Runs nothing."""
        return 0 if self._run is None else self._run.spilled

    def worth(self) -> str | None:
        """What an approximate answer is worth, in a few words; None where it is all there is, and exact."""
        query = self.query
        if query is None or not (query.preference or query.budget or query.error):
            return None
        return self._finished().worth()
