"""All faults on all cores, in processes of their own, so that a crash is one failed attempt."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nile import __version__
from nile.experiments.faults.crew import Crew, Piece
from nile.experiments.faults.fault import Fault
from nile.experiments.faults.scoring import CONTROLS, Score
from nile.summaries.errors import ConfigError

__all__ = ["as_dict", "commit", "read_scores", "scoreboard", "text"]

_PIECES = 40
_MOST = 250
"""A fault is dealt out in so many pieces, of at most so many attempts, so that all cores end at about the same time."""
_EVERY = 5.0  # s from one time that scores are kept to the next


def scoreboard(
    faults: Sequence[Fault],
    *,
    full: bool,
    seed: int | None = None,
    jobs: int | None = None,
    before: Mapping[str, Score] | None = None,
    seconds: float | None = None,
    done: Callable[[Fault, Score], object] = lambda *_: None,
    kept: Callable[[Mapping[str, Score]], object] = lambda _: None,
) -> dict[str, Score]:
    """The score of every fault by name; what an interrupt (KeyboardInterrupt) or the time left of it, as far as it got.

    seed: only this attempt of each; before: scores to go on from, whose seeds are not tried again; seconds: after these
    no more are begun; done: called with each fault once all of it is there; kept: called with all scores now and then.
    """
    out: dict[str, Score] = {}
    rest: dict[str, int] = {}
    controls, attempts = [], []
    for fault in faults:
        first, count = (seed, 1) if seed is not None else (0, fault.full if full else fault.small)
        score = out[fault.name] = Score(asked=count)
        if before is not None and fault.name in before:
            score.add(before[fault.name])
        size = max(1, min(_MOST, count // _PIECES))
        own = [Piece(fault, "controls", at, n) for at, n in _missing(score.controls, first, CONTROLS, CONTROLS)]
        tries = [Piece(fault, "attempts", at, n) for at, n in _missing(score.seeds, first, count, size)]
        controls += own
        attempts += tries
        rest[fault.name] = sum(piece.count for piece in (*own, *tries))
    last = time.monotonic()

    def came(piece: Piece, score: Score) -> None:
        nonlocal last
        name = piece.fault.name
        out[name].add(score)
        rest[name] -= 1
        if not rest[name]:
            done(piece.fault, out[name])
        if not rest[name] or time.monotonic() > last + _EVERY:
            kept(out)
            last = time.monotonic()

    crew = Crew([*controls, *attempts], came, None if seconds is None else last + seconds)
    with contextlib.suppress(KeyboardInterrupt):
        crew.run(jobs or (os.cpu_count() or 1) + 1)
    kept(out)
    return out


def _missing(spans: Sequence[tuple[int, int]], first: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first, count) of the pieces of at most `size` seeds of first .. first + count - 1 that are in no span."""
    end = first + count
    for start, stop in (*spans, (end, end)):
        for at in range(first, min(start, end), size):
            yield at, min(size, min(start, end) - at)
        first = max(first, stop)


def read_scores(value: Mapping[str, Any], *, full: bool) -> dict[str, Score]:
    """The scores of `as_dict`, to go on from.  Raises ConfigError where they are of other counts or another commit."""
    for name, needed in (("commit", commit()), ("counts", _counts(full))):
        if value.get(name) != needed:
            raise ConfigError(
                f"bench faults, --resume: needed scores of {name} {needed!r}; got {value.get(name)!r}; leave --resume "
                "out to begin anew"
            )
    return {name: Score.of(each) for name, each in value["faults"].items()}


def text(scores: Mapping[str, Score], faults: Sequence[Fault]) -> str:
    """The scoreboard as a person reads it; under it how to run again what failed."""
    rows = [("fault", "passed / attempted", "control red", "CPU s", "expected")]
    notes = []
    for fault in faults:
        name, score = fault.name, scores[fault.name]
        red = f"{score.controlled - len(score.pale)} of {score.controlled}"
        of = "" if score.attempted >= score.asked else f" of {score.asked:,}"
        rows.append((name, f"{score.passed:,} / {score.attempted:,}{of}", red, f"{score.seconds:,.0f}", fault.expected))
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
        "counts": _counts(full),
        "faults": {name: score.as_dict() for name, score in scores.items()},
    }


def _counts(full: bool) -> str:
    return "full" if full else "small"


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
