"""Standing queries over streaming DataFrames: from a statement to a DataFrame of what it tells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nile.base.raw import check_columns
from nile.base.times import check_time_type
from nile.execution.live.live import Live
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.spark.failure import spark_failures
from nile.spark.ingesting.drift import plain_schema
from nile.spark.masters import task_slots
from nile.spark.session import query_settings, spark_session
from nile.spark.standing.carrying import CARRIED, OUT, Dealer, Opener
from nile.spark.standing.keys import dealt_by
from nile.spark.standing.partition import SHORTEST, Asked, Fed, Partition, Worth
from nile.spark.standing.placing import places_of
from nile.spark.standing.processor import WORTH, Parts
from nile.sql.plan import leaves_of
from nile.streams.frames import frame_schema
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import PUBLIC
from nile.summaries.heavy import pa, spark_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamSource", "asked_for", "frame_of", "stream_query", "stream_worth", "told_schema"]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A streaming DataFrame as a stream.  time: its event-time column; lateness: the disorder to wait for, also between
    the streams of a query ("1 min", seconds, a timedelta); where: a condition in SQL that selects its tuples."""

    frame: DataFrame
    time: str
    lateness: str | float = "10 s"
    where: str | None = None


def stream_query(
    text: str, sources: Mapping[str, StreamSource], *, parts: int | None = None, **options: Any
) -> DataFrame:
    """The outputs of a standing query, as a streaming DataFrame for any sink of Structured Streaming.

        told = nile.spark.stream_query(
            "SELECT a.item, a.ts AS a, b.ts AS b FROM a, b WHERE a.item = b.item "
            "WITH PREFERENCE desc a.item WINDOW '1 min'",
            {"a": StreamSource(left, "ts"), "b": StreamSource(right, "ts")}, budget=0.3)
        told.writeStream.option("checkpointLocation", "progress/").toTable("pairs")

    text, options: as for `Database.subscribe`, exact or WITH PREFERENCE.  sources: the streams that it names.  parts:
    the number of partitions by key hash (None: as many as tasks run at once); it is fixed for the life of a
    query.  A budget as a fraction refers to each part's exact cost, hence to that of all.
    State is kept by Spark in RocksDB, and every tuple is in it exactly once, whatever is killed; late and rejected rows
    are counted (`stream_worth`).  Cost: of a micro-batch, reading and writing the state of all parts, the tuples of up
    to two windows.
    Raises ConfigError, and what `Database.subscribe` raises.
    """
    return frame_of(*asked_for(text, sources, parts, options), sources)


def frame_of(asked: Asked, probe: Partition, sources: Mapping[str, StreamSource]) -> DataFrame:
    """The outputs of what `asked_for` has checked.  Raises SparkFailed."""
    told = told_schema(probe.schema)
    session = next(iter(sources.values())).frame.sparkSession
    with spark_failures("standing query on Spark"), query_settings(session):
        session.conf.set(_PROVIDER, _ROCKS)
        dealt: DataFrame | None = None
        places = places_of(asked.parts)
        for number, fed in enumerate(asked.streams):
            source = sources[fed.name]
            dealer = Dealer(number, places, fed.time, fed.key, probe.is_dealt, probe.salt)
            # Without a watermark no row is Spark's to drop: late tuples are told by their stream.
            one = source.frame.select(*(f"`{name}`" for name in fed.schema.names)).mapInArrow(dealer.run, CARRIED)
            dealt = one if dealt is None else dealt.unionByName(one)
        assert dealt is not None
        by = dealt.groupBy("part", "place")
        found = by.transformWithStateInPandas(Parts(asked.as_json()), OUT, "append", "None")
        return found.mapInArrow(Opener(told).run, spark_types.from_arrow_schema(told))


def stream_worth(checkpoint: str | os.PathLike[str]) -> Worth:
    """How good the answer of a `stream_query` is as of its last micro-batch, by its checkpointLocation.

    Raises SparkFailed where there is none.
    """
    session = spark_session()
    with spark_failures(f"standing query on Spark, {os.fspath(checkpoint)}"), query_settings(session):
        session.conf.set(_PROVIDER, _ROCKS)
        rows = session.read.format("statestore").option("stateVarName", WORTH).load(os.fspath(checkpoint)).collect()
    return Worth.of_all([Worth.of_json(row["value"]["told"]) for row in rows])


def asked_for(
    text: str, sources: Mapping[str, StreamSource], parts: int | None, options: Mapping[str, Any]
) -> tuple[Asked, Partition]:
    """The query, checked, and a part of it.  Raises what `stream_query` raises."""
    if parts is not None and (type(parts) is not int or parts < 1):
        raise ConfigError(f"standing query on Spark, parts: needed a number from 1 on; got {parts!r}; leave it out")
    names = Registry(PUBLIC, None)
    live = Live(names)
    schemas: dict[str, pa.Schema] = {}
    for name, source in sources.items():
        where = f"stream '{name}'"
        if not isinstance(source, StreamSource) or not getattr(source.frame, "isStreaming", False):
            raise ConfigError(
                f"{where}: needed a StreamSource over a streaming DataFrame, as spark.readStream gives it; got "
                f"{_named(source)}; ask db.sql over what is whole"
            )
        schemas[name] = plain_schema(frame_schema(source.frame, where))
        check_columns(schemas[name], [source.time], where=where)
        check_time_type(schemas[name].field(source.time).type, where=f"{where}, column '{source.time}'")
        live.create(name, schemas[name], source.time, lateness=source.lateness, where=source.where, keep=SHORTEST)
    query = read_query(text, names, None)
    used = {leaf.name for leaf in leaves_of(query.plan)}
    keys = dealt_by(query)
    fed = []
    for name in sorted(used):
        needed = {leaf_name for leaf in leaves_of(query.plan) if leaf.name == name for leaf_name in
                  (field.name.removeprefix(f"{leaf.alias}.") for field in leaf.fields)}  # fmt: skip
        source, condition = sources[name], names.stream(name).where
        needed |= {source.time, keys[name], *(() if condition is None else condition.columns)}
        columns = pa.schema([field for field in schemas[name] if field.name in needed])
        fed.append(Fed(name, columns, source.time, source.lateness, keys[name], source.where))
    slots = task_slots(next(iter(sources.values())).frame.sparkSession)
    asked = Asked(text, dict(options), tuple(fed), parts or slots)
    return asked, Partition(asked)


def _named(source: object) -> str:
    if not isinstance(source, StreamSource):
        return f"a {type(source).__name__}"
    whole = " that is whole" if hasattr(source.frame, "isStreaming") else ""
    return f"a StreamSource over a {type(source.frame).__name__}{whole}"


def told_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as Spark has them: times to the microsecond."""
    return pa.schema([pa.field(field.name, _told_type(field.type)) for field in schema])


def _told_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _told_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_date64(kind):
        return pa.date32()
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    return wider.get(kind, kind)
