"""A process that streams files of a known stream into a store, for ever: `python tests/spark_sink_child.py FOLDER`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import nile
from nile.spark import StreamSink
from nile.spark.sink_place import Place
from pyramid.manager_state import manager_bytes
from summaries.envelope import pack

SALES = pa.schema([("at", pa.float64()), ("item", pa.string()), ("n", pa.int64())])


class Careless(StreamSink):
    """The control: a sink that takes whatever it is given."""

    def _next(self, epoch: Place, _: str) -> Place:
        return epoch


def sales(begin: int, end: int) -> pa.Table:
    """Rows of the source: out of order, some too late, some without a time, some alike in all columns."""
    rng = random.Random(begin)
    at = [
        None if i % 41 == 0 else 0.5 * i - (40.0 if i % 29 == 0 else rng.randrange(20) / 4) for i in range(begin, end)
    ]
    items = [None if i % 31 == 0 else f"item {rng.randrange(12)}" for i in range(begin, end)]
    return pa.table([at, items, [i - i % 2 for i in range(begin, end)]], schema=SALES)


def in_order(table: pa.Table) -> pa.Table:
    """The rows by (at, item, n), nulls first: the order of the sink."""
    rows = sorted(table.to_pylist(), key=lambda row: [(cell is not None, cell or 0) for cell in row.values()])
    return pa.Table.from_pylist(rows, schema=SALES)


def prepared(db: nile.Database) -> nile.Database:
    """With the stream and a summary of it, if they are not there."""
    db.stream("sales", SALES, time="at", lateness="10 s")
    if not db.sql("SHOW SUMMARIES").fetchall():
        db.sql("CREATE SUMMARY items ON sales (item) WITH GRANULARITY '30 s' AND COLLAPSE (3, 2)")
    return db


def twin(epochs: Sequence[pa.Table]) -> nile.Database:
    """A database that was pushed the same epochs, in order, and never stopped."""
    db = prepared(nile.connect())
    for table in epochs:
        db.push("sales", in_order(table), offset=0)
    return db


def seen(db: nile.Database) -> dict[str, Any]:
    """All that must be the same; what still waits for its turn is in "stream"."""
    return {
        "stream": pack("live stream", *db._live.get("sales").content()),
        "rows": db.sql("SELECT * FROM sales").to_arrow().to_pydict(),
        "accounting": db.accounting("sales"),
        "late": db.late("sales").to_pydict(),
        "rejected": db.quarantine("sales").to_pydict(),
        "summary": manager_bytes(db.summary("items")),
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what differs; the values are too long to be shown side by side."""
    return [name for name in one if one[name] != other[name]]
