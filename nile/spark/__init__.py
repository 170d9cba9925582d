"""The data pipeline on Spark.  Loaded on first use: `nile.spark.ingest` starts nothing until it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from summaries.lazy import lazy_names

if TYPE_CHECKING:
    from nile.spark.building import Built, build
    from nile.spark.exact import exact_join
    from nile.spark.exact_counts import exact_truth
    from nile.spark.exact_input import TupleFiles
    from nile.spark.exact_multiway import exact_many
    from nile.spark.exact_rows import exact_aggregates, exact_selection
    from nile.spark.ingesting import Ingested, ingest
    from nile.spark.of_lake import lake, tuple_files
    from nile.spark.session import spark_session, stop_session
    from nile.spark.sink import StreamSink, stream_sink

__all__ = [
    "Built",
    "Ingested",
    "StreamSink",
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
    "stream_sink",
    "tuple_files",
]

_HOMES = {
    "Built": "building",
    "Ingested": "ingesting",
    "StreamSink": "sink",
    "TupleFiles": "exact_input",
    "build": "building",
    "exact_aggregates": "exact_rows",
    "exact_join": "exact",
    "exact_many": "exact_multiway",
    "exact_selection": "exact_rows",
    "exact_truth": "exact_counts",
    "ingest": "ingesting",
    "lake": "of_lake",
    "spark_session": "session",
    "stop_session": "session",
    "stream_sink": "sink",
    "tuple_files": "of_lake",
}
__getattr__ = lazy_names(__name__, {name: f"nile.spark.{home}" for name, home in _HOMES.items()})
