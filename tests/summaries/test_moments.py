"""Moments of cells against the numbers themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.summaries.moments import Moments, exact_sum, whole_sum

ROUNDING = 1e-9  # relative to the sum of squares

numbers = st.lists(st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=30)


@given(cells=st.lists(numbers, min_size=1, max_size=6))
def test_moments_of_cells_merge_into_those_of_all_their_numbers(cells: list[list[float | None]]) -> None:
    flat = [x for cell in cells for x in cell]
    values = np.array([0.0 if x is None else x for x in flat])
    valid = np.array([x is not None for x in flat])
    starts = np.cumsum([0, *(len(cell) for cell in cells)])[:-1]
    parts = Moments.of(values, valid, starts)
    merged = parts.merged(np.arange(len(cells)), np.zeros(len(cells), np.int64), 1)
    kept = values[valid]
    assert merged.count[0] == kept.shape[0]
    assert merged.total[0] == pytest.approx(math.fsum(kept), rel=1e-12, abs=1e-12 * np.abs(kept).sum())
    assert merged.low[0] == kept.min(initial=math.inf)
    assert merged.high[0] == kept.max(initial=-math.inf)
    mean = math.fsum(kept) / max(1, kept.shape[0])
    squares = math.fsum((kept - mean) ** 2)
    assert merged.squares[0] == pytest.approx(squares, abs=ROUNDING * (1.0 + (kept**2).sum()))


def test_a_variance_far_from_zero_does_not_cancel() -> None:
    values = 1e9 + np.arange(1000.0) % 2
    parts = Moments.of(values, np.ones(1000, bool), np.arange(0, 1000, 100))
    merged = parts.merged(np.arange(10), np.zeros(10, np.int64), 1)
    assert merged.squares[0] == pytest.approx(250.0)


def test_integers_add_up_exactly_past_int64() -> None:
    whole = np.full(6, (1 << 62) + 1)
    parts = Moments.of(whole.astype(float), np.ones(6, bool), np.array([0, 3]), whole)
    assert parts.merged(np.arange(2), np.zeros(2, np.int64), 1).whole.tolist() == [6 * ((1 << 62) + 1)]  # type: ignore[union-attr]
    assert whole_sum(whole) == 6 * ((1 << 62) + 1)
    assert whole_sum(-whole) == -6 * ((1 << 62) + 1)


def test_nan_is_counted_apart_and_makes_sums_nan() -> None:
    parts = Moments.of(np.array([1.0, math.nan, 0.0]), np.array([True, True, False]), np.array([0]))
    assert (parts.count[0], parts.nans[0], parts.low[0], parts.high[0]) == (2, 1, 1.0, 1.0)
    assert math.isnan(parts.total[0])


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([-1e308] * 3, -math.inf),
        ([math.inf, 1.0], math.inf),
        ([0.1] * 10, 1.0),
        ([], 0.0),
    ],
)
def test_sums_are_rounded_once_and_survive_partial_overflow(values: list[float], total: float) -> None:
    assert exact_sum(np.array(values)) == total
