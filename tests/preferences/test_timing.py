"""t_ins and t_hit by the clock, on clocks that the test moves: no real time is measured."""

from __future__ import annotations

import pytest
from workload_join import SECOND, joinable, run

from nile.operators.common.plan import FORESEEING, METHODS, JoinPlan
from nile.operators.drive.timing import WallFigures, insert_time, run_time, wall_figures
from nile.preferences.budget import Budget


class Clock:
    """Each look takes 1,000 ns."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


@pytest.mark.parametrize("method", METHODS)
def test_every_tuple_with_a_key_is_taken_in_when_inserting_is_timed(method: str) -> None:
    """A pass is two looks at the clock, 1,000 ns: so t_ins is 2,000 ns over the tuples of both streams with a key."""
    joined = joinable(5, n=1_500, keys=40, window=100 * SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(0.05), method=method, preference="weighted")
    taken = insert_time(plan, joined.input(plan.costs, ranges=False), cpu=Clock())
    keyed = sum(len(stream) - stream.key.null_count for stream in (joined.left, joined.right))
    assert taken is not None
    if method in FORESEEING:  # they shed by what they have worked out, whatever the credit
        assert taken > 2_000 / keyed
    else:
        assert taken == pytest.approx(2_000 / keyed, rel=0.02)


def test_a_hit_takes_what_the_run_took_beyond_inserting() -> None:
    joined = joinable(5, n=800, keys=10, window=100 * SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(0.3), method="paper")
    _, join = run(plan, joined)
    figures = join.figures
    taken = 7.0 * figures.admitted + 3.0 * figures.outputs
    told = wall_figures(figures, 7.0, taken)
    assert told == WallFigures(7.0, pytest.approx(3.0), pytest.approx(taken / figures.arrivals))
    assert wall_figures(figures, 7.0, 6.0 * figures.admitted).t_hit is None
    assert wall_figures(figures, None, taken).t_hit is None


@pytest.mark.parametrize("budget", [Budget(0.2), Budget(outputs=50)])
def test_a_run_is_timed_as_it_was_asked_for(budget: Budget) -> None:
    joined = joinable(5, n=500, keys=10, window=100 * SECOND)
    plan = JoinPlan(window=joined.window, budget=budget)
    assert run_time(plan, joined.input(plan.costs, ranges=False), cpu=Clock()) == 1_000


def test_an_input_without_tuples_has_no_time_of_inserting() -> None:
    joined = joinable(5, n=0, keys=10, window=SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(1.0))
    assert insert_time(plan, joined.input(plan.costs, ranges=False)) is None
