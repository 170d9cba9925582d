"""The data pipeline on Spark.  Loaded on first use: `nile.spark.ingest` starts nothing until it is called.

Imports `nile.execution`, `nile.durable` and what lies below; each folder says which of them it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.summaries.lazy import lazy_names

if TYPE_CHECKING:
    from nile.spark.building.build import Built, build
    from nile.spark.exact.counts import exact_truth
    from nile.spark.exact.input import TupleFiles
    from nile.spark.exact.join import exact_join
    from nile.spark.exact.multiway import exact_many
    from nile.spark.exact.rows import exact_aggregates, exact_selection
    from nile.spark.ingesting.ingest import Ingested, ingest
    from nile.spark.ingesting.of_lake import lake, tuple_files
    from nile.spark.session import spark_session, stop_session
    from nile.spark.sink.sink import StreamSink, stream_sink
    from nile.spark.standing.query import StreamSource, stream_query, stream_worth

__all__ = [
    "Built",
    "Ingested",
    "StreamSink",
    "StreamSource",
    "TupleFiles",
    "build",
    "exact_aggregates",
    "exact_join",
    "exact_many",
    "exact_selection",
    "exact_truth",
    "ingest",
    "lake",
    "spark_session",
    "stop_session",
    "stream_query",
    "stream_sink",
    "stream_worth",
    "tuple_files",
]

_HOMES = {
    "Built": "building.build",
    "Ingested": "ingesting.ingest",
    "StreamSink": "sink.sink",
    "StreamSource": "standing.query",
    "TupleFiles": "exact.input",
    "build": "building.build",
    "exact_aggregates": "exact.rows",
    "exact_join": "exact.join",
    "exact_many": "exact.multiway",
    "exact_selection": "exact.rows",
    "exact_truth": "exact.counts",
    "ingest": "ingesting.ingest",
    "lake": "ingesting.of_lake",
    "spark_session": "session",
    "stop_session": "session",
    "stream_query": "standing.query",
    "stream_sink": "sink.sink",
    "stream_worth": "standing.query",
    "tuple_files": "ingesting.of_lake",
}
__getattr__ = lazy_names(__name__, {name: f"nile.spark.{home}" for name, home in _HOMES.items()})
