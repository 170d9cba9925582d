"""A part of several plans that runs once, and the operator by which each of their pipelines reads it.

Whoever is asked for an instant first lets the part come to it; for the others what came out waits in queues of their
own, cut where it was asked for.  The part has the columns that any of them reads, and each takes its own.  A captured
state is that of a pipeline that has the part for itself.  Source: STREAM (CIDR 2003), sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

import numpy as np

from nile.exact.pipeline.figures import Counted, Figures, Path, Told
from nile.exact.pipeline.schedule import EARLIEST, Delta, empty
from nile.exact.pipeline.sources.counts import counts_of
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.pipeline.sources.stream_join import StreamJoining
from nile.exact.plan.algebra import Plan, Scan, walk
from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import Numbers, picked
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State

if TYPE_CHECKING:
    from nile.exact.pipeline.build import Built

__all__ = ["Follower", "Part", "narrowed"]


def narrowed(value: Any, names: Sequence[str] | None) -> Any:
    """A copy of a state whose rows have only the columns of these names, in their order; None: all columns."""
    if isinstance(value, dict):
        return {name: narrowed(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [narrowed(each, names) for each in value]
    if isinstance(value, pa.RecordBatch) and names is not None:
        had = value.schema.names
        return value.select([had.index(name) for name in names if name in had])
    return value


class Part:
    """Operators at work for several pipelines.  root, built: as of `build`; done: the instant they have come to."""

    HELD: ClassVar = ("root", "_built", "done")
    DERIVED: ClassVar = ("_followers", "_fault")

    def __init__(self, root: Counted, built: Built) -> None:
        self.root = root
        self._built = built
        self.done = EARLIEST
        self._followers: WeakSet[Follower] = WeakSet()
        self._fault: Exception | None = None

    def follow(self, one: Follower) -> None:
        """One more that reads it, from here on."""
        self._followers.add(one)

    def leave(self, one: Follower) -> None:
        """One less."""
        self._followers.discard(one)

    def push(self, name: str, ts: Array, rows: Any) -> None:
        """Tuples of one stream, in time order, which no instant needs that it has come to."""
        for each in self.arrivals:
            if each.scan.name == name:
                each.push(ts, rows)

    def come_to(self, to: int) -> None:
        """Work up to an instant, and put what comes out into all queues.  Raises, to all who ask, what that raises."""
        if self._fault is not None:
            raise self._fault
        try:
            delta = self.root.step(to)
        except Exception as error:
            self._fault = error
            raise
        self.done = to
        for each in self._followers:
            each.waiting.append((to, delta))

    @property
    def arrivals(self) -> Sequence[Incoming]:
        """What comes to its leaves."""
        return self._built.arrivals

    @property
    def entries(self) -> Sequence[Counted]:
        """Its operators, inputs before what reads them."""
        return self._built.all

    def next_leaving(self, n: int) -> int | None:
        """As of a stream: the earliest of its streams."""
        return min((at for each in self._built.streams if (at := each.next_leaving(n)) is not None), default=None)

    @property
    def negative(self) -> int:
        """Tuples that have left its windows."""
        return sum(each.negative for each in self._built.streams)

    @property
    def pairs(self) -> int:
        """Pairs that its joins have made."""
        return sum(each.pairs for each in self._built.joins)

    def capture(self) -> list[State]:
        """The states of its operators, with all columns."""
        return [each.capture() for each in self.entries]

    def end(self) -> None:
        """Nobody reads it any more: what its join holds together with others is no longer held for it, and no part
        below works for it.
        """
        for each in self._built.joins:
            if isinstance(each, StreamJoining):
                each.windows.joins.discard(each)
        for one in self._built.followers:
            one.part.leave(one)

    def restore(self, states: Sequence[State], done: int) -> None:
        """Put captured states into a new one, which goes on after `done`.  Raises EnvelopeError."""
        self.done = done
        for each, state in zip(self.entries, states, strict=True):
            each.restore(Held(state, "state of a part of a query"))


class Follower:
    """A part of a plan that is at work elsewhere.  plan: the part as this pipeline has it; path: where.

    waiting: (an instant it was asked for, what changed) of each step of the part that this one has not taken.
    """

    HELD: ClassVar = ("waiting", "_now", "_more")
    DERIVED: ClassVar = ("KIND", "part", "schema", "_picks", "_places", "_names", "below", "arrivals", "told")

    def __init__(self, part: Part, plan: Plan, path: Path) -> None:
        self.part = part
        self.KIND = part.root.operator.KIND
        self.schema = plan.schema
        own, given = plan.schema.names, part.root.schema.names
        self._picks = None if own == given else tuple(given.index(name) for name in own)
        self._places = tuple(range(len(own))) if self._picks is None else self._picks
        self._names = [name for node in walk(plan) if isinstance(node, Scan) for name in node.schema.names]
        self.waiting: deque[tuple[int, Delta]] = deque()
        self._now = part.done
        self._more: dict[int, list[Any]] = {}
        """Of each operator how much more this pipeline has counted than the part."""
        self.below = [_Below(self, k) for k in range(len(part.entries) - 1)]
        self.arrivals = [_Followed(self, each) for each in part.arrivals]
        self.told: list[Told] = [partial(_beneath, each, path) for each in part.root.told]
        part.follow(self)

    def step(self, to: int) -> Delta:
        """What the part changes up to `to`."""
        if self.part.done < to:
            self.part.come_to(to)
        self._now, waiting = to, self.waiting
        found = []
        while waiting and waiting[0][0] <= to:
            found.append(waiting.popleft()[1])
        if waiting and (cut := int(waiting[0][1].ts.searchsorted(to, "right"))):
            asked, delta = waiting[0]
            found.append(_sliced(delta, 0, cut))
            waiting[0] = asked, _sliced(delta, cut, len(delta))
        delta = found[0] if len(found) == 1 else _end_to_end(found, self.part.root.schema)
        own = delta.given
        if self._picks is not None or type(own) is Numbers:  # which those above may change
            own = picked(own, self._places, self.schema)
        return delta.made_into(own)

    def time(self) -> int:
        """GetTime: how far this pipeline has read."""
        return self._now

    def contents(self) -> Any:
        """The rows that hold now."""
        assert not self.waiting
        rows = self.part.root.contents()
        return rows if self._picks is None else rows.select(list(self._picks))

    def next_leaving(self, n: int) -> int | None:
        """As of a stream; nobody asks while something waits, whose instants come first."""
        return None if self.waiting else self.part.next_leaving(n)

    @property
    def negative(self) -> int:
        """As of the part."""
        return self.part.negative

    @property
    def pairs(self) -> int:
        """As of the part."""
        return self.part.pairs

    @property
    def memory(self) -> int:
        """As of the part, whoever else reads it."""
        return self.part.root.memory

    def capture(self) -> State:
        """As of the part's topmost operator in a pipeline of its own."""
        return self.own(-1, self._of_part(-1))

    def restore(self, held: Held) -> None:
        """Go on from the state of one that had the part for itself, which is that of the part but for counts."""
        self.differ(-1, held.rest(), self._of_part(-1))

    def _of_part(self, k: int) -> State:
        assert not self.waiting
        assert self.part.done == self._now
        return self.part.entries[k].operator.capture()

    def own(self, k: int, state: State) -> State:
        """The state of the k-th operator as if this pipeline had the part for itself."""
        state = state if self._picks is None else narrowed(state, self._names)
        for (where, name), more in zip(counts_of(state), self._more.get(k, ()), strict=k in self._more):
            where[name] = where[name] + more
        return state

    def differ(self, k: int, mine: State, theirs: State) -> None:
        """Keep by how much the counts of the k-th operator differ."""
        pairs = zip(counts_of(mine), counts_of(theirs), strict=True)
        self._more[k] = [here[name] - there[same] for (here, name), (there, same) in pairs]


class _Below:
    """An operator of a part below its topmost, as one pipeline that reads the part tells of it."""

    HELD: ClassVar = ()
    DERIVED: ClassVar = ("_follower", "_k", "memory")

    def __init__(self, follower: Follower, k: int) -> None:
        self._follower = follower
        self._k = k

    def capture(self) -> State:
        """As of the operator in a pipeline of its own."""
        return self._follower.own(self._k, self._follower.part.entries[self._k].capture())

    def restore(self, held: Held) -> None:
        """As of the follower."""
        self._follower.differ(self._k, held.rest(), self._follower.part.entries[self._k].capture())


class _Followed:
    """What comes to a leaf of a part, as one pipeline that reads the part sees it: whoever runs the part pushes it."""

    HELD: ClassVar = ()
    DERIVED: ClassVar = ("scan", "memory", "_follower", "_arrivals")

    def __init__(self, follower: Follower, arrivals: Incoming) -> None:
        self.scan = arrivals.scan
        self.memory = 0
        self._follower = follower
        self._arrivals = arrivals

    def push(self, ts: Array, rows: Any, named: Any = None) -> None:
        """Nothing."""

    def nth(self, n: int) -> int | None:
        """The instant of what waits, so that it is asked for as it was; else as of the leaf."""
        return self._follower.waiting[0][0] if self._follower.waiting else self._arrivals.nth(n)

    def waiting(self, to: int) -> int:
        """As of the leaf."""
        return self._arrivals.waiting(to)

    @property
    def taken(self) -> int:
        """As of the leaf."""
        return self._arrivals.taken


def _beneath(told: Told, path: Path) -> list[Figures]:
    return [replace(each, path=None if each.path is None else (*path, *each.path)) for each in told()]


def _sliced(delta: Delta, begin: int, end: int) -> Delta:
    times = None if delta.times is None else delta.times[begin:end]
    return Delta(delta.ts[begin:end], delta.sign[begin:end], delta.given.slice(begin, end - begin), None, times)


def _end_to_end(found: Sequence[Delta], schema: Any) -> Delta:
    found = [each for each in found if len(each)]
    if not found:
        return empty(schema)
    ts, sign = (np.concatenate(each) for each in zip(*((each.ts, each.sign) for each in found), strict=True))
    times = None if found[0].times is None else np.concatenate([each.times for each in found if each.times is not None])
    return Delta(ts, sign, joined([each.rows for each in found], schema), None, times)
