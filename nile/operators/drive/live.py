"""An operator over live streams: what has come is pushed, and it is driven as far as its budget goes.

One driver whatever the number of streams: a fraction is counted by kernels, time buys one of what each push brings
(`nile.operators.drive.live_budget`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

import numpy as np

from nile.exact.state.held import Held, State
from nile.operators.common.contract import LiveOperator, Out
from nile.operators.drive.live_budget import meter_of
from nile.operators.drive.metered import load_kernels, report_of
from nile.preferences.budget import Budget, BudgetReport
from nile.summaries.heavy import pa

__all__ = ["LiveRun"]

Array = np.ndarray[Any, Any]


class LiveRun(Generic[Out]):
    """The run of an operator over live streams: `take` what has come, in the total order, and get what is found.

    Raises NotYet for a budget that does not go on for as long as tuples come.
    """

    def __init__(self, operator: LiveOperator[Out]) -> None:
        self.operator = operator
        self._meter = meter_of(operator.plan)
        if self._meter is not None:
            load_kernels(operator.example())  # so that loading is not charged

    def take(
        self, ts: tuple[Array, ...], keys: tuple[pa.Array, ...], began: int | None = None
    ) -> Iterator[Out]:  # fmt: skip
        """Tuples of each stream whose turn has come (as `LiveOperator.push` takes them); yields what is found.

        Without tuples, under a budget by the clock, goes on with what waits.  began: when the push was called, ns of
        `time.monotonic_ns`; None: now.  Raises KeyTypeError.
        """
        operator, meter, came = self.operator, self._meter, sum(each.shape[0] for each in ts)
        if not came and (meter is None or not operator.fed):
            return
        if meter is not None:
            yield from meter.take(operator, ts, keys, began)
            return
        operator.push(ts, keys)
        yield from operator.advance(operator.arrivals)
        operator.let_go()

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent so far, in the unit asked in and as a share of the exact cost."""
        asked = self.operator.plan.budget or Budget(fraction=1.0)
        return report_of(asked, self._meter, self.operator.figures)

    def capture(self) -> State:
        """What the operator and the meter hold, between two takes."""
        return {**self.operator.capture(), "meter": {} if self._meter is None else self._meter.capture()}

    def restore(self, state: State, keys: tuple[pa.Array, ...]) -> None:
        """Be where the run was that gave the state; keys: of the tuples it needed.  Raises EnvelopeError."""
        held = Held(state, "state of a live join")
        self.operator.restore(held, keys)
        meter = held.part("meter")
        if self._meter is not None:
            self._meter.restore(meter)
        meter.end()
        held.end()
