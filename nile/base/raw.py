"""Rows as a source gives them: batches in arrival order, with the unreadable rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from nile.base.names import names_given
from nile.summaries.errors import UnknownColumn
from nile.summaries.heavy import pa


@dataclass(frozen=True, slots=True)
class Malformed:
    """A row so broken that it has no columns: its number, why, and its text as it came."""

    row: int
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Rows as a source gives them, in arrival order.

    `batch`: the asked columns, typed; null where a cell does not fit its column's type.
    `rows`: int64, each row's number in the source, from 1 (a header is not counted, malformed rows are).
    `malformed`: rows between these that have no columns at all.
    `misfits`: for each column with cells that do not fit its type, a bool array that marks them.
    `text`: the same rows as they came, where they came as text (CSV); else None.
    `unread`: how many rows beside these count, but are not needed.
    `dropped`: columns that they came with and that nobody asked for, where these are counted.
    """

    batch: pa.RecordBatch
    rows: np.ndarray
    malformed: Sequence[Malformed] = ()
    misfits: Mapping[str, np.ndarray] = field(default_factory=dict)
    text: pa.RecordBatch | None = None
    dropped: tuple[str, ...] = ()
    unread: int = 0


def check_columns(schema: pa.Schema, columns: Sequence[str], *, where: str) -> None:
    """Raises UnknownColumn unless `schema` has each of `columns` exactly once, ConfigError for what is no text.

    Names are case-sensitive.
    """
    for column in names_given(columns, where=f"{where}, columns"):
        count = schema.names.count(column)
        if count == 1:
            continue
        if count > 1:
            raise UnknownColumn(f"{where}: needed one column '{column}', found {count}; rename the others")
        folded = {name.lower(): name for name in schema.names}
        near = get_close_matches(column.lower(), folded, n=1)
        hint = f"did you mean '{folded[near[0]]}'?" if near else _listing(schema.names)
        raise UnknownColumn(f"{where}: there is no column '{column}'; {hint}")


def _listing(names: Sequence[str]) -> str:
    if not names:
        return "it has no columns"
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return f"the columns are {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
