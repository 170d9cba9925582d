"""A leaf of a plan: a stored relation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Clock, Delta, empty
from nile.exact.pipeline.sources.incoming import applied, conformed
from nile.exact.plan.algebra import Project, Select
from nile.exact.state.columns import made
from nile.exact.state.expire import NEVER, joined
from nile.exact.state.held import Held, State

__all__ = ["Relation"]


class Relation:
    """Stored rows: they come at the pipeline's first instant and stay.

    counts: rows out of them and of each node of the chain above.
    """

    KIND: ClassVar = "relation"
    HELD: ClassVar = ("counts", "_rows", "_shown")
    DERIVED: ClassVar = ("clock", "schema")

    def __init__(self, clock: Clock, table: Any, above: list[Select | Project]) -> None:
        self.clock = clock
        self.schema = above[-1].schema if above else table.schema
        whole = joined(table.to_batches(), table.schema) if table.num_rows else joined([], table.schema)
        self.counts = [0] * (1 + len(above))
        self._rows = made(applied(conformed(whole, table.schema), above, self.counts)[0])
        self._shown = False

    def step(self, to: int) -> Delta:
        """All rows, once."""
        if self._shown or self.clock.origin is None or to < self.clock.origin:
            return empty(self.schema)
        self._shown = True
        n = self._rows.num_rows
        return Delta(np.full(n, self.clock.origin, np.int64), np.ones(n, np.int8), self._rows)

    def time(self) -> int:
        """GetTime: stored rows never hold anyone back."""
        return NEVER

    def contents(self) -> Any:
        """The rows."""
        return self._rows if self._shown else joined([], self.schema)

    def capture(self) -> State:
        """The rows as they were read, which those above have seen, and whether they have."""
        return {"counts": np.array(self.counts), "rows": self._rows, "shown": self._shown}

    def restore(self, held: Held) -> None:
        """Put captured rows in the place of those that the definition has now.  Raises EnvelopeError."""
        self.counts[:] = held.counts("counts", len(self.counts)).tolist()
        self._rows = held.rows("rows", self.schema)
        self._shown = held.flag("shown")
        held.end()

    @property
    def memory(self) -> int:
        return int(self._rows.nbytes)
