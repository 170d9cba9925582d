"""Approximate answers at full budget, nothing forgotten: those of the exact engine, and of DuckDB."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, generator
from nile.summaries.heavy import duckdb, pa

__all__ = ["FAULT"]

_NAME = "full-budget"


def attempt(seed: int) -> None:
    """A join by preference at budget 1 or more."""
    _check(seed, 1.0)


def control(seed: int) -> None:
    """The same at a tenth of the budget."""
    _check(seed, 0.1)


def _check(seed: int, fraction: float) -> None:
    rng = generator(_NAME, seed)
    keys, window = int(rng.integers(2, 20)), int(rng.integers(0, 60))
    tables = {name: _stream(rng, keys) for name in ("l", "r")}
    preference = ("desc", "weighted")[seed % 2]
    guide = ("countsketch", "directory")[seed // 2 % 2]
    with Database() as db:
        for name, table in tables.items():
            db.register(name, table, time="t")
        query = db.join("l", "r", on="k", window=max(window, 1))
        exact = _pairs(query.run().to_arrow())
        ranges = seed % 5 == 0 and preference == "desc"
        asked = query.prefer(preference).guided_by(guide).using(granularity=int(rng.integers(1, 90)), seed=seed)
        answer = (asked.returning("ranges") if ranges else asked).run(fraction)
        found = _pairs(answer.expand())
        expect(found == exact, f"{preference}, {guide}: {sum((found - exact).values())} pairs too many and "
                               f"{sum((exact - found).values())} too few of {sum(exact.values())}")  # fmt: skip
        duck = _duckdb(tables, max(window, 1))
        expect(exact == duck, f"DuckDB has {sum(duck.values())} pairs, the exact engine {sum(exact.values())}")


def _stream(rng: np.random.Generator, keys: int) -> Any:
    n = int(rng.integers(20, 120))
    key = [None if k == 0 else f"k{k}" for k in rng.integers(0, keys + 1, n).tolist()]
    return pa.table({"i": np.arange(n), "t": np.sort(rng.integers(0, 4 * n, n)), "k": key})


def _pairs(table: Any) -> Counter[tuple[int, int]]:
    return Counter(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))


@cache
def _connection() -> Any:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def _duckdb(tables: dict[str, Any], window: int) -> Counter[tuple[int, int]]:
    for name, table in tables.items():
        _connection().register(name, table)
    text = f"SELECT l.i, r.i FROM l JOIN r ON l.k = r.k WHERE abs(l.t - r.t) <= {window}"
    return Counter(_connection().execute(text).fetchall())


FAULT = Fault(
    _NAME, "approximate (desc, weighted) at full budget without forgetting", "the exact answer, and DuckDB's",
    attempt, control, full=10_000, small=80,
)  # fmt: skip
