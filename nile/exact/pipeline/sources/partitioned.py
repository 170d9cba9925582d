"""The last rows per partition: a tuple leaves when the n-th later one with the same values arrives.

Whatever the scheduling it leaves by a negative tuple, since a tuple and not time takes its place.
Cost: O(1) a tuple; memory: n tuples of each partition.  Source: CQL (CIDR 2003), section 2.1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, empty
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.plan.algebra import Rows, Scan
from nile.exact.state.arrow import Array, pa
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["PartitionedStream"]


class PartitionedStream:
    """A stream in a window of the last rows of each partition."""

    KIND: ClassVar = "partitioned"
    HELD: ClassVar = ("arrivals", "negative", "_held", "_now", "_next")
    DERIVED: ClassVar = ("clock", "schema", "window", "_by", "_table", "_parts", "_counts")

    def __init__(self, clock: Clock, scan: Scan) -> None:
        assert isinstance(scan.window, Rows)
        self.clock = clock
        self.arrivals = Incoming(scan, [])
        self.schema = scan.schema
        self.window = scan.window
        self.negative = 0
        self._by = [scan.schema.get_field_index(name) for name in scan.window.by]
        self._table = RowTable(scan.schema.types, exact=True)
        self._parts = RowTable([scan.schema.field(at).type for at in self._by])
        self._counts = np.zeros(1, np.int64)
        self._held: dict[int, list[tuple[int, int, int]]] = {}  # of each partition (number, ts, code), oldest first
        self._now = EARLIEST
        self._next = 0

    def step(self, to: int) -> Delta:
        """Arrivals, and the tuples whose place they take, up to `to`."""
        self._now = to
        _, _, ts, rows = self.arrivals.take(to)
        if not ts.shape[0]:
            return empty(self.schema)
        codes, told = self._taken_in(ts, rows)
        when, which, sign = (np.array([each[k] for each in told], np.int64) for k in range(3))
        order = np.lexsort((sign > 0, when))
        when, which, sign = when[order], which[order], sign[order]
        out = self._rows(which)
        np.add.at(self._counts, codes, 1)
        gone = which[sign < 0]
        self.negative += gone.shape[0]
        here = {code for _, code, _ in told}
        passing = codes[~np.isin(codes, list(here))]
        np.add.at(self._counts, gone, -1)
        self._table.release(np.concatenate([gone, passing])[self._counts[np.concatenate([gone, passing])] <= 0])
        return Delta(when, sign.astype(np.int8), out)

    def _taken_in(self, ts: Array, rows: Any) -> tuple[Array, list[tuple[int, int, int]]]:
        """(codes of the rows, what comes and goes as (ts, code, sign)): not what goes in the instant it came."""
        codes = self._table.codes(self._table.encode(rows.columns))
        self._counts = grown(self._counts, self._table.room)
        parts = self._parts.codes(self._parts.encode([rows.column(at) for at in self._by]))
        told: list[tuple[int, int, int]] = []
        never: set[int] = set()
        coming: dict[int, tuple[int, int]] = {}
        for now, code, part in zip(ts.tolist(), codes.tolist(), parts.tolist(), strict=True):
            held = self._held.setdefault(part, [])
            held.append((self._next, now, code))
            coming[self._next] = (now, code)
            self._next += 1
            if len(held) > self.window.n:
                number, since, old = held.pop(0)
                if since == now:
                    never.add(number)
                else:
                    told.append((now, old, -1))
        told += [(now, code, 1) for number, (now, code) in coming.items() if number not in never]
        lost = [code for number, (_, code) in coming.items() if number in never]
        np.add.at(self._counts, np.array(lost, np.int64), -1)
        return codes, told

    def _rows(self, codes: Array) -> Any:
        return pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.schema)

    def _standing(self) -> tuple[Array, Array]:
        """(ts, codes) of the tuples in the window, in the order they came."""
        held = sorted(each for some in self._held.values() for each in some)
        return np.array([each[1] for each in held], np.int64), np.array([each[2] for each in held], np.int64)

    def time(self) -> int:
        """GetTime: how far the stream is known."""
        return self._now

    def contents(self) -> Any:
        """The rows in the window, oldest first."""
        return self._rows(self._standing()[1])

    def capture(self) -> State:
        """What waits to be worked on, and what the window holds, oldest first."""
        ts, codes = self._standing()
        return {
            "clock": self._now,
            "negative": self.negative,
            "arrivals": self.arrivals.capture(),
            "ts": ts,
            "rows": self._rows(codes),
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.negative = held.integer("negative", 0, MOST)
        self.arrivals.restore(held.part("arrivals"))
        ts = held.rising("ts")
        rows = held.rows("rows", self.schema, ts.shape[0])
        held.end()
        codes, _ = self._taken_in(ts, rows)
        np.add.at(self._counts, codes, 1)
        if sum(map(len, self._held.values())) != ts.shape[0]:
            held.refuse(f"{self.window.n} rows of a partition at most", "more")

    def next_leaving(self, n: int) -> int | None:  # noqa: ARG002
        """Not known: tuples to come say so."""
        return None

    @property
    def memory(self) -> int:
        held = sum(56 + 8 * len(some) + 120 * len(some) for some in self._held.values())
        return int(held + self.arrivals.memory + self._table.memory + self._parts.memory + self._counts.nbytes)
