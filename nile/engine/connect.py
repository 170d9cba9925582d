"""Opening a database, in memory or with a store."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, cast

from nile.base.durations import parse_duration
from nile.base.interrupts import INTERRUPTS
from nile.base.room import LEAST_ROOM
from nile.base.sizes import parse_size
from nile.engine.database import Database
from nile.execution.live.means.bounds import Means
from nile.execution.live.scheduled import Schedule
from nile.summaries.errors import ConfigError, StoreError
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.client import database as remote
else:
    remote = lazy("nile.client.database")

__all__ = ["connect", "default"]

_LEAST_MEMORY = 16_000_000
"""Bytes: what sealing a segment of a history needs."""
_LEAST_STATE = 100_000
"""Bytes: tables of a few queries that hold next to nothing."""


@cache
def default() -> Database:
    """The in-memory database of `nile.sql` in this process, created on first use."""
    return connect()


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    memory: int | str | None = None,
    checkpoint: str | float | timedelta | None = "10 s",
    read_only: bool = False,
    hash_secret: bytes | None = None,
    token: str | None = None,
    threads: int | None = None,
    state: int | str | None = None,
    cpu: float | None = None,
    scheduler: str | None = None,
    quantum: str | float | timedelta | None = None,
    latency: str | float | timedelta = 0.1,
) -> Database:
    """Open a database: in memory, with a durable store (path), or one served by `nile serve`.

    path: a directory, created if missing; live streams and their rows, summaries, named standing queries and
    registered files are restored as of its last checkpoint.  Or "http://HOST:PORT" of a `nile serve`, with a token
    (None: NILE_TOKEN): streams, statements, pushes and standing queries through the same methods (docs/server.md), and
    no other settings.  None or ":memory:": no store.
    memory: the limit for kept rows, such as "256MB"; beyond it they move to the store's files.  It also limits
    the state of each standing query, and of an answer that is held whole (`to_arrow`, `fetchall`; 64 MiB at least):
    a larger one is refused with MemoryRefused, `batches()` reads it in pieces.  Without a path, also as `state`.
    state: the limit for what all standing queries hold; beyond it they are answered from samples, with intervals.
    cpu: likewise the share of a core (0.5: half of one) for pushes (docs/runtime.md).  None: no query is sampled.
    checkpoint: a push writes a checkpoint if the last one is older than this; None: only `Database.checkpoint`
    and `close` write one.
    read_only: open the store as of its last checkpoint, while another process may go on writing it; nothing can be
    pushed, and what is registered, subscribed to or summarised here stays in this process.
    hash_secret: 16 to 64 bytes unknown to whoever chooses the keys: keys are hashed with it (BLAKE2b, about a
    microsecond per distinct value of a batch), so that nobody can construct collisions.  A store requires the same
    secret whenever it is opened, and does not contain it.  None: a faster hash that is the same everywhere.
    threads: how many an exact join of two streams, the reading of a Parquet file, or a push to several standing queries
    may use at once; None: as many as this process has cores.  Neither answers nor written bytes depend on it.
    scheduler: which operator of the exact standing queries runs next: "fifo", "round-robin", "greedy", "chain" (queues
    stay small) or "chain-latency" (and nothing waits longer than `latency`, where that can be).  Outputs do not depend
    on it.  None: a push is worked on query by query.
    quantum: the CPU time that a push may work; what is left waits in queues, until more is pushed, `run` is called or
    somebody reads (docs/runtime.md).  None: all of it.
    Raises StoreLocked, StoreMissing (read_only, and none is there), NotAStore, StoreCorrupt, StoreTooNew, StoreError,
    ConfigError.
    """
    if isinstance(path, str) and path == ":memory:":
        path = None
    if not isinstance(path, str | os.PathLike | None):
        raise ConfigError(
            f"connect: needed the path of a store, ':memory:' or an address; got {type(path).__name__}; leave it out "
            "for a database in memory"
        )
    if isinstance(path, str) and path.startswith(("http://", "https://")):
        given = (memory, checkpoint, read_only, hash_secret, threads, state, cpu, scheduler, quantum, latency)
        if given != (None, "10 s", False, None, None, None, None, None, None, 0.1):
            raise ConfigError(
                "connect: needed an address and a token; got settings, which are the server's; leave them out"
            )
        return cast(Database, remote.RemoteDatabase(path, token))
    if token is not None:
        raise ConfigError("connect, token: needed the address of a server; got none; write nile.connect('http://...')")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ConfigError(
            f"connect, threads: needed a whole number of at least 1; got {threads!r}; leave it out for all cores"
        )
    hasher = PUBLIC if hash_secret is None else _keyed(hash_secret)
    limit = (
        None if memory is None else parse_size(memory, where="memory", least=_LEAST_MEMORY if path else _LEAST_STATE)
    )
    room = None if limit is None else max(limit, LEAST_ROOM)
    bound = None if state is None else parse_size(state, where="state", least=_LEAST_STATE)
    took = None if quantum is None else parse_duration(quantum, where="quantum") / 1e9
    schedule = Schedule(scheduler, took, parse_duration(latency, where="latency") / 1e9)
    if path is None:
        if read_only:
            raise ConfigError(
                "connect, read_only: needed the path of a store; got none; write nile.connect('store', read_only=True)"
            )
        if limit is not None:
            bound = limit if bound is None else min(bound, limit)
        return Database(hasher=hasher, threads=threads, means=_means(bound, cpu), room=room, schedule=schedule)
    from nile.durable.keeper import Keeper
    from nile.pyramid.disk.directory import StoreDirectory

    every = None if checkpoint is None else parse_duration(checkpoint, where="checkpoint") / 1e9

    def opened() -> Database:
        directory = StoreDirectory.open(path, read_only=read_only)
        while True:
            try:
                keeper = Keeper(directory, memory=limit, every=every, hasher=hasher)
                return Database(keeper, hasher, threads=threads, means=_means(bound, cpu), room=room, schedule=schedule)
            except BaseException as error:
                directory.close()
                if not (read_only and isinstance(error, StoreError)):
                    raise
                again = StoreDirectory.open(path, read_only=True)
                if again.epoch == directory.epoch:
                    again.close()
                    raise
                directory = again  # the writer went on and took files away before they were read

    db: Database | None = None
    try:
        with INTERRUPTS:  # who is interrupted must not be left with a store that nobody can close
            db = opened()
    except BaseException:
        if db is not None:
            db.close()
        raise
    return db


def _keyed(secret: bytes) -> KeyHasher:
    if not isinstance(secret, bytes):
        raise ConfigError(
            f"connect, hash_secret: needed 16 to 64 bytes; got {type(secret).__name__}; use secrets.token_bytes(32)"
        )
    return KeyHasher.keyed(secret)


def _means(state: int | None, cpu: float | None) -> Means | None:
    """Raises ConfigError."""
    if cpu is not None and (isinstance(cpu, bool) or not isinstance(cpu, int | float) or not 0.001 <= cpu <= 1.0):
        raise ConfigError(
            f"connect, cpu: needed the share of a core that pushes may take, from 0.001 to 1; got {cpu!r}; leave it "
            "out for no bound"
        )
    return None if state is None and cpu is None else Means(state, cpu)
