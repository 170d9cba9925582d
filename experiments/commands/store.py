"""`nile store info | check | repair PATH`: what a durable store holds, whether it is whole, what can be saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nile.pyramid.disk.care import Checked, Described, Repaired

__all__ = ["store"]

_WIDTH = 80
_FIRST = ("tuples", "unread", "outputs")  # what a line must not be too short for
_ACTIONS = {
    "nothing": "nothing is wrong; nothing to repair",
    "copy": "epoch {epoch} is whole: write its manifest anew in place of the damaged one",
    "previous": "go on from epoch {epoch} of {written}, the newest whole one; what came after must come again",
    "drop": "go on from epoch {epoch} of {written} without the files that cannot be read",
    "empty": "no state can be read: begin with an empty store",
}


@click.group()
def store() -> None:
    """Inspect, check and repair a durable store."""


_PATH = click.argument("path", type=click.Path())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@store.command(short_help="Show what a store holds.")
@_PATH
@_JSON
def info(path: str, as_json: bool) -> None:
    """Show what the store at PATH holds.  Read-only; may run beside a writer."""
    from nile.pyramid.disk.care import describe

    described = describe(path)
    if as_json:
        click.echo(json.dumps(asdict(described), indent=2, sort_keys=True))
    else:
        _show_info(described)


@store.command(short_help="Verify all of a store against its checksums.")
@_PATH
@_JSON
def check(path: str, as_json: bool) -> None:
    """Read all of the store at PATH and verify it against its checksums.

    If something is wrong, print a list and exit with status 1.  May run beside a writer.
    """
    from nile.pyramid.disk.care import check as look

    checked = look(path)
    if as_json:
        click.echo(json.dumps(asdict(checked), indent=2))
    else:
        _show_check(path, checked)
    sys.exit(1 if checked.wrong else 0)


@store.command(short_help="Recover what can be recovered of a damaged store.")
@_PATH
@click.option("--yes", is_flag=True, help="Do it; by default only print what would be done.")
@_JSON
def repair(path: str, yes: bool, as_json: bool) -> None:
    """Recover what can be recovered of the store at PATH.

    Nothing is deleted: what cannot be read is moved to lost/, with a report, and so are standing queries that cannot
    be reopened because what they read is gone.  Exit status 1 if something is wrong and was left as it is.
    """
    from nile.durable.mending import let_go, stranded
    from nile.pyramid.disk.care import repair as mend

    repaired = mend(path, do=yes)
    whole = repaired.action == "nothing" or repaired.done
    queries = (let_go if yes else stranded)(path) if whole else {}
    if as_json:
        click.echo(json.dumps({**asdict(repaired), "queries": queries}, indent=2))
    else:
        if not (queries and repaired.action == "nothing"):
            _show_repair(path, repaired)
        for name, why in queries.items():
            click.echo(f"{'let go' if yes else 'would let go'}: standing query {name!r}: {why}")
        if queries and not yes:
            click.echo(f"`nile store repair --yes {path}` does it; what it was is written to lost/.", err=True)
    sys.exit(1 if not whole or (queries and not yes) else 0)


def _show_info(described: Described) -> None:
    state = described.state
    _line("store", described.path)
    _line("epoch", f"{described.epoch}, committed {described.written}" if described.epoch else "0, nothing committed")
    _line("format", str(described.format))
    if described.recovered:
        _line("note", "not the newest generation: run `nile store check`")
    _line("files", f"{_files(described.files)}, {_size(described.bytes)}")
    for title, groups in (("tier", described.tiers), ("role", described.roles)):
        for name, (count, size) in groups.items():
            _line(f"  {title} {name}", f"{_files(count)}, {_size(size)}")
    for key in sorted(state, key=lambda key: (key not in ("streams", "queries"), key)):
        value = state[key]
        if isinstance(value, Mapping) and value and all(isinstance(entry, Mapping) for entry in value.values()):
            _line(key, f"{len(value):,}")
            for name, entry in value.items():
                _line(f"  {name}", _brief(entry))
        elif key == "hashing":
            _line(key, f"with a hash_secret, whose check is {value}")
        else:
            _line("state format" if key == "format" else key, _brief(value))


def _show_check(path: str, checked: Checked) -> None:
    click.echo(f"read {_files(checked.files)}, {_size(checked.bytes)}")
    for note in checked.notes:
        click.echo(f"note: {note}")
    for wrong in checked.wrong:
        click.echo(f"wrong: {wrong}")
    epochs = " and ".join(map(str, checked.epochs)) or "none"
    click.echo(f"whole generations: {epochs}")
    if checked.wrong:
        click.echo(f"{len(checked.wrong)} wrong; `nile store repair {path}` says what can be saved.", err=True)


def _show_repair(path: str, repaired: Repaired) -> None:
    for reason in repaired.reasons:
        click.echo(f"wrong: {reason}")
    for name, why in sorted(repaired.lost.items()):
        click.echo(f"lost: {name}" + ("" if name in why else f" ({why})"))
    plan = _ACTIONS[repaired.action].format(epoch=repaired.epoch, written=repaired.written)
    if repaired.action == "nothing":
        click.echo(plan)
    elif repaired.done:
        click.echo(f"done; epoch {repaired.epoch} is in force; the report is {repaired.report}")
    else:
        click.echo(f"would: {plan}")
        click.echo(f"`nile store repair --yes {path}` does it; what is lost is moved to lost/, not deleted.", err=True)


def _line(name: str, value: str) -> None:
    text = f"{name:<22} {value}"
    click.echo(text if len(text) <= _WIDTH or name == "store" else text[: _WIDTH - 3] + "...")


def _brief(value: Any) -> str:
    """A JSON value in part of a line: numbers and names; how many where there are more."""
    if isinstance(value, Mapping):
        rows = sorted(value.items(), key=lambda row: row[0] not in _FIRST)
        return ", ".join(f"{key} {_brief(entry)}" for key, entry in rows) or "none"
    if isinstance(value, list):
        return f"{len(value)} entries"
    if type(value) is int:
        return f"{value:,}"
    return str(value)


def _files(count: int) -> str:
    return f"{count:,} file" + ("" if count == 1 else "s")


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
