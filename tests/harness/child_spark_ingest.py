"""A process that ingests file after file into a lake: `python tests/harness/child_spark_ingest.py FOLDER [FILES]`.

FOLDER/in/N.parquet is batch N of the stream "sales" in FOLDER/lake; without FILES it goes on until it is killed.
"""

from __future__ import annotations

import random
import sys
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from child_spark_sink import say

from nile.pyramid.lake.lake import LakeStream
from nile.spark import ingest
from nile.spark.session import spark_session
from nile.summaries.errors import SourceMissing

HOUR = 3_600 * 10**6
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("item", pa.string()), ("id", pa.int64())])


def batch(number: int) -> pa.Table:
    """Over three days; some rows before the batch's first day are late, some have no time, some ids come twice."""
    rng = random.Random(number)
    ids = [rng.randrange(number * 60, number * 60 + 120) for _ in range(60)]
    at = [None if rng.random() < 0.05 else rng.randrange(-6, 72) * HOUR + number * 72 * HOUR for _ in ids]
    return pa.table([at, [f"item {rng.randrange(9)}" for _ in ids], ids], schema=SCHEMA)


def main() -> None:
    """Ingest until killed; says how many batches are in the lake."""
    folder = Path(sys.argv[1])
    (folder / "in").mkdir(exist_ok=True)
    spark_session("ingest", cores=1)
    try:
        there = len(LakeStream.open(folder / "lake", "sales").batches)
    except SourceMissing:
        there = 0
    last = range(int(sys.argv[2])) if len(sys.argv) > 2 else count(max(0, there - 1))
    for number in last:
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(batch(number), file)
        done = ingest(file, folder / "lake", stream="sales", time="at", key="item", event_id="id")
        assert done.repeated == (number < there)
        if not done.repeated:
            say(number + 1)


if __name__ == "__main__":
    main()
