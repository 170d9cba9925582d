"""Rows in the order of ORDER BY, over whole inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.execution.values import column_of
from nile.operators.common.rows import ordered
from nile.sql.columns import SortKey
from nile.summaries.heavy import pa

__all__ = ["first_rows", "may_be_first", "order_of", "sort_columns", "sorted_rows"]

Array = np.ndarray[Any, Any]


def sorted_rows(keys: Sequence[SortKey], below: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in order; of equals that which came first."""
    if not keys or not below.num_rows:
        return below
    return below.take(pa.array(order_of(keys, below)))


def first_rows(keys: Sequence[SortKey], below: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """The first `most` rows in order; of equals that which came first.  O(n + m log m), m of them by the first key."""
    return sorted_rows(keys, may_be_first(keys, below, most)).slice(0, most)


def order_of(keys: Sequence[SortKey], below: pa.RecordBatch) -> Array:
    """The places of rows in order, of equals that which came first: int64 [n]."""
    if not keys:
        return np.arange(below.num_rows)
    return np.lexsort(sort_columns(keys, below)[::-1])


def may_be_first(keys: Sequence[SortKey], below: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """Rows as they came among which the first `most` are, by the first key; all where that spares little.  O(n)."""
    if not keys or below.num_rows <= 2 * most:
        return below
    if not most:
        return below.slice(0, 0)
    *flags, place = sort_columns(keys[:1], below)
    at = np.arange(below.num_rows)
    for flag in flags:  # which rows have a null, where some have: if those that come first suffice, the first of them
        at = np.flatnonzero(~flag)
        if at.shape[0] < most:
            return below
    own = place[at]
    return below.take(pa.array(at[own <= np.partition(own, most - 1)[most - 1]]))


def sort_columns(keys: Sequence[SortKey], below: pa.RecordBatch) -> list[Array]:
    """What numpy sorts rows by, the first key first: [n] each, one a key and, where it is null for some, one before."""
    columns: list[Array] = []
    for key in keys:
        column = column_of(key.node, below)
        place = ordered(column)
        if key.descending:
            place = ~place  # of the least number too there is one
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            columns.append(~valid if key.nulls_last else valid)
            place = np.where(valid, place, 0)
        columns.append(place)
    return columns
