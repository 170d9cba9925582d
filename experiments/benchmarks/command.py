"""`nile bench`: list benchmarks, run them, write bench.json, compare two of those."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from nile.experiments.benchmarks import names, run
from nile.experiments.benchmarks.compare import changes, read_report
from nile.report.saving import check_out

__all__ = ["compare_reports", "list_benchmarks", "run_benchmarks"]


def list_benchmarks() -> None:
    """Print every benchmark with its title."""
    for name, title in names().items():
        click.echo(f"{name:<20} {title}")
    click.echo(
        "\nRun one or more by name, or all (long ones in brief, as by --brief):  nile bench all [--out DIR]\n"
        "What changed between two runs:  nile bench compare OLD/bench.json NEW/bench.json\n"
        "The figures with bars as Markdown:  nile bench table DIR/bench.json\n"
        "Hostile input and overload:  nile bench faults"
    )


def run_benchmarks(wanted: Sequence[str], out: Path | None, *, brief: bool = False) -> None:
    """Run benchmarks, print each result and, with a folder, write bench.json there.  Raises ConfigError."""
    if tuple(wanted) == ("list",):
        list_benchmarks()
        return
    if out is not None:
        check_out(out)
    results = run(wanted, on_start=lambda name, title: click.echo(f"{name}: {title} ...", err=True), brief=brief)
    for result in results:
        click.echo(result.text())
        click.echo()
    held = [measure for result in results for measure in result.measures if measure.met is not None]
    if len(results) > 1:
        click.echo(f"{sum(measure.met is True for measure in held)} of {len(held)} bars reached.")
    if out is not None:
        from nile.experiments.run.runner import environment_of

        report = {"environment": environment_of({}), "results": [result.as_dict() for result in results]}
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        click.echo(f"Written: {out / 'bench.json'}")


def compare_reports(old: Path, new: Path) -> int:
    """Print what changed between two bench.json; 1 where a bar that was reached is not any more.

    Raises ConfigError for files that are none.
    """
    found = list(changes(read_report(old), read_report(new)))
    for change in found:
        if change.kind != "same" or change.lost:
            click.echo(change.text())
    same = sum(change.kind == "same" for change in found)
    lost = sum(change.lost for change in found)
    click.echo(f"{len(found)} figures: {same} the same within their spread, {len(found) - same} not; {lost} bars lost.")
    return 1 if lost else 0
