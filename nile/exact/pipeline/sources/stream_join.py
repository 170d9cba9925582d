"""W-Join of two streams in range windows under negative tuples, W-Expire inside its buffers.

A stream's tuples leave in the order they came, so each side is a ring, a negative tuple is the oldest one in it, and
neither is looked up by value.  Cost: O(1) a tuple and O(1) a pair; memory: the tuples of both windows.
Source: negative tuples, section 6.4 (W-Expire as part of the join buffers); `nile.exact.pipeline.join` joins all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from nile.exact.join.threads import together, useful
from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, empty
from nile.exact.pipeline.sources.incoming import Incoming, selected
from nile.exact.pipeline.sources.stream_pairs import Pairs
from nile.exact.pipeline.sources.taken_back import without
from nile.exact.plan.algebra import Join, Project, Range, Scan, Select, Unbounded
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import made, words_of
from nile.exact.state.expire import joined, nothing
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.lent import roomy
from nile.exact.state.ring import Ring
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.types import common

__all__ = ["StreamJoining", "fits"]

kernels: Any = arrow.Late("nile.exact.pipeline.sources.stream_join_kernels")

Chain = tuple[Scan, list[Select | Project]]
_FEW = 2_048
"""Pairs up to which rows of words cost less than a kernel for each column."""
_ROOM = 16
"""Tuples of a step for which there is room without asking for any."""
_PIECE = 1 << 12
"""Tuples of each side of a step from which on a thread of its own is worth having."""


def fits(scan: Scan) -> bool:
    """Whether the stream's tuples leave in the order they came, at a time known when they come."""
    return isinstance(scan.window, Range | Unbounded)


def _as(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)


class StreamJoining:
    """A join of two streams at work.  come, go: whether anyone reads the pairs that come, and those that go.

    once: of the pairs of a tuple one is told, with how many there are, in O(1): whoever reads needs no more.
    """

    KIND: ClassVar = "stream join"
    HELD: ClassVar = ("pairs", "arrivals", "_rings", "_now", "_place")
    DERIVED: ClassVar = (
        "clock", "plan", "schema", "come", "go", "once", "_windows", "_kinds", "_at", "_all", "_as_they_are", "_keys",
        "_key_counts", "_heads", "_moved", "_ends",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, plan: Join, left: Chain, right: Chain, *, come: bool = True, go: bool = True,
        once: bool = False,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.plan = plan
        self.schema = plan.schema
        self.come, self.go, self.once = come, go, once
        self.pairs = 0
        self.arrivals = [Incoming(*left), Incoming(*right)]
        self._windows = [each.scan.window.ns if isinstance(each.scan.window, Range) else -1 for each in self.arrivals]
        self._rings = [Ring(each.schema) for each in self.arrivals]
        self._place = np.zeros((2, 3), np.int64)
        one, other = (each.schema for each in self.arrivals)
        self._kinds = [common(one.field(a).type, other.field(b).type) for a, b in plan.on]
        self._at = [[each.schema.get_field_index(on[i]) for on in plan.on] for i, each in enumerate(self.arrivals)]
        self._all = [range(len(each.schema)) for each in self.arrivals]
        kinds = [[each.schema.field(i).type for i in at] for each, at in zip(self.arrivals, self._at, strict=True)]
        self._as_they_are = [each == self._kinds for each in kinds]
        self._keys = RowTable(self._kinds) if plan.on else None
        self._key_counts = np.zeros((1, 2), np.int64)
        self._heads = [np.full(1, -1, np.int64) for _ in range(2)]
        self._moved, self._ends = np.empty((_ROOM, 5), np.int64), np.empty(1 + _ROOM, np.int64)
        self._now = EARLIEST

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
        if one.back.first(to) is None and other.back.first(to) is None:
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
                    if code >= 0 and (n := int(self._key_counts[code, other])):
                        newest = np.array([self._heads[other][code]])
                        told.append(self._rows(*(np.array([own]), newest)[:: 1 - 2 * side]))
                        times.append(n)
                    continue
                pairs = kernels.pairs_of(
                    own, own + 1, ring.codes, self._heads[other], self._rings[other].before, int(self._place[other, 0])
                )
                told.append(self._rows(*pairs[:: 1 - 2 * side]))
            if not left.all():
                self._keep(side, held[left])
        rows = joined(told, self.schema)
        if self.plan.test is not None and rows.num_rows:
            rows = rows.filter(pa.array(selected(rows, self.plan.test)))
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
        np.subtract.at(self._key_counts, (everything[everything >= 0], side), 1)
        self._heads[side][:] = -1
        newest = ring.newest
        ring.begin_at(newest - held.shape[0])
        ring.add(ts, rows.columns, codes)
        kernels.chain(ring.oldest, newest, ring.codes, ring.before, self._heads[side], self._key_counts, side)
        gone = everything[everything >= 0]
        if self._keys is not None:
            self._keys.release(gone[~self._key_counts[gone].any(axis=1)])
        self._place[side] = ring.oldest, newest, newest

    def _step(self, to: int, never: list[tuple[Array, Any] | None] | None) -> Delta:
        self._now = to
        taken = [each.kept(to) for each in self.arrivals]
        for side, gone in enumerate(never or ()):
            if gone is not None and gone[0].shape[0]:
                ts, rows = taken[side][0], made(taken[side][1])
                stay = without(ts, rows, *gone)
                taken[side] = ts[stay], rows.filter(pa.array(stay))
        place, (left, right) = self._place, self._rings
        found = self._found_abreast(taken)
        for side, (ts, rows) in enumerate(taken):
            if ts.shape[0]:
                if found:
                    self._rings[side].add_words(ts, *found[side])
                else:
                    self._arrive(side, ts, rows)
                place[side, 2] = self._rings[side].newest
        moved, ends = self._moved, self._ends
        while True:
            n, gone = kernels.moves(
                to, *self._windows, left.ts, left.codes, left.before, self._heads[0], right.ts, right.codes,
                right.before, self._heads[1], self._key_counts, place, self.come, self.go, moved, ends,
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

    def _arrive(self, side: int, ts: Array, rows: Any) -> None:
        """Put tuples that come into the ring of a side."""
        keys, ring = self._keys, self._rings[side]
        words = self._words(side, rows)
        if keys is None:
            ring.add_words(ts, words, np.zeros(ts.shape[0], np.int64))
            return
        key_words, mask = self._key_words(keys, rows, side), keys.encoder.mask
        n, done = ts.shape[0], 0
        ring.room(ring.newest - ring.oldest + n)
        while True:
            done = kernels.arrive(
                done, ts, key_words, mask, words, keys.index, keys.kept, keys.hashes, keys.free, keys.meta, ring.newest,
                ring.ts, ring.codes, ring.words,
            )  # fmt: skip
            if done == n:
                break
            keys.grow()
        ring.newest += n
        if self._key_counts.shape[0] < (room := keys.kept.shape[0]):
            self._make_room(room)

    def _newest(self, moved: Array, ends: Array) -> Delta:
        """Of the pairs of each tuple the one with its newest partner, and how many there are."""
        left = moved[:, kernels.SIDE] == 0
        own, other = moved[:, kernels.OWN], moved[:, kernels.NEWEST_OF]
        rows, yes = self._tested(np.where(left, own, other), np.where(left, other, own))
        moved, times = moved[yes], np.diff(ends)[yes]
        return Delta(moved[:, kernels.TS].copy(), moved[:, kernels.SIGN].astype(np.int8), rows, None, times)

    def _told(self, moved: Array, ends: Array, gone: int) -> Delta:
        """All pairs that satisfy the condition.  gone: how many of all go."""
        if (n := int(ends[-1])) < _FEW:
            ts, sign = np.empty(n, np.int64), np.empty(n, np.int8)
            ordinals = [np.empty(n, np.int64) for _ in self._rings]
            kernels.pairs_moved(moved, ends, *(ring.before for ring in self._rings), ts, sign, *ordinals)
            rows, yes = self._tested(*ordinals)
            return Delta(ts[yes], sign[yes], rows)
        pairs = Pairs(self._rings, moved, ends, self.schema, self.clock.threads)
        if self.plan.test is None:
            return Delta(*pairs.all(), None, None, gone)
        return Delta(*pairs.true(self.plan.test))

    def _tested(self, left: Array, right: Array) -> tuple[Any, Array | slice]:
        """(the pairs of some ordinals that satisfy the condition, which those are)."""
        rows = self._rows(left, right)
        if self.plan.test is None or not rows.num_rows:
            return rows, slice(None)
        yes = selected(rows, self.plan.test)
        return (rows, slice(None)) if yes.all() else (rows.filter(pa.array(yes)), yes)

    def _codes(self, side: int, rows: Any) -> Array:
        """The code of the key of each row of a side; -1 where a part of it is null."""
        keys, at = self._keys, self._at[side]
        if keys is None:
            return np.zeros(rows.num_rows, np.int64)
        words = self._key_words(keys, rows, side)
        some = 0
        for i in at:
            some += rows.column(i).null_count
        if some and (nulls := keys.encoder.nulls(words)).any():
            codes = np.full(words.shape[0], -1, np.int64)
            codes[~nulls] = keys.codes(words[~nulls])
        else:
            codes = keys.codes(words)
        self._make_room(keys.room)
        return codes

    def _make_room(self, keys: int) -> None:
        """Have room for codes of keys below this."""
        if self._key_counts.shape[0] < keys:
            self._key_counts = grown(self._key_counts, keys)
            self._heads = [grown(each, keys, -1) for each in self._heads]

    def _found_abreast(self, taken: Sequence[tuple[Array, Any]]) -> list[tuple[Array, Array]]:
        """Of each side the words of its rows and the codes of their keys, by a thread each; [] where these are few.

        Keys that are new get their codes afterwards, in order.
        """
        keys = self._keys
        few = min(ts.shape[0] for ts, _ in taken) < _PIECE or useful(self.clock.threads, 2 * _PIECE, _PIECE) < 2
        if few or keys is None or keys.numbers:
            return []
        made: list[Any] = [None, None]

        def find(side: int) -> None:
            rows = taken[side][1]
            own, codes = self._key_words(keys, rows, side), roomy(rows.num_rows)
            keys.find(own, codes)
            at = np.flatnonzero(codes < 0)
            made[side] = self._words(side, rows), codes, at, own[at]

        together([partial(find, side) for side in range(2)])
        for _, codes, at, own in made:
            if at.shape[0]:
                whole = ~keys.encoder.nulls(own)
                codes[at[whole]] = keys.codes(own[whole])
        self._make_room(keys.room)
        return [each[:2] for each in made]

    def _words(self, side: int, rows: Any) -> Array:
        """Rows of a side as its ring has them: int64 [n, width], only to be read."""
        return words_of(rows, self._all[side], self._rings[side].encoder)

    def _key_words(self, keys: RowTable, rows: Any, side: int) -> Array:
        """The words of the keys of rows of a side: int64 [n, width], only to be read."""
        if self._as_they_are[side]:
            return words_of(rows, self._at[side], keys.encoder)
        columns = [rows.column(i) for i in self._at[side]]
        return keys.encode([_as(column, kind) for column, kind in zip(columns, self._kinds, strict=True)])

    def _rows(self, left: Array, right: Array) -> Any:
        if not left.shape[0]:
            return nothing(self.schema)
        columns = [*self._rings[0].columns(left), *self._rings[1].columns(right)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _forget(self) -> None:
        """Let go of what has left, and of keys and texts that nothing has any more."""
        keys, counts = self._keys, self._key_counts
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
        pairs = kernels.pairs_of(first, last, left.codes, self._heads[1], right.before, int(self._place[1, 0]))
        rows = self._rows(*pairs)
        if self.plan.test is None or not rows.num_rows:
            return joined([rows], self.schema)
        return rows.filter(pa.array(selected(rows, self.plan.test)))

    def capture(self) -> State:
        """The tuples of both windows in the order they came; keys, and chains of equal ones, follow."""
        return {
            "clock": self._now,
            "pairs": self.pairs,
            "arrivals": [each.capture() for each in self.arrivals],
            "windows": [each.capture() for each in self._rings],
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.pairs = held.integer("pairs", 0, MOST)
        for arrivals, part in zip(self.arrivals, held.parts("arrivals", 2), strict=True):
            arrivals.restore(part)
        for side, part in enumerate(held.parts("windows", 2)):
            ring = self._rings[side]
            ring.restore(part, partial(self._codes, side))
            self._place[side] = ring.oldest, ring.newest, ring.newest
        for side, ring in enumerate(self._rings):
            kernels.chain(ring.oldest, ring.newest, ring.codes, ring.before, self._heads[side], self._key_counts, side)
        held.end()

    def next_leaving(self, n: int) -> int | None:
        """When the n-th next tuple of a side leaves, the earlier of both; None if neither is known."""
        found = []
        for ring, window in zip(self._rings, self._windows, strict=True):
            if window >= 0 and ring.oldest + n < ring.newest:
                found.append(int(ring.ts[(ring.oldest + n) & ring.mask]) + window + 1)
        return min(found, default=None)

    @property
    def memory(self) -> int:
        tables = sum(each.memory for each in self._rings) + sum(each.memory for each in self.arrivals)
        tables += int(self._key_counts.nbytes + sum(each.nbytes for each in self._heads))
        return tables + (0 if self._keys is None else self._keys.memory)
