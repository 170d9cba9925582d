"""The driver of a standing query inside Spark, killed with its executors at random moments: nothing lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from child_spark_standing import LATENESS, TEXT

import nile
from nile.spark.java import find_java
from nile.summaries.errors import JavaMissing

CHILD = Path(__file__).parents[1] / "harness" / "child_spark_standing.py"
FILES, ROWS = 24, 60
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int64())])


def rows(seed: int, number: int) -> pa.Table:
    """A file: 6 s of tuples, up to a second out of order."""
    rng = np.random.default_rng([seed, number])
    at = np.sort(rng.integers(0, 6_000_000, ROWS)) + 6_000_000 * number + rng.integers(0, 1_000_000, ROWS)
    keys = pa.array([f"k{key}" for key in rng.integers(0, 12, ROWS)])
    numbers = pa.array(range(ROWS * number, ROWS * number + ROWS))
    return pa.table([pa.array(at).cast(SCHEMA[0].type), keys, numbers], schema=SCHEMA)


def wanted() -> Counter[tuple[Any, ...]]:
    with nile.connect() as db:
        for name in "ab":
            db.stream(name, SCHEMA, time="ts", lateness=LATENESS)
        exact = db.subscribe(TEXT.replace("WITH PREFERENCE desc a.k ", ""))
        for number in range(FILES):
            for seed, name in enumerate("ab"):
                db.push(name, rows(seed, number))
        db.advance(1e5)
        return Counter(tuple(row.values()) for batch in exact.poll() for row in batch.to_pylist())


def run(folder: Path, after: float | None) -> str:
    """The process, killed `after` seconds from when it is ready (None: not); what it said last."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(CHILD.parent)},
    )  # fmt: skip
    assert child.stdout is not None
    try:
        said = child.stdout.readline().strip()
        if said == "ready" and after is not None:
            time.sleep(after)
            return said
        return child.stdout.readline().strip() or said
    finally:
        for group in {os.getpgid(child.pid), *java_of(child.pid)} if child.poll() is None else ():
            os.killpg(group, signal.SIGKILL)
        child.wait()


def java_of(parent: int) -> set[int]:
    """Process groups of the children: Spark's Java begins one of its own."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == parent:
                found.add(int(stat[2]))
    return found


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for Spark's Java in /proc")
def test_twenty_killed_drivers_lose_and_double_nothing(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    for number in range(FILES):
        for seed, name in enumerate("ab"):
            (tmp_path / name).mkdir(exist_ok=True)
            path = tmp_path / name / f"{number}.parquet"
            pq.write_table(rows(seed, number), path)
            os.utime(path, (1e9 + number, 1e9 + number))
    # The watermark ends behind the last row: tuples without a partner move it on.
    last = pa.table(
        [pa.array([10**12], pa.int64()).cast(SCHEMA[0].type), pa.array([None], pa.string()), [0]], schema=SCHEMA
    )
    for name in "ab":
        pq.write_table(last, tmp_path / name / "last.parquet")
        os.utime(tmp_path / name / "last.parquet", (1.1e9, 1.1e9))
    draw, kills = random.Random(int(os.environ.get("NILE_SEED", "0"))), 0
    most = int(os.environ.get("NILE_KILLS", "20"))
    while kills < most and run(tmp_path, draw.uniform(0.0, 9.0)) == "ready":
        kills += 1
    assert kills == most, "it ended before it could be killed so often"
    assert run(tmp_path, None) == "done"
    table = pa.concat_tables(pq.read_table(tmp_path / "out" / name) for name in committed(tmp_path / "out"))
    assert Counter(tuple(row.values()) for row in table.to_pylist()) == wanted()


def committed(out: Path) -> list[str]:
    """The files that the sink's log names: others are of attempts that were killed."""
    found: list[str] = []
    log = out / "_spark_metadata"
    numbers = sorted(
        (path for path in log.iterdir() if not path.name.startswith(".")), key=lambda path: int(path.name.split(".")[0])
    )
    compact = [path for path in numbers if path.name.endswith(".compact")]
    start = int(compact[-1].name.split(".")[0]) if compact else -1
    for path in numbers:
        number = int(path.name.split(".")[0])
        if number > start or path in compact[-1:]:
            found += [Path(json.loads(line)["path"]).name for line in path.read_text().splitlines()[1:]]
    return found
