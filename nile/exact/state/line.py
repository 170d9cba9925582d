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
from nile.exact.state.ring import Ring
from nile.exact.state.rows import RowTable

__all__ = ["Line", "told_by_line"]


class Line:
    """Rows that wait to leave, first in first out, in memory O(rows).  ring: `ts` is when each leaves, below NEVER.

    table: of groups; by: where its columns are among those of the rows; beside: where those are that the ring keeps.
    """

    HELD: ClassVar = ("ring",)
    DERIVED: ClassVar = ("schema", "table", "by", "beside")

    def __init__(self, schema: Any, table: RowTable | None, by: Sequence[int], also: Sequence[int]) -> None:
        """also: columns that the ring keeps whether the table tells them or not."""
        self.schema = schema
        self.table = table
        self.by = tuple(by)
        told = {at for at in by if not _loses(schema.field(at).type)} - set(also)
        self.beside = [at for at in range(len(schema)) if at not in told]
        self.ring = Ring(pa.schema([schema.field(at) for at in self.beside]), chained=False)

    def codes(self, rows: Any) -> Array:
        """The codes of groups of rows: int64 [n], new ones where there are new groups."""
        if self.table is None:
            return np.zeros(rows.num_rows, np.int64)
        return self.table.codes(self.table.encode([rows.column(at) for at in self.by]))

    def fill(self, calendar: Calendar) -> bool:
        """Take in what a calendar holds, whose groups the table has; whether it may: nothing is to be taken back."""
        state = calendar.capture()
        if (state["sign"] < 0).any():
            return False
        rows = state["rows"]
        self.ring.add(state["until"], [rows.column(at) for at in self.beside], self.codes(rows))
        return True

    def plain(self) -> Calendar:
        """The same as a calendar."""
        calendar = Calendar(self.schema)
        calendar.restore(Held(self.capture(), "rows of a window"))
        return calendar

    def contents(self) -> Any:
        """The rows that have not left, in the order they leave: a RecordBatch."""
        held = self.ring.held()
        columns: dict[int, Any] = dict(zip(self.beside, self.ring.columns(held), strict=True))
        if self.table is not None and len(columns) < len(self.schema):
            columns = {**dict(zip(self.by, self.table.columns(self.ring.codes[held & self.ring.mask]), strict=True)),
                       **columns}  # fmt: skip
        return pa.RecordBatch.from_arrays([columns[at] for at in range(len(self.schema))], schema=self.schema)

    def capture(self) -> State:
        """As of a calendar."""
        until = self.ring.ts[self.ring.held() & self.ring.mask]
        return {"until": until, "sign": np.ones(until.shape[0], np.int8), "rows": self.contents()}

    def nth(self, n: int) -> int | None:
        """When the n-th row (from 0) leaves, None if there are fewer."""
        at = self.ring.oldest + n
        return int(self.ring.ts[at & self.ring.mask]) if at < self.ring.newest else None

    @property
    def memory(self) -> int:
        """Bytes of the rows, beside the table of groups."""
        return self.ring.memory


def _loses(kind: Any) -> bool:
    """Whether a table of groups takes different values of a type for one: 0.0 and -0.0, NaN and NaN."""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def told_by_line(schema: Any) -> bool:
    """Whether words tell rows of these columns, whatever is in them."""
    types = pa.types
    return not any(types.is_nested(kind) or types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType)
                   for kind in schema.types)  # fmt: skip
