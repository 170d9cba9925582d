"""Data in memory and data that arrives: Arrow tables and readers, DataFrames, iterables of batches.

Anything with `__arrow_c_stream__` (pandas, Polars, DuckDB) is read through it; pandas gives its missing
values, NaN included, as nulls there. An iterable gives record batches, tables, DataFrames or dicts of
columns; the first one decides the types, and later ones are converted to them or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.base.plain import plain_array, plain_schema
from nile.base.raw import RawBatch, check_columns
from nile.base.times import TIME_LIMIT, event_times
from nile.exact.state.lent import lent, lent_together
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

Array = np.ndarray[Any, Any]
_PLAIN = (list, tuple, range, np.ndarray)
"""Columns that Arrow makes an array of by itself."""


class _Opened:
    """What was opened to learn the columns: the first reading goes on with it, and no other does, on any thread."""

    def __init__(self, value: Any) -> None:
        self._held = [value]

    def take(self) -> Any:
        """It, once; None from then on."""
        try:
            return self._held.pop()  # one step: two readings cannot both have it
        except IndexError:
            return None


class ArrowSource:
    """One object with columns: a table, record batch, reader, DataFrame, or dict of columns.

    Replayable, except a RecordBatchReader, which is read once.  A table never changes: of each time column that was
    asked for, its times are kept, 8 bytes a row unless they are nanoseconds in one piece.
    """

    def __init__(self, data: Any, *, name: str) -> None:
        """Raises SourceError if Arrow cannot read `data`."""
        self.name = name
        self._data = _as_table(data, name) if isinstance(data, Mapping) else data
        reader = _reader(self._data, name)
        self.schema = plain_schema(reader.schema)
        self._once = reader is self._data
        self._opened = _Opened(reader)
        self._times: dict[str, Array | None] = {}
        count = getattr(self._data, "num_rows", None)
        self.rows: int | None = count if isinstance(count, int) else None

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch. Raises SourceError when read again but one-shot."""
        check_columns(self.schema, columns, where=self.name)
        reader = self._opened.take()
        if reader is None:
            if self._once:
                raise _read_once(self.name, "a reader")
            reader = _reader(self._data, self.name)
        yield from _pieces(_read(reader, self.name), self.schema, columns, rows, self.name)

    def in_order(self, time: str) -> Array | None:
        """The event times of all rows, int64 [n] ns; None unless this is a table whose times all are good and in order.

        O(1) from the second call on.
        """
        if not isinstance(self._data, pa.Table):
            return None
        if time not in self._times:
            self._times[time] = _in_order(self._data.column(time))
        return self._times[time]

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a table, only `columns`, in pieces as large as its memory allows without a copy."""
        wanted = [self.schema.field(column) for column in columns]
        for batch in self._data.select(list(columns)).to_batches():
            arrays = [_column(batch, field, self.name) for field in wanted]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _in_order(column: pa.ChunkedArray) -> Array | None:
    last, found = -TIME_LIMIT, []
    for chunk in column.chunks:
        times = event_times(plain_array(chunk))
        ns = times.ns
        if times.reason is not None or (len(ns) and ns[0] < last) or bool((ns[1:] < ns[:-1]).any()):
            return None
        last = int(ns[-1]) if len(ns) else last
        found.append(lent(ns))
    return lent_together(found)


class IterableSource:
    """An iterable of record batches, tables, DataFrames or dicts of columns. Replayable unless an iterator."""

    def __init__(self, items: Iterable[Any], *, name: str) -> None:
        """Takes the first item, which gives the types. Raises SourceError if there is none."""
        self.name = name
        self._items = items
        iterator = iter(items)
        self._once = iterator is items
        first = next(iterator, None)
        if first is None:
            raise SourceError(f"{name}: the iterable is empty; give at least one batch, so that the columns are known")
        table = _item(first, 1, name)
        self.schema = plain_schema(table.schema)
        self._opened = _Opened((table, iterator))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch. Raises SourceError when read again but one-shot."""
        check_columns(self.schema, columns, where=self.name)
        opened = self._opened.take()
        if opened is not None:
            tables = chain([opened[0]], self._tables(opened[1], 2))
        elif self._once:
            raise _read_once(self.name, "an iterator")
        else:
            tables = chain(self._tables(iter(self._items), 1))
        batches = (batch for table in tables for batch in table.to_batches())
        try:
            yield from _pieces(batches, self.schema, columns, rows, self.name)
        finally:
            if isinstance(self._items, Generator):  # whoever reads no further lets it go
                self._items.close()

    def _tables(self, items: Iterator[Any], start: int) -> Iterator[pa.Table]:
        for number, item in enumerate(items, start):
            yield _item(item, number, self.name)


def _pieces(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str], rows: int, name: str
) -> Iterator[RawBatch]:
    wanted = pa.schema([schema.field(column) for column in columns])
    start = 1
    for number, batch in enumerate(batches, 1):
        arrays = [_column(batch, field, f"{name}: batch {number}") for field in wanted]
        whole = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        for offset in range(0, len(whole), rows):
            piece = whole.slice(offset, rows)
            yield RawBatch(piece, np.arange(start, start + len(piece), dtype=np.int64))
            start += len(piece)


def _column(batch: pa.RecordBatch, wanted: pa.Field, where: str) -> pa.Array:
    check_columns(batch.schema, (wanted.name,), where=where)
    array = plain_array(batch.column(batch.schema.get_field_index(wanted.name)))
    if array.type == wanted.type:
        return array
    try:
        return nearest(array, wanted.type)
    except pa.ArrowException as error:
        raise SourceError(
            f"{where}: column '{wanted.name}' was {wanted.type} in the first batch and is {array.type} here, "
            f"which does not convert ({str(error).splitlines()[0]}); give every batch the same types"
        ) from None


def has_columns(data: Any) -> bool:
    """Whether something hands itself out as Arrow columns."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _item(item: Any, number: int, name: str) -> pa.Table:
    where, item = f"{name}: item {number}", rows_together(item)
    if isinstance(item, Mapping):
        return _as_table(item, where)
    if isinstance(item, pa.Table):
        return item
    if has_columns(item):
        with_rows = _reader(item, where)
        return pa.Table.from_batches(_read(with_rows, where), schema=with_rows.schema)
    raise SourceError(
        f"{where}: needed a record batch, a table, a DataFrame or a dict of columns; got {type(item).__name__}"
    )


def arrays_of(data: dict[str, Any], schema: pa.Schema, rows: int) -> list[pa.Array] | None:
    """The columns of a dict of lists or arrays of 1 to `rows` values, in a schema's order and types.

    None: they are not just its columns, or something more has to be done to them, or said of them.
    """
    columns = [data[name] for name in schema.names if name in data]
    if not len(columns) == len(schema) == len(data):
        return None
    try:
        if not all(isinstance(each, _PLAIN) and 0 < len(each) <= rows for each in columns):
            return None
        arrays = [_of_type(pa.array(each), kind) for each, kind in zip(columns, schema.types, strict=True)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    alike = [isinstance(each, pa.Array) and len(each) == len(arrays[0]) for each in arrays]
    return arrays if all(alike) and [each.type for each in arrays] == schema.types else None


def _of_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Numbers as others: whole ones where floats are wanted are what people write."""
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    return array.cast(wanted) if is_number and array.type != wanted else array


def rows_together(data: Any) -> Any:
    """Rows as dicts (one, or a list of them) as a dict of columns; anything else as it is.

    A row that has no value for a column that another one has, has null there.  O(values).
    """
    if _is_row(data):
        return {name: [value] for name, value in data.items()}
    if not isinstance(data, list | tuple) or not data or not all(map(_is_row, data)):
        return data
    return {name: [row.get(name) for row in data] for name in dict.fromkeys(name for row in data for name in row)}


def _is_row(data: Any) -> bool:
    """Whether this is a dict of values: in a dict of columns each is a list, an array or a Series, and none is not."""
    if not isinstance(data, Mapping) or not data:
        return False
    columns = [hasattr(value, "__len__") and not isinstance(value, str | bytes) for value in data.values()]
    known = [column for value, column in zip(data.values(), columns, strict=True) if value is not None]
    return not all(known) or not known


def _as_table(columns: Mapping[str, Any], where: str) -> pa.Table:
    columns = rows_together(columns)
    try:
        return pa.table(dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(f"{where}: the columns do not make a table: {str(error).splitlines()[0]}") from None
    except OverflowError:
        raise SourceError(
            f"{where}: needed whole numbers of at most 64 bits; got one beyond in column {_too_large(columns)!r}; "
            "give such numbers as decimal.Decimal or as floats"
        ) from None


def _too_large(columns: Mapping[str, Any]) -> str | None:
    """The first column with a number that Arrow has no whole number for."""
    for name, values in columns.items():
        try:
            pa.array(values)
        except OverflowError:
            return name
    return None


def _reader(data: Any, where: str) -> Any:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]).to_reader()
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        column = _unreadable(data)
        at = "this" if column is None else f"column {column!r} of this"
        mend = "give each column one type" if column is None else "give it one type that Arrow has, or leave it out"
        raise SourceError(
            f"{where}: Arrow cannot read {at} {type(data).__name__}: {str(error).splitlines()[0]}; {mend}"
        ) from None


def _unreadable(data: Any) -> str | None:
    """The first column of a DataFrame that Arrow cannot read; None where that cannot be told."""
    columns = getattr(data, "columns", None)
    for name in [] if columns is None else columns:
        try:
            pa.RecordBatchReader.from_stream(data[[name]])
        except (pa.ArrowException, TypeError, ValueError):
            return str(name)
        except Exception:  # whatever a frame's own engine raises: it is no such frame
            return None
    return None


def _read(reader: Any, where: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except pa.ArrowException as error:
        raise SourceError(f"{where}: the reader broke off: {str(error).splitlines()[0]}") from None


def _read_once(name: str, what: str) -> SourceError:
    return SourceError(
        f"{name}: {what} can be read once, and has been; register a table, a file, or a function that makes a new one"
    )


class CallableSource:
    """A function without arguments that gives a new source whenever the stream is read."""

    def __init__(self, make: Callable[[], Any], opening: Callable[[Any], Any], *, name: str) -> None:
        """Calls `make` once for the columns; that source is the one read first."""
        self.name = name
        self._make = make
        self._opening = opening
        ready = opening(make())
        self.schema: pa.Schema = ready.schema
        self._opened = _Opened(ready)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows of a new source, only `columns`, at most `rows` a batch."""
        source = self._opened.take()
        if source is None:
            source = self._opening(self._make())
        yield from source.batches(columns, rows)
