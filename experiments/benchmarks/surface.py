"""What a person waits for before anything runs: importing Nile, reading a statement and planning it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark

__all__ = ["surface"]

TITLE = "importing Nile, and reading and planning a statement"
IMPORT_BAR_S, PLAN_BAR_MS = 0.3, 5.0
ROUNDS, STATEMENTS = 7, 50
STATEMENT = """
    SELECT S1.item_id, S1.ts, S2.ts AS other
    FROM store1 S1, store2 S2
    WHERE S1.item_id = S2.item_id AND S1.price < 5
    WITH PREFERENCE desc S1.item_id FADE FACTOR 0.8
    WINDOW '1 hour'
    BUDGET 50 %
"""
_IMPORTING = "import time; at = time.perf_counter(); import nile; print(time.perf_counter() - at)"


@benchmark("surface", TITLE)
def surface() -> Result:
    """Seven processes that import; seven times fifty statements, the first ones not timed."""
    with Database() as db:
        for name in ("store1", "store2"):
            columns = {"ts": [0.0, 60.0], "item_id": ["tea", "cup"], "price": [2.0, 4.0]}
            db.register(name, columns, time="ts")
        return Result(
            name="surface",
            title=TITLE,
            unit="statements",
            work=STATEMENTS,
            timings=(),
            measures=(
                _told("`import nile` in a process of its own", "s", IMPORT_BAR_S, _import_seconds),
                _told("the papers' join, read and planned", "ms", PLAN_BAR_MS, lambda: _plan_ms(db)),
            ),
            notes=("bytecode is compiled before, sqlglot and Arrow are loaded before the first statement that counts",),
        )


def _told(name: str, unit: str, bar: float, turn: Callable[[], float]) -> Measure:
    turn()
    return Measure.of(name, [turn() for _ in range(ROUNDS)], unit, bar, most=True)


def _import_seconds() -> float:
    run = subprocess.run([sys.executable, "-c", _IMPORTING], capture_output=True, text=True, check=True)
    return float(run.stdout)


def _plan_ms(db: Database) -> float:
    begun = time.perf_counter()
    for _ in range(STATEMENTS):
        db.sql(STATEMENT)
    return (time.perf_counter() - begun) / STATEMENTS * 1e3
