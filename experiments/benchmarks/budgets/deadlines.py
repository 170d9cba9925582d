"""Standing queries by a deadline: how late pushes are, alone and beside busy processes, and what is found by then."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from nile.engine.connect import connect
from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark, beside
from nile.preferences.budget import Budget
from nile.summaries.heavy import pa

__all__ = ["deadlines"]

TITLE = "how late the pushes of standing queries by a deadline are, and what is found by then"
TUPLES, PUSHES = 100_000, (1_000, 10_000)
"""Of each stream, and of one push."""
DEADLINES = (0.005, 0.02, 0.1)
"""Seconds."""
BUSY = (0, 1, 2)
"""Processes that want a core all the time."""
SEEDS = 12
_KEYS, _GAP = 2_000, 0.01
_ON_TIME, _SLACK = 1.05, 0.03
"""Of a deadline, and seconds beside it, that a push may take."""
_COLUMNS = (("at", "double"), ("k", "int64"), ("v", "double"))


class Asked(NamedTuple):
    """A query, and the streams that it reads."""

    name: str
    text: str
    streams: str


_THREE = "SELECT a.k, a.v FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW '5 s' WITH PREFERENCE {} a.k"
_JOIN = "SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k{} WINDOW '{} s' WITH PREFERENCE {} a.k"
ASKED = (
    *(Asked(f"join, {kind}", _JOIN.format("", 600, kind), "ab") for kind in ("desc", "asc", "weighted")),
    *(Asked(f"condition, {kind}", _JOIN.format(" AND a.v < b.v", 60, kind), "ab") for kind in ("desc", "weighted")),
    *(Asked(f"three streams, {kind}", _THREE.format(kind), "abc") for kind in ("desc", "weighted")),
    Asked("selection, desc", "SELECT k, v FROM a WHERE k BETWEEN 3 AND 700 AND v > 0.5 WITH PREFERENCE desc k", "a"),
)  # fmt: skip


class Played(NamedTuple):
    """Seconds that each push took; rows handed out, what they stand for, and CPU seconds, in all."""

    took: list[float]
    rows: int
    weight: float
    cpu: float


@cache
def _tables(tuples: int) -> dict[str, Any]:
    made = {}
    for k, name in enumerate("abc"):
        rng = np.random.default_rng(k)
        at, v = np.sort(rng.random(tuples) * tuples * _GAP), rng.random(tuples)
        made[name] = pa.table({"at": at, "k": rng.zipf(1.2, tuples) % _KEYS, "v": v})
    return made


def _opened(streams: str) -> Database:
    db = connect()
    for name in streams:
        db.stream(name, [(column, pa.type_for_alias(kind)) for column, kind in _COLUMNS], time="at")
    return db


def _play(asked: Asked, budget: Budget, push: int, tuples: int = TUPLES, seed: int = 0) -> Played:
    """All tuples, `push` of each stream in turn; rows are read between pushes."""
    took, rows, weight = [], 0, 0.0
    gc.collect()
    with _opened(asked.streams) as db:
        standing = db.subscribe(asked.text, budget=budget, seed=seed)
        cpu = time.process_time()
        for begin in range(0, tuples, push):
            for name in asked.streams:
                part = _tables(tuples)[name].slice(begin, push)
                began = time.perf_counter()
                db.push(name, part)
                took.append(time.perf_counter() - began)
            for batch in standing.poll():
                rows += batch.num_rows
                if "_weight" in batch.schema.names:
                    weight += float(np.sum(batch["_weight"].to_numpy()))
        return Played(took, rows, weight or float(rows), time.process_time() - cpu)


def _spin(pipe: Connection) -> None:
    """Want a core until the other end is closed."""
    pipe.send(None)
    while not pipe.poll():
        sum(range(20_000))


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    with ExitStack() as stack:
        pipes = [stack.enter_context(beside(_spin)) for _ in range(processes)]
        for pipe in pipes:
            pipe.recv()
        try:
            yield
        finally:
            for pipe in pipes:
                pipe.send(None)


def _late(asked: Asked, processes: int) -> Measure:
    """Of all pushes by all deadlines, how many are late."""
    late, pushes, worst = 0, 0, 0.0
    for push in PUSHES:
        for deadline in DEADLINES:
            took = _play(asked, Budget(deadline=deadline), push).took
            over = [each - (_ON_TIME * deadline + _SLACK) for each in took]
            late += sum(each > 0.0 for each in over)
            pushes += len(over)
            worst = max(worst, *over)
    about = f"of {pushes:,}; the latest by {1000 * (worst + _SLACK):.3g} ms beyond {_ON_TIME:g} times the deadline"
    name = f"{asked.name}, {processes} busy beside: pushes late"
    return Measure(name, float(late), "pushes", 0.0, most=True, about=about)


def _against(asked: Asked, deadline: float, rounds: int) -> Measure:
    """Rows a CPU second by a deadline, beside those within as many seconds a tuple, in alternating rounds."""
    tuples = TUPLES * len(asked.streams)
    ratios, found = [], []
    for _ in range(rounds):
        mine = _play(asked, Budget(deadline=deadline), PUSHES[0])
        theirs = _play(asked, Budget(seconds_per_tuple=mine.cpu / tuples), PUSHES[0])
        ratios.append(mine.rows / mine.cpu / max(1e-9, theirs.rows / theirs.cpu))
        found.append(mine.rows)
    about = f"{median(found):,.0f} rows by then; beside as many CPU seconds a tuple, which do not count handing out"
    return Measure.of(f"{asked.name}, {1000 * deadline:g} ms: rows a CPU second", ratios, "times", None, about=about)


def _mean(asked: Asked, deadline: float, truth: float) -> Measure:
    """What a sample stands for, over the truth: its mean over seeds, in standard errors."""
    told = np.array([_play(asked, Budget(deadline=deadline), PUSHES[0], 20_000, seed).weight for seed in range(SEEDS)])
    error = float(np.std(told, ddof=1)) / SEEDS**0.5
    off = abs(float(np.mean(told)) - truth) / error if error > 0.0 else 0.0
    about = f"mean {np.mean(told) / truth:.4f} of the truth, +- {error / truth:.4f}, over {SEEDS} seeds"
    name = f"{asked.name}, {1000 * deadline:g} ms: mean off"
    return Measure(name, off, "standard errors", 3.0, most=True, about=about)


def _measured(asked: tuple[Asked, ...], busy: tuple[int, ...], rounds: int) -> Result:
    measures: list[Measure] = []
    for each in asked:
        _play(each, Budget(deadline=1.0), PUSHES[0], 4_000)  # kernels are loaded, memory is there
    for processes in busy:
        with _busy(processes):
            measures += [_late(each, processes) for each in asked]
    measures += [_against(each, DEADLINES[1], rounds) for each in asked if not each.name.startswith("selection")]
    for each in asked:
        if each.name.endswith("weighted"):
            truth = float(_play(each, Budget(fraction=1.0), PUSHES[0], 20_000).rows)
            measures += [_mean(each, deadline, truth) for deadline in DEADLINES[:2]]
    return Result(
        name="deadlines", title=TITLE, unit="tuples", work=TUPLES, timings=(), measures=tuple(measures),
        notes=(
            f"late: beyond {_ON_TIME:g} times the deadline and {1000 * _SLACK:g} ms; of all pushes of {PUSHES[0]:,} "
            f"and of {PUSHES[1]:,} tuples, by deadlines of {', '.join(f'{1000 * each:g}' for each in DEADLINES)} ms",
            "a push takes from its call to its return, with all that standing queries do in it",
        ),
    )  # fmt: skip


_BRIEF = tuple(each for each in ASKED if each.name.startswith("join"))


@benchmark("deadlines", TITLE, brief=partial(_measured, _BRIEF, (0, 2), 3))
def deadlines() -> Result:
    """Eight queries, alone and beside one and two busy processes; --brief: three, beside none and two."""
    return _measured(ASKED, BUSY, 5)
