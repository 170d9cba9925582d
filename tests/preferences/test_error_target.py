"""An error instead of a budget."""

from __future__ import annotations

import math

import pytest

from nile.preferences.error_target import ErrorTarget
from nile.summaries.errors import BudgetError, ConfigError
from nile.summaries.estimate import Estimate


@pytest.mark.parametrize("error", [0, -0.1, 1.0, math.nan, math.inf, 10**400, True, "1%"])
def test_an_error_outside_its_range_is_refused(error: object) -> None:
    with pytest.raises(BudgetError, match="error: needed a share"):
        ErrorTarget(error)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.2, 1.0, 95, math.nan, 10**400])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match="confidence"):
        ErrorTarget(0.1, confidence)


def test_an_unknown_way_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="flag, refuse, exact"):
        ErrorTarget(0.1, 0.95, "ignore")


def test_it_is_met_only_by_a_certified_narrow_and_confident_interval() -> None:
    target = ErrorTarget(0.1)
    assert target.met_by(Estimate(10.0, 9.0, 11.0, 0.95, True))
    assert target.met_by(Estimate.exact(0.0))
    assert not target.met_by(Estimate(10.0, 8.9, 11.0, 0.95, True))
    assert not target.met_by(Estimate(10.0, 9.0, 11.0, 0.9, True))
    assert not target.met_by(Estimate(10.0, 9.0, 11.0, 0.95, False))
    assert not target.met_by(Estimate(0.0, -1.0, 1.0, 0.95, True))
    assert not target.met_by(Estimate.guess(10.0))


def test_all_looks_together_are_wrong_no_oftener_than_allowed() -> None:
    target = ErrorTarget(0.1, 0.95)
    assert sum(1.0 - target.look(number) for number in range(1, 60)) <= 0.05 + 1e-12
    assert target.look(1) < target.look(2)
