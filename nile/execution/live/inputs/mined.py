"""The stream that a table function makes of a live one, for one standing query."""

from __future__ import annotations

from nile.execution.live.subscription import Subscription
from nile.mining.call import Mined
from nile.mining.source import Miner
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.heavy import pa

__all__ = ["MinedStream"]


class MinedStream:
    """Follows a live stream, as a part of every change of it: what tuples decide comes with them."""

    def __init__(self, name: Mined, miner: Miner, base: LiveStream) -> None:
        self.stream = LiveStream(name, miner.schema, miner.schema.names[0], keep=0)
        self.stream.base = base
        self._miner = miner
        self._base = base

    def start(self, reader: Subscription, _: object) -> None:
        """From now on, until the query ends."""
        self.stream.listeners.append(lambda name, batch: reader.arrived(name, batch))
        self._reader = reader
        self._base.listeners.append(self._arrived)
        self._base.followers.append(self)
        reader.ending.append(self._stop)

    def advanced(self, now: int) -> None:
        """No tuple before `now` (ns) will come."""
        self.stream.advance(now)

    def ended(self) -> None:
        """No tuple will come."""
        self._take(self._miner.finish())
        self.stream.close()

    def _stop(self) -> None:
        self._base.listeners.remove(self._arrived)
        self._base.followers.remove(self)

    def _arrived(self, _: str, batch: TupleBatch) -> None:
        assert batch.carried is not None
        self._take(self._miner.push(batch.ts, batch.carried))
        self.stream.advance(int(batch.ts[-1]))
        self._reader.progress()

    def _take(self, found: pa.RecordBatch) -> None:
        if found.num_rows:
            self.stream.take(list(self.stream.admitted(found)))
