"""Standing selections on the contract of operators: driven from end to end, and inside budgets by meters and clocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from test_paper_selection import encoded

import nile
from nile.operators.drive.metered import MeteredRun
from nile.operators.drive.wall_clock import run_live
from nile.operators.selection.data import SelectionInput, Selections
from nile.operators.selection.plan import SELECTION_METHODS, SelectionPlan
from nile.operators.selection.selection import StandingSelections
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.wall import WallBudget, WallClock

SECOND = 10**9
METERED = tuple(method for method in SELECTION_METHODS if method != "shed-uniform")
CLOSE = 0.05  # of the share asked


def stream(seed: int, n: int = 4_000) -> SelectionInput:
    """Values 0 to 99, skewed, a tuple every second; twenty ranges of them."""
    rng = np.random.default_rng(seed)
    values = (100 * rng.random(n) ** 2).astype(int).tolist()
    lows = rng.integers(0, 90, 20)
    conditions: list[Any] = [lambda v, low=low: low <= v < low + 12 for low in lows]
    return encoded(values, conditions, [SECOND * k for k in range(n)])


def rows(operator: StandingSelections, parts: list[Selections]) -> list[tuple[int, int]]:
    told = [operator.expand(part) for part in parts]
    return [row for part in told for row in zip(part.query.tolist(), part.ordinal.tolist(), strict=True)]


def truth(data: SelectionInput) -> set[tuple[int, int]]:
    return {(q, int(at)) for q in range(data.says.shape[0]) for at in np.flatnonzero(data.truth(q))}


@settings(max_examples=20)
@given(
    seed=some.integers(0, 1_000),
    method=some.sampled_from(SELECTION_METHODS),
    output=some.sampled_from(("pairs", "ranges")),
    budget=some.sampled_from((None, 0.05, 0.4, 2.0)),
    ends=some.lists(some.integers(0, 1_500), max_size=12),
)
def test_where_advance_stops_does_not_show(
    seed: int, method: str, output: str, budget: float | None, ends: list[int]
) -> None:
    data = stream(seed, 1_500)
    plan = SelectionPlan(method=method, output=output, budget=None if budget is None else Budget(budget))
    whole, stepped = StandingSelections(plan, data), StandingSelections(plan, data)
    wanted = rows(whole, list(whole.run()))
    found = [part for end in [*sorted(ends), data.ts.shape[0]] for part in stepped.advance(end)]
    assert rows(stepped, found) == wanted
    assert stepped.figures == whole.figures


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("method", METERED)
def test_a_budget_of_outputs_gives_at_most_so_many(method: str, output: str) -> None:
    data = stream(3)
    asked = len(truth(data)) // 4 if output == "pairs" else 100
    plan = SelectionPlan(method=method, output=output, zone=256, budget=Budget(outputs=asked))
    operator = StandingSelections(plan, data)
    parts = list(MeteredRun(operator, cpu=lambda: 0).run())
    found = rows(operator, parts)
    assert len(found) == len(set(found))
    assert set(found) <= truth(data)
    assert 0.5 * asked <= sum(map(len, parts)) <= asked
    assert operator.figures.spent <= operator.figures.granted * (1 + 1e-9)


@pytest.mark.parametrize("method", METERED)
@pytest.mark.parametrize("per_tuple", [False, True])
def test_seconds_are_used_and_not_much_more(method: str, per_tuple: bool) -> None:
    """On a machine whose CPU time only the operator's spending moves: a unit takes a nanosecond."""
    data = stream(5)
    exact = StandingSelections(SelectionPlan(method=method), data)
    assert set(rows(exact, list(exact.run()))) == truth(data)
    seconds = 0.6 * exact.spent * 1e-9  # at less an opponent takes tuples in and finds nothing
    asked = Budget(seconds_per_tuple=seconds / data.ts.shape[0]) if per_tuple else Budget(seconds=seconds)
    operator = StandingSelections(SelectionPlan(method=method, budget=asked), data)
    run = MeteredRun(operator, cpu=lambda: round(operator.spent))
    found = rows(operator, list(run.run()))
    assert set(found) <= truth(data)
    assert len(found) == len(set(found)) > 0
    assert run.spent == pytest.approx(asked.amount, rel=0.1)
    plenty = replace(operator.plan, budget=Budget(seconds=100.0))
    whole = StandingSelections(plenty, data)
    assert set(rows(whole, list(MeteredRun(whole, cpu=lambda: round(whole.spent)).run()))) == truth(data)


def test_a_share_of_a_core_is_spent_while_the_input_is_played_back() -> None:
    data = stream(7)
    plan = SelectionPlan(budget=Budget(share=0.25), pace=Pace("data"))
    exact = StandingSelections(SelectionPlan(), data)
    list(exact.run())
    # The exact answer takes twice the time that the input is played back in, so a share of it finds a part.
    units_a_ns = exact.spent / (2 * SECOND * data.ts.shape[0])
    operator = StandingSelections(plan, data)
    now = [0]
    clock = WallClock(WallBudget(0.25), cpu=lambda: round(operator.spent / units_a_ns))

    def sleep(seconds: float) -> None:
        now[0] += round(seconds * SECOND)

    parts = list(run_live(operator, clock, now=lambda: now[0], sleep=sleep))
    found = rows(operator, parts)
    assert set(found) <= truth(data)
    assert 0 < len(found) < len(truth(data))
    assert clock.share == pytest.approx(0.25, abs=CLOSE)


def test_the_library_and_sql_take_every_budget() -> None:
    rng = np.random.default_rng(9)
    sales = pa.table({"t": np.arange(3_000.0), "v": rng.integers(0, 50, 3_000), "w": rng.integers(0, 9, 3_000)})
    wanted = duckdb.sql("SELECT t FROM sales WHERE v < 20 AND w > 3").fetchall()
    with nile.connect() as db:
        db.register("s", sales, time="t")
        query = db.select("s", on="v", predicates={"low": "v < 20", "high": "v > 40"}).prefer("desc")
        for budget in (Budget(seconds=10.0), Budget(seconds_per_tuple=0.01), Budget(outputs=50)):
            answer = query.run(budget)
            found = answer.ordinals("low").shape[0] + answer.ordinals("high").shape[0]
            exact = sum(answer.exact.values())
            assert found == min(exact, 50 if budget.unit == "outputs" else exact)
            assert answer.budget.unit == budget.unit
            assert answer.budget.asked == budget.amount
            assert 0.0 < answer.budget.spent <= budget.amount
            answer.accounting.check()
        played = query.replayed("data", speed=100_000.0).run(Budget(share=0.9))
        assert 0 < played.ordinals("low").shape[0] <= played.exact["low"]
        assert played.budget.unit == "share"
        text = "SELECT t FROM s WHERE v < 20 AND w > 3 WITH PREFERENCE desc v"
        told = db.sql(text, budget=Budget(seconds=10.0)).to_arrow()
        assert sorted(told.column("t").to_pylist()) == sorted(row[0] for row in wanted)
        assert db.sql(text, budget=Budget(outputs=7)).to_arrow().num_rows == 7


def test_what_a_method_cannot_have_is_refused() -> None:
    with pytest.raises(nile.BudgetError, match="works out beforehand how many tuples"):
        SelectionPlan(method="shed-uniform", budget=Budget(seconds=1.0))
    with pytest.raises(nile.BudgetError, match="played back in time for a share"):
        SelectionPlan(budget=Budget(share=0.5))
