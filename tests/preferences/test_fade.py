"""A fade factor brings younger pairs, as much younger as the budget allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nile.experiments.benchmarks.accuracy.joins import plan_of, run
from nile.experiments.benchmarks.streams import WINDOW_TUPLES, Workload, workload
from nile.preferences.fade import Fade
from nile.summaries.costs import ENGINE


def ages(given: Workload, fade: float, guide: str, budget: float) -> Any:
    """Of the pairs that are found under a fade factor, as parts of the window."""
    _, out = run(plan_of(given, budget, ENGINE, guide=guide, fade=Fade(fade)), given.joined)
    return np.abs(given.joined.left.ts[out.left] - given.joined.right.ts[out.right]) / given.window


@pytest.mark.parametrize(("guide", "most"), [("directory", 0.6), ("countsketch", 0.6)])
def test_where_tuples_have_many_matches_pairs_are_younger_and_hardly_fewer(guide: str, most: float) -> None:
    """The more so, the more windows a run has: at first the budget is tried out."""
    given = workload(0.067, 1, tuples=4 * WINDOW_TUPLES)
    all_alike, fading = ages(given, 1.0, guide, 0.1), ages(given, 0.8, guide, 0.1)
    assert fading.mean() <= most * all_alike.mean()
    assert len(fading) >= 0.95 * len(all_alike)


def most(given: Workload, budget: float) -> float:
    """What a budget may find at most: it pays for so many outputs, and a pair is worth one."""
    return budget * float(given.joined.costs(ENGINE, ranges=False).sum()) / ENGINE.emit


ALL_BUT_ALL = 0.97
"""Of the most that a budget may find: where the pairs found without a fade factor are young as well, since they are
those of one key that comes in for a part of the window, nothing can be worth much more."""


@pytest.mark.parametrize("budget", [0.05, 0.2])
@pytest.mark.parametrize(("share", "fade"), [(0.067, 0.8), (0.067, 0.3), (0.005, 0.8), (0.005, 0.3), (0.0005, 0.3)])
def test_what_is_found_is_worth_more_than_what_would_be_found_without(share: float, fade: float, budget: float) -> None:
    """A pair of the first quarter of the window counts as one, another as the fade factor."""
    given = workload(share, 2, tuples=8_000)
    worth = [
        np.where(each <= 0.25, 1.0, fade).sum() for each in (ages(given, f, "directory", budget) for f in (1.0, fade))
    ]
    least = (1.05 if share == 0.067 or fade == 0.3 else 0.97) * worth[0]
    assert worth[1] >= min(least, ALL_BUT_ALL * most(given, budget))


@pytest.mark.parametrize("budget", [0.05, 0.2])
@pytest.mark.parametrize(
    ("share", "fade", "guide", "least"),
    [
        (0.067, 0.8, "directory", 1.05), (0.067, 0.3, "directory", 1.05), (0.005, 0.8, "directory", 1.0),
        (0.005, 0.3, "directory", 1.05), (0.002, 0.3, "directory", 1.05), (0.0005, 0.3, "directory", 1.0),
        (0.0005, 0.3, "countsketch", 0.93),
    ],
)  # fmt: skip
def test_over_many_streams_what_is_found_is_worth_more(
    share: float, fade: float, guide: str, least: float, budget: float
) -> None:
    """Where tuples have but two matches hardly anything is left to choose, and telling them apart is not paid for."""
    worth, bound = np.zeros(2), 0.0
    for seed in range(1, 13):
        given = workload(share, seed, tuples=8_000)
        bound += ALL_BUT_ALL * most(given, budget)
        for at, factor in enumerate((1.0, fade)):
            worth[at] += np.where(ages(given, factor, guide, budget) <= 0.25, 1.0, fade).sum()
    assert worth[1] >= min(least * worth[0], bound)
