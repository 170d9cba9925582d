"""Relations that change: INSERT, UPDATE and DELETE at an instant, told to all that stands over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.interrupts import INTERRUPTS
from nile.execution.definitions import StreamDefinition
from nile.operators.aggregate.scope import instant
from nile.streams.live import SIGN, LiveStream
from nile.streams.versions import TIME, Versions, log_schema
from nile.summaries.errors import ConfigError, TimestampOrderError
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["relation_definition", "revise", "versions_of"]


def relation_definition(name: str, columns: pa.Schema) -> StreamDefinition:
    """What makes a relation that changes.  Raises ConfigError."""
    return StreamDefinition(log_schema(columns, f"relation '{name}'"), TIME, relation=True)


def versions_of(live: Live, name: str) -> Versions:
    """A relation that changes.  Raises UnknownStream, ConfigError."""
    source, _ = live.names.relation(name)
    if not isinstance(source, Versions):
        raise ConfigError(
            f"relation '{name}': needed one that changes, made by CREATE RELATION {name} (column type, ...); got one "
            "of rows that stay; make one, and INSERT INTO it SELECT from this one"
        )
    return source


def revise(live: Live, name: str, change: Callable[[], list[tuple[int, pa.Table]]], at: Any = None) -> int:
    """Let rows come (1) and go (-1) at an instant; how many did.  change: (sign, rows), worked out under the lock.

    at: text, a datetime or seconds; None: the first instant that can still come everywhere.
    Raises TimestampOrderError for an instant that has been told of already; ConfigError, StoreWriteError.
    """
    with live.lock:
        live.commits.check()
        log = versions_of(live, name).log
        log.check_whole("change")
        if live.standing.filled(log):
            raise ConfigError(f"relation '{name}': needed one to change by hand; got a view; change what it reads")
        live.standing.wait_for_readers(log)
        live.standing.check_state(log, live.memory)
        if (keeper := live._keeper) is not None:
            with INTERRUPTS:
                live.names.check_open()  # a handler may have closed it
                keeper.make_room(live, live.names)
        now = _instant(live, log, at)
        batches = []
        for sign, table in change():
            rows = table.combine_chunks().select(versions_of(live, name).schema.names)
            signed = rows.append_column(TIME, pa.array(np.full(rows.num_rows, now)).cast(pa.timestamp("ns")))
            signed = signed.append_column(SIGN, pa.array(np.full(rows.num_rows, sign, np.int8)))
            batches += signed.to_batches()
        parts = [part for batch in batches for part in log.admitted(batch)]
        if parts:
            live.take(log, parts)
            live.commits.complain()
        return sum(batch.num_rows for batch in batches)


def _instant(live: Live, log: LiveStream, at: Any) -> int:
    standing = [one.open_from(log) for one in live.standing.all() if log in one.streams.values() and not one.closed]
    least = max([each for each in (log.passed, *standing) if each is not None], default=None)
    if at is None:
        passed = [stream.passed for stream in live.streams().values() if stream.passed is not None]
        return max([*passed, 0 if least is None else least], default=0)
    now = instant(at, where=f"relation '{log.name}', AT")
    if least is not None and now < least:
        told = np.datetime64(least, "ns")
        raise TimestampOrderError(
            f"relation '{log.name}', AT: needed an instant that can still come, {told} or later; got "
            f"{np.datetime64(now, 'ns')}, of which standing queries have told, or the relation itself; leave AT out"
        )
    return now
