"""Above operators with state: selections and projections, a signed tuple in, the same sign out; the output's window."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Above, Clock, Delta, Operator, Stateful
from nile.exact.pipeline.sources.incoming import projected
from nile.exact.pipeline.threaded_selection import kept, passing
from nile.exact.plan.algebra import Project, Select
from nile.exact.state.columns import Numbers, made, picked
from nile.exact.state.expire import nothing
from nile.exact.state.held import Held, State

__all__ = ["OutputWindow", "Projection", "Selection"]


class Selection(Above):
    """Signed tuples for which a test is true.  Source: negative tuples, section 4.6.

    threads: that many tuples may be tested on, None for all cores.
    """

    KIND: ClassVar = "select"
    DERIVED: ClassVar = ("plan", "below", "schema", "_threads")

    def __init__(self, plan: Select, below: Operator, threads: int | None = 1) -> None:
        self._threads = threads
        self.plan = plan
        self.below = below
        self.schema = below.schema

    def step(self, to: int) -> Delta:
        """What is selected of what changes up to `to`."""
        delta = self.below.step(to)
        if not len(delta):
            return delta
        rows, at = kept(delta.given, self.plan.test, self._threads)
        if at is None:
            return delta
        until = None if delta.until is None else delta.until.take(at)
        return Delta(delta.ts.take(at), delta.sign.take(at), rows, until)

    def contents(self) -> Any:
        """The selected rows."""
        rows = self.below.contents()
        return passing(rows, self.plan.test)[0] if rows.num_rows else rows


class Projection(Above):
    """Signed tuples, made anew one for one."""

    KIND: ClassVar = "project"
    DERIVED: ClassVar = ("plan", "below", "schema")

    def __init__(self, plan: Project, below: Operator) -> None:
        self.plan = plan
        self.below = below
        self.schema = plan.schema

    def step(self, to: int) -> Delta:
        """What is made of what changes up to `to`."""
        delta = self.below.step(to)  # changed in place: who made it has no more to do with it
        if (picks := self.plan.picks) is not None and delta.sign.shape[0]:
            if type(given := delta.given) is Numbers:
                given.rename(picks, self.schema)
            else:
                delta.given = picked(given, picks, self.schema)
        else:
            delta.given = self._made(delta.given)
        return delta

    def contents(self) -> Any:
        """The rows made of those below."""
        return made(self._made(self.below.contents()))

    def _made(self, rows: Any) -> Any:
        if not rows.num_rows:
            return nothing(self.schema)
        return projected(rows, self.plan)


class OutputWindow(Stateful):
    """The window of the output: where no negative tuples come, what expires leaves it here."""

    KIND: ClassVar = "window"

    def __init__(self, clock: Clock, below: Operator) -> None:
        super().__init__(clock, [below], below.schema)

    def apply(self, deltas: list[Delta]) -> Delta:
        return Delta(deltas[0].ts, np.sign(deltas[0].sign), deltas[0].rows)

    def contents(self) -> Any:
        return self.inputs[0].contents()

    def captured(self) -> State:
        return {}

    def restored(self, held: Held) -> None:
        """Nothing but what waits to expire."""

    @property
    def own(self) -> int:
        return 0
