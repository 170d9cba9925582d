"""Samples inside budgets by a clock: right in the mean, whatever a unit of work takes and however the clock jumps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from operator_laws import SAMPLED, Case
from thinning import rounds, thinned

from nile.operators.drive.key_levels import combination_sample, pair_sample
from nile.operators.drive.metered import MeteredRun
from nile.operators.drive.timed_sample import Pace
from nile.operators.join.join import PromisingJoin
from nile.preferences import state
from nile.preferences.budget import Budget
from nile.summaries.estimate import Estimate

STANDARD_ERRORS = 3.5  # of 40 cells
COVERED = 0.93
LEAST_SURE = 2.6  # standard deviations of a share, below which it is no accident


def clock(operator: Any, seed: int, units_a_ns: float, most: float) -> Callable[[], int]:
    """CPU time that work moves, and looks: some machines stall on the way, and some get slower.  most: ns there are."""
    rng = np.random.default_rng([seed, 7])
    stall, when, slower = rng.choice([0.0, 0.1, 0.3]) * most, rng.random(), rng.choice([1.0, 2.0])
    looks = iter(range(1 << 30))

    def now() -> int:
        late = operator.fed > when * operator.arrivals
        took = operator.spent / units_a_ns * (slower if late else 1.0)
        return round(30.0 * operator.fed + 10_000.0 * next(looks) + took + (stall if late else 0.0))

    return now


def answered(case: Case, seed: int, share: float, units_a_ns: float) -> tuple[Any, float, Estimate]:
    """(the operator at its end, what weights add up to, what is claimed); share: of the time that all would take."""
    operator = case.make(replace(case.plan, seed=seed, budget=Budget(seconds=1.0)), 10_000)
    most = 30.0 * operator.arrivals + 1e6 + share * operator.figures.exact_cost / units_a_ns
    operator = case.make(replace(case.plan, seed=seed, budget=Budget(seconds=most / 1e9)), 10_000)
    parts = list(MeteredRun(operator, cpu=clock(operator, seed, units_a_ns, most)).run())
    sample = (pair_sample if isinstance(operator, PromisingJoin) else combination_sample)(operator, parts)
    sizes = np.concatenate([np.zeros(0, np.int64), *(sizes_of(operator, part) for part in parts)])
    return operator, float((sample.weight * sizes).sum()), sample.count(sizes, 0.95)


def sizes_of(operator: Any, part: Any) -> np.ndarray[Any, Any]:
    if isinstance(operator, PromisingJoin):
        return np.ones(len(part), np.int64) if part.low is None else part.high - part.low
    own = np.zeros(0, np.int64) if part.probing is None else operator.data.stream[part.probing]
    return np.asarray(part.sizes(own))


def held(case: Case, seeds: int, share: float, units_a_ns: float) -> None:
    totals, inside = [], []
    truth = len(case.truth())
    for seed in range(seeds):
        operator, total, told = answered(case, seed, share, units_a_ns)
        figures, whole = operator.figures, operator.state.whole
        assert whole[state.APPLIED] == whole[state.ARRIVED] == case.arrivals
        assert figures.admitted + figures.nulls + figures.pruned + sum(figures.shed) >= case.arrivals
        totals.append(total)
        if math.isfinite(told.high):
            inside.append(told.low <= truth * (1 + 1e-9) and told.high >= truth * (1 - 1e-9))
    error = np.std(totals, ddof=1) / math.sqrt(seeds)
    assert abs(np.mean(totals) - truth) <= STANDARD_ERRORS * error + 1e-6 * truth
    if inside:
        least = COVERED - LEAST_SURE * math.sqrt(COVERED * (1.0 - COVERED) / len(inside))
        assert np.mean(inside) >= least


@pytest.mark.parametrize("seeds", rounds(200))
@pytest.mark.parametrize("case", thinned(SAMPLED, 3), ids=lambda case: case.name)
def test_weights_add_up_to_the_exact_answer_on_average_under_any_clock(case: Case, seeds: int) -> None:
    share, units_a_ns = (0.1, 0.02) if case.plan.guide == "directory" else (0.4, 0.2)
    held(case, seeds, share, units_a_ns)


@pytest.mark.long
@pytest.mark.parametrize(("share", "units_a_ns"), [(0.03, 0.02), (0.1, 0.01), (0.2, 0.1), (0.4, 2.0), (0.8, 0.2)])
@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.name)
def test_weights_add_up_under_any_clock_over_500_seeds(case: Case, share: float, units_a_ns: float) -> None:
    held(case, 500, share, units_a_ns)


def test_work_that_takes_longer_than_believed_is_noticed_before_most_of_the_time_is_gone() -> None:
    """Credit that was granted too soon was spent at once, and late tuples came in with next to no probability."""
    case = next(case for case in SAMPLED if case.name == "three streams, directory, pairs")
    truth = len(case.truth())
    totals = [answered(case, seed, 0.2, 0.1)[1] / truth for seed in range(40)]
    assert np.std(totals) <= 0.04


@pytest.mark.parametrize("seeds", rounds(200))
def test_range_records_of_several_streams_add_up_where_time_runs_out_early(seeds: int) -> None:
    """Where credit was out, records were drawn at one in a thousand, which is never."""
    case = next(case for case in SAMPLED if case.name == "three streams, countsketch, ranges")
    held(case, seeds, 0.1, 0.01)


def test_what_is_left_follows_what_work_has_taken() -> None:
    pace = Pace(arrivals=10_000, exact=400_000.0, outputs=20_000.0, most=1e7)
    begun = pace.left(0, 0.0, 0.0)
    assert 0.0 < pace.planned < begun
    as_believed = pace.left(5_000, 200_000.0, 0.5e7)
    assert pace.left(5_000, 100_000.0, 0.5e7) < as_believed < pace.left(5_000, 400_000.0, 0.5e7)
    assert pace.left(9_000, 200_000.0, 1.1e7) == 0.0
    assert Pace(10_000, 400_000.0, 20_000.0, -1.0).planned > 0.0
