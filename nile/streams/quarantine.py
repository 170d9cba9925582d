"""Rows of a source that are no tuples of its stream, as they are kept to be looked at: why, where, what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nile.base.cells import misfit_reason
from nile.base.raw import RawBatch
from nile.base.times import UNPARSABLE_TIME
from nile.streams.order import Run
from nile.summaries.heavy import pa, pc

__all__ = ["Admitted", "Refused", "refused_cells", "refused_lines", "refused_rows"]

Array = np.ndarray[Any, Any]
Refused: TypeAlias = tuple[dict[str, int], "pa.RecordBatch"]
"""How many by reason, and the rows: reason (text), row (int64, from 1 in the source), raw (text)."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Rows as they came, those that are tuples, and by reason those that are none."""

    raw: RawBatch
    run: Run
    refused: tuple[Refused, ...]


def refused_lines(raw: RawBatch) -> Refused:
    """Lines that have no columns."""
    rows = np.array([bad.row for bad in raw.malformed], np.int64)
    return _refused(
        [bad.reason for bad in raw.malformed], rows, pa.array([bad.raw for bad in raw.malformed], pa.string())
    )


def refused_cells(raw: RawBatch, at: Array, columns: Sequence[str], time: str) -> Refused:
    """The rows `at` (int64 [m]), each for the first of `columns` whose cell does not fit.  time: the time column."""
    reasons = np.full(len(at), "", object)
    for name in reversed(columns):
        reason = misfit_reason(name, raw.batch.schema.field(name).type)
        reasons[raw.misfits[name][at]] = UNPARSABLE_TIME if name == time else reason
    return refused_rows(raw, at, list(reasons))


def refused_rows(raw: RawBatch, at: Array, reasons: Sequence[str]) -> Refused:
    """The rows `at` (int64 [m]), and of each why."""
    return _refused(reasons, raw.rows[at], _as_text(raw, at))


def _refused(reasons: Sequence[str], rows: Array, text: pa.Array) -> Refused:
    names, counts = np.unique(np.array(reasons, object), return_counts=True)
    columns = [pa.array(reasons, pa.string()), pa.array(rows), text]
    return (
        {str(name): int(count) for name, count in zip(names, counts, strict=True)},
        pa.RecordBatch.from_arrays(columns, names=["reason", "row", "raw"]),
    )


def _as_text(raw: RawBatch, at: Array) -> pa.Array:
    """The rows `at` as text: "ts=2011-12-09 08:01:00, item_id=null". What came as text is shown as it came."""
    rows = (raw.batch if raw.text is None else raw.text).take(pa.array(at))
    cells = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            text = column.cast(pa.string())
        except pa.ArrowException:  # nested values and bytes that are not UTF-8
            text = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        named = pc.binary_join_element_wise(f"{name}=", text, "", null_handling="replace", null_replacement="null")
        cells.append(named)
    return pc.binary_join_element_wise(*cells, ", ")
