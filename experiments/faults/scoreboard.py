"""All faults on all cores, in processes of their own, so that a crash is one failed attempt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nile import __version__
from nile.experiments.faults.fault import Fault
from nile.experiments.faults.scoring import CONTROLS, Score

__all__ = ["as_dict", "commit", "scoreboard", "text"]

_CHUNK = 500
"""Attempts of one process: few enough that one which leaks or crashes costs little."""


def scoreboard(
    faults: Sequence[Fault],
    *,
    full: bool,
    seed: int | None = None,
    jobs: int | None = None,
    done: Callable[[Fault, Score], object] = lambda *_: None,
) -> dict[str, Score]:
    """The score of every fault by name.  seed: only this attempt of each; done: called with each, once it is there."""
    out = {}
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for fault in faults:
            first, count = (seed, 1) if seed is not None else (0, fault.full if full else fault.small)
            pieces = [(at, min(_CHUNK, first + count - at)) for at in range(first, first + count, _CHUNK)]
            tasks = [pool.submit(_piece, fault, "controls", first, CONTROLS)]
            tasks += [pool.submit(_piece, fault, "attempts", at, n) for at, n in pieces]
            score = out[fault.name] = Score()
            for task in tasks:
                score.add(task.result())
            done(fault, score)
    return out


def text(scores: Mapping[str, Score], faults: Sequence[Fault]) -> str:
    """The scoreboard as a person reads it; under it how to run again what failed."""
    rows = [("fault", "passed / attempted", "control red", "CPU s", "expected")]
    notes = []
    for fault in faults:
        name, score = fault.name, scores[fault.name]
        red = f"{score.controls - len(score.pale)} of {score.controls}"
        rows.append((name, f"{score.passed:,} / {score.attempted:,}", red, f"{score.seconds:,.0f}", fault.expected))
        notes += [
            f"{name}, seed {seed}: {why}\n  nile bench faults {name} --seed {seed}" for seed, why in score.failed[:5]
        ]
        notes += [f"{name}: the control did not fail at seed {seed}" for seed in score.pale[:5]]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *notes])


def as_dict(scores: Mapping[str, Score], *, full: bool) -> dict[str, Any]:
    """The scoreboard as JSON values."""
    return {
        "commit": commit(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "counts": "full" if full else "small",
        "faults": {name: score.as_dict() for name, score in scores.items()},
    }


def commit() -> str:
    """The commit of this source tree, "+" behind it when files differ; the package's version outside of one."""

    def asked(*arguments: str) -> str:
        folder = Path(__file__).parent
        run = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        return asked("rev-parse", "--short=12", "HEAD") + ("+" if asked("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return __version__


def _piece(fault: Fault, what: str, first: int, count: int) -> Score:
    """Seeds first, first + 1, ...; goes on behind one that took the process with it."""
    score = Score()
    while count > 0:
        command = [sys.executable, "-m", "nile.experiments.faults.worker", what, fault.name, str(first), str(count)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        if run.returncode == 0:
            score.add(Score.of(json.loads(lines[-1])))
            return score
        if not lines:
            raise RuntimeError(f"fault {fault.name}: a process to try it in did not start: {run.stderr[-2000:]}")
        at = int(lines[-1])
        why = f"the process ended with status {run.returncode}: {run.stderr.strip()[-200:]}"
        score.add(Score(at - first + 1, [(at, why)]) if what == "attempts" else Score(controls=1, pale=[at]))
        first, count = at + 1, count - (at - first + 1)
    return score
