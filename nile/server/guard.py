"""Authentication and rate limits: every request passes here before anything reads its content.

Host -> Origin -> rate -> token -> body: refused with a fixed sentence, and counted by reason
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nile.server.client_errors import log
from nile.server.lanes import line_of
from nile.server.settings import LOOPBACK, Settings
from nile.server.tracing import traced

__all__ = ["BEARER", "OPEN", "BodyRefused", "Guard", "client_of"]

OPEN = frozenset({"/", "/health", "/ready", "/openapi.json", "/inspector.js", "/inspector.css"})
"""What needs no token: it tells nothing of what the database holds."""
BEARER = "nile.bearer."
"""Before the token, among the subprotocols of a websocket: where browsers can say it."""
_CLIENTS = 10_000  # whose rates are remembered
_TOLD = {
    "host": (421, "this server does not answer to that name"),
    "origin": (403, "pages of that origin may not ask here"),
    "rate": (429, "too many requests; slow down"),
    "token": (401, "needed the server's token: Authorization: Bearer TOKEN"),
    "large": (413, "the body is larger than this server takes; push in smaller parts"),
    "slow": (408, "the body came too slowly"),
    "length": (400, "needed a length that is a whole number"),
    "streams": (429, "too many open streams; close one"),
}


class BodyRefused(Exception):
    """A body that is too large or too slow: `reason` is one of those of the guard."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Guard:
    """An ASGI application around another.  refused: how often, by reason; open: streams by client; requests: so far."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.refused: Counter[str] = Counter()
        self.requests = 0
        self.service: Any = None
        self.open: Counter[str] = Counter()
        self._settings = settings
        self._hosts = LOOPBACK | {host.lower() for host in settings.hosts}
        self._token = settings.token.encode()
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> (allowance, when it was)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        self.requests += 1
        headers = Headers(scope=scope)
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, headers)
            return
        begun = time.monotonic()
        with traced(scope, headers) as said:

            async def telling(message: Message) -> None:
                if message["type"] == "http.response.start":
                    said(message["status"])
                    if self._settings.log_requests:
                        log(
                            "request", method=scope["method"], path=scope["path"], status=message["status"],
                            client=client_of(scope), seconds=round(time.monotonic() - begun, 4),
                        )  # fmt: skip
                await send(message)

            await self._answer(scope, receive, telling, headers)

    async def _socket(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        reason = self._reason(scope, headers)
        if reason is not None:
            self.refused[reason] += 1
            await send({"type": "websocket.close", "code": 1008, "reason": _TOLD[reason][1]})
            return
        await self.app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        reason = self._reason(scope, headers)
        if reason is not None:
            await self.refusal(reason)(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            async with asyncio.timeout(self._settings.send_wait):
                await send(message)

        try:
            await self.app(scope, self._bounded(receive), sending)
        except TimeoutError:
            self.refused["stalled"] += 1
            line = line_of(scope)
            if line is None:
                raise
            await line.cut()  # what is raised would be a page of traceback in the log, for as many clients as stall

    @contextmanager
    def stream(self, client: str) -> Iterator[bool]:
        """While a stream of this client is open; whether it may be."""
        if self.open[client] >= self._settings.streams:
            yield False
            return
        self.open[client] += 1
        try:
            yield True
        finally:
            self.open[client] -= 1
            if not self.open[client]:
                del self.open[client]

    def refusal(self, reason: str) -> JSONResponse:
        """A fixed sentence, after which the connection goes."""
        self.refused[reason] += 1
        status, told = _TOLD[reason]
        headers = {"connection": "close"}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if status == 429:
            headers["retry-after"] = "1"
        return JSONResponse({"error": told, "kind": reason}, status, headers)

    def _reason(self, scope: Scope, headers: Headers) -> str | None:
        """Why a request is refused; None: it is not."""
        named = headers.getlist("host")
        host = named[0] if len(named) == 1 else ""
        if _name_of(host) not in self._hosts:
            return "host"
        for origin in headers.getlist("origin"):
            if origin not in self._settings.origins and origin not in (f"http://{host}", f"https://{host}"):
                return "origin"
        if not self.in_time(client_of(scope)):
            return "rate"
        if scope["path"] not in OPEN and not any(
            hmac.compare_digest(each.encode("utf-8", "replace"), self._token) for each in _tokens(scope, headers)
        ):
            return "token"
        length = headers.get("content-length")
        if length is not None:
            if "transfer-encoding" in headers:  # who reads which of the two is how requests are smuggled
                return "length"
            if not (length.isascii() and length.isdigit()):
                return "length"
            if len(length) > 18 or int(length) > self._settings.body:
                return "large"
        return None

    def in_time(self, client: str) -> bool:
        """Whether a client may ask once more: `rate` a second on average, `burst` at once."""
        now, settings = time.monotonic(), self._settings
        left, before = self._rates.pop(client, (float(settings.burst), now))
        left = min(float(settings.burst), left + (now - before) * settings.rate)
        self._rates[client] = (max(left - 1, 0.0), now)
        if len(self._rates) > _CLIENTS:
            self._rates.popitem(last=False)
        return left >= 1

    def _bounded(self, receive: Receive) -> Receive:
        """The body, part by part, as long as it is small and quick enough."""
        taken, settings, begun, whole = 0, self._settings, time.monotonic(), False

        async def receiving() -> Message:
            nonlocal taken, whole
            if whole:  # what comes now is only that the client went away
                return await receive()
            left = begun + settings.body_time - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), min(settings.body_wait, max(left, 0.0)))
            except TimeoutError:
                raise BodyRefused("slow") from None
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > settings.body:
                    raise BodyRefused("large")
                whole = not message.get("more_body", False)
            return message

        return receiving


def client_of(scope: Scope) -> str:
    """Whom limits count for: the address at the other end."""
    client = scope.get("client")
    return str(client[0]) if client else "?"


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; empty for what is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return ""
    return (parts.hostname or "") if parts.netloc == host and "@" not in host else ""


def _tokens(scope: Scope, headers: Headers) -> Iterator[str]:
    """Those that a request shows."""
    for value in headers.getlist("authorization"):
        kind, _, token = value.partition(" ")
        if kind.lower() == "bearer":
            yield token.strip()
    if scope["type"] == "websocket":
        for protocol in scope.get("subprotocols", ()):
            if protocol.startswith(BEARER):
                yield protocol.removeprefix(BEARER)
