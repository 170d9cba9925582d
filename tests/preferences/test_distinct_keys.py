"""How many distinct keys a look expects: against the truth, over skews, sizes and shapes of streams."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.strategies.distinct import distinct_of, paired_of
from nile.operators.strategies.looking import Look
from nile.streams.accounting import Accounting

Array = np.ndarray[Any, Any]


def _zipf(rng: np.random.Generator, n: int, keys: int, skew: float) -> Array:
    reached = np.cumsum(np.arange(1, keys + 1) ** -skew)
    return np.searchsorted(reached / reached[-1], rng.random(n)).astype(np.int64)


def _look(left: Array, right: Array, *, text: bool = False, without: float = 0.0) -> Look:
    sides = []
    for side, keys in enumerate((left, right)):
        column: pa.Array = pa.array(keys)
        if text:
            column = column.cast(pa.string())
        if without:
            gone = np.random.default_rng(side).random(len(keys)) < without
            column = pa.array(column.to_pylist(), column.type, mask=gone)
        accounting = Accounting(tuples_in=len(keys), applied=len(keys))
        sides.append(Loaded(str(side), np.arange(len(keys)) * 1_000, pa.chunked_array([column]), accounting))
    return Look(Joinable(sides[0], sides[1], 10**9), 0)


@pytest.mark.parametrize("skew", [0.0, 0.5, 0.8, 1.0, 1.23])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 2.0])
def test_the_estimate_is_near_the_truth_where_few_tuples_are_looked_at(skew: float, share: float) -> None:
    n = 200_000
    off = []
    for seed in range(3):
        rng = np.random.default_rng([seed, 11])
        left, right = (_zipf(rng, n, int(share * n), skew) for _ in range(2))
        look = _look(left, right)
        assert min(look.every) > 8
        off.append(math.log(look.distinct / np.union1d(left, right).shape[0]))
    assert abs(np.mean(off)) < math.log(1.8)


@pytest.mark.parametrize("shape", ["one key is half", "two scales", "drifting", "unequal streams", "text", "nulls"])
def test_shapes_that_the_blend_was_not_made_on(shape: str) -> None:
    rng = np.random.default_rng(5)
    n = 120_000
    left, right = (rng.integers(0, n // 4, size) for size in (n, n // 8 if shape == "unequal streams" else n))
    if shape == "one key is half":
        left, right = (np.where(rng.random(n) < 0.5, -1, keys) for keys in (left, right))
    elif shape == "two scales":
        left, right = (np.where(rng.random(n) < 0.5, -1 - keys % 10, keys) for keys in (left, right))
    elif shape == "drifting":
        left, right = (np.arange(n) // 4 + _zipf(rng, n, 30, 1.0) for _ in range(2))
    look = _look(left, right, text=shape == "text", without=0.3 if shape == "nulls" else 0.0)
    truth = np.union1d(left, right).shape[0]
    assert truth / 2.0 < look.distinct < 2.0 * truth


def test_small_streams_are_looked_at_whole() -> None:
    rng = np.random.default_rng(2)
    for n, keys in ((1_000, 300), (8_000, 2_000)):
        left, right = rng.integers(0, keys, n), rng.integers(0, keys, n)
        look = _look(left, right)
        truth = np.union1d(left, right).shape[0]
        assert look.every == (1, 1)
        assert abs(look.distinct / truth - 1.0) < 1e-9


def test_an_estimate_is_never_below_what_was_met_nor_above_the_tuples() -> None:
    for times in ([], [1], [1, 1, 1], [2, 2], [1, 2], [50, 1, 1, 7], [1] * 500):
        counts = np.array(times, np.int64)
        met = float(counts.sum())
        for tuples in (met, 2.0 * met, 1_000.0 * met):
            found = distinct_of(counts, met, tuples)
            assert found >= len(times)
            assert math.isfinite(found)
    assert distinct_of(np.array([1, 1, 2]), 4.0, 4.0) == 3.0
    empty = np.zeros(0, np.int64)
    assert _look(empty, empty).distinct == 1.0
    all_unlike = _look(np.arange(60_000), np.arange(60_000, 120_000))
    assert all_unlike.distinct <= 120_000


@pytest.mark.parametrize("keys", [30_000, 200_000, 400_000, 1_000_000])
def test_the_share_of_tuples_with_a_partner_is_told_where_pairs_are_too_few_to_be(keys: int) -> None:
    """Of even keys a look at one tuple in sixteen tells it to .06; by its pairs it was anything from 0 to .75."""
    n = 200_000
    for seed in range(3):
        left, right = (np.random.default_rng([seed, side]).integers(0, keys, n) for side in (0, 1))
        truth = 0.5 * (np.isin(left, right).mean() + np.isin(right, left).mean())
        assert abs(_look(left, right).paired - truth) < 0.09


def test_streams_that_share_a_part_of_their_keys_alone() -> None:
    rng = np.random.default_rng(3)
    n = 150_000
    left, right = rng.integers(0, n, n), rng.integers(n - n // 10, 4 * n, 2 * n)
    truth = (np.isin(left, right).sum() + np.isin(right, left).sum()) / (3 * n)
    assert abs(_look(left, right).paired - truth) < 0.05
    heavy = np.where(rng.random(n) < 0.5, -1, left)
    assert abs(_look(heavy, right).paired - 0.04) < 0.05  # the other stream has not that key
    assert _look(left, left + n).paired == 0.0


def test_small_streams_know_their_partners() -> None:
    left, right = np.array([1, 1, 2, 3]), np.array([2, 2, 9])
    assert _look(left, right).paired == pytest.approx(3 / 7)
    assert _look(left, np.zeros(0, np.int64)).paired == 0.0
    one = np.array([1])
    assert paired_of(one, one, 16) == 1.0
    assert paired_of(one, 0 * one, 16) == 0.0
    assert paired_of(np.array([1] * 16), np.array([1] + [0] * 15), 16) == pytest.approx(1.0 - (15 / 16) ** 16)
