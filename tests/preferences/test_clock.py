"""The cost clock's pacing: replays, bursts, and grants that follow the gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.preferences.clock import Bursts, Pace, grants, retime
from nile.summaries.errors import ConfigError

MEAN = 100_000_000


def test_bursts_keep_the_mean_gap_exactly_in_expectation_for_every_length() -> None:
    for arrivals in (1, 7, 1_000, 12_345):
        for offset in (0.0, 0.3, 0.99):
            scales = Bursts(factor=8.0, share=0.4, tuples=100).scales(arrivals, offset)
            assert scales.mean() == pytest.approx(1.0)


@given(
    st.floats(1.01, 1000.0), st.floats(0.001, 0.999), st.integers(1, 5_000), st.integers(0, 2**32), st.integers(1, 400)
)
def test_any_bursts_give_increasing_times(factor: float, share: float, tuples: int, seed: int, arrivals: int) -> None:
    times = retime(arrivals, MEAN, seed, Bursts(factor, share, tuples))
    assert times.dtype == np.int64
    assert (np.diff(times) >= 1).all()
    assert times[0] >= 1


def test_the_mean_gap_is_kept_and_the_busy_half_is_as_fast_as_asked() -> None:
    bursts = Bursts(factor=10.0, share=0.5, tuples=500)
    gaps = np.diff(retime(200_000, MEAN, 3, bursts))
    assert gaps.mean() == pytest.approx(MEAN, rel=0.02)
    means = gaps[: gaps.shape[0] // 100 * 100].reshape(-1, 100).mean(axis=1) / MEAN
    busy, quiet = means[means < 0.2], means[means > 1.4]
    assert busy.mean() == pytest.approx(0.1, rel=0.1)  # blocks across a border are neither
    assert quiet.mean() == pytest.approx(1.9, rel=0.05)
    assert busy.shape[0] == pytest.approx(quiet.shape[0], rel=0.2)


def test_bursts_are_the_same_for_the_same_seed_and_begin_elsewhere_for_another() -> None:
    bursts = Bursts(tuples=50)
    assert (retime(1_000, MEAN, 7, bursts) == retime(1_000, MEAN, 7, bursts)).all()
    assert (retime(1_000, MEAN, 7, bursts) != retime(1_000, MEAN, 8, bursts)).any()


def test_without_bursts_the_times_are_plain_exponential_gaps() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    expected = np.cumsum(np.maximum(1, np.rint(-np.log1p(-rng.random(100)) * MEAN)).astype(np.int64))
    assert (retime(100, MEAN, 5) == expected).all()


def test_grants_follow_the_gaps_of_a_burst_and_sum_to_what_was_asked() -> None:
    """The gap after an arrival grants fraction * mean cost * gap / mean gap."""
    pace = Pace("exponential", MEAN, Bursts(factor=20.0, share=0.6, tuples=30))
    times = retime(5_000, MEAN, 1, pace.bursts)
    costs = np.linspace(20.0, 40.0, 5_000)
    granted = grants(costs, 0.25, pace, times)
    gaps = np.diff(times)
    assert granted[:-1] == pytest.approx(0.25 * 30.0 * gaps / gaps.mean())
    assert granted[-1] == 0.0
    assert granted.sum() == pytest.approx(0.25 * 30.0 * gaps.shape[0])


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"factor": 1.0}, "a factor above 1"),
        ({"factor": float("nan")}, "a factor above 1"),
        ({"share": 0.0}, "a share of the tuples"),
        ({"share": 1.0}, "a share of the tuples"),
        ({"tuples": 0}, "1 tuple or more"),
        ({"tuples": 1.5}, "1 tuple or more"),
    ],
)
def test_bursts_outside_their_range_are_refused(options: dict[str, float], needed: str) -> None:
    with pytest.raises(ConfigError, match=needed):
        Bursts(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("replay", ["none", "data"])
def test_bursts_need_the_exponential_replay(replay: str) -> None:
    with pytest.raises(ConfigError, match="needed replay 'exponential'"):
        Pace(replay, MEAN, Bursts())


def test_a_gap_of_centuries_grants_what_is_its_due() -> None:
    times = np.array([-6_917_529_027_641_081_855, 4_611_686_018_427_387_904, 4_611_686_018_427_387_905])
    granted = grants(np.full(3, 10.0), 0.5, Pace("data"), times)
    assert granted[0] == pytest.approx(10.0)
    assert granted[1:] == pytest.approx([0.0, 0.0])
