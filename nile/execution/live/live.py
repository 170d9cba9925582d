"""The live streams and standing queries of a database, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nile.base.durations import parse_duration
from nile.execution.approximate.run import is_approximate
from nile.execution.choice import choose
from nile.execution.definitions import QueryDefinition, StreamDefinition, checked_offset
from nile.execution.live.approximate import ApproximateSubscription
from nile.execution.live.keeping import Keeping
from nile.execution.live.standing_query import Subscription
from nile.execution.live.subscription import ExactSubscription
from nile.execution.live.subscriptions import Subscriptions
from nile.execution.live.summaries import LiveSummaries
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.expressions.conditions import parse_condition
from nile.operators.aggregate.scope import instant
from nile.preferences.budget import Budget
from nile.sql.plan import Query, leaves_of
from nile.sql.text import query_text
from nile.streams.accounting import Accounting
from nile.streams.idle import Idleness
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError, NileError, UnknownStream
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.grid.manager import SummaryManager
    from nile.pyramid.history.history import History
    from nile.sql.statements import CreateSummary

__all__ = ["Live"]


class Live:
    """Pushes, advances and subscriptions, one at a time.  Callbacks run inside the lock: they must not wait.

    definitions, offsets: of each stream, as it was made and how far its source has been read; standing: its queries.
    """

    def __init__(self, names: Registry, keeper: Keeping | None = None) -> None:
        self._names = names
        self._keeper = keeper
        self._streams: dict[str, LiveStream] = {}
        self._lock = threading.RLock()
        self.definitions: dict[str, StreamDefinition] = {}
        self.offsets: dict[str, Any] = {}
        self.standing = Subscriptions()
        self.summaries = LiveSummaries(names.hasher)
        self.idleness = Idleness()
        if keeper is not None:
            keeper.restore(self, names)

    @property
    def names(self) -> Registry:
        """The names of the database."""
        return self._names

    def create(
        self,
        name: str,
        schema: Any,
        time: str,
        *,
        lateness: Any,
        where: str | None,
        keep: Any,
        event_id: str | None = None,
        idle: Any = None,
    ) -> None:
        """Make a live stream known.  See `nile.engine.database.Database.stream`."""
        try:
            columns = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise ConfigError(
                f"stream '{name}': needed a pyarrow schema, or pairs of names and types; got {schema!r} ({error}); "
                "write pa.schema([('ts', pa.timestamp('us')), ...])"
            ) from None
        place = f"stream '{name}'"
        definition = StreamDefinition(
            columns.remove_metadata(),
            time,
            None if lateness is None else parse_duration(lateness, where=f"{place}, lateness"),
            where,
            None if keep is None else parse_duration(keep, where=f"{place}, keep"),
            event_id,
            None if idle is None else parse_duration(idle, where=f"{place}, idle"),
        )
        if idle is not None and lateness is None:
            raise ConfigError(
                f"{place}, idle: needed a lateness, since what comes after a silence may be late; got none; declare one"
            )
        with self._lock:
            if self._keeper is None:
                self.adopt(name, definition, None)
                return
            if name in self.streams():
                if self.definitions[name] != definition:
                    raise ConfigError(
                        f"{place}: needed the definition that the store has of it; got another; DROP STREAM {name} "
                        "first, or take another name"
                    )
                return
            self._keeper.directory.check_writable()
            definition.as_json()  # a type that has no byte form is refused before anything is made
            self.adopt(name, definition, None if keep is not None else self._keeper.history(name, columns))
            self._keeper.checkpoint(self, self._names)

    def adopt(self, name: str, definition: StreamDefinition, history: History | None) -> LiveStream:
        """A live stream with what it kept before."""
        place = f"stream '{name}'"
        made = LiveStream(
            name,
            definition.schema,
            definition.time,
            lateness=definition.lateness,
            where=None if definition.where is None else parse_condition(definition.where, where=f"{place}, where"),
            keep=definition.keep,
            event_id=definition.event_id,
            idle=definition.idle,
            history=history,
            hasher=self._names.hasher,
        )
        self._names.register(name, made, time=definition.time, where=None, lateness=None)
        self._streams[name] = made
        self.definitions[name] = definition
        self.offsets.pop(name, None)
        made.listeners.append(self.summaries.arrived)
        self.idleness.heard(made)
        return made

    def fill(
        self,
        name: str,
        definition: StreamDefinition,
        history: History,
        last: int,
        offset: Any,
        summaries: Sequence[tuple[CreateSummary, SummaryManager]],
    ) -> int:
        """A stream whose history and summaries were made elsewhere, as if all rows had been pushed; the store's epoch.

        last: ts of the last row, ns; summaries: all of the stream.
        Raises StoreWriteError: then the store is as it was.
        """
        assert self._keeper is not None
        with self._lock:
            stream = self.adopt(name, definition, history)
            stream.filled(last)
            self.offsets[name] = offset
            for made, manager in summaries:
                self._names.keep_summary(made)
                self.summaries.adopt(made, stream, manager)
            return self._keeper.checkpoint(self, self._names)

    def get(self, name: str) -> LiveStream:
        """A live stream.  Raises UnknownStream."""
        held = self._names.stream(name).source
        if self._streams.get(name) is not held:
            raise UnknownStream(f"stream {name!r} is not live: it has a source; make a live one with db.stream()")
        return self._streams[name]

    def streams(self) -> dict[str, LiveStream]:
        """Live streams whose names have not been given to something else."""
        entries = self._names.entries
        return {name: one for name, one in self._streams.items() if name in entries and self.get(name) is one}

    def push(self, name: str, data: Any, offset: Any = None) -> int:
        """Push rows; how many tuples' turn has come."""
        with self._lock:
            stream = self.get(name)
            self.standing.wait_for_readers(stream)
            if self._keeper is not None:
                self._keeper.make_room(self, self._names)  # before anything is taken: a push that fails took nothing
            if offset is not None:
                checked_offset(offset, f"stream '{name}'")
            done = stream.push(data, whole=offset is not None)
            self.idleness.heard(stream)
            self._move_on()
            if offset is not None:
                self.offsets[name] = offset
            self.standing.check()
            return done

    def tick(self) -> None:
        """Move on streams that are silent, as a push to another does and a reader that asks."""
        with self._lock:
            self._move_on()

    def _move_on(self) -> None:
        streams = self.streams().values()
        if any(each.idle is not None for each in streams) and self.idleness.due(streams, self.standing.over()):
            self.standing.progress()

    def offset(self, name: str) -> Any:
        """How far the source of a stream has been read."""
        with self._lock:
            stream = self.get(name)
            return self.offsets.get(name, stream.pushed)

    def checkpoint(self) -> int:
        """Write a checkpoint; its epoch."""
        with self._lock:
            if self._keeper is None:
                raise ConfigError(
                    "checkpoint: needed a database with a store; got one in memory; open one with nile.connect('path')"
                )
            return self._keeper.checkpoint(self, self._names)

    def names_changed(self) -> None:
        """A statement may have changed what is known: follow summaries, and keep it for good."""
        with self._lock:
            self.follow_summaries()
            if self._keeper is not None:
                self._keeper.remember(self, self._names)

    def follow_summaries(self) -> None:
        """Keep the summaries that are asked for of live streams."""
        self.summaries.follow(self._names.summaries.values(), self.streams())

    def advance(self, time: Any, name: str | None) -> None:
        """No tuple older than `time` will come, to one stream or to all."""
        now = instant(time, where="advance")
        with self._lock:
            if self._keeper is not None:
                self._keeper.directory.check_writable()
            streams = list(self._streams.values()) if name is None else [self.get(name)]
            for stream in streams:
                stream.advance(now)
            self.standing.progress()
            self.standing.check()

    def accounting(self, name: str) -> Accounting:
        """Where the tuples pushed to a stream went."""
        with self._lock:
            return self.get(name).accounting

    def set_aside(self, name: str) -> tuple[pa.Table, pa.Table]:
        """The late and the rejected rows of a stream."""
        with self._lock:
            stream = self.get(name)
            return stream.late(), stream.quarantine()

    def subscribe(
        self,
        query: Query,
        options: Options,
        callback: Callable[[Any], None] | None,
        *,
        name: str | None = None,
        state: Mapping[str, Any] | None = None,
        unread: int | None = None,
        when_full: str = "wait",
    ) -> Subscription:
        """A standing query.  name: with one, the store keeps it, and asking again goes on with it.

        state: what it held when it was kept; unread, when_full: how many rows may wait for its reader, and what then.
        """
        with self._lock:
            known = name in self.standing.named()
            made = self._subscribe(query, options, callback, name, state)
            try:
                made.bound(unread, when_full, self.tick)
            except ConfigError:
                if not known:
                    made.close()
                raise
            return made

    def _subscribe(
        self,
        query: Query,
        options: Options,
        callback: Callable[[Any], None] | None,
        name: str | None,
        state: Mapping[str, Any] | None,
    ) -> Subscription:
        if is_approximate(query, options):
            return self._subscribe_approximate(query, options, callback, name, state)
        options.check_exact()
        definition = QueryDefinition(
            query_text(query), options.emit, options.algorithm, options.scheduling, options.windows
        )
        if options.emit is None and not query.windowed:
            flat = choose(query, replace(options, emit="append", scheduling=None, algorithm=None)).way
            options = replace(options, emit="append" if flat in ("pass", "join") else "changes")
        if (held := self.standing.asked_again(name, definition, callback)) is not None:
            return held
        if name is not None and self._keeper is not None:
            self._check_remembered(query, name)
        made = ExactSubscription(
            self._names, query, choose(query, options), self.streams(), self._lock, callback, state
        )
        return self._kept(made, name, definition)

    def _subscribe_approximate(
        self,
        query: Query,
        options: Options,
        callback: Callable[[Any], None] | None,
        name: str | None,
        state: Mapping[str, Any] | None,
    ) -> Subscription:
        """A standing query WITH PREFERENCE inside a BUDGET, which goes into its text."""
        if isinstance(options.budget, Budget):
            query = replace(query, budget=(options.budget.unit, options.budget.amount))
            options = replace(options, budget=None)
        definition = QueryDefinition(query_text(query), approximate=options.said())
        for option, value in definition.approximate if name is not None else ():
            if not isinstance(value, str | int | float):
                raise ConfigError(
                    f"standing query {name!r}, {option}: needed text or a number, which a store can keep; got "
                    f"{value!r}; write it as text"
                )
        if (held := self.standing.asked_again(name, definition, callback)) is not None:
            return held
        made = ApproximateSubscription(self._names, query, options, self.streams(), self._lock, callback, state)
        return self._kept(made, name, definition)

    def _kept(self, made: Subscription, name: str | None, definition: QueryDefinition) -> Subscription:
        """A new standing query; one with a name is in the store before anyone hears of it."""
        self.standing.add(made, name, definition)
        if name is not None and self._keeper is not None:
            self._keeper.remember(self, self._names)
        return made

    def subscription(self, name: str) -> Subscription:
        """A standing query by its name.  Raises UnknownStream."""
        with self._lock:
            return self.standing.get(name)

    def subscriptions(self) -> tuple[str, ...]:
        """The names of standing queries."""
        with self._lock:
            return tuple(self.standing.named())

    def _check_remembered(self, query: Query, name: str) -> None:
        """A store can only bring back a query whose other inputs it can open again."""
        remembered = {*self.streams(), *self._names.sources()}
        for leaf in leaves_of(query.plan):
            if leaf.name not in remembered:
                raise ConfigError(
                    f"standing query {name!r}: needed sources that a store can open again (live streams, files); got "
                    f"'{leaf.name}', which is an object of this process; register it from a file, or leave name= out"
                )

    def close(self) -> None:
        """Close all live streams, then the standing queries.  Raises what a callback raises, once all are closed.

        With a store nothing ends: a last checkpoint is written, and the next process goes on.
        """
        with self._lock:
            if self._keeper is not None:
                faults = self._detach(self._keeper)
                self._keeper = None
            else:
                for stream in self._streams.values():
                    stream.close()
                faults = self.standing.close()
            self._streams.clear()
            if faults:
                raise faults[0]

    def _detach(self, keeper: Keeping) -> list[Exception]:
        faults: list[Exception] = []
        try:
            if self._streams or self._names.entries:
                keeper.remember(self, self._names)
        except NileError as error:
            faults.append(error)
        for stream in self._streams.values():
            stream.closed = True
        self.standing.detach()
        keeper.close()
        return faults
