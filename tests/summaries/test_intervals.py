"""Intervals from stratified samples against brute force, and the conditions under which they are certified."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nile.summaries.intervals import TAIL, StratifiedSample, nothing_seen, student_quantile

QUANTILE_TOLERANCE = 1e-5  # relative; Hill's expansion


@pytest.mark.parametrize(
    ("confidence", "freedom", "known"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.302653),
        (0.95, 4, 2.776445),
        (0.95, 30, 2.042272),
        (0.99, 5, 4.032143),
        (0.99, 100, 2.625891),
        (0.9999, 3, 28.0001),
    ],
)
def test_students_quantile_is_that_of_the_tables(confidence: float, freedom: int, known: float) -> None:
    assert student_quantile(confidence, freedom) == pytest.approx(known, rel=QUANTILE_TOLERANCE)


def sample_of(values: list[list[float]], sizes: list[int]) -> tuple[StratifiedSample, np.ndarray]:
    """All drawn tuples satisfy; a NaN stands for one that does not."""
    stratum = np.repeat(np.arange(len(values)), [len(part) for part in values])
    amount = np.array([x for part in values for x in part])
    hit = ~np.isnan(amount)
    drawn = np.array([len(part) for part in values])
    sample = StratifiedSample(np.array(sizes), drawn, stratum[hit], np.zeros(int(hit.sum()), np.int64), 1)
    return sample, amount[hit]


def test_totals_are_cochrans_formula() -> None:
    values, sizes = [[1.0, 4.0, math.nan], [10.0, 12.0]], [9, 4]
    sample, amount = sample_of(values, sizes)
    totals = sample.totals(amount, 1.0)
    total = variance = 0.0
    for part, size in zip(values, sizes, strict=True):
        filled = np.nan_to_num(np.array(part))
        n = filled.shape[0]
        total += size * filled.mean()
        variance += size**2 * (1 - n / size) * filled.var(ddof=1) / n
    assert totals.value[0] == pytest.approx(total)
    assert totals.variance[0] == pytest.approx(variance)
    assert totals.freedom == 3


def test_a_stratum_read_to_its_end_adds_no_variance_and_one_tuple_tells_of_no_spread() -> None:
    sample, amount = sample_of([[1.0, 9.0], [2.0, 3.0, 4.0]], [2, 3])
    assert sample.is_complete
    assert sample.totals(amount, math.inf).variance[0] == 0.0
    sample, amount = sample_of([[1.0]], [5])
    assert math.isinf(sample.totals(amount, 1.0).variance[0])
    assert not sample.totals(amount, 1.0).certified[0]


def test_estimates_are_unbiased_over_all_samples_there_are() -> None:
    """Every sample of 2 of 5 and 2 of 4, equally likely: the mean estimate is the total, exactly."""
    from itertools import combinations

    first, second = [1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 9.0, 27.0, 81.0]
    told = []
    for a in combinations(first, 2):
        for b in combinations(second, 2):
            sample, amount = sample_of([list(a), list(b)], [5, 4])
            told.append(sample.totals(amount, 100.0))
    values = np.array([totals.value[0] for totals in told])
    assert values.mean() == pytest.approx(sum(first) + sum(second))
    assert np.mean([totals.variance[0] for totals in told]) == pytest.approx(values.var())


def test_a_tame_sample_is_not_certified_while_what_was_not_drawn_may_be_huge() -> None:
    chance = np.random.Generator(np.random.PCG64(1))
    values = chance.random(300).tolist()
    sample, amount = sample_of([values], [10_000])
    assert sample.totals(amount, 1.0).certified[0]
    assert not sample.totals(amount, 1_000.0).certified[0]
    assert not sample.totals(amount, math.inf).certified[0]


def test_a_heavy_sample_is_not_certified_whatever_the_bound() -> None:
    values = [1.0] * 99 + [1_000.0]
    sample, amount = sample_of([values], [10_000])
    assert sample.totals(amount, 1_000.0).tail[0] > TAIL


def test_what_no_tuple_showed_is_bounded_by_the_rule_of_three() -> None:
    assert nothing_seen(10_000, 100, 0.95) == pytest.approx(10_000 * 3 / 100, rel=0.02)
    assert nothing_seen(10, 0, 0.95) == 10
    assert nothing_seen(100, 99, 0.95) <= 1
