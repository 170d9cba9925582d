"""What a change of a standing query costs as its streams grow: outer joins, top k and OVER within windows."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

import nile
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.heavy import pa

__all__ = ["standing_curve"]

Array = np.ndarray[Any, Any]
TITLE = "cost a tuple and state of outer joins, top k and OVER as streams grow"
WINDOW = 10_000  # instants, a tuple of each stream in each
KEYS = 9_973
BATCH = 5_000  # tuples of each stream in a push
LENGTHS = (100_000, 1_000_000, 10_000_000)  # tuples of all streams so far
BRIEF = LENGTHS[:2]
LAST = 8  # pushes that are measured up to each length
MOST = 1.15
QUERIES = {
    "left outer join": ("ab", "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k"),
    "full outer join": ("ab", "SELECT a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k"),
    "anti join": ("ab", "SELECT a.v FROM a ANTI JOIN b ON a.k = b.k"),
    "top 10": ("a", "SELECT k, v FROM a ORDER BY v DESC, ts LIMIT 10"),
    "top 1 of each key": ("a", "SELECT t.k, t.v FROM (SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, v DESC) AS t"),
    "lag over a partition": ("a", "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM a"),
    "running sum over a partition": ("a", "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY ts) AS total FROM a"),
}


def _rows(begin: int, count: int) -> dict[str, Array]:
    """`count` tuples from instant `begin` on; keys and values are hashed from their instants."""
    ts = np.arange(begin, begin + count)
    return {"ts": ts, "k": ts * 2_654_435_761 % KEYS, "v": ts * 40_503 % 65_536}


def _costs(streams: str, query: str, lengths: tuple[int, ...]) -> tuple[list[float], list[int]]:
    """CPU ns a tuple over the last pushes before each length, reading of the changes included, and bytes held there."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    costs, held = [], []
    with nile.connect() as db:
        for name in streams:
            db.stream(name, schema, time="ts", keep="1 s")
        standing = db.subscribe(f"{query} WINDOW {WINDOW}", emit="changes")
        took: list[int] = []
        for begin in range(0, lengths[-1] // len(streams), BATCH):
            rows = [_rows(begin, BATCH) for _ in streams]
            started = time.process_time_ns()
            for name, each in zip(streams, rows, strict=True):
                db.push(name, each)
            standing.poll()
            took = [*took[1 - LAST :], time.process_time_ns() - started]
            if (begin + BATCH) * len(streams) in lengths:
                costs.append(median(took) / (BATCH * len(streams)))
                held.append(standing.memory)
    return costs, held


def measure(lengths: tuple[int, ...] = LENGTHS) -> Result:
    """Each tuple comes into its window and leaves it; every change is read.  Both must follow the window alone."""
    measures: list[Measure] = []
    figures: dict[str, object] = {}
    for title, (streams, query) in QUERIES.items():
        costs, held = _costs(streams, query, lengths)
        for length, cost, size in zip(lengths, costs, held, strict=True):
            figures[f"{title}, after {length:,} tuples"] = f"{cost:,.0f} ns a tuple, {size:,} bytes"
        last = f"at {lengths[-1]:,} tuples beside {lengths[0]:,}"
        measures += [
            Measure(f"{title}: cost a tuple {last}", costs[-1] / costs[0], "times", MOST, most=True,
                    about=f"process CPU, median of {LAST} pushes of {BATCH:,} tuples a stream"),
            Measure(f"{title}: state {last}", held[-1] / held[0], "times", MOST, most=True),
        ]  # fmt: skip
    return Result(
        "standing-curve", TITLE, "tuples", lengths[-1], (), tuple(measures), figures=figures, brief=lengths == BRIEF
    )


@benchmark("standing-curve", TITLE, brief=lambda: measure(BRIEF))
def standing_curve() -> Result:
    """10^5 to 10^7 tuples through each query: about ten minutes."""
    return measure()
