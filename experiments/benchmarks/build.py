"""What Spark costs a build: two cores against one process with the same kernels, and against rows through Spark."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nile.experiments.benchmarks.build_fed import fed
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.history_data import anonymous_bytes
from nile.experiments.benchmarks.summaries.sketch import zipf_keys
from nile.pyramid.lake.lake import DAY, LakeStream, Layout, write_part
from nile.spark.building.build import Built, build, build_with
from nile.spark.building.tasks import Done, Job, Work
from nile.spark.session import spark_session
from nile.summaries.heavy import pa

__all__ = ["ask_for", "lake_of", "measure"]

TITLE = "the store of a lake, built by tasks on two cores"
ROWS, BRIEF_ROWS = 10_000_000, 1_000_000
ROUNDS = 5
ONE_PROCESS_BAR, ARROW_BAR = 2.5, 4.0
ITEMS, SKEW, GAP_NS = 20_000, 1.1, 50_000_000
A_PART = 2_000_000  # as `ingest` writes them
SUMMARY = "CREATE SUMMARY items ON sales (item) WITH GRANULARITY '1 h' AND COLLAPSE (4, 3)"
_ASKED = {"rows": ROWS}


def ask_for(rows: int) -> None:
    """How many rows the benchmark is to be run over."""
    _ASKED["rows"] = rows


def lake_of(root: Path, rows: int) -> LakeStream:
    """A lake of sales: five columns, items by Zipf's law that change halfway, in files as `ingest` writes them."""
    names = pa.array([f"SKU-{item:06d}" for item in range(2 * ITEMS)])
    schema = pa.schema([("at", pa.timestamp("us")), ("item", pa.string()), ("store", pa.int32()),
                        ("quantity", pa.int32()), ("price", pa.float64())])  # fmt: skip
    stream = LakeStream.create(root, Layout("sales", "at", "item", schema, range_ns=10_000 * DAY))
    draw = np.random.Generator(np.random.PCG64(5))
    with stream.writing() as now:
        staged = []
        for begin in range(0, rows, A_PART):
            n = min(A_PART, rows - begin)
            ordinals = np.arange(begin, begin + n, dtype=np.int64)
            ts = ordinals * GAP_NS // 1_000 * 1_000
            items = zipf_keys(n, ITEMS, SKEW, seed=begin) + ITEMS * (2 * begin >= rows)
            columns = [pa.array(ts // 1_000).cast(pa.timestamp("us")), names.take(pa.array(items)),
                       pa.array(draw.integers(0, 10, n), pa.int32()), pa.array(draw.integers(1, 12, n), pa.int32()),
                       pa.array(draw.integers(1, 4_000, n) / 100)]  # fmt: skip
            path = now.staging() / f"{begin}.parquet"
            table = pa.Table.from_arrays(columns, schema=schema)
            staged.append((path, write_part(path, ordinals, ts, table, "item", sync=False)))
        return now.commit(staged, {"id": "made"})


@dataclass(slots=True)
class _Turn:
    """Seconds of one build: by the clock, and of CPU time in all processes that it used."""

    wall: float
    cpu: float


def cpu_seconds() -> float:
    """CPU time so far of this process, of all below it that live, and of those of theirs that ended."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            told = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(told[1]), []).append(int(entry.name))
        spent[int(entry.name)] = sum(map(int, told[11:15])) / tick
    total, ahead = 0.0, [os.getpid()]
    while ahead:
        one = ahead.pop()
        total += spent.get(one, 0.0)
        ahead += parents.get(one, [])
    return total


def in_turn(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
    """One process does all works, one after the other."""
    return [job.do(work) for work in works]


def measure(rows: int, rounds: int = ROUNDS, *, brief: bool = False) -> Result:
    """The three ways take turns over one lake.  The first build of each, which warms kernels and Java, is not timed."""
    with tempfile.TemporaryDirectory(prefix="nile-bench-") as folder:
        root = Path(folder)
        lake = lake_of(root / "lake", rows)
        spark = spark_session(cores=2)
        ways: dict[str, Callable[[Path], Built]] = {
            "tasks": lambda store: build(root / "lake", store, summaries=[SUMMARY], spark=spark),
            "process": lambda store: build_with(in_turn, lake, store, summaries=[SUMMARY]),
            "arrow": lambda store: build_with(fed(spark), lake, store, summaries=[SUMMARY]),
        }
        turns: dict[str, list[_Turn]] = {name: [] for name in ways}
        memory: list[int] = []
        for number in range(rounds + 1):
            order = list(ways)[number % 3 :] + list(ways)[: number % 3]
            for name in order:
                with tempfile.TemporaryDirectory(dir=folder) as store:
                    held, cpu, wall = anonymous_bytes(), cpu_seconds(), time.perf_counter()
                    ways[name](Path(store) / "store")
                    if number:
                        turns[name].append(_Turn(time.perf_counter() - wall, cpu_seconds() - cpu))
                        if name == "tasks":
                            memory.append(anonymous_bytes() - held)
        return _result(rows, turns, max(memory), brief)


def _result(rows: int, turns: dict[str, list[_Turn]], memory: int, brief: bool) -> Result:
    def ratio(over: str, under: str, of: Callable[[_Turn], float]) -> list[float]:
        return [of(a) / of(b) for a, b in zip(turns[over], turns[under], strict=True)]

    def told(name: str, ratios: list[float], bar: float | None, *, most: bool, about: str) -> Measure:
        return Measure.of(name, ratios, "times", bar, most=most, about=about)

    wall: Callable[[_Turn], float] = lambda turn: turn.wall  # noqa: E731
    cpu: Callable[[_Turn], float] = lambda turn: turn.cpu  # noqa: E731
    process, arrow = "what one process takes for the same works", "as fast as rows through mapInArrow"
    clock, busy = "by the clock", "CPU time of all processes"
    figures: dict[str, Any] = {
        name: f"{median(one.wall for one in found):.1f} s, {median(one.cpu for one in found):.1f} s of CPU time"
        for name, found in turns.items()
    }
    figures["driver"] = f"{memory / 1e6:.0f} MB more after a build than before it, at most"
    figures["load"] = "{:.1f} {:.1f} {:.1f}".format(*os.getloadavg())
    return Result(
        name="build",
        title=TITLE,
        unit="rows",
        work=rows,
        timings=(),
        measures=(
            told(process, ratio("tasks", "process", wall), ONE_PROCESS_BAR, most=True, about=clock),
            told(f"{process}, CPU", ratio("tasks", "process", cpu), None, most=True, about=busy),
            told(arrow, ratio("arrow", "tasks", wall), ARROW_BAR, most=False, about=clock),
            told(f"{arrow}, CPU", ratio("arrow", "tasks", cpu), None, most=False, about=busy),
        ),
        figures=figures,
        notes=("five columns, rows and an index and a summary of one; Java and kernels warm",),
        brief=brief,
    )


@benchmark("build", TITLE, brief=lambda: measure(BRIEF_ROWS, brief=True))
def build_benchmark() -> Result:
    """Ten million rows, or as many as were asked for."""
    return measure(_ASKED["rows"])
