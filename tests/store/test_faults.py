"""The scoreboard of faults in small: every attempt holds, every control fails."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nile.experiments.cli import main
from nile.experiments.faults.crew import Crew, Piece
from nile.experiments.faults.fault import Fault, Wrong
from nile.experiments.faults.scoreboard import _missing, as_dict, scoreboard, text
from nile.experiments.faults.scoring import CONTROLS, Score, attempted, controlled
from nile.experiments.faults.soak import Soak, soak, write_soak
from nile.experiments.faults.table import FAULTS, chosen
from nile.summaries.errors import ConfigError

pytestmark = pytest.mark.faults


_LONGEST = (
    "streams", "signals", "stores", "flowing", "equal-keys", "every-place", "served", "sensors", "shared-plans",
    "shared-killed", "http", "stdin",
)  # fmt: skip
_ROWS = [pytest.param(name, marks=pytest.mark.slow) if name in _LONGEST else name for name in FAULTS]


@pytest.mark.parametrize("name", _ROWS)
def test_every_attempt_of_a_fault_holds(name: str) -> None:
    assert attempted(FAULTS[name], range(FAULTS[name].small)).failed == []


@pytest.mark.parametrize("name", _ROWS)
def test_every_control_of_a_fault_fails_under_the_same_check(name: str) -> None:
    assert controlled(FAULTS[name], range(min(CONTROLS, FAULTS[name].small))).pale == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded by /proc")
def test_memory_that_the_heap_has_free_is_seen_when_it_is_touched() -> None:
    """In a process of its own: arrays of up to 32 MB lie in glibc's heap once one of that size has been let go."""
    run = subprocess.run([sys.executable, "-c", HOLE], capture_output=True, text=True, check=False)
    assert "MB of memory were touched; the cap is 64 MB" in run.stderr


HOLE = """
import numpy as np
from nile.experiments.faults.memory import MB, bounded
np.ones(31 << 20, np.uint8)
held = [np.ones(30 << 20, np.uint8) for _ in range(9)]
top = np.ones(1 << 20, np.uint8)
del held
with bounded(64 * MB, 1_500 * MB):
    np.ones(100 * MB, np.uint8)
"""


def breaks(seed: int) -> None:
    if seed % 3 == 2:
        raise Wrong(f"broken by {seed}")


def test_a_failing_seed_is_one_failed_attempt_with_its_number() -> None:
    fault = Fault("broken", "a fault", "nothing", breaks, breaks, full=9, small=2)
    score = attempted(fault, range(4))
    assert (score.attempted, score.passed, score.failed) == (4, 3, [(2, "Wrong: broken by 2")])
    assert controlled(fault, [1, 2]).pale == [1]


@pytest.mark.slow
def test_the_scoreboard_runs_in_processes_and_says_how_to_run_a_seed_again() -> None:
    fault = FAULTS["insert-delete"]
    scores = scoreboard([fault], full=False, seed=17, jobs=1)
    told = as_dict(scores, full=False)["faults"]["insert-delete"]
    assert (told["passed"], told["attempted"], told["controls_red"]) == (1, 1, CONTROLS)
    assert told["seeds"] == [(17, 18)]
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


@pytest.mark.slow
def test_a_process_that_ends_costs_the_attempt_that_it_was_in() -> None:
    """What was tried before is kept, and the next process goes on behind it."""
    score, crew = Score(asked=9), []

    def came(_: Piece, one: Score) -> None:
        score.add(one)
        if score.attempted == 3:
            (process,) = crew[0]._running
            process.kill()

    crew.append(Crew([Piece(FAULTS["disorder"], "attempts", 0, 9)], came))
    crew[0].run(1)
    assert score.seeds == [(0, 9)]
    assert len(score.failed) == 1
    assert "ended with status -9" in score.failed[0][1]


def test_seeds_that_were_tried_are_not_tried_again() -> None:
    assert list(_missing([], 0, 7, 3)) == [(0, 3), (3, 3), (6, 1)]
    assert list(_missing([(0, 2), (4, 5)], 0, 7, 3)) == [(2, 2), (5, 2)]
    assert list(_missing([(0, 7)], 0, 7, 3)) == []
    score = Score()
    for seed in (3, 1, 2, 7):
        score.add(Score(seeds=[(seed, seed + 1)], failed=[(seed, "x")] if seed == 2 else []))
    assert (score.seeds, score.failed, score.passed) == ([(1, 4), (7, 8)], [(2, "x")], 3)
    assert Score.of(json.loads(json.dumps(score.as_dict()))) == score


@pytest.mark.slow
def test_what_the_time_did_not_suffice_for_is_told_and_gone_on_with(tmp_path: Path) -> None:
    arguments = ["bench", "faults", "insert-delete", "--out", str(tmp_path)]
    cut = CliRunner().invoke(main, [*arguments, "--minutes", "1e-9"])
    assert cut.exit_code == 1
    assert "0 / 0 of 150" in cut.output
    written = json.loads((tmp_path / "faults.json").read_text())
    half = FAULTS["insert-delete"], range(60)
    written["faults"]["insert-delete"] = {**attempted(*half).as_dict(), "asked": 150}
    (tmp_path / "faults.json").write_text(json.dumps(written))
    rest = CliRunner().invoke(main, [*arguments, "--resume"])
    assert rest.exit_code == 0, rest.output
    assert "150 / 150" in rest.output
    other = CliRunner().invoke(main, [*arguments, "--resume", "--full"])
    assert "needed scores of counts 'full'; got 'small'" in other.output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_tells_what_was_tried(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nile.experiments.cli", "bench", "faults", "disorder", "--full", "--jobs", "1"]
    child = subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and child.poll() is None:
            file = tmp_path / "faults.json"
            if file.exists() and json.loads(file.read_text())["faults"]["disorder"]["attempted"]:
                break
            time.sleep(0.1)
        child.send_signal(number)
        told, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 1
    assert re.search(r"disorder +\d+ / \d+ of 10,000", told), told


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
