"""How fast a stream goes into the whole summary (T4), beside a bare update of one sketch of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from nile.experiments.benchmarks.harness import Bar, Contestant, Result, benchmark, race
from nile.experiments.benchmarks.summaries.sketch import zipf_keys
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries import sketch_kernels
from nile.summaries.countsketch import CountSketch
from nile.summaries.hashing import KeyTable

__all__ = ["ingest_codes", "ingest_integers", "ingest_text", "stream_of"]

Array = np.ndarray[Any, Any]

ROWS, BUCKETS, COLUMNS = 5, 16, 64  # 1,024 columns a row, as the bare sketch has
TUPLES = 1 << 20
BATCH = 1 << 16  # as the stream manager hands them on
KEYS = 3_000  # under 5 % distinct in a batch
SKEW = 1.1
GAP = 1_000  # ns from one tuple to the next
WINDOW = (1 << 18) * GAP
MOST = 6.0
"""How many bare updates an ingested tuple may cost."""

STREAM = "nile: T4 ingest, a window kept"
BARE = "bare sketch update, row after row (the fastest we have)"
PLAIN = "bare sketch update, tuple after tuple"
WHOLE = "nile: T4 ingest into a new store, everything kept"


def stream_of(texts: bool) -> list[pa.Array]:
    """TUPLES keys in batches: int64, or text like SKU-000123."""
    keys = zipf_keys(TUPLES, KEYS, SKEW, seed=3)
    names = pa.array([f"SKU-{key:06d}" for key in range(KEYS)])
    column = names.take(pa.array(keys)) if texts else pa.array(keys)
    return [column.slice(begin, BATCH) for begin in range(0, TUPLES, BATCH)]


def specification() -> SummarySpec:
    """G1 as long as the window, zones a quarter of it at most."""
    return SummarySpec(granularity=WINDOW, rate=4, depth=2, rows=ROWS, buckets=BUCKETS, columns=COLUMNS)


@benchmark("ingest", "T4 ingest of keys already encoded, beside a bare count-sketch update")
def ingest_codes() -> Result:
    """Hashes and codes given: what the grid, pyramid, zones and tuple lists add to counting."""
    table = KeyTable()
    batches = [table.encode(column) for column in stream_of(texts=False)]

    def into(manager: SummaryManager) -> Callable[[Array, int], None]:
        return lambda ts, i: manager.ingest_encoded(ts, batches[i])

    return _beside_bare("ingest", "T4 ingest of encoded keys", table, into, lambda i: batches[i].hashes)


@benchmark("ingest-integers", "T4 ingest of an integer column, beside a bare count-sketch update of it")
def ingest_integers() -> Result:
    """From an Arrow column of int64: both sides hash it."""
    return _from_columns("ingest-integers", "T4 ingest of an int64 column", texts=False)


@benchmark("ingest-text", "T4 ingest of a text column, beside a bare count-sketch update of it")
def ingest_text() -> Result:
    """From an Arrow column of text: both sides find its distinct values and hash them."""
    return _from_columns("ingest-text", "T4 ingest of a text column", texts=True)


def _from_columns(name: str, title: str, *, texts: bool) -> Result:
    columns = stream_of(texts)
    table = KeyTable()

    def into(manager: SummaryManager) -> Callable[[Array, int], None]:
        return lambda ts, i: manager.ingest(ts, columns[i])

    def hashes(i: int) -> Array:
        # What a sketch without a directory does with a column: fixed-width keys are hashed, text is
        # dictionary-encoded and its distinct values hashed.
        if texts:
            return table.encode(columns[i]).hashes
        return table.hasher.words(columns[i].to_numpy())

    return _beside_bare(name, title, table, into, hashes)


def _beside_bare(
    name: str,
    title: str,
    table: KeyTable,
    into: Callable[[SummaryManager], Callable[[Array, int], None]],
    hashes: Callable[[int], Array],
) -> Result:
    spec = specification()
    times = [np.arange(begin, begin + BATCH, dtype=np.int64) * GAP for begin in range(0, TUPLES, BATCH)]
    kept = SummaryManager(spec, table)
    now = np.empty(BATCH, np.int64)
    passes = 0

    def stream() -> None:
        nonlocal passes
        take = into(kept)
        for i, ts in enumerate(times):
            np.add(ts, passes * TUPLES * GAP, out=now)
            take(now, i)
            kept.release(int(now[-1]) - WINDOW)
        passes += 1

    def whole() -> None:
        take = into(SummaryManager(spec, table))
        for i, ts in enumerate(times):
            take(ts, i)

    sketch = CountSketch(ROWS, BUCKETS * COLUMNS)

    def bare() -> None:
        for i in range(len(times)):
            sketch.summarize(hashes(i))

    def plain() -> None:
        shift = sketch.shift(sketch.columns)
        for i in range(len(times)):
            sketch_kernels.update(sketch.counters, sketch.row_multipliers, shift, hashes(i))

    result = race(
        name,
        f"{title}: {ROWS} rows of {BUCKETS} x {COLUMNS} columns, two-window zones, pyramid, tuple lists",
        [Contestant(STREAM, stream), Contestant(BARE, bare), Contestant(PLAIN, plain), Contestant(WHOLE, whole)],
        work=TUPLES,
        unit="tuples",
        bars=[Bar(BARE, 1.0 / MOST)],
        notes=[
            f"keys Zipf {SKEW} over {KEYS:,}, batches of {BATCH:,}; every contestant starts from the same input",
            f"window of {WINDOW // GAP:,} tuples, G1 as long, zones a quarter of it at most",
        ],
    )
    return replace(result, figures=_costs(result))


def _costs(result: Result) -> dict[str, Any]:
    """How many bare updates per tuple cost each of ours: the median over rounds, with the bar beside it."""
    seconds = {timing.contestant: timing.seconds for timing in result.timings}
    figures = {}
    for ours in (STREAM, WHOLE):
        for theirs in (BARE, PLAIN):
            cost = median(a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True))
            verdict = "reached" if cost <= MOST else "NOT reached"
            figures[f"cost of {ours}, in units of {theirs}"] = f"{cost:.2f} (bar: at most {MOST:g}, {verdict})"
    return figures
