"""How low and high an expression can be, from what the source says of its columns.

A Parquet footer has each column's least and largest value, and a source that types its cells has seen them:
such statistics cost no method anything.  Interval arithmetic (Moore 1966) makes bounds of an expression from
them; wide ones, since it takes the cheapest item to be ordered in the largest quantity.
"""

from __future__ import annotations

import math

from nile.expressions.tree import Arithmetic, Call, Column, Constant, Node
from nile.summaries.heavy import pa, pc

__all__ = ["bounds_of"]

Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)


def bounds_of(node: Node, batch: pa.RecordBatch) -> Interval:
    """The interval that no value of the expression leaves; infinite where nothing is known.  Nulls do not count."""
    match node:
        case Column():
            return _column(batch.column(batch.schema.get_field_index(node.name)))
        case Constant():
            known = isinstance(node.value, (int, float)) and math.isfinite(node.value)
            return (float(node.value), float(node.value)) if known else _ANY  # type: ignore[arg-type]
        case Arithmetic():
            return _arithmetic(node.operator, bounds_of(node.left, batch), bounds_of(node.right, batch))
        case Call():
            if node.function != "abs":
                return _ANY
            low, high = bounds_of(node.arguments[0], batch)
            return (0.0 if low <= 0.0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))
    return _ANY


def _column(values: pa.Array) -> Interval:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return _ANY
    if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
        return _ANY
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return _ANY if low is None else (float(low), float(high))


def _arithmetic(operator: str, left: Interval, right: Interval) -> Interval:
    if not all(map(math.isfinite, (*left, *right))):
        return _ANY
    match operator:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case "*":
            corners = [a * b for a in left for b in right]
            return min(corners), max(corners)
        case "/" if right[0] > 0.0 or right[1] < 0.0:
            corners = [a / b for a in left for b in right]
            return min(corners), max(corners)
    return _ANY
