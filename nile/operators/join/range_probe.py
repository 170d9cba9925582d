"""The exact join whose outputs are range records, as a method of its own: what it keeps between kernel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.common.plan import JoinPlan
from nile.preferences import state as st
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.common.data import JoinInput
    from nile.operators.join import range_kernels
else:
    range_kernels = lazy("nile.operators.join.range_kernels")

__all__ = ["RangeProbe", "is_counted"]

Array = np.ndarray[Any, Any]
_INT32 = (1 << 31) - 1


def is_counted(plan: JoinPlan) -> bool:
    """Whether counts of keys alone answer the plan: all ranges, and no tuple has to be looked at."""
    return plan.is_exact and plan.output == "ranges" and plan.preference != "asc"


class RangeProbe:
    """A directory of counts of both streams, that grows as tuples come.  Source: DESIGN section 3, range records.

    It reads the input where it lies.  Memory: 16 bytes a distinct key, 12 a tuple of either stream; 32 and 16 from
    2**31 tuples, or 2**29 keys, on.
    """

    def __init__(self, data: JoinInput) -> None:
        self._settled = 0
        columns = (data.left_ts, data.left.codes, data.right_ts, data.right.codes)
        self._streams = range_kernels.Streams(
            *[column if column.shape[0] else np.zeros(1, column.dtype) for column in columns]
        )
        n = data.order.shape[0]
        places = 4 * (data.keys + 1)
        whole = np.int32 if max(n, places) <= _INT32 else np.int64
        self._counted = range_kernels.Counted(
            counts=np.zeros(places, whole),
            until=np.empty(n + range_kernels.AHEAD, np.int64),
            slots=np.empty(n + range_kernels.AHEAD, whole),
            times=np.empty(range_kernels.BATCH, np.int64),
            cursor=np.zeros(1, np.int64),
        )

    def step(self, order: Array, end: int, state: st.State, out: st.Output) -> int:
        """Run to arrival `end` or to where the output is full; returns why it stopped (`operators.common.state`)."""
        return int(range_kernels.probe_ranges(order, end, self._streams, self._counted, state, out))

    def settle(self, grant: Array, state: st.State) -> None:
        """Count what was granted since the last time: nothing waits for credit, so it is not counted as tuples come.

        grant: float64 [n].  Grants are added one by one, so the sum does not depend on when this is called.
        """
        end, real = int(state.whole[st.APPLIED]), state.real
        if end > self._settled:
            real[st.GRANTED] = np.add.accumulate(np.append(real[st.GRANTED], grant[self._settled : end]))[-1]
        self._settled = end
        real[st.CREDIT] = real[st.GRANTED] - real[st.SPENT]

    def forget(self) -> None:
        """As if no tuple had come."""
        self._counted.counts[:] = 0
        self._counted.cursor[:] = 0
        self._settled = 0

    @property
    def directory_bytes(self) -> int:
        """Bytes of the counts: grows with distinct keys."""
        return int(self._counted.counts.nbytes)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of what is kept of each tuple."""
        return int(self._counted.until.nbytes + self._counted.slots.nbytes)
