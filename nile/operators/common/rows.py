"""Rows told equal as SQL does: codes for whole rows, and the order of values.

Nulls are alike here (as in GROUP BY, DISTINCT and set operations; joins take null keys out themselves), every NaN is
one value above all numbers, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.exact.join.chain import encode_all
from nile.exact.join.dense import dense_codes
from nile.summaries.errors import KeyTypeError
from nile.summaries.heavy import pa, pc

__all__ = ["groups", "join_codes", "numbered", "ordered", "ranks", "ranks_of", "row_codes"]

Array = np.ndarray[Any, Any]
_MOST_CODES = 2**62
_DENSE = 4
"""Numbers a row up to which a table by them costs less than one by their hashes."""


def row_codes(columns: Sequence[pa.Array], rows: int) -> tuple[Array, Array]:
    """(code of each row, dense and in order of first appearance; where each code first appears): int64 [n], [k].

    Equal codes are equal rows.  O(rows) for each column.  Raises KeyTypeError for a column that cannot be told equal.
    """
    codes = np.zeros(rows, np.int64)
    if not columns:
        return codes, np.zeros(min(1, rows), np.int64)
    size = 1
    for column in columns:
        own, distinct = _codes(column)
        if size * max(1, distinct) >= _MOST_CODES:
            codes, size = _dense(codes)
        codes = codes * max(1, distinct) + own
        size *= max(1, distinct)
    if not rows:
        return codes, np.zeros(0, np.int64)
    return numbered(codes)


def numbered(key: Array) -> tuple[Array, Array]:
    """(which of the distinct keys each is, by first appearance, where each of these appears first): int64 [n], [keys].

    key: int64 [n], one or more, from 0 on.  6 ns each, and what `dense_codes` takes where they are far apart.
    """
    n, above = key.shape[0], int(key.max()) + 1
    if above > _DENSE * n:
        (key,), above = dense_codes((key,))
    first = np.full(above, n)
    first[key[::-1]] = np.arange(n - 1, -1, -1)
    known = np.flatnonzero(first < n)
    order = known[np.argsort(first[known], kind="stable")]
    number = np.empty(above, np.int64)
    number[order] = np.arange(order.shape[0])
    return number[key], first[order]


def join_codes(pairs: Sequence[tuple[pa.Array, pa.Array]], left: int, right: int) -> tuple[Array, Array]:
    """Codes of the keys of two sides, several columns together, -1 where one is null: int64 [left], [right].

    Codes are below left + right; without pairs every key is the same, 0.  Raises KeyTypeError.
    """
    codes = np.zeros(left, np.int64), np.zeros(right, np.int64)
    size = 1
    for first, second in pairs:
        (own_left, own_right), distinct = encode_all((first, second))
        if size * distinct >= _MOST_CODES:
            together, size = _dense(np.concatenate(codes))
            codes = together[:left], together[left:]
        null = (codes[0] < 0) | (own_left < 0), (codes[1] < 0) | (own_right < 0)
        codes = (
            np.where(null[0], -1, codes[0] * distinct + own_left),
            np.where(null[1], -1, codes[1] * distinct + own_right),
        )
        size *= distinct
    if len(pairs) > 1:
        together, _ = _dense(np.concatenate(codes))
        codes = together[:left], together[left:]
    return codes


def ranks(column: pa.Array) -> Array:
    """Each value's place in the order of values: int64 [n], nulls -1, NaN last, equal values alike."""
    if not len(column) or column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    present = column.filter(pa.array(valid))
    if pa.types.is_floating(column.type):
        _, inverse = np.unique(present.to_numpy(zero_copy_only=False), return_inverse=True)
    else:
        encoded = present.dictionary_encode()
        inverse = ranks_of(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
    out = np.full(len(column), -1, np.int64)
    out[valid] = inverse.reshape(-1)
    return out


def ordered(column: pa.Array) -> Array:
    """Whole numbers that order as the values do, equal where these are: int64 [n], nulls 0.

    Numbers, times and truth values are their own order, so that nothing is sorted or hashed here; of others, ranks.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        values: Array = pc.cast(column, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # no -0.0
        places: Array = np.where(np.isnan(values), np.nan, values).view(np.int64)
        places ^= (places >> 63) & np.int64(2**63 - 1)
        return places
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind):
        return np.maximum(ranks(column), 0)
    places = column.fill_null(0).to_numpy(zero_copy_only=False)
    if places.dtype == np.uint64:
        places = places ^ np.uint64(2**63)
    return places.astype(np.int64)


def ranks_of(values: pa.Array) -> Array:
    """Each of some different values' place in their order, nulls first: int64 [k]."""
    order = pc.array_sort_indices(values, null_placement="at_start").to_numpy(zero_copy_only=False)
    found = np.empty(order.shape[0], np.int64)
    found[order] = np.arange(order.shape[0])
    return found


def groups(codes: Array, count: int) -> tuple[Array, Array]:
    """(rows in order of their group, where each group begins there): int64 [n], [count + 1].

    codes: int64 [n], from 0 on and below `count`.  13 ns a row up to 65,536 groups, by one pass that sorts 16 bits.
    """
    small = codes.astype(np.uint16) if count <= 1 << 16 else codes
    order = np.arange(codes.shape[0]) if count == 1 else small.argsort(kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=count))])


def _dense(codes: Array) -> tuple[Array, int]:
    """The codes numbered anew, -1 as it is."""
    values, inverse = np.unique(codes, return_inverse=True)
    below = int(values.shape[0] > 0 and values[0] < 0)
    return inverse.reshape(-1) - below, max(1, int(values.shape[0]) - below)


def _codes(column: pa.Array) -> tuple[Array, int]:
    """Codes of one column, nulls as a value of their own."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), 1
    if pa.types.is_nested(column.type):
        raise KeyTypeError(
            f"rows: needed columns whose values can be told equal; got one of {column.type}; leave it out"
        )
    (codes,), distinct = encode_all((column,))
    return np.where(codes < 0, distinct, codes), distinct + 1
