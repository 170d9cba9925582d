"""t_ins, t_hit, equation 1 and freshness in the report, and budgets in every unit."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from nile.report.pages.html import render
from nile.report.pages.measures import measures, readings, with_measured
from nile.report.runs import grouped
from nile.report.wording import Amount, asked, tick

THIN = "\N{NARROW NO-BREAK SPACE}"
SPACE = "\N{NO-BREAK SPACE}"


def record(budget: float, **changes: Any) -> dict[str, Any]:
    """A run whose prediction follows equation 1: tau = 200 * budget, t_ins 10, t_hit 5."""
    told: dict[str, Any] = {
        "method": "nile", "guide": "countsketch", "preference": "desc", "budget": budget, "seed": 0, "costs": "engine",
        "insert_cost": 10.0, "hit_cost": 5.0, "interarrival_cost": 200 * budget,
        "outputs_per_input_predicted": (200 * budget - 10) / 5, "outputs_per_input": (200 * budget - 10) / 5,
        "unspent": 0.0, "not_taken": 0.0, "mean_age_s": 90.0, "recall": budget, "replay": "none", "output": "pairs",
        "budget_unit": "fraction", "budget_spent": budget, "reproducible": True, "window_s": 3600.0,
    }  # fmt: skip
    return told | changes


def words(report: dict[str, Any]) -> str:
    return html.unescape(re.sub("<[^>]+>", " ", render(report))).replace(THIN, " ").replace(SPACE, " ")


def said(records: list[dict[str, Any]], measured: Any = None) -> str:
    (runs,) = grouped(with_measured(records, measured))
    return " ".join(readings(runs)).replace(THIN, " ").replace(SPACE, " ")


def test_a_prediction_that_is_right_is_called_right() -> None:
    told = said([record(0.1), record(0.5, outputs_per_input=18.2)])
    assert "a tuple is charged 10 units of the cost table engine and a hit 5." in told
    assert "Equation 1 is right within 1.1 % at every budget." in told


def test_tuples_not_taken_in_explain_a_prediction_that_is_too_low() -> None:
    told = said([record(0.1, outputs_per_input=4.0, not_taken=0.3), record(0.5)])
    assert "furthest off at 10 %: 2 outputs an input predicted, 4 observed (50 % too little)" in told
    assert "since 30 % of the tuples were not taken in and cost no t_ins" in told


def test_an_unused_grant_explains_a_prediction_that_is_too_high() -> None:
    told = said([record(0.1), record(0.5, outputs_per_input=4.5, unspent=0.6)])
    assert "right within 0.1 % wherever the budget was used up" in told
    assert "50 % left part of the grant unused: 60 % at 50 %, where equation 1" in told
    assert "predicts 4.0 times too much" in told


def test_times_of_this_machine_stand_beside_the_costs_and_are_no_part_of_the_runs() -> None:
    runs = [record(0.1), record(0.5)]
    measured = [
        {"run": 0, "t_ins_ns": 200.0, "t_hit_ns": 8.0, "interarrival_ns": None, "outputs_per_input_predicted": None},
        {"run": 1, "t_ins_ns": 200.0, "t_hit_ns": 4.0, "interarrival_ns": None, "outputs_per_input_predicted": None},
        {"run": 9, "t_ins_ns": 1.0},
        "nonsense",
    ]
    told = said(runs, measured[:3])
    assert "On this machine a tuple took 200 ns and a hit 4 ns to 8 ns" in told
    assert "a hit is worth 0.02 insertions by the clock, and 0.50 by the table" in told
    page = words({"runs": runs, "measured": measured[:3]})
    assert "CPU times of one thread on the machine below" in page
    assert "1.5 min" in page
    assert with_measured(runs, None) == runs
    assert "wall_t_ins" not in runs[0]


def test_a_report_without_costs_has_no_such_section() -> None:
    (runs,) = grouped([{"method": "nile", "guide": "countsketch", "preference": "desc", "budget": 0.1}])
    assert not measures(runs)


def test_by_the_clock_equation_1_predicts_too() -> None:
    runs = [record(0.2, budget_unit="share", reproducible=False, replay="data")]
    measured = [
        {"run": 0, "t_ins_ns": 9.0, "t_hit_ns": 3.0, "interarrival_ns": 30.0, "outputs_per_input_predicted": 7.0}
    ]
    assert "predicted by the clock" in words({"runs": runs, "measured": measured})


@pytest.mark.parametrize(
    ("unit", "amount", "sentence", "short"),
    [
        ("fraction", 0.2, "20 %", "20 %"),
        ("fraction", 200.0, "200 times the exact cost", "200×"),
        ("share", 0.2, "20 % of a core", "20 %"),
        ("seconds", 0.34, "340 ms of CPU", "340 ms"),
        ("seconds_per_tuple", 2.5e-6, "2.5 µs of CPU per tuple", "2.5 µs"),
        ("seconds_per_tuple", 1.2e-7, "120 ns of CPU per tuple", "120 ns"),
        ("outputs", 1000.0, "1,000 outputs", "1,000"),
    ],
)
def test_budgets_are_told_in_their_unit(unit: str, amount: float, sentence: str, short: str) -> None:
    budget = Amount.of(amount, unit)
    assert asked(budget).replace(THIN, " ").replace(SPACE, " ") == sentence
    assert tick(budget).replace(THIN, " ").replace(SPACE, " ") == short


@pytest.mark.parametrize("unit", ["share", "seconds", "seconds_per_tuple"])
def test_a_report_by_the_clock_says_that_it_is_not_reproducible(unit: str) -> None:
    runs = [
        record(budget, budget_unit=unit, reproducible=False, replay="data", speed=60.0, budget_spent=1.02 * budget)
        for budget in (0.01, 0.1, 1.0)
    ]
    page = words({"runs": runs})
    assert "Such a run is not reproducible: another run, even with the same seed, finds other pairs." in page
    assert "By the clock of this machine: not reproducible." in page
    assert "even the same seeds give other figures the next time" in page
    assert "✗" not in page
    assert "share of what the exact join costs" not in page
    late = words({"runs": [record(0.1, budget_unit=unit, reproducible=False, budget_spent=0.2)]})
    assert "1 of 1 runs spent more, up to 2.0 times their budget." in late


def test_a_report_of_outputs_is_reproducible_and_says_outputs() -> None:
    page = words({"runs": [record(budget, budget_unit="outputs", budget_spent=budget) for budget in (100.0, 1000.0)]})
    assert "A budget is the number of outputs at most wanted." in page
    assert "With a budget of 1,000 outputs, nile/countsketch finds" in page
    assert "so the same seed gives the same answer on every machine" in page
    assert "not reproducible" not in page


def test_bursts_are_part_of_the_pacing_wherever_it_is_told() -> None:
    bursts = {"factor": 10.0, "share": 0.5, "tuples": 1000}
    page = words({"runs": [record(0.1, replay="exponential", replay_mean_s=0.1, bursts=bursts)]})
    assert "exponential gaps, idle budget expires, in bursts (50 % of the tuples come 10 times as fast" in page
    assert "1,000 in a row, and the other gaps so much longer that the mean is kept" in page
