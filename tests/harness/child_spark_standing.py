"""A process that runs a standing join of two streams inside Spark, over files, until they are read.

`python tests/harness/child_spark_standing.py FOLDER`: the streams' files lie in FOLDER/a and FOLDER/b, a micro-batch
reads one of each; outputs go to FOLDER/out, progress to FOLDER/progress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from child_spark_sink import QUICK

from nile.spark import StreamSource, spark_session, stream_query

TEXT = (
    "SELECT a.k, a.n AS left_n, b.n AS right_n FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '4 s'"
)  # fmt: skip
LATENESS = "2 s"


def main(folder: Path) -> None:
    """Read what is there, then end."""
    spark = spark_session(cores=2)
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    read = spark.readStream.schema("ts timestamp, k string, n long").option("maxFilesPerTrigger", 1)
    sources = {name: StreamSource(read.parquet(str(folder / name)), "ts", LATENESS) for name in "ab"}
    told = stream_query(TEXT, sources, parts=2, budget=1.0)
    writer = told.writeStream.format("parquet").option("checkpointLocation", str(folder / "progress"))
    query = writer.option("path", str(folder / "out")).trigger(availableNow=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
