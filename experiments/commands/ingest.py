"""`nile ingest`: files into a stream of a lake, with progress and the account of every row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from nile.experiments.run.progress import Progress
from nile.summaries.errors import ConfigError

__all__ = ["ingest_command"]


@click.command("ingest")
@click.argument("source")
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--stream", required=True, metavar="NAME", help="The stream of the lake that the rows belong to.")
@click.option("--time", metavar="COLUMN", help="The event time; required the first time.")
@click.option("--key", metavar="COLUMN", help="The column to cluster by; required the first time.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=TYPE",
    help="A column and its type, e.g. price=double; repeatable. Default: the columns of the input.",
)
@click.option("--event-id", metavar="COLUMN", help="Of several rows with the same value, apply only the first.")
@click.option(
    "--drift",
    "drift",
    multiple=True,
    metavar="KIND=RULE",
    help="added=ignore, dropped=null, retyped=cast or reordered=follow; by default schema differences are errors.",
)
@click.option("--range", "ranges", metavar="DURATION", help="Length of the lake's time ranges (default: 1 day).")
@click.option("--bits", type=int, metavar="N", help="2^N buckets of key hashes (default: 12).")
@click.option("--batch", metavar="ID", help="An id for this batch (default: a digest of its content).")
@click.option("--json", "as_json", is_flag=True, help="Print the accounting as JSON.")
def ingest_command(
    source: str, lake: Path, as_json: bool, columns: tuple[str, ...], drift: tuple[str, ...], **options: Any
) -> None:
    """Add SOURCE to a stream of the lake in the folder LAKE, with Spark.

    SOURCE is a .parquet, .csv or .json (lines) file, a quoted glob of such files, or a directory written by
    Spark. Running it again changes nothing; rows that do not fit are set aside with a reason, none is lost.

    \b
    nile ingest sales.csv lake/ --stream shop --time ts --key item_id
    """
    from nile.spark.ingesting.ingest import ingest

    schema = _pairs("--column", columns) or None
    rules = _pairs("--drift", drift) or None
    with Progress() as progress, progress.stage("ingest"):
        done = ingest(source, lake, schema=schema, drift=rules, on_progress=progress.say, **options)
    if not as_json:
        click.echo(done)
        return
    account = {
        "stream": done.stream.layout.stream,
        "batch": done.batch,
        "repeated": done.repeated,
        "in": done.tuples_in,
        "applied": done.applied,
        "late": done.late,
        "duplicate": done.duplicate,
        "rejected": dict(done.rejected),
        "files": done.files,
        "tuples": done.stream.tuples,
    }
    click.echo(json.dumps(account))


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """`a=b` as {"a": "b"}.  Raises ConfigError."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{option}: needed NAME=VALUE; got '{one}'")
        found[name] = value
    return found
