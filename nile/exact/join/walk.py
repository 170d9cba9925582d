"""The W-join algorithms that walk buffers: backward and forward evaluation, their opponents, and chains of n streams.

What tells them apart is settled here, as rules for one kernel: where candidates come from, when tuples leave, which
period a candidate must lie in, and what is left to refine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nile.exact.join.parts import BLOCK, Room
from nile.exact.join.window_graph import UNBOUNDED, WindowGraph
from nile.exact.state import arrow

__all__ = ["Condition", "WalkJoin"]

kernels: Any = arrow.Late("nile.exact.join.walk_kernels")
buffers: Any = arrow.Late("nile.exact.join.buffers_kernels")
parts: Any = arrow.Late("nile.exact.join.parts_kernels")

Array = np.ndarray[Any, Any]
_LEAST_CAPACITY = 64
_ROOM = BLOCK
_SLICE = 1 << 16  # arrivals a call
# Where candidates come from and when tuples leave, as in the kernels.
_SCAN, _BUCKET, _CHAIN = range(3)
_EAGER, _PROBED, _PERIOD, _CYCLE = range(4)
_STYLES = {
    "chain": (_CHAIN, _EAGER),
    "bew-nested": (_SCAN, _EAGER),
    "bew-hash": (_BUCKET, _PROBED),
    "few-nested": (_SCAN, _PERIOD),
    "few-hash": (_BUCKET, _PERIOD),
    "ripple": (_SCAN, _CYCLE),
    "xjoin": (_BUCKET, _CYCLE),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What the values of a combination satisfy, every two of them: equal, at most `width` apart, or anything.

    kind: "equal" (codes below 0 are null), "band" (the least int64 is null) or "any"; width: of a band.
    """

    kind: str = "equal"
    width: int = 0

    @property
    def null(self) -> int:
        """The largest value that never joins; for "any" there is none, and values are not looked at."""
        return -1 if self.kind == "equal" else int(np.iinfo(np.int64).min)

    @property
    def number(self) -> int:
        """As the kernels know it."""
        return ("equal", "band", "any").index(self.kind)


class WalkJoin:
    """Running state of one W-join over buffers.

    algorithm: one of those above; strategy: "gca", "lca", "mbe", or "exact" (the completed bounds of every pair);
    every: arrivals between clean-ups of the opponents; most_memory: bytes at the fullest.
    Memory: 24 bytes a slot of the fullest stream's ring, for every stream; with buckets 40 to 73.
    """

    HELD: ClassVar = ("_buffers",)
    DERIVED: ClassVar = (
        "_streams", "_null", "_blind", "_access", "_removal", "_rules", "_walk", "_costs", "_now", "most_memory",
    )  # fmt: skip

    def __init__(self, graph: WindowGraph, condition: Condition, algorithm: str, strategy: str, every: int) -> None:
        self._streams = graph.streams
        self._null = condition.null
        self._blind = condition.kind == "any"
        self._access, self._removal = _STYLES[algorithm]
        self._rules = self._settle(graph, condition, strategy, every)
        self._buffers = self._allocate(_LEAST_CAPACITY)
        n = graph.streams
        at = np.zeros(6, np.int64)
        at[parts.LEVEL] = -1
        at[parts.MODE_END] = np.iinfo(np.int64).min
        self._walk = parts.Walk(*(np.zeros(n, np.int64) for _ in range(4)), at)
        self._costs = np.zeros(5, np.int64)
        self._now = int(np.iinfo(np.int64).min)
        self.most_memory = self.memory

    def _settle(self, graph: WindowGraph, condition: Condition, strategy: str, every: int) -> Any:
        n = graph.streams
        forward = self._removal == _PERIOD
        lookback = np.array([graph.lookback(i) for i in range(n)], np.int64)
        exact = graph.differences(complete=False)
        order = np.array([[j % n for j in range(i + 1, i + n)] for i in range(n)], np.int64)
        if strategy == "gca" or graph.is_uniform:
            lookback[:] = graph.widest
            back = np.full((1, n, n), graph.widest, np.int64)
            ahead = back
        elif strategy == "lca":
            back = np.repeat(lookback[:, np.newaxis], n, axis=1)[np.newaxis].copy()
            ahead = back
        else:
            ahead = graph.differences(complete=strategy == "exact")
            back = np.ascontiguousarray(ahead.transpose(0, 2, 1))
            order = np.array([graph.order_from(i) for i in range(n)], np.int64)
        # Refine what the period alone does not settle; without candidates' periods, all but the uniform clique.
        if graph.is_uniform or (strategy in ("mbe", "exact") and not forward):
            exact = exact[:0]
        settings = np.array(
            [self._access, self._removal, not forward, condition.number, condition.width, every], np.int64
        )
        return parts.Rules(order, back, ahead, exact, np.minimum(lookback, UNBOUNDED), settings)

    def _allocate(self, capacity: int) -> Any:
        n = self._streams
        hashed = capacity if self._access != _SCAN else 1
        both = capacity if self._access == _BUCKET else 1
        listed = capacity if self._removal == _PROBED else 1
        place = np.zeros((n, parts.PLACES), np.int64)
        place[:, parts.LEAST_RECENT :] = -1

        def empty(columns: int) -> Array:
            return np.full((n, columns), -1, np.int64)

        return parts.Buffers(
            empty(capacity), empty(capacity), empty(capacity), empty(hashed), np.zeros((n, listed), np.uint8),
            empty(hashed), empty(both), empty(listed), empty(listed), empty(listed), place,
        )  # fmt: skip

    def merged(self, ts: tuple[Array, ...], codes: tuple[Array, ...]) -> Iterator[Array]:
        """Join a batch of every stream, merged in total order; yields int64 [m, n] ordinals, columns contiguous."""
        which = np.repeat(np.arange(self._streams, dtype=np.int8), [each.shape[0] for each in ts])
        times, values = np.concatenate(ts), np.concatenate(codes)
        order = np.argsort(times, kind="stable")
        for begin in range(0, order.shape[0], _SLICE):
            some = order[begin : begin + _SLICE]
            yield from self._join(which[some], times[some], values[some])

    def push(self, stream: Array | int, ts: Array, codes: Array) -> Iterator[Array]:
        """Join a batch in total order; stream: of all its tuples, or int8 [m]."""
        which = np.full(ts.shape[0], stream, np.int8) if isinstance(stream, int) else stream.astype(np.int8)
        return self._join(which, ts, codes)

    def _join(self, which: Array, ts: Array, codes: Array) -> Iterator[Array]:
        walk = self._walk
        walk.at[parts.DONE] = 0
        values = np.zeros(ts.shape[0], np.int64) if self._blind else codes
        why, room = parts.FULL, Room(self._streams, _ROOM, kept=True)
        while why != parts.FINISHED:
            if why == parts.GROW:
                self._resize(2 * self._buffers.ts.shape[1])
            why = kernels.join_batch(
                self._buffers, self._rules, walk, which, ts, values, self._null, room.next(), self._costs
            )
            written = int(walk.at[parts.WRITTEN])
            if written:
                yield room.block(written)
        if ts.shape[0]:
            self._now = int(ts[-1])
        self._shrink()

    def advance(self, now: int) -> None:
        """Let go of what no tuple at `now` or later can join; the opponents clean up."""
        self._now = now
        buffers.remove_expired(self._buffers, self._rules, self._walk, now, True, self._costs)
        self._shrink()

    def holding(self, stream: int, since: int) -> tuple[Array, Array, Array]:
        """The tuples of a stream from `since` on that are not null: (ordinals, ts, codes)."""
        b = self._buffers
        at = np.arange(b.place[stream, parts.FIRST], b.place[stream, parts.LAST]) & (b.ts.shape[1] - 1)
        stay = b.ts[stream, at] >= since
        if b.dead.shape[1] > 1:
            stay &= b.dead[stream, at] == 0
        at = at[stay]
        return b.ordinal[stream, at], b.ts[stream, at], b.code[stream, at]

    def hold(
        self, now: int, seen: Sequence[int], tuples: Sequence[tuple[Array, Array, Array]], completed: int = 0
    ) -> None:
        """Hold these tuples, none of them null, and nothing else: see `WindowJoin.hold`."""
        del completed  # whoever reads the combinations counts them
        most = max(ordinals.shape[0] for ordinals, _, _ in tuples)
        self._buffers = self._allocate(max(_LEAST_CAPACITY, 1 << most.bit_length()))
        for j, (ordinals, ts, codes) in enumerate(tuples):
            values = np.zeros(ts.shape[0], np.int64) if self._blind else codes
            buffers.fill(self._buffers, self._rules, j, ts, values, ordinals, seen[j], np.zeros(5, np.int64))
        self._walk.at[parts.ARRIVED] = sum(seen) % (1 << 32)  # says when the opponents clean up, no more
        self._now = now
        self.most_memory = max(self.most_memory, self.memory)

    @property
    def seen(self) -> Array:
        """Tuples seen of each stream: int64 [n]."""
        seen: Array = self._buffers.place[:, parts.SEEN]
        return seen

    @property
    def held(self) -> int:
        """Tuples kept, those removed out of order that still take a slot included."""
        place = self._buffers.place
        return int((place[:, parts.LAST] - place[:, parts.FIRST]).sum())

    @property
    def memory(self) -> int:
        """Bytes of buffers, tables, rules and the walk."""
        return sum(array.nbytes for part in (self._buffers, self._rules, self._walk) for array in part)

    @property
    def counts(self) -> dict[str, int]:
        """Operations so far."""
        names = ("comparisons", "probes", "updates", "dropped", "moved")
        return dict(zip(names, self._costs.tolist(), strict=True))

    def _shrink(self) -> None:
        place = self._buffers.place
        fullest = int((place[:, parts.LAST] - place[:, parts.FIRST]).max())
        capacity = self._buffers.ts.shape[1]
        if capacity > _LEAST_CAPACITY and 8 * fullest < capacity:
            self._resize(max(_LEAST_CAPACITY, capacity // 4))

    def _resize(self, capacity: int) -> None:
        old, self._buffers = self._buffers, self._allocate(capacity)
        buffers.refill(old, self._buffers, self._rules, self._now, self._costs)
        self.most_memory = max(self.most_memory, self.memory)
