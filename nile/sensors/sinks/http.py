"""HTTP endpoints that rows are posted to."""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa

__all__ = ["Posted"]

_WAIT = 10.0


class Posted(Sink):
    """TO HTTP 'https://[user:password@]host/path': a POST a row, of its message.

    With `?rows=1000` so many rows at most go in one POST, a line each (NDJSON).  Any answer beyond 200 to 299, a
    redirection too, means that the receiver does not have them, and they are posted again.
    """

    using = "http"
    form = "an address with http:// or https://"
    own = ("rows",)

    def __init__(self, address: str, schema: pa.Schema) -> None:
        super().__init__(address, schema)
        self.rows = self.number("rows", 1)
        self._kind = "text/plain; charset=utf-8" if self.plain else "application/json"
        if self.rows > 1:
            self._kind = "application/x-ndjson"

    def fits(self, parts: SplitResult) -> bool:
        return parts.scheme in ("http", "https") and bool(parts.hostname)

    def open(self) -> None:
        self._headers, url = {"Content-Type": self._kind}, self.url
        if self.parts.username is not None:
            told = f"{unquote(self.parts.username)}:{unquote(self.parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(told.encode()).decode()}"
            host = self.parts.netloc.rpartition("@")[2]
            url = urlunsplit(urlsplit(self.url)._replace(netloc=host))
        self._url = url
        self._opener = urllib.request.build_opener(_Straight())

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        body = b"\n".join(self.messages(rows, ids)) + b"\n" * (self.rows > 1)
        request = urllib.request.Request(self._url, body, self._headers, method="POST")
        with self._opener.open(request, timeout=_WAIT) as answer:
            answer.read(1 << 16)

    def close(self) -> None:
        """There is no connection between two posts."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: what was posted would be asked for with GET there."""

    def redirect_request(self, *_: Any) -> None:
        return None
