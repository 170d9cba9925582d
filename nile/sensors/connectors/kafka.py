"""Kafka topics, by the extra `nile-streams[kafka]`."""

from __future__ import annotations

import math
import time
from collections import deque
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
_PATIENCE = 10.0
"""Seconds without a message for which it is waited for those that were read together before."""
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
        self.place = _offsets(self.place or {})
        if start == "latest":  # a number, so that what comes between this and the first read is read
            for each in there:
                if each not in self.place:
                    _, end = self._client.get_watermark_offsets(client.TopicPartition(topic, each), timeout=_WAIT)
                    self.place[each] = end
        read = [int(partition)] if partition else there
        self.several = len(read) > 1
        self._parts = {each: client.TopicPartition(topic, each) for each in read}
        self._paused: list[Any] = []
        self._held: dict[int, deque[Any]] = {each: deque() for each in read}
        self._heard = time.monotonic()
        self._client.assign(
            [client.TopicPartition(topic, each, self.place.get(each, client.OFFSET_BEGINNING)) for each in read]
        )

    def read(self) -> Any:
        """Messages of one partition after the other, so that where a read ends tells its order."""
        for message in self._client.consume(_MOST, 0):
            error = message.error()
            if error is None:
                self._held[message.partition()].append(message)
                self._heard = time.monotonic()
            elif error.fatal():
                raise ConnectionError(str(error))
        stops = self._stops()
        if stops is None:
            return NO_VALUE
        messages = []
        for part, held in self._held.items():
            while held and held[0].offset() < stops.get(part, math.inf):
                message = held.popleft()
                messages.append(message.value() or b"")
                self.place[part] = message.offset() + 1
        return self.found(messages)

    def _stops(self) -> dict[int, float] | None:
        """Before which offset of each partition to stop; None: not all are there yet that were read together before.

        Waits only so long for a partition that gives nothing: what it had may be gone.
        """
        ahead = self.ahead
        if not ahead:
            if self._paused:
                self._client.resume(self._paused)
                self._paused = []
            return {}
        if time.monotonic() - self._heard > _PATIENCE:
            ahead.clear()
            return {}
        stops, last = _offsets(ahead[0]), _offsets(ahead[-1])
        there = {part: held[-1].offset() + 1 if held else self.place.get(part, 0) for part, held in self._held.items()}
        full = [each for part, each in self._parts.items() if there[part] >= last.get(part, 0)]
        if more := [each for each in full if each not in self._paused]:  # what lies behind need not be held here
            self._client.pause(more)
            self._paused += more
        if any(there.get(part, math.inf) < at for part, at in stops.items()):
            return None
        ahead.pop(0)
        return {part: stops.get(part, 0) for part in self._parts}

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()


def _offsets(place: Mapping[Any, int]) -> dict[int, Any]:
    return {int(part): at for part, at in place.items()}  # JSON has them as text


class Silent:
    """The client's complaints: what matters comes as an error."""

    def log(self, *_: object, **__: object) -> None:
        """Nothing."""
