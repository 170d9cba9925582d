"""The database a user talks to: registered streams and queries over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from nile.answers.result import Result
from nile.engine.builders import Builders
from nile.execution.live.live import Live
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.execution.statement.changing import is_changing, run_changing
from nile.execution.statement.control import control_tables, update_control
from nile.execution.statement.statements import run_statement
from nile.report.truth import ELSEWHERE
from nile.sensors.table import Table
from nile.sql.files import named_files
from nile.sql.inside import check_names_no_file, check_stays_inside
from nile.sql.reading.plan_json import is_plan, sql_of_plan
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Copy, Describe, Explain, Select, Show, Update
from nile.streams.accounting import Accounting
from nile.summaries.errors import UnknownStream
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.durable.keeper import Keeper
    from nile.engine import spark_truth
    from nile.spark.scan import scan
else:
    scan = lazy("nile.spark.scan.scan")
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

    def __init__(self, keeper: Keeper | None = None, hasher: KeyHasher = PUBLIC, *, threads: int | None = None) -> None:
        self._names = Registry(
            hasher, lambda names, query, options: scan.scanned(names, query, options), threads=threads
        )
        self._live = Live(self._names, keeper)

    def __enter__(self) -> Database:
        self._names.check_open()
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
        """Forget all streams and end standing queries.  Answers already given keep what they need, all else that is
        asked of the database, or of queries made by it, raises DatabaseClosed.  Closing again does nothing.

        A database with a store writes a last checkpoint and lets the store go: nothing in it ends.  Raises what a
        callback raises, and StoreWriteError when the checkpoint could not be written.
        """
        self._live.close()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams registered."""
        return tuple(name for name, entry in self._names.entries.items() if entry.is_stream)

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the stored relations registered."""
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
        """Make a stream known as `name`, or a stored relation.

        source: a path to a Parquet or CSV file or a glob of them, a pandas, Polars (lazy too) or Spark DataFrame, a
        pyarrow table, reader or dataset, a DuckDB relation, anything with `__arrow_c_stream__`, an iterable of record
        batches, or a callable that returns one of these.  time: its event-time column; None: a stored relation, whose
        rows hold at all times (a column of a time type is not taken for one unasked).  where: a condition in SQL that
        selects its tuples.  lateness: how far out of order a tuple may be and still be put in order; later ones are
        counted and kept apart; None: any disorder is an error.  Opens the source, reads nothing but its schema.
        replace: whether a name that is there already, with another source or other settings, is taken over; else it is
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

        CREATE, DROP, SHOW, DESCRIBE and COPY act at once; a SELECT gives a Result that runs when it is read.  FROM
        takes files too: 'sales/*.parquet'.  files: False for text of strangers: a statement that names files, or code
        (CREATE SENSORS), is refused before anything is opened.  params: for ? or $name. options: see
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
        if isinstance(statement, Select | Explain | Show | Describe | Copy):
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
        """Make a live stream known as `name`: it has no source, you `push` to it.

        keep: how much event time later queries can still read; None: all of it.  event_id: the column that tells
        events apart: what comes again within the lateness, with its id and time, is rejected.  idle: how long
        it may be silent before its time moves on without it: as fast as the clock, and at least with the streams that
        stand in a query with it; what then comes too late counts as late.  Both need a lateness.  stamp: its time is
        when rows are pushed (processing time), whatever they say of it.  extra: what becomes of rows pushed with
        columns that it does not have: refused, or taken without these, which `accounting` counts as `dropped`.  Others
        as in `register`.
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
        """The table that CREATE SENSORS made: add, change and remove rows, see sources.  Raises UnknownStream."""
        found = self._names.sensors(name)
        if found is None:
            raise UnknownStream(f"sensors {name!r}: needed a table that CREATE SENSORS made; got none of that name")
        return found.table

    def push(self, name: str, data: Any, *, offset: Any = None) -> int:
        """Push rows to a live stream (a record batch, table, DataFrame, dict of columns, or an iterable of these).

        Standing queries are worked on before it returns.  Returns how many tuples' turn has come.  offset: where in
        its source the stream is after these rows (any JSON value): a checkpoint holds it together with the rows, and
        rows pushed with one are taken all or none.  A column `_sign` that the stream has not tells rows that come (1)
        from rows that go (-1): these are taken back, see DELETE in docs/sql.md.
        Raises UnknownStream, SourceError, UnknownColumn, TimestampOrderError, ConfigError, and StoreWriteError when a
        checkpoint was due and could not be written: then nothing was taken, push it again.
        """
        return self._live.push(name, data, offset)

    def offset(self, name: str) -> Any:
        """The last `offset` that was pushed to a live stream, or how many rows were; after a crash, go on from there.

        Raises UnknownStream.
        """
        return self._live.offset(name)

    def checkpoint(self) -> int:
        """Write all that is known to the store now; returns the store's epoch.  Raises ConfigError, StoreWriteError."""
        return self._live.checkpoint()

    def advance(self, time: Any, name: str | None = None) -> None:
        """Say that no tuple older than `time` will come, of one live stream or of all: what waits for it moves on.

        time: ISO text, a datetime, or seconds since 1970.  Raises ConfigError, UnknownStream.
        """
        self._live.advance(time, name)

    def accounting(self, name: str) -> Accounting:
        """Of a live stream: in = applied + late + shed + rejected.  Raises UnknownStream."""
        return self._live.accounting(name)

    def late(self, name: str) -> pa.Table:
        """The rows of a live stream that came too late: row (from 1), ts, key (the time as it came).

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
        """A standing query over live streams; it sees what is pushed from now on.

        callback: called with each batch in the thread that pushes; None: `poll()`, iterate or `follow()` the
        subscription.  name: with one, a store keeps the query and its state, and asking for it again (also by another
        process, later) goes on with it.  unread: how many
        rows may wait for the reader; a push may add its own beyond it (None: with a store any number, which go to its
        files; in memory a 32nd of the machine, beyond which pushes are refused with Overloaded); when_full: then pushes
        to its streams "wait" for the reader, who is another thread, or "refuse" with Overloaded, having taken nothing,
        or the oldest rows are "drop"ped and counted (`dropped`).  Its state may take a quarter of the machine: pushes
        to a query without a WINDOW, or of groups without end, are refused beyond that.
        options: emit, scheduling, algorithm.  Raises SqlError, NotYet, ConfigError.
        """
        query = read_query(text, self._names, params)
        return self._live.subscribe(query, Options.of(options), callback, name=name, unread=unread, when_full=when_full)

    def subscription(self, name: str) -> Subscription:
        """A standing query that has a name.  Raises UnknownStream."""
        return self._live.subscription(name)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The names of the standing queries that have one."""
        return tuple(self._live.unread())

    @property
    def unread(self) -> dict[str, int]:
        """Rows that wait for a reader, of each standing query with a name: also of those that a store brought back and
        nobody has asked for since.  They are kept until somebody reads or closes it, in the store's files.
        """
        return self._live.unread()
