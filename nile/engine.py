"""The database a user talks to: registered streams and queries over them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from nile.durations import parse_duration
from nile.joining import Loaded, load_stream
from nile.query import JoinQuery
from nile.selecting import read_predicates
from nile.selection import SelectionQuery
from nile.sql.expressions import parse_condition
from nile.streams.manager import StreamManager, StreamSpec
from nile.streams.source import Source, open_source
from pyramid.manager import SummaryManager
from pyramid.spec import SummarySpec
from summaries.errors import ConfigError, UnknownColumn, UnknownStream

__all__ = ["Database", "connect"]


class _Registered:
    """A stream as it was registered: where its tuples come from and what orders them."""

    def __init__(self, source: Source, time: str, lateness: int | None, where: Any) -> None:
        self.source = source
        self.time = time
        self.lateness = lateness
        self.where = where


class Database:
    """Streams by name.  Use as a context manager or call `close`; both are optional."""

    def __init__(self) -> None:
        self._streams: dict[str, _Registered] = {}

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nile.Database: {', '.join(self._streams) or 'no streams'}>"

    def close(self) -> None:
        """Forget all streams.  Answers already given keep what they need."""
        self._streams.clear()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names registered."""
        return tuple(self._streams)

    def register(
        self,
        name: str,
        source: Any,
        *,
        time: str,
        where: str | None = None,
        lateness: str | float | timedelta | None = None,
    ) -> Database:
        """Make a stream known as `name` (again: replaces it).

        source: a Parquet or CSV path, an Arrow table or reader, anything with `__arrow_c_stream__`, an iterable
        of record batches, or a callable that returns one.  time: its event-time column.  where: a condition in
        SQL that selects its tuples.  lateness: how far out of order a tuple may be and still be put in order;
        later ones are counted and kept apart; None: any disorder is an error.  Opens the source, reads nothing
        but its schema.  Raises SourceMissing, SourceError, UnknownColumn, ExpressionError, ConfigError.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"stream name: needed a plain name such as store1; got {name!r}; rename it")
        opened = open_source(source, name=name)
        _check_column(opened, time, name)
        condition = None
        if where is not None:
            condition = parse_condition(where, where=f"stream '{name}', where")
            condition.check(opened.schema, where=f"stream '{name}', where")
        late = None if lateness is None else parse_duration(lateness, where=f"stream '{name}', lateness")
        self._streams[name] = _Registered(opened, time, late, condition)
        return self

    def join(
        self, left: str, right: str, *, on: str | tuple[str, str], window: str | float | timedelta | None = None
    ) -> JoinQuery:
        """A window join of two streams on equal values of `on` (one column name, or one for each side).

        window: as for `JoinQuery.within`.  Raises UnknownStream, UnknownColumn, ConfigError.
        """
        names = (on, on) if isinstance(on, str) else tuple(on)
        if len(names) != 2:
            raise ConfigError(f"join on: needed one column or a pair of columns; got {on!r}; write on=('a', 'b')")
        for stream, column in zip((left, right), names, strict=True):
            _check_column(self._stream(stream).source, column, stream)
        query = JoinQuery(database=self, left=left, right=right, on=(names[0], names[1]))
        return query if window is None else query.within(window)

    def select(
        self,
        stream: str,
        *,
        on: str,
        predicates: Mapping[str, str],
        window: str | float | timedelta | None = None,
    ) -> SelectionQuery:
        """Standing selections over a stream: {name: condition}, each over its column `on`, which is summarised.

        window: how long a selected tuple stays valid; None: a filter.  Raises UnknownStream, UnknownColumn,
        ExpressionError, ConfigError.
        """
        source = self._stream(stream).source
        _check_column(source, on, stream)
        read = read_predicates(predicates, source.schema, on, stream=stream)
        query = SelectionQuery(database=self, stream=stream, on=on, predicates=read)
        return query if window is None else query.within(window)

    def manager(self, name: str, key: str) -> StreamManager:
        """A fresh stream manager over a registered stream, with `key` as the join key."""
        stream = self._stream(name)
        return StreamManager(
            StreamSpec(
                name=name,
                source=stream.source,
                time=stream.time,
                key=key,
                where=stream.where,
                lateness=stream.lateness,
            )
        )

    def load(self, name: str, key: str) -> Loaded:
        """Read a stream to its end, in order."""
        return load_stream(self.manager(name, key))

    def summarize(self, name: str, on: str, *, granularity: str | float | timedelta, **options: Any) -> SummaryManager:
        """Build the summary of a stream over column `on`: ask it for estimates, zones and memory.

        granularity: what G1 covers; options: fields of SummarySpec (rate, depth, buckets, rows, columns, ...).
        """
        length = parse_duration(granularity, where="granularity")
        summary = SummaryManager(SummarySpec(granularity=length, **options))
        for batch in self.manager(name, on).batches():
            summary.ingest(batch.ts, batch.key, where=f"stream '{name}', column '{on}'")
        return summary

    def _stream(self, name: str) -> _Registered:
        try:
            return self._streams[name]
        except KeyError:
            close = difflib.get_close_matches(str(name), self._streams, n=1)
            hint = f"did you mean '{close[0]}'?" if close else "register it first"
            known = ", ".join(self._streams) or "none"
            raise UnknownStream(f"stream {name!r} is not registered (registered: {known}); {hint}") from None


def _check_column(source: Source, column: str, name: str) -> None:
    names = source.schema.names
    if column not in names:
        close = difflib.get_close_matches(str(column), names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"its columns are {', '.join(names)}"
        raise UnknownColumn(f"stream '{name}': needed a column it has; got {column!r}; {hint}")


def connect() -> Database:
    """A database in memory, with no streams yet."""
    return Database()
