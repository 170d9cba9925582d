"""Bursts under `cpu=`, each with keys of its own: intervals hold the truth as often as they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nile.experiments.benchmarks.bursts import AFTER_BAR, on_the_clock_of_the_data, on_the_data


@pytest.mark.slow
def test_in_a_burst_each_query_is_sampled_and_exact_again_in_time() -> None:
    """Numbers of one burst hang together: those of groups, which are many, hold the truth in nearly all."""
    inside, after, spent = on_the_clock_of_the_data(1)
    assert all(inside.values())
    assert np.mean(inside["aggregates"]) > 0.9
    assert 0 < after <= AFTER_BAR
    assert 0.5 < spent <= 1.0


@pytest.mark.long
def test_intervals_hold_the_truth_over_five_hundred_bursts(record_property: Callable[[str, object], None]) -> None:
    """With `--junitxml` the figures of each kind of query are in the report."""
    found = on_the_data(500)
    for each in found:
        record_property(each.name, f"{each.value} ({each.about})")
    assert len(found) == 8
    assert [str(each) for each in found if not each.met] == []
