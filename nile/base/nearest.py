"""Columns in other types, decimals as the doubles nearest to them."""

from __future__ import annotations

import numpy as np

from nile.summaries.heavy import pa

__all__ = ["nearest"]

_DIGITS, _POWERS = 15, 22
"""Digits of whole numbers, and powers of ten, that doubles hold as they are, so that a quotient is the nearest one."""


def nearest(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, safe: bool = True) -> pa.Array | pa.ChunkedArray:
    """A column, of one chunk or several, as Arrow casts it; but a decimal becomes the nearest double: Arrow multiplies
    by a power of ten, and is off by the last digit of one in seven (99.99 is 99.99000000000001).

    Raises pa.ArrowInvalid.
    """
    if not (pa.types.is_decimal(column.type) and pa.types.is_floating(kind) and len(column)):
        return column.cast(kind, safe=safe)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([nearest(chunk, kind) for chunk in column.chunks], kind)
    scale = column.type.scale
    if not pa.types.is_decimal128(column.type) or column.type.precision > _DIGITS or not 0 <= scale <= _POWERS:
        return column.cast(pa.string()).cast(kind)  # text is read correctly rounded
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :][: 2 * len(column) : 2]
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(words / 10.0**scale, mask=mask).cast(kind, safe=False)
