"""A group-by or DISTINCT right above a stream in a range window, worked on in one pass: the way of most pushes.

What comes and what leaves are words in one line; groups, their sums and the rows told of them are worked out from these
without batches in between, which cost a push of few rows more than its rows do.  State, outputs and captured bytes are
those of the two operators, which go on by themselves once they are asked in another way: by a scheduler that runs one
of them, or for tuples that are taken back.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from nile.exact.join.threads import together, useful
from nile.exact.pipeline.figures import Counted as Below
from nile.exact.pipeline.group import Grouping
from nile.exact.pipeline.schedule import Clock, Delta, Stateful, empty
from nile.exact.pipeline.setops import Bag
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.plan.algebra import Distinct, Group, Range
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.blocks import Groups, Passing, in_turn, take_in
from nile.exact.state.columns import Columns, Numbers, words_of
from nile.exact.state.expire import NEVER
from nile.exact.state.held import Held, State
from nile.exact.state.lent import roomy
from nile.exact.state.line import Line, told_by_line
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.scratch import ROOM, Scratch, View
from nile.exact.state.totals.states import MADE, PLAIN, ROWS, Counted, Linear, Touches, everyone
from nile.summaries.errors import SumOverflow

__all__ = ["DistinctOverWindow", "OverWindow", "distinct", "grouping"]

kernels: Any = arrow.Late("nile.exact.pipeline.over_window_kernels")

_PIECE = 1 << 14
"""Tuples that come in a step from which on they are worked on in blocks, and a thread of their own is worth having."""
_NO_CODES = np.zeros(0, np.int64)
_NO_KEYS = np.zeros((0, 0), np.int64)
_NO_TABLE = np.zeros((1, 1), np.int64), *np.zeros((4, 1), np.int64)


def grouping(clock: Clock, plan: Group, below: Below, *, wanted: bool) -> Grouping:
    """The operator of a group-by: one that works in one pass, where what it keeps of groups are counts and sums."""
    stream = below.operator
    if wanted and isinstance(stream, Stream) and stream.may_line and told_by_line(stream.schema):
        made = OverWindow(clock, plan, below, stream)
        if made.fits:
            return made
    return Grouping(clock, plan, below, wanted=wanted)


def distinct(clock: Clock, plan: Distinct, below: Below, *, wanted: bool) -> Stateful:
    """The operator of DISTINCT: over a stream, groups by all columns, of which nothing else is told."""
    stream, names = below.operator, plan.schema.names
    alone = bool(names) and len(set(names)) == len(names)
    if alone and wanted and isinstance(stream, Stream) and stream.may_line and told_by_line(stream.schema):
        made = DistinctOverWindow(clock, Group(plan.input, tuple(names), ()), below, stream)
        if made.fits:
            return made
    return Bag(clock, "distinct", [below], plan.schema, wanted=wanted)


class OverWindow(Grouping):
    """Both as one.  Scratch beside what they hold: O(tuples) of a step while it lasts, else 64 of them."""

    HELD: ClassVar[tuple[str, ...]] = ("_stream",)
    DERIVED: ClassVar[tuple[str, ...]] = (
        "_below", "_window", "_latest", "_line", "_parts", "_width", "_asked", "_read_as", "_tally", "_place",
        "_scratch", "_direct", "_plain", "_numbers",
    )  # fmt: skip

    def __init__(self, clock: Clock, plan: Group, below: Below, stream: Stream) -> None:
        super().__init__(clock, plan, below)
        assert isinstance(stream.window, Range)
        self._below, self._stream, self._window = below, stream, stream.window.ns
        self._latest = NEVER - 1 - self._window  # what comes from then on never leaves
        read = [key[1] for key in self._states if isinstance(key[1], int)]
        self._line = Line(stream.schema, self._table, self._by, read)
        encoder = self._line.encoder
        self._parts: list[tuple[Linear, int, int, int]] = []
        """Each state, where its numbers begin, the word of its column (-1: none), which of the line's columns it is."""
        self._width = 0
        begins = {}
        tally = self._states.get((Counted, None))
        self._tally = tally if isinstance(tally, Counted) else None
        for key, state in self._states.items():
            if state is tally:
                begins[key] = 0
            elif isinstance(state, Linear):
                at = self._line.beside.index(key[1]) if isinstance(key[1], int) else -1
                self._parts.append((state, self._width, encoder.first[at] if at >= 0 else -1, at))
                begins[key] = self._width
                self._width += state.width
        kinds = self.schema.types[len(self._by) :]
        self._asked = [
            (state, begins[key], function, share, kind, ROWS if state is tally else state.read(function))
            for (function, share, key), kind in zip(self._reads, kinds, strict=True)
            if isinstance(state := self._states[key], Linear)
        ]
        self._read_as = np.array([each[1::4] for each in self._asked], np.int64).reshape(-1, 2)
        self._place = np.zeros(7, np.int64)
        self._scratch = Scratch(ROOM, encoder.width, self._width)
        table = self._table
        by = [] if table is None else table.encoder.kinds
        self._direct = all(pa.types.is_int64(kind) or pa.types.is_float64(kind) for kind in by)
        self._plain = all(read != MADE for *_, read in self._asked)
        """Whether aggregates are numbers as they stand, unless there is something odd."""
        self._numbers: tuple[int, ...] | None = None
        """Which rows of what is told are the columns, where these are plain numbers."""
        if self._direct and self._plain:
            keys = 0 if table is None else table.encoder.width
            self._numbers = *range(1, 1 + len(by)), *range(1 + keys, 1 + keys + len(self._asked))

    @property
    def fits(self) -> bool:
        """Whether all that is kept of groups are counts and sums, and of rows not much more than else."""
        return all(isinstance(state, Linear) for state in self._states.values()) and self._line.is_small

    def step(self, to: int) -> Delta:
        """All changes up to and at `to`."""
        stream, line, table, below = self._stream, self._line, self._table, self._below
        came = None
        if (self._shown or self._by) and not below.waiting:
            came = stream.straight(line, to, self._latest)
        if came is None:
            return self._apart(to)
        self._local_clock = to
        arrived = came[0].shape[0]
        if table is not None and arrived >= _PIECE:
            n, out = self._in_blocks(to, *came)
        else:
            n, out = self._at_once(to, *came)
        if not n:
            return out
        gone = n - arrived
        below.positive += arrived
        below.negative += gone
        if self._tally is not None:
            self._tally.now = self._counts  # the same, counted once
        if gone:
            stream.negative += gone
            line.forget()
        if table is not None and table.encoder.values:
            table.tidy()
        return out

    def _at_once(self, to: int, ts: Array, rows: Any) -> tuple[int, Delta]:
        """(tuples that come and leave, what is told of them)."""
        n, held, scratch = self._slid(to, ts, rows)
        if not n:
            return 0, empty(self.schema)
        if self._parts:
            view = scratch.views.get((n, held))
            if view is None:
                view = scratch.views[n, held] = self._viewed(n, held, scratch)
            touches, parts, counted = view
            touches.room = self._counts.shape[0]
            if n > ROOM:
                self._share(touches, n)
            nulls = self._place[3] != 0
            for state, words, column, places in parts:
                there = self._line.encoder.valid(scratch.taken[:, :n], column) if nulls and column >= 0 else counted
                state.note(touches, words, there, places)
        return n, self._delta(held, scratch)

    def _apart(self, to: int) -> Delta:
        """As the two operators."""
        if self._tally is not None and self._tally.now is self._counts:
            self._tally.now = self._counts.copy()
        return super().step(to)

    def _slid(self, to: int, ts: Array, rows: Any) -> tuple[int, int, Scratch]:
        """(tuples that come and leave, the pairs they touch, both written there)."""
        line, place = self._line, self._place
        keys, codes, table, scratch = _NO_KEYS, _NO_CODES, self._table, self._scratch
        if table is not None and ts.shape[0] <= ROOM:
            keys, codes = words_of(rows, self._by, table.encoder), scratch.codes
        elif table is not None:
            codes = self._codes(table, rows)
            self._make_room(table.room)
        words = words_of(rows, line.beside, line.encoder)
        place[0], place[1], place[2] = line.first, line.held, self._born
        while True:
            tables = _NO_TABLE
            if table is not None:
                tables = table.kept, table.index, table.hashes, table.free, table.meta
                if self._counts.shape[0] < (room := table.kept.shape[0]):
                    self._make_room(room)
            done, touched = kernels.slide(
                to, self._window, ts, keys, codes, words, *tables, line.until, line.codes, line.words, line.nulls,
                place, self._counts, self._births, self._mark, scratch.tuples, scratch.signs, scratch.pairs,
                scratch.taken,
            )  # fmt: skip
            if done >= 0:
                line.first, line.held, self._born = place[:3].tolist()
                return done, touched, scratch
            if done == -2 and table is not None:
                table.grow()
                continue
            nulls, tuples, most = place[3:6].tolist()
            if tuples > scratch.signs.shape[0]:
                scratch = Scratch(tuples, line.encoder.width, self._width)
            line.make_room(most, nulls=bool(nulls))
            place[0] = line.first

    def _make_room(self, groups: int) -> None:
        """Have room for codes of groups below this."""
        if self._counts.shape[0] < groups:
            self._counts, self._births = grown(self._counts, groups), grown(self._births, groups)
            self._mark = grown(self._mark, groups, -1)

    def _worded(self, table: RowTable, rows: Any) -> tuple[Array, Array]:
        """(codes of groups, words of the line) of what comes, by threads."""
        encoder, beside, n = self._line.encoder, self._line.beside, rows.num_rows
        if encoder.values:  # numbers texts, in order
            return self._codes(table, rows), words_of(rows, beside, encoder)
        words, columns = roomy(n * encoder.width).reshape(n, encoder.width), [rows.column(at) for at in beside]

        def encode(begin: int, end: int) -> None:
            encoder.encode([each.slice(begin, end - begin) for each in columns], end - begin, words[begin:end])

        return self._codes(table, rows, encode), words

    def _in_blocks(self, to: int, ts: Array, rows: Any) -> tuple[int, Delta]:
        """(tuples that come and leave, what is told of them), in blocks, by threads where they are worth it."""
        line, table, come = self._line, self._table, ts.shape[0]
        assert table is not None
        codes, words = self._worded(table, rows)
        self._make_room(table.room)
        passing = Passing(line, self._window, ts, codes, words)
        end = come, passing.cut(to + 1)[1]
        n, blocks = come + end[1], passing.blocks(end)
        threads = 1 << (useful(self.clock.threads, come, _PIECE).bit_length() - 1)
        nulls = bool(line.nulls.shape[0]) or any(rows.column(at).null_count for at in line.beside)
        groups = Groups(self._counts, self._births, self._mark, self._parts, self._born, nulls)
        if threads > 1:
            groups = take_in(blocks, passing, groups, threads, together)
            self._counts, self._births = groups.counts, groups.births
        begins = [0, *np.cumsum([block.rows for block in blocks]).tolist()]
        beyond = 0 if self._plain and not nulls else self._width
        rows_of = 1 + table.encoder.width + len(self._asked) + beyond
        out, sign = roomy(rows_of * begins[-1]).reshape(rows_of, begins[-1]), roomy(begins[-1], np.int8)
        failed: list[SumOverflow | None] = [None] * len(blocks)

        emptied: list[Array] = []

        def left_empty(codes: Array) -> Array:
            return codes[self._counts[codes] == 0]

        def tell(k: int) -> None:
            block = blocks[k]
            scratch = block.scratch
            given = scratch.pairs, *scratch.sides, True, table.encoder.mask, self._read_as, table.kept, scratch.chosen
            held, gone, odd = kernels.tell_part(block.n, begins[k], *given, out, sign)
            if odd & kernels.NO_NUMBER and not beyond:
                failed[k] = self._beyond(block.n, given)
            if odd & kernels.EMPTIED:
                emptied.append(left_empty(block.emptied()) if threads > 1 else block.emptied())
            block.told = held - begins[k], gone, odd

        def pass_on() -> None:
            line.pass_on(end[1], np.add(ts, self._window + 1, out=roomy(come)), codes, words, nulls=nulls)

        if threads > 1:
            in_turn([pass_on, *(partial(tell, k) for k in range(len(blocks)))], threads, together)
        else:
            scratch = Scratch(max(block.n for block in blocks), line.encoder.width, self._width)
            for k, block in enumerate(blocks):
                block.lay_out(passing, self._parts, scratch)
                block.take_in(line.encoder, groups)
                tell(k)
            pass_on()
        self._born += n
        try:
            for error in failed:
                if error is not None:
                    raise error
            held = 0
            for block, begin in zip(blocks, begins, strict=False):
                if held < begin:  # those before told less than they might have
                    for row in (*out, sign):
                        row[held : held + block.told[0]] = row[begin : begin + block.told[0]]
                held += block.told[0]
            gone, odd = sum(block.told[1] for block in blocks), 0
            for block in blocks:
                odd |= block.told[2]
            return n, self._formed(held, gone, odd, out, sign)
        finally:
            if emptied:
                gone_by = np.concatenate(emptied)
                table.release_together(gone_by if threads > 1 else left_empty(gone_by), threads, together)

    def _beyond(self, held: int, given: tuple[Any, ...]) -> SumOverflow | None:
        """What is wrong with a total of pairs without nulls that is no number."""
        out = np.empty((1 + given[-2].shape[1] + len(self._asked) + self._width, 2 * held), np.int64)
        sign = np.empty(2 * held, np.int8)
        try:
            n, gone, odd = kernels.tell_part(held, 0, *given, out, sign)
            self._formed(n, gone, odd, out, sign)
        except SumOverflow as error:
            return error
        return None

    def _viewed(self, n: int, held: int, scratch: Scratch) -> View:
        """What states are given of so many tuples and pairs in scratch."""
        tuples, pairs, numbers = scratch.tuples[:, :n], scratch.pairs[:, :held], scratch.numbers[:, :, :held]
        touches = Touches(scratch.signs[:n], tuples[1], tuples[0], _NO_CODES, tuples[2], pairs[4], pairs[5], 0)
        parts = [
            (state, scratch.taken[word, :n], column, state.places(*numbers[:, at : at + state.width]))
            for state, at, word, column in self._parts
        ]
        return touches, parts, everyone(n)

    def _delta(self, held: int, scratch: Scratch) -> Delta:
        """The rows of groups that have changed."""
        table, asked = self._table, self._asked
        keys = 0 if table is None else table.encoder.width
        numbers = 1 + keys + len(asked)
        tables, mask = _NO_TABLE, 0
        if table is not None:
            tables, mask = (table.kept, table.index, table.hashes, table.free, table.meta), table.encoder.mask
        old, new = scratch.sides
        given = old, new, table is not None, mask, self._read_as
        beyond = 0 if self._plain else self._width
        while True:  # where numbers alone do not tell all, once more with what they were read from
            sign = roomy(2 * held, np.int8)
            out = roomy((numbers + beyond) * 2 * held).reshape(numbers + beyond, 2 * held)
            n, gone, odd = kernels.tell(
                held, scratch.pairs, *given, self._counts, *tables, scratch.chosen, out, sign
            )  # fmt: skip
            if beyond == self._width or not odd & kernels.NO_NUMBER:
                return self._formed(n, gone, odd, out, sign)
            beyond = self._width

    def _formed(self, n: int, gone: int, odd: int, out: Array, sign: Array) -> Delta:
        """What `tell` has told, of which so many rows go."""
        if not n:
            return empty(self.schema)
        table, asked = self._table, self._asked
        keys = 0 if table is None else table.encoder.width
        numbers = 1 + keys + len(asked)
        if n < sign.shape[0]:
            out, sign = out[:, :n].copy() if 4 * n < sign.shape[0] else out, sign[:n]
        room, ts, odd = out.shape[1], out[0, :n], odd & ~kernels.EMPTIED
        if odd == 0 and self._numbers is not None:
            return Delta(ts, sign, Numbers(out, self._numbers, self.schema, n), None, None, gone)
        array, buffers = pa.Array.from_buffers, [None, pa.py_buffer(out)]
        columns: list[Any] = []
        if table is not None:
            if self._direct and not odd & kernels.NULL_KEY:
                columns = [
                    array(kind, n, buffers, 0, at * room) for at, kind in enumerate(table.encoder.kinds, start=1)
                ]
            else:
                columns = table.encoder.decode(np.ascontiguousarray(out[1 : 1 + keys, :n].T))
        plain = not odd & kernels.NO_NUMBER
        for at, (state, begin, function, share, kind, read) in enumerate(asked, start=1 + keys):
            if read in (PLAIN, ROWS) or (plain and read != MADE):
                columns.append(array(kind, n, buffers, 0, at * room))
            else:
                words = out[numbers + begin : numbers + begin + state.width, :n]
                columns.append(state.column(function, words.T, kind, share))
        return Delta(ts, sign, Columns(columns, self.schema, n), None, None, gone)

    @property
    def own(self) -> int:
        twice = self._tally is not None and self._tally.now is self._counts
        return super().own - (self._counts.nbytes if twice else 0)


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
