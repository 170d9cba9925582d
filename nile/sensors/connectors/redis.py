"""Redis streams, by the extra `nile-streams[redis]`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NEW_VALUE, NO_VALUE
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["RedisStream"]

client = lazy("redis")
_MOST = 4096
"""Entries of one read."""


class RedisStream(Messages):
    """USING 'redis': each entry of a stream is a value; it does not end.

    address: redis://[user:password@]host[:6379][/database]?stream=key, with `&from=`: the id behind which to begin, 0
    for all there are (the default), $ for those to come.  The entry's fields are the stream's, by name; what is not
    TEXT or BLOB is read as JSON.  The time is the milliseconds of the entry's id, or with `&time=` the field of that
    name.  It knows the id that it has read, so that a connection that breaks loses nothing and repeats nothing.
    """

    every = 0.02
    restarts = None

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        where = "sensors USING 'redis'"
        parts, url, options = options_of(address, ("stream", "from", "time"), where=where)
        if parts.scheme not in ("redis", "rediss") or not options.get("stream"):
            raise SourceError(f"{where}: needed redis://host/?stream=key; got {address!r}")
        self._key, self.time_name = options["stream"], options.get("time")
        try:
            self._client = client.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        except ImportError:
            raise SourceError(f"{where}: needed the package redis; install nile-streams[redis]") from None
        self._client.ping()
        if self.place is None:
            self.place = options.get("from", "0")
            if self.place == "$":
                last = self._client.xrevrange(self._key, count=1)
                self.place = last[0][0] if last else "0"

    def read(self) -> Any:
        found = self._client.xread({self._key: self.place}, count=_MOST)
        entries = next(iter(found.values()))[0] if isinstance(found, dict) and found else found and found[0][1]
        if not entries:
            return NO_VALUE
        values, times = [], []
        for number, entry in entries:
            if entry is None:  # it was deleted
                continue
            value = {
                name: self._cell(entry[name.encode()], name) for name in self.fields.names if name.encode() in entry
            }
            if self.time_name is None:
                at: Any = int(number.split(b"-")[0]) / 1000
            else:
                said = entry.get(self.time_name.encode(), b"").decode("utf-8", "replace")
                at = _number(said)
            values.append(value)
            times.append(at)
        self.place = entries[-1][0]
        return NEW_VALUE, values, times

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()

    def _cell(self, text: bytes, name: str) -> Any:
        kind = self.fields.field(name).type
        if pa.types.is_binary(kind):
            return text
        try:
            return text.decode() if pa.types.is_string(kind) else json.loads(text)
        except ValueError:
            return text.decode() if pa.types.is_temporal(kind) else object()  # which fits no field


def _number(said: str) -> Any:
    """Seconds where it is a number, else the text."""
    try:
        return float(said)
    except ValueError:
        return said
