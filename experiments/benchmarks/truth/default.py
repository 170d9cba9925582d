"""What users get who say nothing but a preference and a fraction: the answer by strategy, at the shipped prices.

Prices are those of a fixed table, and nothing is spent beyond the grant to begin with, so that the same seed gives the
same answer everywhere and small streams are sampled too, where a machine would give them whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.join import StrategyJoin
from nile.operators.strategies.prices import PRICES
from nile.preferences.budget import Budget
from nile.report.metrics import ExactPairs, Obtained, score

__all__ = ["ByDefault", "asked", "is_paid", "sampled_by_default"]

Array = np.ndarray[Any, Any]
_CAP = 4


@dataclass(frozen=True, slots=True)
class ByDefault:
    """A cell: the ways that ran; of each seed, over the true total, what weights add up to and the interval claimed;
    means over seeds of the Hist-MSE by key and age, each over that of as many pairs drawn at random."""

    ways: tuple[str, ...]
    total: Array
    low: Array
    high: Array
    key: float
    age: float


def asked(joined: Joinable, budget: float, seed: int, **options: Any) -> StrategyJoin:
    """One run that has not begun."""
    plan = JoinPlan(
        window=joined.window, budget=Budget(budget), outlier_cap=_CAP, seed=seed, guide="directory",
        spec=default_spec(joined.window, seed=seed), **{"strategy": "auto", **options},
    )  # fmt: skip
    run = StrategyJoin(plan, joined)
    run.prices = run.choice.prices = replace(PRICES, start=0.0)
    return run


def is_paid(joined: Joinable, budget: float, strategy: str) -> bool:
    """Whether a budget pays for what a strategy needs to find anything, or the best one is asked for, which does."""
    if strategy == "auto":
        return True
    choice = asked(joined, budget, 0, preference="weighted", strategy=strategy).choice
    return choice.forecast.cost <= choice.planned and choice.forecast.pairs > 0.0


def sampled_by_default(joined: Joinable, exact: ExactPairs, budget: float, seeds: int, **options: Any) -> ByDefault:
    """`weighted`, by the best way or by one that `options` name."""
    n = max(1, len(exact))
    rows, ways = [], set()
    for seed in range(seeds):
        run = asked(joined, budget, seed, preference="weighted", **options)
        parts = list(run.run())
        ways.add(run.choice.way)
        found = Obtained(*(np.concatenate(each) for each in _columns(parts)))
        told = score(exact, found, window=joined.window, outlier_cap=_CAP)
        total = run.total
        ratios = (
            _over(own, ideal)
            for own, ideal in (
                (told.hist_mse_key, told.hist_mse_key_ideal),
                (told.hist_mse_age, told.hist_mse_age_ideal),
            )
        )
        rows.append((float(found.weight.sum()) / n, total.low / n, total.high / n, *ratios))
    totals, low, high, key, age = np.array(rows).T
    return ByDefault(tuple(sorted(ways)), totals, low, high, float(key.mean()), float(age.mean()))


def _columns(parts: list[Any]) -> Iterator[list[Array]]:
    yield [np.zeros(0, np.int64), *(part.left for part in parts)]
    yield [np.zeros(0, np.int64), *(part.right for part in parts)]
    yield [np.zeros(0), *(part.weight for part in parts)]


def _over(own: float | None, ideal: float | None) -> float:
    """How many times the ideal; an exact answer is as good as can be, an empty one has none."""
    if own is None or ideal is None:
        return 1.0
    return 1.0 if own <= 1e-15 else own / ideal if ideal > 0.0 else float("inf")
