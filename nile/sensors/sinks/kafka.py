"""Kafka topics that rows are produced to, by the extra `nile-streams[kafka]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from nile.sensors.connectors.kafka import Silent
from nile.sensors.sinks.sink import Sink
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["Produced"]

client = lazy("confluent_kafka")
_WAIT = 10.0


class Produced(Sink):
    """TO KAFKA 'kafka://host:9092[,host:9092]/topic': a message a row, acknowledged by all replicas in sync.

    With `?key=column` its value, as text, is the message's key: messages of one key stay in their order.  What is sent
    again within one connection comes once (an idempotent producer).
    """

    using = "kafka"
    form = "kafka://host:9092/topic"
    own = ("key",)

    def __init__(self, address: str, schema: pa.Schema) -> None:
        super().__init__(address, schema)
        key = self.options.get("key")
        if key is not None and schema.names.count(key) != 1:
            raise SourceError(f"{self.where}: needed a column in key= ({', '.join(schema.names)}); got {key!r}")
        self._key = None if key is None else schema.names.index(key)
        self._topic = self.parts.path.lstrip("/")

    def fits(self, parts: SplitResult) -> bool:
        return parts.scheme == "kafka" and bool(parts.netloc) and bool(parts.path.lstrip("/"))

    def open(self) -> None:
        given = {
            "bootstrap.servers": self.parts.netloc, "enable.idempotence": True, "linger.ms": 5,
            "message.timeout.ms": int(_WAIT * 1000), "queue.buffering.max.messages": 2 * self.rows,
        }  # fmt: skip
        try:
            self._client = client.Producer(given, logger=Silent())
        except ImportError:
            raise self.missing("confluent-kafka") from None

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        failed: list[Any] = []

        def told(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        keys: list[str | None] = [None] * rows.num_rows
        if self._key is not None:
            keys = [None if key is None else str(key) for key in rows.column(self._key).to_pylist()]
        for message, key in zip(self.messages(rows, ids), keys, strict=True):
            self._client.produce(self._topic, message, key=key, on_delivery=told)
        left = self._client.flush(_WAIT + 2.0)
        if failed or left:
            raise ConnectionError(f"topic {self._topic!r}: {failed[0] if failed else f'{left} not acknowledged'}")

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.purge()  # what nobody has acknowledged is sent by the next one
            made.flush(1.0)
            del self._client
