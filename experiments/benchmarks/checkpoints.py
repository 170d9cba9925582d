"""What it costs that a database outlives its process: checkpoints of a large state, and coming back from one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from nile.durable.keeper import Keeper
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["checkpoints", "filled", "restarts"]

QUERY = "SELECT item, count(*) AS sold, sum(price) AS total FROM sales [RANGE '1 h'] GROUP BY item"
BATCH = 50_000
ITEMS = 20_000
ROUNDS = 5
STATE = 100_000_000
INTERVAL_S = 10.0
CHECKPOINT_BAR_S, SHARE_BAR, RESTART_BAR_S = 1.0, 0.05, 3.0

_AGAIN = """
import nile, numpy as np
db = nile.connect({path!r}, checkpoint=None)
at = np.array([{at}]).view("datetime64[ns]")
db.push("sales", {{"at": at, "item": [1], "price": [1.0]}})
db.advance({at} / 1e9 + 1.0)
print(sum(len(batch) for batch in db.subscription("recent").poll()))
"""


def batch(number: int, gap_ns: int, rng: np.random.Generator) -> pa.RecordBatch:
    """The sales number * BATCH and after, `gap_ns` apart."""
    at = (np.arange(BATCH) + number * BATCH) * gap_ns
    columns = [pa.array(at, pa.timestamp("ns")), pa.array(rng.integers(0, ITEMS, BATCH)), pa.array(rng.random(BATCH))]
    return pa.RecordBatch.from_arrays(columns, names=["at", "item", "price"])


class Filled:
    """A database whose standing query holds about `state` bytes: as many sales as its window has room for."""

    def __init__(self, path: Path, state: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(11))
        self.db = nile.connect(path, memory="256MB", checkpoint=None)
        schema = [("at", pa.timestamp("ns")), ("item", pa.int64()), ("price", pa.float64())]
        self.db.stream("sales", schema, time="at")
        self.query = self.db.subscribe(QUERY, name="recent")
        self.number = 0
        self.gap = 3_600_000_000_000 * 28 // state  # a sale in the window takes about 28 bytes
        while self.number * BATCH * self.gap < 3_700_000_000_000:
            self.push()

    @property
    def last(self) -> int:
        """The time of the latest sale, ns."""
        return (self.number * BATCH - 1) * self.gap

    def push(self) -> None:
        """The next batch; what it tells is read."""
        self.db.push("sales", batch(self.number, self.gap, self.rng))
        self.query.poll()
        self.number += 1

    def rate(self, seconds: float) -> float:
        """Sales a second over at least so much time."""
        begun, first = time.perf_counter(), self.number
        while (spent := time.perf_counter() - begun) < seconds:
            self.push()
        return (self.number - first) * BATCH / spent


def filled(path: Path, state: int = STATE) -> Filled:
    """See `Filled`."""
    return Filled(path, state)


def restarts(path: Path, last: int, rounds: int = ROUNDS) -> list[float]:
    """Seconds from the start of a process to the first answer of the standing query it goes on with.

    As installed packages are: their modules compiled to bytecode, which an untimed first start sees to.
    """
    out = []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        program = _AGAIN.format(path=str(path), at=last + 1)
        told = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        out.append(time.perf_counter() - begun)
        assert int(told.stdout) > 0
    return out[1:]


@benchmark("checkpoints", "Checkpoints of a state of 100 MB, what they take from ingest, and coming back")
def checkpoints(state: int = STATE, interval: float = INTERVAL_S, rounds: int = ROUNDS) -> Result:
    """Wall time: most of it is waiting for the disk, which CPU time would not show."""
    with tempfile.TemporaryDirectory(prefix="nile-bench-") as folder:
        path = Path(folder) / "store"
        full = filled(path, state)
        db = full.db
        db.checkpoint()
        took = []
        for _ in range(rounds):
            full.push()
            begun = time.perf_counter()
            db.checkpoint()
            took.append(time.perf_counter() - begun)
        keeper = db._live._keeper
        assert isinstance(keeper, Keeper)
        held = sum(file.length for file in keeper.directory.files().values() if file.role.startswith("state"))
        without: list[float] = []
        using: list[float] = []
        shares: list[float] = []
        for number in range(rounds):
            for due in (number % 2 == 0, number % 2 == 1):  # who goes first alternates
                keeper.every = interval if due else None
                db.checkpoint()
                before, begun = keeper.seconds, time.perf_counter()
                (using if due else without).append(full.rate(2.05 * interval))  # two checkpoints fall due
                if due:
                    shares.append((keeper.seconds - before) / (time.perf_counter() - begun))
        keeper.every = None
        share = median(1 - a / b for a, b in zip(using, without, strict=True))
        db.close()
        again = restarts(path, full.last, rounds)
    measures = (
        Measure.of("one checkpoint", took, "s", CHECKPOINT_BAR_S, most=True),
        Measure(f"of ingest throughput at an interval of {interval:g} s", share, "share", SHARE_BAR, most=True),
        Measure.of("process start to first answer", again, "s", RESTART_BAR_S, most=True),
    )
    figures = {
        "state": f"{held / 1e6:.0f} MB in files",
        "ingest": f"{median(without) / 1e6:.2f} million rows/s without, {median(using) / 1e6:.2f} with checkpoints; "
        f"ratios of rounds {', '.join(f'{a / b:.2f}' for a, b in zip(using, without, strict=True))}",
        "ingest waits": f"{median(shares):.3f} of the time; collapsing files, which goes on without them too, included",
    }
    return Result(
        name="checkpoints",
        title="a standing query over a window of an hour, checkpointed",
        unit="rounds",
        work=rounds,
        timings=(),
        measures=measures,
        figures=figures,
        notes=("wall time, medians; rows move to files beyond 256 MB meanwhile",),
    )
