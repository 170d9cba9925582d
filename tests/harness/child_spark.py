"""A process with a Spark of its own: `python child_spark.py PLACE DIRECTORY [PYTHON]` says as JSON what worked there.

PLACE: a master, or the address of a Spark Connect server.  PYTHON: what the executors of a master run; then every task
of Nile's dies once, after its first answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.classic.dataframe import DataFrame

import nile
from nile.engine.spark_checkup import PROBED, Probe
from nile.spark import build, exact_join, exact_truth, ingest, spark_session, stop_session, tuple_files
from nile.spark.masters import is_connect
from nile.spark.progress import JobProgress

WINDOW = 600 * 10**9
SUMMARY = "CREATE SUMMARY items ON shop (item) WITH GRANULARITY '1 min' AND COLLAPSE (2, 2)"
SCAN = (
    "SELECT A.item, A.ts, B.ts AS other FROM shop A, web B WHERE A.item = B.item WITH PREFERENCE desc A.item WINDOW 10"
)
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def events(seed: int, rows: int = 400) -> pa.Table:
    """A tuple a second, of twenty keys."""
    source = np.random.default_rng(seed)
    ts = pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us"))
    return pa.table({"ts": ts, "item": pa.array([f"i{key}" for key in source.integers(0, 20, rows)])})


def listeners() -> list[str]:
    """Addresses that processes of this machine listen on, in the kernel's hexadecimal, of this process and below."""
    tree: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            tree[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family = {os.getpid()}
    while more := {pid for pid, parent in tree.items() if parent in family} - family:
        family |= more
    sockets = set()
    for pid in family:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(handle))
            except OSError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # 0A: listening
                found.append(fields[1].partition(":")[0])
    return found


def dying_once(work: Task) -> Task:
    """The same, but for its first attempt."""

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = work(batches)
        if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
            next(made, None)
            raise RuntimeError("lost")
        yield from made

    return attempt


def scanned(lake: Path) -> list[tuple[float, list[list[str]]]]:
    """After every wave the coverage, and the rows so far."""
    db = nile.connect()
    for name in ("shop", "web"):
        db.register(name, lake / name)
    growing = db.sql(SCAN, engine="spark").progress(every=0)
    return [(one.coverage, [[*map(str, row.values())] for row in one.to_arrow().to_pylist()]) for one in growing]


def main(place: str, directory: Path, python: str | None = None) -> dict[str, Any]:
    """Ingest, exact join, exact truth, a build, a scan and a kernel at `place`."""
    spark = spark_session(**{"remote" if place.startswith("sc://") else "master": place})
    if python is not None:
        spark.sparkContext.pythonExec = python
        plain = DataFrame.mapInArrow
        DataFrame.mapInArrow = lambda frame, work, *more: plain(frame, dying_once(work), *more)  # type: ignore
    told: list[JobProgress] = []
    lake = directory / "lake"
    for at, name in enumerate(("shop", "web")):
        pq.write_table(events(at), directory / f"{name}.parquet")
        given = {"stream": name, "time": "ts", "key": "item", "ranges": "1 min"}
        done = ingest(directory / f"{name}.parquet", lake, **given, on_progress=told.append)
        assert done.applied == 400, done
    both = [tuple_files(lake, name) for name in ("shop", "web")]
    truth = exact_truth(spark, *both, WINDOW)
    joined = exact_join(spark, *both, WINDOW, directory / "pairs")
    built = build(lake, directory / "store", stream="shop", summaries=[SUMMARY], spark=spark)
    partials = scanned(lake)
    probed = spark.range(0, 2, 1, 2).mapInArrow(Probe(str(lake)).run, PROBED).collect()
    listening = listeners() if Path("/proc/net/tcp").exists() else []
    connect = is_connect(spark)
    stop_session()
    return {
        "connect": connect,
        "truth": truth.pairs,
        "joined": joined.pairs,
        "built": built.tuples,
        "partials": partials,
        "code": [row["code"] for row in probed],
        "shared": [row["shared"] for row in probed],
        "progress": sorted({one.stage for one in told}),
        "listening": sorted(set(listening)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
