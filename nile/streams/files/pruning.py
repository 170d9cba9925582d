"""Row groups that a query needs nothing of, told by the statistics of Parquet footers and by the names of folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from nile.base.plain import decoded_type
from nile.base.raw import RawBatch
from nile.expressions.conditions import Condition
from nile.expressions.possible import Ends, may_be
from nile.expressions.tree import Node, columns_of
from nile.summaries.heavy import pa, pc

__all__ = ["Pruning", "Test", "batches_of", "ends_of_group", "extent_of", "extent_of_groups", "filled", "pruning_of"]

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True)
class Test:
    """A bound condition on rows.  kinds: the types that its columns have there."""

    node: Node
    kinds: Mapping[str, pa.DataType]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Those that it names."""
        return columns_of(self.node)

    def may_hold(self, ends: Mapping[str, Ends]) -> bool:
        """Whether it may be true of a row whose columns lie within these ends."""
        return may_be(
            self.node, True, {name: _in(ends[name], self.kinds[name]) for name in self.columns if name in ends}
        )


@dataclass(frozen=True)
class Pruning:
    """What need not be read of a source.

    belongs: true of its rows that are rows at all; None: of all.  asked: true of all rows whose columns matter beyond
    `keep`; None: of all.  Rows of which it cannot be true come all the same, since they are counted and have a time:
    with their own values of `keep`, and elsewhere with others within the ends of their group, so that `asked` is true
    of none; where nothing is to be kept, only how many they are (`RawBatch.unread`).
    known: of columns that a folder's name gives, their ends.
    """

    belongs: Test | None
    asked: Test | None
    keep: tuple[str, ...]
    known: Mapping[str, Ends] = field(default_factory=dict)

    def knowing(self, known: Mapping[str, Ends]) -> Pruning:
        """For a file in folders that give these columns."""
        return replace(self, known=known)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those whose ends tell something."""
        tests = [each for each in (self.belongs, self.asked) if each is not None]
        return tuple(dict.fromkeys(name for each in tests for name in each.columns))

    def of(self, ends: Mapping[str, Ends]) -> Literal["read", "fill", "skip"]:
        """What to do with rows within these ends."""
        ends = {**ends, **self.known}
        if self.belongs is not None and not self.belongs.may_hold(ends):
            return "skip"
        return "read" if self.asked is None or self.asked.may_hold(ends) else "fill"


def pruning_of(schema: pa.Schema, where: Condition | None, asked: Test | None, keep: tuple[str, ...]) -> Pruning | None:
    """That of a source with such columns; where: which of its rows are rows; None where there is nothing to go by."""
    if where is None:
        return None if asked is None else Pruning(None, asked, keep)
    kinds = {name: decoded_type(schema.field(name).type) for name in where.columns}
    return Pruning(Test(where.bound(schema), kinds), asked, (*keep, *where.columns))


def batches_of(
    source: Any, columns: Sequence[str], rows: int, threads: int | None, pruning: Pruning | None
) -> Iterator[RawBatch]:
    """The rows of any source: of one whose class `prunes` without what need not be read."""
    batches: Iterator[RawBatch] = (
        source.batches(columns, rows, threads, pruning)
        if getattr(source, "prunes", False)
        else source.batches(columns, rows)
    )
    return batches


def extent_of(source: Any, column: str) -> tuple[int, int] | None:
    """Whole microseconds between which all times of a column are, by the footers; None where they do not say."""
    found: tuple[int, int] | None = source.extent(column) if getattr(source, "prunes", False) else None
    return found


def extent_of_groups(footers: Iterable[Any], column: str, kind: pa.DataType) -> tuple[int, int] | None:
    """As `extent_of`.  kind: of the column, as it is stored."""
    lows, highs = [], []
    for metadata in footers:
        for group in range(metadata.num_row_groups):
            ends = ends_of_group(metadata, group, {column: kind}).get(column)
            if ends is None or (ends.values is None and ends.nulls != ends.rows):
                return None
            if ends.values is not None:
                low, high = ends.values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).to_pylist()
                lows.append(low - 1)  # nanoseconds are cut
                highs.append(high + 1)
    return (min(lows), max(highs)) if lows else None


def filled(name: str, kind: pa.DataType, rows: int, ends: Mapping[str, Ends]) -> pa.Array:
    """A column of rows that are not read: the least value, or null where nothing is known of it."""
    known = ends.get(name)
    if known is None or known.values is None:
        return pa.nulls(rows, kind)
    value = _in(known, kind.value_type if pa.types.is_dictionary(kind) else kind).values
    if value is None:
        return pa.nulls(rows, kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, kind.index_type), rows), value[:1])
    return pa.repeat(value[0], rows)


def ends_of_group(metadata: Any, group: int, kinds: Mapping[str, pa.DataType]) -> dict[str, Ends]:
    """Of columns in a row group, without those that are nested or have no statistics.  kinds: as they are stored."""
    row_group = metadata.row_group(group)
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    found = {}
    for name, kind in kinds.items():
        statistics = row_group.column(places[name]).statistics if name in places else None
        if statistics is not None:
            nulls = statistics.null_count if statistics.has_null_count else None
            values = _values(statistics, kind) if statistics.has_min_max else None
            found[name] = Ends(values, nulls, row_group.num_rows)
    return found


def _values(statistics: Any, kind: pa.DataType) -> pa.Array | None:
    """[least, largest]; None of types that have none which compare as Nile does."""
    types = pa.types
    simple = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_date32(kind)
    try:
        if types.is_timestamp(kind):
            # Made a time by hand: statistics of nanoseconds would be pandas' times, which are slow to load.
            unit = _UNITS[json.loads(statistics.logical_type.to_json())["timeUnit"]]
            return pa.array([statistics.min_raw, statistics.max_raw]).cast(pa.timestamp(unit, kind.tz)).cast(kind)
        if simple or types.is_string(kind) or types.is_large_string(kind):
            values = pa.array([statistics.min, statistics.max], kind)
            return None if types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py() else values
    except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError):
        pass  # written by somebody who means something else by them
    return None


def _in(ends: Ends, kind: pa.DataType) -> Ends:
    if ends.values is None or ends.values.type == kind:
        return ends
    try:
        return replace(ends, values=ends.values.cast(kind))
    except pa.ArrowException:
        return replace(ends, values=None)
