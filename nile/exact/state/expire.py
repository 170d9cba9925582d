"""W-Expire's store: rows that wait for the instant at which they leave.

Design: sorted runs.  Rows that come in the order in which they leave (a single window) extend a queue; others start
a new run, and runs of like length are merged, so that a row is moved O(log n) times.  Cost: O(log n) a row, O(1) in
a single window.  Source: negative tuples, section 3.2.1 (W-Expire) and footnote 1 (several windows).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable

__all__ = ["NEVER", "Calendar", "after", "joined", "nothing", "signs", "uncancelled"]

NEVER = np.iinfo(np.int64).max
"""The time at which a row leaves that does not leave by itself."""

_BLOCK = 4096  # rows up to which blocks of a queue are joined
_LOOSE = 32  # blocks that come before any are
_NOTHING: dict[int, tuple[Any, Any]] = {}  # by the identity of their schemas, which stand beside them
_SIGNS = {sign: np.full(_BLOCK, sign, np.int8) for sign in (1, -1)}
_NO_TIMES = np.zeros(0, np.int64)


def after(ts: Array, window: int) -> Array:
    """The first nanosecond at which tuples of times `ts` are out of their window: ts + window + 1, NEVER at most."""
    if window >= NEVER - 1:
        return never(ts)
    if not ts.shape[0] or ts.max() <= NEVER - 1 - window:
        return ts + (window + 1)
    return np.where(ts > NEVER - 1 - window, NEVER, ts + np.int64(window) + 1)


def never(ts: Array) -> Array:
    """NEVER for each."""
    return np.full(ts.shape[0], NEVER, np.int64)


def signs(sign: int, n: int) -> Array:
    """A sign (1 or -1) for each of n rows, which is only read: int8 [n]."""
    # Not set read-only: to numba that would be another type, for which it compiles every kernel again.
    return _SIGNS[sign][:n] if n <= _BLOCK else np.full(n, sign, np.int8)


def nothing(schema: Any) -> Any:
    """A RecordBatch without rows, made once for a schema."""
    known = _NOTHING.get(id(schema))
    if known is None or known[0] is not schema:
        made = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        if len(_NOTHING) >= 1024:
            _NOTHING.clear()
        known = _NOTHING[id(schema)] = schema, made
    return known[1]


def joined(batches: list[Any], schema: Any) -> Any:
    """One RecordBatch of several."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return nothing(schema)
    columns = [pa.concat_arrays([batch.column(i) for batch in batches]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def uncancelled(at: Array, sign: Array, rows: Any) -> Array:
    """Which rows of sign 1 (bool [n]) no row of sign -1 with the same instant and values takes back, one for one."""
    table = RowTable(rows.schema.types, exact=True, extra=1)
    words = table.encode(rows.columns)
    words[:, -1] = at
    codes = table.codes(words)
    back = np.zeros(table.room, np.int64)
    np.add.at(back, codes[sign < 0], 1)
    stay: Array = sign > 0
    for i in np.flatnonzero(stay & (back[codes] > 0)):
        if back[codes[i]]:
            back[codes[i]] -= 1
            stay[i] = False
    return stay


class _Run:
    """Rows in the order in which they leave: blocks of (until, sign, rows), the first `gone` of the first have left."""

    HELD: ClassVar = ("blocks",)
    DERIVED: ClassVar = ("gone", "last", "size", "_loose")

    def __init__(self, until: Array, sign: Array, rows: Any) -> None:
        self.blocks: deque[tuple[Array, Array, Any]] = deque([(until, sign, rows)])
        self.gone = 0
        self.last = int(until[-1])
        self.size = until.shape[0]
        self._loose = 0

    def append(self, until: Array, sign: Array, rows: Any) -> None:
        self.blocks.append((until, sign, rows))
        self.last = int(until[-1])
        self.size += until.shape[0]
        self._loose += 1
        if self._loose >= _LOOSE:
            self._tidy(rows.schema)

    def _tidy(self, schema: Any) -> None:
        """Join small blocks that have come: a batch of a few rows costs a kilobyte of its own."""
        last = [self.blocks.pop() for _ in range(min(self._loose + 1, len(self.blocks)))][::-1]
        if not self.blocks:
            until, sign, rows = last[0]
            last[0] = until[self.gone :], sign[self.gone :], rows.slice(self.gone)
            self.gone = 0
        begin = size = 0
        for end in range(1, len(last) + 1):
            size += last[end - 1][0].shape[0]
            if end == len(last) or size + last[end][0].shape[0] > _BLOCK:
                self.blocks.append(_as_one(last[begin:end], schema))
                begin, size = end, 0
        self._loose = 0

    def due(self, now: int) -> Iterator[tuple[Array, Array, Any]]:
        """Take out what leaves by `now`."""
        while self.blocks:
            until, sign, rows = self.blocks[0]
            end = int(until.searchsorted(now, "right"))
            if end > self.gone:
                yield until[self.gone : end], sign[self.gone : end], rows.slice(self.gone, end - self.gone)
                self.size -= end - self.gone
            if end < until.shape[0]:
                self.gone = max(end, self.gone)
                return
            self.blocks.popleft()
            self.gone = 0

    def rest(self) -> Iterator[tuple[Array, Array, Any]]:
        """What has not left."""
        gone = self.gone
        for until, sign, rows in self.blocks:
            yield until[gone:], sign[gone:], rows.slice(gone)
            gone = 0


def _as_one(blocks: list[tuple[Array, Array, Any]], schema: Any) -> tuple[Array, Array, Any]:
    if len(blocks) == 1:
        return blocks[0]
    until, sign = (np.concatenate([block[k] for block in blocks]) for k in (0, 1))
    return until, sign, joined([block[2] for block in blocks], schema)


class Calendar:
    """Rows by the instant at which they leave; ties leave in the order they came.

    A row taken back before its time is added again with sign -1: the two leave together, and neither is returned.
    """

    HELD: ClassVar = ("_runs",)
    DERIVED: ClassVar = ("schema", "_taken_back")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._runs: list[_Run] = []
        self._taken_back = 0

    def __len__(self) -> int:
        return sum(run.size for run in self._runs)

    def add(self, until: Array, rows: Any, sign: Array | None = None) -> None:
        """Rows that leave at `until` (int64 [n]; NEVER: not kept)."""
        if not (n := until.shape[0]):
            return
        if until.max() >= NEVER:
            stay = until < NEVER
            if not stay.any():
                return
            until, rows = until[stay], rows.filter(pa.array(stay))
            n, sign = until.shape[0], None if sign is None else sign[stay]
        if sign is None:
            sign = signs(1, n)
        else:
            self._taken_back += int((sign < 0).sum())
        if n > 1 and (until[1:] < until[:-1]).any():
            order = np.argsort(until, kind="stable")
            until, sign, rows = until[order], sign[order], rows.take(pa.array(order))
        if self._runs and self._runs[-1].last <= until[0]:
            self._runs[-1].append(until, sign, rows)
        else:
            self._runs.append(_Run(until, sign, rows))
        while len(self._runs) > 1 and self._runs[-2].size <= 2 * self._runs[-1].size:
            self._merge()

    def pop(self, now: int) -> tuple[Array, Any]:
        """(until int64 [n], not falling; rows) of those that leave by `now`."""
        parts = [part for run in self._runs for part in run.due(now)]
        if not parts:
            return _NO_TIMES, nothing(self.schema)
        self._runs = [run for run in self._runs if run.size]
        until, sign, rows = parts[0] if len(parts) == 1 else self._sorted(parts)
        if self._taken_back and until.shape[0]:
            self._taken_back -= int((sign < 0).sum())
            stay = uncancelled(until, sign, rows)
            until, rows = until[stay], rows.filter(pa.array(stay))
        return until, rows

    def nth(self, n: int) -> int | None:
        """When the n-th row (from 0) of the longest run leaves, None if it has fewer."""
        for run in self._runs[:1]:
            n += run.gone
            for until, _, _ in run.blocks:
                if n < until.shape[0]:
                    return int(until[n])
                n -= until.shape[0]
        return None

    def contents(self) -> Any:
        """The rows that have not left, in the order they leave: a RecordBatch."""
        until, sign, rows = self._sorted([part for run in self._runs for part in run.rest()])
        if self._taken_back:
            rows = rows.filter(pa.array(uncancelled(until, sign, rows)))
        return rows

    def capture(self) -> State:
        """The rows that have not left and are not taken back, in the order they leave."""
        until, sign, rows = self._sorted([part for run in self._runs for part in run.rest()])
        if self._taken_back:
            stay = uncancelled(until, sign, rows)
            until, sign, rows = until[stay], sign[stay], rows.filter(pa.array(stay))
        return {"until": until, "sign": sign, "rows": rows}

    def restore(self, held: Held) -> None:
        """Put captured rows into an empty calendar.  Raises EnvelopeError."""
        until = held.rising("until")
        sign = held.array("sign", "int8", until.shape)
        rows = held.rows("rows", self.schema, until.shape[0])
        held.end()
        if until.max(initial=0) == NEVER or (np.abs(sign) != 1).any():
            held.refuse("instants below NEVER and signs of 1 or -1", until)
        self._runs = [_Run(until, sign, rows)] if until.shape[0] else []
        self._taken_back = int((sign < 0).sum())

    def _merge(self) -> None:
        late = self._runs.pop()
        early = self._runs.pop()
        merged = self._sorted([*early.rest(), *late.rest()])
        self._runs.append(_Run(*merged))

    def _sorted(self, parts: list[tuple[Array, Array, Any]]) -> tuple[Array, Array, Any]:
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int8), joined([], self.schema)
        until = np.concatenate([part[0] for part in parts])
        sign = np.concatenate([part[1] for part in parts])
        rows = joined([part[2] for part in parts], self.schema)
        if (until[1:] < until[:-1]).any():
            order = np.argsort(until, kind="stable")
            until, sign, rows = until[order], sign[order], rows.take(pa.array(order))
        return until, sign, rows

    @property
    def memory(self) -> int:
        """Bytes of the rows that wait."""
        total = 0
        for run in self._runs:
            for until, sign, rows in run.rest():
                total += until.nbytes + sign.nbytes + rows.nbytes
        return int(total)
