"""A process that streams files of a known stream into a store, for ever.

`python tests/harness/child_spark_sink.py FOLDER`: a query with its files (in), progress and store there; an epoch reads
a file.  With "careless" after it, the sink does not look at epochs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import nile
from nile.pyramid.grid.manager_state import manager_bytes
from nile.spark import StreamSink, spark_session, stream_sink
from nile.spark.sink.place import Place
from nile.summaries.envelope import pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of a Spark that starts often and sees few rows: optimised and generated code would never pay for itself.
QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

PAUSE = 0.5  # seconds, at most, between the store's commit and Spark's own, so that kills come there too

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


def add_file(source: Path) -> None:
    """The next file, which is there whole or not at all, and younger than those before."""
    number = len(list(source.glob("*.parquet")))
    pq.write_table(file_rows(number), source / f"_{number}.tmp")
    os.utime(source / f"_{number}.tmp", (10**9 + number * 60,) * 2)
    (source / f"_{number}.tmp").rename(source / f"{number:06}.parquet")


def file_rows(number: int) -> pa.Table:
    """What file `number` brings."""
    return sales(number * 40, number * 40 + 40)


def files_until(progress: Path, epoch: int) -> int:
    """How many files are in the epochs up to this one, by Spark's own log.

    One an epoch, but that an epoch which Spark had not written down when it was killed may come back with the next.
    """
    return int(json.loads((progress / f"offsets/{epoch}").read_text().splitlines()[-1])["logOffset"]) + 1


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Stream until killed; says how many epochs are durable."""
    session = spark_session("sink", cores=1)
    for name, value in QUICK.items():
        session.conf.set(name, value)
    folder = Path(sys.argv[1])
    (folder / "in").mkdir(exist_ok=True)
    frame = session.readStream.schema("at double, item string, n bigint").option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(folder / "in"))
    sink = stream_sink(frame, folder / "store", stream="sales", time="at", lateness="10 s")
    prepared(sink.db)
    if sys.argv[2:] == ["careless"]:
        sink.__class__ = Careless
    for _ in range(4):
        add_file(folder / "in")

    def take(rows: DataFrame, epoch: int) -> None:
        sink(rows, epoch)
        say(epoch + 1)
        add_file(folder / "in")
        time.sleep(random.Random(epoch).uniform(0, PAUSE))

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "progress"))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
