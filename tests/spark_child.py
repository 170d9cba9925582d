"""A process with a Spark of its own: `python spark_child.py PLACE DIRECTORY [PYTHON]` says as JSON what worked there.

PLACE: a master, or the address of a Spark Connect server.  PYTHON: what the executors of a master run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nile.spark import build, exact_join, exact_truth, ingest, spark_session, stop_session, tuple_files
from nile.spark.checkup import PROBED, Probe
from nile.spark.masters import is_connect
from nile.spark.progress import JobProgress

WINDOW = 600 * 10**9


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


def main(place: str, directory: Path, python: str | None = None) -> dict[str, Any]:
    """Ingest, exact join, exact truth, a build and a kernel at `place`."""
    spark = spark_session(**{"remote" if place.startswith("sc://") else "master": place})
    if python is not None:
        spark.sparkContext.pythonExec = python
    told: list[JobProgress] = []
    lake = directory / "lake"
    for at, name in enumerate(("left", "right")):
        pq.write_table(events(at), directory / f"{name}.parquet")
        done = ingest(directory / f"{name}.parquet", lake, stream=name, time="ts", key="item", on_progress=told.append)
        assert done.applied == 400, done
    both = [tuple_files(lake, name) for name in ("left", "right")]
    truth = exact_truth(spark, *both, WINDOW)
    joined = exact_join(spark, *both, WINDOW, directory / "pairs")
    built = build(lake, directory / "store", stream="left", spark=spark)
    probed = spark.range(0, 2, 1, 2).mapInArrow(Probe(str(lake)).run, PROBED).collect()
    listening = listeners() if Path("/proc/net/tcp").exists() else []
    connect = is_connect(spark)
    stop_session()
    return {
        "connect": connect,
        "truth": truth.pairs,
        "joined": joined.pairs,
        "built": built.tuples,
        "code": [row["code"] for row in probed],
        "shared": [row["shared"] for row in probed],
        "progress": sorted({one.stage for one in told}),
        "listening": sorted(set(listening)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
