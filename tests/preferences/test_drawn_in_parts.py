"""A sample of pairs that ends early by the clock: no pair twice, and right on average whenever it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.drive.clock import Clock
from nile.operators.strategies.counted import CountedJoin
from nile.operators.strategies.drawing import drawn_in_parts
from nile.preferences.budget import Budget

Array = np.ndarray[Any, Any]
N, GRANT = 600, 1_000.0


def _counted() -> CountedJoin:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        keys = (40 * np.random.default_rng(seed).random(N) ** 2).astype(np.int64)
        db.register(name, pa.table({"t": np.arange(N) * 1.0, "k": keys}), time="t")
    return CountedJoin(db.join("a", "b", on="k", window=50.0).run().joined.exact)


class _Now:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def _drawn(counted: CountedJoin, rate: Array, seed: int, slow: int) -> tuple[Array, Array, Array]:
    """A part takes `slow` ns for each chunk of it."""
    now = _Now()
    clock = Clock(Budget(seconds=1e-6), cpu=now, wall=now)
    which = (np.arange(counted.side.shape[0]) % 2).astype(np.uint8)
    found = []
    for part in drawn_in_parts(
        counted, which, rate, np.array([1.0, 1.0]), np.random.default_rng(seed), clock, GRANT, GRANT, 1.0
    ):
        found.append(part)
        now.ns += slow
    left, right, weight = (
        np.concatenate([getattr(each, name) for each in found]) for name in ("left", "right", "weight")
    )
    return left, right, weight


@pytest.mark.parametrize(("slow", "parts"), [(1, 8), (250, 4), (400, 2), (2_000, 2)])
def test_totals_are_right_on_average_whenever_the_clock_ends_it(slow: int, parts: int) -> None:
    counted, rate = _counted(), np.array([0.08, 0.24])
    first = np.arange(N) < 100
    truth = []
    for left, _ in counted.written(np.flatnonzero(counted.matches > 0), 1 << 40):
        truth.append([left.shape[0], first[left].sum()])
    expected = np.sum(truth, axis=0)
    sums, rows = [], []
    for seed in range(400):
        left, right, weight = _drawn(counted, rate, seed, slow)
        assert len({*zip(left.tolist(), right.tolist(), strict=True)}) == left.shape[0]
        sums.append([weight.sum(), weight[first[left]].sum()])
        rows.append(left.shape[0])
    found = np.array(sums)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(sums))
    assert (np.abs(found.mean(axis=0) - expected) <= 3.0 * error + 1e-9).all()
    whole = float(np.mean([_drawn(counted, rate, seed, 0)[0].shape[0] for seed in range(20)]))
    assert np.mean(rows) == pytest.approx(whole * parts / 8, rel=0.05)


def test_without_a_clock_it_is_one_sample_and_in_parts_the_same_pairs() -> None:
    counted, rate, one = _counted(), np.array([0.1, 0.1]), np.array([1.0, 1.0])
    which = np.zeros(counted.side.shape[0], np.uint8)
    [whole] = drawn_in_parts(counted, which, rate, one, np.random.default_rng(7), None, GRANT, GRANT, 1.0)
    clock = Clock(Budget(seconds=1.0), cpu=_Now(), wall=_Now())
    parts = [*drawn_in_parts(counted, which, rate, one, np.random.default_rng(7), clock, 1e9, GRANT, 1.0)]
    assert len(parts) == 8
    pairs = {pair for part in parts for pair in zip(part.left.tolist(), part.right.tolist(), strict=True)}
    assert pairs == {*zip(whole.left.tolist(), whole.right.tolist(), strict=True)}
    assert np.concatenate([part.weight for part in parts]) == pytest.approx(10.0)
    assert whole.weight == pytest.approx(10.0)
