"""Columns of rows that need not become a batch: to name, drop or order columns makes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nile.exact.state.arrow import pa

__all__ = ["Columns", "made", "picked"]


class Columns:
    """Arrow arrays of one length under a schema, as a RecordBatch would have them.  Only to be read."""

    __slots__ = ("columns", "num_rows", "schema")

    def __init__(self, columns: list[Any], schema: Any, num_rows: int) -> None:
        self.columns = columns
        self.schema = schema
        self.num_rows = num_rows

    def column(self, at: int) -> Any:
        """One of them."""
        return self.columns[at]

    def slice(self, begin: int, rows: int | None = None) -> Columns:
        """Some of the rows."""
        rows = self.num_rows - begin if rows is None else rows
        return Columns([each.slice(begin, rows) for each in self.columns], self.schema, rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(each.nbytes for each in self.columns)


def picked(rows: Any, places: Iterable[int], schema: Any) -> Columns:
    """These columns of a RecordBatch or of Columns, as a schema calls them."""
    return Columns([rows.column(at) for at in places], schema, rows.num_rows)


def made(rows: Any) -> Any:
    """The RecordBatch that a RecordBatch or Columns are."""
    return pa.RecordBatch.from_arrays(rows.columns, schema=rows.schema) if type(rows) is Columns else rows
