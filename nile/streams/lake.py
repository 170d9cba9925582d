"""A stream of the lake as a source: `db.register("shop", "lake/shop")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nile.base.raw import RawBatch, check_columns
from nile.pyramid.lake.lake import ORDINAL, LakeStream
from nile.pyramid.lake.layout import MANIFESTS
from nile.pyramid.lake.part import Part
from nile.summaries.heavy import pa

__all__ = ["LakeSource", "is_lake_stream"]


def is_lake_stream(path: Path) -> bool:
    """Whether a directory is that of a stream of a lake."""
    return any((path / name).is_file() for name in MANIFESTS)


class LakeSource:
    """The stream as it was when it was opened; what is ingested later is not in it.  Replayable.

    time: the column that the lake took event times from.
    """

    def __init__(self, stream: LakeStream, *, name: str | None = None) -> None:
        self.stream = stream
        self.name = name or stream.layout.stream
        self.time = stream.layout.time
        self.schema: pa.Schema = stream.layout.schema.remove_metadata()

    @property
    def rows(self) -> int:
        """How many tuples there are."""
        return self.stream.tuples

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The tuples in their order, only `columns`, at most `rows` a batch.

        Files of the same time range are sorted together: their columns are held meanwhile.  Raises StoreCorrupt.
        """
        check_columns(self.schema, columns, where=self.name)
        schema = pa.schema([self.schema.field(name) for name in columns])
        for parts in _together(self.stream.parts):
            read = [self.stream.file(part).read([ORDINAL, *columns]) for part in parts]
            table = pa.concat_tables(read)
            order = np.argsort(table.column(ORDINAL).to_numpy())
            table = table.take(pa.array(order))
            numbers = table.column(ORDINAL).to_numpy() + 1
            for begin in range(0, table.num_rows, rows):
                piece = table.slice(begin, rows).select(list(columns)).combine_chunks()
                arrays = [column.chunk(0) for column in piece.columns]
                yield RawBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), numbers[begin : begin + rows])


def _together(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Files whose tuples come between one another, as one, in order."""
    group: list[Part] = []
    last = -1
    for part in sorted(parts, key=lambda one: one.first):
        if group and part.first > last:
            yield group
            group = []
        group.append(part)
        last = max(last, part.last)
    if group:
        yield group
