"""Rows in the order of ORDER BY, over whole inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.execution.values import column_of
from nile.operators.common.rows import ordered
from nile.sql.columns import SortKey
from nile.summaries.heavy import pa

__all__ = ["order_of", "sort_columns", "sorted_rows"]

Array = np.ndarray[Any, Any]


def sorted_rows(keys: Sequence[SortKey], below: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in order; of equals that which came first."""
    if not keys or not below.num_rows:
        return below
    return below.take(pa.array(order_of(keys, below)))


def order_of(keys: Sequence[SortKey], below: pa.RecordBatch) -> Array:
    """The places of rows in order, of equals that which came first: int64 [n]."""
    if not keys:
        return np.arange(below.num_rows)
    return np.lexsort(sort_columns(keys, below)[::-1])


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
