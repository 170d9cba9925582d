"""The short way of an output to a client that has read all before it: bytes made once, straight to its connection.

    a result -> Feed: its bytes, once a form -> Line.write of each client that waits -> the socket
                                                  `-- full, or going: the client reads on by itself

The long way (task, response, middleware, protocol) costs many times as much a client, and holds the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["LINE", "Lane", "Line", "framed", "line_of"]

LINE = "nile.line"
"""Where the scope of a request holds its line."""


_SLICE = 128 << 10


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

    async def send(self, chunk: bytes, wait: float) -> None:
        """Send a chunk, framed, as fast as the client takes it.

        In slices: asyncio moves all that is left of a write whenever some of it has gone.
        Raises TimeoutError for a client that takes nothing for `wait` seconds.
        """
        spoken, rest = self._spoken, memoryview(chunk)
        while rest and not spoken.transport.is_closing():
            if spoken.flow.write_paused:
                async with asyncio.timeout(wait):
                    await spoken.flow.drain()
                continue
            spoken.transport.write(rest[:_SLICE])
            rest = rest[_SLICE:]


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


def framed(*parts: bytes) -> bytes:
    """As one chunk of HTTP/1.1 (RFC 9112, section 7.1); empty for nothing, which would end the response."""
    size = sum(map(len, parts))
    return b"".join((b"%x\r\n" % size, *parts, b"\r\n")) if size else b""
