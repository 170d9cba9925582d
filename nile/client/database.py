"""A database served by `nile serve`, with a local database's methods."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from nile.client.answers import ARROW, RemoteResult, RemoteSubscription
from nile.client.http import Http, quoted
from nile.execution.definitions import stream_definition
from nile.preferences.budget import Budget
from nile.streams.accounting import Accounting
from nile.streams.source import open_source
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = ["RemoteDatabase"]

_ROWS = 65_536


class RemoteDatabase:
    """Made by `nile.connect("http://...")`.  Methods that need the rows locally (join, progress) are absent: use sql().

    Raises what the server raises, as the same class; SourceError if it does not answer.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._server = Http(url, token)
        self._server.ask("GET", "/streams")  # that it is one, and takes the token

    def __repr__(self) -> str:
        return f"<nile.RemoteDatabase: {self._server.place}>"

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; nothing on the server ends."""
        self._server.close()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams registered."""
        return tuple(self._server.ask("GET", "/streams")["streams"])

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the stored relations registered."""
        return tuple(self._server.ask("GET", "/streams")["relations"])

    @property
    def unread(self) -> dict[str, int]:
        """The outputs that the server keeps, per named standing query."""
        return dict(self._server.ask("GET", "/queries")["queries"])

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The names of the standing queries that have one."""
        return tuple(self.unread)

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, **options: Any) -> RemoteResult:
        """Like `Database.sql`; params and options are JSON values, times as text, and a Budget."""
        asked = _asked(text, params, options)
        return RemoteResult(lambda: self._server.stream("POST", "/sql", asked, Accept=ARROW))

    def stream(self, name: str, schema: Any, *, time: str, **settings: Any) -> None:
        """As `Database.stream`."""
        given = {"lateness": None, "where": None, "keep": None, "event_id": None, "idle": None, **settings}
        made = stream_definition(name, schema, time, **given)
        said = {key: _durable(value) for key, value in settings.items() if value is not None}
        self._server.ask(
            "POST", "/streams", {"name": name, "schema": schema_to_json(made.schema), "time": time, **said}
        )

    def register(self, name: str, *_given: Any, **_settings: Any) -> None:
        """Not here.  Raises ConfigError."""
        raise ConfigError(
            f"register {name!r}: needed a database of this process; got one of a server, which reads its own files "
            "alone; say CREATE STREAM ... FROM 'path on the server' with sql(), or make a live stream and push the rows"
        )

    def push(self, name: str, data: Any, *, offset: Any = None) -> int:
        """Like `Database.push`: data with a length is one change, an iterator or a reader is one change per batch."""
        headers = {"Content_Type": ARROW}
        if offset is not None:
            headers["Nile_Offset"] = json.dumps(offset)
        whole = hasattr(data, "__len__") or offset is not None
        done = 0
        for table in _tables(data, name, whole=whole):
            told = self._server.ask("POST", f"/streams/{quoted(name)}/rows", _ipc(table), **headers)
            done += int(told["done"])
        return done

    def advance(self, time: Any, name: str | None = None) -> None:
        """As `Database.advance`."""
        at = "/advance" if name is None else f"/streams/{quoted(name)}/advance"
        self._server.ask("POST", at, {"time": _durable(time)})

    def _described(self, name: str) -> dict[str, Any]:
        return self._server.ask("GET", f"/streams/{quoted(name)}")

    def offset(self, name: str) -> Any:
        """As `Database.offset`: where a source goes on."""
        return self._described(name).get("offset")

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream or relation."""
        return schema_from_json(self._described(name)["schema"])

    def time_column(self, name: str) -> str:
        """The event-time column of a stream."""
        return str(self._described(name)["time"])

    def accounting(self, name: str) -> Accounting:
        """Of a live stream: in = applied + late + shed + rejected."""
        return Accounting(**self._described(name)["accounting"])

    def checkpoint(self) -> int:
        """Have the server write a checkpoint now; returns the store's epoch."""
        return int(self._server.ask("POST", "/checkpoint")["epoch"])

    def subscribe(
        self,
        text: str,
        *,
        name: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RemoteSubscription:
        """A standing query, which has a name here; asked again it goes on.  It is read from the oldest output kept."""
        told = self._server.ask("PUT", f"/queries/{quoted(name)}", _asked(text, params, options))
        return RemoteSubscription(self._server, name, told)

    def subscription(self, name: str) -> RemoteSubscription:
        """A standing query by its name."""
        return RemoteSubscription(self._server, name, self._server.ask("GET", f"/queries/{quoted(name)}"))


def _asked(text: str, params: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A statement as JSON."""
    given = {name: _option(value) for name, value in options.items() if value is not None}
    values = [_durable(each) for each in params] if isinstance(params, Sequence) else None
    if isinstance(params, Mapping):
        return {"sql": text, "params": {name: _durable(each) for name, each in params.items()}, "options": given}
    return {"sql": text, "params": values, "options": given}


def _option(value: Any) -> Any:
    return {value.unit: value.amount} if isinstance(value, Budget) else _durable(value)


def _durable(value: Any) -> Any:
    """A value as JSON says it.  Raises ConfigError."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigError(f"server: needed text, a number or a time; got {type(value).__name__}; write it as text")


def _tables(data: Any, name: str, *, whole: bool) -> Iterator[pa.Table]:
    if isinstance(data, list | tuple) and not data:
        return
    source = open_source(data, name=f"stream '{name}'")
    batches = (raw.batch for raw in source.batches(source.schema.names, _ROWS))
    if whole:
        yield pa.Table.from_batches(list(batches), schema=source.schema)
    else:
        yield from (pa.Table.from_batches([batch]) for batch in batches)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))
