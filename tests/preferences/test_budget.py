"""Budgets: exactly one of five, metered in the unit asked in, and what a run says it used."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned
from workload_join import SECOND, Pairs, assert_honest, brute_force, joinable

import nile
from nile.operators.common.data import Outputs
from nile.operators.common.plan import FORESEEING, METHODS, PREFERRING, JoinPlan
from nile.operators.drive.metered import MeteredRun, load_kernels
from nile.operators.join.join import PromisingJoin, example_join
from nile.preferences.budget import BUDGET_UNITS, Budget
from nile.preferences.clock import Pace
from nile.summaries.errors import BudgetError, ConfigError

QUERY_BUDGETS = [
    Budget(share=0.5),
    Budget(seconds_per_tuple=1e-5),
    Budget(seconds=0.02),
    Budget(outputs=70),
]


def test_a_budget_is_exactly_one_of_five() -> None:
    amounts: dict[str, Any] = dict.fromkeys(BUDGET_UNITS, 0.5) | {"outputs": 5}
    for unit, amount in amounts.items():
        budget = Budget(**{unit: amount})
        assert (budget.unit, budget.amount) == (unit, float(amount))
        assert Budget.of(unit, float(amount)) == budget
        for other in set(amounts) - {unit}:
            with pytest.raises(BudgetError, match=r"needed exactly one of .*; got .* and "):
                Budget(**{unit: amount, other: amounts[other]})
    with pytest.raises(BudgetError, match=r"needed exactly one of .*; got none"):
        Budget()
    with pytest.raises(BudgetError, match="got 'minutes'"):
        Budget.of("minutes", 1.0)
    assert Budget(0.1) == Budget(fraction=0.1)


@pytest.mark.parametrize("unit", BUDGET_UNITS)
@pytest.mark.parametrize("amount", [0, -1, math.nan, math.inf, 10**400, -(10**400), "a lot", True])
def test_a_budget_that_is_nothing_is_refused_with_what_is_needed(unit: str, amount: Any) -> None:
    with pytest.raises(BudgetError, match=r"budget: needed .*; got "):
        Budget(**{unit: amount})


@pytest.mark.parametrize("budget", [{"share": 1.01}, {"outputs": 1.5}])
def test_a_share_is_at_most_a_core_and_an_output_is_whole(budget: dict[str, Any]) -> None:
    with pytest.raises(BudgetError, match=r"a share of one core|a whole number of outputs"):
        Budget(**budget)


def test_only_budgets_by_a_clock_are_not_reproducible() -> None:
    told = {unit: Budget.of(unit, 1).is_reproducible for unit in BUDGET_UNITS}
    timed = {"share": False, "seconds_per_tuple": False, "seconds": False, "deadline": False}
    assert told == timed | {"fraction": True, "outputs": True}


# --- metered runs -----------------------------------------------------------------------------------------


def metered(plan: JoinPlan, joined: Any, units_a_ns: float = 1.0) -> tuple[Pairs, PromisingJoin, MeteredRun[Outputs]]:
    """A run on a machine whose CPU time only the join's spending moves."""
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
    run = MeteredRun(join, cpu=lambda: round(join.spent / units_a_ns))
    found: Pairs = []
    for out in run.run():
        found += zip(out.left.tolist(), out.right.tolist(), strict=True)
    return found, join, run


@pytest.mark.parametrize("method", ["nile", "paper", "hash-drop", "hash-backlog", "scan"])
@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
def test_outputs_are_at_most_as_many_as_asked_and_close_to_it(method: str, preference: str) -> None:
    joined = joinable(3, n=3_000, keys=40, window=300 * SECOND)
    asked = 400
    plan = JoinPlan(window=joined.window, budget=Budget(outputs=asked), method=method, preference=preference)
    found, _, run = metered(plan, joined)
    assert len(found) == len(set(found)) == run.spent <= asked
    assert set(found) <= brute_force(joined)
    assert preference == "asc" or len(found) >= 0.8 * asked
    again, _, _ = metered(plan, joined, units_a_ns=50.0)
    assert again == found


def test_more_outputs_than_there_are_give_them_all_under_desc() -> None:
    joined = joinable(3, n=1_000, keys=40, window=100 * SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(outputs=10 * joined.pairs), guide="directory")
    found, join, run = metered(plan, joined)
    assert_honest(plan, joined, found, join)
    assert run.spent == len(found) >= 0.95 * joined.pairs


@pytest.mark.parametrize("method", thinned(["nile", "paper", "hash-drop", "hash-backlog", "scan"], 3))
@pytest.mark.parametrize("units_a_ns", [0.02, 5.0])
def test_cpu_seconds_are_kept_whatever_an_operation_costs(method: str, units_a_ns: float) -> None:
    joined = joinable(4, n=6_000, keys=20, window=400 * SECOND)
    arrivals = len(joined.left) + len(joined.right)
    base = JoinPlan(window=joined.window, budget=Budget(1.0), method=method)
    cost = 20.0 * arrivals  # units: less than any of these methods could use
    seconds = cost / units_a_ns / 1e9
    for budget in (Budget(seconds=seconds), Budget(seconds_per_tuple=seconds / arrivals)):
        plan = replace(base, budget=budget)
        found, join, run = metered(plan, joined, units_a_ns)
        assert_honest(plan, joined, found, join)
        assert run.spent == pytest.approx(budget.amount, rel=0.1)
        assert run.spent <= budget.amount * 1.02


@pytest.mark.parametrize("method", ["nile", "paper", "hash-drop"])
def test_when_the_seconds_are_used_the_rest_is_shed_and_accounted_for(method: str) -> None:
    """Looking at a clock costs 5 us on this machine, and there are but 100 us for 47 quanta."""
    joined = joinable(4, n=6_000, keys=20, window=400 * SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(seconds=1e-4), method=method)
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
    looks = iter(range(0, 10**9, 5_000))
    run = MeteredRun(join, cpu=lambda: next(looks) + round(join.spent))
    for _ in run.run():
        pass
    figures = join.figures
    assert run.spent == pytest.approx(1e-4, rel=0.1)
    assert figures.arrivals == 12_000
    assert figures.admitted + figures.nulls + sum(figures.shed) == 12_000
    assert sum(figures.shed) > 3_000


@pytest.mark.parametrize("method", METHODS)
def test_loading_kernels_takes_tuples_in_and_ends_zones(method: str) -> None:
    """Under seconds, which methods that do not foresee can be asked for, `nile` keeps its sketches too."""
    budget = Budget(0.5) if method in FORESEEING else Budget(seconds=1.0)
    example = example_join(JoinPlan(window=None, budget=budget, method=method))
    load_kernels(example)
    figures = example.figures
    assert figures.arrivals == 4_096
    assert figures.admitted + sum(figures.shed) == 4_096
    assert figures.admitted > 0
    assert (figures.zones > 0) == (method in PREFERRING)


# --- as a user asks for it --------------------------------------------------------------------------------


@pytest.fixture
def db() -> nile.Database:
    rng = np.random.default_rng(8)
    db = nile.connect()
    for name in ("left", "right"):
        keys = (30 * rng.random(2_000) ** 2).astype(np.int64)
        db.register(name, pa.table({"t": np.cumsum(rng.integers(0, 3, 2_000)), "k": keys}), time="t")
    return db


@pytest.fixture
def query(db: nile.Database) -> nile.JoinQuery:
    return db.join("left", "right", on="k", window="60 s").prefer("desc")


@pytest.mark.parametrize("budget", QUERY_BUDGETS, ids=lambda budget: budget.unit)
def test_a_query_says_what_it_asked_and_spent_in_the_unit_of_its_budget(
    query: nile.JoinQuery, budget: nile.Budget
) -> None:
    """0.4 s of input at 5,000 times its pace; no figure of the machine's speed is asserted."""
    answer = query.replayed("data", speed=5_000).run(budget)
    exact = query.run().to_arrow()
    pairs = answer.to_arrow()
    told = answer.budget
    assert (told.asked, told.unit, told.reproducible) == (budget.amount, budget.unit, budget.is_reproducible)
    assert told.spent > 0
    assert 0 < told.fraction <= 30
    assert pairs.num_rows <= exact.num_rows
    if budget.unit == "outputs":
        assert told.spent == pairs.num_rows <= 70
    for side in answer.accounting.values():
        side.check()


def test_a_share_of_a_core_needs_an_input_that_is_played_back(query: nile.JoinQuery) -> None:
    with pytest.raises(BudgetError, match="needed an input that is played back in time"):
        query.run(nile.Budget(share=0.5))


def test_an_exact_query_takes_no_budget_by_the_clock(query: nile.JoinQuery) -> None:
    exact = replace(query, bound=replace(query.bound, preference=None))
    with pytest.raises(BudgetError, match="needed a preference"):
        exact.run(nile.Budget(seconds=1.0))


def test_what_foresees_takes_fractions_only(db: nile.Database, query: nile.JoinQuery) -> None:
    for method in FORESEEING:
        with pytest.raises(BudgetError, match=f"needed a fraction with method '{method}'"):
            query.using(method=method).run(nile.Budget(outputs=5))
    selection = db.select("left", on="k", predicates={"low": "k < 3"})
    with pytest.raises(BudgetError, match="needed a fraction with method 'shed-uniform'"):
        selection.using(method="shed-uniform").run(nile.Budget(seconds=1.0))


def test_the_plan_is_told_in_words(query: nile.JoinQuery) -> None:
    told = query.replayed("data", speed=60).explain(nile.Budget(share=0.2))
    assert "budget 0.2 of one core" in told
    assert "60 times as fast" in told
    assert "by the wall clock: another run finds other pairs" in told
    bursts = nile.Bursts(factor=5, share=0.25, tuples=10)
    told = query.replayed(mean="50 ms", bursts=bursts).explain(0.5)
    assert "exponential gaps of mean 0.05 s, 0.25 of the tuples in bursts of 10, 5 times as fast" in told


def test_a_replay_of_the_library_is_the_replay_of_an_experiment(query: nile.JoinQuery) -> None:
    """Exponential gaps replace the data's times: at full budget nothing of the re-timed join is missed."""
    answer = query.within("2 s").replayed(mean="100 ms").run(50.0)
    pairs = answer.to_arrow()
    assert pairs.num_rows > 0
    gaps = np.abs(pairs["left_ts"].to_numpy().astype(np.int64) - pairs["right_ts"].to_numpy().astype(np.int64))
    assert gaps.max() <= 2 * SECOND
    assert answer.plan.pace == Pace("exponential", 100_000_000)


@pytest.mark.parametrize("speed", [0, -1, math.nan, math.inf, True, "fast"])
def test_a_speed_that_is_none_is_refused(query: nile.JoinQuery, speed: Any) -> None:
    with pytest.raises(ConfigError, match="speed: needed a number above 0"):
        query.replayed("data", speed=speed)
