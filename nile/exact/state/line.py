"""The rows of one window in the order in which they leave, as words beside the codes of their groups.

What a `Calendar` holds of a stream in one range window, for whoever works on words: nothing is encoded when it leaves.
Columns that the table of groups tells bit by bit are in the table alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import Calendar
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable
from nile.exact.state.words import Encoder

__all__ = ["Line", "told_by_line"]

_LEAST = 16  # rows for which there is always room
_SLACK = 512  # values of text kept beyond twice the rows before they are sorted out
_TEXT = 1 << 15  # bytes of text that a line of any length may keep
_BATCHED = 9  # bytes of a row in a calendar beside its columns: when it leaves, and its sign


class Line:
    """Rows that wait to leave, first in first out, in room for at most a quarter more.

    table: of groups; by: where its columns are among those of the rows; beside: where those are that it keeps itself.
    until int64 [room], when each leaves, below NEVER; codes int32 [room], of its group, [0] without a table; words
    int64 [room, w] as `Encoder` makes them, nulls uint8 [room, b], the bytes of its last words, lowest first ([0, b]
    while no row has a null); the row that leaves k-th is at (first + k) % room, k < held.  Cost: O(1) a row, amortised.
    """

    HELD: ClassVar = ("until", "codes", "words", "nulls", "first", "held")
    DERIVED: ClassVar = ("schema", "table", "by", "beside", "encoder", "_own")

    def __init__(self, schema: Any, table: RowTable | None, by: Sequence[int], also: Sequence[int]) -> None:
        """also: columns that it keeps whether the table tells them or not."""
        self.schema = schema
        self.table = table
        self.by = tuple(by)
        told = {at for at in by if not _loses(schema.field(at).type)} - set(also)
        self.beside = [at for at in range(len(schema)) if at not in told]
        self.encoder = Encoder([schema.field(at).type for at in self.beside], exact=True)
        masks = self.encoder.width - self.encoder.mask
        self._own = 8 + 8 * self.encoder.mask + (0 if table is None else 4)
        self.until = np.zeros(_LEAST, np.int64)
        self.codes = np.zeros(0 if table is None else _LEAST, np.int32)
        self.words = np.zeros((_LEAST, self.encoder.mask), np.int64)
        self.nulls = np.zeros((0, max(1, -(-len(self.beside) // 8)) if masks == 1 else 8 * masks), np.uint8)
        self.first = 0
        self.held = 0

    @property
    def is_small(self) -> bool:
        """Whether rows take at most twice the bytes that they take in a calendar, whose text is as good as a word."""
        batched = sum(_width(field.type) for field in self.schema)
        return self._own + self._own // 4 <= 2 * (_BATCHED + batched)

    @property
    def is_wordy(self) -> bool:
        """Whether different texts take more than half of what the rows do: in a calendar all might take half."""
        return self.encoder.memory > _TEXT + self.held * self._own // 2

    def places(self) -> Array:
        """Where the rows are, in the order in which they leave: int64 [held]."""
        return (self.first + np.arange(self.held)) % self.until.shape[0]

    def group_codes(self, rows: Any) -> Array:
        """The codes of groups of rows, new ones where there are new groups: int64 [n], [0] without a table."""
        if self.table is None:
            return np.zeros(0, np.int64)
        return self.table.codes(self.table.encode([rows.column(at) for at in self.by]))

    def fill(self, calendar: Calendar) -> bool:
        """Take in what a calendar holds, whose groups the table has; whether it may: nothing is to be taken back."""
        state = calendar.capture()
        if (state["sign"] < 0).any():
            return False
        rows, n = state["rows"], state["until"].shape[0]
        words = self.encoder.encode([rows.column(at) for at in self.beside], n)
        mask = self.encoder.mask
        self.make_room(n, nulls=bool(words[:, mask:].any()))
        self.first, self.held = 0, n
        self.until[:n], self.words[:n] = state["until"], words[:, :mask]
        if self.table is not None:
            self.codes[:n] = self.group_codes(rows)
        if self.nulls.shape[0]:
            self.nulls[:n] = words[:, mask:].astype("<i8").view(np.uint8)[:, : self.nulls.shape[1]]
        return True

    def pass_on(self, gone: int, until: Array, codes: Array, words: Array, *, nulls: bool) -> None:
        """Let go of the first `gone` rows of those held and those that come: codes int64 [n] ([0] without a table),
        words [n, w + masks] as of the encoder; nulls: whether any of these may have one."""
        width, kept = self.encoder.mask, min(gone, self.held)
        self.first, self.held = (self.first + kept) % self.until.shape[0], self.held - kept
        until, codes, words = until[gone - kept :], codes[gone - kept :], words[gone - kept :]
        self.make_room(self.held + until.shape[0], nulls=nulls and bool(words[:, width:].any()))
        begin = (self.first + self.held) % self.until.shape[0]
        straight = min(until.shape[0], self.until.shape[0] - begin)
        for own, to in ((slice(0, straight), begin), (slice(straight, None), 0)):
            at = slice(to, to + until[own].shape[0])
            self.until[at], self.words[at] = until[own], words[own, :width]
            if self.codes.shape[0]:
                self.codes[at] = codes[own]
            if self.nulls.shape[0]:
                masks = words[own, width:].astype("<i8").view(np.uint8)
                self.nulls[at] = masks[:, : self.nulls.shape[1]]
        self.held += until.shape[0]

    def make_room(self, rows: int, *, nulls: bool = False) -> None:
        """Have room for so many rows; nulls: and for which of their columns are null."""
        if rows > self.until.shape[0]:
            self._resize(rows)
        if nulls and not self.nulls.shape[0]:
            self.nulls = np.zeros((self.until.shape[0], self.nulls.shape[1]), np.uint8)

    def forget(self) -> None:
        """Let go of room for more than a quarter more than what is held, and of text that no held row has."""
        if self.until.shape[0] > self.held + self.held // 4 + 4 * _LEAST:
            self._resize(self.held)
        for word, values in self.encoder.values.items():
            if len(values) > 2 * self.held + _SLACK:
                at = self.places()
                table = values.keep(self.words[at, word])
                self.words[at, word] = table[self.words[at, word]]

    def _resize(self, rows: int) -> None:
        room = max(rows + rows // 16, _LEAST)
        straight = min(self.held, self.until.shape[0] - self.first)  # rows before the end, the others begin anew
        for name in ("until", "codes", "words", "nulls"):
            had = getattr(self, name)
            if had.shape[0]:
                wider = np.zeros((room, *had.shape[1:]), had.dtype)
                wider[:straight] = had[self.first : self.first + straight]
                wider[straight : self.held] = had[: self.held - straight]
                setattr(self, name, wider)
        self.first = 0
        if self.nulls.shape[0] and not self.nulls.any():
            self.nulls = self.nulls[:0].copy()

    def plain(self) -> Calendar:
        """The same as a calendar."""
        calendar = Calendar(self.schema)
        calendar.restore(Held(self.capture(), "rows of a window"))
        return calendar

    def contents(self) -> Any:
        """The rows that have not left, in the order they leave: a RecordBatch."""
        at = self.places()
        words = np.zeros((self.held, self.encoder.width), np.int64)
        words[:, : self.encoder.mask] = self.words[at]
        if self.nulls.shape[0]:
            masks = np.zeros((self.held, 8 * (self.encoder.width - self.encoder.mask)), np.uint8)
            masks[:, : self.nulls.shape[1]] = self.nulls[at]
            words[:, self.encoder.mask :] = masks.view("<i8")
        columns: dict[int, Any] = dict(zip(self.beside, self.encoder.decode(words), strict=True))
        if self.table is not None and len(columns) < len(self.schema):
            columns = {**dict(zip(self.by, self.table.columns(self.codes[at]), strict=True)), **columns}
        return pa.RecordBatch.from_arrays([columns[at] for at in range(len(self.schema))], schema=self.schema)

    def capture(self) -> State:
        """As of a calendar."""
        until = self.until[self.places()]
        return {"until": until, "sign": np.ones(until.shape[0], np.int8), "rows": self.contents()}

    def nth(self, n: int) -> int | None:
        """When the n-th row (from 0) leaves, None if there are fewer."""
        return int(self.until[(self.first + n) % self.until.shape[0]]) if n < self.held else None

    @property
    def memory(self) -> int:
        """Bytes of the rows, beside the table of groups."""
        arrays = (self.until, self.codes, self.words, self.nulls)
        return int(sum(each.nbytes for each in arrays)) + self.encoder.memory


def _loses(kind: Any) -> bool:
    """Whether a table of groups takes different values of a type for one: 0.0 and -0.0, NaN and NaN."""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _width(kind: Any) -> float:
    """Bytes of a value in a batch, of text those of a word."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:  # what has no width of its own
        return 0.0 if pa.types.is_null(kind) else 8.0


def told_by_line(schema: Any) -> bool:
    """Whether words tell rows of these columns, whatever is in them."""
    types = pa.types
    return not any(types.is_nested(kind) or types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType)
                   for kind in schema.types)  # fmt: skip
