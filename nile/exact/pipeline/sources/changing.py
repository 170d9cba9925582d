"""A relation that changes: signed rows, as pushed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST, Delta
from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.plan.algebra import SIGN, Changing, Scan, Unbounded
from nile.exact.state.arrow import pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State

__all__ = ["Signed"]


class Signed:
    """Rows with their signs.  What they come to, and which rows hold, a bag above says."""

    KIND: ClassVar = "changing"
    HELD: ClassVar = ("arrivals", "_now")
    DERIVED: ClassVar = ("schema",)

    def __init__(self, plan: Changing) -> None:
        self.schema = plan.schema
        signed = pa.schema([*plan.schema, pa.field(SIGN, pa.int8())])
        self.arrivals = Incoming(Scan(plan.name, signed, Unbounded(), -1), [])
        self._now = EARLIEST

    def step(self, to: int) -> Delta:
        """What comes and goes up to `to`."""
        self._now = to
        _, _, ts, rows = self.arrivals.take(to)
        *columns, signs = rows.columns
        sign = np.array(signs.to_numpy(zero_copy_only=False), np.int8)
        return Delta(ts, sign, pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def time(self) -> int:
        """GetTime: how far the relation is known."""
        return self._now

    def contents(self) -> Any:
        """Nothing is kept here."""
        return joined([], self.schema)

    def capture(self) -> State:
        """Changes that wait to be worked on."""
        return {"clock": self._now, "arrivals": self.arrivals.capture()}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.arrivals.restore(held.part("arrivals"))
        held.end()

    @property
    def memory(self) -> int:
        return self.arrivals.memory
