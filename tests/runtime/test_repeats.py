"""What values that are drawn once and told often do to a total."""

from __future__ import annotations

import numpy as np
import pytest
from twin_hash import mixed

from nile.exact.state.held import Held
from nile.execution.live.means.repeats import REPEATS, repeated, varied
from nile.execution.live.means.squeezed import MOST, WORTH, worth_of
from nile.execution.live.means.squeezed import REPEATS as PLACES

_MASK = (1 << 64) - 1


def _twin(hashes: list[int], beyond: list[float]) -> list[float]:
    cells = [0.0] * REPEATS
    for value, more in zip(hashes, beyond, strict=True):
        unit = (mixed((value + 29 * 0xD1B54A32D192ED03) * 0x9E3779B97F4A7C15 & _MASK) >> 11) * 2.0**-53
        place = int(2 * REPEATS * unit)
        cells[place // 2] += (more * (more + 1.0)) ** 0.5 * (1.0 if place % 2 else -1.0)
    return cells


def test_cells_are_their_twins_and_add() -> None:
    draw = np.random.default_rng(1)
    hashes, beyond = draw.integers(0, 1 << 63, 500).astype(np.uint64), draw.integers(0, 16, 500) + 0.5
    cells = repeated(hashes, beyond)
    assert cells == pytest.approx(_twin([int(each) for each in hashes], beyond.tolist()))
    assert repeated(hashes[:200], beyond[:200]) + repeated(hashes[200:], beyond[200:]) == pytest.approx(cells)
    assert repeated(hashes[:0], beyond[:0]).tolist() == [0.0] * REPEATS


def test_one_value_told_often_varies_by_the_square_of_how_often() -> None:
    hashes = np.full(9, 77, np.uint64)
    assert varied(repeated(hashes[:1], np.array([3.0]))) == pytest.approx(3.0 * 4.0)
    assert varied(repeated(hashes, np.full(9, 3.0))) == pytest.approx(81 * 3.0 * 4.0)


def test_totals_of_drawn_values_scatter_as_is_told() -> None:
    """1,000 values, of which each is told 0 to 9 times if it is drawn: of one in eight is; 400 draws."""
    draw = np.random.default_rng(2)
    times, weight = draw.integers(0, 10, 1_000), 8.0
    totals, told = [], []
    for _ in range(400):
        values = draw.integers(0, 1 << 63, 1_000).astype(np.uint64)
        often = np.where(draw.random(1_000) < 1.0 / weight, times, 0)
        totals.append(weight * often.sum())
        told.append(varied(repeated(np.repeat(values, often), np.full(often.sum(), weight - 1.0))))
    truth = (weight - 1.0) * (times**2).sum()
    assert np.mean(totals) == pytest.approx(times.sum(), abs=4.0 * (truth / 400) ** 0.5)
    assert np.mean(told) == pytest.approx(truth, rel=0.05)
    assert np.std(totals) == pytest.approx(truth**0.5, rel=0.15)
    assert np.std(told) / truth < 2.0 * (2.0 / REPEATS) ** 0.5


@pytest.mark.parametrize(
    ("old", "first"), [([5.0, 7.0, 2.0], [5.0, 0.0, 7.0, 0.0]), ([5.0, 1.0, 7.0, 3.0, 2.0], [5.0, 1.0, 7.0, 3.0])]
)
def test_what_was_told_before_repeats_were_counted_goes_on(old: list[float], first: list[float]) -> None:
    worth = worth_of(Held({"worth": np.array(old)}, "worth"))
    assert worth.shape == (WORTH,)
    assert (worth[: PLACES.start].tolist(), worth[MOST]) == (first, 2.0)
    assert not worth[PLACES].any()
