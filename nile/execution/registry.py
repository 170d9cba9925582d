"""The names of a database: streams, stored relations, summaries, views."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nile.answers.result import Result
from nile.base.durations import parse_duration
from nile.base.names import check_name
from nile.base.plain import decoded_schema
from nile.base.raw import check_columns
from nile.base.times import check_time_type
from nile.execution.definitions import SourceDefinition
from nile.execution.options import Options
from nile.execution.reading import own_condition
from nile.execution.summary_names import SummaryNames
from nile.expressions.conditions import Condition, parse_condition
from nile.expressions.tree import Node
from nile.mining.call import Call, Mined
from nile.mining.source import MinedSource, Miner
from nile.operators.aggregate.scope import conjuncts, contradiction
from nile.sensors.source import SensorsSource
from nile.sql.catalog import Entry
from nile.sql.plan import Query, Relation, Stream
from nile.sql.reading.inline_relations import Listed
from nile.sql.statements import CreateView
from nile.streams.computed import ComputedSource
from nile.streams.frames import StreamingFrame
from nile.streams.lake import LakeSource
from nile.streams.manager import StreamManager, StreamSpec
from nile.streams.source import CountedSource, KeptSource, Source, open_source
from nile.streams.versions import Versions
from nile.summaries.errors import ConfigError, DatabaseClosed, SourceError, UnknownStream
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.history.history import History

__all__ = ["Registered", "Registry", "Scan"]


@dataclass(frozen=True, slots=True)
class Registered:
    """A stream (or, without time, a stored relation) as it was registered.  lateness: ns or None.

    path: of the file or files that it is, absolute; None of an object of this process; given: what was registered.
    """

    source: Source
    time: str | None
    lateness: int | None
    where: Condition | None
    path: str | None = None
    given: Any = None

    def stands_for(self, other: Registered) -> bool:
        """Whether the other is the same rows of the same file or object, in the same order."""
        where, theirs = (None if each.where is None else each.where.text for each in (self, other))
        settings = (self.time, self.lateness, where) == (other.time, other.lateness, theirs)
        return settings and (self.path == other.path if self.path else self.given is other.given)

    def entry(self, name: str) -> Entry:
        """What the binder sees of it: dictionaries are an encoding, not a type."""
        static = self.source.static if isinstance(self.source, SensorsSource) and self.where is None else ()
        return Entry(name, decoded_schema(self.source.schema), self.time, static, isinstance(self.source, Versions))


class Scan(Protocol):
    """Runs a query over registered names, by the tasks of Spark."""

    def __call__(self, names: Registry, query: Query, options: Options) -> Result:
        """Nothing is read yet.  Raises NotYet, ConfigError, BudgetError."""


class Registry(SummaryNames):
    """Names and what they stand for; the binder's catalog and the executor's home.

    hasher: of all keys in it.  threads: how many a join or the reading of a file may use, None for all cores.  room:
    bytes that an answer which is held whole may take, None for half of the machine's memory.  scratch: where files go
    while an answer is worked out, None for the system's folder for such files.  scan: what runs a query over these
    names on Spark, in a room above this one; None: nothing does.
    """

    def __init__(
        self,
        hasher: KeyHasher = PUBLIC,
        scan: Scan | None = None,
        *,
        threads: int | None = None,
        room: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__(hasher)
        self.threads = threads
        self.room = room
        self.scratch = scratch
        self._scan = scan
        self._held: dict[str, Registered] = {}
        self._entries: dict[str, Entry] = {}
        self._views: dict[str, CreateView] = {}
        self.check: Callable[[], None] = lambda: None
        """Raises where nothing may be read any more."""
        self.offsets: Mapping[str, Any] = {}
        """How far the source of each live stream has been read, where it said so."""
        self._closed = False

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations by name.  Raises DatabaseClosed, as all that looks names up does."""
        self.check_open()
        return self._entries

    @property
    def views(self) -> Mapping[str, CreateView]:
        """All views by name."""
        self.check_open()
        return self._views

    def snapshot(self, leaves: Sequence[Stream | Relation] = ()) -> Registry:
        """What is known now, for a query that runs later: names that change or go afterwards stay as they are in it.

        leaves: of that query; of tables of sensors it only reads what these want.
        """
        self.check_open()
        self.check()
        made = Registry(self.hasher, self._scan, threads=self.threads, room=self.room, scratch=self.scratch)
        made._held.update(self._held)
        made._entries.update(self._entries)
        made._summaries.update(self._summaries)
        made._views.update(self._views)
        made._shared.update(self._shared)
        made._built.update(self._built)
        made.offsets = dict(self.offsets)
        streams = [leaf for leaf in leaves if isinstance(leaf, Stream)]
        for name in {leaf.name for leaf in streams}:
            if (source := self.sensors(name)) is not None:
                wanted = [own_condition(leaf) for leaf in streams if leaf.name == name]
                made._held[name] = replace(self._held[name], source=open_source(source.narrowed(wanted), name=name))
        self.check_open()
        return made

    def go_back(self, before: Registry) -> None:
        """Know again what a snapshot knows."""
        self._held, self._entries, self._summaries = dict(before._held), dict(before._entries), dict(before._summaries)
        self._shared, self._views = dict(before._shared), dict(before._views)

    def scanned(self, query: Query, options: Options) -> Result:
        """A query on Spark, a scan of the lake or a standing one; nothing is read yet.  Raises NotYet, ConfigError."""
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
        self._views.clear()
        self._shared.clear()
        self._built.clear()

    def register(
        self, name: str, source: Any, *, time: str | None, where: str | None, lateness: Any, replace: bool = True
    ) -> None:
        """See `nile.engine.database.Database.register`."""
        self.check_open()
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"stream name: needed a plain name such as store1; got {name!r}; rename it")
        if name in self._views:
            raise ConfigError(
                f"stream name: needed a free one; got {name!r}, a view; DROP VIEW {name} first, or rename it"
            )
        opened = open_source(source, name=name)
        if isinstance(opened, LakeSource) and time is None:
            time = opened.time  # a lake's stream has one, and its order is that of it
        if not opened.schema.names:
            raise SourceError(f"{name}: needed a source with at least one column; got none; give it one")
        if time is None and lateness is not None:
            raise ConfigError(
                f"stored relation '{name}': needed no lateness, it has no order; got {lateness!r}; name time="
            )
        if time is None and isinstance(opened, StreamingFrame):
            raise ConfigError(f"'{name}': needed the time column of a streaming DataFrame; got none; name time=")
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
        late = None if lateness is None else parse_duration(lateness, where=f"stream '{name}', lateness", least=0)
        entered = Registered(opened, time, late, condition, self._path_of(source), source)
        if not replace and name in self._held and not self._held[name].stands_for(entered):
            raise ConfigError(
                f"register: needed a name that is free; '{name}' is another source's, or has other settings; choose "
                "another name, or say replace=True"
            )
        self._forget_built(name)
        for one in [made for made in self._summaries.values() if made.stream == name]:
            self._shared[one.name] = self._begun(one)
        self._held[name] = entered
        self._entries[name] = entered.entry(name)

    def with_sources(self, paths: Sequence[str], control: Mapping[str, pa.Table]) -> Registry:
        """A snapshot that knows more, for one statement: stored relations, as they are now.

        paths: files and globs, known by these; control: what tells of the database itself.
        Raises SourceMissing, SourceError.
        """
        made = self.snapshot()
        given: dict[str, Any] = {**{path: path for path in paths}, **control}
        for name, source in given.items():
            opened = open_source(source, name=name)
            time = opened.time if isinstance(opened, LakeSource) else None
            made._held[name] = Registered(opened, time, None, None, self._path_of(source))
            made._entries[name] = replace(made._held[name].entry(name), control=name in control)
        return made

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

    def keep_view(self, view: CreateView) -> None:
        """Make a view known."""
        self._views[view.name] = view

    def forget_view(self, name: str) -> None:
        """Forget one."""
        del self._views[name]

    def rows(self, name: str) -> int | None:
        """How many rows a source has, where it says so without reading."""
        if isinstance(name, Listed):
            return int(name.table().num_rows)
        held = self._held.get(name)
        return held.source.rows if held is not None and isinstance(held.source, CountedSource) else None

    def where(self, name: str) -> Node | None:
        """The condition that a stream or relation was registered with."""
        held = self._held.get(name)
        return None if held is None or held.where is None else held.where.tree

    def history(self, name: str) -> History | None:
        """What is kept of a stream; None where its source has to be read, or where not all of it belongs to it."""
        held = self._held.get(name)
        if held is None or held.where is not None or held.lateness is not None:
            return None
        return held.source.history if isinstance(held.source, KeptSource) else None

    def stream(self, name: str) -> Registered:
        """A registered stream.  Raises UnknownStream, DatabaseClosed."""
        self.check_open()
        check_name(name, where="stream")
        held = self._mined(name.call, name) if isinstance(name, Mined) else self._held.get(name)
        if held is not None and held.time is not None:
            return held
        if held is not None:
            raise UnknownStream(f"stream {name!r} is a stored relation, registered without time=; name its time column")
        self.check_open()  # or a handler has closed it since, and nothing is known any more
        close = difflib.get_close_matches(str(name), self._held, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "register it first"
        known = ", ".join(self._held) or "none"
        raise UnknownStream(f"stream {name!r} is not registered (registered: {known}); {hint}")

    def miner(self, call: Call) -> Miner:
        """A new one for a call.  Raises ConfigError, UnknownStream."""
        stream, library = self.stream(call.stream), None
        if call.library is not None:
            source, where = self.relation(call.library)
            batches = [raw.batch for raw in source.batches(source.schema.names, 1 << 20)]
            kept = [batch if where is None else batch.filter(where.mask(batch)) for batch in batches]
            library = pa.Table.from_batches(kept, source.schema)
        assert stream.time is not None
        return Miner(call, call.schema(stream.entry(call.stream).schema, stream.time), library)

    def _mined(self, call: Call, name: str) -> Registered:
        made = self.miner(call)
        columns = tuple(dict.fromkeys(each for each in (call.value, call.key) if each is not None))
        time, schema = made.schema.names[0], made.schema
        source = MinedSource(name, schema, lambda: self.manager(call.stream, time, columns), lambda: self.miner(call))
        return Registered(open_source(source, name=name), time, None, None)

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
                name=name, source=self._with_attributes(name, held.source, (key, *carry)),
                time=self.time_column(name), key=key, where=held.where,
                lateness=held.lateness, carry=carry, hasher=self.hasher, threads=self.threads,
                scratch=self.scratch,
            )
        )  # fmt: skip

    def _with_attributes(self, name: str, source: Source, columns: Sequence[str]) -> Source:
        """A stream's source, and those of the columns that are what summaries of it are of, computed."""
        wanted = {
            made.column: made.parts
            for made in self._summaries.values()
            if made.parts and made.stream == name and made.column in columns
        }
        return ComputedSource(source, wanted) if wanted else source

    def sensors(self, name: str) -> SensorsSource | None:
        """A table of sensors; None where that is none.  Raises DatabaseClosed."""
        self.check_open()
        check_name(name, where="sensors")
        held = self._held.get(name)
        return held.source if held is not None and isinstance(held.source, SensorsSource) else None

    def relation(self, name: str) -> tuple[Source, Condition | None]:
        """The source of a stored relation, and which of its rows belong to it.  Raises UnknownStream."""
        self.check_open()
        if isinstance(name, Listed):
            return open_source(name.table(), name=name), None
        held = self._held.get(name)
        if held is None:
            self.check_open()
            raise UnknownStream(f"relation {name!r} is not registered any more; register it again")
        if isinstance(held.source, SensorsSource):
            return held.source.stored(), None
        return held.source, held.where
