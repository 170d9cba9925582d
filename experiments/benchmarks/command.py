"""`nile bench`: list benchmarks, run them, write bench.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from experiments.benchmarks import names, run

__all__ = ["list_benchmarks", "run_benchmarks"]


def list_benchmarks() -> None:
    """Print every benchmark with its title."""
    for name, title in names().items():
        click.echo(f"{name:<20} {title}")
    click.echo("\nRun one or more by name, or all:  nile bench all [--out DIR]")


def run_benchmarks(wanted: Sequence[str], out: Path | None) -> None:
    """Run benchmarks, print each result and, with a folder, write bench.json there.  Raises ConfigError."""
    if tuple(wanted) == ("list",):
        list_benchmarks()
        return
    results = run(wanted, on_start=lambda name, title: click.echo(f"{name}: {title} ...", err=True))
    for result in results:
        click.echo(result.text())
        click.echo()
    if out is not None:
        from experiments.runner import environment_of

        out.mkdir(parents=True, exist_ok=True)
        report = {"environment": environment_of({}), "results": [result.as_dict() for result in results]}
        (out / "bench.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        click.echo(f"Written: {out / 'bench.json'}")
