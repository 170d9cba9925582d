"""`nile demo`: the whole line in one command, on synthetic streams or on the user's own file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nile.base.durations import format_duration
from nile.experiments.run.config import RunConfig, build_config
from nile.experiments.run.progress import Progress
from nile.experiments.run.runner import run_experiment, write_report
from nile.experiments.run.table import print_report
from nile.operators.common.guides import choose_guide
from nile.report.saving import check_out
from nile.summaries.costs import cost_table
from nile.summaries.errors import ConfigError

__all__ = ["demo_config", "run_and_tell"]

_BUDGETS_ARE = {
    "fraction": "Budgets are shares of the exact join's cost",
    "share": "Budgets are shares of one core",
    "seconds_per_tuple": "Budgets are CPU seconds per tuple",
    "seconds": "Budgets are CPU seconds in all",
    "outputs": "Budgets are outputs",
    "deadline": "Budgets are seconds by the clock",
}
_BUDGETS = [0.05, 0.1, 0.2, 0.5, 1.0]


def demo_config(options: Mapping[str, Any]) -> RunConfig:
    """The demo's grid from its command line options; a missing one gets the synthetic streams' default.

    Raises ConfigError, SourceMissing.
    """
    data = options.get("data")
    if data is not None and not (options.get("left") and options.get("right")):
        raise ConfigError(
            "nile demo: with --data, --left and --right say which rows make the two streams; "
            "write for example --left \"store = 'A'\" --right \"store = 'B'\""
        )
    source = "synthetic" if data is None else str(data)
    sides = {
        side: {
            "source": source,
            "time": options.get("time") or "ts",
            "key": options.get("key") or "item_id",
            "where": options.get(side) or default,
        }
        for side, default in (("left", "vstore = 0"), ("right", "vstore = 1"))
    }
    table = {
        **sides,
        "window": options.get("window") or "1 hour",
        "budgets": _BUDGETS,
        "seeds": [options.get("seed") or 0],
    }
    config = build_config(table, where="nile demo")
    spec = config.summary.spec(config.window, forgetting=config.forgetting, seed=config.seeds[0])
    chosen = choose_guide(spec, cost_table(config.costs[0]), config.preferences[0]).guide
    # What the library would choose by itself leads, and the grid of sketches is shown beside it.
    return build_config(
        {**table, "guides": sorted(config.guides, key=lambda guide: guide != chosen)}, where="nile demo"
    )


def run_and_tell(config: RunConfig, out: Path, *, command: list[str], text: str | None = None) -> dict[str, Any]:
    """Run a grid with progress on standard error, write the report, print the table and where the time went."""
    from rich.console import Console

    check_out(out)
    console = Console(width=None if sys.stdout.isatty() else 80, highlight=False)
    with Progress() as progress:
        finished = run_experiment(config, progress, command=shlex.join(command), text=text)
        report = finished.report
        with progress.stage("report"):
            json_path, html_path = write_report(report, out, finished.pictures)
    timings = {stage: round(seconds, 3) for stage, seconds in progress.timings.items()}
    exact = report["runs"][0]["exact_pairs"]
    window = "the whole stream" if config.window is None else format_duration(config.window)
    tuples = report["runs"][0]["tuples_in"]
    console.print(f"{tuples:,} tuples of two streams, joined within {window}: {exact:,} exact pairs (Spark).")
    evenly = "spread evenly over the arrivals"
    unpaced = "each arrival grants a share of its own exact cost" if config.budget_unit == "fraction" else evenly
    pacing = unpaced if config.replay == "none" else str(config.pace)
    opponents = ", ".join(name for name in config.methods if name != "nile") or "none"
    console.print(f"{_BUDGETS_ARE[config.budget_unit]}; pacing: {pacing}; opponents: {opponents}.")
    if not all(run["reproducible"] for run in report["runs"]):
        console.print("Budgets are CPU time of this machine: another run finds other pairs.")
    console.print()
    print_report(report, console)
    total = sum(timings.values())
    told = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in timings.items())
    console.print(f"Time: {told}; {total:.1f} s in all.")
    console.print(f"Report: {html_path}\n        {json_path}")
    return report
