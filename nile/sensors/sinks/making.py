"""Sinks under the names that TO accepts, and rows of one answer through them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from nile.sensors.sinks.sink import Sink
from nile.summaries.errors import NileError, SourceError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["SINKS", "send_all", "sink_of"]

_LINES = lazy("nile.sensors.sinks.lines")
_HOMES = {
    "file": (_LINES, "Appended"),
    "http": (lazy("nile.sensors.sinks.http"), "Posted"),
    "kafka": (lazy("nile.sensors.sinks.kafka"), "Produced"),
    "mqtt": (lazy("nile.sensors.sinks.mqtt"), "Published"),
    "postgres": (lazy("nile.sensors.sinks.postgres"), "InsertedInto"),
    "redis": (lazy("nile.sensors.sinks.redis"), "Added"),
    "stdout": (_LINES, "Printed"),
    "websocket": (lazy("nile.sensors.sinks.websocket"), "Said"),
}
SINKS = tuple(_HOMES)
"""Their names."""


def sink_of(using: str, address: str, schema: pa.Schema) -> Sink:
    """A new sink of this name, one of SINKS.  Raises SourceError for an address that is none."""
    home, name = _HOMES[using]
    made: Sink = getattr(home, name)(address, schema)
    return made


def send_all(batches: Iterable[pa.RecordBatch], schema: pa.Schema, using: str, address: str) -> int:
    """Send rows once; how many.  Raises SourceError where the receiver does not take them, and what batches raise."""
    sink, sent, run = sink_of(using, address, schema), 0, time.time_ns()
    try:
        for batch in batches:
            for at in range(0, batch.num_rows, sink.rows):
                rows = batch.slice(at, sink.rows)
                try:
                    if not sent and not at:
                        sink.open()
                    sink.send(rows, [f"copy:{run}:{sent + k}" for k in range(rows.num_rows)])
                except NileError:
                    raise
                except Exception as error:
                    raise SourceError(
                        f"{sink.where}: needed it to take all rows; got {type(error).__name__}: {error} after {sent:,} "
                        "rows; the rest was not sent"
                    ) from error
                sent += rows.num_rows
    finally:
        sink.close()
    return sent
