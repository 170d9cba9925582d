"""What a run of aggregates did, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AggregateFigures"]


@dataclass(frozen=True, slots=True)
class AggregateFigures:
    """What a run did.  Costs in units of its cost table.

    method, borders: as chosen; cells: of the grid; kept: the share of tuples that the grid kept for its edges;
    read: (tuple, query) pairs looked at; shed: tuples no query ever saw; ruled_out: (tuple, query) pairs that a shared
    summary tells to be none.
    """

    method: str
    borders: str
    cells: int
    kept: float
    read: int
    shed: int
    granted: float
    spent: float
    spent_summary: float
    exact_cost: float
    ruled_out: int = 0

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of what `naive` needs."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0
