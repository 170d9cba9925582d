"""A standing join on executors of their own (local-cluster): one part on one, one part on two, two parts on two.

Files of two streams are read by one micro-batch each.  Each place is a Spark of its own, in turn; what is warm by then
(the last micro-batches) is counted: by the clock, and the CPU of the busiest executor with its Python workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nile.experiments.benchmarks.harness import Measure, Result, benchmark, beside
from nile.spark.session import spark_session, stop_session
from nile.spark.standing.query import StreamSource, stream_query, stream_worth
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa, pq

__all__ = ["standing_cluster"]

TITLE = "standing join on Spark's executors: two parts beside one"
BAR = 1.6
TUPLES, BATCHES, WARM = 200_000, 12, 5
"""Of each stream in a micro-batch; micro-batches, and those that warm up."""
KEYS, SECONDS, MATCHES = 2_000, 30, 1.0
"""Keys, all equally frequent; event time of a micro-batch; matches of a tuple."""
ROUNDS = 3
PLACES = {"one part, one executor": (1, 1), "one part, two executors": (1, 2), "two parts, two executors": (2, 2)}
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_WINDOW = MATCHES * KEYS * SECONDS / TUPLES / 2
_TEXT = f"SELECT a.k, a.ts AS x, b.ts AS y FROM a, b WHERE a.k = b.k WINDOW '{_WINDOW:g} s'"


def write(folder: Path, batches: int = BATCHES, tuples: int = TUPLES) -> None:
    """The files of both streams, a micro-batch each."""
    for stream, name in enumerate("ab"):
        (folder / name).mkdir()
        for number in range(batches):
            chance = np.random.default_rng([stream, number])
            at = (np.sort(chance.random(tuples)) + number) * SECONDS * 1e6
            keys = pa.array([f"key {key}" for key in chance.integers(0, KEYS, tuples)])
            table = pa.table({"ts": pa.array(at.astype(np.int64)).cast(pa.timestamp("us", "UTC")), "k": keys})
            path = folder / name / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1e9 + number,) * 2)


def executors() -> dict[int, float]:
    """CPU seconds of each executor below this process, by its process number, with all that it started."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            number = int(entry.name)
            parents[number] = int(stat[1])
            spent[number] = sum(map(int, stat[11:15])) / _TICKS
            if b"CoarseGrainedExecutorBackend" in command:
                found.append(number)

    def below(number: int, above: int) -> bool:
        while number in parents and number != above:
            number = parents[number]
        return number == above

    return {
        each: sum(cpu for number, cpu in spent.items() if below(number, each))
        for each in found if below(each, os.getpid())
    }  # fmt: skip


def run(folder: Path, master: str | None, parts: int, warm: int, told: Connection) -> None:
    """All micro-batches; tells (rows told, seconds and busiest executor's CPU of a micro-batch that came warm)."""
    spark = spark_session(master=master, cores=2)
    read = spark.readStream.schema("ts timestamp, k string").option("maxFilesPerTrigger", 1)
    sources = {name: StreamSource(read.parquet(str(folder / name)), "ts", "1 s") for name in "ab"}
    writer = stream_query(_TEXT, sources, parts=parts).writeStream.format("noop")
    with tempfile.TemporaryDirectory() as progress:
        query = writer.option("checkpointLocation", progress).trigger(availableNow=True).start()
        seen: dict[int, tuple[float, dict[int, float]]] = {}
        while query.isActive:
            last = query.lastProgress
            if last is not None and last["numInputRows"] and last["batchId"] not in seen:
                seen[last["batchId"]] = time.perf_counter(), executors()
            time.sleep(0.02)
        query.awaitTermination()
        outputs = stream_worth(progress).outputs
    counted = sorted(each for each in seen if each >= warm)
    (began, before), (ended, after) = seen[counted[0]], seen[counted[-1]]
    many = counted[-1] - counted[0]
    busiest = max((after[each] - before.get(each, 0.0) for each in after), default=0.0)
    told.send((outputs, (ended - began) / many, busiest / many))
    stop_session()


def apart(*asked: Any) -> tuple[int, float, float]:
    """`run` in a process of its own."""
    with beside(run, *asked) as told:
        try:
            found: tuple[int, float, float] = told.recv()
        except EOFError:
            raise ConfigError("bench standing-cluster: needed Spark to run to its end; got none; see above") from None
    return found


@benchmark("standing-cluster", TITLE)
def standing_cluster() -> Result:
    """Three places, in turn, three times: about ten minutes."""
    told: dict[str, list[tuple[float, float]]] = {place: [] for place in PLACES}
    outputs = set()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write(folder)
        for _ in range(ROUNDS):
            for place, (parts, count) in PLACES.items():
                rows, *spent = apart(folder, f"local-cluster[{count},1,2048]", parts, WARM)
                outputs.add(rows)
                told[place].append((spent[0], spent[1]))
    if len(outputs) != 1:
        raise ConfigError(f"bench standing-cluster: needed the same rows of all; got {outputs}; report this as a bug")
    *ones, two = PLACES
    measures = []
    for one in ones:
        for at, kind in enumerate(("wall", "CPU of the busiest executor")):
            ratios = [a[at] / b[at] for a, b in zip(told[one], told[two], strict=True)]
            bar = BAR if one is ones[0] else None
            measures.append(Measure.of(f"{one}, over {two}: {kind}", ratios, "times", bar))
    figures: dict[str, object] = {}
    for place, each in told.items():
        wall, cpu = (median(column) for column in zip(*each, strict=True))
        figures[place] = f"{wall:.3f} s a micro-batch, {cpu:.3f} s of CPU of the busiest executor"
    return Result("standing-cluster", TITLE, "tuples", 2 * TUPLES, (), tuple(measures), figures=figures)
