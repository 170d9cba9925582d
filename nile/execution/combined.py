"""The rows of combinations: columns of several inputs, gathered at places of rows, or told by the join itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.base.contiguous import counts_rows, taker, words_of
from nile.exact.join.listed import Words
from nile.exact.state.lent import lent
from nile.execution.values import filtered
from nile.expressions.tree import Node, columns_of
from nile.summaries.heavy import pa

__all__ = ["Combined"]

Array = np.ndarray[Any, Any]


class Combined:
    """What makes the rows of combinations, given the row of each input in each of them: int64 [c] each.

    batches: the inputs; condition: what the rows have to satisfy; wanted: the columns that are looked at above, beside
    those of the condition (None: all); numbered: whether columns that number the rows of their input from 0 on may be
    these places: where each input has one, as a block of places is kept whole as long as one column of it is.
    kept: whether rows hold what they are made of; words: of two inputs with one column of eight bytes each, how a join
    tells the rows without their places (None: it cannot).
    """

    def __init__(
        self, batches: Sequence[pa.RecordBatch], condition: Node | None, wanted: frozenset[str] | None,
        *, numbered: bool = True,
    ) -> None:  # fmt: skip
        looked_at = None if wanted is None else wanted.union(() if condition is None else columns_of(condition))
        columns = [
            {
                name: batch.column(at)
                for at, name in enumerate(batch.schema.names)
                if looked_at is None or name in looked_at
            }
            for batch in batches
        ]
        if not any(columns):  # a batch without columns has no length, so one at least is taken
            at = next(k for k, batch in enumerate(batches) if batch.num_columns)
            columns[at] = {batches[at].schema.names[0]: batches[at].column(0)}
        asked = wanted if numbered and wanted else ()
        counting = [{name for name in own if name in asked and counts_rows(own[name])} for own in columns]
        places = set().union(*counting) if all(counting) else ()
        self._takers = [[pa.array if name in places else taker(own[name]) for name in own] for own in columns]
        self._schema = pa.schema([(name, column.type) for own in columns for name, column in own.items()])
        self._condition = condition
        self.kept = bool(places)
        self.words = None if places else self._words([list(own.values()) for own in columns])

    def __call__(self, index: Iterable[Array]) -> pa.RecordBatch:
        """The rows of combinations."""
        arrays = [take(at) for own, at in zip(self._takers, index, strict=True) for take in own]
        return _chosen(self._schema, self._condition, arrays)

    def _words(self, columns: Sequence[Sequence[pa.Array]]) -> Words[pa.RecordBatch] | None:
        if len(columns) != 2 or any(len(own) != 1 or own[0].null_count for own in columns):
            return None
        left, right = (words_of(own[0]) for own in columns)
        made = partial(_told, self._schema, self._condition)  # not of itself: it would be let go of with garbage only
        return None if left is None or right is None else Words((lent(left), lent(right)), made)


def _told(schema: pa.Schema, condition: Node | None, block: Array) -> pa.RecordBatch:
    """The rows, given the words of their columns: int64 [c, 2]."""
    arrays = [
        pa.Array.from_buffers(field.type, block.shape[0], [None, pa.py_buffer(block[:, k])])
        for k, field in enumerate(schema)
    ]
    return _chosen(schema, condition, arrays)


def _chosen(schema: pa.Schema, condition: Node | None, arrays: list[pa.Array]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if condition is None else filtered(condition, batch)
