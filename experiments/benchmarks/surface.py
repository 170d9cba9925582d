"""What a person waits for: importing Nile, reading a statement and planning it, the first answer of all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark

__all__ = ["surface"]

TITLE = "importing Nile, and reading and planning a statement"
IMPORT_BAR_S, PLAN_BAR_MS = 0.3, 5.0
EXACT_BAR_S, APPROXIMATE_BAR_S = 5.0, 10.0
ROUNDS, STATEMENTS = 7, 50
STATEMENT = """
    SELECT S1.item_id, S1.ts, S2.ts AS other
    FROM store1 S1, store2 S2
    WHERE S1.item_id = S2.item_id AND S1.price < 5
    WITH PREFERENCE desc S1.item_id FADE FACTOR 0.8
    WINDOW '1 hour'
    BUDGET 50 %
"""
COLD_ROUNDS = 2
_FIRST = """
import numpy, nile
rng = numpy.random.default_rng(0)
with nile.connect() as db:
    for name in "ab":
        ts = numpy.sort(rng.uniform(0, 10_000, {rows}))
        db.register(name, {{"ts": ts, "k": rng.integers(0, 100, {rows})}}, time="ts")
    found = db.sql("SELECT a.k, a.ts, b.ts AS other FROM a, b WHERE a.k = b.k {preference} WINDOW 300")
    next(iter(found.batches()))
    if {rows} > 100_000:  # else the budget buys the whole answer, and nothing approximate runs
        assert found.budget.spent < 1, found.budget
"""
_IMPORTING = "import time; at = time.perf_counter(); import nile; print(time.perf_counter() - at)"


@benchmark("surface", TITLE)
def surface() -> Result:
    """Seven processes that import; seven times fifty statements, the first not timed; two cold processes each."""
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
                _cold("first exact answer with a fresh home", EXACT_BAR_S, ""),
                *(
                    _cold(
                        f"first approximate one, {kind}",
                        APPROXIMATE_BAR_S,
                        f"WITH PREFERENCE {kind} a.k BUDGET 20 %",
                        rows=400_000,
                    )
                    for kind in ("desc", "weighted", "asc")
                ),
            ),
            notes=(
                "bytecode is compiled before, sqlglot and Arrow are loaded before the first statement that counts",
                "where pandas is installed Arrow imports it by itself: about a second of each first answer",
            ),
        )


def _told(name: str, unit: str, bar: float, turn: Callable[[], float]) -> Measure:
    turn()
    return Measure.of(name, [turn() for _ in range(ROUNDS)], unit, bar, most=True)


def _cold(name: str, bar: float, preference: str, *, rows: int = 2_000) -> Measure:
    rounds = [_first_answer(_FIRST.format(preference=preference, rows=rows)) for _ in range(COLD_ROUNDS)]
    return Measure.of(name, rounds, "s", bar, most=True, about="CPU of the whole process, kernels compiled")


def _first_answer(program: str, *, warm: bool = False) -> float:
    """CPU seconds of a process that finds no compiled kernel.  warm: those that are kept here."""
    with tempfile.TemporaryDirectory(prefix="nile-home-") as home:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        as_it_comes = {name: value for name, value in os.environ.items() if name != "NILE_COSTS"}
        cold = {
            **as_it_comes,
            "HOME": home,
            "XDG_CACHE_HOME": home,
            "NUMBA_CACHE_DIR": home,
            "PYTHONWARNINGS": "ignore",
        }
        subprocess.run([sys.executable, "-c", program], env=as_it_comes if warm else cold, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _import_seconds() -> float:
    run = subprocess.run([sys.executable, "-c", _IMPORTING], capture_output=True, text=True, check=True)
    return float(run.stdout)


def _plan_ms(db: Database) -> float:
    begun = time.perf_counter()
    for _ in range(STATEMENTS):
        db.sql(STATEMENT)
    return (time.perf_counter() - begun) / STATEMENTS * 1e3
