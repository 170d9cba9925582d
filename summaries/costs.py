"""What one operation costs, in units of the cost clock.

Kernels count operations and a table prices them, so the same seed gives the same answer bit for bit wherever the
table is the same.  `engine` and `memory` are fixed, for figures that must not depend on where they were made; `machine`
is in nanoseconds.
"""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass, fields

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = [
    "ENGINE", "MACHINE", "MEMORY", "SELECTING", "CostTable", "cost_table", "costs_by_tuple", "default_costs",
    "selection_costs",
]  # fmt: skip


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

MACHINE = CostTable("machine", 150, 12, 8, 3, 12, 150, 40, 60, 15, 0.3)
"""Nanoseconds of CPU of operators that take tuples one by one; what no operation is for lies on insert and lookup."""

SELECTING = CostTable("machine", 12, 2, 2, 4, 4, 8, 4, 6, 3, 0.5)
"""The same of selections, whose kernels take tuples in without going back to Python.

Fitted to 10 to 300 predicates of 0.1 to 15 % of the tuples, by process CPU: fed one by one 12 to 16 a tuple, 3.8 to 4
a predicate and 3.2 to 4.3 an output; by one index 17 to 21 a tuple and 2.5 to 5 an output.
"""

_TABLES = {table.name: table for table in (ENGINE, MEMORY, MACHINE)}
PRICE_INDEX = {field.name: i for i, field in enumerate(fields(CostTable)[1:])}


def default_costs() -> str:
    """The table of a query that names none: what NILE_COSTS in the environment says, else `machine`."""
    return os.environ.get("NILE_COSTS") or MACHINE.name


def costs_by_tuple() -> str:
    """As `default_costs`, of operators that take tuples one by one, which have no prices of this machine."""
    named = default_costs()
    return ENGINE.name if named == MACHINE.name else named


def selection_costs(name: str) -> CostTable:
    """The table of selections called `name`, "" as `default_costs` says.  Raises ConfigError for any other name."""
    table = cost_table(name or default_costs())
    return SELECTING if table is MACHINE else table


def cost_table(name: str) -> CostTable:
    """The table called `name`.  Raises ConfigError for any other name."""
    try:
        return _TABLES[name]
    except KeyError:
        raise ConfigError(
            f"costs: needed one of {', '.join(sorted(_TABLES))}; got {name!r}; name one of these"
        ) from None
