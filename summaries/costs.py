"""What one operation costs, in units of the cost clock.

Kernels count operations and a table prices them, so the same seed gives the same answer bit for bit on
every machine.  The tables are fixed: `nile bench calibrate` prints this machine's own, and that changes a
run only when it is named.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["ENGINE", "MEMORY", "CostTable", "cost_table"]


@dataclass(frozen=True, slots=True)
class CostTable:
    """Prices: per tuple (insert, lookup, scan, emit), per sketch row (update, estimate), per counter (add).

    `heap_pop` is multiplied by log2 of the heap's size; `pop` is one pop of the bucket queue.
    Looking at a tuple and its hash is free: the source has done it, for every method alike.
    """

    name: str
    insert: float
    update: float
    estimate: float
    scan: float
    emit: float
    lookup: float
    push: float
    pop: float
    heap_pop: float
    add: float

    def prices(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The prices as float64 [10], in the order of the fields: what kernels take."""
        return np.array(astuple(self)[1:], dtype=np.float64)

    def update_sketch(self, rows: int) -> float:
        """One tuple into one sketch of `rows` rows."""
        return self.update * rows

    def estimate_sketch(self, rows: int) -> float:
        """One key asked of one sketch of `rows` rows."""
        return self.estimate * rows


ENGINE = CostTable("engine", 10, 2, 2, 2, 10, 10, 4, 6, 3, 0.15)
"""A whole engine around each operation: what an operator of a row store spends."""

MEMORY = CostTable("memory", 1, 1, 1.6, 1.7, 1.6, 1, 2, 3.6, 1.5, 0.15)
"""Cache-hot nanoseconds of the bare operations, as measured."""

_TABLES = {table.name: table for table in (ENGINE, MEMORY)}
PRICE_INDEX = {field.name: i for i, field in enumerate(fields(CostTable)[1:])}


def cost_table(name: str) -> CostTable:
    """The table called `name`.  Raises ConfigError for any other name."""
    try:
        return _TABLES[name]
    except KeyError:
        raise ConfigError(
            f"costs: needed one of {', '.join(sorted(_TABLES))}; got {name!r}; name one of these"
        ) from None
