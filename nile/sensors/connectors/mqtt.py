"""MQTT topics, by the extra `nile-streams[mqtt]`."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NO_VALUE
from nile.summaries.errors import SourceError
from nile.summaries.lazy import lazy

__all__ = ["Topic"]

mqtt = lazy("paho.mqtt.client")
_WAITS = 5.0
_MOST = 4096
"""Messages of one read."""


class Topic(Messages):
    """USING 'mqtt': each message to a topic is a value; it does not end.

    address: mqtt://[user:password@]host[:1883]/topic/with/+/or/%23, with `?qos=` (1), `?time=` (where the time stands
    in a message that is a JSON object) and `?client=`: a name under which the broker keeps what comes while nobody is
    connected.  Messages are acknowledged once they have been read: with qos 1 each comes at least once, as far as the
    broker keeps it.  A connection that breaks is made again.
    """

    restarts = None
    acknowledges = True

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        where = "sensors USING 'mqtt'"
        parts, _, options = options_of(address, ("qos", "time", "client"), where=where)
        topic = unquote(parts.path.lstrip("/")) + (f"#{parts.fragment}" if parts.fragment else "")
        qos = options.get("qos", "1")
        if parts.scheme != "mqtt" or not parts.hostname or not topic or qos not in ("0", "1", "2"):
            raise SourceError(f"{where}: needed mqtt://host/topic, with qos 0, 1 or 2; got {address!r}")
        self.time_name = options.get("time")
        self._waiting: deque[Any] = deque()
        self._taken: list[Any] = []
        self._error: str | None = None
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        name = options.get("client", "")
        try:
            self._client = mqtt.Client(
                mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=not name, manual_ack=True
            )
        except ImportError:
            raise SourceError(f"{where}: needed the package paho-mqtt; install nile-streams[mqtt]") from None
        if parts.username is not None:
            self._client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))

        def connected(client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            if reason.is_failure:
                self._error = f"the broker refuses: {reason}"
                self._ring()
            else:
                client.subscribe(topic, int(qos))

        def arrived(_client: Any, _data: Any, message: Any) -> None:
            self._waiting.append(message)
            self._ring()

        self._client.on_connect, self._client.on_message = connected, arrived
        self._client.connect_timeout = _WAITS
        self._client.connect(parts.hostname, parts.port or 1883)
        self._client.loop_start()

    def fileno(self) -> int:
        return self._bell[0].fileno()

    def read(self) -> Any:
        for message in self._taken:  # what was read before has been given by now
            self._client.ack(message.mid, message.qos)
        if self._error is not None:
            raise SourceError(self._error)
        with contextlib.suppress(BlockingIOError):
            self._bell[0].recv(1 << 16)
        self._taken = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
        if not self._taken:
            return NO_VALUE
        self._ring()  # to be read again: what is left, and what is to be acknowledged
        return self.found(message.payload for message in self._taken)

    def close(self) -> None:
        bell = getattr(self, "_bell", None)
        client = getattr(self, "_client", None)
        if client is not None:
            for message in self._taken if self.given else ():
                client.ack(message.mid, message.qos)
            client.disconnect()
            client.loop_stop()
        for end in bell or ():
            end.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it is rung already, or closed
            self._bell[1].send(b"!")
