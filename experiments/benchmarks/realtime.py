"""What a budget costs on the real clock: process CPU and wall time from the call to the last batch read."""

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
from nile.summaries.errors import BudgetError
from nile.summaries.heavy import pa

__all__ = ["Shape", "contestants", "realtime"]

TITLE = "what budgets cost on the real clock, beside the exact answer"
FRACTIONS, SECONDS = (0.02, 0.1, 0.3, 0.5), (0.1, 0.5)
ROUNDS, BRIEFLY = 5, 5
_GAP = 1_000_000  # ns between tuples of a stream
_OVER, _SLACK = 1.1, 0.02
"""Of a fraction of the exact CPU, and seconds beside it."""
_CLOCK, _LATE = 1.05, {"s": 0.02, "deadline": 0.03}
"""Of a budget in seconds or a deadline, and seconds beside it."""


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
    *(
        Shape(matches, skew, 1_000_000, 100_000)
        for matches, skew in ((0.2, 0.5), (1, 0.5), (1, 0.8), (16, 0.5), (16, 0.8), (16, 1.23))
    ),
    Shape(480, 1.23, 300_000, 20_000),
    *(Shape(16, 0.8, 1_000_000, 100_000, kind) for kind in ("text", "float")),
    *(Shape(16, 0.8, 1_000_000, 100_000, kind, "Parquet") for kind in ("int", "text")),
)


class Turn(NamedTuple):
    """One run: process CPU and wall seconds, rows handed out, and whether the whole answer came back for a part."""

    cpu: float
    wall: float
    rows: int
    whole: bool = False


class Found(NamedTuple):
    """Rows handed out, and whether they are the whole answer where a part was asked for."""

    rows: int
    whole: bool = False


def _briefly() -> Result:
    return _measured(tuple(shape._replace(tuples=shape.tuples // BRIEFLY) for shape in SHAPES))


@benchmark("realtime", TITLE, brief=_briefly)
def realtime() -> Result:
    """Eleven shapes; contestants take turns in five rounds after one unmeasured, medians are told."""
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
                most = None if turn.whole else _bar(name, exact)
                came = ", the whole answer came back" if turn.whole else ""
                about = f"{turn.cpu / exact:.2f} of exact, wall {turn.wall:.3g} s, {turn.rows:,} rows{came}"
                measures.append(Measure(f"{shape}: {name}", turn.cpu, "CPU s", most, most=True, about=about))
    return Result(
        name="realtime", title=TITLE, unit="tuples", work=sum(2 * shape.tuples for shape in shapes), timings=(),
        measures=tuple(measures),
        notes=(
            f"bars: {_OVER:g} times the fraction of the cheaper exact answer's CPU and {1000 * _SLACK:g} ms, unless "
            f"the whole answer came back; {_CLOCK:g} times the seconds and {1000 * _LATE['s']:g} ms; "
            "deadlines are of the wall",
            "the exact engine on hashed keys chooses them before it encodes; ranges are the whole join, unexpanded",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _bar(name: str, exact: float) -> float | None:
    for fraction in FRACTIONS:
        if name in (f"{fraction:g} {preference}" for preference in ("desc", "asc", "weighted")):
            return _OVER * fraction * exact + _SLACK
    for seconds in SECONDS:
        if name.startswith(f"{seconds:g} s"):
            return _CLOCK * seconds + _LATE["s"]
    return None


def contestants(shape: Shape, folder: Path) -> dict[str, Callable[[], Found]]:
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

    def approximate(preference: str, budget: Budget, **how: Any) -> Found:
        answer = query.prefer(preference).using(**how).run(budget)
        if preference == "weighted":
            _ = answer.estimate.value
        rows = _drained(answer)
        return Found(rows, "* exact" in answer.strategy)

    def hashed() -> Found:
        return Found(_drained(JoinAnswer(sampled(query.run().joined, 0.3, 0), query.plan(), key="k")))

    told: dict[str, Callable[[], Found]] = {
        "exact, db.sql": lambda: Found(_drained(db.sql(text))),
        "exact, db.join": lambda: Found(_drained(query.run())),
        "ranges": lambda: Found(_drained(query.returning("ranges").run())),
        "hashed keys, 0.3": hashed,
    }
    for preference in ("desc", "asc", "weighted"):
        for fraction in FRACTIONS:
            budget = Budget(fraction)
            told[f"{fraction:g} {preference}"] = partial(approximate, preference, budget, costs="machine")
    told["0.3 desc, tuple by tuple"] = partial(approximate, "desc", Budget(0.3), costs="engine")
    for seconds in SECONDS:
        budget = Budget(seconds=seconds)
        told[f"{seconds:g} s desc"] = partial(approximate, "desc", budget, costs="machine")
        told[f"{seconds:g} s desc, SQL"] = partial(_asked, db, preferred, budget)
        told[f"deadline {seconds:g} s desc"] = partial(approximate, "desc", Budget(deadline=seconds), costs="machine")
    return told


def _asked(db: Database, text: str, budget: Budget) -> Found:
    return Found(_drained(db.sql(text, budget=budget, costs="machine")))


def _alternating(contestants: dict[str, Callable[[], Found]]) -> dict[str, Turn]:
    """The median turn of each, by process CPU; the first round, which loads kernels, is not measured.

    One whose time is refused as too little is left out.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for number in range(ROUNDS + 1):
        for name, run in contestants.items():
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                found = run()
            except BudgetError:
                continue
            turn = Turn(time.process_time() - cpu, time.perf_counter() - wall, found.rows, found.whole)
            if number:
                turns[name].append(turn)
    return {
        name: Turn(median(one.cpu for one in all_), median(one.wall for one in all_), all_[-1].rows, all_[-1].whole)
        for name, all_ in turns.items()
        if all_
    }


def _drained(answer: Any) -> int:
    """Rows of an answer that is read batch by batch, none kept."""
    return sum(len(batch) for batch in answer.batches())
