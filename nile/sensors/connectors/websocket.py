"""Websockets that others send over, by the extra `nile-streams[websocket]`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import END, NO_VALUE
from nile.summaries.errors import SourceError
from nile.summaries.lazy import lazy

__all__ = ["Listened"]

client = lazy("websockets.sync.client")
closing = lazy("websockets.exceptions")
_MOST = 4096
"""Messages of one read."""
_LARGEST = 64 << 20
"""Bytes of a message."""


class Listened(Messages):
    """USING 'websocket': each message that the other end sends is a value, until it says goodbye (code 1000).

    address: ws:// or wss://, whose options `time` (where it stands in a message that is a JSON object) and `say` (a
    text that is sent first, as some servers want it) are not part of the address.  A connection that breaks is made
    again; what was sent meanwhile is lost, since websockets have no place to go on from.
    """

    every = 0.02
    restarts = None

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        where = "sensors USING 'websocket'"
        parts, url, options = options_of(address, ("time", "say"), where=where)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise SourceError(f"{where}: needed an address with ws:// or wss://; got {address!r}")
        self.time_name = options.get("time")
        try:
            connect = client.connect
        except ImportError:
            raise SourceError(f"{where}: needed the package websockets; install nile-streams[websocket]") from None
        self._held = contextlib.ExitStack()
        self._client = self._held.enter_context(
            connect(url, open_timeout=5, close_timeout=1, max_size=_LARGEST, proxy=None)
        )
        if (first := options.get("say")) is not None:
            self._client.send(first)

    def read(self) -> Any:
        messages: list[bytes] = []
        try:
            while len(messages) < _MOST:
                message = self._client.recv(timeout=0)
                messages.append(message.encode() if isinstance(message, str) else message)
        except TimeoutError:
            pass
        except closing.ConnectionClosedOK as closed:
            if not messages:
                if closed.rcvd is not None and closed.rcvd.code == 1000:
                    return END
                raise ConnectionError(f"the other end has gone: {closed}") from None
        except closing.ConnectionClosed as closed:
            if not messages:
                raise ConnectionError(f"the connection broke: {closed}") from None
        return self.found(messages) if messages else NO_VALUE

    def close(self) -> None:
        if hasattr(self, "_held"):
            self._held.close()
