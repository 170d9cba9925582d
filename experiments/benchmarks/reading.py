"""How soon results follow their input, and in how much memory long answers are read."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from nile.experiments.benchmarks.harness import Measure, Result, benchmark

__all__ = ["reading"]

TITLE = "results after their input, and long answers in bounded memory"
LAG_BAR_S, READ_BAR_MB, COUNT_BAR_MB, FIRST_BAR_S = 0.4, 600.0, 300.0, 2.0
ROUNDS = 2
PIECES, PAUSE_S = 6, 0.3
TUPLES, LONGER = 16_100, 30_000
LONG, SHORT = 2_000_000, 1_000_000

_FEED = """
import sys, time, json, warnings, numpy, nile
warnings.simplefilter("ignore")
text, pieces, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def columns(piece):
    return {"ts": piece + numpy.arange(1000) / 1000, "k": numpy.arange(1000) % 50}
def source(sent):
    for piece in range(pieces):
        time.sleep(pause)
        sent.append(time.perf_counter())
        yield columns(piece)
def worst():
    feeds, late = {name: [] for name in "gh"}, 0.0
    db = nile.connect()
    for name, sent in feeds.items():
        db.register(name, source(sent), time="ts")
    whole = [columns(piece) for piece in range(pieces)]
    table = {name: numpy.concatenate([each[name] for each in whole]) for name in ("ts", "k")}
    db.register("s", table, time="ts")
    for batch in db.sql(text).batches():
        now = time.perf_counter()
        for row in nile.rows(batch):
            if row.get("_sign", 1) > 0:
                times = [row[name] for name in ("ts", "o", "_ts") if name in row]
                ts = max(at if isinstance(at, float) else at.timestamp() for at in times)
                late = max(late, now - max(sent[int(ts)] for sent in feeds.values() if len(sent) > int(ts)))
    return late
worst()  # kernels are loaded
print(json.dumps(worst()))
"""
_HOLD = """
import sys, json, warnings, numpy, nile
from nile.base.machine import peak_memory
warnings.simplefilter("ignore")
what, n = sys.argv[1], int(sys.argv[2])
db = nile.connect()
for name in "ab":
    db.register(name, {"ts": numpy.arange(n) / 1000, "k": numpy.zeros(n, numpy.int64)}, time="ts")
pairs = db.join("a", "b", on="k", window="1 day")
asked = "FROM a, b WHERE a.k = b.k WINDOW '1 day'"
if what == "weighted":
    found = sum(batch.num_rows for batch in pairs.prefer("weighted").run(0.78).batches())
elif what == "desc":
    sql = f"SELECT a.ts, b.ts AS o {asked} WITH PREFERENCE desc a.k BUDGET 78 %"
    found = sum(batch.num_rows for batch in db.sql(sql).batches())
elif what == "estimate":
    found = int(pairs.prefer("weighted").run(1.0).estimate.value)
else:
    ((found,),) = db.sql(f"SELECT count(*) AS n {asked}", emit="snapshot").fetchall()
print(json.dumps([found, peak_memory() / 2**20]))
"""
_FIRST = """
import sys, json, time, warnings, numpy, nile
warnings.simplefilter("ignore")
db = nile.connect()
for seed, (name, n) in enumerate(zip("ab", map(int, sys.argv[1:]))):
    rng = numpy.random.default_rng(seed)
    keys = numpy.minimum(rng.zipf(1.3, n), 1_000_000)
    db.register(name, {"ts": numpy.sort(rng.uniform(0, 86_400, n)), "k": keys}, time="ts")
text = "SELECT a.k, a.ts, b.ts AS o FROM a, b WHERE a.k = b.k WINDOW '10 min' WITH PREFERENCE desc a.k LIMIT 1000"
times = []
for _ in range(3):
    begun = time.process_time()
    db.sql(text).to_arrow()
    times.append(time.process_time() - begun)
print(json.dumps(times[-1]))
"""
_FEEDS = {
    "selection": "SELECT k, ts FROM g WHERE k < 10",
    "group": "SELECT k, count(*) AS n FROM g GROUP BY k WINDOW 1",
    "exact join": "SELECT g.k, g.ts, s.ts AS o FROM g, s WHERE g.k = s.k WINDOW 0.05",
    "budgeted join": (
        "SELECT g.k, g.ts, h.ts AS o FROM g, h WHERE g.k = h.k WITH PREFERENCE desc g.k WINDOW 0.05 BUDGET 50 %"
    ),
}


@benchmark("reading", TITLE)
def reading() -> Result:
    """A process for each figure, so that its peak of memory is its own."""
    measures = (
        *(_lag(name, text) for name, text in _FEEDS.items()),
        _held("weighted", "pairs read batch by batch", LONGER, READ_BAR_MB),
        _held("desc", "pairs read batch by batch", TUPLES, READ_BAR_MB),
        _held("estimate", "pairs estimated", TUPLES, COUNT_BAR_MB),
        _held("count", "pairs counted", TUPLES, COUNT_BAR_MB),
        Measure.of(
            f"desc ... LIMIT 1000 of {LONG:,} x {SHORT:,} rows",
            [float(_asked(_FIRST, LONG, SHORT)) for _ in range(ROUNDS)],
            "s",
            FIRST_BAR_S,
            most=True,
            about="process CPU, kernels compiled, streams in memory",
        ),
    )
    return Result(name="reading", title=TITLE, unit="processes", work=len(measures), timings=(), measures=measures)


def _lag(name: str, text: str) -> Measure:
    rounds = [float(_asked(_FEED, text, PIECES, PAUSE_S)) for _ in range(ROUNDS)]
    told = f"{name} over a generator: the latest result after its input"
    return Measure.of(told, rounds, "s", LAG_BAR_S, most=True, about=f"1,000 rows every {PAUSE_S:g} s, wall clock")


def _held(what: str, done: str, tuples: int, bar: float) -> Measure:
    rounds = [_asked(_HOLD, what, tuples) for _ in range(ROUNDS)]
    told = f"{what}: {rounds[0][0]:,} {done}"
    return Measure.of(told, [peak for _, peak in rounds], "MB", bar, most=True, about="peak resident memory")


def _asked(program: str, *given: object) -> Any:
    run = subprocess.run([sys.executable, "-c", program, *map(str, given)], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])
