"""A source with columns beside its own that are computed of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nile.base.raw import RawBatch
from nile.expressions.attributes import columns_of_parts, computed, computed_types
from nile.streams.source import Source
from nile.summaries.heavy import pa

__all__ = ["ComputedSource"]


class ComputedSource:
    """Rows of a source, and attributes of them as further columns.

    attributes: by name, the parts of each (`nile.expressions.attributes`).  A row whose cell does not fit a column that
    an attribute is computed of does not fit the attribute.  Raises ExpressionError, UnknownColumn.
    """

    def __init__(self, source: Source, attributes: Mapping[str, tuple[str, ...]]) -> None:
        self.name = source.name
        self._source = source
        self._attributes = dict(attributes)
        fields = list(source.schema)
        for name, parts in attributes.items():
            types = computed_types(parts, source.schema, where=f"{source.name}, {name}")
            fields.append(pa.field(name, types[0] if len(types) == 1 else pa.string()))
        self.schema = pa.schema(fields)

    @property
    def rows(self) -> int | None:
        """How many there are, where the source knows."""
        told: int | None = getattr(self._source, "rows", None)
        return told

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows in arrival order, only `columns`."""
        asked = {name: parts for name, parts in self._attributes.items() if name in columns}
        needed = [name for name in columns if name not in asked]
        for parts in asked.values():
            needed.extend(name for name in columns_of_parts(parts) if name not in needed)
        for raw in self._source.batches(needed, rows):
            yield self._with(raw, columns, asked)

    def _with(self, raw: RawBatch, columns: Sequence[str], asked: Mapping[str, tuple[str, ...]]) -> RawBatch:
        made, misfits = {}, dict(raw.misfits)
        for name, parts in asked.items():
            made[name] = computed(parts, raw.batch, where=f"{self.name}, {name}")
            wrong = [raw.misfits[column] for column in columns_of_parts(parts) if column in raw.misfits]
            if wrong:
                misfits[name] = np.logical_or.reduce(wrong)
        arrays = [made[name] if name in made else raw.batch.column(name) for name in columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        return replace(raw, batch=batch, misfits={name: mask for name, mask in misfits.items() if name in columns})
