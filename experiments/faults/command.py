"""`nile bench faults`: the scoreboard of faults on the terminal and as JSON."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nile.experiments.faults.fault import Fault
    from nile.experiments.faults.scoring import Score

__all__ = ["faults", "soak"]


@click.command("faults", short_help="Test hostile input and overload.")
@click.argument("names", nargs=-1)
@click.option("--full", is_flag=True, help="Full counts (about half an hour on two cores); default: the tests' counts.")
@click.option("--seed", type=click.IntRange(0), help="Run only this attempt of each fault.")
@click.option("--jobs", type=click.IntRange(1), help="Parallel processes (default: cores and one more, as some wait).")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Begin nothing after these.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write faults.json into this folder, as scores come.")
@click.option("--resume", is_flag=True, help="Go on from the scores in --out.")
def faults(
    names: tuple[str, ...],
    full: bool,
    seed: int | None,
    jobs: int | None,
    minutes: float | None,
    out: Path | None,
    resume: bool,
) -> None:
    """Test hostile input and overload: for each fault what must hold, and a control that must fail.

    Interrupted, it tells what was tried so far; with --out that is kept, whatever ends it.
    """
    from nile.experiments.faults.scoreboard import (  # the command line starts without them
        as_dict,
        commit,
        read_scores,
        scoreboard,
        text,
    )
    from nile.experiments.faults.table import chosen
    from nile.summaries.errors import ConfigError

    wanted = chosen(names)
    file = None if out is None else out / "faults.json"
    if resume and file is None:
        raise ConfigError("bench faults, --resume: needed the folder of faults.json; got none; write --out FOLDER")
    before = None
    if resume and file is not None and file.exists():
        before = read_scores(json.loads(file.read_text(encoding="utf-8")), full=full)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)

    def done(fault: Fault, score: Score) -> None:
        held = "held" if score.good else "FAILED"
        click.echo(f"{fault.name}: {score.passed:,} / {score.attempted:,} {held}, {score.seconds:,.0f} s", err=True)
        for seed_of, why in score.failed[:5]:  # at once: a full run goes on for long, and may be ended before its table
            click.echo(f"  seed {seed_of}: {why}", err=True)

    def kept(scores: Mapping[str, Score]) -> None:
        if file is None:
            return
        others = {name: score for name, score in (before or {}).items() if name not in scores}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(as_dict({**others, **scores}, full=full), indent=1) + "\n", encoding="utf-8")
        new.replace(file)

    ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        scores = scoreboard(
            wanted, full=full, seed=seed, jobs=jobs, before=before,
            seconds=None if minutes is None else 60 * minutes, done=done, kept=kept,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, ended)
    click.echo(text(scores, wanted))
    seeds = f"seed {seed}" if seed is not None else "seeds 0, 1, 2, ..."
    click.echo(f"commit {commit()}, {seeds}")
    if not all(score.good for score in scores.values()):
        sys.exit(1)


@click.command("soak", short_help="Run standing queries for an hour; watch memory.")
@click.option("--minutes", type=click.FloatRange(0.05), default=60.0, show_default=True, help="Duration.")
@click.option("--rate", type=click.IntRange(1_000), default=200_000, show_default=True, help="Tuples per second.")
@click.option("--queries", type=click.IntRange(1), default=100, show_default=True, help="Standing queries.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Also write soak.json and soak.html into this folder.")
def soak(minutes: float, rate: int, queries: int, seed: int, out: Path | None) -> None:
    """Run standing queries for an hour and check that memory and descriptors do not grow."""
    import pyarrow as pa  # the command line starts without them

    from nile.experiments.faults.soak import Soak, write_soak
    from nile.experiments.faults.soak import soak as run

    # Arrow's own allocator keeps segments of 4 MB: one more came into use every quarter or half hour (measured), though
    # what Arrow held stayed the same.  What the C library has free can be given back before each look.
    pa.set_memory_pool(pa.system_memory_pool())

    report = run(Soak(minutes, rate, queries, seed), lambda line: click.echo(line, err=True))
    click.echo(report.text())
    if out is not None:
        write_soak(report, out)
        click.echo(f"Written: {out / 'soak.html'}")
    if not report.good:
        sys.exit(1)
