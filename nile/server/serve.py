"""Running a server until it is told to stop: one process, one database, HTTP/1.1 and websockets by uvicorn."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nile.engine.database import Database
from nile.server.app import application
from nile.server.garbage import Collecting, settle
from nile.server.guard import Guard
from nile.server.lanes import LINE, Line
from nile.server.service import Service
from nile.server.settings import Settings
from nile.summaries.errors import ConfigError

__all__ = ["Beside", "Server", "listen"]

_HEADER_WAIT = 10.0  # seconds that a connection may take to say its request
_CONNECTIONS = 4_096
_BACKLOG = 1_024
_TURN = 0.001  # seconds
_SETTLED = (0.0, 60.0, 600.0)  # seconds after the start at which what lives is taken to live as long as the server


class _Prompt(H11Protocol):
    """Connections that say a whole request in time, or are closed: what slow headers would hold for ever."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = partial(self._with_line, self.app)
        self._wait()

    async def _with_line(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, LINE: Line(self)}, receive, send)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._busy:
            self._wait_no_more()  # its headers are there; the guard sees to the body
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(error)

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(_HEADER_WAIT, self._late)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = None

    def _late(self) -> None:
        self._waiting = None
        if self.transport.get_protocol() is self and not self._busy:  # a websocket has another
            self.transport.close()


class Beside(Protocol):
    """What serves the same database in another way."""

    port: int

    def stop(self, seconds: float) -> None:
        """End, within about so long."""


class Server(uvicorn.Server):
    """uvicorn over one database.  `run` returns when it was told to stop and the database is closed.

    alone: whether the process is the server's: then its collector leaves the packages that are loaded be and works on
    the loop's thread, and no thread has the interpreter for more than a millisecond while another one waits.
    beside: begins what serves it in another way; `besides` is what it gave, from when the server is ready.
    Streams of outputs end first, since nobody else would end them; answers have `drain` seconds, then the database
    writes its last checkpoint.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        *places: str,
        ready: Callable[[], None] = lambda: None,
        beside: Callable[[Service], Beside] | None = None,
        alone: bool = False,
    ) -> None:
        self.app: Guard = application(db, settings, *places)
        self.besides: Beside | None = None
        self._ready = ready
        self._beside = beside
        self._alone = alone
        self._collecting: Collecting | None = None
        self._drain = settings.drain
        super().__init__(
            uvicorn.Config(
                self.app, http=_Prompt, ws="websockets-sansio", lifespan="on", log_config=None, access_log=False,
                proxy_headers=False, server_header=False, limit_concurrency=_CONNECTIONS, backlog=_BACKLOG,
                timeout_graceful_shutdown=max(1, round(settings.drain)), ws_max_size=1 << 16,
                ws_per_message_deflate=False, h11_max_incomplete_event_size=1 << 16, timeout_keep_alive=30,
            )
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if self._beside is not None and self.app.service is not None:
                self.besides = self._beside(self.app.service)
            if self._alone:
                sys.setswitchinterval(_TURN)
                self._collecting = Collecting()
            for after in _SETTLED if self._alone else ():
                asyncio.get_running_loop().call_later(after, settle)
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.app.service is not None:
            self.app.service.end_streams()
        if self.besides is not None:
            await asyncio.to_thread(self.besides.stop, self._drain)
        await super().shutdown(sockets)
        if self._collecting is not None:
            self._collecting.stop()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0: any that is free.  Raises ConfigError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio turns off Nagle's algorithm only where the protocol is named: else each answer waits 40 ms for an
        # acknowledgement between its head and its body.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"serve: needed an address that is free; got {host}:{port} ({error.strerror}); name another --port"
        ) from None
    return bound
