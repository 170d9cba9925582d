"""Standing queries in a store without their inputs, as earlier versions wrote them: found, and dropped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nile.execution.definitions import SourceDefinition, StreamDefinition, section, text
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.recovery import LOST
from nile.streams.live import LiveStream
from nile.streams.versions import Versions
from nile.summaries.errors import NileError

__all__ = ["let_go", "stranded"]


def stranded(path: str | os.PathLike[str]) -> dict[str, str]:
    """Why the store could not make a standing query again, for each it could not.  Reads only; opens the sources.

    Raises as `StoreDirectory.open` for reading does.
    """
    with StoreDirectory.open(path, create=False, read_only=True) as directory:
        return _found(dict(directory.state), str(path))


def let_go(path: str | os.PathLike[str]) -> dict[str, str]:
    """Commit the store without them; what they were is written to lost/.  Raises StoreLocked, StoreWriteError."""
    with StoreDirectory.open(path, create=False) as directory:
        state = dict(directory.state)
        found = _found(state, str(path))
        if found:
            queries = section(state, "queries", str(path))
            lost = Path(directory.path, LOST)
            lost.mkdir(exist_ok=True)
            report = {name: {**queries[name], "why": why} for name, why in found.items()}
            (lost / f"queries-{directory.epoch}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
            state["queries"] = {name: value for name, value in queries.items() if name not in found}
            directory.commit(state, directory.files().values())
        return found


def _found(state: dict[str, Any], where: str) -> dict[str, str]:
    names = Registry()
    try:
        queries = {name: text(value, "text", where) for name, value in section(state, "queries", where).items()}
        for name, value in section(state, "streams", where).items():
            made = StreamDefinition.from_json(section(value, "definition", where), where)
            stream = LiveStream(name, made.schema, made.time)
            if made.relation:
                names.register(name, Versions(stream), time=None, where=None, lateness=None)
            else:
                names.register(name, stream, time=made.time, where=None, lateness=None)
        filled = {name: value["into"] for name, value in section(state, "queries", where).items() if "into" in value}
        sources = {n: SourceDefinition.from_json(v, where) for n, v in section(state, "sources", where).items()}
    except (NileError, AttributeError):
        return {}  # opening tells what else is wrong with it
    for name, source in sources.items():
        try:
            names.register(name, source.path, time=source.time, where=source.where, lateness=None)
        except (NileError, OSError):
            continue  # its file is gone
    found = {}
    for name, query in queries.items():
        try:
            read_query(query, names)
        except NileError as error:
            found[name] = str(error)
        if name in filled and (target := text(section(filled, name, where), "stream", where)) not in names.entries:
            found[name] = f"it fills '{target}', which the store does not have"
    return found
