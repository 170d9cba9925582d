"""Samples of keys drawn whole, then of their outputs: variances by counting every draw, intervals that cover."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from nile.preferences.key_sample import KeySample, counted, missing_of, stood_for


def test_the_variance_of_keys_in_nested_levels_is_right_on_average_over_every_draw() -> None:
    """Three keys with outputs under two levels each: a hash falls below both, below the higher, or above."""
    low, high = 0.25, 0.5
    counts = np.array([[1, 4], [2, 0], [3, 5]])  # outputs of each key under low and under high
    chances = {0: low, 1: high - low, 2: 1.0 - high}
    mean = square = estimated = 0.0
    for draw in itertools.product(chances, repeat=3):
        chance = math.prod(chances[where] for where in draw)
        key, level = [], []
        for k, where in enumerate(draw):
            for at, d in enumerate((low, high)):
                if where <= at:
                    key += [k] * int(counts[k, at])
                    level += [d] * int(counts[k, at])
        d = np.array(level, np.float64)
        sample = KeySample(1.0 / d, d, np.array(key, np.int64))
        total = float(sample.weight.sum())
        variance, _ = sample.spread(np.ones(d.shape[0]), np.zeros(d.shape[0], np.int64), 1)
        mean += chance * total
        square += chance * total**2
        estimated += chance * float(variance[0])
    assert mean == pytest.approx(counts.sum())
    assert estimated == pytest.approx(square - mean**2)


def test_groups_are_estimated_each_by_itself() -> None:
    chance = np.random.Generator(np.random.PCG64(3))
    n = 400
    key, group, amount = chance.integers(0, 20, n), chance.integers(0, 3, n), chance.random(n)
    sample = KeySample(np.full(n, 6.0), np.full(n, 0.5), key)
    variance, freedom = sample.spread(amount, group, 4)
    for g in range(3):
        mine = group == g
        alone = KeySample(sample.weight[mine], sample.level[mine], key[mine])
        told = alone.spread(amount[mine], np.zeros(int(mine.sum()), np.int64), 1)
        assert (variance[g], freedom[g]) == (pytest.approx(told[0][0]), told[1][0])
    assert (variance[3], freedom[3]) == (0.0, math.inf)


def test_a_sample_of_every_output_of_every_key_is_certain_of_itself() -> None:
    sample = KeySample(np.ones(5), np.ones(5), np.arange(5))
    told = sample.count(np.ones(5), 0.95)
    assert (told.low, told.value, told.high, told.certified) == (5.0, 5.0, 5.0, False)
    assert not sample.drops_keys


def test_nothing_found_claims_nothing() -> None:
    none = np.zeros(0)
    for unseen in (0.0, 12.0):
        told = KeySample(none, none, np.zeros(0, np.int64), unseen=unseen).count(none, 0.95)
        assert (told.low, told.value, told.high) == (0.0, 0.0, math.inf)


def test_a_few_keys_that_stand_for_many_claim_nothing() -> None:
    few = KeySample(np.full(3, 20.0), np.full(3, 0.05), np.arange(3)).count(np.ones(3), 0.95)
    many = KeySample(np.full(30, 20.0), np.full(30, 0.05), np.arange(30)).count(np.ones(30), 0.95)
    assert (few.low, few.value, few.high) == (3.0, 60.0, math.inf)
    assert many.low < many.value == 600.0 < many.high < math.inf


def test_variance_by_coins_is_what_drawing_again_and_again_gives() -> None:
    """Two streams of one key and of five, thinned tuple by tuple, and by key: against 4,000 draws."""
    rng = np.random.Generator(np.random.PCG64(8))
    keys = [np.repeat(np.arange(5), size) for size in ([8, 2, 1, 4, 1], [3, 6, 1, 1, 2])]
    left, right = np.nonzero(keys[0][:, None] == keys[1][None, :])
    level, q, p = np.array([1.0, 0.5, 0.5, 1.0, 0.25]), (0.6, 0.4), 0.7
    totals, variances = [], []
    for _ in range(4_000):
        is_in = rng.random(5) < level
        came = [rng.random(key.shape[0]) < q[side] for side, key in enumerate(keys)]
        found = is_in[keys[0][left]] & came[0][left] & came[1][right] & (rng.random(left.shape[0]) < p)
        at, d = np.flatnonzero(found), level[keys[0][left[found]]]
        coins = tuple((side[at], np.full(at.shape[0], q[k])) for k, side in enumerate((left, right)))
        sample = KeySample(1.0 / (d * q[0] * q[1] * p), d, keys[0][left[at]], coins=coins)
        totals.append(float(sample.weight.sum()))
        one = np.zeros(at.shape[0], np.int64)
        variances.append(float(sample.spread(np.ones(at.shape[0]), one, 1)[0][0]))
    assert np.mean(totals) == pytest.approx(left.shape[0], rel=0.05)
    assert np.mean(variances) == pytest.approx(np.var(totals), rel=0.15)


def test_tuples_that_nobody_stands_for_may_be_of_one_key() -> None:
    half = np.full(10, 0.5)  # ten tuples that stand for twenty
    assert missing_of(stood_for([(50, half), (60, half)]), None, 100)[0] == 30.0 * 40.0
    assert missing_of(stood_for([(50, half), (20, half)]), None, 100)[0] == 0.0
    chance = np.random.Generator(np.random.PCG64(4))
    times = chance.random((3, 200_000))
    share = np.mean(times.max(axis=0) - times.min(axis=0) <= 0.3)
    told = missing_of(stood_for([(30, half), (30, half), (30, half)]), 30, 100)[0]
    assert told == pytest.approx(1_000.0 * share, rel=0.02)


def test_as_much_of_a_total_may_be_missing_as_of_the_tuples_behind_it() -> None:
    half = np.full(10, 0.5)
    assert missing_of(stood_for([(50, half), (22, half)]), None, 100)[1] == 1.5
    assert missing_of(stood_for([(15, half), (20, half)]), None, 100)[1] == 0.0
    assert missing_of(stood_for([(15, np.zeros(0)), (30, half)]), None, 100)[1] == 0.5
    sample = KeySample(np.full(400, 2.0), np.full(400, 0.5), np.arange(400))
    known, missed = (each.count(np.ones(400), 0.95) for each in (sample, replace(sample, missed=0.5)))
    assert (missed.low, missed.value) == (known.low, known.value)
    assert missed.high == known.high + 400.0
    assert replace(sample, missed=0.5, unseen=900.0).left_out(800.0) == 900.0
    assert replace(sample, missed=0.5, unseen=9e6).left_out(800.0) == 5.0 * 0.5 * 800.0
    assert replace(sample, unseen=9e6).left_out(800.0) == 9e6


def poisson_from(count: int, mean: float) -> float:
    """How probably a Poisson count is `count` or more."""
    return 1.0 - sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(count))


@pytest.mark.parametrize("count", [6, 7, 9, 15, 30])
def test_an_interval_of_light_parts_is_that_of_their_poisson_count(count: int) -> None:
    """Parts that stand for seven each: an end is the mean of which a fortieth of all counts that are claimed, six or
    more, are as large, or a fortieth of all are as small.
    """
    told = counted(1.0, 7.0 * count, 49.0 * count, 0.0, 0.95, largest=7.0)
    assert told.low < told.value == 7.0 * count < told.high
    assert poisson_from(count + 1, told.high / 7.0) == pytest.approx(0.975, abs=0.003)
    if count > 6:
        share = poisson_from(count, told.low / 7.0) / poisson_from(6, told.low / 7.0)
        assert share == pytest.approx(0.025, abs=0.006)
    else:
        assert told.low == 1.0


def test_an_interval_of_many_parts_is_the_normal_one() -> None:
    many = counted(10_000.0, 70_000.0, 490_000.0, 0.0, 0.95, largest=7.0)
    assert (many.low, many.high) == pytest.approx((70_000 - 1.96 * 700, 70_000 + 1.96 * 700), rel=1e-3)


def test_an_interval_that_is_wide_or_of_few_parts_is_not_claimed() -> None:
    told = counted(9.0, 90.0, 900.0, 0.0, 0.95)
    assert counted(5.0, 50.0, 500.0, 0.0, 0.95).high == math.inf
    assert told.high < 200.0
    wide = counted(9.0, 90.0, 900.0, 500.0, 0.95)
    assert (wide.low, wide.value, wide.high) == (told.low, told.value, math.inf)
