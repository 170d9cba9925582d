"""Counters at the end of int64 and fade factors down to denormals: saturated and flagged, or wider, never wrapped."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, feed, generator
from nile.summaries.catalogue import make_summary, read_summary
from nile.summaries.countsketch import CountSketch
from nile.summaries.errors import SumOverflow
from nile.summaries.exact import ExactCounter
from nile.summaries.heavy import pa
from nile.summaries.summary import TOP, Summary

__all__ = ["FAULT"]

_NAME = "counters"
_ROUNDED = 1 + 2**-40
"""Estimates are float64: counts past 2**53 are rounded, by one part in 2**53 a step."""


def attempt(seed: int) -> None:
    """A summary, sums in SQL, or a faded join, by the seed."""
    rng = generator(_NAME, seed)
    (_summary, _summary, _sums, _fade)[seed % 4](rng)


def control(seed: int) -> None:
    """The same check of a counter that wraps as int64 does."""
    rng = generator(_NAME, seed)
    steps = [np.array([TOP - int(rng.integers(100))]), np.array([200])]
    with np.errstate(over="ignore"):
        wrapped = steps[0] + steps[1]
    counter = ExactCounter()
    counter.hashes, counter.counts = np.array([7], np.uint64), wrapped
    _check(counter, {7: int(steps[0][0]) + 200})


def _summary(rng: np.random.Generator) -> None:
    """Weights near 2**63 go in, alone and by adding; a linear one also loses some."""
    name = ("countsketch", "exact", "frequent", "hll")[int(rng.integers(4))]
    options = {"countsketch": {"rows": 3, "columns": 8}, "frequent": {"capacity": int(rng.integers(1, 6))}}
    summary = make_summary(name, **options.get(name, {}))
    true: Counter[int] = Counter()
    for _ in range(int(rng.integers(1, 6))):
        n = int(rng.integers(1, 9))
        keys = rng.integers(0, 5, n).astype(np.uint64)
        power = int(rng.integers(0, 64))
        weights = np.array([max(1, min(TOP, (1 << power) - int(d))) for d in rng.integers(0, 4, n)], np.int64)
        if summary.linear and rng.random() < 0.2:
            weights = -weights
        feed(summary, keys, weights, rng)
        for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
            true[key] += weight
    _check(summary, true)
    again = read_summary(summary.to_bytes())
    expect(again.to_bytes() == summary.to_bytes(), f"{summary.describe()} does not come back from its bytes")


def _check(summary: Summary, true: dict[int, int]) -> None:
    keys = np.array(sorted(true), np.uint64)
    counts = [true[int(key)] for key in keys]
    told = summary.estimate(keys)
    low, high = np.broadcast_to(told.low, keys.shape), np.broadcast_to(told.high, keys.shape)
    expect(summary.total == sum(counts), f"{summary.describe()}: the total {summary.total} is not {sum(counts)}")
    if summary.saturated:
        expect(told.confidence == 0 and not told.certified, f"{summary.describe()} saturated and claims something")
    elif type(summary) is ExactCounter:
        expect(all(abs(c) <= TOP for c in counts), f"{summary.describe()}: beyond int64 and not flagged")
        expect(np.asarray(told.value).tolist() == [float(c) for c in counts], f"{summary.describe()}: other counts")
    elif min(counts) >= 0 and not isinstance(summary, CountSketch):
        held = all(a <= c * _ROUNDED and c <= b * _ROUNDED for a, c, b in zip(low, counts, high, strict=True))
        expect(held, f"{summary.describe()}: counts {counts} outside of {low} to {high}")
    elif isinstance(summary, CountSketch):
        for row in summary.counters:
            whole = sum(row.tolist())
            expect(whole == sum(counts), f"{summary.describe()}: a row holds {whole}, not {sum(counts)}")


def _sums(rng: np.random.Generator) -> None:
    """Sums of whole numbers in SQL: exact, or SumOverflow where a state of the answer leaves int64."""
    n = int(rng.integers(2, 12))
    keys = rng.integers(0, 2, n).tolist()
    power = int(rng.integers(55, 64))
    numbers = [int(rng.choice([-1, 1])) * max(0, (1 << power) - 1 - int(d)) for d in rng.integers(0, 3, n)]
    table = pa.table({"at": pa.array(range(n)), "k": keys, "n": pa.array(numbers, pa.int64())})
    true: dict[int, int] = {}
    beyond = False
    for key, number in zip(keys, numbers, strict=True):
        true[key] = true.get(key, 0) + number
        beyond |= not -TOP - 1 <= true[key] <= TOP
    with Database() as db:
        db.register("s", table, time="at")
        try:
            found: dict[Any, Any] = dict(db.sql("SELECT k, sum(n) AS total FROM s GROUP BY k").fetchall())
        except SumOverflow:
            expect(beyond, f"SumOverflow for sums {true}")
            return
        expect(found == true, f"sums {found}, must be {true}")
        mean = dict(db.sql("SELECT k, avg(n) AS mean FROM s GROUP BY k").fetchall())
        for key, total in true.items():
            exact = total / keys.count(key)
            expect(abs(mean[key] - exact) <= 1e-9 * abs(exact) + 1e-9, f"mean {mean[key]}, must be {exact}")


def _fade(rng: np.random.Generator) -> None:
    """A join under a fade whose powers are denormal or 0: pairs of the exact answer, within the budget."""
    fade = float(rng.choice([5e-324, 1e-310, 2.2e-308, 1e-160, 1e-30]))
    sides = []
    for _ in range(2):
        n = int(rng.integers(40, 120))
        sides.append((np.sort(rng.integers(0, 600, n)), rng.integers(0, 6, n)))
    with Database() as db:
        for name, (at, key) in zip("lr", sides, strict=True):
            db.register(name, pa.table({"t": at, "k": key}), time="t")
        query = db.join("l", "r", on="k", window=int(rng.integers(50, 400))).prefer("desc", fade=fade)
        query = query.using(granularity=1, rate=2, depth=int(rng.integers(2, 12)))
        exact = _pairs(query.run())
        answer = query.guided_by("countsketch").run(float(rng.choice([0.2, 0.6, 1.5])))
        found = _pairs(answer)
        expect(found <= exact, "pairs that are not in the exact answer")
        expect(answer.budget.spent <= answer.budget.asked * (1 + 1e-9), f"spent {answer.budget}")


def _pairs(answer: Any) -> set[tuple[int, int]]:
    table = answer.to_arrow()
    pairs = list(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))
    expect(len(set(pairs)) == len(pairs), "a pair twice")
    return set(pairs)


FAULT = Fault(
    _NAME, "counters near 2**63, fade to denormals", "saturate and flag, or widen; never wrap", attempt, control,
    full=10_000, small=80,
)  # fmt: skip
