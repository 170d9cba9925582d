"""The bars of aggregates in small, on synthetic data; the benchmark measures them in full."""

from __future__ import annotations

from statistics import median

import pyarrow as pa
import pytest

from nile.experiments.benchmarks.accuracy.aggregates import (
    COVERAGE_BAR,
    ERROR_BAR,
    coverage_of_prices,
    errors_and_coverage,
    range_predicates,
    targets,
    weighted_join,
)
from nile.streams.synthetic import SyntheticRetail

COVERAGE_SLACK = 0.03  # three standard errors of a share of 0.95 over 400 trials
TABLE = pa.Table.from_batches(list(SyntheticRetail(seed=2, tuples=100_000).batches()))


@pytest.mark.parametrize(("costs", "borders"), [("engine", "learned"), ("memory", "learned"), ("engine", "auto")])
def test_sums_and_averages_of_ranges_are_within_one_per_cent_at_a_tenth_of_the_cost(costs: str, borders: str) -> None:
    told = errors_and_coverage(TABLE, [3], costs=costs, borders=borders)
    for trials in told.values():
        assert median(off for off, _, _ in trials) <= ERROR_BAR
        certified = [covered for _, sure, covered in trials if sure]
        assert sum(certified) >= 0.85 * len(certified)


@pytest.mark.parametrize("drawn", [100, 1_000])
def test_certified_intervals_of_prices_cover_what_they_say(drawn: int) -> None:
    certified, coverage, _ = coverage_of_prices(400, drawn, "price", tuples=10_000)
    assert certified >= 300
    assert coverage >= COVERAGE_BAR - COVERAGE_SLACK


def test_an_error_target_is_kept_for_less_than_the_exact_cost() -> None:
    within, spent, count = targets(TABLE, [1], error=0.05)
    assert within >= 0.9
    assert spent < 0.5
    assert count == 10


def test_ranges_hold_between_a_twentieth_and_a_tenth_of_the_tuples() -> None:
    assert len(range_predicates(TABLE, 1, 10)) == 10


def test_a_weighted_joins_sum_is_unbiased() -> None:
    off, _, _ = weighted_join(25, 0.6, tuples=800)
    assert off <= 4.0
