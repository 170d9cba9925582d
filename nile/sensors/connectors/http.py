"""HTTP endpoints, polled."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NO_VALUE
from nile.summaries.errors import SourceError

__all__ = ["Polled"]

_MOST = 64 << 20
"""Bytes of an answer."""


class Polled(Messages):
    """USING 'http': what a GET of an address answers is a value, once a second; it does not end.

    address: http or https, whose options `every` (seconds) and `time` (where it stands in an answer that is a JSON
    object) are not sent.  With an ETag or Last-Modified an answer that has not changed is no value.  Any answer beyond
    200 to 299 is an error, 304 apart.
    """

    every = 1.0
    timeout = 15.0
    restarts = None

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        parts, self._url, options = options_of(address, ("every", "time"), where="sensors USING 'http'")
        if parts.scheme not in ("http", "https"):
            raise SourceError(f"sensors USING 'http': needed an address with http:// or https://; got {address!r}")
        self.time_name = options.get("time")
        try:
            self.every = float(options.get("every", self.every))
        except ValueError:
            self.every = -1.0
        if not 0 <= self.every <= 1e9:
            raise SourceError(f"sensors USING 'http': needed seconds in every=; got {options['every']!r}")
        self._known: dict[str, str] = {}

    def read(self) -> Any:
        request = urllib.request.Request(self._url, headers=self._known)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                body = answer.read(_MOST + 1)
                headers, left = answer.headers, answer.length
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 304:
                    return NO_VALUE
                raise
        if len(body) > _MOST:
            raise SourceError(f"{self._url}: needed an answer of at most {_MOST} bytes; got more")
        if left:  # which `read` says nothing of: a number that was cut off is another number
            raise ConnectionError(f"an answer was cut off after {len(body)} of {len(body) + left} bytes")
        sent = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
        self._known = {ours: headers[theirs] for theirs, ours in sent.items() if headers[theirs]}
        return self.found([body])
