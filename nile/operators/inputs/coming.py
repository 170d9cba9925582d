"""The streams of a join, read as they come: handed on in the total order, and kept for whoever asks for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nile.base.plain import decoded, decoded_type
from nile.expressions.conditions import Condition
from nile.operators.common.data import JoinInput, Outputs
from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.live import LiveRun
from nile.operators.drive.live_join import LiveJoin
from nile.operators.inputs.home import Home
from nile.operators.inputs.joining import Joinable, Loaded, columns_asked, load_together
from nile.pyramid.grid.manager import Memory
from nile.streams.abreast import Abreast
from nile.streams.accounting import Accounting
from nile.streams.manager import StreamManager, TupleBatch
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["ComingPair", "ComingRun", "ComingStreams", "can_come"]

Array = np.ndarray[Any, Any]
_LAST = int(np.iinfo(np.int64).max)


def can_come(plan: JoinPlan) -> bool:
    """Whether a join of two streams finds the same when it is fed as tuples come: pairs in windows, by a fraction."""
    nile = plan.method == "nile" and plan.strategy in ("", "promise")
    whole = plan.first is not None or plan.ordered  # what comes first is known at the streams' ends
    asked = plan.output == "pairs" and not whole and plan.budget.fraction is not None
    return nile and asked and plan.preferred and plan.window is not None and not plan.pace.is_replay


class ComingStreams:
    """Streams of a join in the order of the statement; one that is named twice is read once.

    streams, keys, where, carry: as `load_together` has them.  Iterate it once, after `waits` said that there is a
    stream to be waited for: of each place (ts, keys) of the tuples that all streams have passed.
    Memory: the tuples, as in `load_together`.  Raises what managers raise.
    """

    def __init__(
        self,
        home: Home,
        streams: Sequence[str],
        keys: Sequence[str],
        where: Sequence[Condition | None],
        carry: Sequence[tuple[str, ...]],
    ) -> None:
        self._asked = (streams, keys, where, carry)
        wanted = columns_asked(streams, keys, where, carry)
        self._managers = {
            name: home.manager(name, columns[0], tuple(dict.fromkeys(columns[1:]))) for name, columns in wanted.items()
        }
        self._places = [
            _Place(self._managers[name], None if key == wanted[name][0] else key, condition)
            for name, key, condition in zip(streams, keys, where, strict=True)
        ]
        self._read: dict[str, list[TupleBatch]] = {name: [] for name in wanted}
        self._ahead: deque[int | None] = deque()
        waiting = [name for name, manager in self._managers.items() if manager.may_wait]
        self._can_wait = bool(waiting)
        self._coming = Abreast({name: _batches(manager) for name, manager in self._managers.items()}, waiting)

    @property
    def _steps(self) -> Iterator[int | None]:
        """What is left to read.  Not held: it holds this, and what was read would outlive whoever reads it."""
        return map(self._take, self._coming)

    def waits(self) -> bool:
        """Whether a stream has to be waited for; else all that can wait are read now (`whole` has them)."""
        for sure in self._steps if self._can_wait else ():
            self._ahead.append(sure)
            if self._coming.waited:
                return True
        return False

    def __iter__(self) -> Iterator[tuple[tuple[Array, ...], tuple[pa.Array, ...]]]:
        try:
            while self._ahead:
                yield self._due(self._ahead.popleft())
            for sure in self._steps:
                yield self._due(sure)
                while self._ahead:  # somebody asked for all of them in between
                    yield self._due(self._ahead.popleft())
            yield self._due(_LAST)
        finally:
            self.close()  # whoever reads no further lets go of the sources

    def whole(self) -> tuple[Loaded, ...]:
        """All streams, read to their ends."""
        if self._can_wait:
            self._ahead.extend(self._steps)
        streams, keys, where, carry = self._asked
        read = self._read if self._can_wait else None
        return load_together(lambda name, *_: self._managers[name], streams, keys, where, carry, read)

    def none(self) -> tuple[Loaded, ...]:
        """The streams before their first tuple."""
        return tuple(
            Loaded(manager.spec.name, np.zeros(0, np.int64), pa.chunked_array([place.no_key]), Accounting(),
                   hasher=manager.spec.hasher)
            for place, manager in ((place, self._managers[name]) for place, name in zip(
                self._places, self._asked[0], strict=True))
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the sources."""
        self._coming.close()

    def held(self, place: int, ordinals: Array) -> tuple[Loaded, Array]:
        """The tuples of a place around those that were handed on with these ordinals, and their places in them."""
        return self._places[place].around(ordinals)

    def _take(self, read: Any) -> int | None:
        if read.item is not None:
            _, batch = read.item
            self._read[read.name].append(batch)
            for place, name in zip(self._places, self._asked[0], strict=True):
                if name == read.name:
                    place.take(batch)
        sure: int | None = read.sure
        return sure

    def _due(self, until: int | None) -> tuple[tuple[Array, ...], tuple[pa.Array, ...]]:
        ts, keys = zip(*(place.due(until) for place in self._places), strict=True)
        return ts, keys


@dataclass(slots=True)
class _Waiting:
    part: Loaded
    begin: int


class _Place:
    """One stream of a statement.  on: the carried column that its key is; None: the manager's key."""

    def __init__(self, manager: StreamManager, on: str | None, where: Condition | None) -> None:
        self._manager = manager
        self._on = on
        self._where = where
        kind = manager.key_type if on is None else manager.source.schema.field(on).type
        self.no_key = pa.array([], decoded_type(kind))
        self._waiting: deque[_Waiting] = deque()
        self._held: list[Loaded] = []
        self._first: list[int] = []
        self._tuples = 0

    def take(self, batch: TupleBatch) -> None:
        """Tuples have come."""
        key = batch.key if self._on is None or batch.carried is None else batch.carried.column(self._on)
        rows = np.arange(batch.ordinal, batch.ordinal + len(batch))
        part = Loaded(self._manager.spec.name, batch.ts, pa.chunked_array([decoded(key)]), Accounting(), batch.carried)
        if self._where is not None:
            part = replace(part, rows=rows).selected(self._where)
        if len(part):
            self._waiting.append(_Waiting(part, 0))

    def due(self, until: int | None) -> tuple[Array, pa.Array]:
        """(ts, keys) of the tuples up to `until`, both ends included; they get the next ordinals, from 0 on."""
        found = []
        while until is not None and self._waiting:
            part, begin = self._waiting[0].part, self._waiting[0].begin
            end = int(np.searchsorted(part.ts, until, side="right"))
            if end > begin:
                found.append(_slice(part, begin, end))
            if end < len(part):
                self._waiting[0].begin = max(begin, end)
                break
            self._waiting.popleft()
        for each in found:
            self._held.append(each)
            self._first.append(self._tuples)
            self._tuples += len(each)
        keys = [chunk for each in found for chunk in each.key.chunks]
        return (
            np.concatenate([np.zeros(0, np.int64), *(each.ts for each in found)]),
            pa.concat_arrays(keys) if keys else self.no_key,
        )

    def around(self, ordinals: Array) -> tuple[Loaded, Array]:
        """As `ComingStreams.held`."""
        if not ordinals.shape[0]:
            return replace(self._together([]), carried=None), ordinals
        begin = bisect_right(self._first, int(ordinals.min())) - 1
        end = bisect_right(self._first, int(ordinals.max()))
        return self._together(self._held[begin:end]), ordinals - self._first[begin]

    def _together(self, parts: list[Loaded]) -> Loaded:
        if len(parts) == 1:
            return parts[0]
        carried = [part.carried for part in parts if part.carried is not None]
        rows = [part.rows for part in parts if part.rows is not None]
        return Loaded(
            self._manager.spec.name,
            np.concatenate([np.zeros(0, np.int64), *(part.ts for part in parts)]),
            pa.chunked_array([chunk for part in parts for chunk in part.key.chunks], self.no_key.type),
            Accounting(),
            pa.concat_batches(carried) if carried else None,
            rows=np.concatenate(rows) if rows else None,
        )


def _slice(part: Loaded, begin: int, end: int) -> Loaded:
    if begin == 0 and end == len(part):
        return part
    return replace(
        part,
        ts=part.ts[begin:end],
        key=part.key.slice(begin, end - begin),
        carried=None if part.carried is None else part.carried.slice(begin, end - begin),
        rows=None if part.rows is None else part.rows[begin:end],
    )


def _batches(manager: StreamManager) -> Generator[tuple[Array, TupleBatch]]:
    for batch in manager.batches(at_once=True):
        yield batch.ts, batch


class ComingPair(Joinable):
    """Two streams that are still coming; what asks for all their tuples waits for them."""

    def __init__(self, coming: ComingStreams, window: int) -> None:
        self.coming = coming
        left, right = coming.none()
        super().__init__(left, right, window)

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """Read to their ends."""
        return self._read

    @cached_property
    def _read(self) -> tuple[Loaded, ...]:
        return self.coming.whole()


class ComingRun:
    """A join under a budget, fed as its streams come: as `PromisingJoin` over all of them, output for output."""

    def __init__(self, plan: JoinPlan, joined: ComingPair) -> None:
        """Raises KeyTypeError for keys that cannot be compared."""
        self._plan = plan
        self._joined = joined
        streams = joined.coming.none()
        self._live = LiveJoin(plan, streams[0].hasher)
        for one in streams:  # keys that never compare are refused before anything is read
            self._live.encode(one.key.combine_chunks())
        self._run = LiveRun(self._live)

    def run(self) -> Iterator[Outputs]:
        """Pairs as they are found.  Raises what reading the streams raises."""
        for ts, keys in self._joined.coming:
            yield from self._run.take(ts, keys)

    @property
    def figures(self) -> JoinFigures:
        """What has been done so far."""
        return self._live.figures

    @property
    def estimate(self) -> Estimate:
        """How many pairs the exact answer has so far."""
        return self._live.estimate

    @property
    def shed(self) -> tuple[int, int]:
        """Tuples of each stream turned away."""
        return self._live.figures.shed

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""
        return self._live.figures.coverage

    @property
    def memory(self) -> Memory:
        """Bytes held by the operator."""
        return self._live.memory

    def expand(self, outputs: Outputs) -> Outputs:
        """Outputs are single ones."""
        return outputs

    @cached_property
    def data(self) -> JoinInput:
        """What it was given, once all has come."""
        return self._joined.input(self._plan.costs, ranges=False)
