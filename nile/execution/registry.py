"""What a database knows by name: streams, stored relations, summaries."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from nile.answers.result import Result
from nile.base.durations import parse_duration
from nile.base.raw import check_columns
from nile.base.times import check_time_type
from nile.execution.definitions import SourceDefinition
from nile.execution.options import Options
from nile.expressions.conditions import Condition, parse_condition
from nile.expressions.tree import Node
from nile.operators.aggregate.scope import conjuncts, contradiction
from nile.operators.inputs.shared import SharedSummary
from nile.sql.catalog import Entry
from nile.sql.plan import Query
from nile.sql.statements import CreateSummary
from nile.streams.lake import LakeSource
from nile.streams.manager import StreamManager, StreamSpec
from nile.streams.source import CountedSource, KeptSource, Source, open_source
from nile.summaries.errors import ConfigError, DatabaseClosed, SourceError, UnknownStream
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.grid.manager import SummaryManager
    from nile.pyramid.history.history import History

__all__ = ["Registered", "Registry", "Scan"]


@dataclass(frozen=True, slots=True)
class Registered:
    """A stream (or, without time, a stored relation) as it was registered.  lateness: ns or None.

    path: of the file or files that it is, absolute; None of an object of this process.
    """

    source: Source
    time: str | None
    lateness: int | None
    where: Condition | None
    path: str | None = None

    def entry(self, name: str) -> Entry:
        """What the binder sees of it: dictionaries are an encoding, not a type."""
        plain = [
            pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
            for field in self.source.schema
        ]
        return Entry(name, pa.schema(plain), self.time)


class Scan(Protocol):
    """Runs a query over registered names, by the tasks of Spark."""

    def __call__(self, names: Registry, query: Query, options: Options) -> Result:
        """Nothing is read yet.  Raises NotYet, ConfigError, BudgetError."""


class Registry:
    """Names and what they stand for; the binder's catalog and the executor's home.

    hasher: of all keys in it.  scan: what runs a query over these names on Spark, in a room above this one; None:
    nothing does.
    """

    def __init__(self, hasher: KeyHasher = PUBLIC, scan: Scan | None = None) -> None:
        self.hasher = hasher
        self._scan = scan
        self._held: dict[str, Registered] = {}
        self._entries: dict[str, Entry] = {}
        self._summaries: dict[str, CreateSummary] = {}
        self._shared: dict[str, SharedSummary] = {}
        self._built: WeakValueDictionary[tuple[str, str], SummaryManager] = WeakValueDictionary()
        self.check: Callable[[], None] = lambda: None
        """Raises where nothing may be read any more."""
        self._closed = False

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations by name.  Raises DatabaseClosed, as all that looks names up does."""
        self.check_open()
        return self._entries

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries by name."""
        self.check_open()
        return self._summaries

    def snapshot(self) -> Registry:
        """What is known now, for a query that runs later: names that change or go afterwards stay as they are in it."""
        self.check_open()
        self.check()
        made = Registry(self.hasher, self._scan)
        made._held.update(self._held)
        made._entries.update(self._entries)
        made._summaries.update(self._summaries)
        made._shared.update(self._shared)
        made._built.update(self._built)
        return made

    def go_back(self, before: Registry) -> None:
        """Know again what a snapshot knows."""
        self._held, self._entries, self._summaries = dict(before._held), dict(before._entries), dict(before._summaries)
        self._shared = dict(before._shared)

    def scanned(self, query: Query, options: Options) -> Result:
        """A query as a scan of the lake by Spark; nothing is read yet.  Raises NotYet, ConfigError, BudgetError."""
        if self._scan is None:
            raise ConfigError("engine 'spark': needed a database that nile.connect() opened; got bare names; open one")
        return self._scan(self, query, options)

    @property
    def closed(self) -> bool:
        """Whether it has forgotten everything."""
        return self._closed

    def check_open(self) -> None:
        """Raises DatabaseClosed."""
        if self._closed:
            raise DatabaseClosed(
                "database: needed an open one; got one after close(), which has forgotten its streams; call "
                "nile.connect() again (answers that were asked for before can still be read)"
            )

    def close(self) -> None:
        """Forget everything, for good.  Snapshots stay as they are."""
        self._closed = True
        self._held.clear()
        self._entries.clear()
        self._summaries.clear()
        self._shared.clear()
        self._built.clear()

    def register(self, name: str, source: Any, *, time: str | None, where: str | None, lateness: Any) -> None:
        """See `nile.engine.database.Database.register`."""
        self.check_open()
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"stream name: needed a plain name such as store1; got {name!r}; rename it")
        opened = open_source(source, name=name)
        if isinstance(opened, LakeSource) and time is None:
            time = opened.time  # a lake's stream has one, and its order is that of it
        if not opened.schema.names:
            raise SourceError(f"{name}: needed a source with at least one column; got none; give it one")
        if time is None and lateness is not None:
            raise ConfigError(
                f"stored relation '{name}': needed no lateness, it has no order; got {lateness!r}; name time="
            )
        if time is not None:
            check_columns(opened.schema, (time,), where=f"stream '{name}'")
            check_time_type(opened.schema.field(time).type, where=f"stream '{name}', time column '{time}'")
        condition = None
        if where is not None:
            place = f"stream '{name}', where"
            condition = parse_condition(where, where=place)
            condition.check(opened.schema, where=place)
            impossible = contradiction(conjuncts([condition]), opened.schema)
            if impossible:
                warnings.warn(
                    f"{place}: needed a condition that some tuple can satisfy; got {where!r}: {impossible}; "
                    "check its bounds",
                    stacklevel=5,
                )
        late = None if lateness is None else parse_duration(lateness, where=f"stream '{name}', lateness")
        self._forget_built(name)
        for one in [made for made in self._summaries.values() if made.stream == name]:
            self._shared[one.name] = self._begun(one)
        self._held[name] = Registered(opened, time, late, condition, self._path_of(source))
        self._entries[name] = self._held[name].entry(name)

    def _path_of(self, source: Any) -> str | None:
        """The path that a source was opened from, now or under another name."""
        if isinstance(source, str | Path):
            return os.path.abspath(Path(source).expanduser())
        return next((held.path for held in self._held.values() if held.source is source), None)

    def sources(self) -> dict[str, SourceDefinition]:
        """The names that stand for files: what a store can open again."""
        return {
            name: SourceDefinition(held.path, held.time, held.lateness, None if held.where is None else held.where.text)
            for name, held in self._held.items()
            if held.path is not None
        }

    def unregister(self, name: str) -> None:
        """Forget a stream or relation, and the summaries of it."""
        del self._held[name], self._entries[name]
        self._forget_built(name)
        self._summaries = {key: made for key, made in self._summaries.items() if made.stream != name}
        self._shared = {key: held for key, held in self._shared.items() if key in self._summaries}

    def adopt(self, name: str) -> tuple[Source, str | None]:
        """A registered source, to be registered under a further name, and the text of its condition."""
        held = self._held[name]
        return held.source, None if held.where is None else held.where.text

    def keep_summary(self, summary: CreateSummary) -> None:
        """Make a summary known; one that is known as it is keeps its grid."""
        if self._summaries.get(summary.name) != summary:
            self._shared[summary.name] = self._begun(summary)
        self._summaries[summary.name] = summary

    def _begun(self, made: CreateSummary) -> SharedSummary:
        return SharedSummary(made.name, made.stream, made.column, made.spec, self.hasher)

    def grid(self, name: str) -> SharedSummary:
        """What a summary of that name is: its grid, whoever reads it.  Raises UnknownStream."""
        if name not in self.summaries:
            known = ", ".join(self.summaries) or "none"
            raise UnknownStream(f"summary {name!r}: needed one of {known}; got none of that name; CREATE SUMMARY first")
        return self._shared[name]

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The first summary of a stream's column; None where there is none.  Raises DatabaseClosed."""
        self.check_open()
        return next((one for one in self._shared.values() if (one.stream, one.column) == (name, column)), None)

    def forget_summary(self, name: str) -> None:
        """Forget one."""
        del self._summaries[name], self._shared[name]

    def rows(self, name: str) -> int | None:
        """How many rows a source has, where it says so without reading."""
        held = self._held.get(name)
        return held.source.rows if held is not None and isinstance(held.source, CountedSource) else None

    def where(self, name: str) -> Node | None:
        """The condition that a stream or relation was registered with."""
        held = self._held.get(name)
        return None if held is None or held.where is None else held.where.tree

    def built(self, name: str) -> dict[str, SummaryManager]:
        """Summaries of a stream that have been built and that someone still holds, by column."""
        return {column: summary for (stream, column), summary in self._built.items() if stream == name}

    def remember(self, name: str, column: str, summary: SummaryManager) -> None:
        """A summary of a stream has been built.  It is not kept alive."""
        self._built[name, column] = summary

    def _forget_built(self, name: str) -> None:
        for column in self.built(name):
            del self._built[name, column]

    def history(self, name: str) -> History | None:
        """What is kept of a stream; None where its source has to be read, or where not all of it belongs to it."""
        held = self._held.get(name)
        if held is None or held.where is not None or held.lateness is not None:
            return None
        return held.source.history if isinstance(held.source, KeptSource) else None

    def stream(self, name: str) -> Registered:
        """A registered stream.  Raises UnknownStream, DatabaseClosed."""
        self.check_open()
        held = self._held.get(name)
        if held is not None and held.time is not None:
            return held
        if held is not None:
            raise UnknownStream(f"stream {name!r} is a stored relation, registered without time=; name its time column")
        close = difflib.get_close_matches(str(name), self._held, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "register it first"
        known = ", ".join(self._held) or "none"
        raise UnknownStream(f"stream {name!r} is not registered (registered: {known}); {hint}")

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream.  Raises UnknownStream."""
        return self.stream(name).source.schema

    def time_column(self, name: str) -> str:
        """The event-time column of a stream.  Raises UnknownStream."""
        time = self.stream(name).time
        assert time is not None
        return time

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh manager over a stream."""
        self.check()
        held = self.stream(name)
        return StreamManager(
            StreamSpec(
                name=name, source=held.source, time=self.time_column(name), key=key, where=held.where,
                lateness=held.lateness, carry=carry, hasher=self.hasher,
            )
        )  # fmt: skip

    def relation(self, name: str) -> tuple[Source, Condition | None]:
        """The source of a stored relation, and which of its rows belong to it.  Raises UnknownStream."""
        self.check_open()
        held = self._held.get(name)
        if held is None:
            raise UnknownStream(f"relation {name!r} is not registered any more; register it again")
        return held.source, held.where
