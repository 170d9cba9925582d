"""Columns of rows that need not become a batch: to name, drop or order columns makes nothing.

A batch of few rows costs what its columns cost, one by one.  `Numbers`, columns of 64 bits without nulls, become one
all together: as a message of Arrow's IPC format, whose head is that of any other batch of as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.words import Encoder

__all__ = ["Columns", "Numbers", "columns_of", "made", "numbers_of", "picked", "stamped", "words_of"]

kernels: Any = arrow.Late("nile.exact.state.rows_kernels")

_SHARED = 256
"""Rows up to which words that several queries ask for are made once."""
_FEW = 16
"""Rows up to which a message costs less than columns, and heads are kept."""
_PLACES = tuple(range(64))
"""Of columns that only get other names."""
_HEADS: dict[tuple[int, int, tuple[int, ...], tuple[int, ...] | None], tuple[Any, Array | None, Array, int]] = {}
"""By the identity of a schema, rows, places of columns, and which of these: the schema, the head of a message in words
(None: Arrow does not lay it out like that), the places, and words of the message."""


class Columns:
    """Arrow arrays of one length under a schema, as a RecordBatch would have them.  Only to be read.

    known: what was made of columns and of slices of them, for all who have picked theirs from the same rows; None:
    nobody shares anything.
    """

    __slots__ = ("columns", "known", "num_rows", "schema")

    def __init__(self, columns: list[Any], schema: Any, num_rows: int, known: dict[Any, Any] | None = None) -> None:
        self.columns = columns
        self.schema = schema
        self.num_rows = num_rows
        self.known = known

    def column(self, at: int) -> Any:
        """One of them."""
        return self.columns[at]

    def slice(self, begin: int, rows: int | None = None) -> Columns:
        """Some of the rows."""
        rows = self.num_rows - begin if rows is None else rows
        if rows == self.num_rows:
            return self
        if (known := self.known) is None:
            return Columns([each.slice(begin, rows) for each in self.columns], self.schema, rows)
        columns = []
        for each in self.columns:  # its identity stands for it: `known` holds whatever it says something about
            key = (id(each), begin, rows)
            if (found := known.get(key)) is None:
                found = known[key] = each.slice(begin, rows)
            columns.append(found)
        return Columns(columns, self.schema, rows, known)

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(each.nbytes for each in self.columns)


class Numbers(Columns):
    """Columns of types of 64 bits, none null, as rows of one matrix; Arrow arrays when they are asked for.

    words: int64 [w, room], of which the first `num_rows` count; places: which of its rows the columns are.
    """

    __slots__ = ("places", "words")

    def __init__(self, words: Array, places: tuple[int, ...], schema: Any, num_rows: int) -> None:
        self.words = words
        self.places = places
        self.schema = schema
        self.num_rows = num_rows
        self.known = None

    def rename(self, places: Sequence[int], schema: Any) -> None:
        """Have these of the columns, as a schema calls them: of rows that nobody else has."""
        if places != _PLACES[: len(self.places)]:
            self.places = tuple([self.places[at] for at in places])
        self.schema = schema

    @property
    def columns(self) -> list[Any]:  # type: ignore[override]
        """As Arrow arrays in the memory of the matrix."""
        n, room, buffers = self.num_rows, self.words.shape[1], [None, pa.py_buffer(self.words)]
        types = self.schema.types
        return [pa.Array.from_buffers(types[k], n, buffers, 0, at * room) for k, at in enumerate(self.places)]

    def column(self, at: int) -> Any:
        return self.columns[at]


def stamped(ts: Array, sign: Array, rows: Any, schema: Any, stamps: int, picks: tuple[int, ...] | None = None) -> Any:
    """A RecordBatch of a schema: ts int64 [n] and sign int8 [n] (of these as many as `stamps` says), then `rows`.

    picks: which of their columns, in this order; None: all.
    """
    n = sign.shape[0]
    if type(rows) is Numbers and 0 < n <= _FEW and n == rows.num_rows:
        key = id(schema), n, rows.places, picks
        known = _HEADS.get(key)
        if known is None or known[0] is not schema:
            places = rows.places if picks is None else tuple(rows.places[at] for at in picks)
            known = _HEADS[key] = _head(schema, n, places, stamps)
        _, head, at, size = known
        if head is not None:
            out = np.empty(size, np.int64)
            kernels.laid(head, ts, sign, stamps, rows.words, at, out)
            return pa.ipc.read_record_batch(pa.py_buffer(out), schema)
    own = rows.columns if picks is None else list(map(rows.columns.__getitem__, picks))
    columns = [in_place(np.ascontiguousarray(each), kind) for each, kind in zip((ts, sign)[:stamps], schema.types)]  # noqa: B905
    return pa.RecordBatch.from_arrays([*columns, *own], schema=schema)


def _head(schema: Any, n: int, places: tuple[int, ...], stamps: int) -> tuple[Any, Array | None, Array, int]:
    """What `_HEADS` holds, found out of a batch that Arrow writes, and tried."""
    ts, sign = np.arange(n), (1 - 2 * (np.arange(n) % 2)).astype(np.int8)
    words, where = np.arange(1, 1 + len(places) * n).reshape(-1, n), np.arange(len(places))
    kinds = schema.types
    columns = [in_place(each, kind) for each, kind in zip([ts, sign][:stamps] + list(words), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    message = np.frombuffer(batch.serialize(), np.uint8)
    body = (1 if stamps else 0) * n + (-(-n // 8) if stamps > 1 else 0) + len(places) * n
    size, odd = divmod(message.shape[0], 8)
    head: Array | None = None
    if not odd and size > body:
        head = message.view(np.int64)[: size - body].copy()
        try:
            out = np.empty(size, np.int64)
            kernels.laid(head, ts, sign, stamps, words, where, out)
            same = pa.ipc.read_record_batch(pa.py_buffer(out), schema).equals(batch)
        except pa.ArrowException:
            same = False
        head = head if same else None
    if len(_HEADS) >= 4096:
        _HEADS.clear()
    return schema, head, np.array(places, np.int64), size


def columns_of(rows: Any, schema: Any = None) -> Columns:
    """A RecordBatch as Columns from which several pick, one after the other, who share what they make of few rows.

    schema: its own, the same object for batch after batch, where there is one: what equals one costs a look at every
    field.
    """
    n, columns = rows.num_rows, rows.columns
    return Columns(columns, schema or rows.schema, n, {"all": columns} if n <= _SHARED else None)


def picked(rows: Any, places: Sequence[int], schema: Any) -> Columns:
    """These columns of a RecordBatch or of Columns, as a schema calls them."""
    if type(rows) is Numbers:
        own = rows.places
        if places != _PLACES[: len(own)]:
            own = tuple([own[at] for at in places])
        return Numbers(rows.words, own, schema, rows.num_rows)
    if type(rows) is not Columns:
        return Columns([rows.column(at) for at in places], schema, rows.num_rows)
    columns = rows.columns
    if places != _PLACES[: len(columns)]:
        columns = list(map(columns.__getitem__, places))
    return Columns(columns, schema, rows.num_rows, rows.known)


def words_of(rows: Any, places: Sequence[int], encoder: Encoder) -> Array:
    """As `Encoder.encode` of these columns of a RecordBatch or of Columns: int64 [n, width], only to be read."""
    if type(rows) is not Columns or (known := rows.known) is None or encoder.values:
        return encoder.encode([rows.column(at) for at in places], rows.num_rows)
    columns = map(rows.columns.__getitem__, places)
    key = (encoder.exact, *map(id, columns))
    if (found := known.get(key)) is None:
        found = known[key] = encoder.encode(list(map(rows.columns.__getitem__, places)), rows.num_rows)
    return found


def numbers_of(rows: Any, at: int) -> Array | None:
    """A column of int64 or doubles of a RecordBatch or of Columns, only to be read: [n]; None: it has nulls."""
    column = rows.column(at)
    known = rows.known if type(rows) is Columns else None
    key = ("numbers", id(column))
    numbers: Array | None = None if known is None else known.get(key)
    if numbers is None and not column.null_count:
        numbers = column.to_numpy(zero_copy_only=False)
        if known is not None:
            known[key] = numbers
    return numbers


def made(rows: Any) -> Any:
    """The RecordBatch that a RecordBatch or Columns are."""
    return pa.RecordBatch.from_arrays(rows.columns, schema=rows.schema) if isinstance(rows, Columns) else rows
