"""How much work a query may do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from summaries.errors import BudgetError

__all__ = ["Budget", "BudgetReport"]


@dataclass(frozen=True, slots=True)
class Budget:
    """A share of the work that the exact answer would take, on the cost clock.

    fraction: after arrival i the method has been granted fraction * sum over j <= i of c_j, where c_j =
    insert + lookup + emit * (exact window matches of j).  Unspent grant is kept; nothing is granted after the
    input ends.  1 or more: the whole answer.  Raises BudgetError for zero, a negative or a NaN.
    Source: DESIGN section 2; the paper grants the time between two arrivals (section 2, equation 1).
    """

    fraction: float

    def __post_init__(self) -> None:
        value = self.fraction
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise BudgetError(
                f"budget: needed a fraction above 0, such as 0.1 for a tenth of the exact work; got {value!r}; "
                "use 1 for the whole answer"
            )


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """What was asked and what was spent, both as shares of the exact answer's cost."""

    asked: float
    spent: float
