"""Change detectors equal their formulas, see planted changes, and rarely see what is not there."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_pyramid import two_window as two_window_twin
from twin_pyramid import variance as variance_twin

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.change_kernels import confidence_of, look, middle
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SLICE, SummarySpec

Array = np.ndarray[Any, Any]


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def looked(detector: Array, recent: Array, moments: Array, n: int, m: int) -> tuple[float, float]:
    look(detector, recent, moments)
    columns = detector.shape[1]
    return (
        confidence_of(moments, columns, n, m, ga.TWO_WINDOW),
        confidence_of(moments, columns, n, m, ga.VARIANCE),
    )


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def middles(triples: Array, out: Array) -> None:
    for i in range(triples.shape[0]):
        out[i] = middle(triples[i, 0], triples[i, 1], triples[i, 2])


def sketched(keys: Array, columns: int, seed: int) -> tuple[Array, Array]:
    """Plus and minus halves of a count sketch with three rows and hash functions drawn at random."""
    rng = np.random.default_rng(seed)
    plus, minus = np.zeros((3, columns), np.int32), np.zeros((3, columns), np.int32)
    for r in range(3):
        column, sign = rng.integers(0, columns, 1_000), rng.integers(0, 2, 1_000)
        for key in keys.tolist():
            (plus if sign[key] else minus)[r, column[key]] += 1
    return plus, minus


@settings(max_examples=40)
@given(
    before=st.lists(st.integers(0, 30), max_size=200),
    after=st.lists(st.integers(0, 30), max_size=200),
    columns=st.sampled_from([1, 4, 64]),
    seed=st.integers(0, 5),
)
def test_confidences_equal_their_formulas(before: list[int], after: list[int], columns: int, seed: int) -> None:
    plus, minus = sketched(np.array(before, np.int64), columns, seed)
    detector = plus - minus
    recent = np.concatenate(sketched(np.array(after, np.int64), columns, seed), axis=1)
    reference = detector.tolist()
    window = (recent[:, :columns] - recent[:, columns:]).tolist()
    n, m = len(before), len(after)
    moments = np.zeros((3, 3), np.int64)
    by_window, by_variance = looked(detector, recent, moments, n, m)
    assert by_window == two_window_twin(reference, window, n, m)
    assert by_variance == variance_twin(reference, window, n, m)
    assert 0 < by_window <= 1
    assert 0 < by_variance <= 1
    # Then the recent sketch is part of the reference, and empty.
    assert detector.tolist() == (np.array(reference) + np.array(window)).tolist()
    assert not recent.any()


def test_moments_are_exact_for_the_largest_zone() -> None:
    most = 1 << 30
    detector, recent = np.zeros((3, 4), np.int32), np.zeros((3, 8), np.int32)
    detector[:, 1] = most - 1
    recent[:, 5] = most  # the minus half of column 1
    moments = np.zeros((3, 3), np.int64)
    looked(detector, recent, moments, 2, 2)
    assert moments.tolist() == [[(most - 1) ** 2, most**2, -most * (most - 1)]] * 3
    assert detector[:, 1].tolist() == [-1] * 3


@given(st.lists(st.tuples(*[st.floats(allow_nan=False)] * 3), min_size=1, max_size=9))
def test_the_middle_of_three_is_their_median(triples: list[tuple[float, float, float]]) -> None:
    out = np.zeros(len(triples))
    middles(np.array(triples), out)
    assert out.tolist() == [sorted(triple)[1] for triple in triples]


def test_the_squared_distance_is_unbiased_over_samples() -> None:
    """Over all pairs of samples of two from a coin, (R.R - n)/(n(n - 1)) + ... - 2 R.W/(nm) averages the distance."""
    p, q = (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 4), Fraction(3, 4))
    mean = Fraction(0)
    for r in np.ndindex(2, 2):
        for w in np.ndindex(2, 2):
            chance = p[r[0]] * p[r[1]] * q[w[0]] * q[w[1]]
            reference, window = [r.count(0), r.count(1)], [w.count(0), w.count(1)]
            rr, ww, rw = (
                sum(a * b for a, b in zip(x, y, strict=True))
                for x, y in ((reference, reference), (window, window), (reference, window))
            )
            mean += chance * (Fraction(rr - 2, 2) + Fraction(ww - 2, 2) - Fraction(2 * rw, 4))
    assert mean == sum((a - b) ** 2 for a, b in zip(p, q, strict=True))


def stream(confidence: str, keys: Array, threshold: float = 0.02, seed: int = 0) -> SummaryManager:
    spec = SummarySpec(granularity=1 << 40, confidence=confidence, threshold=threshold, seed=seed)
    manager = SummaryManager(spec)
    manager.ingest(np.arange(len(keys), dtype=np.int64), pa.array(keys))
    return manager


def zipf(n: int, seed: int) -> Array:
    """Zipf 1.1 over 1,000 keys, most of them rare."""
    weights = 1.0 / np.arange(1, 1_001) ** 1.1
    return np.searchsorted(np.cumsum(weights / weights.sum()), np.random.default_rng(seed).random(n))


def test_two_windows_see_other_keys_become_frequent_and_variance_does_not() -> None:
    before, after = zipf(10_240, 1), 999 - zipf(10_240, 2)  # the same frequencies, of other keys
    keys = np.concatenate([before, after])
    seen = stream("two-window", keys)
    assert seen.changes == 1
    assert 10_240 < seen.zones()[0].end <= 10_240 + 2 * SLICE
    assert stream("variance", keys).changes == 0


def test_variance_sees_frequencies_change() -> None:
    keys = np.concatenate([np.arange(8_192) % 1_000, np.arange(8_192) % 3])
    assert stream("variance", keys, threshold=0.1).changes >= 1
    assert stream("two-window", keys).changes >= 1


@pytest.mark.parametrize("confidence", ["two-window", "variance"])
def test_a_steady_stream_is_one_zone(confidence: str) -> None:
    """100,000 tuples of one distribution; measured, over seeds: 0.2 to 2.5 false alarms."""
    alarms = sum(stream(confidence, zipf(50_000, seed), seed=seed).changes for seed in range(2))
    assert alarms <= 3


def test_a_threshold_of_zero_never_ends_a_zone() -> None:
    keys = np.concatenate([np.zeros(5_000, np.int64), np.arange(5_000)])
    assert stream("two-window", keys, threshold=0.0).changes == 0


def test_one_key_only_is_steady_and_one_other_key_is_a_change() -> None:
    manager = stream("two-window", np.repeat([5, 6], [2_560, 2_560]))
    assert manager.changes == 1
    assert manager.zones()[0].end == 2_560 + SLICE


def test_confidence_needs_two_tuples_on_both_sides() -> None:
    detector, recent = np.ones((3, 4), np.int32), np.ones((3, 8), np.int32)
    moments = np.zeros((3, 3), np.int64)
    for n, m in ((0, 5), (1, 5), (5, 0), (5, 1)):
        assert looked(detector.copy(), recent.copy(), moments, n, m) == (1.0, 1.0)


def test_a_two_window_confidence_is_cantellis_bound() -> None:
    """Half of the keys gone: distance and spread by hand, for a sketch so wide that no keys collide."""
    columns, n, m = 1 << 10, 400, 200
    detector, recent = np.zeros((3, columns), np.int32), np.zeros((3, 2 * columns), np.int32)
    detector[:, :4] = n // 4
    recent[:, :2] = m // 2
    confidence, _ = looked(detector, recent, np.zeros((3, 3), np.int64), n, m)
    p, q = (4 * 100**2 - n) / (n * (n - 1)), (2 * 100**2 - m) / (m * (m - 1))
    z = (p + q - 2 * 2 * 100 * 100 / (n * m)) / ((1 / n + 1 / m) * math.sqrt(2 * (p + 1 / columns)))
    assert confidence == pytest.approx(1 / (1 + z * z))
    assert confidence < 0.01
