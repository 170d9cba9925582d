"""The scoreboard of faults in small: every attempt holds, every control fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nile.experiments.cli import main
from nile.experiments.faults.fault import Fault, Wrong
from nile.experiments.faults.scoreboard import as_dict, scoreboard, text
from nile.experiments.faults.scoring import CONTROLS, attempted, controlled
from nile.experiments.faults.soak import Soak, soak, write_soak
from nile.experiments.faults.table import FAULTS, chosen
from nile.summaries.errors import ConfigError

pytestmark = pytest.mark.faults


_LONGEST = ("streams", "signals", "stores", "flowing", "equal-keys", "every-place", "served", "sensors", "shared-plans")
_ROWS = [pytest.param(name, marks=pytest.mark.slow) if name in _LONGEST else name for name in FAULTS]


@pytest.mark.parametrize("name", _ROWS)
def test_every_attempt_of_a_fault_holds(name: str) -> None:
    assert attempted(FAULTS[name], range(FAULTS[name].small)).failed == []


@pytest.mark.parametrize("name", _ROWS)
def test_every_control_of_a_fault_fails_under_the_same_check(name: str) -> None:
    assert controlled(FAULTS[name], range(min(CONTROLS, FAULTS[name].small))).pale == []


def breaks(seed: int) -> None:
    if seed % 3 == 2:
        raise Wrong(f"broken by {seed}")


def test_a_failing_seed_is_one_failed_attempt_with_its_number() -> None:
    fault = Fault("broken", "a fault", "nothing", breaks, breaks, full=9, small=2)
    score = attempted(fault, range(4))
    assert (score.attempted, score.passed, score.failed) == (4, 3, [(2, "Wrong: broken by 2")])
    assert controlled(fault, [1, 2]).pale == [1]


def test_the_scoreboard_runs_in_processes_and_says_how_to_run_a_seed_again() -> None:
    fault = FAULTS["insert-delete"]
    scores = scoreboard([fault], full=False, seed=17, jobs=1)
    told = as_dict(scores, full=False)["faults"]["insert-delete"]
    assert (told["passed"], told["attempted"], told["controls_red"]) == (1, 1, CONTROLS)
    assert "1 / 1" in text(scores, [fault])
    scores["insert-delete"].failed.append((17, "Wrong: x"))
    assert "nile bench faults insert-delete --seed 17" in text(scores, [fault])
    assert not scores["insert-delete"].good


def test_the_command_prints_the_scoreboard_and_writes_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["bench", "faults", "insert-delete", "--seed", "3", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "1 / 1" in done.output
    written = json.loads((tmp_path / "faults.json").read_text())
    assert written["commit"]
    assert written["faults"]["insert-delete"]["failed"] == []


def test_a_misspelt_fault_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'disorder'"):
        chosen(["disorders"])
    assert chosen([]) == list(FAULTS.values())


def test_a_short_soak_reads_all_outputs_and_draws_its_curve(tmp_path: Path) -> None:
    report = soak(Soak(minutes=0.02, rate=20_000, queries=4))
    assert report.tuples >= 1_000
    assert report.curve[0][1] > 0
    write_soak(report, tmp_path)
    assert json.loads((tmp_path / "soak.json").read_text())["tuples"] == report.tuples
    page = (tmp_path / "soak.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "anonymous memory, MB" in page
    assert report.verdict() in page
    assert page.count('class="mark"') == 2 * min(60, len(report.curve))
