"""`nile report`: how good the answer to the user's own query is, under several budgets."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nile.experiments.run.progress import Progress
from nile.summaries.errors import BudgetError, ConfigError

if TYPE_CHECKING:
    from nile.answers.result import Result
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["report_command"]

_LISTED = 5


@click.command("report")
@click.argument("statements", nargs=-1, metavar="[STATEMENT]... QUERY")
@click.option("--file", "--setup", "files", type=click.Path(path_type=Path, exists=True, dir_okay=False), multiple=True,
              help="Run the statements of a file first.")  # fmt: skip
@click.option("--against", multiple=True, metavar="NAME", default=("exact",), show_default=True,
              help="exact, and opponents such as hash-drop, shed-uniform (defaults for joins), scan.")  # fmt: skip
@click.option("--budget", "budgets", multiple=True, metavar="SHARE",
              help="Share of the exact work, such as 0.05 or 5%; repeatable [default: 1% to 100%].")  # fmt: skip
@click.option("--seeds", type=int, help="How many seeds of sketches and samples [default: 5].")
@click.option("--engine", type=click.Choice(["local", "spark"]), help="What computes the exact pairs [default: local].")
@click.option("--out", type=click.Path(path_type=Path), default=Path("nile-report"), show_default=True,
              help="FILE.html, or a folder for report.html and report.json.")  # fmt: skip
def report_command(
    statements: tuple[str, ...],
    files: tuple[Path, ...],
    against: tuple[str, ...],
    budgets: tuple[str, ...],
    seeds: int | None,
    engine: str | None,
    out: Path,
) -> None:
    """Compare the answer to QUERY with its exact answer, and write a report.

    \b
    nile report "CREATE STREAM s FROM 'sales.parquet' TIMESTAMP BY ts" \\
                "SELECT a.item, a.ts, b.ts FROM s a, s b WHERE a.item = b.item
                 WITH PREFERENCE desc a.item WINDOW '1 hour' BUDGET 10 %"
    """
    shares = [_share(text) for text in budgets] or None
    result = _asked(files, statements)
    with Progress() as progress:
        steps = _Steps(progress)
        with progress.stage("report"):
            told = result.report(budgets=shares, seeds=seeds, against=against, engine=engine, on_progress=steps.step)
        page, figures = told.save(out)
    _print(told)
    click.echo(f"Report: {page}\n        {figures}")


class _Steps:
    """Tells a Progress how many runs are done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def step(self, done: int, total: int, note: str) -> None:
        """One run is done."""
        self._progress.say(f"run {done} of {total}: {note}")


def _share(text: str) -> float:
    """`0.05`, `5%` or `5 %` as a fraction.  Raises BudgetError."""
    number, percent, _ = text.strip().partition("%")
    try:
        return float(number) / (100.0 if percent else 1.0)
    except ValueError:
        raise BudgetError(
            f"--budget: needed a share of the exact work, such as 0.05 or 5%; got {text!r}; write one of these"
        ) from None


def _asked(files: tuple[Path, ...], statements: tuple[str, ...]) -> Result:
    """Run all statements but the last over a new database; the result of the last, unread.  Raises ConfigError."""
    from nile.engine.connect import connect
    from nile.expressions.tokens import split_statements

    try:
        scripts = [*(file.read_text(encoding="utf-8-sig") for file in files), *statements]
    except UnicodeDecodeError as error:
        raise ConfigError(f"--file: needed statements in UTF-8; got other bytes ({error.reason}); convert it") from None
    every = [statement for script in scripts for statement in split_statements(script)]
    if not every:
        raise click.UsageError('needed a query: nile report "CREATE STREAM ..." "SELECT ... WITH PREFERENCE ..."')
    database = connect()
    *first, last = every
    for number, statement in enumerate(first, 1):
        if database.sql(statement).query is not None:
            raise ConfigError(
                f"report: needed statements that make streams before the one query, which is the last of {len(every)}; "
                f"got a query as number {number}; ask one query a report"
            )
    return database.sql(last)


def _print(told: AccuracyReport) -> None:
    """The table, what stands out, and the advice, 80 columns wide."""
    from rich.console import Console

    from nile.experiments.run.table import print_report

    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    console = Console(width=width, highlight=False, markup=False)
    if told.groups is None:
        print_report({"runs": list(told.runs)}, console)
    else:
        _print_errors(told, console)
    for line in _lines(told):
        console.print(line)
    console.print()
    for line in told.advice:
        console.print(f"* {line}")
    console.print()


def _print_errors(told: AccuracyReport, console: Any) -> None:
    """Aggregates: how far off the numbers are, by budget."""
    from rich.table import Table

    from nile.report.accuracy.groups import ERRORS
    from nile.report.wording import percent, tick

    table = Table(title="errors of the numbers", title_justify="left", box=None, pad_edge=False)
    for name in ("budget", "median", "greatest", "missing", "in interval"):
        table.add_column(name, justify="right", no_wrap=True)
    runs = told.curves
    held = {one.budget: percent(one.share) for one in told.coverage}
    for budget in runs.budgets:
        points = [runs.curve(runs.series[0], told.preference, figure.key).at(budget) for figure in ERRORS]
        cells = ["-" if point is None else percent(point.mean) for point in points]
        table.add_row(tick(budget), *cells, held.get(float(budget), "-"))
    console.print(table)
    console.print()


def _lines(told: AccuracyReport) -> list[str]:
    """Outliers, intervals and the worst cells or numbers, a line each."""
    from nile.report.accuracy.intervals import reading

    lines = []
    if told.outliers is not None:
        lines.append(told.outliers.reading())
        lines += [f"  missed {pair.words()}" for pair in told.outliers.missed_pairs[:_LISTED]]
    if told.intervals:
        lines.append(reading(told.coverage))
    for cells in told.cells:
        lines.append(f"{cells.stream}: {cells.reading()}")
        lines += [f"  {cell.words()}" for cell in cells.worst[:_LISTED]]
    if told.groups is not None:
        lines.append(told.groups.reading())
        lines += [f"  {number.words()}" for number in told.groups.worst[:_LISTED]]
    return lines
