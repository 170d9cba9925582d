"""W-Join of two streams in range windows under negative tuples, W-Expire inside its buffers.

A stream's tuples leave in the order they came, so each side is a ring, a negative tuple is the oldest one in it, and
neither is looked up by value.  The rings are those of `Windows`, which other joins may read, too.  Cost: O(1) a tuple
and O(1) a pair; memory: the tuples of both windows.
Source: negative tuples, section 6.4 (W-Expire as part of the join buffers); `nile.exact.pipeline.join` joins all else.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, empty
from nile.exact.pipeline.sources.stream_pairs import Pairs
from nile.exact.pipeline.sources.stream_windows import Chain, Windows
from nile.exact.pipeline.sources.taken_back import without
from nile.exact.pipeline.threaded_selection import passing
from nile.exact.plan.algebra import Join, Range, Scan, Unbounded
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import joined, nothing
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.lent import roomy
from nile.exact.state.rows import grown

__all__ = ["StreamJoining", "fits"]

kernels: Any = arrow.Late("nile.exact.pipeline.sources.stream_join_kernels")

_FEW = 2_048
"""Pairs up to which rows of words cost less than a kernel for each column."""
_ROOM = 16
"""Tuples of a step for which there is room without asking for any."""


def fits(scan: Scan) -> bool:
    """Whether the stream's tuples leave in the order they came, at a time known when they come."""
    return isinstance(scan.window, Range | Unbounded)


class StreamJoining:
    """A join of two streams at work.  come, go: whether anyone reads the pairs that come, and those that go.

    once: of the pairs of a tuple one is told, with how many there are, in O(1): whoever reads needs no more.
    """

    KIND: ClassVar = "stream join"
    HELD: ClassVar = ("pairs", "windows", "_now", "_place")
    DERIVED: ClassVar = (
        "clock", "plan", "schema", "come", "go", "once", "arrivals", "heads", "_alone", "_rings", "_keys", "_lengths",
        "key_counts", "_moved", "_ends", "done",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, plan: Join, left: Chain, right: Chain, *, come: bool = True, go: bool = True,
        once: bool = False, windows: Windows | None = None,
    ) -> None:  # fmt: skip
        """windows: what other joins read, too, with the columns that any of them needs; None: its own."""
        self.clock = clock
        self.plan = plan
        self.schema = plan.schema
        self.come, self.go, self.once = come, go, once
        self.pairs = 0
        self._alone = windows is None
        self.windows = Windows(clock, plan, left, right) if windows is None else windows
        self.arrivals: list[Any] = self.windows.arrivals
        if windows is not None:
            self.arrivals = [_Arrivals(self, side) for side in range(2)]
        self._lengths = [scan.window.ns if isinstance(scan.window, Range) else -1 for scan, _ in (left, right)]
        self._rings, self._keys = self.windows.rings, self.windows.keys
        self._place = np.zeros((2, 3), np.int64)
        self.key_counts = np.zeros((1, 2), np.int64)
        self.heads = [np.full(1, -1, np.int64) for _ in range(2)]
        self.done = EARLIEST
        """The instant it has come to, and is done with, for others that read the same."""
        self._moved, self._ends = np.empty((_ROOM, 5), np.int64), np.empty(1 + _ROOM, np.int64)
        self._now = EARLIEST

    def oldest(self, side: int) -> int:
        """The first ordinal of a side that has not left its window."""
        return int(self._place[side, 0])

    def next_of(self, side: int) -> int:
        """The first ordinal of a side that it has not come to."""
        return int(self._place[side, 1])

    @property
    def left(self) -> list[int]:
        """Tuples of each side that have left its window."""
        return [int(n) for n in self._place[:, 0]]

    @property
    def negative(self) -> int:
        """Tuples that have left a window."""
        return sum(self.left)

    def step(self, to: int) -> Delta:
        """Pairs that come and go up to `to`."""
        one, other = self.arrivals
        if not self._alone or (one.back.first(to) is None and other.back.first(to) is None):
            return self._step(to, None)
        never: list[tuple[Array, Any] | None] | None = None
        parts: list[Delta] = []
        while marks := [at for each in self.arrivals if (at := each.back.first(to)) is not None]:
            parts.append(self._step(min(marks) - 1, never))
            gone, never = self._taken_back(min(marks))
            parts.append(gone)
        parts.append(self._step(to, never))
        ts, sign = np.concatenate([each.ts for each in parts]), np.concatenate([each.sign for each in parts])
        times = np.concatenate([each.times for each in parts if each.times is not None]) if self.once else None
        return Delta(ts, sign, joined([each.rows for each in parts], self.schema), None, times)

    def _taken_back(self, now: int) -> tuple[Delta, list[tuple[Array, Any] | None]]:
        """Pairs that go at `now` with tuples that are taken back; and of each side, what would come then and does not.

        All before `now` has been worked on.  Cost: O(tuples of the window).
        """
        told: list[Any] = []
        times: list[int] = []
        never: list[tuple[Array, Any] | None] = []
        for side, (each, ring) in enumerate(zip(self.arrivals, self._rings, strict=True)):
            _, ts, rows = each.back.due(now)
            never.append((ts[ts == now], rows.filter(pa.array(ts == now))))
            held = ring.held()
            left = without(ring.ts[held & ring.mask], ring.rows(held), ts, rows)
            other = 1 - side
            for own in held[~left].tolist() if self.go else ():
                if self.once:
                    code = ring.codes[own & ring.mask]
                    if code >= 0 and (n := int(self.key_counts[code, other])):
                        newest = np.array([self.heads[other][code]])
                        told.append(self._rows(*(np.array([own]), newest)[:: 1 - 2 * side]))
                        times.append(n)
                    continue
                pairs = kernels.pairs_of(
                    own, own + 1, ring.codes, self.heads[other], self._rings[other].before, int(self._place[other, 0])
                )
                told.append(self._rows(*pairs[:: 1 - 2 * side]))
            if not left.all():
                self._keep(side, held[left])
        rows = joined(told, self.schema)
        if self.plan.test is not None and rows.num_rows:
            rows = passing(rows, self.plan.test)[0]
        self.pairs += rows.num_rows
        gone = np.full(rows.num_rows, -1, np.int8)
        return Delta(
            np.full(rows.num_rows, now), gone, rows, None, np.array(times, np.int64) if self.once else None
        ), never

    def _keep(self, side: int, held: Array) -> None:
        """Let go of the tuples of a side but these ordinals, which become the last ones."""
        ring = self._rings[side]
        codes, ts, rows = ring.codes[held & ring.mask], ring.ts[held & ring.mask], ring.rows(held)
        everything = ring.codes[ring.held() & ring.mask]
        np.subtract.at(self.key_counts, (everything[everything >= 0], side), 1)
        self.heads[side][:] = -1
        newest = ring.newest
        ring.begin_at(newest - held.shape[0])
        ring.add(ts, rows.columns, codes)
        kernels.chain(ring.oldest, newest, ring.codes, ring.before, self.heads[side], self.key_counts, side)
        gone = everything[everything >= 0]
        if self._keys is not None:
            self._keys.release(gone[~self.key_counts[gone].any(axis=1)])
        self._place[side] = ring.oldest, newest, newest

    def _step(self, to: int, never: list[tuple[Array, Any] | None] | None) -> Delta:
        self._now = to
        place, (left, right) = self._place, self._rings
        if self._alone:
            self.windows.take(to, never)
        elif self.windows.to < to:
            self.windows.come_to(to)
        place[0, 2], place[1, 2] = left.newest, right.newest
        if self._keys is not None and self.key_counts.shape[0] < (room := self._keys.room):
            self._make_room(room)
        moved, ends = self._moved, self._ends
        while True:
            n, gone = kernels.moves(
                to, *self._lengths, left.ts, left.codes, left.before, self.heads[0], right.ts, right.codes,
                right.before, self.heads[1], self.key_counts, place, self.come, self.go, moved, ends,
            )  # fmt: skip
            if n >= 0:
                break
            moved, ends = roomy(-5 * n).reshape(-n, 5), roomy(1 - n)
        if n:
            moved, ends = moved[:n], ends[: 1 + n]
            self.pairs += n if self.once else int(ends[-1])
            delta = self._newest(moved, ends) if self.once else self._told(moved, ends, gone)
        else:
            delta = empty(self.schema)
        self._forget()
        return delta

    def _newest(self, moved: Array, ends: Array) -> Delta:
        """Of the pairs of each tuple the one with its newest partner, and how many there are."""
        left = moved[:, kernels.SIDE] == 0
        own, other = moved[:, kernels.OWN], moved[:, kernels.NEWEST_OF]
        rows, at = self._tested(np.where(left, own, other), np.where(left, other, own))
        moved, times = moved[at], np.diff(ends)[at]
        return Delta(moved[:, kernels.TS].copy(), moved[:, kernels.SIGN].astype(np.int8), rows, None, times)

    def _told(self, moved: Array, ends: Array, gone: int) -> Delta:
        """All pairs that satisfy the condition.  gone: how many of all go."""
        if (n := int(ends[-1])) < _FEW:
            ts, sign = np.empty(n, np.int64), np.empty(n, np.int8)
            ordinals = [np.empty(n, np.int64) for _ in self._rings]
            kernels.pairs_moved(moved, ends, *(ring.before for ring in self._rings), ts, sign, *ordinals)
            rows, at = self._tested(*ordinals)
            return Delta(ts[at], sign[at], rows)
        pairs = Pairs(self._rings, moved, ends, self.schema, self.clock.threads)
        if self.plan.test is None:
            return Delta(*pairs.all(), None, None, gone)
        return Delta(*pairs.true(self.plan.test))

    def _tested(self, left: Array, right: Array) -> tuple[Any, Array | slice]:
        """(the pairs of some ordinals that satisfy the condition, their places among all)."""
        rows = self._rows(left, right)
        if self.plan.test is None or not rows.num_rows:
            return rows, slice(None)
        rows, at = passing(rows, self.plan.test)
        return rows, slice(None) if at is None else at

    def _make_room(self, keys: int) -> None:
        """Have room for codes of keys below this."""
        if self.key_counts.shape[0] < keys:
            self.key_counts = grown(self.key_counts, keys)
            self.heads = [grown(each, keys, -1) for each in self.heads]

    def _rows(self, left: Array, right: Array) -> Any:
        if not left.shape[0]:
            return nothing(self.schema)
        columns = [*self._rings[0].columns(left), *self._rings[1].columns(right)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _forget(self) -> None:
        """Let go of what has left, and of keys and texts that nothing has any more."""
        if not self._alone:
            self.done = self._now
            self.windows.forget()
            return
        keys, counts = self._keys, self.key_counts
        for ring, last in zip(self._rings, self._place[:, 0].tolist(), strict=True):
            if last > ring.oldest:
                if keys is not None:
                    kernels.release_keys(
                        ring.oldest, last, ring.codes, counts, keys.index, keys.hashes, keys.free, keys.meta
                    )
                    if keys.encoder.values:
                        keys.tidy()
                ring.oldest = last
                ring.forget()

    def time(self) -> int:
        """GetTime: how far the streams are known."""
        return self._now

    def contents(self) -> Any:
        """The pairs that hold, by the left tuple's arrival."""
        left, right = self._rings
        first, last = int(self._place[0, 0]), int(self._place[0, 1])
        pairs = kernels.pairs_of(first, last, left.codes, self.heads[1], right.before, int(self._place[1, 0]))
        rows = self._rows(*pairs)
        if self.plan.test is None or not rows.num_rows:
            return joined([rows], self.schema)
        return passing(rows, self.plan.test)[0]

    def capture(self) -> State:
        """The tuples of both windows in the order they came; keys, and chains of equal ones, follow."""
        return {
            "clock": self._now,
            "pairs": self.pairs,
            "arrivals": [each.capture() for each in self.windows.arrivals],
            "windows": [each.capture(first=self.oldest(side)) for side, each in enumerate(self._rings)],
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.pairs = held.integer("pairs", 0, MOST)
        arrivals, rings = held.parts("arrivals", 2), held.parts("windows", 2)
        held.end()
        if self._alone:
            self.windows.restore(arrivals, rings, self._now)
        self.heads = self.windows.heads
        self._make_room(self.windows.room)
        for side, (ring, part) in enumerate(zip(self._rings, rings, strict=True)):
            first = ring.oldest if self._alone else ring.newest - part.rest()["ts"].shape[0]
            self._place[side] = first, ring.newest, ring.newest
            codes = ring.codes[np.arange(first, ring.newest) & ring.mask]
            np.add.at(self.key_counts[:, side], codes[codes >= 0], 1)
        if not self._alone:
            self.done = self._now
            self.windows.joins.add(self)

    def next_leaving(self, n: int) -> int | None:
        """When the n-th next tuple of a side leaves, the earlier of both; None if neither is known."""
        found = []
        for ring, window, first in zip(self._rings, self._lengths, self._place[:, 0].tolist(), strict=True):
            if window >= 0 and first + n < ring.newest:
                found.append(int(ring.ts[(first + n) & ring.mask]) + window + 1)
        return min(found, default=None)

    @property
    def memory(self) -> int:
        return self.windows.memory + int(self.key_counts.nbytes + sum(each.nbytes for each in self.heads))


class _Arrivals:
    """What comes to one of several joins that read the same: what they have not come to, though others may have."""

    HELD: ClassVar = ()
    DERIVED: ClassVar = ("memory", "_join", "_arrivals", "_side")

    def __init__(self, join: StreamJoining, side: int) -> None:
        self.memory = 0
        self._join = join
        self._arrivals = join.windows.arrivals[side]
        self._side = side

    def nth(self, n: int) -> int | None:
        """As of what comes to one."""
        ring, first = self._join.windows.rings[self._side], self._join.next_of(self._side)
        if n < ring.newest - first:
            return int(ring.ts[(first + n) & ring.mask])
        return self._arrivals.nth(n - (ring.newest - first))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arrivals, name)
