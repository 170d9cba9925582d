"""Answers and outputs, streamed as they are found to clients of any speed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.websockets import WebSocket

from nile.answers.result import Result
from nile.server.feeds import Feed, Lost
from nile.server.forms import Form, Outputs, Rows, media_type
from nile.server.guard import client_of
from nile.server.lanes import Lane, Line, framed, framing, line_of, send_now
from nile.server.requests import read_place
from nile.server.service import Service
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["Found", "answered", "followed", "over_websocket", "worth_of"]

_MANY = 64 << 10  # bytes of rows whose encoding would keep everybody waiting
_PART = 256 << 10  # bytes of an answer that are sent together, if they are found in time: they stay in a core's cache
_AT_ONCE = 0.02  # seconds for which rows that were found wait for more, and a thread for a client
_TURN = 0.25  # seconds after which another answer may have the thread
Found = tuple[pa.Schema, Iterator[pa.RecordBatch], Result | None]
_Part = tuple[list[bytes | memoryview], int, bool]
"""Bytes, how many rows they are, and whether there may be more."""


async def answered(service: Service, request: Request, ask: Callable[[], Found], form: Form) -> Response:
    """The rows of a statement, a part at a time, at the client's pace.

    ask: runs it, on a thread, up to its first rows.  What is wrong with it is mostly told before any byte is sent.
    """
    line = line_of(request.scope)
    finding = _Finding(form, framing if line is not None else list)
    first = await service.answer(finding.begin, ask)

    async def parts() -> AsyncIterator[bytes]:
        part, found, more = first
        try:
            while True:
                service.counts["rows_out"] += found
                if part and line is not None:
                    await line.send(part, service.settings.send_wait)
                elif part:
                    yield b"".join(part)
                if not more or (line is not None and line.gone):
                    return
                direct = None if line is None else line.direct()
                part, found, more = await service.answer_by(direct, finding.go_on)
        except TimeoutError:
            raise  # a client that takes nothing is cut off
        except Exception as error:
            _, told = service.telling.told(error)
            if not (last := finding.rows.failed(told)):
                raise  # cut off
            yield last
        finally:
            if more:  # the client went away: what the statement holds goes on the thread that made it
                service.answer_later(finding.close)

    return StreamingResponse(parts(), media_type=media_type(form))


class _Finding:
    """An answer that is found a part at a time: its bytes, as much as comes at once, and after its rows its worth.

    joined: makes one chunk of the bytes of a part.
    """

    rows: Rows

    def __init__(self, form: Form, joined: Callable[[list[bytes | memoryview]], list[bytes | memoryview]]) -> None:
        self._form = form
        self._joined = joined
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._result: Result | None = None
        self._error: Exception | None = None
        self._closed = False
        self._mine = threading.Lock()

    def begin(self, ask: Callable[[], Found]) -> _Part:
        schema, self._batches, self._result = ask()
        self.rows = Rows(self._form, schema)
        return self._next()

    def go_on(self, direct: socket.socket | None) -> _Part:
        """The next part.  direct: the client's; parts that it takes at once are sent and counted, and what it leaves of
        one is what is returned.
        """
        with self._mine:
            part, found, more = self._next()
            if direct is None:
                return part, found, more
            until = time.monotonic() + _TURN
            while not (part := send_now(direct, part, _AT_ONCE)) and more and time.monotonic() < until:
                if self._closed:
                    break
                try:
                    part, also, more = self._next()
                except Exception as error:
                    self._error = error
                    break
                found += also
            return part, found, more

    def close(self) -> None:
        """Let go of what has not been found yet."""
        self._closed = True
        with self._mine:
            if isinstance(self._batches, Generator):
                self._batches.close()

    def _next(self) -> _Part:
        """An error is raised once what was found before it is on its way."""
        if self._error is not None:
            raise self._error
        parts: list[bytes | memoryview] = []
        size = found = 0
        until = time.monotonic() + _AT_ONCE
        try:
            for batch in self._batches:
                parts += (made := self.rows.rows(batch))
                size += sum(map(len, made))
                found += batch.num_rows
                if size >= _PART or time.monotonic() >= until:
                    return self._joined(parts), found, True
            if end := self.rows.end(**worth_of(self._result)):
                parts.append(end)
        except Exception as error:
            if not parts:
                raise
            self._error = error
            return self._joined(parts), found, True
        return self._joined(parts), found, False


def worth_of(result: Result | None) -> dict[str, Any]:
    """What an answer says of itself beside its rows: of an approximate one its estimate, and what was spent."""
    if result is None:
        return {}
    if result.message is not None:
        return {"message": result.message}
    if result.worth() is None:
        return {}
    estimate = result.estimate
    return {
        "worth": result.worth(), "coverage": result.coverage, "spent": result.budget.fraction,
        "estimate": asdict(estimate), "warnings": list(result.warnings),
    }  # fmt: skip


async def followed(
    service: Service, connection: HTTPConnection, form: Form, told: str | None, wait: float | None = None
) -> Response:
    """The outputs of a standing query from a place on.  told: EPOCH:ORDINAL, start, or None; wait: ends
    when nothing came for so long, s.

    409 for the place of a query of that name which is no more.
    """
    feed = await service.feed(connection.path_params["name"])
    place = read_place(told)
    if place.epoch not in (None, feed.epoch):
        return JSONResponse(
            {
                "error": f"query {feed.name!r} was created again: its outputs are numbered from 0 in another epoch; "
                "begin with from=start", "kind": "epoch", "epoch": feed.epoch,
            },
            409,
        )  # fmt: skip
    assert service.guard is not None
    room = contextlib.ExitStack()
    if not room.enter_context(service.guard.stream(client_of(connection.scope))):
        return service.guard.refusal("streams")
    first = feed.subscription.outputs if place.ordinal is None else place.ordinal

    headers = {"cache-control": "no-store", "nile-epoch": str(feed.epoch), "nile-ordinal": str(first)}
    line = line_of(connection.scope)
    return _Held(_parts(service, feed, form, first, wait, line), room, media_type=media_type(form), headers=headers)


class _Held(StreamingResponse):
    """A stream that gives its room back, though it may never be begun."""

    def __init__(self, content: AsyncGenerator[bytes, None], room: contextlib.ExitStack, **named: Any) -> None:
        super().__init__(content, **named)
        self.parts = content
        self.room = room

    async def __call__(self, *given: Any) -> None:
        with self.room:
            await super().__call__(*given)


async def _parts(
    service: Service, feed: Feed, form: Form, ordinal: int, wait: float | None, line: Line | None
) -> AsyncGenerator[bytes, None]:
    """What a client of a query reads, without an end."""
    outputs = Outputs(form, feed.subscription.schema, feed.epoch)
    yield outputs.said(ordinal, query=feed.name, epoch=feed.epoch, ordinal=ordinal)
    lane = None if line is None or not outputs.alike else Lane(line, form, outputs.rows, framed(outputs.beat()))
    try:
        async with contextlib.aclosing(feed.read(ordinal, wait, lane)) as found:
            async for each in found:
                if each is None:
                    yield outputs.beat()
                elif isinstance(each, Lost):
                    ordinal = each.end
                    yield outputs.said(ordinal, lost=[each.first, each.end])
                else:
                    ordinal = each.end
                    made = partial(outputs.rows, each.first, each.batch, each.forms)
                    many = form not in each.forms and each.batch.nbytes > _MANY
                    yield await service.look(made) if many else made()
        if lane is not None:
            ordinal = max(ordinal, lane.ordinal)
        yield outputs.end(ordinal, feed.why or "waited")
    except NileError as error:
        _, told = service.telling.told(error)
        yield outputs.end(ordinal, told["error"])


async def over_websocket(service: Service, websocket: WebSocket) -> None:
    """The same as text messages, one a line; ?form=arrow: as binary ones.  The client says nothing."""
    form: Form = "arrow" if websocket.query_params.get("form") == "arrow" else "ndjson"
    asked = websocket.scope.get("subprotocols", ())
    try:
        response = await followed(service, websocket, form, websocket.query_params.get("from"))
    except NileError as error:
        _, told = service.telling.told(error)
        await websocket.close(1008, told["error"][:120])
        return
    if not isinstance(response, _Held):
        await websocket.close(1008, "refused")
        return
    await websocket.accept("nile" if "nile" in asked else None)
    leaving = asyncio.create_task(_until_gone(websocket))
    sending = asyncio.create_task(_send_all(service, websocket, response, form))
    await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, sending):
        task.cancel()
    for outcome in await asyncio.gather(leaving, sending, return_exceptions=True):
        if isinstance(outcome, TimeoutError):
            service.guard.refused["stalled"] += 1  # type: ignore[union-attr]


async def _send_all(service: Service, websocket: WebSocket, response: _Held, form: Form) -> None:
    """Every part as a message; a client that takes none for too long is let go."""
    with response.room:
        async with contextlib.aclosing(response.parts) as parts:
            async for part in parts:
                async with asyncio.timeout(service.settings.send_wait):
                    if form == "arrow":
                        await websocket.send_bytes(part)
                    else:
                        await websocket.send_text(part.decode())
    with contextlib.suppress(RuntimeError):
        await websocket.close(1001 if service.closing.is_set() else 1000)


async def _until_gone(websocket: WebSocket) -> None:
    with contextlib.suppress(RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
