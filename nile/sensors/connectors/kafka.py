"""Kafka topics, by the extra `nile-streams[kafka]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NO_VALUE
from nile.summaries.errors import SourceError
from nile.summaries.lazy import lazy

__all__ = ["Silent", "Topic"]

client = lazy("confluent_kafka")
_MOST = 4096
"""Messages of one read."""
_WAIT = 5.0
"""Seconds for the broker to say which partitions there are."""


class Topic(Messages):
    """USING 'kafka': each message of a topic is a value; it does not end.

    address: kafka://host:9092[,host:9092]/topic, with `?partition=` (all there are at the beginning), `from=` earliest
    (the default) or latest, and `time=` (where the time stands in a message that is a JSON object).  It knows the
    offsets that it has read, so that a connection that breaks loses nothing and repeats nothing; it belongs to no
    consumer group, whose members would share what is to be read.
    """

    every = 0.02
    restarts = None

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        where = "sensors USING 'kafka'"
        parts, _, options = options_of(address, ("partition", "from", "time"), where=where)
        topic, start = parts.path.lstrip("/"), options.get("from", "earliest")
        partition = options.get("partition", "")
        if parts.scheme != "kafka" or not parts.netloc or not topic or start not in ("earliest", "latest"):
            raise SourceError(f"{where}: needed kafka://host:9092/topic, from earliest or latest; got {address!r}")
        if partition and not partition.isdecimal():
            raise SourceError(f"{where}: needed a number as partition; got {partition!r}")
        self.time_name = options.get("time")
        given = {
            "bootstrap.servers": parts.netloc, "group.id": "nile", "enable.auto.commit": False,
            "auto.offset.reset": start,
        }  # fmt: skip
        try:
            self._client = client.Consumer(given, logger=Silent())
        except ImportError:
            raise SourceError(f"{where}: needed the package confluent-kafka; install nile-streams[kafka]") from None
        found = self._client.list_topics(topic, timeout=_WAIT).topics[topic]
        there = sorted(found.partitions)
        if found.error is not None or (partition and int(partition) not in there):
            raise ConnectionError(f"topic {topic!r}: {found.error or f'there is no partition {partition}'}")
        self.place = {int(each): at for each, at in (self.place or {}).items()}  # JSON has them as text
        if start == "latest":  # a number, so that what comes between this and the first read is read
            for each in there:
                if each not in self.place:
                    _, end = self._client.get_watermark_offsets(client.TopicPartition(topic, each), timeout=_WAIT)
                    self.place[each] = end
        self._client.assign(
            [
                client.TopicPartition(topic, each, self.place.get(each, client.OFFSET_BEGINNING))
                for each in ([int(partition)] if partition else there)
            ]
        )

    def read(self) -> Any:
        found = self._client.consume(_MOST, 0)
        messages = []
        for message in found:
            error = message.error()
            if error is None:
                messages.append(message.value() or b"")
                self.place[message.partition()] = message.offset() + 1
            elif error.fatal():
                raise ConnectionError(str(error))
        return self.found(messages) if messages else NO_VALUE

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()


class Silent:
    """The client's complaints: what matters comes as an error."""

    def log(self, *_: object, **__: object) -> None:
        """Nothing."""
