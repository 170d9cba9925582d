"""The form of an approximate number."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate

THREE = Estimate(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.array([2.0, 3.0, 4.0]), 0.95, False)


def test_an_interval_covers_its_ends_and_nothing_beyond() -> None:
    estimate = Estimate(5.0, 4.0, 7.0, 0.9, True)
    assert [bool(estimate.covers(x)) for x in (3.9, 4.0, 7.0, 7.1)] == [False, True, True, False]
    assert THREE.covers(np.array([2.0, 3.5, -1.0])).tolist() == [True, False, False]


def test_an_exact_number_is_a_point_that_is_certain() -> None:
    assert Estimate.exact(3.0) == Estimate(3.0, 3.0, 3.0, 1.0, True)


def test_elements_slices_and_masks_are_estimates_too() -> None:
    assert THREE[1] == Estimate(2.0, 0.0, 3.0, 0.95, False)
    assert isinstance(THREE[1].value, float)
    assert THREE[1:] == THREE[np.array([False, True, True])]


def test_estimates_are_equal_when_every_element_is() -> None:
    twin = Estimate(*(np.array(part) for part in (THREE.value, THREE.low, THREE.high)), 0.95, False)
    assert twin == THREE
    assert Estimate(twin.value, twin.low, twin.high, 0.95, True) != THREE
    assert THREE[:2] != THREE
    assert THREE != 3


def test_an_estimate_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        THREE.confidence = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("confidence", [95, -0.1, float("nan")])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match=r"in \[0, 1\]"):
        Estimate(1.0, 1.0, 1.0, confidence, False)


def test_fields_of_unequal_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match="one shape"):
        Estimate(np.zeros(3), 0.0, np.zeros(3), 0.5, False)
