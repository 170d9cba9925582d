"""The live streams and standing queries of a database, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nile.aggregate_scope import instant
from nile.durations import parse_duration
from nile.execution.choice import choose
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.subscription import Subscription
from nile.sql.expressions import parse_condition
from nile.sql.plan import Query
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from summaries.errors import ConfigError, NotYet, UnknownStream
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

__all__ = ["Live"]


class Live:
    """Pushes, advances and subscriptions, one at a time.  Callbacks run inside the lock: they must not wait."""

    def __init__(self, names: Registry) -> None:
        self._names = names
        self._streams: dict[str, LiveStream] = {}
        self._standing: list[Subscription] = []
        self._lock = threading.RLock()

    def create(self, name: str, schema: Any, time: str, *, lateness: Any, where: str | None, keep: Any) -> None:
        """Make a live stream known.  See `nile.engine.Database.stream`."""
        try:
            columns = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise ConfigError(
                f"stream '{name}': needed a pyarrow schema, or pairs of names and types; got {schema!r} ({error}); "
                "write pa.schema([('ts', pa.timestamp('us')), ...])"
            ) from None
        place = f"stream '{name}'"
        condition = None if where is None else parse_condition(where, where=f"{place}, where")
        made = LiveStream(
            name,
            columns,
            time,
            lateness=None if lateness is None else parse_duration(lateness, where=f"{place}, lateness"),
            where=condition,
            keep=None if keep is None else parse_duration(keep, where=f"{place}, keep"),
        )
        with self._lock:
            self._names.register(name, made, time=time, where=None, lateness=None)
            self._streams[name] = made

    def get(self, name: str) -> LiveStream:
        """A live stream.  Raises UnknownStream."""
        held = self._names.stream(name).source
        if self._streams.get(name) is not held:
            raise UnknownStream(f"stream {name!r} is not live: it has a source; make a live one with db.stream()")
        return self._streams[name]

    def _known(self) -> dict[str, LiveStream]:
        """Live streams whose names have not been given to something else."""
        entries = self._names.entries
        return {name: one for name, one in self._streams.items() if name in entries and self.get(name) is one}

    def push(self, name: str, data: Any) -> int:
        """Push rows; how many tuples' turn has come."""
        with self._lock:
            done = self.get(name).push(data)
            self._raise()
            return done

    def advance(self, time: Any, name: str | None) -> None:
        """No tuple older than `time` will come, to one stream or to all."""
        now = instant(time, where="advance")
        with self._lock:
            streams = list(self._streams.values()) if name is None else [self.get(name)]
            for stream in streams:
                stream.advance(now)
            for standing in self._standing:
                standing.progress()
            self._raise()

    def _raise(self) -> None:
        """Raise what a standing query (or its callback) could not do, after all have had their tuples."""
        faults = [fault for standing in self._standing if (fault := standing.fault()) is not None]
        if faults:
            raise faults[0]

    def accounting(self, name: str) -> Accounting:
        """Where the tuples pushed to a stream went."""
        with self._lock:
            return self.get(name).accounting

    def subscribe(self, query: Query, options: Options, callback: Callable[[Any], None] | None) -> Subscription:
        """A standing query."""
        if query.preference or query.budget or query.error or options.budget is not None:
            raise NotYet(
                "subscribe: needed an exact query; got one WITH PREFERENCE, BUDGET or ERROR, which has no standing "
                "operator over live streams yet; leave them out, or ask sql() over what is kept"
            )
        options.check_exact()
        if options.emit is None and not query.windowed:
            flat = choose(query, replace(options, emit="append", scheduling=None, algorithm=None)).way
            options = replace(options, emit="append" if flat in ("pass", "join") else "changes")
        with self._lock:
            made = Subscription(self._names, query, choose(query, options), self._known(), self._lock, callback)
            self._standing = [one for one in self._standing if not one.closed] + [made]
            return made

    def close(self) -> None:
        """Close all live streams, then the standing queries.  Raises what a callback raises, once all are closed."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()
            faults = []
            for standing in self._standing:
                try:
                    standing.close()
                except Exception as error:
                    faults.append(error)
            self._streams.clear()
            self._standing.clear()
            if faults:
                raise faults[0]
