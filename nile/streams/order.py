"""Putting tuples in the order of time: checking it, or repairing it within a lateness.

Both orders take runs of tuples in arrival order and give runs in the total order (ts, arrival). What they give
all in all does not depend on how the arrivals were split into runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import numpy as np

from nile.base.durations import format_duration
from nile.base.plain import decoded
from nile.base.times import TIME_LIMIT
from nile.summaries.errors import TimestampOrderError
from nile.summaries.heavy import pa


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tuples: event times (int64 ns), keys (a pyarrow array), row numbers in the source (int64).

    `carried`: further columns, if any were asked for.
    """

    ts: np.ndarray
    key: pa.Array
    row: np.ndarray
    carried: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def slice(self, start: int, stop: int) -> Run:
        """Tuples start..stop-1, without copying."""
        carried = None if self.carried is None else self.carried.slice(start, stop - start)
        return Run(self.ts[start:stop], self.key.slice(start, stop - start), self.row[start:stop], carried)

    def where(self, mask: np.ndarray) -> Run:
        """The tuples that `mask` (bool) marks."""
        chosen = pa.array(mask)
        carried = None if self.carried is None else self.carried.filter(chosen)
        return Run(self.ts[mask], self.key.filter(chosen), self.row[mask], carried)

    def take(self, order: np.ndarray) -> Run:
        """The tuples at `order` (int)."""
        rows = pa.array(order)
        carried = None if self.carried is None else self.carried.take(rows)
        return Run(self.ts[order], self.key.take(rows), self.row[order], carried)


def joined(runs: list[Run]) -> Run:
    """The runs as one."""
    if len(runs) == 1:
        return runs[0]
    keys = [run.key for run in runs]
    if len({key.type for key in keys}) > 1:  # one run of the stream was worth encoding, another was not
        keys = [decoded(key) for key in keys]
    return Run(
        np.concatenate([run.ts for run in runs]),
        pa.concat_arrays(keys),
        np.concatenate([run.row for run in runs]),
        pa.concat_batches(carried) if (carried := [run.carried for run in runs if run.carried is not None]) else None,
    )


class Order(Protocol):
    """A way to bring arrivals into order."""

    def check(self, arrivals: Sequence[Run]) -> None:
        """Whether `push` would take these, one after the other; nothing changes.  Raises TimestampOrderError."""

    def push(self, arrivals: Run) -> tuple[Run | None, Run | None]:
        """(tuples whose turn has come, tuples that came too late) after these arrivals."""

    def due(self) -> Run | None:
        """Tuples whose turn has come and that `push` has not given yet, for those who cannot wait for more."""

    def finish(self) -> Run | None:
        """The tuples still waiting, at the end of the stream."""

    def waiting(self) -> Run | None:
        """The tuples that wait, in order, once `due` has been asked."""

    def let_go(self, places: np.ndarray) -> None:
        """Forget those of them at these places, int64 [n]."""


class CheckedOrder:
    """Takes arrivals that must be in order already; any disorder is an error. O(1) memory."""

    def __init__(self, stream: str) -> None:
        """`stream`: the name for messages."""
        self._stream = stream
        self._last = -TIME_LIMIT
        self._count = 0

    def check(self, arrivals: Sequence[Run]) -> None:
        """Raises TimestampOrderError at the first that is older than the one before."""
        last, count = self._last, self._count
        for run in arrivals:
            ts = run.ts
            if len(ts) == 0:
                continue
            if ts[0] < last or (len(ts) > 1 and bool((ts[1:] < ts[:-1]).any())):
                before = np.concatenate([[last], ts[:-1]])
                at = int(np.argmax(ts < before))
                raise self._disorder(int(ts[at]), int(before[at]), count + at, int(run.row[at]))
            last = int(ts[-1])
            count += len(ts)

    def push(self, arrivals: Run) -> tuple[Run | None, Run | None]:
        """Gives the arrivals back. Raises TimestampOrderError at the first that is older than the one before."""
        if len(arrivals) == 0:
            return None, None
        self.check([arrivals])
        self._last = int(arrivals.ts[-1])
        self._count += len(arrivals)
        return arrivals, None

    def finish(self) -> Run | None:
        """Nothing waits."""
        return None

    def advance(self, now: int) -> None:
        """No tuple older than `now` will come."""
        self._last = max(self._last, now)

    def due(self) -> Run | None:
        """Nothing waits."""
        return None

    def waiting(self) -> Run | None:
        """Nothing waits."""
        return None

    def let_go(self, places: np.ndarray) -> None:
        """There is nothing to let go of."""

    def position(self) -> tuple[int, int]:
        """(the largest ts so far, tuples so far): all that is remembered."""
        return self._last, self._count

    def go_on_from(self, largest: int, count: int) -> None:
        """Be where another order was."""
        self._last, self._count = largest, count

    def _disorder(self, ts: int, before: int, ordinal: int, row: int) -> TimestampOrderError:
        shown, shown_before = show_instant(ts), show_instant(before)
        if shown[:11] == shown_before[:11]:
            shown_before = shown_before[11:]
        return TimestampOrderError(
            f"stream '{self._stream}': tuple {ordinal} (row {row}) has ts {shown}, before {shown_before} already "
            f"read; sort the source, or set lateness='{_round_up(before - ts)}' or more"
        )


class RepairedOrder:
    """Repairs disorder up to `lateness` nanoseconds.

    The watermark is the largest ts so far less the lateness. An arrival older than the watermark before it is
    late; the others wait until the watermark reaches them and leave in order (ts, arrival). Memory: the tuples
    of one lateness; time: amortised O(log) a tuple, O(1) where they arrive in order.
    """

    def __init__(self, lateness: int, rows: int) -> None:
        """`lateness`: ns. `rows`: tuples worth gathering before sorting."""
        self._lateness = lateness
        self._rows = rows
        self._largest = -TIME_LIMIT
        self._sorted: Run | None = None
        self._arrived: list[Run] = []
        self._arrived_count = 0

    def check(self, arrivals: Sequence[Run]) -> None:
        """Any disorder can be repaired, or is late."""

    def late(self, ts: np.ndarray) -> tuple[np.ndarray, int]:
        """Which of these arrivals are older than the watermark before them, bool [n], and the watermark after them."""
        largest = np.maximum.accumulate(np.concatenate([[self._largest], ts]))
        return ts < largest[:-1] - self._lateness, int(largest[-1]) - self._lateness

    def push(self, arrivals: Run) -> tuple[Run | None, Run | None]:
        """Tuples whose turn has come, and late ones."""
        if len(arrivals) == 0:
            return None, None
        late_mask, watermark = self.late(arrivals.ts)
        self._largest = watermark + self._lateness
        late = None
        if late_mask.any():
            late, arrivals = arrivals.where(late_mask), arrivals.where(~late_mask)
        self._arrived.append(arrivals)
        self._arrived_count += len(arrivals)
        # Sorting again only when as much is new as half of what waits keeps the cost per tuple logarithmic.
        waiting = 0 if self._sorted is None else len(self._sorted)
        due = None
        if self._arrived_count >= max(self._rows, waiting // 2):
            due = self._release(self._largest - self._lateness)
        return due, late

    def finish(self) -> Run | None:
        """Everything that still waits, in order."""
        return self._release(self._largest)

    @property
    def watermark(self) -> int:
        """What is older than this time is late."""
        return self._largest - self._lateness

    def advance(self, now: int) -> None:
        """No tuple older than `now` will come: the watermark moves there."""
        self._largest = max(self._largest, now + self._lateness)

    def due(self) -> Run | None:
        """What the watermark has reached and `push` has not given yet, for those who cannot wait for more."""
        return self._release(self._largest - self._lateness)

    def waiting(self) -> Run | None:
        """The tuples that wait, in order, once `due` has been asked."""
        return self._sorted

    def let_go(self, places: np.ndarray) -> None:
        """Forget those of them at these places, int64 [n]."""
        if self._sorted is not None and len(places):
            stay = np.ones(len(self._sorted), bool)
            stay[places] = False
            self._sorted = self._sorted.where(stay) if stay.any() else None

    def position(self) -> tuple[int, Run | None]:
        """(the largest ts so far, the tuples that wait, in order): all that is remembered once `due` has been asked."""
        return self._largest, self._sorted

    def go_on_from(self, largest: int, waiting: Run | None) -> None:
        """Be where another order was."""
        self._largest, self._sorted = largest, waiting

    def _release(self, watermark: int) -> Run | None:
        runs = ([] if self._sorted is None else [self._sorted]) + self._arrived
        if not runs:
            return None
        run = joined(runs)
        if bool((run.ts[1:] < run.ts[:-1]).any()):
            # Stable, and what waited came before what arrived: ties stay in order of arrival.
            order = np.argsort(run.ts, kind="stable")
            run = run.take(order)
        # A later arrival at the watermark itself is not late, but comes after these.
        stop = int(np.searchsorted(run.ts, watermark, side="right"))
        self._sorted = run.slice(stop, len(run)) if stop < len(run) else None
        self._arrived, self._arrived_count = [], 0
        return run.slice(0, stop) if stop else None


def show_instant(ns: int) -> str:
    """An event time as people write it: "2011-12-09 08:01", with seconds and fractions only if it has them."""
    seconds, fraction = divmod(ns, 1_000_000_000)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    text = moment.strftime("%Y-%m-%d %H:%M:%S" if seconds % 60 or fraction else "%Y-%m-%d %H:%M")
    return text + f".{fraction:09d}".rstrip("0") if fraction else text


def _round_up(ns: int) -> str:
    """The next whole number of the largest unit that `ns` reaches."""
    for size in (86_400_000_000_000, 3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000, 1_000):
        if ns >= size:
            return format_duration(-(-ns // size) * size)
    return format_duration(ns)
