"""What answers of joins ask of the streams that they are over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nile.expressions.conditions import Condition
from nile.operators.inputs.joining import Loaded
from nile.summaries.costs import CostTable
from nile.summaries.heavy import pa

__all__ = ["Place", "Streams"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A stream in a join.  name: what the question calls it; key: its column joined on; where: selects its tuples."""

    stream: str
    name: str
    key: str
    where: Condition | None = None

    @property
    def keyed(self) -> str:
        """Its key as the question calls it; in brackets a key of several columns."""
        return f"{self.name}.({self.key})" if ", " in self.key else f"{self.name}.{self.key}"


class Streams(Protocol):
    """The streams of a join, loaded, with everything their runs share."""

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """In the order of the statement."""

    @property
    def key_type(self) -> pa.DataType:
        """Of the key, common to all."""

    @property
    def candidates(self) -> int:
        """How many outputs the exact answer has, a condition over several streams left aside."""

    @property
    def has_ranges(self) -> bool:
        """Whether outputs make whole ranges: there is no condition over several streams."""

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival."""
