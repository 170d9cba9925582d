"""Websockets that rows are sent over, by the extra `nile-streams[websocket]`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from urllib.parse import SplitResult

from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["Said"]

client = lazy("websockets.sync.client")
_WAIT = 10.0
_LARGEST = 64 << 20
"""Bytes of a message that the other end may say."""


class Said(Sink):
    """TO WEBSOCKET 'ws://host/path', or wss://: a message a row, of text, or of bytes where it is a BLOB.

    After each batch a ping asks whether the other end has read that far; what it says itself is not listened to.
    """

    using = "websocket"
    form = "an address with ws:// or wss://"

    def __init__(self, address: str, schema: pa.Schema) -> None:
        super().__init__(address, schema)
        self._bytes = self.plain and pa.types.is_binary(schema.field(0).type)

    def fits(self, parts: SplitResult) -> bool:
        return parts.scheme in ("ws", "wss") and bool(parts.hostname)

    def open(self) -> None:
        try:
            connect = client.connect
        except ImportError:
            raise self.missing("websockets") from None
        self._held = contextlib.ExitStack()
        self._client = self._held.enter_context(
            connect(self.url, open_timeout=_WAIT / 2, close_timeout=1, max_size=_LARGEST, proxy=None)
        )

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        for message in self.messages(rows, ids):
            self._client.send(message, text=not self._bytes)
        reached, until = self._client.ping(), time.monotonic() + _WAIT
        while not reached.wait(0.02):
            with contextlib.suppress(TimeoutError):  # a pong behind messages that nobody takes would not come
                while True:
                    self._client.recv(timeout=0)
            if time.monotonic() > until:
                raise TimeoutError("the other end does not say that it has read what was sent")

    def close(self) -> None:
        if hasattr(self, "_held"):
            self._held.close()
