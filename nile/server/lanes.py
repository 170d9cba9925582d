"""The short way of an output to a client that has read all before it: bytes made once, straight to its connection.

    a result -> Feed: its bytes, once a form -> Line.write of each client that waits -> the socket
                                                  `-- full, or going: the client reads on by itself

The long way (task, response, middleware, protocol) costs many times as much a client, and holds the interpreter.

An answer goes from the thread that finds it to the socket while the client takes all of it (`send_now`); the loop sends
what a slow client leaves (`Line.send`), since no thread waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["LINE", "Lane", "Line", "framed", "framing", "line_of", "send_now"]

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

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more."""
        return bool(self._spoken.transport.is_closing())

    def direct(self) -> socket.socket | None:
        """The socket itself, past the transport, which would copy what does not fit into it, and move the rest at every
        write; None where the transport still holds bytes.  Close it.  For the loop's thread: another one could be given
        the number of a connection that closes meanwhile, and then the next one's.
        """
        transport = self._spoken.transport
        if transport.is_closing() or transport.get_write_buffer_size() or not hasattr(socket.socket, "sendmsg"):
            return None
        direct: socket.socket = transport.get_extra_info("socket").dup()
        return direct

    async def send(self, parts: list[bytes | memoryview], wait: float) -> None:
        """Send what makes up a chunk, framed, as fast as the client takes it.

        Raises TimeoutError for a client that takes nothing for `wait` seconds.
        """
        direct = self.direct()
        if direct is None:
            for part in parts:
                await self._write_slices(part, wait)
            return
        with contextlib.closing(direct):
            await _send_all(direct, parts, self._spoken.transport, wait)

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


def _send_some(direct: socket.socket, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """What is left once a socket that does not block takes no more.  Raises OSError where the connection is gone."""
    at = 0
    while at < len(parts):
        try:
            sent = direct.sendmsg(parts[at : at + _VECTOR])
        except (BlockingIOError, InterruptedError):
            break
        while sent and sent >= len(parts[at]):
            sent -= len(parts[at])
            at += 1
        if sent:
            parts[at] = memoryview(parts[at])[sent:]
    return parts[at:]


def send_now(direct: socket.socket, parts: list[bytes | memoryview], patience: float) -> list[bytes | memoryview]:
    """For a thread: what is left of the parts when the client is gone, or has not taken them in `patience` seconds."""
    waiting = select.poll()
    waiting.register(direct, select.POLLOUT)
    until = time.monotonic() + patience
    try:
        while (parts := _send_some(direct, parts)) and (left := until - time.monotonic()) > 0:
            waiting.poll(left * 1e3)
    except OSError:
        pass  # whoever sends the rest finds it out
    return parts


async def _send_all(direct: socket.socket, parts: list[bytes | memoryview], transport: Any, wait: float) -> None:
    """All of the parts by a socket that does not block.  Ends early where the connection is gone."""
    try:
        while (parts := _send_some(direct, parts)) and not transport.is_closing():
            await _writable(direct, wait)
    except TimeoutError:
        raise
    except OSError:
        transport.abort()  # as asyncio ends what cannot be written to


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

    form: of its bytes; encoded: the bytes of a batch whose first row has this ordinal; beat: framed, that nothing came;
    off: set once it has to read by itself again; busy: whether anything was sent since the last beat.
    """

    line: Line
    form: str
    encoded: Callable[..., bytes]
    beat: bytes
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
