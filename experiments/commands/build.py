"""`nile build`: a stream of a lake into a store, with progress and an account."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from nile.experiments.run.progress import Progress

__all__ = ["build_command"]


@click.command("build")
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--stream", metavar="NAME", help="The stream to build (default: the only one of the lake).")
@click.option(
    "--summary",
    "summaries",
    multiple=True,
    metavar="SQL",
    help='A summary to build: "CREATE SUMMARY s ON shop (item_id) WITH ..."; repeatable.',
)
@click.option("--index", multiple=True, metavar="COLUMN", help="A column to index besides the lake's key; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
def build_command(
    lake: Path, store: Path, stream: str | None, summaries: tuple[str, ...], index: tuple[str, ...], as_json: bool
) -> None:
    """Build the store in the folder STORE from a stream of the lake in the folder LAKE, with Spark.

    The store is the same as if all tuples had been pushed: open it with nile.connect(STORE). Running the command again
    adds what has come into the lake since.

    \b
    nile build lake/ store/ --stream shop \\
        --summary "CREATE SUMMARY s ON shop (item_id) WITH GRANULARITY '1 h' AND COLLAPSE (4, 3)"
    """
    from nile.spark.building.build import build

    with Progress() as progress, progress.stage("build"):
        done = build(
            lake,
            store,
            stream=stream,
            summaries=summaries,
            index=index,
            on_progress=progress.say,
        )
    click.echo(json.dumps(asdict(done)) if as_json else done)
