"""Which rows of a batch may satisfy conditions that compare one column with constants: sorted once for all of them.

Many selections over one stream look for different constants; each then looks at the rows that may be its own.
Source: STREAM (CIDR 2003), section 3.2, and the predicate index of approximate selections, for batches of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from nile.expressions.tree import MIRRORED, Column, Compare, Constant, Logic, Node
from nile.summaries.heavy import pa

__all__ = ["ByValue", "Sought", "chosen", "sought"]

Array = np.ndarray[Any, Any]
_EXACT = 1 << 53


@dataclass(frozen=True, slots=True)
class Sought:
    """column operator constant."""

    column: str
    operator: str
    constant: Any


def sought(condition: Node) -> tuple[Sought, ...]:
    """What rows that satisfy a condition are, all of it; none: there is something in it that is not so simple."""
    parts = condition.items if isinstance(condition, Logic) and condition.operator == "AND" else (condition,)
    found = [_compared(part) for part in parts]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _compared(node: Node) -> Sought | None:
    if not isinstance(node, Compare) or node.operator == "<>":
        return None
    left, right, operator = node.left, node.right, node.operator
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRRORED[operator]  # type: ignore[assignment]
    if not isinstance(left, Column) or not isinstance(right, Constant):
        return None
    value = right.value
    text = type(value) is str and left.kind == right.kind == "text" and operator == "="
    number = type(value) in (int, float) and left.kind in ("integer", "number") and abs(value) < _EXACT  # type: ignore[arg-type]
    return Sought(left.name, operator, value) if text or number else None


class ByValue:
    """The rows of one column in the order of its values.  Nulls satisfy nothing; NaN is beyond all numbers.

    order: the rows in that order, int64.  Cost: a sort; then O(log n) a constant.
    """

    def __init__(self, column: pa.Array) -> None:
        self.rows = len(column)
        self._ranks: Array | None = None
        self._numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        self._whole = pa.types.is_integer(column.type)
        self.usable = self._numbers or pa.types.is_string(column.type)
        self._places: dict[Any, int] = {}
        if not self.usable:
            return
        here = np.arange(len(column))
        if column.null_count:
            here = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        if not self._numbers:
            coded = column.dictionary_encode()
            self._places = {value: code for code, value in enumerate(coded.dictionary.to_pylist())}
            column = coded.indices
        values = column.to_numpy(zero_copy_only=False)
        order = np.argsort(values, kind="stable")
        self._values, self.order = values[order], here[order]

    def span(self, wanted: Sought) -> tuple[int, int] | None:
        """From where to before where in `order` the rows are that satisfy it; None: not known."""
        value = wanted.constant
        if not self.usable or isinstance(value, str) == self._numbers or (self._whole and type(value) is float):
            return None
        if not self._numbers:
            value = self._places.get(value, -1)
        low, high = 0, self._values.shape[0]
        if wanted.operator in ("=", ">=", ">"):
            low = int(self._values.searchsorted(value, "right" if wanted.operator == ">" else "left"))
        if wanted.operator in ("=", "<=", "<"):
            high = int(self._values.searchsorted(value, "left" if wanted.operator == "<" else "right"))
        return low, high

    def ranks(self) -> Array:
        """Of each row its place in `order`, -1 of nulls: int64."""
        if self._ranks is None:
            self._ranks = np.full(self.rows, -1)
            self._ranks[self.order] = np.arange(self.order.shape[0])
        return self._ranks


def chosen(columns: Callable[[str], ByValue], wanted: Sequence[Sought]) -> Array | None:
    """The rows that satisfy all of these, ascending; None: not known."""
    found: list[tuple[int, int, int, ByValue]] = []
    for each in wanted:
        column = columns(each.column)
        if (span := column.span(each)) is None:
            return None
        low, high = span
        if low >= high:
            return column.order[:0]
        found.append((high - low, low, high, column))
    found.sort(key=itemgetter(0))
    fewest, low, high, column = found[0]
    if fewest == column.rows:
        return np.arange(fewest)
    rows = np.sort(column.order[low:high])
    for _, low, high, column in found[1:]:
        ranks = column.ranks()[rows]
        rows = rows[(ranks >= low) & (ranks < high)]
        if not rows.shape[0]:
            break
    return rows
