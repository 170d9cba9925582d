"""Table functions over a stream as a new stream: computed as tuples arrive, series by series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.base.plain import decoded_type
from nile.base.raw import RawBatch, check_columns
from nile.mining.call import FUNCTIONS, Call, Finder, Found, KeyedFinder
from nile.streams.manager import StreamManager
from nile.summaries.heavy import pa

__all__ = ["MinedSource", "Miner"]

Array = np.ndarray[Any, Any]
_ROWS = 65_536


class Miner:
    """The finders of all series of a stream.  A null or a NaN is no value of its series.

    schema: of what it gives; library: rows that a function looks things up in.
    A row's time is that of the tuple that decided it, so that rows come in order.
    """

    def __init__(self, call: Call, schema: pa.Schema, library: Any) -> None:
        self.schema = schema
        self._call = call
        self._rows_of_library = library
        self._function = FUNCTIONS[call.function]
        self._across: KeyedFinder | None = call.finder(None) if self._function.across else None
        self._finders: dict[Any, Finder] = {}
        self._seen, self._last = 0, 0

    @cached_property
    def _library(self) -> Any:
        return self._call.ready(self._rows_of_library)

    def push(self, ts: Array, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What tuples decide.  ts: int64 [n] ns; batch: with the columns of the call, [n]."""
        at = np.arange(self._seen, self._seen + len(ts))
        self._seen += len(ts)
        self._last = int(ts[-1]) if len(ts) else self._last
        column = batch.column(batch.schema.get_field_index(self._call.value))
        if self._across is not None:
            values, valid = self._values(column, np.arange(len(ts)), self._across)
            keys = batch.column(batch.schema.get_field_index(str(self._call.key))).take(pa.array(valid)).to_pylist()
            return self._rows(self._across.push_keyed(at[valid], ts[valid], values, keys))
        found: list[tuple[Any, Found]] = []
        for key, mask in self._series(batch):
            if key not in self._finders:
                self._finders[key] = self._call.finder(self._library)
            finder = self._finders[key]
            values, valid = self._values(column, mask, finder)
            if len(valid):
                found += [(key, each) for each in finder.push(at[valid], ts[valid], values)]
        found.sort(key=lambda pair: pair[1][0])
        return self._rows(found)

    def finish(self) -> pa.RecordBatch:
        """What is decided by that no tuples follow."""
        if self._across is not None:
            found = self._across.finish()
        else:
            found = [(key, each) for key, finder in self._finders.items() for each in finder.finish()]
        found.sort(key=lambda pair: pair[1][0])
        return self._rows([(key, (self._seen, self._last, row)) for key, (_, _, row) in found])

    def _series(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, Array]]:
        if self._call.key is None:
            yield None, np.arange(batch.num_rows)
            return
        coded = batch.column(batch.schema.get_field_index(self._call.key)).dictionary_encode("encode")
        codes = coded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order], append=-1)) + 1
        for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False):
            yield coded.dictionary[int(codes[order[begin]])].as_py(), order[begin:end]

    def _symbols(self, column: pa.Array) -> tuple[list[str], Array]:
        """(texts, the places that have one) of a whole column."""
        kind = decoded_type(column.type)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            valid = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            return column.take(pa.array(valid)).to_pylist(), valid
        width = float(dict(self._call.options)["width"])
        numbers = nearest(column, pa.float64()).to_numpy(zero_copy_only=False)
        valid = np.flatnonzero(np.isfinite(numbers))
        # What is a multiple but for rounding is that multiple; no text says -0.
        below = np.floor(np.round(numbers[valid] / width, 9)) * width + 0.0
        return [f"{each:.15g}" for each in below.tolist()], valid

    def _values(self, column: pa.Array, places: Array, finder: Any) -> tuple[Any, Array]:
        """(values, the places that have one) of one series."""
        if self._function.values == "symbols":
            texts, valid = self._symbols(column.take(pa.array(places)))
            return texts, places[valid]
        if self._function.values == "lists":
            rows = column.take(pa.array(places)).to_pylist()
            if finder.width is None:
                finder.width = next((len(row) for row in rows if row and None not in row), None)
            values = np.full((len(rows), finder.width or 0), np.nan)
            for k, row in enumerate(rows):
                if row is not None and len(row) == finder.width and None not in row:
                    values[k] = row
            return values, places
        values = nearest(column, pa.float64()).to_numpy(zero_copy_only=False)[places]
        valid = np.isfinite(values)
        return values[valid], places[valid]

    def _rows(self, found: list[tuple[Any, Found]]) -> pa.RecordBatch:
        columns: list[list[Any]] = [[each[1] for _, each in found]]
        if self._call.key is not None:
            columns.append([key for key, _ in found])
        columns += [[each[2][k] for _, each in found] for k in range(len(self._function.gives))]
        of_ns = {self.schema.names[0], *(name for name, kind in self._function.gives if kind == "time")}
        arrays = [
            pa.array(column, pa.int64()).view(field.type) if field.name in of_ns else pa.array(column, field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class MinedSource:
    """A source that reads another stream through a table function.

    manager: makes what reads that stream; miner: makes a new one.
    """

    name: str
    schema: pa.Schema
    manager: Callable[[], StreamManager]
    miner: Callable[[], Miner]

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """What is found, as it is."""
        check_columns(self.schema, columns, where=self.name)
        miner, start = self.miner(), 1
        for found in self._found(miner):
            for at in range(0, found.num_rows, rows):
                piece = found.slice(at, rows).select(list(columns))
                yield RawBatch(piece, np.arange(start, start + piece.num_rows))
                start += piece.num_rows

    def _found(self, miner: Miner) -> Iterator[pa.RecordBatch]:
        for batch in self.manager().batches(_ROWS):
            assert batch.carried is not None
            yield miner.push(batch.ts, batch.carried)
        yield miner.finish()
