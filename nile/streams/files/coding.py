"""Text columns of Parquet files read as dictionaries of their distinct values, where that costs less."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.streams.files.text_coder import TextCoder
from nile.summaries.heavy import pa

__all__ = ["are_narrow", "coded_column", "is_text", "part_of", "pays"]

_SAMPLED = 8_192  # rows
_STEP = 16_384
"""Rows that are decoded at once: their texts are in a near cache when they are coded."""
_SHARE = 0.5
"""Distinct values a row up to which a dictionary pays: it takes less memory up to there, and about the time."""


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts or bytes of any length."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind))


def pays(reader: Any, column: str, kind: pa.DataType) -> bool:
    """Whether all rows of a file, where it is like its first ones, have at most half as many values as rows.

    By a lower bound for how many values there are from those that a sample has once and twice (Chao 1984).
    """
    sample = next(reader.iter_batches(batch_size=_SAMPLED, columns=[column], use_threads=False), None)
    if sample is None or not sample.num_rows or pa.types.is_dictionary(sample.column(0).type):
        return False
    coder = TextCoder(kind, sample.num_rows)
    coder.add(sample.column(0))
    times = np.bincount(coder.codes[coder.codes >= 0], minlength=1)
    once, twice = int((times == 1).sum()), int((times == 2).sum())
    values = coder.distinct + once * (once - 1) / (2 * (twice + 1))
    rows = reader.metadata.num_rows
    return bool(min(values, rows) <= _SHARE * rows)


def coded_column(reader: Any, column: str, kind: pa.DataType, groups: list[int]) -> Any:
    """A text column of row groups as a dictionary array; None where its type cannot tell so many bytes."""
    coder = TextCoder(kind, sum(reader.metadata.row_group(group).num_rows for group in groups))
    for batch in reader.iter_batches(batch_size=_STEP, row_groups=groups, columns=[column], use_threads=False):
        coder.add(batch.column(0))
    return coder.column()


def are_narrow(parts: list[Any]) -> bool:
    """Whether there are parts of a column, of one type, of which a value has some bytes."""
    kind = parts[0].type if parts else pa.null()
    narrow = pa.types.is_primitive(kind) or pa.types.is_dictionary(kind)
    return bool(narrow and all(part.type == kind for part in parts))


def part_of(column: Any, begin: int, rows: int) -> Any:
    """Some rows of a column in parts as one array: without a copy where they are of one part."""
    part = column.slice(begin, rows)
    return part.chunk(0) if part.num_chunks == 1 else part.combine_chunks()
