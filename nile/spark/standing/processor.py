"""What Spark calls for each part of a standing query: a stateful processor of `transformWithState`.

Spark keeps the state of a part by its number, commits it with the offsets of the sources, and goes back to it after a
crash; so tuples are in it exactly once.  Every part is woken by every micro-batch: it is told how far the streams have
come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nile.spark.settling import settle_worker
from nile.spark.standing.carrying import as_bytes, batches_of
from nile.spark.standing.partition import Asked, Partition, Told, told_of
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["STATE", "WORTH", "Last", "Parts"]

STATE, WORTH = "part", "worth"


class Last:
    """The part that a worker had last: it goes on as it is where Spark has the state that it left.

    Law: it tells what one made from that state tells, and leaves the same bytes.  Memory: one part.
    """

    def __init__(self) -> None:
        self._left: tuple[str, int, bytes, Partition] | None = None

    def take(self, asked: str, plan: Asked, number: int, state: bytes | None) -> Partition:
        """The part of a query with this state; asked: the query, as of `Asked.as_json`.

        Nobody else gets it: one that fails amid a micro-batch is not gone on with.
        """
        left, self._left = self._left, None
        if left is not None and left[:3] == (asked, number, state):
            return left[3]
        return Partition(plan, state, number)

    def leave(self, asked: str, number: int, state: bytes, part: Partition) -> None:
        """It is done with a micro-batch; state: what it captured."""
        self._left = asked, number, state, part


_last = Last()


class Parts:
    """asked: of `Asked.as_json`.  Spark hands a copy to each task, and asks only for the methods below."""

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def init(self, handle: Any) -> None:
        """Before a task begins."""
        self._handle = handle
        self._plan = Asked.from_json(self._asked)
        self._state = handle.getValueState(STATE, "bytes binary")
        self._worth = handle.getValueState(WORTH, "told string")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """The rows of a part in a micro-batch."""
        came: dict[str, list[pa.RecordBatch]] = {}
        counted: list[tuple[int, bytes]] = []
        reached: dict[str, int] = {}
        for frame in rows:
            for stream, latest, data in zip(frame["stream"], frame["reached"], frame["rows"], strict=True):
                name = self._plan.streams[int(stream if stream >= 0 else -1 - stream)].name
                if stream >= 0:
                    came.setdefault(name, []).extend(batches_of(data))
                    continue
                reached[name] = max(int(latest), reached.get(name, int(latest)))
                if data is not None:
                    counted.append((-1 - int(stream), data))
        tables = {name: pa.Table.from_batches(batches) for name, batches in sorted(came.items())}
        counts = [(stream, told_of(next(batches_of(data)))) for stream, data in sorted(counted)]
        yield from self._go_on(int(key[0]), tables, dict(sorted(reached.items())), counts)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """There is none."""

    def close(self) -> None:
        """After a task."""

    def _go_on(
        self, number: int, tables: dict[str, pa.Table], reached: dict[str, int], counts: list[tuple[int, Told]]
    ) -> Iterator[pd.DataFrame]:
        import pandas

        before = self._state.get()[0] if self._state.exists() else None
        part = _last.take(self._asked, self._plan, number, None if before is None else bytes(before))
        found = list(part.take(tables, reached, counts))
        state = part.capture()
        self._state.update((state,))
        self._worth.update((part.worth(len(state)).as_json(),))
        _last.leave(self._asked, number, state, part)
        if found:
            yield pandas.DataFrame({"rows": [as_bytes(found)]})
        settle_worker()
