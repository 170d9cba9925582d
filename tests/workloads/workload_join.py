"""Small joins for tests: streams, brute force, and what every method promises whatever its budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.join.join import PromisingJoin
from nile.preferences.clock import retime
from nile.streams.accounting import Accounting

SECOND = 10**9
Pairs = list[tuple[int, int]]


def stream(name: str, ts: Any, keys: Any) -> Loaded:
    """A loaded stream.  ts: seconds; keys: a list, None for null."""
    accounting = Accounting(tuples_in=len(keys), applied=len(keys))
    times = np.asarray(ts, np.int64) * SECOND
    return Loaded(name, times, pa.chunked_array([pa.array(keys, pa.int64())]), accounting)


def random_stream(
    name: str, rng: np.random.Generator, n: int, keys: int, *, gap: int = 2, nulls: float = 0.05
) -> Loaded:
    """Skewed keys, some null; gaps of 0 to `gap` seconds, so that many tuples share a timestamp."""
    ts = np.cumsum(rng.integers(0, gap + 1, n))
    drawn = (keys * rng.random(n) ** 2).astype(np.int64)
    missing = rng.random(n) < nulls
    return stream(name, ts, [None if gone else int(key) for key, gone in zip(drawn, missing, strict=True)])


def joinable(seed: int, *, n: int, keys: int, window: int | None, replay: str = "none") -> Joinable:
    """Two random streams ready to join; under an exponential replay they are re-timed."""
    rng = np.random.default_rng(seed)
    left, right = random_stream("left", rng, n, keys), random_stream("right", rng, n, keys)
    if replay == "exponential":
        order = Joinable(left, right, window).order
        times = retime(order.shape[0], SECOND, seed)
        left = Loaded("left", times[order == 0], left.key, left.accounting)
        right = Loaded("right", times[order == 1], right.key, right.accounting)
    return Joinable(left, right, window)


def brute_force(joined: Joinable) -> set[tuple[int, int]]:
    """Every pair with equal keys and |ts1 - ts2| <= window, by looking at all of them."""
    left, right = joined.left, joined.right
    window = np.iinfo(np.int64).max if joined.window is None else joined.window
    keys = (left.key.to_pylist(), right.key.to_pylist())
    return {
        (i, j)
        for i, a in enumerate(keys[0])
        if a is not None
        for j in np.flatnonzero(np.abs(right.ts - left.ts[i]) <= window).tolist()
        if keys[1][j] == a
    }


def run(plan: JoinPlan, joined: Joinable, *, batch_rows: int = 65_536) -> tuple[Pairs, PromisingJoin]:
    """The pairs in the order they were found, range records expanded, and the operator that found them."""
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=plan.output == "ranges"), batch_rows=batch_rows)
    found: Pairs = []
    for outputs in list(join.run()):
        pairs = join.expand(outputs)
        found += zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    return found, join


def records(plan: JoinPlan, joined: Joinable, *, batch_rows: int) -> list[tuple[float, ...]]:
    """The outputs as they are, not expanded, in order."""
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=plan.output == "ranges"), batch_rows=batch_rows)
    found: list[tuple[float, ...]] = []
    for out in join.run():
        columns = [out.left, out.right, out.weight, out.side, out.low, out.high]
        found += zip(*[column.tolist() for column in columns if column is not None], strict=True)
    return found


def assert_honest(plan: JoinPlan, joined: Joinable, found: Pairs, join: PromisingJoin) -> None:
    """A subset of the exact answer, without repeats, paid for, with every tuple accounted for."""
    figures = join.figures
    assert len(found) == len(set(found))
    assert set(found) <= brute_force(joined)
    assert figures.spent <= figures.granted * (1 + 1e-9)
    assert figures.spent_insert + figures.spent_hit <= figures.spent * (1 + 1e-9) + 1e-9
    assert figures.arrivals == len(joined.left) + len(joined.right)
    assert figures.admitted + figures.nulls + sum(figures.shed) == figures.arrivals
    assert 0.0 <= figures.coverage <= 1.0
    assert plan.output == "ranges" or figures.outputs == len(found)
