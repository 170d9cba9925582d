"""Selections over many rows, in pieces that threads work on, and rows put together of pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.exact.join.threads import pieces_of, together, useful
from nile.exact.pipeline.sources.incoming import selected
from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import made
from nile.exact.state.expire import joined, nothing

__all__ = ["batch_of", "kept", "passing", "put_together"]

_PIECE = 1 << 15
"""Rows from which on a thread of their own is worth having."""
_COLUMNS = 1 << 14
"""Rows from which on a thread of its own is worth having to put columns together."""


def kept(rows: Any, test: Callable[[Any], Any], threads: int | None = 1) -> tuple[Any, Array | None]:
    """(the rows for which a test is true, their places: int64, None: all), on so many threads (None: all cores).

    rows: `Columns` too; they are given back where all are left.  Raises what the test raises of all rows at once.
    """
    pieces = useful(threads, rows.num_rows, _PIECE) if rows.num_rows >= 2 * _PIECE else 1
    if pieces == 1:
        return passing(rows, test)
    rows = made(rows)
    cuts = pieces_of(rows.num_rows, pieces)
    parts: list[Any] = [None] * pieces

    def work(k: int, cut: slice) -> None:
        parts[k] = passing(rows.slice(cut.start, cut.stop - cut.start), test)

    try:
        together([lambda k=k, cut=cut: work(k, cut) for k, cut in enumerate(cuts)])  # type: ignore[misc]
    except Exception:
        return passing(rows, test)
    if all(at is None for _, at in parts):
        return rows, None
    places = [
        np.arange(cut.start, cut.stop) if at is None else at + cut.start
        for cut, (_, at) in zip(cuts, parts, strict=True)
    ]
    return put_together([found for found, _ in parts], rows.schema, threads), np.concatenate(places)


def passing(rows: Any, test: Callable[[Any], Any]) -> tuple[Any, Array | None]:
    """As `kept`, on one thread."""
    at = np.flatnonzero(selected(rows, test))
    if at.shape[0] == rows.num_rows:
        return rows, None
    return (made(rows).take(pa.array(at)) if at.shape[0] else nothing(rows.schema)), at


def put_together(parts: Sequence[Any], schema: Any, threads: int | None) -> Any:
    """Batches in their order, as one; threads put columns together where these are long."""
    pieces = useful(threads, sum(each.num_rows for each in parts), _COLUMNS)
    if pieces == 1:
        return joined(list(parts), schema)

    def column(at: int) -> Any:
        return pa.concat_arrays([each.column(at) for each in parts])

    return batch_of([partial(column, at) for at in range(len(schema))], schema, pieces)


def batch_of(makers: Sequence[Callable[[], Any]], schema: Any, threads: int) -> Any:
    """The batch whose columns some calls make, which threads take by turns."""
    columns: list[Any] = [None] * len(makers)

    def work(first: int) -> None:
        for at in range(first, len(makers), threads):
            columns[at] = makers[at]()

    together([partial(work, k) for k in range(min(threads, len(makers)))])
    return pa.RecordBatch.from_arrays(columns, schema=schema)
