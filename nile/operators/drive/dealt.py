"""An operator that credit is dealt to, dispatch by dispatch, beside others that live on the same budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, Protocol

from nile.operators.common.contract import Figures, Out
from nile.operators.common.plan import JoinPlan
from nile.preferences import state as st
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.preferences import queue_kernels
    from nile.preferences.queue_kernels import Queue
else:
    queue_kernels = lazy("nile.preferences.queue_kernels")

__all__ = ["Dealt", "Payable"]

_RESERVE, _RESERVE_WHEN_SHORT = 64.0, 256.0  # tuples
_NEARLY_ALL = 0.999


class Payable(Protocol[Out]):
    """An operator whose clock may be looked at: of two streams or of several."""

    @property
    def plan(self) -> JoinPlan:
        """What was asked."""

    @property
    def state(self) -> st.Clocked:
        """Its clock and counters."""

    @property
    def queue(self) -> Queue | None:
        """What waits; None before the first tuple."""

    @property
    def fed(self) -> int:
        """Arrivals it has gone on to."""

    @property
    def spent(self) -> float:
        """Spent so far, in units of the cost table."""

    @property
    def figures(self) -> Figures:
        """What has been done so far."""

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Out]:
        """Go on to arrival `end` (`nile.operators.common.contract`)."""


class Dealt(Generic[Out]):
    """The purse of one operator.  Amounts are in hundredths of the cost table's unit."""

    def __init__(self, operator: Payable[Out]) -> None:
        self.operator = operator

    def step(self, end: int, credit: float, fresh: float) -> list[Out]:
        """`advance` at once.

        fresh: the share of the credit that was granted since the last dispatch.  The rest has been offered before, and
        admission, which looks at how much comes in, must not count it again.
        """
        self.operator.state.real[st.GRANTED_BEFORE] += (1.0 - fresh) * credit
        return list(self.operator.advance(end, credit=credit / 100.0))

    @property
    def probed(self) -> int:
        """Tuples it has probed with."""
        return int(self.operator.state.whole[st.ADMITTED])

    @property
    def admission(self) -> float:
        """The level of key hashes below which it probes."""
        return float(self.operator.state.real[st.ADMISSION])

    @property
    def reserve(self) -> float:
        """Credit to leave it: taking in what comes next must not wait for the next dispatch.

        More while it turns tuples away or samples: then it has a use for credit, though nothing is queued.
        """
        tuples = _RESERVE_WHEN_SHORT if self._is_short else _RESERVE
        return tuples * float(self.operator.state.real[st.ENTRANCE])

    @property
    def _is_short(self) -> bool:
        real = self.operator.state.real
        sampling = self.operator.plan.preference == "weighted" and real[st.RATE] < _NEARLY_ALL
        return bool(sampling or real[st.ADMISSION] < _NEARLY_ALL)

    @property
    def has_work(self) -> bool:
        """Whether anything waits: a region in progress or queued, or a tuple that has not been probed with."""
        whole, queue = self.operator.state.whole, self.operator.queue
        queued = queue is not None and bool(queue.control[queue_kernels.SIZE])
        return bool(whole[st.ACTIVE]) or queued or bool(whole[st.APPLIED] < whole[st.ARRIVED])

    @property
    def has_use(self) -> bool:
        """Whether more credit would serve it: something waits, or it turns tuples away and its reserve is not full."""
        return self.has_work or (self._is_short and bool(self.operator.state.real[st.CREDIT] < self.reserve))

    def settle(self) -> float:
        """What it has left (below 0: has spent beyond its credit), which is taken out of its hand.

        The plain probe asks for no credit: what it has spent is granted after the fact.
        """
        real = self.operator.state.real
        left = float(real[st.CREDIT])
        real[st.GRANTED] -= left
        real[st.CREDIT] = 0.0
        return left

    def give_back(self) -> float:
        """Credit beyond the reserve that it will not use now, taken out of its hand.

        The grant that admission looks at stays: it was offered.
        """
        real = self.operator.state.real
        spare = max(0.0, float(real[st.CREDIT]) - self.reserve)
        real[st.CREDIT] -= spare
        real[st.GRANTED] -= spare
        real[st.GRANTED_BEFORE] -= spare
        return spare
