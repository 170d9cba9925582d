"""Summaries of ordered values and samples keep to the bound that they state; the others: test_summary_errors.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.streams.synthetic import SyntheticRetail
from nile.summaries.catalogue import CATALOGUE, make_summary
from nile.summaries.errors import NotLinear
from nile.summaries.ordered import Histogram, Wavelet, order_codes
from nile.summaries.sampled import Kll, Reservoir
from nile.summaries.summary import Summary

Array = np.ndarray[Any, Any]
N = 20_000
ORDERED = tuple(kind for kind in sorted(CATALOGUE) if CATALOGUE[kind].ordered)
SMALL: dict[str, dict[str, int]] = {"wavelet": {"bits": 24}}


def zipf(skew: float, seed: int) -> Array:
    draw = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, 5_001) ** skew
    return draw.choice(draw.permutation(5_000), N, p=weights / weights.sum())


def drifting(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    return draw.zipf(1.3, N) % 500 + np.arange(N) // 10


def retail(seed: int) -> pa.Array:
    made = pa.Table.from_batches(list(SyntheticRetail(seed=seed, tuples=N).batches()))
    return made.column("item_id").combine_chunks()


STREAMS: dict[str, Any] = {
    "retail": retail,
    "zipf 0.5": lambda seed: zipf(0.5, seed),
    "zipf 1": lambda seed: zipf(1.0, seed),
    "zipf 1.5": lambda seed: zipf(1.5, seed),
    "zipf 2": lambda seed: zipf(2.0, seed),
    "uniform": lambda seed: np.random.default_rng(seed).integers(0, 5_000, N),
    "drifting": drifting,
    "ascending": lambda _: np.arange(N),
    "descending, then ascending": lambda _: np.concatenate([np.arange(N // 2)[::-1], np.arange(N // 2)]),
    "multiples of 2**40": lambda seed: np.random.default_rng(seed).integers(0, 4_000, N) << 40,
    "a million times one": lambda seed: np.where(np.random.default_rng(seed).random(N) < 0.999, 7, np.arange(N)),
}


def keys_of(stream: Any) -> Array:
    column = stream if isinstance(stream, pa.Array) else pa.array(stream)
    return order_codes(column)


def put_in(kind: str, keys: Array) -> Summary:
    summary = make_summary(kind, **SMALL.get(kind, {}))
    for part in np.array_split(keys, 7):
        summary.summarize(part)
    return summary


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("kind", ORDERED)
def test_counts_lie_in_their_intervals_as_often_as_is_said(kind: str, name: str) -> None:
    """A tenth of the streams' keys and some that never came; certain bounds hold for every one."""
    keys = keys_of(STREAMS[name](5))
    summary = put_in(kind, keys)
    distinct, counts = np.unique(keys, return_counts=True)
    absent = np.setdiff1d(np.random.default_rng(1).integers(1, 2**63, 100, np.uint64), distinct)
    asked, truth = np.concatenate([distinct, absent]), np.concatenate([counts, np.zeros(absent.shape[0])])
    told = summary.estimate(asked)
    held = np.asarray(told.covers(truth))
    assert held.mean() >= told.confidence, (held.mean(), told.confidence)
    if kind in ("histogram", "wavelet"):
        assert bool((np.asarray(told.high) >= truth).all())
    if told.confidence == 1.0:
        assert held.all()


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "retail"])
@pytest.mark.parametrize("kind", ["histogram", "wavelet", "kll"])
def test_counts_of_ranges_lie_in_their_intervals(kind: str, name: str) -> None:
    keys = keys_of(STREAMS[name](6))
    ordered = np.sort(keys)
    summary: Any = put_in(kind, keys)
    draw = np.random.default_rng(2)
    held = []
    for low, high in np.sort(draw.choice(keys, (100, 2)), axis=1).tolist():
        truth = float(np.searchsorted(ordered, np.uint64(high), "right") - np.searchsorted(ordered, np.uint64(low)))
        told = summary.between(low, high)
        held.append(bool(told.covers(truth)))
        assert told.low <= told.value <= told.high
    assert np.mean(held) >= told.confidence


def test_kll_keeps_its_error_in_its_space_whatever_the_order_of_what_comes() -> None:
    values = np.arange(200_000)
    draw = np.random.default_rng(3)
    for order in (values, values[::-1], draw.permutation(values)):
        sketch = Kll()
        sketch.summarize(order_codes(pa.array(order)))
        ranks = np.asarray(sketch.rank(order_codes(pa.array(values[::1_000]))).value)
        assert np.abs(ranks - (values[::1_000] + 1)).max() <= sketch.error
        assert sketch.error <= 0.02 * values.shape[0]
        assert sketch.nbytes <= 8 * 5 * sketch.k
        median = sketch.quantile(0.5)
        assert abs(np.searchsorted(order_codes(pa.array(values)), np.uint64(median)) - 100_000) <= sketch.error


@pytest.mark.parametrize("kind", ["reservoir", "kll"])
def test_two_samples_add_to_one_over_both(kind: str) -> None:
    """Not bit for bit, since samples are drawn: in the total, and within the bound, 95 times of a hundred."""
    held = []
    for seed in range(100):
        one, other = make_summary(kind, seed=2 * seed), make_summary(kind, seed=2 * seed + 1)
        keys = np.random.default_rng(seed).integers(0, 20, 6_000).astype(np.uint64) << np.uint64(40)
        one.summarize(keys[:5_000])
        other.summarize(keys[5_000:])
        one.add(other)
        assert one.total == 6_000
        held.append(bool(one.estimate(keys[:1]).covers(np.array([float((keys == keys[0]).sum())])).all()))
    assert sum(held) >= 95


def test_a_reservoir_is_a_uniform_sample() -> None:
    """Of 50 tuples 10 are kept: each in a fifth of 2,000 reservoirs, whatever its place, and whether two were added."""
    keys = np.arange(50, dtype=np.uint64)
    times = np.zeros(50)
    for seed in range(2_000):
        parts = [Reservoir(10, seed), Reservoir(10, 100_000 + seed)]
        parts[0].summarize(keys[:15])
        parts[1].summarize(keys[15:])
        parts[0].add(parts[1])
        times[parts[0].keys.astype(int)] += 1
    assert np.abs(times / 2_000 - 0.2).max() < 5 * (0.2 * 0.8 / 2_000) ** 0.5


def test_a_heavy_weight_is_that_many_draws() -> None:
    found = []
    for seed in range(300):
        sample = Reservoir(20, seed)
        sample.summarize(np.array([1, 2], np.uint64), np.array([30_000, 10_000]))
        found.append((sample.keys == 1).mean())
        assert sample.total == 40_000
    assert abs(np.mean(found) - 0.75) < 5 * (0.75 * 0.25 / 6_000) ** 0.5


@pytest.mark.parametrize("kind", ["reservoir", "kll", "hll", "frequent"])
def test_what_is_not_linear_takes_nothing_back(kind: str) -> None:
    summary = make_summary(kind)
    summary.summarize(np.array([1], np.uint64))
    with pytest.raises(NotLinear, match="cannot take tuples back"):
        summary.summarize(np.array([1], np.uint64), np.array([-1]))
    with pytest.raises(NotLinear, match="subtract"):
        summary.subtract(make_summary(kind))


COLUMNS = [
    pa.array([-1e300, -2.5, -1.0, 0.0, 5e-324, 1.0, 1.5, 2.0, float("inf"), float("nan")]),
    pa.array([-(2**40), -7, -1, 0, 1, 2, 3, 2**33]),
    pa.array([0, 1, 2**62], pa.uint64()),
    pa.array(["", "a", "ab", "abc", "b", "häuser", "z"]),
    pa.array(["a", "b", "z"]).dictionary_encode(),
    pa.array([b"", b"\x00\x01", b"\xff"]),
    pa.array([0, 1, 10**15], pa.timestamp("us")),
    pa.array([False, True]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_numbers_of_values_are_in_the_order_of_the_values(column: pa.Array) -> None:
    codes = order_codes(column)
    assert bool((codes[1:] > codes[:-1]).all())
    assert order_codes(pa.array([None], column.type)).tolist() == [0]
    assert codes[0] == order_codes(pa.concat_arrays([column[:1], column[:1]]))[1]


def test_equal_values_have_one_number() -> None:
    assert order_codes(pa.array([0.0]))[0] == order_codes(pa.array([-0.0]))[0] == order_codes(pa.array([0]))[0]


def test_bins_are_a_sixteenth_of_the_value() -> None:
    histogram = Histogram()
    codes = order_codes(pa.array([1.0, 1.03, 1.0626, 100.0, 104.0]))
    histogram.summarize(codes)
    assert histogram.distinct == 4 or histogram.distinct == 3
    low, high = order_codes(pa.array([1.0, 2.0])).tolist()
    assert histogram.between(low, high).covers(3.0)


def test_a_wavelet_whose_coefficients_all_fit_is_exact_to_its_last_level() -> None:
    wavelet = Wavelet(bits=6, columns=64)
    keys = np.random.default_rng(4).integers(0, 64, 1_000).astype(np.uint64) << np.uint64(58)
    wavelet.summarize(keys)
    each = np.arange(64, dtype=np.uint64) << np.uint64(58)
    assert (
        np.asarray(wavelet.estimate(each).value).tolist() == np.bincount(keys >> np.uint64(58), minlength=64).tolist()
    )
    told = wavelet.between(int(each[3]), int(each[40]))
    assert told.value == told.high == float(((keys >= each[3]) & (keys <= each[40])).sum())
