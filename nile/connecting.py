"""Opening a database, in memory or with a store."""

from __future__ import annotations

import os
from datetime import timedelta

from nile.durations import parse_duration
from nile.engine import Database
from nile.sizes import parse_size
from summaries.errors import ConfigError

__all__ = ["connect"]

_LEAST_MEMORY = 16_000_000
"""Bytes: what sealing a segment of a history needs."""


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    memory: int | str | None = None,
    checkpoint: str | float | timedelta | None = "10 s",
) -> Database:
    """A database: in memory, or (path) with a store that outlives the process.

    path: a directory, made if it is not there; what a database there was told before (live streams and their rows,
    summaries, standing queries with a name, sources that are files) is there again, as of its last checkpoint.
    memory: what kept rows may take, such as "256MB"; what is beyond it moves to the store's files.
    checkpoint: at most so long after the last one, the next push writes another; None: only `Database.checkpoint`
    and `close` do.
    Raises StoreLocked, NotAStore, StoreCorrupt, StoreTooNew, StoreError, ConfigError.
    """
    limit = None if memory is None else parse_size(memory, where="memory", least=_LEAST_MEMORY)
    if path is None:
        if limit is not None:
            raise ConfigError(
                "connect, memory: needed a path, where what is beyond the limit can go; got none; write "
                "nile.connect('store', memory=...)"
            )
        return Database()
    from nile.durable.keeper import Keeper
    from pyramid.disk.directory import StoreDirectory

    every = None if checkpoint is None else parse_duration(checkpoint, where="checkpoint") / 1e9
    directory = StoreDirectory.open(path)
    try:
        return Database(Keeper(directory, memory=limit, every=every))
    except BaseException:
        directory.close()
        raise
