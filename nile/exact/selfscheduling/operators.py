"""Operators that call each other and hand up NULL when they have to wait: scans, selections, left-deep window joins.

`get_next` gives a tuple; NULL when every source below has nothing yet; END when none ever will.  So an operator that
has a tuple to work on is never held up by one that has none, and nobody decides who runs but the calls themselves.
Source: STEAM, sections 4 (StreamScan), 6.1 and 6.2.2; TR 02-010, section 3.1.1, figure 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from nile.summaries.errors import ConfigError, TimestampOrderError

__all__ = ["Combined", "Member", "Nothing", "Operator", "PairJoin", "Selection", "StreamScan", "left_deep"]


class Nothing(Enum):
    """What an operator hands up instead of a tuple.  NULL: nothing yet, ask others first; END: nothing ever again."""

    NULL = "null"
    END = "end"


class Member(NamedTuple):
    """A tuple of a stream: its place in it, its time in ns, and the code of its key, below 0 for null."""

    stream: int
    ordinal: int
    ts: int
    code: int


Combined = tuple[Member, ...]
"""Members of different streams, in the order in which the plan joins these."""


class Operator(Protocol):
    """Whatever can be pulled.  streams: those whose members its tuples have, in their order."""

    @property
    def streams(self) -> tuple[int, ...]: ...

    def get_next(self) -> Combined | Nothing: ...


class StreamScan:
    """The queue of a stream, of which the plan reads."""

    def __init__(self, stream: int) -> None:
        self.streams = (stream,)
        self._queue: deque[Combined] = deque()
        self._count = 0
        self._last: int | None = None
        self._ended = False

    def put(self, ts: int, code: int) -> None:
        """Put a tuple at the end of the queue.  Raises ConfigError after `end`, TimestampOrderError if time falls."""
        stream = self.streams[0]
        if self._ended:
            raise ConfigError(f"stream {stream}: needed a stream that goes on; it has ended; put tuples before that")
        if self._last is not None and ts < self._last:
            raise TimestampOrderError(
                f"stream {stream}: needed a time of {self._last} ns or later; got {ts}; sort it by time"
            )
        self._last = ts
        self._queue.append((Member(stream, self._count, ts, code),))
        self._count += 1

    def end(self) -> None:
        """No tuple comes after those that wait."""
        self._ended = True

    def get_next(self) -> Combined | Nothing:
        """The oldest tuple that waits."""
        if self._queue:
            return self._queue.popleft()
        return Nothing.END if self._ended else Nothing.NULL


class Selection:
    """Tuples that satisfy a condition; where one does not it goes on looking, and does not hand up NULL for it."""

    def __init__(self, source: Operator, condition: Callable[[Combined], bool]) -> None:
        self.streams = source.streams
        self._source, self._condition = source, condition

    def get_next(self) -> Combined | Nothing:
        """The next tuple that satisfies the condition."""
        while True:
            got = self._source.get_next()
            if isinstance(got, Nothing) or self._condition(got):
                return got


class PairJoin:
    """NLW-join: m-tuples of the left with tuples of one stream, equal keys and every two within the window.

    A tuple leaves when it lies further than the window behind the newest of every stream of the other side, as far as
    it has shown them.  O(what is kept) for each tuple.
    """

    def __init__(self, left: Operator, right: StreamScan | Selection, window: int) -> None:
        if window < 0:
            raise ConfigError(
                f"self-scheduled join: needed a window of 0 or more; got {window}; give it in nanoseconds"
            )
        self.streams = left.streams + right.streams
        self.window = window
        self._sources: tuple[Operator, Operator] = (left, right)
        self._kept: tuple[list[Combined], list[Combined]] = ([], [])
        self._newest: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._turn = 0
        self._found: deque[Combined] = deque()

    @property
    def kept(self) -> tuple[int, int]:
        """Tuples kept of the left and of the right."""
        return len(self._kept[0]), len(self._kept[1])

    def get_next(self) -> Combined | Nothing:
        """The next combination; sides take turns, and one that has nothing yet is passed over."""
        while not self._found:
            left = self._taken(self._turn)
            if left is None:
                continue
            right = self._taken(self._turn)
            if right is None:
                continue
            return Nothing.END if left is right is Nothing.END else Nothing.NULL
        return self._found.popleft()

    def _taken(self, side: int) -> Nothing | None:
        """Take a tuple of a side and join it: None, or why there is none; then it is the other side's turn."""
        self._turn = 1 - side
        got = self._sources[side].get_next()
        if isinstance(got, Nothing):
            return got
        newest = self._newest[side]
        for member in got:
            newest[member.stream] = max(member.ts, newest.get(member.stream, member.ts))
        self._kept[side].append(got)
        # What comes of this side has a member no older than the newest of its stream: it is out of reach of all below.
        whole = len(newest) == len(self._sources[side].streams)
        since = min(newest.values()) - self.window if whole else None
        stay = []
        for other in self._kept[1 - side]:
            if since is not None and min(member.ts for member in other) < since:
                continue
            stay.append(other)
            if self._joins(got, other):
                self._found.append(got + other if side == 0 else other + got)
        self._kept[1 - side][:] = stay
        return None

    def _joins(self, one: Combined, other: Combined) -> bool:
        times = [member.ts for member in one + other]
        return one[0].code == other[0].code >= 0 and max(times) - min(times) <= self.window


def left_deep(sources: Sequence[StreamScan | Selection], window: int) -> Operator:
    """A plan that joins two or more sources, the first two lowest.  Raises ConfigError."""
    if len(sources) < 2:
        raise ConfigError(f"self-scheduled join: needed 2 sources or more; got {len(sources)}; name them all")
    plan: Operator = sources[0]
    for source in sources[1:]:
        plan = PairJoin(plan, source, window)
    return plan
