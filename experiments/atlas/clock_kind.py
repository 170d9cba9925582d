"""Times of this machine: a summary fed with ever more tuples, and the first outliers of a stored history.

A seed is a run: the methods take turns, and the median over the runs is what counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.benchmarks.history import FORMULATIONS, Peer, Store, asked
from nile.experiments.benchmarks.history_data import make
from nile.experiments.benchmarks.streams import exponent_for
from nile.experiments.run.fields import one_of
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import STRUCTURES, SummarySpec
from nile.summaries.heavy import pa

__all__ = ["FEED", "FIRST", "FeedOptions", "FirstOptions"]

Array = np.ndarray[Any, Any]
_BATCH = 65_536
_ITEMS = 20_000


class FeedOptions(Options):
    """tuples: in all; structure: of the summary that is kept of them.  What a minute old is let go of."""

    tuples: Annotated[int, Field(ge=10_000, le=1_000_000_000)] = Field(
        1_000_000, description="a whole number from 10000 on"
    )
    structure: Annotated[str, one_of(STRUCTURES)] = Field("T4", description=f"one of {', '.join(STRUCTURES)}")


def _keys(_options: FeedOptions, seed: int, _data: Data | None) -> Array:
    """Sixteen batches of Zipf items, taken again and again."""
    weights = np.cumsum(np.arange(1, _ITEMS + 1, dtype=np.float64) ** -exponent_for(0.005, _ITEMS))
    drawn = np.random.Generator(np.random.PCG64([seed, 32])).random(16 * _BATCH) * weights[-1]
    keys: Array = np.minimum(np.searchsorted(weights, drawn, side="right"), _ITEMS - 1).astype(np.int64)
    return keys


def _feed(keys: Array, options: FeedOptions, _seed: int) -> Mapping[str, float | None]:
    second = 1_000_000_000
    gap = second // 10_000
    manager = SummaryManager(SummarySpec(granularity=15 * second, structure=options.structure, forgetting=True))
    spent = 0
    warm = SummaryManager(manager.spec)  # loads the kernels
    warm.ingest(np.arange(_BATCH, dtype=np.int64) * gap, pa.array(keys[:_BATCH]))
    for first in range(0, options.tuples, _BATCH):
        n = min(_BATCH, options.tuples - first)
        ts = (first + np.arange(n, dtype=np.int64)) * gap
        column = pa.array(np.resize(np.roll(keys, -(first % keys.shape[0])), n))
        began = time.process_time_ns()
        manager.ingest(ts, column)
        manager.release(int(ts[-1]) - 60 * second)
        spent += time.process_time_ns() - began
    return {"per_tuple": spent / options.tuples / 1e9}


FEED = register(
    Kind(
        name="feed",
        about="a summary fed with a stream",
        options=FeedOptions,
        metrics={"per_tuple": Metric("CPU time a tuple", "time a tuple", "CPU time a tuple", "seconds", -1)},
        prepares=(),
        prepare=_keys,
        measure=_feed,
        operator=lambda options: f"summary {options.structure}",
        by_clock=True,
    )
)


class FirstOptions(Options):
    """rows: of both streams together; engine: who is asked, Nile for the first outliers, DuckDB for all."""

    rows: Annotated[int, Field(ge=100_000, le=1_000_000_000)] = Field(
        1_000_000, description="a whole number from 100000 on"
    )
    engine: Annotated[str, one_of(("nile", "duckdb"))] = Field("nile", description="nile or duckdb")


@cache
def _made(rows: int) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """A store and its Parquet files, kept until the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="nile-atlas-")
    make(Path(folder.name), rows)
    return folder, Path(folder.name)


def _data_made(options: FirstOptions, _seed: int, _data: Data | None) -> Path:
    return _made(options.rows)[1]


def _first(folder: Path, options: FirstOptions, _seed: int) -> Mapping[str, float | None]:
    """Both with a warm cache: each is asked once before."""
    with Store(folder) as store:
        since = store.since
        if options.engine == "nile":
            asked(store, "outliers", since)
            return {"first": asked(store, "outliers", since).seconds}
    try:
        peer = Peer(folder)
    except ModuleNotFoundError:  # DuckDB is there where Nile is developed, not where it is used
        return {"first": None}
    seconds = []
    for way in FORMULATIONS["outliers"]:
        peer.run("outliers", way, since)
        began = time.perf_counter()
        peer.run("outliers", way, since)
        seconds.append(time.perf_counter() - began)
    peer.close()
    return {"first": min(seconds)}


FIRST = register(
    Kind(
        name="first-outliers",
        about="a stored history asked for its outliers",
        options=FirstOptions,
        metrics={"first": Metric("Time to the first 100 outliers", "time", "wall clock", "seconds", -1)},
        prepares=("rows",),
        prepare=_data_made,
        measure=_first,
        operator=lambda options: options.engine,
        by_clock=True,
    )
)
