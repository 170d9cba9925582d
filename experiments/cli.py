"""The `nile` command."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any

import click

from nile import __version__
from nile.base.status import status_of
from nile.experiments.atlas.command import experiment
from nile.experiments.commands.build import build_command
from nile.experiments.commands.calibrate import calibrate
from nile.experiments.commands.doctor import doctor
from nile.experiments.commands.ingest import ingest_command
from nile.experiments.commands.report import report_command
from nile.experiments.commands.serve import serve
from nile.experiments.commands.standard import standard_streams
from nile.experiments.commands.store import store
from nile.experiments.faults.command import faults, soak
from nile.summaries.errors import NileError

__all__ = ["main"]


class _Told(click.Group):
    """A group whose commands end on a NileError, a standard stream that fails or Ctrl-C with one message.

    The status is that of `nile.base.status`.
    """

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            known = sorted(self.commands)
            near = difflib.get_close_matches(args[0], known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise click.UsageError(f"{error.message.rstrip('.')}; {meant}", context) from None

    def main(self, *arguments: Any, **options: Any) -> Any:
        with standard_streams():
            return super().main(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except NileError as error:
            click.echo(f"nile: {error}", err=True)
            context.exit(status_of(error))
        except KeyboardInterrupt as error:
            click.echo("stopped", err=True)
            context.exit(status_of(error))


@click.group(cls=_Told, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="nile")
def main() -> None:
    """Approximate answers over data streams, most promising tuples first."""


main.add_command(store)
main.add_command(serve)


@main.command()
@click.option("--data", type=click.Path(path_type=Path), help="Your own Parquet or CSV file (default: synthetic).")
@click.option("--left", metavar="SQL", help='Which rows are the left stream, e.g. "vstore = 0".')
@click.option("--right", metavar="SQL", help="Which rows are the right stream.")
@click.option("--key", metavar="COLUMN", help="The column to join on (default: item_id).")
@click.option("--time", metavar="COLUMN", help="The event time (default: ts).")
@click.option("--window", metavar="DURATION", help="How far apart in time two tuples may be (default: 1 hour).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of sketches and sampling.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("nile-demo"), show_default=True,
              help="Folder for report.html and report.json.")  # fmt: skip
def demo(out: Path, **options: Any) -> None:
    """Join two retail streams under several budgets, scored against Spark."""
    from nile.experiments.run.demo import demo_config, run_and_tell

    run_and_tell(demo_config(options), out, command=["nile", *sys.argv[1:]])


@main.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for report.html and report.json.")
@click.option("--example", is_flag=True, help="Print a commented config and exit.")
def run(config: Path | None, out: Path | None, example: bool) -> None:
    """Run the experiment that CONFIG (TOML) describes."""
    from nile.experiments.run.config import EXAMPLE, load_config

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    if config is not None and not config.is_file():
        raise click.UsageError(f"needed a config; got {config}, which is not a file; `nile run --example` prints one")
    if config is None or out is None:
        raise click.UsageError("needed a config and a folder: nile run CONFIG.toml --out DIR (or --example)")
    from nile.experiments.run.demo import run_and_tell

    loaded = load_config(config)
    run_and_tell(loaded, out, command=["nile", *sys.argv[1:]], text=config.read_text(encoding="utf-8-sig"))


@main.command()
@click.argument("statements", nargs=-1, metavar="[STATEMENT]...")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Run the statements of a file first.",
)
@click.option("-c", "--command", "commands", multiple=True, metavar="STATEMENT", help="Same as STATEMENT; repeatable.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json", "markdown"]), help="Output format of rows."
)
def sql(statements: tuple[str, ...], files: tuple[Path, ...], commands: tuple[str, ...], form: str | None) -> None:
    """A shell for Nile SQL on a terminal; with STATEMENTs, run them and exit. An argument that is a store's folder, or
    http://HOST:PORT of `nile serve` (token: NILE_TOKEN), selects that database; the default is a new one in memory.

    \b
    nile sql "CREATE STREAM s FROM 'sales.parquet' TIMESTAMP BY ts" \\
             "SELECT item_id, count(*) FROM s GROUP BY item_id"
    """
    from nile.shell.terminal import run_shell

    try:
        scripts = (*(file.read_text(encoding="utf-8-sig") for file in files), *commands, *statements)
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"--file: needed statements in UTF-8; got other bytes ({error.reason}); convert it"
        ) from None
    for script in statements:
        if script.endswith(".sql") and len(script.split()) == 1:
            raise click.UsageError(f"needed a statement; got {script}; write nile sql --file {script}")
    opened = next((script for script in scripts if _is_database(script)), None)
    rest = tuple(script for script in scripts if script is not opened)
    sys.exit(run_shell(statements=rest, form=form, opened=opened))


def _is_database(text: str) -> bool:
    return text.startswith(("http://", "https://")) or (len(text) < 4096 and "\n" not in text and Path(text).is_dir())


class _Bench(click.Group):
    """Arguments that begin with no command are those of `run`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(context, args)


@main.group(cls=_Bench)
def bench() -> None:
    """Run benchmarks: `nile bench` lists them, `nile bench all` runs them all (long ones in brief form)."""


bench.add_command(faults)
bench.add_command(soak)


@bench.command("run")
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), help="Also write bench.json into this folder.")
@click.option("--rows", type=click.IntRange(10_000), help="For `history`, `build`, `scan`: how many rows to generate.")
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), help="For `history`, `scan`: a folder generated earlier."
)
@click.option("--brief", is_flag=True, help="Run long benchmarks in brief form: fewer seeds, the same bars.")
def run_bench(names: tuple[str, ...], out: Path | None, rows: int | None, data: Path | None, brief: bool) -> None:
    """Run the benchmarks in NAMES, or list all of them."""
    from nile.experiments.benchmarks.command import list_benchmarks, run_benchmarks

    if rows is not None or data is not None:
        from nile.experiments.benchmarks import history, scan

        for each in (history, scan):
            each.ask_for(rows=rows, data=data)
    if rows is not None:
        from nile.experiments.benchmarks.build import ask_for as build_rows

        build_rows(rows)
    if not names:
        list_benchmarks()
    else:
        run_benchmarks(names, out, brief=brief)


@bench.command("compare", short_help="Compare two bench.json; exit status 1 if a bar is lost.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def compare_bench(old: Path, new: Path) -> None:
    """Print what changed between two bench.json; the exit status is 1 if a bar was lost."""
    from nile.experiments.benchmarks.command import compare_reports

    sys.exit(compare_reports(old, new))


@bench.command("table", short_help="Print the figures that have a bar as a Markdown table.")
@click.argument("report", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1)
def bench_table(report: Path, names: tuple[str, ...]) -> None:
    """Print, as a Markdown table, the figures of a bench.json that have a bar: of all benchmarks, or those in NAMES."""
    from nile.experiments.benchmarks.compare import markdown, read_report

    click.echo(markdown(read_report(report), names))


main.add_command(doctor)
main.add_command(calibrate)
main.add_command(ingest_command)
main.add_command(build_command)
main.add_command(experiment)
main.add_command(report_command)


if __name__ == "__main__":
    main()

_IN_A_LINE = {
    "bench": "Measure speed and accuracy; `nile bench` lists what there is.",
    "build": "Build a store from a stream of a lake, with Spark.",
    "calibrate": "Measure this machine's cost of approximate join steps.",
    "demo": "Join two retail streams under budgets and write a report.",
    "doctor": "Check this machine, and say how to fix what is missing.",
    "experiment": "Rerun the figures of the papers, with verdicts.",
    "ingest": "Add files to a stream of a lake, with Spark.",
    "report": "Compare the answer to a query with its exact answer.",
    "run": "Run an experiment of your own, described in TOML.",
    "serve": "Serve a database over HTTP.",
    "sql": "Open a shell for Nile SQL, or run statements and exit.",
    "store": "Inspect, check and repair a durable store.",
}
"""Of each command, what fits beside its name in 80 columns."""
for _name, _line in _IN_A_LINE.items():
    main.commands[_name].short_help = _line
