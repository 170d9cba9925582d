"""`nile experiment`: list the catalogue, run some of it or all, write the atlas."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nile.base.status import STOPPED
from nile.experiments.run.retail import retail_file
from nile.summaries.errors import ConfigError, SourceMissing

if TYPE_CHECKING:
    from nile.experiments.atlas.kinds import Data

__all__ = ["experiment"]

_CHUNK = 1 << 20


@click.group()
def experiment() -> None:
    """Rerun the figures of the papers, with computed verdicts."""


@experiment.command("list")
def list_command() -> None:
    """Every experiment, one per line, with what it claims."""
    from nile.experiments.atlas.catalogue.shelf import chosen, names

    known = names()
    width = max(map(len, known))
    for each in chosen(known):
        click.echo(f"{each.name:<{width}}  {each.says}")


def _options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(
        (
            click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the atlas."),
            click.option("--quick", is_flag=True, help="Fewer places, smaller streams, three seeds."),
            click.option("--resume", is_flag=True, help="Resume an interrupted run from this folder."),
            click.option("--jobs", type=click.IntRange(1, 256), help="Processes (default: one per core)."),
            click.option("--data", type=click.Path(path_type=Path), help="Real data: a Parquet or CSV file."),
            click.option("--left", default="vstore <= 4", show_default=True, help="Rows of the left stream."),
            click.option("--right", default="vstore >= 5", show_default=True, help="Rows of the right stream."),
            click.option("--key", default="item_id", show_default=True, help="The column to join on."),
            click.option("--time", default="ts", show_default=True, help="The event time."),
            click.option("--value", default="price", show_default=True, help="A numeric column."),
            click.option("--split", default="vstore", show_default=True, help="The column that separates streams."),
        )
    ):
        command = option(command)
    return command


@experiment.command("run")
@click.argument("names", nargs=-1, required=True)
@_options
def run_command(
    names: tuple[str, ...], out: Path, quick: bool, resume: bool, jobs: int | None, data: Path | None, **how: str
) -> None:
    """Run experiments by NAME, or from your own .toml file."""
    _run(names, out, quick=quick, resume=resume, jobs=jobs, data=_data(data, **how), again=_again(quick, data, how))


@experiment.command("all")
@_options
def all_command(out: Path, quick: bool, resume: bool, jobs: int | None, data: Path | None, **how: str) -> None:
    """Run the whole catalogue."""
    from nile.experiments.atlas.catalogue.shelf import names

    _run(names(), out, quick=quick, resume=resume, jobs=jobs, data=_data(data, **how), again=_again(quick, data, how))


def _again(quick: bool, data: Path | None, how: Mapping[str, str]) -> list[str]:
    """The options that a rerun of one experiment needs."""
    given = [] if data is None else ["--data", str(data), *(part for name in how for part in (f"--{name}", how[name]))]
    return [*(["--quick"] if quick else []), *given]


def _data(file: Path | None, **how: str) -> Data | None:
    """The file named, else the retail file beside the project, else None.  Raises SourceMissing, ConfigError."""
    from nile.experiments.atlas.kinds import Data

    found = retail_file() if file is None else file
    if found is None:
        return None
    if not found.exists():
        raise SourceMissing(f"--data: needed an existing Parquet or CSV file; got {str(found)!r}; name one that exists")
    if found.is_dir():
        raise ConfigError(f"--data: needed one file; got the folder {str(found)!r}; name a file in it")
    digest = hashlib.sha256()
    with found.open("rb") as bytes_:
        while chunk := bytes_.read(_CHUNK):
            digest.update(chunk)
    return Data(path=str(found.resolve()), digest=digest.hexdigest(), **how)


def _run(
    names: Sequence[str],
    out: Path,
    *,
    quick: bool,
    resume: bool,
    jobs: int | None,
    data: Data | None,
    again: Sequence[str],
) -> None:
    from nile.base.machine import core_count
    from nile.experiments.atlas.catalogue.shelf import chosen
    from nile.experiments.atlas.report import atlas_of, write_atlas
    from nile.experiments.atlas.runner import Kept, run_points
    from nile.experiments.run.progress import Progress
    from nile.report.saving import check_out

    wanted = chosen(names)
    check_out(out)
    with Progress() as progress:
        kept = Kept(out, resume=resume)
        try:
            points = run_points(wanted, data, kept, progress, quick=quick, jobs=jobs or core_count())
        except KeyboardInterrupt:
            click.echo(f"Interrupted; what was measured is kept: run again with --resume --out {out}", err=True)
            sys.exit(STOPPED)
        finally:
            kept.close()
        with progress.stage("report"):
            command = shlex.join(["nile", *sys.argv[1:]])
            atlas = atlas_of(wanted, points, kept.records, data, quick=quick, command=command, again=again)
            page = write_atlas(atlas, out)
    for each in atlas["experiments"]:
        verdicts = [one for panel in each["panels"] for one in panel["verdicts"]]
        for author in ("paper", "nile"):
            mine = [
                one["verdict"] + (" by construction" if one["by_construction"] else "")
                for one in verdicts
                if one["by"] == author
            ]
            if mine:
                told = ", ".join(f"{mine.count(name)} {name}" for name in dict.fromkeys(mine))
                click.echo(f"{each['name']} ({author}): {told}")
    seconds = sum(progress.timings.values())
    click.echo(f"{seconds:,.0f} s. Atlas: {os.path.relpath(page)}")
