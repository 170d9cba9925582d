"""Rows in the order of ORDER BY, over whole inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.execution.values import column_of
from nile.operators.common.rows import ranks
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
    """What numpy sorts rows by, the first key first: int64 [n] each."""
    columns: list[Array] = []
    for key in keys:
        rank = ranks(column_of(key.node, below))
        null = rank < 0
        rank = -rank if key.descending else rank
        columns += [null if key.nulls_last else ~null, np.where(null, 0, rank)]
    return columns
