"""The constants that say how far a build scales: what a tuple costs a core, what a task sends, what the driver adds up.

`docs/scale.md` multiplies them out.  CPU seconds of one thread, the least of a few rounds: what a constant is, not
what a neighbour on the same cores makes of it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_parts import count_by_leaf, counters_for, leaves_of, slices_of, take_slices
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.lake.part import write_part
from nile.summaries.hashing import KeyTable

__all__ = ["constants", "scale"]

TUPLES = 1_000_000
KEYS = 50_000
_ROUNDS = 3
_SPAN = 100_000  # tuples that the finest granularity covers


def cost(work: Callable[[], object], units: int) -> float:
    """ns of CPU time a unit, the least of a few rounds after one that does not count."""
    work()
    found = []
    for _ in range(_ROUNDS):
        begin = time.thread_time_ns()
        work()
        found.append((time.thread_time_ns() - begin) / units)
    return min(found)


def constants(tuples: int = TUPLES) -> list[Measure]:
    """Each constant, measured on a Zipf stream of integer keys, a tuple a microsecond."""
    source = np.random.Generator(np.random.PCG64(7))
    keys = pa.array((source.zipf(1.2, tuples) - 1) % KEYS)
    ts = np.arange(tuples, dtype=np.int64) * 1_000
    spec = SummarySpec(granularity=1_000 * _SPAN, rate=4, depth=3)
    table = KeyTable()
    found = table.encode(keys)
    manager = SummaryManager(spec)
    manager.ingest(ts, keys)
    manager.store.release(tuples)
    leaves = leaves_of(manager, 0)
    counters = counters_for(spec, leaves)
    slices = slices_of(spec, 0, ts, found.codes, found.hashes)
    ordinals, hashes = np.arange(tuples, dtype=np.int64), table.hashes()
    one = np.ones_like(counters)
    cell = counters[0].nbytes / spec.buckets
    measures = [
        Measure("bytes per cell", cell, "bytes", about=f"{counters[0].size // spec.buckets} counters"),
        Measure("bytes per zone", float(counters[0].nbytes), "bytes", about=f"{spec.buckets} cells"),
        Measure("sketches held", float(manager.memory.sketches), "bytes", about="all zones and their index"),
        Measure("hash and number keys", cost(lambda: KeyTable().encode(keys), tuples), "ns per tuple"),
        Measure(
            "sketch slices", cost(lambda: slices_of(spec, 0, ts, found.codes, found.hashes), tuples), "ns per tuple"
        ),
        Measure(
            "count by zone",
            cost(lambda: count_by_leaf(spec, leaves, counters, ordinals, found.codes, hashes), tuples),
            "ns per tuple",
        ),
        Measure("slice sketches", sum(part.nbytes for part in slices) / tuples, "bytes per tuple"),
        Measure(
            "find zones", cost(lambda: take_slices(SummaryManager(spec), slices), slices.told.shape[0]), "ns per slice"
        ),
        Measure("merge", cost(lambda: np.add(counters, one, out=counters), len(leaves)), "ns per zone"),
        Measure("directory", manager.memory.directory / table.known, "bytes per key"),
        Measure("one process, all of it", cost(lambda: SummaryManager(spec).ingest(ts, keys), tuples), "ns per tuple"),
    ]
    rows = pa.table({"item": keys, "price": source.random(tuples)})
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "part.parquet"

        def write() -> None:
            file.unlink(missing_ok=True)
            write_part(file, ordinals, ts, rows, "item", bits=12, group_rows=1 << 16)

        measures += [
            Measure("write the lake", cost(write, tuples), "ns per tuple", about="two columns"),
            Measure("read the lake", cost(lambda: pq.read_table(file, use_threads=False), tuples), "ns per tuple"),
            Measure("lake", file.stat().st_size / tuples, "bytes per tuple", about="two columns"),
        ]
    return measures


@benchmark("scale", "What a tuple, a zone and a task cost: the constants of docs/scale.md")
def scale() -> Result:
    """No bars: the page multiplies these."""
    return Result(
        name="scale",
        title=f"constants of a build, {KEYS:,} keys (Zipf 1.2)",
        unit="tuples",
        work=TUPLES,
        timings=(),
        measures=tuple(constants()),
    )
