"""Whether a condition can be true of any row, by the least and the largest value of each column.

Small materialized aggregates (Moerkotte 1998), of which Parquet's statistics are: a block of which it can be true of no
row need not be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nile.expressions.evaluate import evaluate_mask
from nile.expressions.tree import (
    MIRRORED,
    Between,
    Column,
    Compare,
    Comparison,
    Constant,
    In,
    IsNull,
    Logic,
    Node,
    Not,
    columns_of,
)
from nile.summaries.heavy import pa

__all__ = ["Ends", "may_be"]

_DENIED: dict[Comparison, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


@dataclass(frozen=True, slots=True)
class Ends:
    """What is known of a column in a block of `rows` rows.

    values: [2], no value but NaN is below the first or above the second; None: nothing is known of them.
    nulls: how many are null; None: nobody knows.
    """

    values: pa.Array | None
    nulls: int | None
    rows: int


def may_be(node: Node, truth: bool, ends: Mapping[str, Ends]) -> bool:
    """Whether a bound condition may be true (or false) of a row whose columns lie within the ends.

    Where it says no, that is so of every row; a column that is not named may have any value.  O(nodes).
    """
    match node:
        case Logic():
            tests = (may_be(each, truth, ends) for each in node.items)
            return all(tests) if (node.operator == "AND") == truth else any(tests)
        case Not():
            return may_be(node.item, not truth, ends)
        case IsNull() if isinstance(node.item, Column) and node.item.name in ends:
            known = ends[node.item.name]
            return known.nulls is None or (known.nulls > 0 if truth else known.nulls < known.rows)
        case Between():
            above, below = Compare(">=", node.item, node.low), Compare("<=", node.item, node.high)
            return may_be(Logic("AND", (above, below)), truth, ends)
        case In():
            return not truth or any(may_be(Compare("=", node.item, each), True, ends) for each in node.choices)
        case Compare():
            return _may_compare(node, truth, ends)
        case Constant() if node.kind == "boolean":
            return node.value is truth
    return True


def _may_compare(node: Compare, truth: bool, ends: Mapping[str, Ends]) -> bool:
    operator, column, other = node.operator, node.left, node.right
    if not isinstance(column, Column):
        operator, column, other = MIRRORED[operator], node.right, node.left
    if not isinstance(column, Column) or columns_of(other) or column.name not in ends:
        return True
    known = ends[column.name]
    if known.nulls == known.rows:
        return False
    if known.values is None:
        return True
    batch = pa.record_batch([known.values], names=[column.name])
    has_nan = pa.types.is_floating(known.values.type)  # statistics look past NaN, which is above all

    def told(asked: Comparison) -> tuple[Any, Any]:
        """The comparison at both ends; None: it is null there."""
        low, high = evaluate_mask(Compare(asked, column, other), batch).to_pylist()
        return low, high

    match operator if truth else _DENIED[operator]:  # of what is not null one of the two is true
        case "<" | "<=" as asked:
            return told(asked)[0] is not False
        case ">" | ">=" as asked:
            return has_nan or told(asked)[1] is not False
        case "=":
            if has_nan and not _is_finite(other):
                return True
            return told("<=")[0] is not False and told(">=")[1] is not False
        case _:
            return has_nan or told("=") != (True, True)


def _is_finite(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, int | float) and math.isfinite(node.value)
