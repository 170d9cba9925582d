"""Which rows of a batch satisfy which of many conditions: an index over the conditions, made once for all batches.

Every condition compares columns with constants.  Per column it is an interval of int64 codes, in the order of the
values, so that one comparison of integers decides, whatever the type.  Of each batch a condition looks at the rows
that one of its columns leaves: those of equal value, found by the values that conditions ask for, or those of an
interval, found in the column's order.  What conditions of other columns say is then checked for all of them at once.
Source: STREAM (CIDR 2003), section 3.2; NiagaraCQ's index over constants, for batches of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.execution.live.chosen import Sought
from nile.summaries.heavy import pa, pc

__all__ = ["Matches", "PredicateIndex", "is_indexable"]

Array = np.ndarray[Any, Any]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_DENSE = 1 << 20
"""Values between the least and the greatest constant up to which a table tells which constant each is."""
_FEW = 32
"""Rows that a condition looks at without asking whether an interval leaves fewer."""


def is_indexable(wanted: Sequence[Sought], schema: pa.Schema) -> bool:
    """Whether an index can tell all of a condition over columns of these types."""
    return bool(wanted) and all(_kind(each, schema) is not None for each in wanted)


def _kind(wanted: Sought, schema: pa.Schema) -> str | None:
    at = schema.get_field_index(wanted.column)
    kind = schema.field(at).type if at >= 0 else pa.null()
    if pa.types.is_string(kind):
        return "text" if isinstance(wanted.constant, str) else None
    if isinstance(wanted.constant, str):
        return None
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return "whole" if type(wanted.constant) is int else None
    return "number" if pa.types.is_floating(kind) else None


def _codes_of_numbers(values: Array) -> Array:
    """int64 codes in the order of float64 values: NaN is one value, beyond all; -0.0 is 0.0."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
    codes: Array = np.where(np.isnan(values), _MOST, bits ^ ((bits >> 63) & _MOST))
    return codes


class _Column:
    """What conditions say of one column: of each an interval of codes, closed.

    low, high: int64 [conditions]; asks: which say anything of it; points: the codes that some want equal, ascending;
    point_of: of each condition its place among them, -1 for none.
    """

    def __init__(self, name: str, kind: str, wanted: Sequence[Sequence[Sought]]) -> None:
        self.name, self._kind = name, kind
        self._texts: list[str] = []
        if kind == "text":
            self._texts = list(dict.fromkeys(each.constant for some in wanted for each in some if each.column == name))
        place = {text: code for code, text in enumerate(self._texts)}
        self.low, self.high = np.full(len(wanted), _LEAST), np.full(len(wanted), _MOST)
        for k, some in enumerate(wanted):
            for each in some:
                if each.column == name:
                    code = place[each.constant] if kind == "text" else self._code(each.constant)
                    operator = each.operator
                    low = code + (operator == ">") if operator in ("=", ">", ">=") else _LEAST + 1  # no null
                    high = code - (operator == "<") if operator in ("=", "<", "<=") else _MOST
                    self.low[k], self.high[k] = max(self.low[k], low), min(self.high[k], high)
        self.asks = self.low > _LEAST
        equal = self.asks & (self.low == self.high)
        self.points = np.unique(self.low[equal])
        self.point_of = np.where(equal, np.searchsorted(self.points, self.low), -1)
        self._table: Array | None = None
        if kind == "whole" and self.points.size and int(self.points[-1]) - int(self.points[0]) < _DENSE:
            self._table = np.full(int(self.points[-1]) - int(self.points[0]) + 3, -1)
            self._table[self.points - self.points[0] + 1] = np.arange(self.points.size)

    def _code(self, constant: float) -> int:
        return int(_codes_of_numbers(np.array([float(constant)]))[0]) if self._kind == "number" else int(constant)

    def codes(self, column: pa.Array) -> Array:
        """Of each row its code: int64 [n], below all intervals for null (and for a text that nobody asks for)."""
        if self._kind == "text":
            found = pc.index_in(column, value_set=pa.array(self._texts, column.type)).fill_null(-1)
            return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
        null = None
        if column.null_count:
            null = column.is_null().to_numpy(zero_copy_only=False)
            column = column.fill_null(0)
        values = column.to_numpy(zero_copy_only=False)
        if self._kind == "number":
            out = _codes_of_numbers(values.astype(np.float64, copy=False))
        else:
            out = np.maximum(values.astype(np.int64, copy=False), _LEAST + 1)
        if null is not None:
            out[null] = _LEAST
        return out

    def points_in(self, codes: Array) -> Array:
        """Of each row the place of its value in `points`, -1 for none: int64 [n]."""
        if self._kind == "text":
            at = np.searchsorted(self.points, np.arange(len(self._texts)))
            there = self.points[np.minimum(at, self.points.size - 1)] == np.arange(len(self._texts))
            table: Array = np.append(np.where(there, at, -1), -1)  # of a text that nobody asks for: the last
            return table[codes]
        if self._table is not None:
            inside: Array = np.clip(codes, self.points[0] - 1, self.points[-1] + 1) - (self.points[0] - 1)
            return self._table[inside]
        at = np.minimum(np.searchsorted(self.points, codes), self.points.size - 1)
        return np.asarray(np.where(self.points[at] == codes, at, -1))


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows by condition.  who, rows: int64 [m], ascending by condition, then by row; broad: conditions that may hold
    for so large a part of the rows that whoever asks had better look at all of them: bool [conditions]."""

    who: Array
    rows: Array
    broad: Array


class PredicateIndex:
    """An index over conditions, each a conjunction of `Sought`, over batches of one schema (all `is_indexable`).

    share: of the rows, above which what one column leaves makes a condition `broad` in that batch.
    Cost of a batch of n rows: O(n log n) for each column that is asked for by intervals, O(n) by values, O(conditions)
    in array operations, and what the matches are.
    """

    def __init__(self, wanted: Sequence[Sequence[Sought]], schema: pa.Schema, share: float = 0.25) -> None:
        names = dict.fromkeys(each.column for some in wanted for each in some)
        kinds = {each.column: str(_kind(each, schema)) for some in wanted for each in some}
        self._columns = [_Column(name, kinds[name], wanted) for name in names]
        self._places = [schema.get_field_index(name) for name in names]
        self._many = len(wanted)
        self._share = share
        self._never = np.zeros(self._many, bool)
        for each in self._columns:
            self._never |= each.low > each.high

    def matches(self, batch: pa.RecordBatch) -> Matches:
        """Which rows satisfy which conditions."""
        n, many = batch.num_rows, self._many
        codes = [each.codes(batch.column(at)) for each, at in zip(self._columns, self._places, strict=True)]
        least, by = np.where(self._never, 0, n + 1), np.full(many, -1)
        points: dict[int, Array] = {}
        for k, column in enumerate(self._columns):
            if column.points.size:
                points[k] = column.points_in(codes[k])
                sizes = np.append(np.bincount(points[k] + 1, minlength=column.points.size + 1)[1:], n + 1)
                sizes = sizes[column.point_of]
                better = sizes < least
                least[better], by[better] = sizes[better], k
        spans: dict[int, tuple[Array, Array]] = {}
        for k, column in enumerate(self._columns):
            looks = np.flatnonzero(((least > _FEW) | (by < 0)) & (least > 0) & column.asks & (column.point_of < 0))
            if looks.size:
                order = np.argsort(codes[k])
                inside = codes[k][order]
                begin = np.searchsorted(inside, column.low[looks], "left")
                sizes = np.searchsorted(inside, column.high[looks], "right") - begin
                better = sizes < least[looks]
                looks, begin, sizes = looks[better], begin[better], sizes[better]
                least[looks], by[looks] = sizes, len(codes) + k
                starts = np.zeros(many, np.int64)
                starts[looks] = begin
                spans[k] = order, starts
        broad = least > max(self._share * n, _FEW)
        asked = ~broad & (least > 0)
        pairs = [self._equal(k, places, asked & (by == k)) for k, places in points.items()]
        for k, (order, starts) in spans.items():
            some = np.flatnonzero(asked & (by == len(codes) + k))
            pairs.append((np.repeat(some, least[some]), order[_ranges(starts[some], least[some])]))
        who, rows = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
        if len(codes) > 1:
            for k, column in enumerate(self._columns):
                code = codes[k][rows]
                good = (code >= column.low[who]) & (code <= column.high[who])
                if not good.all():
                    who, rows = who[good], rows[good]
        both = np.sort(who * n + rows)
        who = both // n
        return Matches(who, both - who * n, broad)

    def _equal(self, k: int, places: Array, some: Array) -> tuple[Array, Array]:
        """(conditions, rows) of those among `some` whose value of column k is the row's."""
        of = self._columns[k].point_of
        who = np.flatnonzero(some)
        who = who[np.argsort(of[who], kind="stable")]
        many = np.bincount(of[who], minlength=self._columns[k].points.size)
        rows = np.flatnonzero(places >= 0)
        sizes = many[places[rows]]
        rows, sizes = rows[sizes > 0], sizes[sizes > 0]
        starts = np.cumsum(many) - many
        return who[_ranges(starts[places[rows]], sizes)], np.repeat(rows, sizes)


def _ranges(starts: Array, sizes: Array) -> Array:
    """start, start + 1, ... of each size, one after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    return np.asarray(np.arange(total) + np.repeat(starts - (ends - sizes), sizes))
