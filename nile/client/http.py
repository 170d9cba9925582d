"""Requests to a server: small ones over one persistent connection, streams each over one of their own."""

from __future__ import annotations

import http.client
import json
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from nile.summaries import errors
from nile.summaries.errors import ConfigError, NileError, Overloaded, SourceError

__all__ = ["Http", "Streamed", "quoted"]

_WAIT = 60.0  # seconds without a byte; a server says something every 15
_KEPT = 10.0  # seconds for which an idle connection is kept: less than servers wait before they close it
_IDLE = 4  # connections that are kept for the next answers
_OURS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, NileError)}


def quoted(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


class Streamed:
    """An answer that is read as it comes.  Closed once it has come to its end, its connection is used again."""

    def __init__(
        self,
        response: http.client.HTTPResponse,
        connection: http.client.HTTPConnection,
        idles: Callable[[http.client.HTTPConnection], None],
    ) -> None:
        self.read = response.read
        self.readinto = response.readinto
        self._response = response
        self._connection: http.client.HTTPConnection | None = connection
        self._idles = idles

    def close(self) -> None:
        """Let go of it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._response.isclosed() and connection.sock is not None:
            self._idles(connection)
        else:
            self._response.close()
            connection.close()


def _still_there(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing came on a connection that waits for nothing: what comes is its end."""
    try:
        return connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]
    except (OSError, ValueError):  # closed, or numbered beyond what select takes
        return False


class Http:
    """A server's address and token.  Safe for threads: small requests take turns."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        token = token or parts.fragment.removeprefix("token=") or os.environ.get("NILE_TOKEN")
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ConfigError(
                f"connect: needed the address of a server, http://HOST:PORT; got {url.partition('#')[0]!r}"
            )
        if not token:
            raise ConfigError(
                f"connect, token: needed the token of {parts.netloc}; got none; say token=, or set NILE_TOKEN"
            )
        self.place = f"server {parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._token = token
        self._kept: http.client.HTTPConnection | None = None
        self._used = 0.0
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()

    def ask(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str
    ) -> dict[str, Any]:
        """A small request: the JSON object that answers it.  Raises what the server says, SourceError.

        Sent once more where the connection that was kept turns out to be gone; but POST is not, which may have arrived.
        """
        with self._lock:
            for last in (method == "POST", True):
                kept, self._kept = self._kept, None  # what is cut off in the middle is not used again
                if kept is not None and (time.monotonic() - self._used > _KEPT or not _still_there(kept)):
                    kept.close()
                    kept = None
                connection = kept or self._connection()
                try:
                    response = self._send(connection, method, path, body, headers)
                    found = response.read()
                    self._used = time.monotonic()
                    self._kept = connection
                    break
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    if kept is None or last or not isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                        raise self._unreachable(error) from None
                except BaseException:
                    self._kept = None
                    connection.close()
                    raise
        self._check(response.status, found)
        told = json.loads(found)
        return told if isinstance(told, dict) else {}

    def stream(self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str) -> Streamed:
        """A request whose answer is read as it comes; close it.  Raises what the server says, SourceError."""
        connection = self._idling() or self._connection()
        try:
            response = self._send(connection, method, path, body, headers)
            if response.status >= 300:
                self._check(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, NileError):
                raise
            raise self._unreachable(error) from None
        except BaseException:
            connection.close()
            raise
        return Streamed(response, connection, self._idles)

    def _idling(self) -> http.client.HTTPConnection | None:
        """A connection whose last answer was read to its end, if the server still holds it."""
        with self._lock:
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < _KEPT and _still_there(connection):
                    return connection
                connection.close()
        return None

    def _idles(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((connection, time.monotonic()))
            spare = self._idle.pop(0)[0] if len(self._idle) > _IDLE else None
        if spare is not None:
            spare.close()

    def close(self) -> None:
        """Let the connection go."""
        with self._lock:
            if self._kept is not None:
                self._kept.close()
            self._kept = None
            for connection, _ in self._idle:
                connection.close()
            self._idle.clear()

    def _connection(self) -> http.client.HTTPConnection:
        return self._kind(self._host, self._port, timeout=_WAIT)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        given = {"Authorization": f"Bearer {self._token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, Mapping):
            body, given["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, body, given)
        return connection.getresponse()

    def _check(self, status: int, body: bytes) -> None:
        """Raise what a server says that could not do it, as the class it had there."""
        if status < 300:
            return
        try:
            told = json.loads(body)
            message, kind = str(told["error"]), str(told["kind"])
        except (ValueError, LookupError, TypeError):
            message, kind = f"status {status}", ""
        ours = _OURS.get(kind, Overloaded if status in (429, 503) else ConfigError if status < 500 else SourceError)
        raise ours(message if kind in _OURS else f"{self.place}: {message}")

    def _unreachable(self, error: Exception) -> SourceError:
        return SourceError(
            f"{self.place}: needed one that answers; got {type(error).__name__}: {error}; is it up, and where it was?"
        )
