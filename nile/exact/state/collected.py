"""Rows of a group in an order, behind list, string_agg, first, last, arg_max and arg_min."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from functools import total_ordering
from typing import Any, ClassVar

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.base.plain import decoded_type
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, pa
from nile.exact.state.totals.states import State, Touches

__all__ = ["Collected"]

_ENTRY = 200  # bytes of a row: its keys, number and value


@total_ordering
class _Back:
    """A value in the opposite order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Back) and self.value == other.value

    def __lt__(self, other: _Back) -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]


class Collected(State):
    """The rows of each group in order, of equals that which came first; one aggregate's.

    A row that goes is the first of the rows with its keys and value.  O(log n) comparisons a row, and moving the
    places behind it; a change of a list or a text costs all of it, of the others O(1).  About 200 bytes a row.
    """

    HELD: ClassVar = ("_rows",)
    DERIVED: ClassVar = ("_asked", "_kinds", "_told", "_next")

    def __init__(self, asked: Any, kinds: list[Any]) -> None:
        self._asked = asked
        self._kinds = [decoded_type(kind) for kind in kinds]
        self._rows: dict[int, list[tuple[tuple[Any, ...], int, Any, tuple[Any, ...]]]] = {}
        self._told: list[Any] = [None]
        self._next = 0

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        old, new = np.zeros((touches.pairs, 1), np.int64), np.zeros((touches.pairs, 1), np.int64)
        self._told = [None]
        rows = zip(*(_plain_values(each) for each in column), strict=True)
        counted = len(column) - (self._asked.where is not None)
        skips = CATALOGUE[self._asked.function].skips
        keyed = CATALOGUE[self._asked.function].argument == "key"
        places = zip(touches.sign.tolist(), touches.codes.tolist(), touches.of_tuples.tolist(), strict=True)
        first, last = touches.first.tolist(), touches.last.tolist()
        for at, ((sign, code, pair), row) in enumerate(zip(places, rows, strict=True)):
            if at == first[pair]:
                old[pair, 0] = self._tell(code)
            absent = (counted < len(row) and not row[-1]) or (
                skips and (row[0] is None or (keyed and None in row[1:counted]))
            )
            if not absent:
                self._change(code, sign, row[0], row[1:counted])
            if at == last[pair]:
                number = self._tell(code)
                same = _is_same(self._told[number], self._told[old[pair, 0]])
                new[pair, 0] = old[pair, 0] if same else number
        return old, new

    def _change(self, code: int, sign: int, value: Any, given: tuple[Any, ...]) -> None:
        keys = tuple(_key(each, down, end) for each, (_, down, end) in zip(given, self._asked.order, strict=True))
        rows = self._rows.setdefault(code, [])
        if sign > 0:
            insort(rows, (keys, self._next, value, given), key=_place)
            self._next += 1
            return
        at = bisect_left(rows, (keys, -1), key=_place)
        del rows[_found(rows, at, keys, value)]
        if not rows:
            del self._rows[code]

    def _tell(self, code: int) -> int:
        """The number of what a group's rows come to now."""
        rows = self._rows.get(code)
        if not rows:
            return 0
        function = self._asked.function
        if function not in ("list", "string_agg"):
            self._told.append(rows[-1 if function == "last" else 0][2])
            return len(self._told) - 1
        values = [row[2] for row in rows]
        if self._asked.distinct:
            values = list(dict.fromkeys(values))
        self._told.append(self._asked.separator.join(values) if function == "string_agg" else values)
        return len(self._told) - 1

    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:  # noqa: ARG002
        told = [self._told[at] for at in numbers[:, 0].tolist()]
        if function != "list":
            return _arrow(told, kind)
        flat = _arrow([value for each in told for value in each or ()], kind.value_type)
        ends = np.cumsum([0, *(len(each or ()) for each in told)]).astype(np.int32)
        none = pa.array([each is None for each in told], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(ends), flat, mask=none)

    def current(self, codes: Array) -> Array:
        self._told = [None]
        return np.array([self._tell(code) for code in codes.tolist()], np.int64).reshape(-1, 1)

    def _schema(self) -> Any:
        kinds = self._kinds[: 1 + len(self._asked.order)]
        return pa.schema([(f"c{at}", kind) for at, kind in enumerate(kinds)])

    def capture(self, codes: Array) -> holding.State:
        """Of each group its rows in order: the value, and what they are ordered by."""
        groups = [self._rows.get(code, []) for code in codes.tolist()]
        rows = [(row[2], *row[3]) for group in groups for row in group]
        schema = self._schema()
        columns = [_arrow([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
        return {
            "starts": np.cumsum([0, *map(len, groups)]).astype(np.int64),
            "rows": pa.RecordBatch.from_arrays(columns, schema=schema),
        }

    def restore(self, held: holding.Held, n: int) -> None:
        starts = held.rising("starts", n + 1)
        rows = held.rows("rows", self._schema())
        held.end()
        if starts[0] != 0 or starts[-1] != rows.num_rows:
            held.refuse(f"groups over {rows.num_rows} rows", starts)
        values = list(zip(*(_plain_values(each) for each in rows.columns), strict=True))
        self._rows, self._next = {}, 0
        for code in range(n):
            for row in values[starts[code] : starts[code + 1]]:
                self._change(code, 1, row[0], row[1:])

    @property
    def memory(self) -> int:
        return sum(map(len, self._rows.values())) * (_ENTRY + 32 * len(self._asked.order))


def _is_same(one: Any, other: Any) -> bool:
    """Whether they are told alike: equal, and zeros of one sign, since what is taken back is what was told."""
    return bool((one,) == (other,)) and repr(one) == repr(other)


def _found(rows: list[Any], at: int, keys: tuple[Any, ...], value: Any) -> int:
    """From `at` on, the first row with the keys and the value, by its bits if there is one."""
    equal = None
    while at < len(rows) and rows[at][0] == keys:
        if (rows[at][2],) == (value,):
            if _is_same(rows[at][2], value):
                return at
            equal = at if equal is None else equal
        at += 1
    if equal is None:
        raise LookupError("a row goes that did not come")
    return equal


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:2]


def _key(value: Any, descending: bool, nulls_last: bool) -> tuple[Any, ...]:
    """What rows are compared by: nulls where they belong, NaN above all numbers."""
    if value is None:
        return (nulls_last,)
    if isinstance(value, float):
        kept = (math.isnan(value), 0.0 if math.isnan(value) else value)
        return (not nulls_last, _Back(kept) if descending else kept)
    return (not nulls_last, _Back(value) if descending else value)


def _plain_values(column: Any) -> list[Any]:
    """Values as Python compares them: times as numbers, one NaN."""
    kind = decoded_type(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    found = column.to_pylist()
    return [math.nan if v != v else v for v in found] if pa.types.is_floating(kind) else found


def _arrow(values: list[Any], kind: Any) -> Any:
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)
