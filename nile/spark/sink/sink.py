"""A sink for Structured Streaming: each epoch of a query goes into a live stream of a store, exactly once.

    epoch -> columns as ever? -> count and digest -> already in? -> order -> pushed in pieces -> checkpoint -> return

Spark writes an epoch into its own log only after the sink has returned, so after a crash it gives the last epoch
again: the same rows, perhaps in another order.  With every piece that is pushed the store keeps the epoch and how many
of its rows are in, and rows have one order whichever way Spark reads them: what is in is left out, the rest follows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from nile.base.raw import check_columns
from nile.engine.connect import connect
from nile.engine.database import Database
from nile.spark.celltypes import check_carried
from nile.spark.failure import spark_failures
from nile.spark.ingesting.drift import drift_of, plain_schema
from nile.spark.ingesting.rows import name_sql
from nile.spark.session import query_settings
from nile.spark.sink.place import Place
from nile.spark.sqltypes import time_sql
from nile.streams.accounting import Accounting
from nile.streams.frames import frame_schema
from nile.summaries.errors import ConfigError, SchemaDrift
from nile.summaries.heavy import pa
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamSink", "stream_sink"]

_A_TURN = 262_144  # rows that come from Spark in one go; beside Spark, an epoch takes the memory of so many
_A_PUSH = 65_536
_QUERY_ID = "sql.streaming.queryId"


def stream_sink(
    source: DataFrame,
    store: str | os.PathLike[str] | Database,
    *,
    stream: str,
    time: str,
    lateness: str | float | timedelta | None,
    where: str | None = None,
    keep: str | float | timedelta | None = None,
    event_id: str | None = None,
    order: Sequence[str] = (),
    memory: int | str | None = None,
    new_query: bool = False,
) -> StreamSink:
    """A sink that writes the rows of `source`, a streaming DataFrame, to the stream `stream` of a store.

        sink = nile.spark.stream_sink(sales, "store/", stream="sales", time="ts", lateness="1 min")
        query = sales.writeStream.foreachBatch(sink).option("checkpointLocation", "progress/").start()
        sink.db.sql("SELECT ...")

    store: a directory, opened (or created) for writing until `close`, or a Database with a store.  time, lateness,
    where, keep, event_id: as for `Database.stream`, which creates the stream if missing; its columns are those of
    `source`.  order: columns, such as an offset, that order rows of equal time; then all others do.  memory: as for
    `nile.connect`.  new_query: accept a query that the stream does not know; by default that is an error.
    Raises SchemaDrift, ConfigError, SourceError, UnknownColumn and what `nile.connect` raises.
    """
    place = f"stream '{stream}'"
    if type(source).__module__.startswith("pyspark.sql.connect."):
        raise ConfigError(
            f"{place}: needed a session of Spark in this process, whose foreachBatch runs here; got one of Spark "
            "Connect, which runs it on the server; run the query in the process of the driver"
        )
    found = plain_schema(frame_schema(source, place))
    check_columns(found, [time, *order], where=place)
    for field in found:
        check_carried(field.type, where=f"{place}: column '{field.name}'")
    owned = not isinstance(store, Database)
    db = store if isinstance(store, Database) else connect(store, memory=memory, checkpoint=None)
    try:
        if stream in db.streams:
            _check_drift(db.schema(stream), found, place)
            found = db.schema(stream)
        db.stream(stream, found, time=time, lateness=lateness, where=where, keep=keep, event_id=event_id)
        db.checkpoint()
    except BaseException:
        if owned:
            db.close()
        raise
    return StreamSink(db, stream, order=tuple(order), new_query=new_query, owned=owned)


class StreamSink:
    """What `foreachBatch` calls.  Make one with `stream_sink`; it may serve one query after another.

    db: the database, in which queries may be asked and subscribed to while the stream fills; stream: its name.
    An epoch is durable when the call returns.  One that fails is tried again when the query is started again, and
    goes on after the rows that were taken.  Cost: an epoch is read once, counted, sorted and brought to this
    process in turns of 262,144 rows; memory outside Spark does not grow with the epoch.
    """

    def __init__(self, db: Database, stream: str, *, order: tuple[str, ...], new_query: bool, owned: bool) -> None:
        self.db = db
        self.stream = stream
        self._new_query = new_query
        self._owned = owned
        self._turn = threading.Lock()  # a stopped query's last call may still run when the next query begins
        schema, time = db.schema(stream), db.time_column(stream)
        self._columns = [name_sql(name) for name in schema.names]
        kind = schema.field(time).type
        # Text is ordered by the instant that it says; so that late rows are those that came in a later epoch.
        instant = time_sql(name_sql(time), kind).ns if pa.types.is_string(kind) else name_sql(time)
        first = [name_sql(name) for name in order]
        zeros = [f"CAST({name_sql(one.name)} AS STRING)" for one in schema if pa.types.is_floating(one.type)]
        self._order = [instant, *first, *(name for name in self._columns if name not in first), *zeros]

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Take an epoch, or what of it is not in the stream yet, and make it durable.

        Raises SchemaDrift, StoreError (the query's checkpoint and the store do not belong together), StoreWriteError,
        SparkFailed, and what `Database.push` raises.
        """
        where = f"stream '{self.stream}', epoch {epoch}"
        session = frame.sparkSession
        query = session.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise ConfigError(
                f"{where}: needed a call by a streaming query; got one without; write query.foreachBatch(sink)"
            )
        with self._turn, spark_failures(where), query_settings(session):
            _check_drift(self.db.schema(self.stream), plain_schema(frame_schema(frame, where)), where)
            with _cached(frame.selectExpr(*self._columns)) as rows:
                hashed = rows.selectExpr(f"CAST(xxhash64({', '.join(self._columns)}) AS DECIMAL(38, 0)) AS h")
                total, count = hashed.selectExpr("sum(h)", "count(*)").collect()[0]
                begun = Place(query, epoch, str(total), count)
                self._take(rows, self._next(begun, where))
            self.db.checkpoint()

    def __getstate__(self) -> object:
        """A sink stays in the process of its store.  Raises ConfigError: Spark Connect would send it to the server."""
        raise ConfigError(
            f"stream '{self.stream}': needed a Spark of this process, beside the store; got Spark Connect, which runs "
            "foreachBatch in the server; start the query from spark_session(), or spark_session(master=...)"
        )

    def __enter__(self) -> StreamSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def place(self) -> Place | None:
        """The query, epoch and rows that the stream has come to; None: nothing yet."""
        return Place.of(self.db.offset(self.stream))

    @property
    def accounting(self) -> Accounting:
        """in = applied + late + shed + rejected, over all epochs."""
        return self.db.accounting(self.stream)

    def close(self) -> None:
        """Close the database that the sink opened.  Stop the query before."""
        if self._owned:
            self.db.close()

    def _next(self, epoch: Place, where: str) -> Place:
        """Where to go on in an epoch of which nothing may be taken yet."""
        return Place.after(self.db.offset(self.stream), epoch, where=where, new_query=self._new_query)

    def _take(self, rows: DataFrame, place: Place) -> None:
        if not place.rows:
            self.db.push(self.stream, [], offset=place.as_json())
        if place.done:
            return
        passed = 0
        for batch in self._ordered(rows, place.rows):
            new = batch.slice(max(0, place.taken - passed))
            passed += len(batch)
            if len(new):
                place = place.further(len(new))
                self.db.push(self.stream, new, offset=place.as_json())

    def _ordered(self, rows: DataFrame, count: int) -> Iterator[pa.RecordBatch]:
        """The rows in their order, a bounded number at a time."""
        turns = -(-count // _A_TURN)
        order = [functions.expr(one) for one in self._order]
        arranged = rows.repartitionByRange(turns, *order).sortWithinPartitions(*order)
        with _cached(arranged) if turns > 1 else nullcontext(arranged) as ordered:
            for turn in range(turns):
                one = ordered.where(functions.spark_partition_id() == turn)
                yield from one.toArrow().to_batches(_A_PUSH)


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    """A DataFrame that is computed once and kept by Spark, on disk where memory ends, for as long as inside."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _check_drift(stream: pa.Schema, found: pa.Schema, where: str) -> None:
    drift = drift_of(stream, found)
    if drift.added or drift.dropped or drift.retyped:
        raise SchemaDrift(
            f"{where}: needed the columns of the stream; those of the query differ; select and cast them before "
            f"writeStream, or make a stream of another name\n{drift}"
        )
