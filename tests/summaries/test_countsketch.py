"""The count sketch: its kernels against pure-Python twins, its error against the bound it states."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

import datasketches
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nile.summaries import sketch_kernels
from nile.summaries.countsketch import CONFIDENCE, CountSketch, median_failure
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import ConfigError, EnvelopeError
from nile.summaries.exact import ExactCounter
from nile.summaries.hashing import KeyHasher
from nile.summaries.summary import TOP

Array = np.ndarray[Any, Any]
MASK = 2**64 - 1
SIGMAS = 5  # a mean of independent draws strays further from its expectation once in two million runs
SEEDS = 400

law = settings(deadline=None, max_examples=25)
counts_in_range = st.integers(-TOP, TOP)
hash_lists = st.lists(st.integers(0, MASK), max_size=30)


def update_twin(counters: Array, multipliers: Array, shift: int, hashes: Array, weights: Array) -> None:
    for key, weight in zip(hashes.tolist(), weights.tolist(), strict=True):
        for row, multiplier in enumerate(multipliers.tolist()):
            counters[row, (multiplier * key & MASK) >> shift] += weight


def estimate_twin(counters: Array, multipliers: Array, shift: int, key: int) -> tuple[float, int]:
    cells = [(multiplier * key & MASK) >> shift for multiplier in multipliers.tolist()]
    own = [int(counters[row, cell]) for row, cell in enumerate(cells)]
    other = [int(counters[row, cell ^ 1]) for row, cell in enumerate(cells)]
    return median(a - b for a, b in zip(own, other, strict=True)), min(own)


def zipf_stream(n: int, keys: int, skew: float, seed: int) -> tuple[Array, Array]:
    """n keys (int64) drawn from 0..keys-1 with probability ~ 1 / (k + 1)**skew, and the count of each key."""
    cumulative = np.cumsum(1.0 / np.arange(1, keys + 1) ** skew)
    drawn = np.searchsorted(cumulative / cumulative[-1], np.random.default_rng(seed).random(n))
    return drawn.astype(np.int64), np.bincount(drawn, minlength=keys)


@law
@given(
    batch=st.lists(st.tuples(st.integers(0, MASK), st.integers(-(2**40), 2**40)), max_size=30),
    rows=st.integers(1, 7),
    columns=st.sampled_from([1, 2, 64, 1024]),
    seed=st.integers(0, MASK),
)
def test_every_kernel_equals_its_twin(batch: list[tuple[int, int]], rows: int, columns: int, seed: int) -> None:
    hashes = np.array([key for key, _ in batch], np.uint64)
    weights = np.array([weight for _, weight in batch], np.int64)
    sketch = CountSketch(rows, columns, seed)
    shift, multipliers = sketch.shift(columns), sketch.row_multipliers
    expected, expected_ones = sketch.counters.copy(), sketch.counters.copy()
    update_twin(expected, multipliers, shift, hashes, weights)
    update_twin(expected_ones, multipliers, shift, hashes, np.ones_like(weights))
    counters = np.zeros_like(expected)
    sketch_kernels.update_rows_weighted(counters, multipliers, shift, hashes, weights)
    assert np.array_equal(expected, counters)
    for update in (sketch_kernels.update_rows, sketch_kernels.update):
        counters = np.zeros_like(expected)
        update(counters, multipliers, shift, hashes)
        assert np.array_equal(expected_ones, counters)
    sketch.summarize(hashes, weights)
    raw, upper = np.empty(len(batch)), np.empty(len(batch), np.int64)
    sketch_kernels.estimate(expected, multipliers, shift, hashes, raw, upper)
    assert list(zip(raw, upper, strict=True)) == [
        estimate_twin(expected, multipliers, shift, key) for key in hashes.tolist()
    ]
    moments = np.empty(rows)
    sketch_kernels.second_moments(expected, moments)
    squares = (expected[:, ::2] - expected[:, 1::2]).astype(object) ** 2
    assert moments == pytest.approx(squares.sum(axis=1).astype(float))


@law
@given(a=counts_in_range, b=counts_in_range, sign=st.sampled_from([1, -1]))
@example(a=3, b=-(2**63), sign=1)
@example(a=0, b=-(2**63), sign=1)
@example(a=TOP, b=1, sign=1)
@example(a=-TOP, b=1, sign=-1)
def test_saturating_combine_is_the_sum_cut_to_the_ends(a: int, b: int, sign: int) -> None:
    target = np.array([[a]])
    clipped = sketch_kernels.saturating_combine(target, np.array([[b]]), sign)
    assert target.item() == max(-TOP, min(TOP, a + sign * b))
    assert bool(clipped) == (abs(a + sign * b) > TOP)


def test_batches_longer_than_a_block_count_every_tuple_once() -> None:
    hashes = KeyHasher().words(np.arange(40_000))
    weights = np.arange(40_000, dtype=np.int64)
    ones, weighted = CountSketch(), CountSketch()
    ones.summarize(hashes)
    weighted.summarize(hashes, weights)
    for row, multiplier in enumerate(ones.row_multipliers):
        cells = ((multiplier * hashes) >> np.uint64(53)).astype(np.int64)
        assert np.array_equal(np.bincount(cells, minlength=2048), ones.counters[row])
        assert np.array_equal(np.bincount(cells, weights, 2048), weighted.counters[row])


def test_multipliers_are_odd_fixed_for_a_seed_and_longer_for_more_rows() -> None:
    five = CountSketch.multipliers(5, 7)
    assert five.dtype == np.uint64
    assert np.all(five & np.uint64(1))
    assert len(set(five.tolist())) == 5
    assert np.array_equal(five, CountSketch.multipliers(9, 7)[:5])
    assert not np.array_equal(five, CountSketch.multipliers(5, 8))
    assert CountSketch.multipliers(2, 7).tolist() == [7191089600892374487, 309689372594955805]


@pytest.mark.parametrize("columns", [0, -4, 3, 1000, 2**25, 1024.0, "1024"])
def test_a_width_that_is_no_power_of_two_is_refused(columns: Any) -> None:
    with pytest.raises(ConfigError, match="columns needs a power of two"):
        CountSketch(columns=columns)


@pytest.mark.parametrize("rows", [0, -1, 65, 2.5])
def test_a_number_of_rows_out_of_range_is_refused(rows: Any) -> None:
    with pytest.raises(ConfigError, match="rows needs 1 to 64"):
        CountSketch(rows=rows)


def test_one_row_is_unbiased_with_the_variance_that_is_stated() -> None:
    hashes = KeyHasher().words(np.arange(200))
    counts = np.arange(1, 201)
    columns = 16
    asked = hashes[[0, 50, 199]]
    errors = np.empty((SEEDS, 3))
    for seed in range(SEEDS):
        sketch = CountSketch(1, columns, seed)
        sketch.summarize(hashes, counts)
        raw, upper = np.empty(3), np.empty(3, np.int64)
        sketch_kernels.estimate(sketch.counters, sketch.row_multipliers, sketch.shift(columns), asked, raw, upper)
        errors[seed] = raw - counts[[0, 50, 199]]
    variance_bound = (counts**2).sum() / columns
    mean_tolerance = SIGMAS * math.sqrt(variance_bound / SEEDS)
    assert np.all(np.abs(errors.mean(axis=0)) <= mean_tolerance)
    # The relative error of a variance over SEEDS near-normal draws is about sqrt(2 / SEEDS).
    assert np.all(errors.var(axis=0) <= variance_bound * (1 + SIGMAS * math.sqrt(2 / SEEDS)))


def test_the_second_moment_is_unbiased_within_its_stated_variance() -> None:
    hashes = KeyHasher().words(np.arange(200))
    counts = np.arange(1, 201)
    truth = int((counts**2).sum())
    columns = 64
    found = []
    for seed in range(SEEDS):
        sketch = CountSketch(1, columns, seed)
        sketch.summarize(hashes, counts)
        found.append(sketch.second_moment())
    tolerance = SIGMAS * math.sqrt(2 * truth**2 / columns / SEEDS)
    assert abs(np.mean(found) - truth) <= tolerance


def test_the_interval_covers_at_least_as_often_as_it_claims_over_many_seeds() -> None:
    keys, counts = zipf_stream(20_000, 2_000, 1.0, seed=3)
    hashes = KeyHasher().words(np.arange(2_000))
    covered = []
    for seed in range(40):
        sketch = CountSketch(columns=128, seed=seed)
        sketch.summarize(hashes, counts)
        estimate = sketch.estimate(hashes)
        assert (estimate.confidence, estimate.certified) == (CONFIDENCE, False)
        covered.append(estimate.covers(counts).mean())
    assert sketch.total == len(keys)
    assert np.mean(covered) >= CONFIDENCE


def test_the_upper_bound_is_never_below_the_truth_nor_the_interval_above_it() -> None:
    keys, counts = zipf_stream(5_000, 1_000, 1.1, seed=4)
    hashes = KeyHasher().words(np.arange(1_000))
    for seed in range(30):
        sketch = CountSketch(rows=3, columns=64, seed=seed)
        sketch.summarize(KeyHasher().words(keys))
        upper = sketch.upper(hashes)
        assert upper.dtype == np.int64
        assert np.all(upper >= counts)
        estimate = sketch.estimate(hashes)
        assert np.all(estimate.high <= upper)
        assert np.all(np.asarray(estimate.low) >= 0)


def test_it_is_closer_than_the_count_min_of_datasketches_of_equal_size() -> None:
    keys, counts = zipf_stream(100_000, 20_000, 1.0, seed=5)
    theirs = datasketches.count_min_sketch(5, 2048, 1)  # as many cells as 1,024 columns of two signs
    for key, count in enumerate(counts.tolist()):
        theirs.update(key, count)
    sketch = CountSketch()
    hashes = KeyHasher().words(np.arange(20_000))
    sketch.summarize(KeyHasher().words(keys))
    their_value = np.array([theirs.get_estimate(key) for key in range(20_000)])
    our_error = np.abs(sketch.estimate(hashes).value - counts)
    their_error = np.abs(their_value - counts)
    assert our_error.mean() < their_error.mean()
    assert np.sqrt((our_error**2).mean()) < np.sqrt((their_error**2).mean())
    # Our upper bound is a count-min of the same size and keeps its bound: off by more than e / cells of
    # the stream for a share of e**-rows of the keys at most.
    count_min_bound = theirs.get_relative_error() * sketch.total
    assert np.mean(sketch.upper(hashes) - counts > count_min_bound) <= math.exp(-sketch.rows)


def test_estimates_agree_with_the_exact_counter_within_the_interval() -> None:
    keys, _ = zipf_stream(50_000, 300, 1.2, seed=6)
    hashes = KeyHasher().words(keys)
    sketch, exact = CountSketch(), ExactCounter()
    sketch.summarize(hashes)
    exact.summarize(hashes)
    asked = KeyHasher().words(np.arange(400))
    truth = exact.estimate(asked)
    assert truth.certified
    assert np.array_equal(truth.value, np.bincount(keys, minlength=400))
    assert sketch.estimate(asked).covers(truth.value).mean() >= CONFIDENCE


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_the_failure_of_a_median_is_the_binomial_tail(rows: int) -> None:
    draws = np.random.default_rng(8).random((200_000, rows)) < 0.2
    observed = np.mean(draws.sum(axis=1) * 2 >= rows)
    assert median_failure(rows, 0.2) == pytest.approx(observed, abs=SIGMAS * math.sqrt(0.25 / 200_000))


def test_a_view_shares_the_memory_of_the_grid() -> None:
    multipliers = CountSketch.multipliers(5, 3)
    grid = np.zeros((4, 6, 5, 512), np.int64)
    view = CountSketch.view(grid[2, 3], multipliers, 0)
    twin = CountSketch(5, 256, 3)
    hashes = KeyHasher().words(np.arange(100))
    for sketch in (view, twin):
        sketch.summarize(hashes)
    assert np.shares_memory(view.counters, grid)
    assert np.array_equal(grid[2, 3], twin.counters)
    assert grid.sum() == 100 * 5
    assert view.to_bytes() == twin.to_bytes()
    view.add(twin)
    assert CountSketch.view(grid[2, 3], multipliers, 200).to_bytes() == view.to_bytes()
    assert not np.shares_memory(view.empty().counters, grid)
    assert not np.shares_memory(view.copy().counters, grid)


def test_a_view_sees_what_others_write_before_it_saturates() -> None:
    multipliers = CountSketch.multipliers(1, 3)
    cell = np.zeros((1, 4), np.int64)
    view = CountSketch.view(cell, multipliers, 0)
    key = np.array([9], np.uint64)
    view.summarize(key)
    cell[cell == 1] = 2**63 - 1
    view.summarize(key)
    assert view.saturated
    assert cell.max() == 2**63 - 1


@pytest.mark.parametrize(
    ("counters", "multipliers"),
    [
        (np.zeros((5, 8), np.int32), CountSketch.multipliers(5, 1)),
        (np.zeros((5, 8), np.int64), CountSketch.multipliers(4, 1)),
        (np.zeros((5, 8), np.int64), np.ones(5, np.int64)),
        (np.zeros((5, 16), np.int64)[:, ::2], CountSketch.multipliers(5, 1)),
        (np.zeros((5, 6), np.int64), CountSketch.multipliers(5, 1)),
        (np.zeros((5, 5), np.int64), CountSketch.multipliers(5, 1)),
        (np.zeros(8, np.int64), CountSketch.multipliers(1, 1)),
    ],
    ids=["int32", "rows", "signed multipliers", "strided", "three columns", "odd cells", "one dimension"],
)
def test_a_view_of_anything_else_is_refused(counters: Array, multipliers: Array) -> None:
    with pytest.raises(ConfigError, match="countsketch"):
        CountSketch.view(counters, multipliers, 0)


def test_confidence_falls_with_skew_and_does_not_see_which_keys_changed() -> None:
    hashes = KeyHasher().words(np.arange(4_000))
    even, skewed, other, single = (CountSketch() for _ in range(4))
    even.summarize(hashes[:2_000], np.full(2_000, 5))
    other.summarize(hashes[2_000:], np.full(2_000, 5))
    skewed.summarize(hashes[:2_000], np.maximum(1, 2_000 // np.arange(1, 2_001)))
    single.summarize(hashes[:1], np.array([10_000]))
    assert even.confidence() > skewed.confidence() > single.confidence()
    # 2,000 equal counts of 5 over 1,024 columns: F2 = 50,000, known to sqrt(2 / 1,024) a row.
    expected = 1 / (1 + math.sqrt(50_000 * 1_024) / 10_000)
    f2_error = SIGMAS * math.sqrt(2 / 1_024)
    assert even.confidence() == pytest.approx(expected, rel=f2_error)
    assert other.confidence() == pytest.approx(expected, rel=f2_error)
    assert single.confidence() == pytest.approx(1 / (1 + math.sqrt(1_024)))


def test_the_second_moment_is_looked_at_again_after_every_change() -> None:
    sketch = CountSketch()
    key = np.array([77], np.uint64)
    sketch.summarize(key)
    assert sketch.second_moment() == 1.0
    sketch.summarize(key)
    assert sketch.second_moment() == 4.0
    sketch.add(sketch.copy())
    assert sketch.second_moment() == 16.0
    sketch.subtract(sketch.copy())
    assert (sketch.second_moment(), sketch.confidence()) == (0.0, 1.0)


@law
@given(hashes=hash_lists)
def test_counts_of_taken_out_tuples_are_never_below_zero(hashes: list[int]) -> None:
    sketch = CountSketch(3, 4)
    batch = np.array(hashes, np.uint64)
    sketch.summarize(batch, np.full(len(hashes), -2))
    estimate = sketch.estimate(batch)
    assert np.array_equal(estimate.value, np.zeros(len(hashes)))
    assert np.array_equal(estimate.high, np.zeros(len(hashes)))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"columns": 512},
        {"columns": 1023},
        {"rows": 2**40},
        {"rows": True},
        {"total": None},
        {"total": 10**300},
        {"saturated": 1},
    ],
    ids=repr,
)
def test_a_byte_form_with_other_claims_is_refused(change: dict[str, Any]) -> None:
    envelope = unpack(CountSketch().to_bytes())
    with pytest.raises(EnvelopeError, match="summary: "):
        CountSketch.from_bytes(pack("countsketch", {**envelope.params, **change}, envelope.arrays))


def test_a_byte_form_with_an_even_multiplier_is_refused() -> None:
    envelope = unpack(CountSketch().to_bytes())
    arrays = {**envelope.arrays, "multipliers": envelope.arrays["multipliers"] * np.uint64(2)}
    with pytest.raises(EnvelopeError, match="must be odd"):
        CountSketch.from_bytes(pack("countsketch", envelope.params, arrays))


def test_an_exact_counter_read_from_disordered_or_zero_counts_is_refused() -> None:
    counter = ExactCounter()
    counter.summarize(np.array([3, 1, 3], np.uint64))
    envelope = unpack(counter.to_bytes())
    assert counter.distinct == 2
    for arrays in (
        {"hashes": np.array([3, 1], np.uint64), "counts": np.array([1, 1])},
        {"hashes": np.array([1, 1], np.uint64), "counts": np.array([1, 1])},
        {"hashes": np.array([1, 3], np.uint64), "counts": np.array([1, 0])},
        {"hashes": np.array([1, 3], np.uint64), "counts": np.array([1, -(2**63)])},
        {"hashes": np.array([1, 3], np.uint64), "counts": np.array([1])},
    ):
        with pytest.raises(EnvelopeError, match="exact again from its stream"):
            ExactCounter.from_bytes(pack("exact", envelope.params, arrays))
