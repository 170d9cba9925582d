"""Redis streams that rows are added to, by the extra `nile-streams[redis]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from nile.base.show import jsonable
from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["Added"]

client = lazy("redis")


class Added(Sink):
    """TO REDIS 'redis://[user:password@]host[:6379][/database]?stream=key': an entry a row, with a field a column.

    Text and bytes stand as they are, other values as JSON; a column that is null is left out.  `&most=` keeps the
    stream at about so many entries.
    """

    using = "redis"
    form = "redis://host/?stream=key"
    own = ("stream", "most")

    def __init__(self, address: str, schema: pa.Schema) -> None:
        super().__init__(address, schema)
        self._most = self.number("most", 0) or None

    def fits(self, parts: SplitResult) -> bool:
        return parts.scheme in ("redis", "rediss") and bool(parts.hostname) and bool(self.options.get("stream"))

    def open(self) -> None:
        try:
            self._client = client.Redis.from_url(self.url, socket_timeout=10, socket_connect_timeout=5)
        except ImportError:
            raise self.missing("redis") from None
        self._client.ping()

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        key = self.options["stream"]
        with self._client.pipeline(transaction=False) as many:
            for row in self.values(rows, ids):
                entry = {name: _cell(value) for name, value in zip(self.columns, row, strict=True) if value is not None}
                many.xadd(key, entry or {self.columns[0]: "null"}, maxlen=self._most)
            many.execute()

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()


def _cell(value: Any) -> str | bytes:
    return value if isinstance(value, str | bytes) else json.dumps(jsonable(value))
