"""Rows for many readers as slices of one batch, kept until each has taken its own.

A delivery holds the rows that one batch brought to all readers, by reader.  Older ones are merged, without the rows
that were taken meanwhile, so that a reader who does not come holds up its own rows and nobody else's.
Source: STREAM (CIDR 2003), section 3.2: a shared queue with a pointer for each reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nile.exact.state.expire import joined
from nile.summaries.heavy import pa

__all__ = ["Deliveries", "Form"]

Array = np.ndarray[Any, Any]
_SEPARATE = 64
"""Deliveries that are kept as they came before older ones are merged."""
_MERGED_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Form:
    """How a reader has its rows: these columns, with their times before them or without, under this schema."""

    columns: tuple[int, ...]
    timed: bool
    schema: pa.Schema

    def of(self, ts: Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in this form."""
        before = [pa.array(ts).view(pa.timestamp("ns"))] if self.timed else []
        return pa.RecordBatch.from_arrays([*before, *(rows.column(at) for at in self.columns)], schema=self.schema)


@dataclass(slots=True)
class _Delivery:
    """Rows by reader, those of k from offsets[k] on.  number: the last that is in it; left: rows not taken yet."""

    number: int
    offsets: Array
    ts: Array
    rows: pa.RecordBatch
    left: int
    bytes: int
    formed: dict[int, pa.RecordBatch] = field(default_factory=dict)


class Deliveries:
    """What waits for readers.  forms: of each reader."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms: list[Form] = []
        self._form_of: list[int] = []
        for form in forms:
            same = next((k for k, each in enumerate(self._forms) if each == form), len(self._forms))
            if same == len(self._forms):
                self._forms.append(form)
            self._form_of.append(same)
        self._waiting: tuple[_Delivery, ...] = ()
        self._number = 0
        self._taken = np.zeros(len(forms), np.int64)

    @property
    def bytes(self) -> int:
        """Of all rows that wait."""
        return sum(each.bytes * each.left // max(each.rows.num_rows, 1) for each in self._waiting)

    def bytes_of(self, reader: int) -> int:
        """Of the rows that wait for one reader, by the mean of a row."""
        taken = self._taken[reader]
        return sum(
            each.bytes * int(each.offsets[reader + 1] - each.offsets[reader]) // max(each.rows.num_rows, 1)
            for each in self._waiting
            if each.number > taken
        )

    def add(self, offsets: Array, ts: Array, rows: pa.RecordBatch) -> int:
        """Rows of all readers, by reader: those of k from offsets[k] on; their bytes."""
        size = int(rows.nbytes)
        if rows.num_rows:
            self._number += 1
            self._waiting = (*self._waiting, _Delivery(self._number, offsets, ts, rows, rows.num_rows, size))
            if len(self._waiting) > _SEPARATE:
                self._merge()
        return size

    def take(self, reader: int) -> list[pa.RecordBatch]:
        """What waits for a reader, in its form; it waits no longer."""
        taken, out, done = self._taken[reader], [], False
        for each in self._waiting:
            if each.number > taken:
                begin, end = each.offsets[reader : reader + 2].tolist()
                if begin < end:
                    form = self._form_of[reader]
                    if form not in each.formed:
                        each.formed[form] = self._forms[form].of(each.ts, each.rows)
                    out.append(each.formed[form].slice(begin, end - begin))
                    each.left -= end - begin
                    done |= not each.left
        self._taken[reader] = self._number
        if done:
            self._waiting = tuple(each for each in self._waiting if each.left)
        return out

    def _merge(self) -> None:
        """The newest ones become one, and with them those before that are not much larger."""
        waiting, first = self._waiting, len(self._waiting) - _SEPARATE // 2
        rows, size = (sum(getattr(each, name) for each in waiting[first:]) for name in ("left", "bytes"))
        while first and waiting[first - 1].left <= 2 * rows and size + waiting[first - 1].bytes < _MERGED_BYTES:
            first -= 1
            rows, size = rows + waiting[first].left, size + waiting[first].bytes
        parts, who, at, begun = waiting[first:], [], [], 0
        for each in parts:
            sizes = np.diff(each.offsets)
            own = np.repeat(np.arange(sizes.size), sizes)
            still = (each.number > self._taken)[own]
            who.append(own[still])
            at.append(np.flatnonzero(still) + begun)
            begun += each.rows.num_rows
        readers, places = np.concatenate(who), np.concatenate(at)
        order = np.argsort(readers, kind="stable")
        whole = joined([each.rows for each in parts], parts[0].rows.schema).take(pa.array(places[order]))
        ts = np.concatenate([each.ts for each in parts])[places[order]]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(readers, minlength=self._taken.size))])
        merged = _Delivery(parts[-1].number, offsets, ts, whole, whole.num_rows, int(whole.nbytes))
        self._waiting = (*waiting[:first], *((merged,) if merged.left else ()))
