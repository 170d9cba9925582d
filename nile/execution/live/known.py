"""The live streams of a database by name: how they are created, and rolled back if a change fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nile.base.interrupts import INTERRUPTS
from nile.base.names import check_name
from nile.base.plain import plain_schema
from nile.execution.definitions import StreamDefinition, stream_definition
from nile.execution.live.commits import Commits
from nile.execution.live.constraints import Constraints
from nile.execution.live.inputs.inflow import Inflows
from nile.execution.live.keeping import Keeping
from nile.execution.live.means.bounds import Means
from nile.execution.live.outputs.outflow import Outflows
from nile.execution.live.scheduled import Schedule, Scheduled
from nile.execution.live.subscriptions import Subscriptions
from nile.execution.live.summaries import LiveSummaries
from nile.execution.registry import Registry
from nile.expressions.conditions import parse_condition
from nile.pyramid.history.history import History
from nile.streams.idle import Idleness
from nile.streams.live import LiveStream
from nile.streams.versions import Versions, live_stream_of
from nile.summaries.errors import ConfigError, UnknownStream

if TYPE_CHECKING:
    from nile.pyramid.grid.manager import SummaryManager
    from nile.sql.statements import CreateSummary

__all__ = ["Known"]


class Known:
    """What is known of live streams, standing queries and summaries.  Every change is one piece, or undone whole.

    means: bounds on what its standing queries may hold and take, None without.
    names: of the database.  definitions, offsets: of each stream, as made and how far read.  standing: its queries.
    """

    def __init__(
        self,
        names: Registry,
        keeper: Keeping | None = None,
        means: Means | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.names = names
        self._keeper = keeper
        self._streams: dict[str, LiveStream] = {}
        self.commits = Commits()
        self.lock = self.commits.lock
        names.check = self.commits.check
        self.definitions: dict[str, StreamDefinition] = {}
        self.offsets: dict[str, Any] = {}
        names.offsets = self.offsets
        self.standing = Subscriptions(Scheduled(schedule or Schedule(), bounded=means is not None), names.threads)
        self.means = means
        if means is not None:
            means.others = self.standing.besides
        self.summaries = LiveSummaries(names)
        self.constraints = Constraints(self.streams)
        self.idleness = Idleness()
        self.fed: list[LiveStream] = []
        """Streams of tables of sensors, of one query each."""
        self._changing = 0
        if keeper is not None:
            keeper.restore(self, names)
        self.inflows = Inflows(self)  # type: ignore[arg-type]  # every one of these is a Live
        self.outflows = Outflows(self)  # type: ignore[arg-type]
        if keeper is not None and not keeper.directory.read_only:
            self.inflows.follow()
            self.outflows.follow()

    @property
    def memory(self) -> int | None:
        """Bytes that kept rows may take, as the database was told when it was opened; None: no limit."""
        return None if self._keeper is None else self._keeper.memory

    @property
    def keeper(self) -> Keeping | None:
        """The store's; None where there is none."""
        return self._keeper

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
        stamp: bool = False,
        extra: str = "refuse",
    ) -> None:
        """Make a live stream known.  See `nile.engine.database.Database.stream`."""
        check_name(name, where="stream")
        self.make(
            name,
            stream_definition(
                name,
                schema,
                time,
                lateness=lateness,
                where=where,
                keep=keep,
                event_id=event_id,
                idle=idle,
                stamp=stamp,
                extra=extra,
            ),
        )

    def make(self, name: str, definition: StreamDefinition) -> None:
        """Make a live stream, or the log of a relation, known."""
        with self.lock, INTERRUPTS:
            self.commits.check()
            if self._keeper is None:
                if (there := self.streams().get(name)) is not None:
                    self.standing.check_free(there)
                self.adopt(name, definition, None)
                return
            if name in self.streams():
                held = self.definitions[name]
                if replace(held, schema=plain_schema(held.schema)) != definition:
                    raise ConfigError(
                        f"stream '{name}': needed the definition that the store has of it; got another; "
                        f"DROP STREAM {name} first, or take another name"
                    )
                return
            self._keeper.directory.check_writable()
            definition.as_json()  # a type that has no byte form is refused before anything is made
            kept = None if definition.keep is not None else self._keeper.history(name, definition.schema)
            with self._or_as_before():
                self.adopt(name, definition, kept)
                self._remember()

    @contextlib.contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """Where the block raises, what is known is what was: names, streams, standing queries, summaries."""
        names, standing, constraints = self.names.snapshot(), self.standing.snapshot(), self.constraints.snapshot()
        streams, definitions, offsets = dict(self._streams), dict(self.definitions), dict(self.offsets)
        try:
            yield
        except BaseException:
            with INTERRUPTS:
                self.names.go_back(names)
                self.standing.go_back(standing)
                self._streams, self.definitions = streams, definitions
                self.offsets.clear()
                self.offsets.update(offsets)
                constraints()
                self.follow_summaries()
            raise

    def _remember(self) -> None:
        """A checkpoint of what is known now; of the parts of a change after the last.  Raises StoreWriteError."""
        if self._keeper is not None and not self._changing:
            self._keeper.remember(self, self.names)

    def adopt(self, name: str, definition: StreamDefinition, history: History | None) -> LiveStream:
        """A live stream with what it kept before; where that raises, all is as it was."""
        place = f"stream '{name}'"
        made = LiveStream(
            name, definition.schema, definition.time, lateness=definition.lateness,
            where=None if definition.where is None else parse_condition(definition.where, where=f"{place}, where"),
            keep=definition.keep, event_id=definition.event_id, idle=definition.idle, stamp=definition.stamp,
            drops=definition.drops, history=history,
            hasher=self.names.hasher,
        )  # fmt: skip
        measured = partial(self.constraints.arrived, made)
        made.listeners += [self.summaries.arrived, measured, partial(self.standing.arrived, made)]
        self.idleness.heard(made)
        names, streams, definitions = self.names.snapshot(), dict(self._streams), dict(self.definitions)
        try:
            if definition.relation:
                made.at_will = True
                self.names.register(name, Versions(made, self.commits.seen_after), time=None, where=None, lateness=None)
            else:
                self.names.register(name, made, time=definition.time, where=None, lateness=None)
            self._streams[name] = made
            self.definitions[name] = definition
            self.offsets.pop(name, None)
        except BaseException:
            self.names.go_back(names)
            self._streams, self.definitions = streams, definitions
            raise
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
        with self.lock, INTERRUPTS:
            self.commits.check()
            stream = self.adopt(name, definition, history)
            stream.filled(last)
            self.offsets[name] = offset
            for made, manager in summaries:
                self.names.keep_summary(made)
                self.summaries.adopt(made, stream, manager)
            return self._keeper.checkpoint(self, self.names)

    def get(self, name: str) -> LiveStream:
        """A live stream.  Raises UnknownStream."""
        held = self.names.stream(name).source
        found = self._streams.get(name)
        if found is None or found is not held:
            self.names.stream(name)  # a database that was closed in between says so
            raise UnknownStream(f"stream {name!r} is not live: it has a source; make a live one with db.stream()")
        return found

    def streams(self) -> dict[str, LiveStream]:
        """Live streams, and logs of relations, whose names have not been given to something else."""
        known = self.names
        return {
            name: one
            for name, one in self._streams.items()
            if name in known.entries and live_stream_of(known.adopt(name)[0]) is one
        }

    def change(self, statement: Callable[[], Any], *, whole: bool = False) -> Any:
        """Run what may change the names that are known, follow summaries, and keep it for good; or leave it undone.

        whole: signals wait until it is done, not only until names are as they were: it changes streams and queries too.
        Raises what the statement raises, and ConfigError for one that takes from a named query what it reads, or from
        a push the stream that it is reading rows for.
        """
        with self.lock, contextlib.ExitStack() as waits:
            if whole:
                waits.enter_context(INTERRUPTS)
            self.commits.check()
            had = self.streams()
            with self._or_as_before():
                self._changing += 1
                try:
                    done = statement()
                finally:
                    self._changing -= 1
                now = self.streams()
                for name, stream in had.items():
                    if now.get(name) is not stream:
                        self.standing.check_free(stream)
                if self._keeper is not None and not self._changing:
                    self._keeper.check(self, self.names)
                self.follow_summaries()
                self.constraints.follow()
                waits.enter_context(INTERRUPTS)  # what is in the store is not undone
                self._remember()
            if not self._changing:
                self.inflows.follow()
                self.outflows.follow()
            return done

    def follow_summaries(self) -> None:
        """Keep the summaries that are asked for of live streams."""
        self.summaries.follow(self.names.summaries.values(), self.streams())
