"""Text columns of Parquet files read piece by piece, as dictionaries of their distinct values where that costs less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nile.exact.join.shared import Texts
from nile.exact.state.lent import roomy
from nile.streams.files.text_coder import MOST, TextCoder
from nile.summaries.heavy import pa

__all__ = ["Sampled", "coded_column", "held_column", "is_text", "noted", "part_of", "sampled"]

_SAMPLED = 8_192  # rows
_STEP, _LEAST, _MOST_ROWS = 1 << 18, 1 << 10, 1 << 14
"""Bytes that are decoded at once, and rows: they are in a near cache when they are coded, or put where they stay."""
_SPARE, _GROWTH = 1.05, 4
"""Room for texts over what a sample lets expect, and over what came at most: what nobody writes to takes no memory."""
_SHARE = 0.5
"""Distinct values a row up to which a dictionary pays: it takes less memory up to there, and about the time."""


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts or bytes of any length."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind))


class Sampled(NamedTuple):
    """What the first rows of a text column let expect of all.  pays: whether there are at most half as many values as
    rows, by a lower bound for how many there are (Chao 1984); size: bytes of a text."""

    pays: bool
    size: float


def sampled(reader: Any, column: str, kind: pa.DataType) -> Sampled:
    """That of a column of a file."""
    sample = next(reader.iter_batches(batch_size=_SAMPLED, columns=[column], use_threads=False), None)
    if sample is None or not sample.num_rows:
        return Sampled(False, 0.0)
    coder = TextCoder(kind, sample.num_rows)
    coder.add(sample.column(0))
    times = np.bincount(coder.codes[coder.codes >= 0], minlength=1)
    once, twice = int((times == 1).sum()), int((times == 2).sum())
    values = coder.distinct + once * (once - 1) / (2 * (twice + 1))
    rows, texts = reader.metadata.num_rows, Texts(sample.column(0))
    return Sampled(bool(min(values, rows) <= _SHARE * rows), int(texts.ends[-1] - texts.ends[0]) / texts.size)


def _pieces(reader: Any, column: str, groups: list[int], size: float) -> Iterator[pa.Array]:
    """A column of row groups in steps; size: bytes of a text, about."""
    step = min(max(int(_STEP / max(size, 1.0)), _LEAST), _MOST_ROWS)
    for batch in reader.iter_batches(batch_size=step, row_groups=groups, columns=[column], use_threads=False):
        yield batch.column(0)


def coded_column(reader: Any, column: str, kind: pa.DataType, groups: list[int], size: float) -> Any:
    """A text column of row groups as a dictionary array; None where its type cannot tell so many bytes."""
    coder = TextCoder(kind, sum(reader.metadata.row_group(group).num_rows for group in groups))
    for piece in _pieces(reader, column, groups, size):
        coder.add(piece)
    return coder.column()


def held_column(reader: Any, column: str, kind: pa.DataType, groups: list[int], size: float) -> Any:
    """A text column of row groups as one array; None where its type cannot tell so many bytes.

    Arrow's own reading doubles the room of all texts until they fit, in pages of 2 MB: three times what they take.
    """
    rows = sum(reader.metadata.row_group(group).num_rows for group in groups)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    ends = roomy(rows + 1, np.int64 if large else np.int32)
    held = roomy(min(int(_SPARE * size * rows), MOST), np.uint8)
    ends[0] = at = end = 0
    valid: Any = None
    for piece in _pieces(reader, column, groups, size):
        texts = Texts(piece)
        begin, above, after = int(texts.ends[0]), end + int(texts.ends[-1] - texts.ends[0]), at + texts.size
        if above > MOST and not large:
            return None
        if above > held.shape[0]:
            room = roomy(int(_SPARE * above * min(rows / after, _GROWTH)) + 1, np.uint8)
            room[:end] = held[:end]
            held = room
        held[end:above] = texts.data[begin : begin + above - end]
        np.add(texts.ends[1:], end - begin, out=ends[at + 1 : after + 1])
        if texts.valid.shape[0]:
            valid = np.ones(rows, np.bool_) if valid is None else valid
            valid[at:after] = texts.valid
        at, end = after, above
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, at, [bits, pa.py_buffer(ends), pa.py_buffer(held[:end])])


def noted(parts: list[Any] | None, part: Any) -> list[Any] | None:
    """Parts of a column and one more; None, so that none is held, where a value may have more than some bytes, or types
    differ.  parts: None: it was so before."""
    narrow = pa.types.is_primitive(part.type) or pa.types.is_dictionary(part.type)
    if parts is None or not narrow or any(each.type != part.type for each in parts[-1:]):
        return None
    parts.append(part)
    return parts


def part_of(column: Any, begin: int, rows: int) -> Any:
    """Some rows of a column in parts as one array: without a copy where they are of one part."""
    part = column.slice(begin, rows)
    return part.chunk(0) if part.num_chunks == 1 else part.combine_chunks()
