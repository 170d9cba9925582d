"""What a budget costs on the real clock: process CPU and wall time from the question to the last batch read."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet

from nile.answers.join_answer import JoinAnswer
from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.strategies import sampled
from nile.preferences.budget import Budget
from nile.summaries.heavy import pa

__all__ = ["Shape", "contestants", "realtime"]

TITLE = "what budgets cost on the real clock, beside the exact answer"
FRACTION, SECONDS = 0.3, 0.5
ROUNDS, BRIEFLY = 3, 10
_GAP = 1_000_000  # ns between tuples of a stream
_OVER, _SLACK, _CLOCK = 1.1, 0.02, 1.05
"""Of a fraction of the exact CPU, seconds beside either bar, and of a budget in seconds."""


class Shape(NamedTuple):
    """Two streams of `tuples` each; matches: pairs per tuple of one stream; kind: of the key."""

    matches: float
    skew: float
    tuples: int
    keys: int
    kind: str = "int"
    source: str = "Arrow"

    def __str__(self) -> str:
        return f"{self.tuples:,} x 2, Zipf {self.skew:g}, {self.matches:g} matches, {self.kind} keys, {self.source}"


SHAPES = (
    Shape(480, 1.23, 300_000, 20_000),
    Shape(16, 0.8, 1_000_000, 100_000),
    Shape(1, 0.5, 1_000_000, 100_000),
    Shape(16, 0.8, 300_000, 100_000, "text"),
    Shape(16, 0.8, 300_000, 100_000, "float"),
    Shape(16, 0.8, 300_000, 100_000, "int", "Parquet"),
)


class Turn(NamedTuple):
    """One run: process CPU and wall seconds, and rows handed out."""

    cpu: float
    wall: float
    rows: int


def _briefly() -> Result:
    return _measured(tuple(shape._replace(tuples=shape.tuples // BRIEFLY) for shape in SHAPES))


@benchmark("realtime", TITLE, brief=_briefly)
def realtime() -> Result:
    """Six shapes; contestants take turns in three rounds after one unmeasured, medians are told."""
    return _measured(SHAPES)


def _measured(shapes: tuple[Shape, ...]) -> Result:
    rows: list[dict[str, Any]] = []
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            found = _alternating(contestants(shape, Path(folder)))
            rows += [{"shape": str(shape), "contestant": name} | turn._asdict() for name, turn in found.items()]
            exact = min(found["exact, db.sql"].cpu, found["exact, db.join"].cpu)
            for name, turn in found.items():
                most = _bar(name, exact)
                about = f"wall {turn.wall:.3g} s, {turn.rows:,} rows"
                measures.append(Measure(f"{shape}: {name}", turn.cpu, "CPU s", most, most=True, about=about))
    return Result(
        name="realtime", title=TITLE, unit="tuples", work=sum(2 * shape.tuples for shape in shapes), timings=(),
        measures=tuple(measures),
        notes=(
            f"bars: {_OVER:g} times the fraction of the cheaper exact answer's CPU, or {_CLOCK:g} times the seconds "
            f"asked for, and {1000 * _SLACK:g} ms in both",
            "the exact engine on hashed keys chooses them before it encodes; ranges are the whole join, unexpanded",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _bar(name: str, exact: float) -> float | None:
    if name.startswith(f"{FRACTION:g}"):
        return _OVER * FRACTION * exact + _SLACK
    return _CLOCK * SECONDS + _SLACK if name.startswith(f"{SECONDS:g} s") else None


def contestants(shape: Shape, folder: Path) -> dict[str, Callable[[], int]]:
    """By name, what asks its question, reads all of the answer and says how many rows it has."""
    db = Database()
    share = 1.0 / np.arange(1, shape.keys + 1) ** shape.skew
    share /= share.sum()
    window = shape.matches * _GAP / (2e9 * float(share @ share))
    names = np.random.default_rng(5).permutation(shape.keys)
    for seed, name in enumerate("ab"):
        key = pa.array(names[np.random.default_rng(seed).choice(shape.keys, shape.tuples, p=share)])
        if shape.kind != "int":
            key = key.cast(pa.string() if shape.kind == "text" else pa.float64())
        table = pa.table({"ts": pa.array(np.arange(shape.tuples) * _GAP).cast(pa.timestamp("ns")), "k": key})
        source: Any = table
        if shape.source == "Parquet":
            source = folder / f"{name}.parquet"
            parquet.write_table(table, source)
        db.register(name, source, time="ts")
    text = f"SELECT a.k, a.ts, b.ts AS other FROM a, b WHERE a.k = b.k WINDOW '{window:.9f} s'"
    preferred = text.replace(" WINDOW", " WITH PREFERENCE desc a.k WINDOW")
    query = db.join("a", "b", on="k", window=window)

    def approximate(preference: str, budget: Budget, **how: Any) -> int:
        answer = query.prefer(preference).using(**how).run(budget)
        if preference == "weighted":
            _ = answer.estimate.value
        return _drained(answer)

    def hashed() -> int:
        plan = query.plan()
        return _drained(JoinAnswer(sampled(query.run().joined, FRACTION, 0), plan, key="k"))

    told: dict[str, Callable[[], int]] = {
        "exact, db.sql": lambda: _drained(db.sql(text)),
        "exact, db.join": lambda: _drained(query.run()),
        "ranges": lambda: _drained(query.returning("ranges").run()),
        f"hashed keys, {FRACTION:g}": hashed,
    }
    for preference in ("desc", "asc", "weighted"):
        for way, how in (("", {}), (", strategy", {"strategy": "auto"})):
            told[f"{FRACTION:g} {preference}{way}"] = partial(approximate, preference, Budget(FRACTION), **how)
    told[f"{SECONDS:g} s desc"] = partial(approximate, "desc", Budget(seconds=SECONDS))
    told[f"{SECONDS:g} s desc, SQL"] = lambda: _drained(db.sql(preferred, budget=Budget(seconds=SECONDS)))
    return told


def _alternating(contestants: dict[str, Callable[[], int]]) -> dict[str, Turn]:
    """The median turn of each, by process CPU; the first round, which loads kernels, is not measured."""
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for number in range(ROUNDS + 1):
        for name, run in contestants.items():
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            rows = run()
            turn = Turn(time.process_time() - cpu, time.perf_counter() - wall, rows)
            if number:
                turns[name].append(turn)
    return {
        name: Turn(median(one.cpu for one in all_), median(one.wall for one in all_), all_[-1].rows)
        for name, all_ in turns.items()
    }


def _drained(answer: Any) -> int:
    """Rows of an answer that is read batch by batch, none kept."""
    return sum(len(batch) for batch in answer.batches())
