"""Conditions that compare columns with numbers, worked out by numpy.

Of few rows a call of Arrow's functions costs more than the comparison does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import numbers_of

__all__ = ["MIRRORED", "Compared", "Comparing"]

MIRRORED: dict[str, Any] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What an operator becomes with its sides exchanged."""

_WAYS: dict[str, tuple[Callable[..., Array], bool]] = {
    "=": (np.equal, False),
    "<>": (np.not_equal, False),
    "<": (np.less, False),
    "<=": (np.less_equal, False),
    ">": (np.less_equal, True),
    ">=": (np.less, True),
}
"""How it is compared, and whether that is turned round: NaN is greater than every number."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A column compared with a number that is not NaN.  operator: =, <>, <, <=, > or >=; a whole number (below 2**63)
    is for columns of int64, another for doubles.
    """

    column: str
    operator: str
    number: int | float


class Comparing:
    """A test (`algebra.Test`) that is true where all of some comparisons are.

    otherwise: the same of any rows, asked where a column has nulls, or is of another type than its number.
    """

    DERIVED: ClassVar = ("otherwise", "_compared", "_schema", "_places")

    def __init__(self, compared: Sequence[Compared], otherwise: Callable[[Any], Any]) -> None:
        self.otherwise = otherwise
        self._compared = tuple(compared)
        self._schema: Any = None
        self._places: list[tuple[int, Callable[..., Array], Any, bool]] | None = None

    def __call__(self, rows: Any) -> Any:
        """Of a RecordBatch, as Arrow's functions tell it."""
        return self.otherwise(rows)

    def plainly(self, rows: Any) -> Array | None:
        """For which rows of a RecordBatch or of Columns it is true: bool [n]; None: `otherwise` has to say.  O(n)."""
        if rows.schema is not self._schema:
            self._places, self._schema = self._found(rows.schema), rows.schema
        if self._places is None:
            return None
        all_of: Array | None = None
        for at, way, number, turned in self._places:
            if (numbers := numbers_of(rows, at)) is None:
                return None
            yes = way(numbers, number)
            if turned:
                yes = ~yes
            all_of = yes if all_of is None else all_of & yes
        return all_of

    def _found(self, schema: Any) -> list[tuple[int, Callable[..., Array], Any, bool]] | None:
        """Where the columns are, if all are there in the types of their numbers."""
        found = []
        for each in self._compared:
            at = schema.get_field_index(each.column)
            whole = isinstance(each.number, int)
            if at < 0 or schema.field(at).type != (pa.int64() if whole else pa.float64()):
                return None
            way, turned = _WAYS[each.operator]
            found.append((at, way, each.number, turned))
        return found
