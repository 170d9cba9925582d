"""The window join of n streams, each with a queue of its own, as an operator that schedules itself.

Tuples of one stream come in the order of their times; between streams there is no order, and any of them may be late,
silent or dead.  `bew` joins each tuple with what is kept as soon as its turn comes.  `few` waits until it knows a
tuple of each stream within the window of each other, so that it never checks a window again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.exact.join.checks import known, whole_numbers
from nile.exact.selfscheduling.operators import Nothing
from nile.exact.selfscheduling.pulling_kernels import (
    ADVANCED,
    EARLIEST,
    END,
    ENDED,
    ENTRIES,
    FINISHED,
    FIRST,
    LATEST,
    MODE,
    NEWEST,
    NEXT,
    NULL,
    PLACES,
    SEEKING,
    WINDOW,
    WRITTEN,
    Queues,
    Walk,
    refill,
    turn,
)
from nile.summaries.errors import ConfigError, TimestampOrderError

__all__ = ["PULLED", "SelfScheduledJoin", "SelfScheduledPlan"]

Array = np.ndarray[Any, Any]
PULLED = ("bew-nested", "bew-hash", "few-nested", "few-hash")
_BLOCK = 1024
_COSTS = ("comparisons", "checks", "probes", "updates", "dropped", "unjoined", "moved")


@dataclass(frozen=True, slots=True)
class SelfScheduledPlan:
    """Equal keys and |ts_i - ts_j| <= window for every two of n streams.

    streams: 2 or more; window: ns from 0 to 2**60; algorithm: one of PULLED.  MW-join is "few-nested".
    Raises ConfigError.
    """

    streams: int
    window: int
    algorithm: str = "bew-hash"

    def __post_init__(self) -> None:
        known("algorithm", self.algorithm, PULLED)
        if self.streams < 2:
            raise ConfigError(f"self-scheduled join: needed 2 streams or more; got {self.streams}; name them all")
        if not 0 <= self.window <= 1 << 60:
            raise ConfigError(
                f"self-scheduled join: needed a window of 0 to {1 << 60} ns; got {self.window}; give it in nanoseconds"
            )

    def start(self) -> SelfScheduledJoin:
        """A join that has seen nothing."""
        return SelfScheduledJoin(self)


class SelfScheduledJoin:
    """A running join; `push` is what a StreamScan of each stream does, `get_next` what the operator above does.

    A combination comes out once, when its last tuple is admitted: of a tuple's in the order of nested loops over the
    other streams, from the one behind it on, oldest first.  Once all queues are empty, backward evaluation has handed
    out every combination of what came; forward evaluation every one of what it admitted, and what it has not, waits
    or belongs to none.
    Memory.  Backward evaluation keeps a tuple until every other stream has shown a newer one by more than the window:
    a dead stream makes it keep everything.  Forward evaluation leaves it in the queues.
    """

    def __init__(self, plan: SelfScheduledPlan) -> None:
        self.plan = plan
        n = plan.streams
        buckets = 1024 if plan.algorithm.endswith("hash") else 0
        self._q = _queues(n, 1024, np.full((n, buckets), -1, np.int64), np.full((n, buckets), -1, np.int64))
        self._q.place[:, NEWEST] = EARLIEST
        self._w = Walk(np.zeros(ENTRIES, np.int64), *(np.zeros(n, np.int64) for _ in range(4)))
        self._w.at[MODE] = SEEKING
        self._w.at[WINDOW] = plan.window
        self._last = [EARLIEST + 1] * n
        self._out = np.zeros((_BLOCK, n), np.int64)
        self._costs = np.zeros(len(_COSTS), np.int64)
        self._ready: deque[Array] = deque()
        self._taken = 0

    def push(self, stream: int, ts: Any, codes: Any) -> None:
        """Put tuples at the end of a stream's queue.

        ts: int64 [m] ns within +-2**62, not decreasing, nor before those of the same stream; codes: int64 [m], below 0
        for null.
        Raises ConfigError, KeyTypeError, TimestampOrderError; nothing is applied then.
        """
        what = f"stream {self._checked(stream)}"
        times, values = whole_numbers(ts, "ts", what), whole_numbers(codes, "codes", what)
        if times.shape != values.shape:
            raise ConfigError(
                f"self-scheduled join, {what}: needed as many codes as times; got {values.shape[0]} and "
                f"{times.shape[0]}; give one per tuple"
            )
        if self._q.place[stream, ENDED]:
            raise ConfigError(f"self-scheduled join, {what}: needed a stream that goes on; it has ended; push before")
        m = times.shape[0]
        if not m:
            return
        steps = np.diff(times, prepend=self._last[stream])
        if (steps < 0).any() or int(times[-1]) >= LATEST:
            k = int(np.argmax(steps < 0)) if (steps < 0).any() else m - 1
            raise TimestampOrderError(
                f"self-scheduled join, {what}: needed times below 2**62 that do not decrease; got {int(times[k])} ns "
                f"at place {k}, after {self._last[stream] if k == 0 else int(times[k - 1])}; sort it by time"
            )
        end = int(self._q.place[stream, END])
        if end + m - int(self._q.place[stream, FIRST]) > self._q.ts.shape[1]:
            self._grow(end + m - int(self._q.place[stream, FIRST]))
        slots = np.arange(end, end + m) & (self._q.ts.shape[1] - 1)
        self._q.ts[stream, slots] = times
        self._q.code[stream, slots] = values
        self._q.place[stream, END] = end + m
        self._last[stream] = int(times[-1])

    def end(self, stream: int) -> None:
        """Say that a stream has no more tuples than those pushed."""
        self._q.place[self._checked(stream), ENDED] = 1

    def turn(self) -> Nothing | None:
        """Admit one tuple and find all it completes: None, or NULL where no queue has one that may be admitted."""
        while True:
            came = turn(self._q, self._w, self.plan.algorithm.startswith("bew"), self._out, self._costs)
            written = int(self._w.at[WRITTEN])
            if written:
                self._ready.append(self._out[:written].copy())
                self._w.at[WRITTEN] = 0
            if came == ADVANCED:
                return None
            if came in (NULL, FINISHED):
                return Nothing.NULL if came == NULL else Nothing.END

    def get_next(self) -> tuple[int, ...] | Nothing:
        """The next combination, as ordinals by stream; NULL as soon as nothing can be admitted; END after the last."""
        while not self._ready:
            came = self.turn()
            if came is not None:
                return came
        block = self._ready[0]
        found = tuple(block[self._taken].tolist())
        self._taken += 1
        if self._taken == block.shape[0]:
            self._ready.popleft()
            self._taken = 0
        return found

    def outputs(self) -> Iterator[Array]:
        """What turns have found and nobody took yet: blocks int64 [m, n] of ordinals by stream."""
        while self._ready:
            block, begin = self._ready.popleft(), self._taken
            self._taken = 0
            yield block[begin:]

    @property
    def costs(self) -> dict[str, int]:
        """Operations so far: comparisons (candidates looked at), checks (of a time against a window), probes (loops
        begun), updates (of hash tables), dropped (kept tuples let go), unjoined (never kept), moved (rings grown)."""
        return dict(zip(_COSTS, self._costs.tolist(), strict=True))

    @property
    def admitted(self) -> Array:
        """Tuples of each stream that have left its queue: int64 [n]."""
        return self._q.place[:, NEXT].copy()

    @property
    def kept(self) -> Array:
        """Tuples of each stream that later ones may join: int64 [n]."""
        return self._q.place[:, NEXT] - self._q.place[:, FIRST]

    @property
    def waiting(self) -> Array:
        """Tuples of each stream in its queue: int64 [n]."""
        return self._q.place[:, END] - self._q.place[:, NEXT]

    def _checked(self, stream: int) -> int:
        if not 0 <= stream < self.plan.streams:
            raise ConfigError(
                f"self-scheduled join: needed a stream from 0 to {self.plan.streams - 1}; got {stream}; number them "
                "from 0"
            )
        return stream

    def _grow(self, least: int) -> None:
        old = self._q
        capacity = old.ts.shape[1]
        while capacity < least:
            capacity *= 2
        self._q = _queues(self.plan.streams, capacity, old.head, old.tail)._replace(place=old.place)
        refill(old, self._q, self._costs)


def _queues(n: int, capacity: int, head: Array, tail: Array) -> Queues:
    ts, code, link = (np.zeros((n, capacity), np.int64) for _ in range(3))
    return Queues(ts, code, link, head, tail, np.zeros((n, PLACES), np.int64))
