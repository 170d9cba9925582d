"""What one thing that happened to a plan led to, until every reader of the plan has taken it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nile.exact.pipeline.pipeline import Changes
from nile.execution.live.chosen import ByValue, Sought, chosen
from nile.summaries.heavy import pa

__all__ = ["Event"]


@dataclass(slots=True)
class Event:
    """What one thing that happened led to.  waits: readers that have not taken it; made: what tails made of it."""

    waits: int
    found: list[Changes] = field(default_factory=list)
    fault: Exception | None = None
    made: dict[Any, Any] = field(default_factory=dict)
    by_value: dict[tuple[int, str], ByValue] = field(default_factory=dict)

    def where(self, wanted: tuple[Sought, ...]) -> list[Changes] | None:
        """Of what it led to, the rows that satisfy conditions; None: look at them."""
        out = []
        for number, each in enumerate(self.found):
            places = chosen(partial(self._by_value, number, each), wanted)
            if places is None:
                return None
            if places.shape[0]:
                out.append(Changes(each.ts[places], each.sign[places], each.rows.take(pa.array(places))))
        return out

    def _by_value(self, number: int, changes: Changes, column: str) -> ByValue:
        if (number, column) not in self.by_value:
            self.by_value[number, column] = ByValue(changes.rows.column(changes.rows.schema.get_field_index(column)))
        return self.by_value[number, column]
