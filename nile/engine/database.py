"""The database users work with: registered streams and queries over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from nile.answers.result import Result
from nile.base.durations import parse_duration
from nile.engine.builders import Builders
from nile.execution.live.live import Live
from nile.execution.live.means.bounds import Means
from nile.execution.live.scheduled import Schedule
from nile.execution.live.shared.sharers import sharers_of
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.execution.statement.changing import is_changing, run_changing
from nile.execution.statement.control import control_tables
from nile.execution.statement.control_update import update_control
from nile.execution.statement.reducing import reduced
from nile.execution.statement.statements import run_statement
from nile.report.truth import ELSEWHERE
from nile.sensors.table import Table
from nile.sql.files import named_files
from nile.sql.inside import check_names_no_file, check_options_name_no_file, check_stays_inside
from nile.sql.reading.plan_json import is_plan, sql_of_plan
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Copy, Describe, Explain, Select, Show, Summarize, Update
from nile.sql.text import query_text
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError, SparkFailed, UnknownStream
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.durable.keeper import Keeper
    from nile.engine import spark_truth
    from nile.spark.standing import started
else:
    started = lazy("nile.spark.standing.started")
    spark_truth = lazy("nile.engine.spark_truth")

__all__ = ["Database"]

ELSEWHERE["spark"] = lambda joined: spark_truth.exact_pairs_by_spark(joined)


class Database(Builders):
    """Streams, stored relations and summaries by name.  Use as a context manager or call `close`; both are optional.

    >>> import nile
    >>> with nile.connect() as db:
    ...     _ = db.register("sales", {"ts": [0.0, 60.0], "item": ["tea", "cup"]}, time="ts")
    ...     db.sql("SELECT item FROM sales WHERE item <> ?", ["cup"]).fetchall()
    [('tea',)]
    """

    def __init__(
        self,
        keeper: Keeper | None = None,
        hasher: KeyHasher = PUBLIC,
        *,
        threads: int | None = None,
        means: Means | None = None,
        room: int | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._by_spark: list[started.StandingResult] = []
        scratch = None if keeper is None or keeper.directory.read_only else keeper.directory.path
        self._names = Registry(
            hasher, lambda names, query, options: started.on_spark(names, query, options, self._by_spark.append),
            threads=threads, room=room, scratch=scratch,
        )  # fmt: skip
        self._live = Live(self._names, keeper, means, schedule)

    def __enter__(self) -> Database:
        try:
            self._names.check_open()
        except BaseException:  # Ctrl-C: no `with` will close it
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._names.closed:
            return "<nile.Database: closed>"
        return f"<nile.Database: {', '.join(self._names.entries) or 'no streams'}>"

    def close(self) -> None:
        """Drop all streams and end standing queries.  Answers already returned keep what they need; any other use of
        the database, or of its queries, raises DatabaseClosed.  Closing again does nothing.

        A database with a store writes a last checkpoint and releases the store; nothing in the store ends.  Raises
        what a callback raises, and StoreWriteError if the checkpoint could not be written.
        """
        while self._by_spark:
            with suppress(SparkFailed):  # ended with the Spark that ran it
                self._by_spark.pop().stop()
        try:
            self._live.close()
        except BaseException:  # Ctrl-C before it was closed: who leaves a `with` has no second chance
            self._live.close()
            raise

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the registered streams."""
        return tuple(name for name, entry in self._names.entries.items() if entry.is_stream)

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the registered stored relations."""
        return tuple(name for name, entry in self._names.entries.items() if not entry.is_stream)

    def register(
        self,
        name: str,
        source: Any,
        *,
        time: str | None = None,
        where: str | None = None,
        lateness: str | float | timedelta | None = None,
        replace: bool = False,
    ) -> Database:
        """Register a source as the stream, or stored relation, `name`.

        source: a path to a file of Parquet, CSV or JSON lines or a glob of them, a pandas, Polars (lazy too) or Spark
        DataFrame, a pyarrow table, reader or dataset, a DuckDB relation, anything with `__arrow_c_stream__`, an
        iterable of record batches, or a callable that returns one of these.  time: its event-time column; None: a
        stored relation, whose rows are valid at all times (a time column is never picked automatically).  where: a
        condition in SQL that selects its tuples.  lateness: how far out of order a tuple may arrive and still be
        sorted in; later ones are counted and kept apart; None: any disorder is an error (of a streaming DataFrame of
        Spark, which `sql` with engine="spark" queries: 10 s, for Spark has no order).  Opens the source, but reads
        only its schema.
        replace: whether to replace an existing name that has another source or other settings; otherwise that is
        refused.  Warns of a condition that contradicts itself.  Raises SourceMissing, SourceError, UnknownColumn,
        ExpressionError, ConfigError.
        """
        self._live.change(
            lambda: self._names.register(name, source, time=time, where=where, lateness=lateness, replace=replace)
        )
        return self

    def sql(
        self,
        text: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        files: bool = True,
        **options: Any,
    ) -> Result:
        """Run one statement of Nile SQL.

        CREATE, DROP, SHOW, DESCRIBE and COPY run at once; a SELECT returns a Result that runs when it is read (of
        streaming DataFrames, with engine="spark", a standing query that Spark runs from now on).  FROM
        accepts files too: 'sales/*.parquet'.  files: pass False for untrusted text: a statement that names files, or
        code (CREATE SENSORS), is then refused before anything is opened.  params: values for ? or $name.  options: see
        `nile.execution.options.Options`: budget, emit, algorithm, scheduling, windows, output, method, guide, costs,
        seed, outlier_cap, replay and more.
        Raises SqlError with line and column, NotYet, ConfigError, BudgetError, and what reading raises once the result
        is read.

        >>> import nile
        >>> db = nile.connect()
        >>> _ = db.register("sales", {"ts": [0.0, 60.0, 90.0], "item": ["tea", "cup", "tea"]}, time="ts")
        >>> db.sql("SELECT item, count(*) AS n FROM sales GROUP BY item").fetchall()
        [('tea', 2), ('cup', 1)]
        """
        text, named = named_files(sql_of_plan(text) if is_plan(text) else text)
        if not files:
            check_names_no_file(named)
            check_options_name_no_file(options)
        told = control_tables(self._live, text)
        names = self._names.with_sources(named, told) if named or told else self._names
        statement = read_statement(text, names, params=params)
        if not files:
            check_stays_inside(statement)
        asked = Options.of(options)
        if isinstance(statement, Update) and statement.name in told:
            return update_control(self._live, statement)
        if is_changing(statement):
            return run_changing(self._live, statement, asked)
        if isinstance(statement, Select | Explain):
            return run_statement(names, statement, asked, partial(sharers_of, self._live, statement.query, asked))
        if isinstance(statement, Show | Describe | Summarize | Copy):
            return run_statement(names, statement, asked)
        result: Result = self._live.change(lambda: run_statement(self._names, statement, asked))
        return result

    def stream(
        self,
        name: str,
        schema: pa.Schema | Sequence[tuple[str, Any]],
        *,
        time: str,
        lateness: str | float | timedelta | None = None,
        where: str | None = None,
        keep: str | float | timedelta | None = None,
        event_id: str | None = None,
        idle: str | float | timedelta | None = None,
        stamp: bool = False,
        extra: Literal["refuse", "drop"] = "refuse",
    ) -> None:
        """Create the live stream `name`, to which you `push`; in SQL CREATE STREAM name (column type, ...).

        keep: how much event time later queries can still read; None: all of it.  event_id: the column that identifies
        events: duplicates within the lateness, with the same id and time, are rejected.  idle: how long the stream may
        be silent before its time advances without pushes: as fast as the clock, and no slower than the streams it is
        queried with; rows that then arrive too late count as late.  Both need a lateness.  stamp: stamp rows with the
        time at which they are pushed (processing time), whatever they contain.  extra: whether pushed rows with
        columns that the stream does not have are refused, or accepted without these columns, which `accounting` counts
        as `dropped`.  Others as in `register`.
        Raises SourceError, UnknownColumn, ExpressionError, ConfigError.
        """
        self._live.create(
            name,
            schema,
            time,
            lateness=lateness,
            where=where,
            keep=keep,
            event_id=event_id,
            idle=idle,
            stamp=stamp,
            extra=extra,
        )

    def sensors(self, name: str) -> Table:
        """The table made by CREATE SENSORS: add, change and remove rows, list sources.  Raises UnknownStream."""
        found = self._names.sensors(name)
        if found is None:
            raise UnknownStream(f"sensors {name!r}: needed a table that CREATE SENSORS made; got none of that name")
        return found.table

    def push(self, name: str, data: Any, *, offset: Any = None) -> int:
        """Push rows to a live stream (a record batch, table, DataFrame, dict of columns, or an iterable of these).

        Standing queries are up to date when it returns.  Returns how many tuples are now in order and final.  offset:
        the source's position after these rows (any JSON value): it is committed together with the rows, and
        rows pushed with an offset are accepted all or none.  A column `_sign`, if the stream has none, distinguishes
        new rows (1) from retractions (-1), see DELETE in docs/sql.md.
        Raises UnknownStream, SourceError, UnknownColumn, TimestampOrderError, ConfigError, and StoreWriteError if a
        checkpoint was due and could not be written: then nothing was accepted; push the rows again.
        """
        return self._live.push(name, data, offset)

    def run(self, seconds: float | None = None) -> int:
        """Work on what waits in queues between operators of standing queries; how many tuples wait after that.

        Streams that are `idle` move on, as they do with every push and `poll`.
        seconds: of CPU time, at most about; None: until nothing waits.  Without `connect(quantum=)` nothing ever does.
        Raises ConfigError, and what a callback or a standing query raises.
        """
        return self._live.run(seconds)

    def offset(self, name: str) -> Any:
        """The last `offset` pushed to a live stream, else the number of rows pushed; after a crash, resume from there.

        Raises UnknownStream.
        """
        return self._live.offset(name)

    def checkpoint(self) -> int:
        """Write a checkpoint to the store now; returns the store's epoch.  Raises ConfigError, StoreWriteError."""
        return self._live.checkpoint()

    def advance(self, time: Any, name: str | None = None) -> None:
        """Declare that no tuple older than `time` will come, to one live stream or to all: a watermark.

        time: ISO text, a datetime, or seconds since 1970.  Raises ConfigError, UnknownStream.
        """
        self._live.advance(time, name)

    def accounting(self, name: str) -> Accounting:
        """The accounting of a live stream: in = applied + late + shed + rejected.  Raises UnknownStream."""
        return self._live.accounting(name)

    def late(self, name: str) -> pa.Table:
        """The late rows of a live stream: row (from 1), ts, key (the time as pushed).

        Raises UnknownStream.
        """
        return self._live.set_aside(name)[0]

    def quarantine(self, name: str) -> pa.Table:
        """The rejected rows of a live stream: reason, row (from 1), raw.  Raises UnknownStream."""
        return self._live.set_aside(name)[1]

    def subscribe(
        self,
        text: str,
        callback: Callable[[pa.RecordBatch], None] | None = None,
        *,
        name: str | None = None,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        unread: int | None = None,
        when_full: str = "wait",
        **options: Any,
    ) -> Subscription:
        """Start a standing query over live streams; it sees what is pushed from now on.

        callback: called with each batch in the thread that pushes; None: `poll()`, iterate or `follow()` the
        subscription.  name: a store keeps named queries and their state, and subscribing again under the same name
        (also from another process, later) resumes the query.  unread: how many rows may wait for the reader; a single
        push may exceed it (None: with a store any number, which spill to its files; in memory 1/32 of the machine's
        memory, beyond which pushes are refused with Overloaded).  when_full: beyond that, pushes to its streams "wait"
        for the reader, in another thread, or "refuse" with Overloaded before anything is accepted, or the oldest rows
        are "drop"ped and counted (`dropped`).  The state may take a quarter of the machine's memory, or as much as
        connect's `memory`: pushes to a query without a WINDOW, or with ever more groups, are refused beyond that.
        options: emit, scheduling, algorithm.  Raises SqlError, NotYet, ConfigError.
        """
        query = read_query(text, self._names, params)
        return self._live.subscribe(query, Options.of(options), callback, name=name, unread=unread, when_full=when_full)

    def reduced(self, text: str, *, window: str | float | timedelta | None = None, sample: float | None = None) -> str:
        """The text of a query that takes less: no window longer than `window` (a whole stream gets one), and of each
        stream at most the share `sample` of its tuples (SAMPLE), by which counts and sums are scaled.

        What is returned is what would run: read it, EXPLAIN it, and ask it with `sql` or `subscribe`.  Raises SqlError,
        and ConfigError where less input could make more output (under DISTINCT, right of EXCEPT, NOT EXISTS, outer
        joins).
        Source: STREAM (CIDR 2003), section 5.1.
        """
        if sample is not None and (
            isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1
        ):
            raise ConfigError(f"reduced, sample: needed a share above 0 and up to 1; got {sample!r}; say sample=0.1")
        length = None if window is None else parse_duration(window, where="reduced, window")
        made = query_text(reduced(read_query(text, self._names, None), length, sample))
        read_query(made, self._names, None)
        return made

    def subscription(self, name: str) -> Subscription:
        """The standing query called `name`.  Raises UnknownStream."""
        return self._live.subscription(name)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The names of the named standing queries."""
        return tuple(self._live.unread())

    @property
    def unread(self) -> dict[str, int]:
        """Unread rows per named standing query, also of queries restored from a store that nobody has asked for since.
        They are kept until somebody reads them or closes the query, in the store's files.
        """
        return self._live.unread()
