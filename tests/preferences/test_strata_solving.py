"""The rates of strata that the kernel finds are those of its formulas, by numpy, all strata at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nile.preferences.strata import Sizes, best_strata, sizes_of

Array = np.ndarray[Any, Any]


def _cube_root(x: Array) -> Array:
    root = np.sqrt(x)
    for _ in range(12):
        root = np.sqrt(np.sqrt(x * root))
    return root


def _rates(
    sizes: Sizes, weight: float, taking: float, emitting: float, blocks: bool, spared: float
) -> tuple[Array, Array, Array, Array, Array]:
    """(level, left, right, rate, cost), as `best_strata` describes them."""
    keys, left, right, pairs, loads = sizes
    worth = emitting / (4.0 * weight * weight)
    spread = np.maximum(1.0, left * right / pairs)
    kept = np.sqrt(spread)

    def thinned(kept: Array, many: Array) -> tuple[Array, Array, Array, Array]:
        of_left = np.minimum(1.0, np.where(left > right, many, kept) / left)
        of_right = np.minimum(1.0, np.where(left > right, kept, many) / right)
        missed, gone = 1.0 / of_left - 1.0, 1.0 / of_right - 1.0
        varies = 1.0 + missed / left + gone / right + missed * gone / pairs
        return of_left, of_right, varies, taking * (of_left * loads[:, :, 0] + of_right * loads[:, :, 1])

    _, _, varies, cost = thinned(kept, kept)
    level = np.minimum(1.0, pairs * np.sqrt(64.0 * varies * worth / cost))
    more = _cube_root(pairs * pairs * spread * worth / taking)
    if not blocks:
        more = np.maximum(pairs * np.sqrt(worth / taking), more)
    kept = np.where(level < 1.0, kept, np.maximum(kept, more))
    many = np.sqrt(pairs * np.maximum(left, right) * worth / taking)
    many = np.where((level < 1.0) | (kept < np.minimum(left, right)), kept, np.maximum(kept, many))
    of_left, of_right, _, _ = thinned(kept, many)
    level = np.maximum(level, 1e-4)
    least = min(1.0, spared / (taking * float((keys[:, :1, None] * loads[:, :1]).sum())))
    level[:, 0] = np.maximum(level[:, 0], np.minimum(1.0, least / np.minimum(of_left[:, 0], of_right[:, 0])))
    for part in (of_left, of_right):
        part[:, 0] = np.maximum(part[:, 0], least / level[:, 0])
    came = level * of_left * of_right
    rate = np.minimum(1.0, 1.0 / (weight * came))
    drawing = emitting * float((keys * pairs * came)[:, 0].sum())
    rate[:, 0] = np.maximum(rate[:, 0], min(1.0, spared / drawing))
    taken = taking * (of_left * loads[:, :, 0] + of_right * loads[:, :, 1])
    cost = (keys * (level * taken + emitting * pairs * came * rate)).sum(axis=1)
    return level, of_left, of_right, rate, cost


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_rates_are_those_of_the_formulas_at_the_least_weight_that_is_paid_for(seed: int, blocks: bool) -> None:
    rng = np.random.default_rng(seed)
    segments, listed = int(rng.integers(1, 5)), int(rng.integers(1, 60))
    counts = rng.poisson(rng.uniform(0.0, 30.0), (segments, listed, 2)).astype(np.float64)
    sizes = sizes_of(
        rng.uniform(1.0, 1e8, segments), rng.uniform(1e3, 1e6, (segments, 2)), int(rng.integers(10, 100_000)), counts,
        rng.uniform(1.0, 40.0, segments), rng.uniform(0.01, 1.0, segments),
    )  # fmt: skip
    budget, taking, emitting = float(10.0 ** rng.uniform(3.0, 8.0)), 12.0, 10.0
    low, high = 1e-3, max(2.0, 1e3 * float((sizes.keys * sizes.pairs).sum()))
    for _ in range(24):
        middle = math.sqrt(low * high)
        if _rates(sizes, middle, taking, emitting, blocks, 0.05 * budget)[-1].sum() > budget:
            low = middle
        else:
            high = middle
    expected = _rates(sizes, high, taking, emitting, blocks, 0.05 * budget)
    found = best_strata(sizes, budget, taking, emitting, blocks=blocks)
    for own, other in zip(found, expected, strict=False):
        assert own == pytest.approx(other, rel=1e-9)
    assert (found.taking <= found.cost + 1e-9).all()
