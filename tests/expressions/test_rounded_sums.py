"""Sums of doubles that are rounded once: kernels beside plain Python, totals beside math.fsum."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.aggregate import exact, sum_kernels
from nile.operators.aggregate.sums import FEW, rounded_sum, rounded_sums, whole_sums

Array = np.ndarray[Any, Any]


def two(x: float, y: float) -> tuple[float, float]:
    total = x + y
    return total, float(Fraction(x) + Fraction(y) - Fraction(total))


def by_group(values: Array, group: Array, groups: int) -> Array:
    """The twin of `add_by_group`, by fractions."""
    sums = np.zeros((groups, 3))
    for x, g in zip(values.tolist(), group.tolist(), strict=True):
        if not abs(x) < sum_kernels.LARGEST:
            sums[g, 2] = math.nan
            continue
        sums[g, 0], lost = two(float(sums[g, 0]), x)
        sums[g, 1], beyond = two(float(sums[g, 1]), lost)
        sums[g, 2] += abs(beyond)
    return sums


def drawn(kind: str, n: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    match kind:
        case "even":
            return rng.random(n)
        case "far apart":
            return np.exp(rng.normal(size=n) * 20.0) * rng.choice([-1.0, 1.0], n)
        case "cancels":
            some = np.exp(rng.normal(size=n - n // 2) * 5.0)
            return np.concatenate([some, -some[: n // 2] * rng.choice([1.0, 1.0 + 2.0**-50], n // 2)])
        case "ties":
            return rng.integers(-(2**53), 2**53, n) / 2.0
        case "whole":
            return rng.integers(-5, 6, n).astype(float)
        case "tiny":
            return rng.integers(-9, 10, n) * 5e-324
        case "odd":
            return np.where(rng.random(n) < 0.3, rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300], n), rng.random(n))
    raise AssertionError(kind)


KINDS = ("even", "far apart", "cancels", "ties", "whole", "tiny", "odd")


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_do_as_plain_python_does(kind: str) -> None:
    for n in (0, 1, 2, 5, 64, 203):
        values, group = drawn(kind, n, n), np.random.default_rng(n).integers(0, 3, n)
        sums = np.zeros((3, 3))
        sum_kernels.add_by_group(values, group, sums)
        np.testing.assert_array_equal(sums, by_group(values, group, 3))
        lanes = np.zeros((sum_kernels.LANES, 3))
        sum_kernels.add_all(values, lanes)
        turn = np.arange(n) % sum_kernels.LANES
        turn[n // sum_kernels.LANES * sum_kernels.LANES :] = 0
        np.testing.assert_array_equal(lanes, by_group(values, turn, sum_kernels.LANES))


@pytest.mark.parametrize("kind", KINDS)
def test_sums_that_are_told_are_those_of_fsum(kind: str) -> None:
    told = 0
    for seed in range(60):
        n = int(np.random.default_rng(seed).integers(1, 500))
        values = drawn(kind, n, seed)
        cut = n // 3
        found = rounded_sum([values[:cut], values[cut:]])
        group = np.arange(n) % 7
        sums, known = rounded_sums(values, group, 8)
        assert sums[7] == 0.0
        assert known[7]
        for one, those in (
            (found, values),
            *((float(sums[g]) if known[g] else None, values[group == g]) for g in range(7)),
        ):
            if one is not None:
                told += 1
                assert one == math.fsum(those)
    if kind == "odd":
        assert rounded_sum([np.array([np.nan])]) is None
        assert rounded_sum([np.array([1e300, 1.0])]) is None
    else:
        assert told > 400  # of 480


def test_what_is_not_told_is_added_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with infinities, NaN and huge numbers among many, whatever the kernel leaves open."""
    n = 2 * FEW
    rng = np.random.default_rng(3)
    values, codes = rng.normal(size=n), rng.integers(0, 6, n)
    values[codes == 1] *= 1e305
    values[np.flatnonzero(codes == 2)[3]] = np.inf
    values[np.flatnonzero(codes == 3)[5]] = np.nan
    table = pa.table({"ts": np.arange(n) * 1.0, "g": codes, "v": values})
    text = "SELECT g, sum(v) AS s, avg(v) AS a, var_samp(v) AS q, stddev_pop(v) AS d, count(v) AS n FROM s GROUP BY g"
    db = nile.connect().register("s", table, time="ts")
    fast = db.sql(text).to_pylist()
    alone = [
        db.sql(f"SELECT sum(v) AS s, avg(v) AS a, var_samp(v) AS q FROM s WHERE g = {g}").to_pylist()[0]
        for g in range(6)
    ]
    monkeypatch.setattr(exact, "FEW", 1 << 40)
    assert repr(db.sql(text).to_pylist()) == repr(fast)
    for row in fast:
        own = values[codes == row["g"]]
        assert repr({name: row[name] for name in "saq"}) == repr(alone[row["g"]])
        if np.isfinite(own).all():
            assert row["s"] == math.fsum(own)
            assert row["a"] == math.fsum(own) / len(own)


def test_whole_numbers_are_added_exactly_or_left() -> None:
    rng = np.random.default_rng(4)
    group = rng.integers(0, 5, 1_000)
    for most in (3, 1 << 40, 1 << 52, 1 << 53, (1 << 63) - 1):
        values = rng.integers(-most, most, 1_000)
        values[7] = -most
        told = whole_sums(values, group, 6)
        exactly = [sum(values[group == g].tolist()) for g in range(6)]
        assert told is None if most * 1_000 >= 1 << 62 else told.tolist() == exactly
    assert whole_sums(np.array([-(1 << 63), 1]), np.array([0, 1]), 2) is None
    n = FEW
    for most in (9, 1 << 60):
        values, group = rng.integers(-most, most, n), rng.integers(0, 3, n)
        table = pa.table({"ts": np.arange(n) * 1.0, "g": group, "v": values})
        found = (
            nile.connect().register("s", table, time="ts").sql("SELECT g, avg(v) AS a FROM s GROUP BY g").to_pylist()
        )
        for row in found:
            own = values[group == row["g"]].tolist()
            assert row["a"] == float(sum(own)) / len(own)
