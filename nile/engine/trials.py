"""How prices are measured: streams to ask, and the CPU that asking takes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.summaries.heavy import pa

__all__ = ["GAP", "LEAST", "MANY", "ROUNDS", "TUPLES", "asked", "column", "cpu_of", "database", "exact"]

GAP = 1_000_000  # ns between tuples of a stream
ROUNDS = 5
TUPLES, MANY = 1 << 18, 1 << 20  # of a stream
OTHER = 1 << 26  # bytes that no cache holds beside others
LEAST = 0.05  # ns: below, a difference of two measurements is noise


def cpu_of(run: Callable[[], Any], rounds: int = ROUNDS, *, cold: bool = False) -> int:
    """cold: whether caches hold something else before each turn, as they do where a question is asked once."""
    run()  # kernels are loaded, memory is mapped
    best = 1 << 62
    other = np.zeros(OTHER if cold else 0, np.uint8)
    gc.collect()
    gc.disable()  # not between turns: collecting costs more than most of what is measured
    try:
        for _ in range(rounds):
            other += 1
            began = time.process_time_ns()
            run()
            best = min(best, time.process_time_ns() - began)
    finally:
        gc.enable()
    return best


def column(n: int, keys: int, seed: int, *, text: bool) -> pa.Array:
    column = pa.array(np.random.Generator(np.random.PCG64(seed)).integers(0, keys, n))
    return column.cast(pa.string()) if text else column


def database(
    n: int, keys: int, make: Callable[[dict[str, Any]], Any] = pa.table, *, text: bool = False, streams: str = "ab",
    others: bool = False,
) -> Database:  # fmt: skip
    """others: whether streams have two columns of numbers and one of text beside."""
    db = Database()
    for seed, name in enumerate(streams):
        ts = pa.array(np.arange(n) * GAP).cast(pa.timestamp("ns"))
        more = {"v": ts.cast(pa.int64()), "w": ts.cast(pa.int64()), "s": column(n, 100, 9, text=True)} if others else {}
        db.register(name, make({"ts": ts, "k": column(n, keys, seed, text=text), **more}), time="ts")
    return db


def asked(query: Any, budget: Any = None) -> int:
    return sum(len(batch) for batch in query.run(budget).batches())


def exact(db: Database, window: int, columns: str = "a.k") -> int:
    """The exact answer over `a` and `b`, as it costs least.  window: ns."""
    text = f"SELECT {columns} FROM a, b WHERE a.k = b.k WINDOW '{window / 1e9:.9f} s'"
    return sum(len(batch) for batch in db.sql(text).batches())
