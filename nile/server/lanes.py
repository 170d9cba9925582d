"""The short way of an output to a client that has read all before it: bytes made once, straight to its connection.

    a result -> Feed: its bytes, once a form -> Line.write of each client that waits -> the socket
                                                  `-- full, or going: the client reads on by itself

The long way (task, response, middleware, protocol) costs many times as much a client, and holds the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["LINE", "Lane", "Line", "framed", "framing", "line_of"]

LINE = "nile.line"
"""Where the scope of a request holds its line."""


_SLICE = 128 << 10
_VECTOR = 256  # parts that are handed to a socket at once; systems take 1,024


class _Spoken(Protocol):
    """What speaks HTTP/1.1 on a connection: uvicorn's H11Protocol."""

    transport: Any
    flow: Any
    cycle: Any


class Line:
    """The connection of one request."""

    __slots__ = ("_cycle", "_spoken")

    def __init__(self, spoken: _Spoken) -> None:
        self._spoken = spoken
        self._cycle = spoken.cycle

    def write(self, chunk: bytes) -> bool:
        """Send a chunk, framed as HTTP/1.1 frames it; False, and nothing is sent: the client cannot take it now."""
        spoken = self._spoken
        if spoken.flow.write_paused or spoken.transport.is_closing() or self._cycle.response_complete:
            return False
        spoken.transport.write(chunk)
        return True

    async def send(self, parts: list[bytes | memoryview], wait: float) -> None:
        """Send what makes up a chunk, framed, as fast as the client takes it.

        Raises TimeoutError for a client that takes nothing for `wait` seconds.
        """
        transport = self._spoken.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() or not hasattr(socket.socket, "sendmsg"):
            for part in parts:
                await self._write_slices(part, wait)
            return
        # Past the transport, which would copy what does not fit into the socket, and move the rest at every write.
        with contextlib.closing(transport.get_extra_info("socket").dup()) as direct:
            await _send_all(direct, [memoryview(part) for part in parts], transport, wait)

    async def cut(self) -> None:
        """End the connection now, with what it holds."""
        self._spoken.transport.abort()
        await asyncio.sleep(0)  # until the protocol knows

    async def _write_slices(self, part: bytes | memoryview, wait: float) -> None:
        spoken, rest = self._spoken, memoryview(part)
        while rest and not spoken.transport.is_closing():
            if spoken.flow.write_paused:
                async with asyncio.timeout(wait):
                    await spoken.flow.drain()
                continue
            spoken.transport.write(rest[:_SLICE])
            rest = rest[_SLICE:]


async def _send_all(direct: socket.socket, parts: list[memoryview], transport: Any, wait: float) -> None:
    """All of the parts by a socket that does not block.  Ends early where the connection is gone."""
    at = 0
    while at < len(parts) and not transport.is_closing():
        try:
            sent = direct.sendmsg(parts[at : at + _VECTOR])
        except (BlockingIOError, InterruptedError):
            await _writable(direct, wait)
            continue
        except OSError:
            transport.abort()  # as asyncio ends what cannot be written to
            return
        while sent and sent >= len(parts[at]):
            sent -= len(parts[at])
            at += 1
        if sent:
            parts[at] = parts[at][sent:]


async def _writable(direct: socket.socket, wait: float) -> None:
    """Once the socket takes more.  Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(direct, tell)
    try:
        async with asyncio.timeout(wait):
            await ready
    finally:
        loop.remove_writer(direct)


def line_of(scope: Any) -> Line | None:
    """That of a request whose response comes in chunks; None of any other."""
    if scope["type"] != "http" or scope.get("http_version") != "1.1" or scope["method"] not in ("GET", "POST"):
        return None
    line: Line | None = scope.get(LINE)
    return line


@dataclass(slots=True, eq=False)
class Lane:
    """A reader that has read all there is up to `ordinal` and waits.

    form: of its bytes; encoded: the bytes of a batch whose first row has this ordinal; off: set once it has to read by
    itself again; busy: whether anything was sent since it was last asked.
    """

    line: Line
    form: str
    encoded: Callable[..., bytes]
    ordinal: int = 0
    busy: bool = False
    off: asyncio.Event = field(default_factory=asyncio.Event)


def framing(parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """As one chunk of HTTP/1.1 (RFC 9112, section 7.1); nothing for nothing, which would end the response."""
    size = sum(map(len, parts))
    return [b"%x\r\n" % size, *parts, b"\r\n"] if size else []


def framed(part: bytes) -> bytes:
    """The same in one piece."""
    return b"".join(framing([part]))
