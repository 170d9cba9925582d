"""The bound aggregates of a join: what SQL and the builder make."""

from __future__ import annotations

from dataclasses import dataclass

from nile.aggregates.asked import Aggregate
from nile.answers.bound_join import BoundJoin
from nile.answers.join_aggregate import JoinAggregateAnswer, columns_of_aggregates
from nile.base.budgets import GivenBudget
from nile.expressions.conditions import Value
from nile.operators.inputs.home import Home

__all__ = ["BoundJoinAggregate"]


@dataclass(frozen=True, slots=True)
class BoundJoinAggregate:
    """Aggregates over the outputs of a join, of expressions over "name.column"."""

    join: BoundJoin
    aggregates: tuple[Aggregate, ...]
    by: tuple[Value, ...]

    def __str__(self) -> str:
        """As one would write it."""
        made = [value.text for value in self.by] + [f"{each.text} AS {each.name}" for each in self.aggregates]
        told = str(self.join).replace("*", ", ".join(made), 1)
        return told + (f" GROUP BY {', '.join(value.text for value in self.by)}" if self.by else "")

    def answer(self, home: Home, budget: GivenBudget | None = None, *, confidence: float = 0.95) -> JoinAggregateAnswer:
        """Run the join under a budget and aggregate what it finds.

        Without a preference, or with the whole budget, exact; under `weighted` Horvitz-Thompson estimates; under
        desc and asc what was found, which is not a random sample.  Raises what `BoundJoin.answer` raises.
        """
        needed = columns_of_aggregates(self.aggregates, self.by)
        names = self.join.names
        carry = [
            tuple(dict.fromkeys(column.removeprefix(f"{name}.") for column in needed if column.startswith(f"{name}.")))
            for name in names
        ]
        found = self.join.answer(home, budget, carry)
        return JoinAggregateAnswer(found, self.aggregates, self.by, names, confidence)
