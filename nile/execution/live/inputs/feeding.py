"""Values of sensors, pushed to the standing query that reads them by one thread per table."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nile.base.times import TIME_LIMIT
from nile.execution.exact.run import last_instant
from nile.execution.live.inputs.mined import MinedStream
from nile.execution.live.subscription import Subscription
from nile.execution.reading import own_condition
from nile.mining.call import Call, Mined
from nile.mining.source import Miner
from nile.sensors.source import SensorsSource
from nile.sensors.table import TIME
from nile.sql.plan import Query, Stream, leaves_of
from nile.streams.live import LiveStream
from nile.summaries.errors import Overloaded
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["Feed", "inputs_of"]

_ROWS = 4096
_AGAIN = 0.05
"""Seconds until rows that a full query refused are pushed again; meanwhile the queue of its sources holds them."""


class Names(Protocol):
    """What names stand for."""

    def sensors(self, name: str) -> SensorsSource | None:
        """A table of sensors; None where that is none."""

    def miner(self, call: Call) -> Miner:
        """A new one for a call.  Raises ConfigError, UnknownStream."""


class Feed:
    """A live stream of what a table of sensors gives to one standing query.

    The sources run in the table's own threads and wait in its queue, which spills, while a query is full.
    """

    def __init__(self, name: str, source: SensorsSource, query: Query) -> None:
        spec = source.table.spec
        lateness = spec.lateness or (None if spec.idle is None else 0)
        self.stream = LiveStream(name, source.schema, TIME, lateness=lateness, keep=0, idle=spec.idle)
        self._source = source
        self._query = query
        self._scan = source.scan()

    def start(self, reader: Subscription, live: Live) -> None:
        """Begin the sources.  They end with the query, which ends with them where it reads nothing else."""
        self.stream.listeners.append(partial(live.standing.arrived, self.stream))
        reader.ending.append(partial(self.stop, live))
        live.fed.append(self.stream)
        live.idleness.heard(self.stream)
        threading.Thread(target=self._run, args=(reader, live), name="nile sensors feed", daemon=True).start()

    def stop(self, live: Live) -> None:
        """Close the sources that nobody else reads."""
        if self.stream in live.fed:
            live.fed.remove(self.stream)
        self._source.manager.close(self._scan)

    def _run(self, reader: Subscription, live: Live) -> None:
        try:
            for raw in self._source.read(self._scan, self.stream.schema.names, _ROWS):
                while raw.batch.num_rows and not reader.closed and not self._taken(raw.batch, live):
                    time.sleep(_AGAIN)
            self._finish(reader, live)
        except BaseException as error:  # this thread has nobody above it who would hear of SystemExit
            reader.fail(error)

    def _taken(self, rows: pa.RecordBatch, live: Live) -> bool:
        """Whether a batch was taken; not while the query has too much unread."""
        with live.lock:
            live.commits.check()
            try:
                live.standing.wait_for_readers(self.stream)
            except Overloaded:
                return False
            live.standing.check_state(self.stream, live.memory)
            live.take(self.stream, list(self.stream.admitted(rows)), fed=True)
            live.commits.complain()
            return True

    def _finish(self, reader: Subscription, live: Live) -> None:
        with live.lock:
            if not reader.closed:
                with live.commits:
                    self.stream.close()
                    if all(each.closed for each in reader.streams.values()):
                        # Windows and ticks that are open end as those of a finite stream do: nothing comes any more.
                        latest = max(each.latest for each in reader.streams.values())
                        if latest > -TIME_LIMIT:
                            self.stream.passed = last_instant(self._query.plan, latest)
                        reader.finish()
                    else:
                        reader.progress()
                live.commits.complain()


def inputs_of(query: Query, names: Names, live: Mapping[str, LiveStream]) -> list[Feed | MinedStream]:
    """What makes the streams of a query that nobody pushes to: of sensors, and of table functions over live streams.

    Those come after what they are made of.
    """
    leaves = [leaf for leaf in leaves_of(query.plan) if isinstance(leaf, Stream)]
    calls = [leaf.name for leaf in leaves if isinstance(leaf.name, Mined)]
    called = {name.call.stream for name in calls}
    feeds = {}
    for name in dict.fromkeys([*(leaf.name for leaf in leaves), *called]):
        if (source := names.sensors(name)) is not None:
            wanted = [own_condition(leaf) for leaf in leaves if leaf.name == name]
            feeds[name] = Feed(name, source if name in called else source.narrowed(wanted), query)
    known = {**live, **{name: feed.stream for name, feed in feeds.items()}}
    mined = dict.fromkeys(name for name in calls if name.call.stream in known)
    return [
        *feeds.values(),
        *(MinedStream(name, names.miner(name.call), known[name.call.stream]) for name in mined),
    ]
