"""The server of Flight SQL: gRPC beside HTTP, over the same database, with the same token and the same limits.

GetFlightInfo carries a statement out (one that only looks is bound, and found when it is fetched) and gives a ticket;
DoGet fetches the rows.  Drivers prepare nearly every statement first: CreatePreparedStatement, DoPut with values.
Source: Apache Arrow, "Arrow Flight SQL".
"""

from __future__ import annotations

import base64
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from nile.answers.result import Result
from nile.server.flight.metadata import TABLES, told
from nile.server.flight.statements import Answer, Held, Prepared, Values, answered, asks, parameters_of, values_of
from nile.server.flight.wire import Fields, fields_of, message, packed, text, unpacked
from nile.server.service import Service
from nile.server.settings import Settings
from nile.server.streaming import worth_of
from nile.server.trusting import checked
from nile.summaries.errors import ConfigError, NotYet, Overloaded, SourceError
from nile.summaries.heavy import flight, pa

__all__ = ["FlightSql"]

_PREPARED, _WAITING = 4_096, 1_024  # statements that are held
_ENDING = ("ClosePreparedStatement", "CancelFlightInfo", "CancelQuery", "CloseSession")
_ACTIONS = ("CreatePreparedStatement", *_ENDING)
_CANCELLED, _CLOSED = 1, 1
_UNKNOWN = (1 << 64) - 1  # -1: how many rows a statement changed
_PARAMETER = pa.dense_union(
    [
        pa.field("string", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("bigint", pa.int64()),
        pa.field("double", pa.float64()),
    ]
)


class _Guarded(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Whoever calls shows the token: as a bearer, or as the password of any user, who is given the bearer to go on."""

    def __init__(self, settings: Settings, refuse: Callable[[str], None]) -> None:
        self._token = settings.token
        self._refuse = refuse

    def start_call(self, _info: Any, headers: Mapping[str, list[str]]) -> Any:
        shown = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        for value in shown:
            kind, _, secret = value.partition(" ")
            if kind.lower() == "basic":
                secret = _password(secret)
            if hmac.compare_digest(secret.strip().encode("utf-8", "replace"), self._token.encode()):
                return _Bearer(self._token) if kind.lower() == "basic" else None
        self._refuse("token")
        raise flight.FlightUnauthenticatedError("needed the server's token: authorization: Bearer TOKEN")


class _Bearer(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}


class _Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets handshakes pass: what is shown in them stands in the headers, which have been looked at."""

    def authenticate(self, _outgoing: Any, _incoming: Any) -> None:
        return

    def is_valid(self, _token: bytes) -> bytes:
        return b""


def _password(coded: str) -> str:
    try:
        padded = coded.strip() + "=" * (-len(coded.strip()) % 4)  # Go's drivers leave the padding out
        return base64.b64decode(padded, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _told(method: Any) -> Any:
    """A method whose errors are told as the HTTP server tells them, and which those alone reach who may."""

    @wraps(method)
    def run(self: FlightSql, context: Any, *given: Any) -> Any:
        try:
            ends = method.__name__ == "do_action" and given[0].type in _ENDING
            self.enter(context, method.__name__, limited=not ends)
            return method(self, context, *given)
        except flight.FlightError:
            raise
        except Exception as error:
            raise self.failure(error) from None

    return _nowhere(run)


def _nowhere(raising: Any) -> Any:
    """pyarrow sends where an error was raised along with it: here that place names no folder of this machine."""
    raising.__code__ = raising.__code__.replace(co_filename="nile.server.flight")
    return raising


class FlightSql(flight.FlightServerBase):  # type: ignore[misc]
    """Serves until `stop`.  port: where; 0 takes any that is free, and `port` says which.

    service: the database behind it, whose threads find the answers.
    """

    def __init__(self, service: Service, host: str = "127.0.0.1", port: int = 0) -> None:
        self._service = service
        self._settings = service.settings
        self._prepared: Held[Prepared] = Held("a prepared statement", _PREPARED)
        self._waiting: Held[Answer] = Held("the rows of a statement", _WAITING)
        self._stopping = threading.Event()
        self._counting = threading.Lock()
        at = f"[{host}]" if ":" in host else host
        try:
            super().__init__(
                f"grpc://{at}:{port}",
                auth_handler=_Handshake(),
                middleware={"token": _Guarded(service.settings, self._refuse)},
            )
        except (pa.ArrowException, OSError):
            raise ConfigError(
                f"serve: needed an address that is free for Flight SQL; got {at}:{port}; name another --flight-port"
            ) from None

    def stop(self, seconds: float) -> None:
        """End: answers that are being fetched are cut off after the batch they are at.  Waits at most so long."""
        self._stopping.set()
        ending = threading.Thread(target=self.shutdown, name="nile-flight-end", daemon=True)
        ending.start()
        ending.join(seconds)

    def enter(self, context: Any, call: str, limited: bool = True) -> None:
        """Count a call of a client.  limited: whether it takes of what the client may ask.  Raises Overloaded."""
        if self._stopping.is_set():
            raise flight.FlightUnavailableError("the server goes down")
        with self._counting:
            self._service.counts[f"flight_{call}"] += 1
            assert self._service.guard is not None
            passes = not limited or self._service.guard.in_time(_client_of(context.peer()))
        if not passes:
            self._refuse("rate")
            raise Overloaded("too many requests; slow down")

    def failure(self, error: Exception) -> Exception:
        """An error as a driver reads it: what was wrong, without places of this machine, and its kind."""
        self._service.counts["errors"] += 1
        status, body = self._service.telling.told(error)
        kinds: dict[int, Callable[[str], Exception]] = {
            400: pa.ArrowInvalid, 404: pa.ArrowKeyError, 413: pa.ArrowInvalid, 501: pa.ArrowNotImplementedError,
            503: flight.FlightUnavailableError,
        }  # fmt: skip
        made: Exception = kinds.get(status, flight.FlightInternalError)(body["error"])
        return made

    @_told
    def get_flight_info(self, _context: Any, descriptor: Any) -> Any:
        name, fields = _command(descriptor)
        if name in TABLES:
            return self._info(descriptor, self._metadata(name, fields).schema, descriptor.command)
        answer = self._answer(name, fields)
        ticket = packed("TicketStatementQuery", (1, self._waiting.keep(answer)))
        return self._info(descriptor, answer.schema, ticket)

    @_told
    def get_schema(self, _context: Any, descriptor: Any) -> Any:
        name, fields = _command(descriptor)
        if name in TABLES:
            return flight.SchemaResult(self._metadata(name, fields).schema)
        asked, given = self._statement(name, fields)
        if not asks(asked):
            raise ConfigError("Flight: needed a statement that only looks; got another, which says what it did")
        return flight.SchemaResult(self._ask(answered, self._sql, asked, given).schema)

    @_told
    def do_get(self, context: Any, ticket: Any) -> Any:
        name, fields = unpacked(ticket.ticket)
        if name in TABLES:
            return flight.RecordBatchStream(self._metadata(name, fields))
        if name != "TicketStatementQuery":
            raise NotYet(f"Flight: needed a ticket of this server; got {name[:40]}; ask for flight info first")
        handle = fields.get(1, [b""])[0]
        answer = self._waiting.get(handle)
        self._waiting.pop(handle)
        return flight.GeneratorStream(answer.schema, self._rows(context, answer))

    @_told
    def do_put(self, _context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        name, fields = _command(descriptor)
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(fields.get(1, [b""])[0])
            prepared.given = self._values(reader, prepared)
            return
        if name == "CommandStatementIngest":
            changed = self._push(text(fields, 2) or "", reader)
        elif name == "CommandPreparedStatementUpdate":
            prepared = self._prepared.get(fields.get(1, [b""])[0])
            given = self._values(reader, prepared) if prepared.parameters else None
            changed = self._carry_out(prepared.text, given)
        elif name == "CommandStatementUpdate":
            changed = self._carry_out(text(fields, 1) or "", None)
        else:
            raise NotYet(f"Flight: needed a statement or rows; got {name[:40]}, which Nile has not")
        writer.write(pa.py_buffer(message((1, changed))))

    @_told
    def list_actions(self, _context: Any) -> list[Any]:
        return [flight.ActionType(name, "") for name in _ACTIONS]

    @_told
    def do_action(self, _context: Any, action: Any) -> list[Any]:
        body = action.body.to_pybytes()
        if action.type == "CreatePreparedStatement":
            return [flight.Result(self._prepare(unpacked(body)[1]))]
        if action.type == "ClosePreparedStatement":
            self._prepared.pop(unpacked(body)[1].get(1, [b""])[0])
            return []
        if action.type == "CancelFlightInfo":
            self._cancel(fields_of(body).get(1, [b""])[0])
            return [flight.Result(message((1, _CANCELLED)))]
        if action.type == "CancelQuery":
            self._cancel(unpacked(body)[1].get(1, [b""])[0])
            return [flight.Result(packed("ActionCancelQueryResult", (1, _CANCELLED)))]
        if action.type == "CloseSession":
            return [flight.Result(message((1, _CLOSED)))]
        raise NotYet(f"Flight: needed one of the actions {', '.join(_ACTIONS)}; got {action.type[:40]}; leave it out")

    def _info(self, descriptor: Any, schema: pa.Schema, ticket: bytes) -> Any:
        """Where the rows are: here, wherever the driver has found this server."""
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def _metadata(self, name: str, fields: Fields) -> pa.Table:
        return self._ask(told, self._service.db, name, fields)

    def _statement(self, name: str, fields: Fields) -> tuple[str, list[Values] | None]:
        """The text of a command, and the values that were bound."""
        if name == "CommandStatementQuery":
            return text(fields, 1) or "", None
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(fields.get(1, [b""])[0])
            return prepared.text, prepared.given if prepared.parameters else None
        raise NotYet(f"Flight: needed a statement in SQL, or what the database has; got {name[:40]}")

    def _answer(self, name: str, fields: Fields) -> Answer:
        asked, given = self._statement(name, fields)
        answer: Answer = self._ask(answered, self._sql, asked, given)
        return answer

    def _prepare(self, fields: Fields) -> bytes:
        """What is wrong with a statement is said when it is prepared, where its values have nothing to do with it."""
        prepared = Prepared(text(fields, 1) or "", parameters_of(text(fields, 1) or ""))
        looks = asks(prepared.text) and not prepared.parameters
        schema = self._ask(self._sql, prepared.text, None).schema if looks else None
        given = pa.schema([pa.field(name, _PARAMETER) for name in prepared.parameters])
        return packed(
            "ActionCreatePreparedStatementResult",
            (1, self._prepared.keep(prepared)),
            *(() if schema is None else ((2, schema.serialize().to_pybytes()),)),
            *((3, given.serialize().to_pybytes()) for _ in prepared.parameters[:1]),
        )

    def _cancel(self, info: Any) -> None:
        """Let go of what a FlightInfo has tickets for; what is being fetched ends as its call does."""
        for endpoint in fields_of(info).get(3, ()):
            for ticket in fields_of(endpoint).get(1, ()) if isinstance(endpoint, bytes) else ():
                held = fields_of(ticket).get(1, [b""])[0] if isinstance(ticket, bytes) else b""
                name, fields = unpacked(held if isinstance(held, bytes) else b"")
                if name == "TicketStatementQuery":
                    self._waiting.pop(fields.get(1, [b""])[0])

    def _values(self, reader: Any, prepared: Prepared) -> list[Values]:
        """Bound values, row by row.  Raises ConfigError for more bytes than a push may have."""
        found: list[Values] = []
        for batch in self._batches(reader):
            found += values_of(batch, prepared.parameters)
        return found

    def _carry_out(self, asked: str, given: list[Values] | None) -> int:
        """A statement that changes something; how many rows, as far as that is known."""
        if asks(asked):  # of which only that it was asked is wanted
            raise ConfigError("Flight: needed a statement that changes something; got one that only looks; fetch it")
        self._ask(answered, self._sql, asked, given)
        return len(given) if given else _UNKNOWN

    def _push(self, name: str, reader: Any) -> int:
        """Rows into a live stream, a batch at a time; how many."""
        count = 0
        for batch in self._batches(reader):
            self._service.change_now(self._service.db.push, name, batch)
            count += batch.num_rows
            self._service.counts["rows_in"] += batch.num_rows
        return count

    def _batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        for chunk in reader:
            if max(chunk.data.nbytes, chunk.data.num_rows) > self._settings.body:
                self._refuse("large")
                raise ConfigError(
                    f"Flight: needed batches of at most {self._settings.body:,} bytes; got {chunk.data.nbytes:,}; "
                    "send smaller ones"
                )
            try:
                checked(pa.Table.from_batches([chunk.data]))
            except pa.ArrowException as error:
                raise SourceError(
                    f"Flight: needed a batch whose lengths and text are what it says; got: {error}"
                ) from None
            yield chunk.data

    @_nowhere
    def _rows(self, context: Any, answer: Answer) -> Iterator[Any]:
        """Batches as they are found; none is looked for once nobody waits for it.  Last what the answer is worth."""
        batches = answer.batches()
        try:
            while not context.is_cancelled():
                if self._stopping.is_set():
                    raise flight.FlightUnavailableError("the server goes down")
                batch = self._ask(next, batches, None)
                if batch is None:
                    break
                self._service.counts["rows_out"] += batch.num_rows
                yield batch
            if worth := worth_of(answer.results[0]) if len(answer.results) == 1 else {}:
                none = pa.RecordBatch.from_pylist([], schema=answer.schema)
                yield none, pa.py_buffer(json.dumps(worth, default=str).encode())
        except flight.FlightError:
            raise
        except Exception as error:
            raise self.failure(error) from None

    def _sql(self, asked: str, given: Values) -> Result:
        found: Result = self._service.db.sql(asked, given, files=self._settings.files)
        return found

    def _ask(self, call: Callable[..., Any], *given: Any) -> Any:
        return self._service.answer_now(call, *given)

    def _refuse(self, reason: str) -> None:
        assert self._service.guard is not None
        with self._counting:
            self._service.guard.refused[reason] += 1


def _command(descriptor: Any) -> tuple[str, Fields]:
    if descriptor.command is None:
        raise ConfigError("Flight: needed a command of Flight SQL; got a path; use a driver for Flight SQL")
    return unpacked(descriptor.command)


def _client_of(peer: str) -> str:
    """The address in what gRPC tells of the other end, such as ipv4:127.0.0.1:40312."""
    return peer.partition(":")[2].rpartition(":")[0].strip("[]") or peer
