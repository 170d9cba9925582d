"""Figure 9 in the report: the orders that must hold, and a reason wherever the paper's does not."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from workload_join import SECOND, joinable, run, stream

from nile.experiments.figures.structures import CONFIG, config
from nile.experiments.run.config import build_config
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable
from nile.preferences.budget import Budget
from nile.pyramid.grid.spec import SummarySpec
from nile.report.pages.html import render
from nile.report.pages.structures import Structure, compared, figure_9, order, reasons
from nile.summaries.costs import cost_table

STRUCTURES = ("T1", "T2", "T3", "T4")
PLENTY = 1_000.0
EVERY = ("scan", *STRUCTURES)


def records_of(joined: Joinable, *, budgets: tuple[float, ...] = (PLENTY,), **spec: Any) -> list[dict[str, Any]]:
    """What a run of the grid of Figure 9 records of its costs."""
    told = []
    for costs in ("memory", "engine"):
        for name in EVERY:
            for budget in budgets:
                method, structure = ("scan", "T4") if name == "scan" else ("paper", name)
                plan = JoinPlan(
                    window=joined.window, budget=Budget(budget), method=method, costs=cost_table(costs),
                    spec=SummarySpec(structure=structure, **spec),
                )  # fmt: skip
                figures = run(plan, joined)[1].figures
                told.append(
                    {
                        "method": method, "guide": None, "structure": None if name == "scan" else name, "seed": 0,
                        "preference": "desc", "budget": budget, "budget_unit": "fraction", "costs": costs,
                        "insert_cost": figures.t_ins, "hit_cost": figures.t_hit, "zones": figures.zones,
                        "zones_changed": figures.changes, "sketch_rows": None if name in ("scan", "T1") else 3,
                        "outputs_per_input": figures.outputs_per_input, "not_taken": figures.not_taken,
                        "regions_per_tuple": figures.regions / figures.admitted,
                    }
                )  # fmt: skip
    return told


@pytest.fixture(scope="module")
def steady() -> list[dict[str, Any]]:
    joined = joinable(11, n=6_000, keys=200, window=600 * SECOND)
    return records_of(joined, buckets=16, columns=8, max_zones=8, granularity=300 * SECOND, depth=2)


@pytest.mark.parametrize("costs", ["memory", "engine"])
def test_the_orders_of_figure_9_hold_against_the_scan(steady: list[dict[str, Any]], costs: str) -> None:
    told = compared(steady, costs, PLENTY)
    assert tuple(told) == EVERY
    insert = {name: one.t_ins for name, one in told.items()}
    hit = {name: one.t_hit for name, one in told.items()}
    assert insert["scan"] == insert["T1"] < insert["T2"] == insert["T3"] < insert["T4"]
    assert hit["T1"] > hit["T2"] > hit["T3"]
    assert hit["scan"] == pytest.approx(hit["T1"], rel=0.02)
    assert hit["T4"] == pytest.approx(hit["T3"], rel=0.05)
    assert {one.rate for one in told.values()} == {told["scan"].rate}
    assert order(insert).startswith("T1 = scan")
    assert " < T2 = T3 " in order(insert)


@pytest.mark.parametrize("costs", ["memory", "engine"])
def test_where_the_paper_s_order_does_not_hold_the_report_says_why(steady: list[dict[str, Any]], costs: str) -> None:
    told = compared(steady, costs, PLENTY)
    said = reasons(told)
    assert said[0].startswith("T2 = T3 on insertion: both update 3 counters per tuple")
    assert f"both ended {told['T2'].zones:.0f} zones" in said[0]
    assert said[1].startswith(("T3 = T4 on hits", "T4 costs more to hit than T3"))
    assert len(said) == 2
    page = render({"runs": steady})
    assert "Figure 9: the structures" in page
    assert page.count("T2 = T3 on insertion") == 2


def test_on_a_stream_that_changes_t4_ends_zones_on_changes_and_the_report_counts_them() -> None:
    """Keys 0 to 39 and 40 to 79 in turns of 700 tuples, within a MAXLENGTH of 1,200."""
    n = 9_000
    rng = np.random.default_rng(2)
    turns = 40 * ((np.arange(n) // 700) % 2)
    sides = [stream(side, np.arange(n), (turns + rng.integers(0, 40, n)).tolist()) for side in ("left", "right")]
    joined = Joinable(*sides, 1_200 * SECOND)
    told = compared(records_of(joined, buckets=16, columns=16, granularity=4_800 * SECOND), "memory", PLENTY)
    assert told["T4"].changed >= 6
    assert told["T3"].changed == 0
    assert told["T4"].zones > told["T3"].zones
    on_hits = [line for line in reasons(told) if "T4" in line and "hit" in line]
    if told["T4"].t_hit < told["T3"].t_hit * 0.99:
        assert on_hits == []
    else:
        assert f"{told['T4'].changed:.0f}" in on_hits[0]


def made(name: str, t_ins: float, t_hit: float, **changes: float) -> Structure:
    values = {"rate": 1.0, "zones": 10.0, "changed": 0.0, "regions": 4.0, "rows": 3.0, "not_taken": 0.0} | changes
    return Structure(name, t_ins, t_hit, **values)


def test_the_paper_s_order_needs_no_reason() -> None:
    told = {name: made(name, 1.0 + place, 9.0 - place) for place, name in enumerate(STRUCTURES)}
    assert reasons(told) == []
    assert order({name: one.t_hit for name, one in told.items()}) == "T4 6 < T3 7 < T2 8 < T1 9"


def test_every_difference_from_the_paper_has_its_own_reason() -> None:
    told = {
        "T1": made("T1", 5.0, 3.0, regions=1.0),
        "T2": made("T2", 4.0, 7.0, regions=6.0),
        "T3": made("T3", 4.0, 7.0, zones=20.0, regions=6.0),
        "T4": made("T4", 3.0, 9.0, changed=7.0, regions=8.5),
    }
    assert [line.split(":")[0] for line in reasons(told)] == [
        "T1 costs more to insert into than T2",
        "T2 costs more to hit than T1",
        "T2 = T3 on insertion",
        "T2 = T3 on hits",
        "T3 costs more to insert into than T4",
        "T4 costs more to hit than T3",
    ]
    assert "7 of its 10 zones on a change" in reasons(told)[-1]
    assert "8.5 promising regions against 6" in reasons(told)[-1]


def test_t3_and_t4_are_equal_for_one_of_three_reasons() -> None:
    for zones, changed, why in (
        (10.0, 0.0, "not one of the 10 zones of T4 ended on a change"),
        (10.0, 2.0, "but T3 ended as many zones"),
        (11.0, 2.0, "only 2 of the 11 zones of T4 ended on a change"),
    ):
        (line,) = reasons({"T3": made("T3", 1.0, 5.0), "T4": made("T4", 2.0, 5.0, zones=zones, changed=changed)})
        assert line.startswith("T3 = T4 on hits")
        assert why in line


def test_costs_within_a_hundredth_are_equal() -> None:
    assert order({"a": 1.0, "b": 1.009, "c": 1.2}) == "a = b 1.01 < c 1.2"


def test_one_structure_alone_is_no_figure(steady: list[dict[str, Any]]) -> None:
    assert not figure_9([one for one in steady if one["structure"] in (None, "T4")])
    assert not figure_9([])


def test_tuples_that_were_not_taken_in_are_told(steady: list[dict[str, Any]]) -> None:
    scanty = [record | {"not_taken": 0.25 if record["structure"] == "T4" else 0.0} for record in steady]
    assert "25\N{NARROW NO-BREAK SPACE}% by T4" in figure_9(scanty)


def test_the_shipped_config_is_a_grid_of_all_structures_and_both_tables() -> None:
    grid = config()
    assert grid == build_config(tomllib.loads(CONFIG), where="test")
    assert grid.structures == STRUCTURES
    assert set(grid.costs) == {"engine", "memory"}
    assert set(grid.methods) == {"paper", "scan"}
