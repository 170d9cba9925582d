"""A group-by or DISTINCT right above a stream in a range window, worked on in one pass: the way of most pushes.

What comes and what leaves are words in one ring; groups, their sums and the rows told of them are worked out from these
without batches in between, which cost a push of few rows more than its rows do.  State, outputs and captured bytes are
those of the two operators, which go on by themselves once they are asked in another way: by a scheduler that runs one
of them, or for tuples that are taken back.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.group import Grouping
from nile.exact.pipeline.schedule import Clock, Delta, Stateful, empty
from nile.exact.pipeline.setops import Bag
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.pipeline.stages import Queue
from nile.exact.plan.algebra import Distinct, Group, Range
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.columns import Columns
from nile.exact.state.expire import NEVER
from nile.exact.state.held import Held, State
from nile.exact.state.line import Line, told_by_line
from nile.exact.state.rows import grown
from nile.exact.state.sums import Linear, Touches, everyone

__all__ = ["DistinctOverWindow", "OverWindow", "distinct", "grouping"]

kernels: Any = arrow.Late("nile.exact.pipeline.over_window_kernels")

_ROOM = 64
"""Tuples of a step for which there is room without asking for any."""
_NO_TABLE = (np.zeros((1, 1), np.int64), *np.zeros((4, 1), np.int64), 0)


def grouping(clock: Clock, plan: Group, queue: Queue, *, wanted: bool) -> Grouping:
    """The operator of a group-by: one that works in one pass, where what it keeps of groups are counts and sums."""
    stream = queue.below.operator
    if wanted and isinstance(stream, Stream) and stream.may_line and told_by_line(stream.schema):
        made = OverWindow(clock, plan, queue, stream)
        if made.fits:
            return made
    return Grouping(clock, plan, queue, wanted=wanted)


def distinct(clock: Clock, plan: Distinct, queue: Queue, *, wanted: bool) -> Stateful:
    """The operator of DISTINCT: over a stream, groups by all columns, of which nothing else is told."""
    stream, names = queue.below.operator, plan.schema.names
    alone = bool(names) and len(set(names)) == len(names)
    if alone and wanted and isinstance(stream, Stream) and stream.may_line and told_by_line(stream.schema):
        return DistinctOverWindow(clock, Group(plan.input, tuple(names), ()), queue, stream)
    return Bag(clock, "distinct", [queue], plan.schema, wanted=wanted)


class _Scratch:
    """Room for the tuples of a step and for the pairs (instant, group) that they touch."""

    DERIVED: ClassVar = ("tuples", "signs", "pairs", "taken", "numbers", "empty")

    def __init__(self, room: int, words: int, width: int) -> None:
        self.tuples = np.empty((3, room), np.int64)
        self.signs = np.empty(room, np.int8)
        self.pairs = np.empty((6, room), np.int64)
        self.taken = np.empty((words, room), np.int64)
        self.numbers = np.empty((2, width, room), np.int64)
        self.empty = np.empty(room, np.int64)


class OverWindow(Grouping):
    """Both as one.  Scratch beside what they hold: O(tuples) of a step while it lasts, else 64 of them."""

    HELD: ClassVar[tuple[str, ...]] = ("_stream",)
    DERIVED: ClassVar[tuple[str, ...]] = (
        "_queue",
        "_window",
        "_line",
        "_parts",
        "_width",
        "_asked",
        "_place",
        "_scratch",
        "_direct",
    )

    def __init__(self, clock: Clock, plan: Group, queue: Queue, stream: Stream) -> None:
        super().__init__(clock, plan, queue)
        assert isinstance(stream.window, Range)
        self._queue, self._stream, self._window = queue, stream, stream.window.ns
        read = [key[1] for key in self._states if isinstance(key[1], int)]
        self._line = Line(stream.schema, self._table, self._by, read)
        encoder = self._line.ring.encoder
        self._parts: list[tuple[Linear, int, int, int]] = []
        """Each state, where its numbers begin, the word of its column (-1: none), which of the ring's columns it is."""
        self._width = 0
        begins = {}
        for key, state in self._states.items():
            if isinstance(state, Linear):
                at = self._line.beside.index(key[1]) if isinstance(key[1], int) else -1
                self._parts.append((state, self._width, encoder.first[at] if at >= 0 else -1, at))
                begins[key] = self._width
                self._width += state.width
        kinds = self.schema.types[len(self._by) :]
        self._asked = [
            (state, begins[key], function, share, kind)
            for (function, share, key), kind in zip(self._reads, kinds, strict=True)
            if isinstance(state := self._states[key], Linear)
        ]
        self._place = np.zeros(4, np.int64)
        self._scratch = _Scratch(_ROOM, encoder.width, self._width)
        by = [] if self._table is None else self._table.encoder.kinds
        self._direct = all(pa.types.is_int64(kind) or pa.types.is_float64(kind) for kind in by)

    @property
    def fits(self) -> bool:
        """Whether all that is kept of groups are counts and sums."""
        return len(self._parts) == len(self._states)

    def step(self, to: int) -> Delta:
        """All changes up to and at `to`."""
        arrivals = self._stream.arrivals
        begun = self._shown or bool(self._by)
        if not begun or self._queue.waits or arrivals.back.first(to) is not None or not self._may_hold():
            return super().step(to)
        if not self._stream.lined(self._line):
            return super().step(to)
        self._local_clock = to
        ts, rows = self._stream.arrived(to)
        n, held, scratch = self._slid(to, ts, rows)
        if not n:
            return empty(self.schema)
        came = ts.shape[0]
        self._queue.stepped(came, n - came)
        self._stream.negative += n - came
        out = self._changed(n, held, scratch)
        if n > came:
            self._line.ring.forget()
        if self._table is not None:
            self._table.tidy()
        return out

    def _may_hold(self) -> bool:
        latest = self._stream.arrivals.latest
        return latest is None or latest < NEVER - 1 - self._window

    def _slid(self, to: int, ts: Array, rows: Any) -> tuple[int, int, _Scratch]:
        """(tuples that come and leave, the pairs they touch, both written there)."""
        line, ring, place, n = self._line, self._line.ring, self._place, ts.shape[0]
        by = [rows.column(at) for at in self._by]
        codes = line.codes(rows) if self._table is None else self._codes(self._table, by)
        words = ring.encoder.encode([rows.column(at) for at in line.beside], n)
        if self._table is not None and self._counts.shape[0] < self._table.room:
            self._counts = grown(self._counts, self._table.room)
            self._births = grown(self._births, self._table.room)
            self._mark = grown(self._mark, self._table.room, -1)
        ring.room(ring.newest - ring.oldest + n)
        place[0], place[1], place[2] = ring.oldest, ring.newest, self._born
        scratch = self._scratch
        while True:
            done, held = kernels.slide(
                to, self._window, ts, codes, words, ring.encoder.mask, ring.ts, ring.codes, ring.words, place,
                self._counts, self._births, self._mark, scratch.tuples, scratch.signs, scratch.pairs, scratch.taken,
            )  # fmt: skip
            if done >= 0:
                ring.oldest, ring.newest, self._born = place[:3].tolist()
                return done, held, scratch
            scratch = _Scratch(-done, ring.encoder.width, self._width)

    def _changed(self, n: int, held: int, scratch: _Scratch) -> Delta:
        """Let states take the tuples in, and tell the rows of groups that have changed."""
        tuples, pairs, taken = scratch.tuples, scratch.pairs, scratch.taken
        touches = Touches(
            scratch.signs[:n], tuples[1, :n], tuples[0, :n], tuples[2, :n], pairs[4, :held], pairs[5, :held],
            self._counts.shape[0],
        )  # fmt: skip
        self._share(touches, n)
        numbers, nulls = scratch.numbers, self._place[3] != 0
        for state, at, word, column in self._parts:
            counted = self._line.ring.encoder.valid(taken[:, :n], column) if nulls and word >= 0 else everyone(n)
            end = at + state.width
            state.note(touches, taken[word, :n], counted, numbers[0, at:end, :held], numbers[1, at:end, :held])
        return self._delta(held, scratch)

    def _delta(self, held: int, scratch: _Scratch) -> Delta:
        table = self._table
        keys = 0 if table is None else table.encoder.width
        out, sign = np.empty((1 + keys + self._width, 2 * held), np.int64), np.empty(2 * held, np.int8)
        kept, index, hashes, free, meta, mask = _NO_TABLE if table is None else (
            table.kept, table.index, table.hashes, table.free, table.meta, table.encoder.mask
        )  # fmt: skip
        n, gone, null_key = kernels.tell(
            held, scratch.pairs, scratch.numbers[0], scratch.numbers[1], table is not None, mask, self._counts, kept,
            index, hashes, free, meta, scratch.empty, out, sign,
        )  # fmt: skip
        if not n:
            return empty(self.schema)
        if n < 2 * held:
            out, sign = out[:, :n].copy() if 2 * n < held else out[:, :n], sign[:n]
        columns: list[Any] = []
        if table is not None:
            if self._direct and not null_key:
                columns = [in_place(out[1 + at], kind) for at, kind in enumerate(table.encoder.kinds)]
            else:
                columns = table.encoder.decode(np.ascontiguousarray(out[1 : 1 + keys].T))
        for state, at, function, share, kind in self._asked:
            begin = 1 + keys + at
            columns.append(state.column(function, out[begin : begin + state.width].T, kind, share))
        return Delta(out[0], sign, Columns(columns, self.schema, n), None, None, gone)


class DistinctOverWindow(OverWindow):
    """Rows of a stream once each; what is captured is that of a `Bag`."""

    KIND: ClassVar = "bag"

    def captured(self) -> State:
        counts = self._counts[self._live()]
        return {"rows": self.contents(), "counts": np.column_stack([counts, np.zeros_like(counts)])}

    def restored(self, held: Held) -> None:
        rows = held.rows("rows", self.schema)
        counts = held.array("counts", "int64", (rows.num_rows, 2))
        if counts[:, 1].any():
            held.refuse("rows of one input", "some of another")
        if not self._put(rows, counts[:, 0]):
            held.refuse("rows that differ", "one of them twice")
