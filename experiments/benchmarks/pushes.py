"""What a push costs each standing query before there are rows to work on, by kind of query and how many there are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.lazy import lazy

__all__ = ["KINDS", "pipelines_push", "spent"]

pa = lazy("pyarrow")

TITLE = "what a push costs a standing query before there are rows to work on"
KINDS = {
    "selection": "SELECT x, v FROM s WHERE v > {above}",
    "sum": "SELECT sum(v) AS total FROM s WINDOW {window}",
    "group-by": "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k WINDOW {window}",
    "distinct": "SELECT DISTINCT k FROM s WINDOW {window}",
    "join": "SELECT a.k, a.v, b.v AS w FROM s AS a, r AS b WHERE a.k = b.k WINDOW {window}",
}
MANY = (1, 10, 100)
ROUNDS, PUSHES, MOST_ROWS = 5, 100, 10_000
BAR, BARRED = 50.0, 10
"""us for each query and push of one row, where so many stand."""
KEYS, WINDOW = 10_000, 60


def _batches(rows: int, seed: int) -> Iterator[Any]:
    """A batch of so many rows for each second."""
    rng = np.random.default_rng(seed)
    for at in count():
        columns = [at + np.arange(rows) / rows, rng.integers(0, KEYS, rows), rng.random(rows), rng.integers(0, 9, rows)]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=_schema())


def _schema() -> Any:
    return pa.schema([("at", pa.float64()), ("k", pa.int64()), ("v", pa.float64()), ("x", pa.int64())])


def spent(kind: str, many: int, rows: int = 1, rounds: int = ROUNDS, pushes: int = PUSHES) -> list[float]:
    """us of CPU, of each round, that a push of `rows` rows takes with so many queries of a kind, none alike.

    Each has a callback.  A join is pushed to on both sides, which counts as one push.
    """
    with Database(threads=1) as db:
        names = ["s", "r"] if kind == "join" else ["s"]
        for name in names:
            db.stream(name, _schema(), time="at", keep=1.0)
        window = WINDOW if rows == 1 else 1
        for number in range(many):
            text = KINDS[kind].format(above=0.5 + number / (4 * many), window=f"'{1000 * window + number} ms'")
            db.subscribe(text, callback=lambda _: None)
        sources = [_batches(rows, seed) for seed, _ in enumerate(names)]
        found = []
        for _ in range(rounds + 1):  # the first fills the windows
            given = [[next(source) for source in sources] for _ in range(pushes)]
            begun = time.process_time_ns()
            for batches in given:
                for name, batch in zip(names, batches, strict=True):
                    db.push(name, batch)
            found.append((time.process_time_ns() - begun) / pushes / 1e3)
    return found[1:]


@benchmark("pipelines-push", TITLE)
def pipelines_push() -> Result:
    """CPU time of a push of one row with 1, 10 and 100 queries, less that with none; and of one of 10,000 rows."""
    measures = []
    for kind in KINDS:
        without = float(np.median(spent(kind, 0)))
        measures.append(Measure(f"no query, streams of a {kind}", without, "us a push"))
        for many in MANY:
            each = [max(us - without, 0.0) / many for us in spent(kind, many)]
            bar = BAR if many == BARRED else None
            measures.append(Measure.of(f"{kind}, {many} queries, one row", each, "us a query", bar, most=True))
        large = [us / BARRED for us in spent(kind, BARRED, MOST_ROWS, pushes=5)]
        measures.append(Measure.of(f"{kind}, {BARRED} queries, {MOST_ROWS:,} rows", large, "us a query", None))
    return Result(
        name="pipelines-push",
        title=TITLE,
        unit="pushes",
        work=PUSHES,
        timings=(),
        measures=tuple(measures),
        notes=(
            f"each query has a window of its own of about {WINDOW} rows, or of one push of {MOST_ROWS:,}, and a "
            "callback; a row comes and one goes with each push; a join is pushed to on both sides",
        ),
    )
