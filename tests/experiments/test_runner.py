"""The experiment runner: its records, its determinism, and the main line on synthetic and real streams."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nile.experiments.run.config import build_config
from nile.experiments.run.progress import Progress
from nile.experiments.run.runner import cases, run_experiment, write_report

FIELDS = {
    "method", "guide", "preference", "budget", "seed", "output", "costs", "exact_pairs", "pairs", "records", "recall",
    "false_pairs", "hist_mse_key", "hist_mse_age", "hist_mse_key_ideal", "hist_mse_age_ideal", "outlier_precision",
    "outlier_recall", "outlier_precision_paper", "outlier_recall_paper", "mean_age_s", "coverage", "budget_spent",
    "insert_cost", "hit_cost", "interarrival_cost", "outputs_per_input", "outputs_per_input_predicted", "unspent",
    "not_taken", "budget_unit", "fraction_spent", "reproducible", "structure", "zones", "zones_changed", "bursts",
    "tuples_in", "tuples_shed",
}  # fmt: skip

SMALL = {
    "window": "30 min",
    "budgets": [0.2, 1.0],
    "seeds": [3],
    "synthetic": {"seed": 5, "tuples": 6_000, "items": 300},
    "left": {"source": "synthetic", "time": "ts", "key": "item_id", "where": "vstore = 0"},
    "right": {"source": "synthetic", "time": "ts", "key": "item_id", "where": "vstore = 1"},
}

CONFIG = """\
window = "30 min"
budgets = [0.2, 1.0]
seeds = [3]
batch_rows = {batch_rows}
[left]
source = "synthetic"
time = "ts"
key = "item_id"
where = "vstore = 0"
[right]
source = "synthetic"
time = "ts"
key = "item_id"
where = "vstore = 1"
[synthetic]
seed = 5
tuples = 6000
items = 300
"""


def runs_of(**changes: Any) -> list[dict[str, Any]]:
    config = build_config({name: value for name, value in {**SMALL, **changes}.items() if value}, where="test")
    with Progress(quiet=True) as progress:
        finished = run_experiment(config, progress, command="test")
    assert len(finished.pictures) == 2
    return list(finished.report["runs"])


def check_run(run: dict[str, Any]) -> None:
    """What must hold of every record."""
    assert set(run) >= FIELDS
    assert run["false_pairs"] == 0
    assert run["budget_spent"] <= run["budget"] * (1 + 1e-9) or run["replay"] != "none"
    assert all(not isinstance(value, float) or math.isfinite(value) for value in run.values())
    for side in run["accounting"].values():
        assert side["tuples_in"] == side["applied"] + side["late"] + side["shed"] + side["rejected"]
    assert run["pairs"] <= run["exact_pairs"]


@pytest.fixture(scope="module")
def both_costs(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The runs of the small config, with every table of costs."""
    request.getfixturevalue("spark")
    return runs_of(costs=["engine", "memory"])


@pytest.mark.slow
@pytest.mark.spark
def test_a_full_budget_finds_everything_and_no_run_finds_what_is_not_there(both_costs: list[dict[str, Any]]) -> None:
    runs = both_costs
    assert len(runs) == 2 * (2 * 3 * 2 + 3 * 2)
    for run in runs:
        check_run(run)
        if run["budget"] == 1.0 and run["preference"] != "asc":
            assert run["recall"] == 1.0
        if run["budget"] == 1.0 and run["method"] == "nile" and run["preference"] == "asc":
            assert run["outlier_recall"] == 1.0
            assert run["outlier_precision"] == 1.0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_an_opponent_has_no_guide_and_of_preferences_knows_the_cap_of_outliers_alone() -> None:
    runs = list(runs_of(methods=["hash-drop"], budgets=[0.5]))
    assert [run["preference"] for run in runs] == ["desc", "weighted", "asc"]
    assert {run["guide"] for run in runs} == {None}
    without = [{name: value for name, value in run.items() if name != "preference"} for run in runs]
    assert without[0] == without[1]
    assert without[2]["outlier_precision"] > without[0]["outlier_precision"]
    assert without[2]["outlier_recall"] >= without[0]["outlier_recall"]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("replay", ["exponential", "data"])
def test_replayed_streams_are_scored_against_their_own_exact_answer(replay: str) -> None:
    for run in runs_of(replay=replay, replay_mean="100 ms", window="1 min", budgets=[0.3]):
        check_run(run)
        assert run["replay"] == replay


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_budgets_of_cpu_time_over_structures_in_bursts_are_recorded_as_they_were_asked_for() -> None:
    table = {
        **SMALL, "window": "1 min", "budgets": [0.001, 0.05], "budget_unit": "seconds", "preferences": "desc",
        "methods": ["nile", "paper"], "guides": "countsketch", "structures": ["T1", "T3"], "replay": "exponential",
        "bursts": {"factor": 4.0, "share": 0.3},
    }  # fmt: skip
    with Progress(quiet=True) as progress:
        report = run_experiment(build_config(table, where="test"), progress, command="test").report
    runs, measured = report["runs"], report["measured"]
    assert [(run["method"], run["structure"]) for run in runs[::2]] == [
        ("nile", "T4"),
        ("paper", "T1"),
        ("paper", "T3"),
    ]
    assert [entry["run"] for entry in measured] == list(range(6))
    for run, entry in zip(runs, measured, strict=True):
        assert set(run) >= FIELDS
        assert run["false_pairs"] == 0
        assert (run["budget_unit"], run["reproducible"]) == ("seconds", False)
        assert run["bursts"] == {"factor": 4.0, "share": 0.3, "tuples": 1_000}
        assert run["budget_spent"] > 0
        assert entry["interarrival_ns"] == pytest.approx(1e9 * run["budget"] / run["tuples_in"])
        assert entry["t_ins_ns"] > 0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_range_records_stand_for_the_same_pairs() -> None:
    for run in runs_of(output="ranges", budgets=[1.0], preferences=["desc"]):
        check_run(run)
        assert run["recall"] == 1.0
        assert run["records"] < run["pairs"]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_forgetting_lowers_coverage_and_adds_no_false_pair() -> None:
    summary = {"granularity": "5 min", "rate": 2, "depth": 2}
    dense = {"seed": 5, "tuples": 12_000, "items": 20}
    only = {"methods": ["nile"], "guides": ["countsketch"], "budgets": [0.5], "window": "7 hours"}
    for run in runs_of(forgetting=True, summary=summary, synthetic=dense, **only):
        check_run(run)
        assert run["coverage"] < 1.0


@pytest.mark.slow
@pytest.mark.spark
def test_another_process_with_another_batch_size_writes_the_same_runs(
    tmp_path: Path, both_costs: list[dict[str, Any]]
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(CONFIG.format(batch_rows=257), encoding="utf-8")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "nile.experiments.cli", "run", str(path), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["stage"] for line in done.stderr.splitlines())
    told = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert told["environment"]["batch_rows"] != build_config(SMALL, where="test").batch_rows
    assert told["runs"] == [run for run in both_costs if run["costs"] == "engine"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("window", "pairs"), [("10 min", 654), ("1 hour", 2_834), ("6 hours", 11_309)])
def test_the_real_streams_have_their_known_sizes(retail: Path, window: str, pairs: int) -> None:
    side = {"source": str(retail), "time": "ts", "key": "item_id"}
    runs = runs_of(
        left={**side, "where": "vstore = 0"}, right={**side, "where": "vstore = 1"}, window=window,
        budgets=[0.1, 1.0], guides=["directory"], synthetic=None,
    )  # fmt: skip
    for run in runs:
        check_run(run)
        assert run["exact_pairs"] == pairs
        if run["budget"] == 1.0 and run["preference"] != "asc":
            assert run["pairs"] == pairs


def test_the_grid_has_a_fixed_order() -> None:
    config = build_config({**SMALL, "costs": ["engine", "memory"]}, where="test")
    told = list(cases(config))
    assert told == list(cases(config))
    assert [case.costs for case in told] == sorted(case.costs for case in told)


def test_a_report_is_written_whole_and_reads_back(tmp_path: Path) -> None:
    report = {"environment": {"nile": "0"}, "runs": []}
    json_path, html_path = write_report(report, tmp_path / "deep" / "out")
    assert json.loads(json_path.read_text(encoding="utf-8")) == report
    assert html_path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in json_path.parent.iterdir()) == ["report.html", "report.json"]
