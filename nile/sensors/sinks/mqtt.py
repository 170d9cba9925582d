"""MQTT topics that rows are published to, by the extra `nile-streams[mqtt]`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote

from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["Published"]

mqtt = lazy("paho.mqtt.client")
_WAIT = 10.0


class Published(Sink):
    """TO MQTT 'mqtt://[user:password@]host[:1883]/topic': a message a row, with qos 1, so that the broker says it has
    it, or `?qos=2`; `&retain=1` has the broker keep the last one for those who come later.
    """

    using = "mqtt"
    form = "mqtt://host/topic without + and #, with qos 1 or 2 and retain 0 or 1"
    own = ("qos", "retain")
    rows = 1000

    def fits(self, parts: SplitResult) -> bool:
        self._topic = unquote(parts.path.lstrip("/"))
        said = self.options.get("qos", "1") in ("1", "2") and self.options.get("retain", "0") in ("0", "1")
        plain = bool(self._topic) and not parts.fragment and not set(self._topic) & {"+", "#"}
        return parts.scheme == "mqtt" and bool(parts.hostname) and plain and said

    def open(self) -> None:
        connected, refused = threading.Event(), []
        try:
            self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        except ImportError:
            raise self.missing("paho-mqtt") from None

        def answered(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            if reason.is_failure:
                refused.append(str(reason))
            connected.set()

        self._client.on_connect = answered
        self._client.connect_timeout = _WAIT / 2
        self._client.max_inflight_messages_set(100)
        if self.parts.username is not None:
            self._client.username_pw_set(unquote(self.parts.username), unquote(self.parts.password or ""))
        self._client.connect(self.parts.hostname, self.parts.port or 1883)
        self._client.loop_start()
        if not connected.wait(_WAIT) or refused:
            raise ConnectionError(f"the broker refuses: {refused[0] if refused else 'no answer'}")

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        qos, retain = int(self.options.get("qos", "1")), self.options.get("retain") == "1"
        given = [self._client.publish(self._topic, each, qos, retain) for each in self.messages(rows, ids)]
        until = time.monotonic() + _WAIT
        for each in given:
            each.wait_for_publish(max(until - time.monotonic(), 0.001))
            if not each.is_published():
                raise ConnectionError("the broker has not acknowledged what was published")

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.disconnect()
            made.loop_stop()
            del self._client
