"""Whether a join under the wall clock keeps to the share of a core that it was given."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.drive.wall_clock import run_live
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.wall import WallBudget, WallClock
from nile.summaries.hashing import Encoded, KeyHasher

__all__ = ["kept_shares", "random_join"]

Array = np.ndarray[Any, Any]

TITLE = "CPU share kept by a join under the wall clock"
SECOND = 1_000_000_000
ARRIVALS = 400_000
WINDOW = 60 * SECOND
GAP = SECOND // 10  # mean, of the data's own time
SPEED = 10_000.0  # times the data's own pace: 100,000 arrivals a second, more than a tenth of a core can take
KEYS = 2_000
SHARES = (0.05, 0.1)
BAR = 0.05
METHODS = ("paper", "scan")
ROUNDS = 3


def random_join(arrivals: int, seed: int) -> JoinInput:
    """Two streams of half the arrivals each, uniform in time, keys with density 1 / (3 * (key / KEYS) ** (2 / 3))."""
    rng = np.random.default_rng(seed)
    half = arrivals // 2
    hashes = KeyHasher().words(np.arange(KEYS, dtype=np.int64))
    sides = []
    for _ in range(2):
        codes = (KEYS * rng.random(half) ** 3).astype(np.int32)
        sides.append((np.sort(rng.integers(0, arrivals * GAP, half)), Encoded(codes=codes, hashes=hashes[codes])))
    (left_ts, left), (right_ts, right) = sides
    order = np.repeat(np.array([0, 1], np.int8), half)[np.argsort(np.concatenate([left_ts, right_ts]), kind="stable")]
    costs = np.ones(order.shape[0])  # the wall clock grants, not the exact costs
    return JoinInput(left_ts=left_ts, right_ts=right_ts, left=left, right=right, order=order, costs=costs, keys=KEYS)


@benchmark("share", TITLE)
def kept_shares() -> Result:
    """Play the same join back at a pace that no small share can keep up with, three times a method and share."""
    data = random_join(ARRIVALS, seed=1)
    measures: list[Measure] = []
    for method in METHODS:
        plan = JoinPlan(window=WINDOW, budget=Budget(1.0), method=method, pace=Pace("data"), spec=default_spec(WINDOW))
        for _ in PromisingJoin(plan, data, batch_rows=4096).run():
            pass  # the kernels are compiled and in the caches
        for share in SHARES:
            used = []
            for _ in range(ROUNDS):
                clock = WallClock(WallBudget(share))
                for _ in run_live(PromisingJoin(plan, data), clock, speed=SPEED):
                    pass
                used.append(clock.share)
            off = [abs(one / share - 1.0) for one in used]
            about = f"used {median(used):.4f}, {min(used):.4f} to {max(used):.4f}"
            name = f"{method}, asked {share:.3f}: off by"
            measures.append(
                Measure(name, abs(median(used) / share - 1.0), "of it", BAR, most=True, low=min(off), high=max(off),
                        about=about)
            )  # fmt: skip
    return Result(
        name="share",
        title=TITLE,
        unit="arrivals",
        work=ARRIVALS,
        timings=(),
        measures=tuple(measures),
        notes=(
            "CPU time of the thread that runs the join over wall time, everything but the consumer counted",
            "a share below what refusing every arrival costs cannot be kept",
        ),
    )
